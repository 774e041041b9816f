"""As much of the sftp protocol (version 3) as tests need, on a connected socket."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

INIT, VERSION, OPEN, CLOSE, READ, WRITE = 1, 2, 3, 4, 5, 6
OPENDIR, READDIR, REALPATH, RENAME, SYMLINK = 11, 12, 16, 18, 20
STATUS, HANDLE, DATA, NAME = 101, 102, 103, 104
TO_READ, TO_WRITE = 0x1, 0x2 | 0x8 | 0x10  # the latter: create, truncate


class Refused(Exception):
    """The server's own words."""


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(raw)) + raw


class Sftp:
    def __init__(self, connected: socket.socket, timeout_s: float = 20) -> None:
        self.socket = connected
        connected.settimeout(timeout_s)
        self._send(INIT, struct.pack(">I", 3))
        assert self._receive()[0] == VERSION

    def names(self, path: str = ".") -> set[str]:
        handle = self._handle(OPENDIR, text(path))
        found: set[str] = set()
        with contextlib.suppress(Refused):
            while True:
                found |= set(_names(self._ask(READDIR, text(handle))[1]))
        self._ask(CLOSE, text(handle))
        return found - {".", ".."}

    def realpath(self, path: str = ".") -> str:
        return next(_names(self._ask(REALPATH, text(path))[1]))

    def read(self, path: str) -> bytes:
        handle = self._handle(OPEN, text(path) + struct.pack(">II", TO_READ, 0))
        content = b""
        with contextlib.suppress(Refused):
            while True:
                content += self._ask(READ, text(handle) + struct.pack(">QI", len(content), 32768))[1][4:]
        self._ask(CLOSE, text(handle))
        return content

    def write(self, path: str, content: bytes) -> None:
        handle = self._handle(OPEN, text(path) + struct.pack(">II", TO_WRITE, 0))
        self._ask(WRITE, text(handle) + struct.pack(">Q", 0) + text(content))
        self._ask(CLOSE, text(handle))

    def rename(self, old: str, new: str) -> None:
        self._ask(RENAME, text(old) + text(new))

    def symlink(self, target: str, path: str) -> None:
        self._ask(SYMLINK, text(target) + text(path))  # OpenSSH's order, not the standard's

    def is_ended(self) -> bool:
        """Whether the far end has closed; waits for it up to the timeout."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def _handle(self, kind: int, body: bytes) -> bytes:
        return self._ask(kind, body)[1][4:]

    def _ask(self, kind: int, body: bytes) -> tuple[int, bytes]:
        self._send(kind, struct.pack(">I", 7) + body)
        answered, content = self._receive()
        content = content[4:]
        if answered == STATUS and struct.unpack(">I", content[:4])[0] != 0:
            size = struct.unpack(">I", content[4:8])[0]
            raise Refused(content[8 : 8 + size].decode())
        return answered, content

    def _send(self, kind: int, body: bytes) -> None:
        self.socket.sendall(struct.pack(">IB", len(body) + 1, kind) + body)

    def _receive(self) -> tuple[int, bytes]:
        size = struct.unpack(">I", self._exactly(4))[0]
        content = self._exactly(size)
        return content[0], content[1:]

    def _exactly(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            more = self.socket.recv(size - len(content))
            if not more:
                raise ConnectionError("the pipe ended")
            content += more
        return content


def _names(body: bytes) -> Iterator[str]:
    count, at = struct.unpack(">I", body[:4])[0], 4
    for _ in range(count):
        parts = []
        for _ in range(2):
            size = struct.unpack(">I", body[at : at + 4])[0]
            parts.append(body[at + 4 : at + 4 + size])
            at += 4 + size
        flags = struct.unpack(">I", body[at : at + 4])[0]
        at += 4 + (8 if flags & 1 else 0) + (8 if flags & 2 else 0) + (4 if flags & 4 else 0) + (8 if flags & 8 else 0)
        yield parts[0].decode("utf-8", "surrogateescape")
