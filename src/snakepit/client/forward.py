"""Local ports that lead into a job: one loop over all connections, each with a way of its own through the service.

The ways are opened ahead (`ahead`), so that a new connection costs one round trip. When the service goes, connections
end; the loop waits for it to come back, and holds new ones meanwhile. A "no" of the service ends it all.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial

from snakepit.client.ahead import Opened, Openers
from snakepit.client.client import Client
from snakepit.client.framing import CHUNK, In, Out, not_now
from snakepit.client.http import NoConnection, query
from snakepit.client.pipe import allow_waiting, hang_up_at_once, open_pipe
from snakepit.client.ports import listen
from snakepit.errors import SnakepitError, TooMany, Unavailable

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
SPARES, MOST_SPARES = 3, 16
MOST_WAITING = 1000
SHORT_LIFE_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
FULL, FULL_PAUSE_S = (errno.EMFILE, errno.ENFILE), 0.2
CALL, CONNECTED = b"\1", b"\0"


class Door:
    """One forwarded port: where it listens, what it asks the service for, and what stands ready for it."""

    def __init__(self, listeners: list[socket.socket], path: str, name: str) -> None:
        self.listeners, self.path, self.name = listeners, path, name
        self.spares: list[socket.socket] = []
        self.waiting: collections.deque[socket.socket] = collections.deque()
        self.opening = 0
        self.deaf = False  # the last one found nobody listening, and that was said

    @property
    def port(self) -> int:
        return int(self.listeners[0].getsockname()[1])

    def close(self) -> None:
        for one in (*self.listeners, *self.spares, *self.waiting):
            one.close()


def door_of(job: int, worker: int, local: int, remote: int) -> Door:
    """A local port (0: any) that leads to one of a worker."""
    # All its connections are one visit: the audit trail has one entry for them.
    asked = query({"port": remote, "spare": 1, "visit": os.urandom(12).hex()})
    path = f"/jobs/{job}/instances/{worker}/connect{asked}"
    return Door(listen(local), path, f"port {remote} of worker {worker}")


class Forward:
    """`say` gets lines for people: that the service went or came, that nobody listens."""

    def __init__(self, client: Client, doors: list[Door], say: Callable[[str], None]) -> None:
        self._client, self._doors, self._say = client, doors, say
        self._openers: Openers[Door] = Openers(self._open)
        self._loop = selectors.DefaultSelector()
        self._space = memoryview(bytearray(CHUNK))
        self._joints: set[_Joint] = set()
        self._problem: SnakepitError | None = None
        self._pause_s, self._again_at = 0.0, 0.0
        # Listeners that found no handle left, and when they are heard again.
        self._unheard: list[tuple[Door, socket.socket]] = []
        self._hear_at = 0.0
        self._away = self._closed = False
        self._stop, self._stopper = socket.socketpair()
        self._loop.register(self._stop, READ, self._stopped)
        self._loop.register(self._openers.wake, READ, self._opened)
        for door in doors:
            for listener in door.listeners:
                self._hear(door, listener)

    def _open(self, door: Door) -> socket.socket:
        way = open_pipe(self._client, door.path).socket
        allow_waiting(way)
        return way

    def begin(self) -> None:
        """The first way for every door, now: what is wrong is raised, before anybody was told that it works."""
        try:
            for door in self._doors:
                way = self._open(door)
                way.setblocking(False)
                self._offer(door, way)
        except BaseException:
            self._close()
            raise

    def run(self) -> None:
        """Until `stop`, or until the service says no: that is raised."""
        try:
            while not self._closed:
                self._order()
                for key, events in self._loop.select(self._patience_s()):
                    known = self._loop.get_map().get(key.fd)  # not one that was closed a moment ago
                    if known is not None and known.fileobj is key.fileobj:
                        known.data(events)
                if self._problem is not None:
                    raise self._problem
        finally:
            self._close()

    def _patience_s(self) -> float | None:
        times = [self._again_at] * bool(self._pause_s) + [self._hear_at] * bool(self._unheard)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def stop(self) -> None:
        """From any thread."""
        with contextlib.suppress(OSError):
            self._stopper.send(b"!")

    def _stopped(self, _: int) -> None:
        self._closed = True

    def _close(self) -> None:
        self._openers.close()
        for joint in tuple(self._joints):
            joint.close(reset=True)
        for door in self._doors:
            door.close()
        for one in (self._loop, self._stop, self._stopper):
            one.close()

    # ----------------------------------------------------------------------------------------------- ways, ahead of use

    def _order(self) -> None:
        """As many as are waited for, and some more."""
        while self._unheard and time.monotonic() >= self._hear_at:
            self._hear(*self._unheard.pop())
        if self._pause_s and time.monotonic() < self._again_at:
            return
        for door in self._doors:
            # One knocks while the service is away; all others wait for what it hears.
            wanted = 1 if self._pause_s else len(door.waiting) + SPARES - len(door.spares)
            while door.opening < wanted:
                door.opening += 1
                self._openers.ask(door)
                if self._pause_s:
                    return

    def _opened(self, _: int) -> None:
        for each in self._openers.found():
            door = each.door
            door.opening -= 1
            if each.socket is None:
                self._refused(each)
                continue
            self._pause_s = 0.0
            if self._away:
                self._away = False
                self._say("Connected to pit again.")
            each.socket.setblocking(False)
            self._offer(door, each.socket)

    def _refused(self, each: Opened[Door]) -> None:
        if isinstance(each.problem, TooMany) and self._joints:
            self._later()  # ours are many; one of them will end
        elif isinstance(each.problem, NoConnection | Unavailable):
            if not self._away:
                self._away = True
                self._say(f"{each.problem.message}. Trying again until it is back...")
            self._later()
        else:
            self._problem = self._problem or each.problem

    def _later(self) -> None:
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 1.5 or FIRST_PAUSE_S)
        self._again_at = time.monotonic() + self._pause_s

    def _offer(self, door: Door, way: socket.socket) -> None:
        if door.waiting:
            self._call(door, door.waiting.popleft(), way)
        else:
            door.spares.append(way)
            self._loop.register(way, READ, partial(self._wilted, door, way, time.monotonic()))

    def _wilted(self, door: Door, way: socket.socket, born_at: float, _: int) -> None:
        """A spare one has nothing to say but its end: the service went, or the right, or the worker."""
        self._loop.unregister(way)
        door.spares.remove(way)
        way.close()
        if time.monotonic() < born_at + SHORT_LIFE_S:
            self._later()

    # --------------------------------------------------------------------------------------------------- connections

    def _hear(self, door: Door, listener: socket.socket) -> None:
        self._loop.register(listener, READ, partial(self._accept, door, listener))

    def _accept(self, door: Door, listener: socket.socket, _: int) -> None:
        try:
            end, _ = listener.accept()
        except OSError as problem:
            if problem.errno in FULL:  # it would be told again at once, and for ever
                self._loop.unregister(listener)
                self._unheard.append((door, listener))
                self._hear_at = time.monotonic() + FULL_PAUSE_S
            return
        if len(door.waiting) >= MOST_WAITING:
            reset(end)
            return
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if door.spares:
            way = door.spares.pop(0)
            self._loop.unregister(way)
            self._call(door, end, way)
        else:
            door.waiting.append(end)

    def _call(self, door: Door, end: socket.socket, way: socket.socket) -> None:
        try:
            way.send(CALL)
        except OSError:
            way.close()
            door.waiting.appendleft(end)
            return
        self._loop.register(way, READ, partial(self._answered, door, end, way))

    def _answered(self, door: Door, end: socket.socket, way: socket.socket, _: int) -> None:
        try:
            answer = way.recv(1)
        except not_now(way):
            return
        except OSError:
            answer = b""
        self._loop.unregister(way)
        if answer == CONNECTED:
            door.deaf = False
            joint = _Joint(self._loop, end, way, self._space, partial(self._parted, door))
            self._joints.add(joint)
            joint.carry(0)
            return
        way.close()
        if not answer:  # it went while it was called: nothing of this connection is lost, so it gets another one
            door.waiting.appendleft(end)
            return
        reset(end)
        if not door.deaf:
            door.deaf = True
            self._say(f"Connection refused: nobody listens on {door.name}")

    def _parted(self, door: Door, joint: _Joint, way: socket.socket | None) -> None:
        """A way whose connection ended in good order is as good as new."""
        self._joints.discard(joint)
        if way is not None:
            if len(door.spares) < MOST_SPARES:
                self._offer(door, way)
            else:
                way.close()


class _Joint:
    """A connection here (`end`) and its way (`way`), joined; `gone` gets the way back where it can be used again."""

    def __init__(
        self,
        loop: selectors.BaseSelector,
        end: socket.socket,
        way: socket.socket,
        space: memoryview,
        gone: Callable[[_Joint, socket.socket | None], None],
    ) -> None:
        self._loop, self._end, self._way, self._space, self._gone = loop, end, way, space, gone
        self._flows = (Out(end, way), In(way, end))
        self._events = {end: 0, way: 0}

    def close(self, reset: bool = False) -> None:
        for one, events in self._events.items():
            if events:
                self._loop.unregister(one)
        self._events = dict.fromkeys(self._events, 0)
        if reset:
            _linger_not(self._end)
            self._way.close()
        self._end.close()
        self._gone(self, None if reset else self._way)

    def carry(self, _: int) -> None:
        try:
            for flow in self._flows:
                flow.pump(self._space)
        except OSError:  # reset by one side: so it is for the other
            self.close(reset=True)
            return
        if all(flow.done for flow in self._flows):
            self.close()
            return
        wanted = {self._end: 0, self._way: 0}
        for flow in self._flows:
            if flow.rest:
                wanted[flow.sink] |= WRITE
            elif not flow.ended:
                wanted[flow.source] |= READ
        for one, events in wanted.items():
            self._want(one, events)

    def _want(self, one: socket.socket, events: int) -> None:
        before = self._events[one]
        if events == before:
            return
        if not events:
            self._loop.unregister(one)
        elif not before:
            self._loop.register(one, events, self.carry)
        else:
            self._loop.modify(one, events, self.carry)
        self._events[one] = events


def reset(one: socket.socket) -> None:
    """Closed so that the other side hears of an error, not of an end."""
    _linger_not(one)
    one.close()


def _linger_not(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        hang_up_at_once(one)
