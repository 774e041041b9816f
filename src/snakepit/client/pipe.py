"""A byte stream to a program on the head: an HTTP request that becomes the stream, and a relay for two handles.

It is started often (by git, rsync, sshfs), so it imports little: no urllib, no selectors, ssl only with https.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading

from snakepit.client.client import Client, refusal
from snakepit.client.http import LostAnswer, connect, read_headers, reason
from snakepit.errors import SnakepitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Protocol

    class Stream(Protocol):
        """What a relay needs: bytes both ways, an end of one direction, an end."""

        def receive_into(self, space: memoryview) -> int: ...
        def send(self, data: memoryview) -> None: ...
        def no_more(self) -> None: ...
        def close(self) -> None: ...


ANSWER_LIMIT_S = 60
BLOCK = 1 << 20
LONGEST_MESSAGE = 65536


def open_pipe(client: Client, path: str) -> socket.socket:
    """The connection, once the service has switched it over; its "no" is raised with its words."""
    opened = connect(client.address, client.certificate)
    try:
        opened.settimeout(ANSWER_LIMIT_S)
        lines = [
            f"GET {client.address.prefix}{path} HTTP/1.1",
            f"Host: {client.address.host_header}",
            "Connection: Upgrade",
            "Upgrade: pit-pipe",
            f"X-Auth-Token: {client.token}",
        ]
        head = "\r\n".join(lines)
        if not head.isascii() or head.count("\n") != len(lines) - 1:
            raise SnakepitError("not a path of a pipe, or not a token")
        opened.sendall((head + "\r\n\r\n").encode())
        # Unbuffered: what follows the 101 is the program's, and stays in the socket.
        with opened.makefile("rb", buffering=0) as reader:
            _switched(reader)  # type: ignore[arg-type]
        opened.settimeout(None)
        return opened
    except OSError as problem:
        opened.close()
        raise LostAnswer(f"Lost connection to pit: {reason(problem)}") from None
    except BaseException:
        opened.close()
        raise


def _switched(reader: BinaryIO) -> None:
    words = reader.readline(LONGEST_MESSAGE).split(None, 2)
    if not words:
        raise LostAnswer("Lost connection to pit: no answer")
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise SnakepitError("what answers there does not speak HTTP")
    headers, status = read_headers(reader), int(words[1])
    if status == 101:
        return
    length = headers.get("content-length", "")
    body = reader.read(min(int(length), LONGEST_MESSAGE)) if length.isdigit() else b""
    if 200 <= status < 300:
        raise SnakepitError("no pipe: something on the way to the service does not pass upgrades on")
    raise refusal(status, body)


def relay(opened: socket.socket, stdin: int, stdout: int) -> int:
    """Bytes both ways until the far end has no more; how many came from there. The end of stdin is passed on."""
    stream: Stream = _Secured(opened) if hasattr(opened, "pending") else _Plain(opened)
    # A daemon: it may still wait for a stdin that nobody will ever close.
    threading.Thread(target=_forth, args=(stream, stdin), daemon=True).start()
    space = memoryview(bytearray(BLOCK))
    came = 0
    try:
        while count := stream.receive_into(space):
            came += count
            _write(stdout, space[:count])
    except ConnectionError:
        pass  # the far end went without a word; what came, came
    finally:
        stream.close()
    return came


def _forth(stream: Stream, stdin: int) -> None:
    space = bytearray(BLOCK)
    view = memoryview(space)
    with contextlib.suppress(OSError):  # the other direction notices, and ends it all
        while count := os.readv(stdin, [space]):
            stream.send(view[:count])
    with contextlib.suppress(OSError):
        stream.no_more()


def _write(handle: int, data: memoryview) -> None:
    while data:
        data = data[os.write(handle, data) :]


class _Plain:
    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened

    def receive_into(self, space: memoryview) -> int:
        return self._socket.recv_into(space)

    def send(self, data: memoryview) -> None:
        self._socket.sendall(data)

    def no_more(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


class _Secured:
    """TLS from two threads: OpenSSL's state is one, so every step is taken under a lock and never waits there."""

    def __init__(self, opened: socket.socket) -> None:
        import ssl

        self._socket, self._lock = opened, threading.Lock()
        self._want_read, self._want_write = ssl.SSLWantReadError, ssl.SSLWantWriteError
        self._ends = (ssl.SSLZeroReturnError, ssl.SSLEOFError)
        opened.setblocking(False)

    def receive_into(self, space: memoryview) -> int:
        """As much as is there, so that many small records become one write."""
        count = 0
        while count < len(space):
            try:
                with self._lock:
                    got = self._socket.recv_into(space[count:])
            except self._ends:
                break
            except (self._want_read, self._want_write) as problem:
                if count:
                    break
                self._wait(problem)
                continue
            if not got:
                break
            count += got
        return count

    def send(self, data: memoryview) -> None:
        while data:
            try:
                with self._lock:
                    sent = self._socket.send(data)
            except (self._want_read, self._want_write) as problem:
                self._wait(problem)
                continue
            data = data[sent:]

    def no_more(self) -> None:
        """TLS ends both directions with one word; web servers in front take the end of one for the end of both."""
        with self._lock:
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()  # type: ignore[attr-defined]
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _wait(self, problem: Exception) -> None:
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN if isinstance(problem, self._want_read) else select.POLLOUT)
        waiting.poll()
