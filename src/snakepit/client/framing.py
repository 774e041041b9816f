"""The two halves of a forwarded connection: bytes of a program here, frames on the way to the job.

A frame is four bytes (the length, big-endian) and as many bytes; an empty one ends its direction. Nothing here waits:
what cannot go on at once is kept, at most one chunk for each direction, and tried again when the loop says so.
"""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod

CHUNK = 256 << 10
LENGTH = struct.Struct("!I")
NOT_NOW: tuple[type[OSError], ...] = (BlockingIOError, InterruptedError)


class BrokenOff(OSError):
    """The way to the job ended before its last word."""


def not_now(one: socket.socket) -> tuple[type[OSError], ...]:
    """What a socket raises that would have to wait."""
    if not hasattr(one, "pending"):
        return NOT_NOW
    import ssl

    return (*NOT_NOW, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Flow(ABC):
    """One direction. `rest`: taken but not given; `ended`: nothing more will come; `done`: and the other side knows."""

    __slots__ = ("_not_now", "done", "ended", "rest", "sink", "source")

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self._not_now = not_now(source) if hasattr(source, "pending") else not_now(sink)
        self.rest = memoryview(b"")
        self.ended = self.done = False

    def pump(self, space: memoryview) -> None:
        """As far as it goes now; `space` is the loop's own and free again afterwards."""
        try:
            while not self.done:
                if not self.rest and not self.ended:
                    self.rest = self.take(space)
                if self.rest:
                    self.rest = self.rest[self.sink.send(self.rest) :]
                if self.ended and not self.rest:
                    self.done = True
                    self.finish()
                if not self.hurried():
                    break
        except self._not_now:
            pass
        if self.rest:
            self.rest = memoryview(bytes(self.rest))

    def hurried(self) -> bool:
        """TLS may hold bytes that no look at the socket tells of."""
        return not self.rest and not self.done and hasattr(self.source, "pending") and self.source.pending() > 0

    @abstractmethod
    def take(self, space: memoryview) -> memoryview:
        """What there is now, in `space`; sets `ended`."""

    @abstractmethod
    def finish(self) -> None:
        """Tell the sink that nothing more will come."""


class Out(Flow):
    """From the program here to the job."""

    __slots__ = ()

    def take(self, space: memoryview) -> memoryview:
        count = self.source.recv_into(space[LENGTH.size : CHUNK])
        self.ended = not count
        LENGTH.pack_into(space, 0, count)
        return space[: LENGTH.size + count]

    def finish(self) -> None:
        """The empty frame said it."""


class In(Flow):
    """From the job to the program here."""

    __slots__ = ("_head", "_left")

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        super().__init__(source, sink)
        self._head, self._left = b"", 0

    def take(self, space: memoryview) -> memoryview:
        """The contents of what came, moved together at the beginning of `space`."""
        count = self.source.recv_into(space[:CHUNK])
        if not count:
            raise BrokenOff("the way to the job broke off")
        at = kept = 0
        while at < count and not self.ended:
            if self._left:
                size = min(self._left, count - at)
                if kept != at:
                    space[kept : kept + size] = space[at : at + size]
                self._left, at, kept = self._left - size, at + size, kept + size
                continue
            part = bytes(space[at : min(count, at + LENGTH.size - len(self._head))])
            self._head, at = self._head + part, at + len(part)
            if len(self._head) == LENGTH.size:
                (self._left,), self._head = LENGTH.unpack(self._head), b""
                self.ended = self._left == 0
        return space[:kept]

    def finish(self) -> None:
        self.sink.shutdown(socket.SHUT_WR)
