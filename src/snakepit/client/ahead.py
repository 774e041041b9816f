"""Connections to the service opened before they are needed, by a few threads; the loop that uses them never waits.

Each is a *spare* one: it stands there, let in by the service, until its first byte lets it through to its port.
"""

from __future__ import annotations

import collections
import contextlib
import queue
import socket
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from snakepit.errors import SnakepitError

OPENERS = 6
D = TypeVar("D")


class Opened(Generic[D]):
    """What became of one opening: a socket for a door, or the reason why there is none."""

    __slots__ = ("door", "problem", "socket")

    def __init__(self, door: D, opened: socket.socket | None, problem: SnakepitError | None) -> None:
        self.door, self.socket, self.problem = door, opened, problem


class Openers(Generic[D]):
    """`open(door)` is called in threads; `wake` becomes readable when something was opened (or could not be)."""

    def __init__(self, open: Callable[[D], socket.socket]) -> None:
        self._open = open
        self._asked: queue.SimpleQueue[D | None] = queue.SimpleQueue()
        self._found: collections.deque[Opened[D]] = collections.deque()
        self.wake, self._bell = socket.socketpair()
        self.wake.setblocking(False)
        self._bell.setblocking(False)
        self._threads = 0

    def ask(self, door: D) -> None:
        if self._threads < OPENERS:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True).start()
        self._asked.put(door)

    def found(self) -> list[Opened[D]]:
        """What came since the last look."""
        with contextlib.suppress(BlockingIOError):
            self.wake.recv(4096)
        found = []
        while self._found:
            found.append(self._found.popleft())
        return found

    def close(self) -> None:
        """The threads go when they are done; what they still open is closed with the process."""
        for _ in range(self._threads):
            self._asked.put(None)
        for each in self.found():
            if each.socket is not None:
                each.socket.close()
        self.wake.close()
        self._bell.close()

    def _work(self) -> None:
        while (door := self._asked.get()) is not None:
            try:
                result = Opened(door, self._open(door), None)
            except SnakepitError as problem:
                result = Opened(door, None, problem)
            except Exception as problem:  # a thread that dies would leave its caller waiting for ever
                result = Opened(door, None, SnakepitError(f"{type(problem).__name__}: {problem}"))
            self._found.append(result)
            with contextlib.suppress(OSError):  # a full bell has rung
                self._bell.send(b"!")
