"""A byte stream to a program on the head: an HTTP request that becomes the stream, and a relay for two handles.

It is started often (by git, rsync, sshfs), so it imports little: no urllib, no selectors, ssl only with https.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading

from snakepit.client.client import Client, refusal
from snakepit.client.http import LostAnswer, connect, read_headers, reason
from snakepit.errors import SnakepitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Protocol

    class Stream(Protocol):
        """What a relay needs: bytes both ways, an end. `heard` counts what came."""

        heard: int

        def receive_into(self, space: memoryview) -> int: ...
        def send(self, data: memoryview) -> None: ...
        def close(self) -> None: ...


ANSWER_LIMIT_S = 60
SILENCE_S = 30
BLOCK = 1 << 20
LONGEST_MESSAGE = 65536
RESET = struct.pack("ii", 1, 0)


class Pipe:
    """A connection that the service has switched over. `ends_apart`: each direction can end on its own."""

    __slots__ = ("ends_apart", "socket")

    def __init__(self, opened: socket.socket, ends_apart: bool) -> None:
        self.socket, self.ends_apart = opened, ends_apart

    def close(self) -> None:
        self.socket.close()


def open_pipe(client: Client, path: str) -> Pipe:
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
            headers = _switched(reader)  # type: ignore[arg-type]
        opened.settimeout(None)
        return Pipe(opened, not client.address.tls and headers.get("x-half-close") != "no")
    except OSError as problem:
        opened.close()
        raise LostAnswer(f"Lost connection to pit: {reason(problem)}") from None
    except BaseException:
        opened.close()
        raise


def allow_waiting(opened: socket.socket) -> None:
    """A program at the far end may read nothing for hours, and that is no broken connection: the limit of `http` would
    take it for one, as it counts from the last byte that was taken, not from the last answer."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


def hang_up_at_once(opened: socket.socket) -> None:
    """However it is closed, by a `kill -9` too: without this, the end would wait behind bytes that nobody reads."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def _switched(reader: BinaryIO) -> dict[str, str]:
    words = reader.readline(LONGEST_MESSAGE).split(None, 2)
    if not words:
        raise LostAnswer("Lost connection to pit: no answer")
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise SnakepitError("what answers there does not speak HTTP")
    headers, status = read_headers(reader), int(words[1])
    if status == 101:
        return headers
    length = headers.get("content-length", "")
    body = reader.read(min(int(length), LONGEST_MESSAGE)) if length.isdigit() else b""
    if 200 <= status < 300:
        raise SnakepitError("no pipe: something on the way to the service does not pass upgrades on")
    raise refusal(status, body)


def relay(pipe: Pipe, stdin: int, stdout: int) -> int:
    """Bytes both ways until the far end has no more; how many came from there. The end of stdin is passed on."""
    stream: Stream = _Secured(pipe.socket) if hasattr(pipe.socket, "pending") else _Plain(pipe.socket)
    # A daemon: it may still wait for a stdin that nobody will ever close.
    threading.Thread(target=_forth, args=(pipe, stream, stdin, stdout), daemon=True).start()
    space = memoryview(bytearray(BLOCK))
    came = 0
    try:
        while count := stream.receive_into(space):
            came += count
            _write(stdout, space[:count])
    except ConnectionError:
        pass  # the far end, or our reader, went without a word; what came, came
    finally:
        stream.close()
    return came


def _forth(pipe: Pipe, stream: Stream, stdin: int, stdout: int) -> None:
    space = bytearray(BLOCK)
    view = memoryview(space)
    with contextlib.suppress(OSError):  # the other direction notices, and ends it all
        while count := _read(stdin, space):
            stream.send(view[:count])
        if not pipe.ends_apart:
            _linger(stream, stdout)
    with contextlib.suppress(OSError):
        pipe.socket.shutdown(socket.SHUT_WR if pipe.ends_apart else socket.SHUT_RDWR)


def _linger(stream: Stream, stdout: int) -> None:
    """git closes its side after a push and still waits for the answer: the connection stays until our reader has gone,
    or nothing has come for a while."""
    heard = stream.heard
    while not _is_readerless(stdout):
        if heard == stream.heard:
            return
        heard = stream.heard


def _is_readerless(stdout: int) -> bool:
    """Whether nobody reads what we write; known at once, or after the silence of a whole `SILENCE_S`."""
    waiting = select.poll()
    waiting.register(stdout, 0)  # errors and hang-ups are always told
    return bool(waiting.poll(SILENCE_S * 1000))


def _read(handle: int, space: bytearray) -> int:
    while True:
        try:
            return os.readv(handle, [space])
        except BlockingIOError:  # rsync hands out handles that do not wait
            _wait(handle, select.POLLIN)


def _write(handle: int, data: memoryview) -> None:
    while data:
        try:
            data = data[os.write(handle, data) :]
        except BlockingIOError:
            _wait(handle, select.POLLOUT)


def _wait(handle: int, event: int) -> None:
    waiting = select.poll()
    waiting.register(handle, event)
    waiting.poll()


class _Plain:
    def __init__(self, opened: socket.socket) -> None:
        self._socket, self.heard = opened, 0

    def receive_into(self, space: memoryview) -> int:
        count = self._socket.recv_into(space)
        self.heard += count
        return count

    def send(self, data: memoryview) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


class _Secured:
    """TLS from two threads: OpenSSL's state is one, so every step is taken under a lock and never waits there."""

    def __init__(self, opened: socket.socket) -> None:
        import ssl

        self._socket, self._lock, self.heard = opened, threading.Lock(), 0
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
                _wait(self._socket.fileno(), self._event(problem))
                continue
            if not got:
                break
            count += got
        self.heard += count
        return count

    def send(self, data: memoryview) -> None:
        while data:
            try:
                with self._lock:
                    sent = self._socket.send(data)
            except (self._want_read, self._want_write) as problem:
                _wait(self._socket.fileno(), self._event(problem))
                continue
            data = data[sent:]

    def close(self) -> None:
        self._socket.close()

    def _event(self, problem: Exception) -> int:
        return select.POLLIN if isinstance(problem, self._want_read) else select.POLLOUT
