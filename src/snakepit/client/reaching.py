"""How git gets to a repository: one on this machine by its path, the user's own at the head by an open connection.

The connection is ours, not that of another `pit` that git would have to start: it is opened while the snapshot is still
being made, and git gets the socket itself (its `fd::` transport). Only what has to be changed on the way, by TLS,
passes through here.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from snakepit.client.client import Client
from snakepit.client.http import query
from snakepit.client.pipe import Pipe, open_pipe, relay
from snakepit.errors import SnakepitError, Unauthorized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Protocol

    class Place(Protocol):
        """Where a repository is. `reach` gives its address for git, and the handles that git needs for it."""

        def reach(self, service: str) -> AbstractContextManager[tuple[str, tuple[int, ...]]]: ...


PUSH, FETCH = "receive-pack", "upload-pack"
FRESH_S = 20.0  # a proxy may cut what says nothing for longer


class Here:
    __slots__ = ("_address",)

    def __init__(self, address: str) -> None:
        self._address = address

    @contextlib.contextmanager
    def reach(self, _service: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield self._address, ()


class Head:
    """The user's snapshots at the head."""

    def __init__(self, client: Client) -> None:
        self._client, self._ahead = client, _Ahead()

    def expect(self, service: str) -> None:
        """It will soon be asked for: the connection is opened meanwhile."""
        self._ahead.close()
        self._ahead = _Ahead(lambda: self._open(service), service)

    @contextlib.contextmanager
    def reach(self, service: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        pipe = self._ahead.take(service) or self._opened(service)
        try:
            with _handle(pipe) as handle:
                yield f"fd::{handle}", (handle,)
        finally:
            pipe.close()

    def close(self) -> None:
        self._ahead.close()

    def _opened(self, service: str) -> Pipe:
        try:
            return self._open(service)
        except Unauthorized:
            self._client.call("GET", "/users/~")  # asks for the password, where somebody is there
            return self._open(service)

    def _open(self, service: str) -> Pipe:
        return open_pipe(self._client, "/pipes/git" + query({"repository": "snapshots", "service": service}))


class _Ahead:
    """One pipe that a thread opens. What goes wrong there is forgotten: who needs it then asks again, and hears it."""

    def __init__(self, open: Callable[[], Pipe] | None = None, service: str = "") -> None:
        self._service, self._opened_at = service, 0.0
        self._pipe: Pipe | None = None
        self._unwanted = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, args=(open,), daemon=True) if open is not None else None
        if self._thread is not None:
            self._thread.start()

    def take(self, service: str) -> Pipe | None:
        """The open pipe, once; None where there is none that is good."""
        if self._thread is not None:
            self._thread.join()
        pipe, self._pipe = self._pipe, None
        if pipe is not None and (service != self._service or time.monotonic() - self._opened_at > FRESH_S):
            pipe.close()
            return None
        return pipe

    def close(self) -> None:
        """At once: a service that does not answer holds nobody up who no longer needs it."""
        with self._lock:
            self._unwanted = True
            if self._pipe is not None:
                self._pipe.close()

    def _work(self, open: Callable[[], Pipe]) -> None:
        with contextlib.suppress(SnakepitError):
            pipe = open()
            with self._lock:
                self._pipe, self._opened_at = pipe, time.monotonic()
                if self._unwanted:
                    pipe.close()


@contextlib.contextmanager
def _handle(pipe: Pipe) -> Iterator[int]:
    """What another program can read and write: the socket, if each of its directions can end on its own."""
    if pipe.ends_apart:
        yield pipe.socket.fileno()
        return
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=_carry, args=(pipe, ours), daemon=True)
    thread.start()
    try:
        yield theirs.fileno()
    finally:
        theirs.close()
        for each in (ours, pipe.socket):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(
                    each, socket.SHUT_RDWR
                )  # the plain one's: TLS would be torn off under the thread
        thread.join()  # before its handle is closed: the number may soon be that of something else
        ours.close()


def _carry(pipe: Pipe, ours: socket.socket) -> None:
    with contextlib.suppress(OSError):
        relay(pipe, ours.fileno(), ours.fileno())
        ours.shutdown(socket.SHUT_WR)
