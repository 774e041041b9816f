"""Pairs of ports, `local[:remote]`, and their local half: listening on both loopbacks, or saying what is in the way."""

from __future__ import annotations

import contextlib
import errno
import socket

from snakepit.errors import BadRequest, SnakepitError

TRIES = 20
BACKLOG = 512
NO_SUCH_FAMILY = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)


class PortPair:
    """`local` 0: any that is free."""

    __slots__ = ("local", "remote")

    def __init__(self, local: int, remote: int) -> None:
        self.local, self.remote = local, remote


def parse(word: str) -> PortPair:
    """`8080`, `8080:80`, `0:80`."""
    local, colon, remote = word.partition(":")
    pair = [_port(text) for text in ((local, remote) if colon else (local, local))]
    if pair[0] is None or not pair[1]:
        raise BadRequest(f'Wrong port pair format: "{word}" (expected local[:remote], like 8080 or 8080:80 or 0:80)')
    return PortPair(pair[0], pair[1])


def _port(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 65536 else None


def listen(port: int) -> list[socket.socket]:
    """Listeners on 127.0.0.1 and, where there is one, on ::1, with the same port; for 0 one that is free on both."""
    for _ in range(TRIES):
        first = _bound(socket.AF_INET, "127.0.0.1", port)
        number = first.getsockname()[1]
        try:
            second = _bound(socket.AF_INET6, "::1", number)
        except _NotHere:
            return [first]
        except SnakepitError:
            first.close()
            if port:
                raise
            continue
        return [first, second]
    raise SnakepitError("found no free port on localhost")


class _NotHere(SnakepitError):
    """A machine without this family of addresses."""


def _bound(family: int, address: str, port: int) -> socket.socket:
    made = None
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
        made.listen(BACKLOG)
        made.setblocking(False)
        return made
    except OSError as problem:
        if made is not None:
            made.close()
        if family == socket.AF_INET6 and problem.errno in NO_SUCH_FAMILY:
            raise _NotHere(str(problem)) from None
        raise SnakepitError(_words(port, problem)) from None


def _words(port: int, problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return f"Port {port} is in use on localhost; choose another one, or 0 for any that is free"
    if problem.errno == errno.EACCES:
        return f"Port {port} on localhost is for administrators only; choose one above 1023"
    return f"Cannot listen on port {port} of localhost: {problem.strerror}"
