"""Connections into jobs: one process beside the agent that joins sockets in pairs, hundreds of them, each at its pace.

For every connection the agent hands over the line on which it was asked for. The answer goes back on that line, the
caller's own socket comes in over it, and the connection ends with the line. A *spare* one is made ready before it is
needed: its first byte says when, and one byte comes back (0: connected, 1: nobody listens). From there on frames travel
on it: four bytes (the length, big-endian), the bytes; an empty one ends its direction. (Web servers on the way take the
end of one direction of a connection for the end of both.) When both have ended it is a spare one again.
"""

import errno
import json
import os
import resource
import select
import signal
import socket
import struct
from typing import Any, Callable, Dict, List, Optional, Union

from snakepit.engines.agent import frames, handing, listeners, procs
from snakepit.engines.agent.aside import close_all_but
from snakepit.engines.agent.complaint import complain

CHUNK = 256 << 10
CONNECTED, NOBODY = b"\0", b"\1"
LENGTH = struct.Struct("!I")
READ, WRITE, ERROR, HANGUP = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR, select.EPOLLHUP
NOTHING = -1
Act = Callable[[int], None]


class Switchboard:
    """The agent's handle on it: forked when first needed, and again should it have died."""

    def __init__(self) -> None:
        self._line: Optional[socket.socket] = None

    def take(self, line: socket.socket, ask: Dict[str, Any]) -> None:
        """Gives it the line; ours is closed."""
        order = json.dumps(ask).encode()
        for _ in range(2):
            if self._line is None:
                self._line = _fork()
            try:
                handing.send(self._line, order, [line.fileno()])
                break
            except OSError:
                self._line.close()
                self._line = None
        line.close()


def _fork() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            if os.fork() == 0:
                _run(theirs.fileno())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    theirs.close()
    return ours


def _run(orders: int) -> None:
    try:
        os.setsid()
        close_all_but((0, 1, 2, orders))
        signal.set_wakeup_fd(-1)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _Board(socket.socket(fileno=orders)).run()
    except Exception:
        complain()


class _Board:
    """epoll itself, not `selectors`: a socket of which we want nothing at the moment must still tell of a reset."""

    def __init__(self, orders: socket.socket) -> None:
        self._epoll = select.epoll()
        self._acts: Dict[int, Act] = {}
        self._events: Dict[int, int] = {}
        self._orders: Optional[socket.socket] = orders
        self.joints: "set[_Joint]" = set()
        self._jobs: Dict[int, _Handle] = {}
        self.want(orders, READ, self._order)

    def run(self) -> None:
        """Until the agent is gone and the last connection too."""
        while self._orders is not None or self.joints:
            for descriptor, events in self._epoll.poll():
                act = self._acts.get(descriptor)
                try:
                    if act is not None:
                        act(events)
                except (BlockingIOError, InterruptedError):
                    continue
                except Exception:  # one connection, whatever befell it, harms no other
                    complain()
                    if isinstance(getattr(act, "__self__", None), _Joint):
                        act.__self__.close()  # type: ignore[union-attr]

    def end_with(self, holder: int) -> None:
        """All connections into a job end when its holder does; spare ones would not notice."""
        if holder in self._jobs:
            return
        descriptor = procs.pidfd(holder)
        if descriptor is not None:  # on old kernels spare ones are found useless when they are called
            self._jobs[holder] = _Handle(descriptor)
            self.want(self._jobs[holder], READ, lambda _: self._ended(holder))

    def _ended(self, holder: int) -> None:
        handle = self._jobs.pop(holder)
        self.want(handle, NOTHING)
        os.close(handle.fileno())
        for joint in [joint for joint in self.joints if joint.holder == holder]:
            joint.close()

    def want(self, one: "Union[socket.socket, _Handle]", events: int, act: Optional[Act] = None) -> None:
        """From now on `act` hears of these events, and of errors in any case; NOTHING: not even of those."""
        number = one.fileno()
        before = self._events.get(number, NOTHING)
        if act is not None and events != NOTHING:
            self._acts[number] = act
        if events == before:
            return
        if events == NOTHING:
            self._epoll.unregister(number)
            del self._events[number], self._acts[number]
            return
        if before == NOTHING:
            self._epoll.register(number, events)
        else:
            self._epoll.modify(number, events)
        self._events[number] = events

    def _order(self, _: int) -> None:
        assert self._orders is not None
        data, descriptors = handing.receive(self._orders)
        if not data:
            self.want(self._orders, NOTHING)
            self._orders.close()
            self._orders = None
            return
        _Joint(self, socket.socket(fileno=descriptors[0]), json.loads(data.decode()))


class _Handle:
    """Something with a number that is no socket."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number


class _Flow:
    """Bytes from one socket to the other; at most one chunk is under way, so memory is bounded by the slower side."""

    __slots__ = ("done", "ended", "rest", "sink", "source")

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.rest = memoryview(b"")
        self.ended = False  # the source said its last byte
        self.done = False  # and the sink knows

    def pump(self) -> None:
        try:
            if not self.rest and not self.ended:
                self.rest = memoryview(self.take())
            if self.rest:
                self.rest = self.rest[self.sink.send(self.rest) :]
        except (BlockingIOError, InterruptedError):
            pass
        if self.ended and not self.rest and not self.done:
            self.done = True
            self.finish()

    def take(self) -> bytes:
        data = self.source.recv(CHUNK)
        self.ended = not data
        return data

    def finish(self) -> None:
        self.sink.shutdown(socket.SHUT_WR)


class _Framed(_Flow):
    """Bytes in, frames out."""

    __slots__ = ()

    def take(self) -> bytes:
        data = super().take()
        return LENGTH.pack(len(data)) + data

    def finish(self) -> None:
        pass  # the empty frame said it


class _Unframed(_Flow):
    """Frames in, bytes out."""

    __slots__ = ("beyond", "head", "left")

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        super().__init__(source, sink)
        self.head, self.left = b"", 0
        self.beyond = b""  # what came after the end: the next call

    def take(self) -> bytes:
        data = self.source.recv(CHUNK)
        if not data:
            raise OSError("it broke off")
        parts, at = [], 0
        while at < len(data) and not self.ended:
            if self.left == 0:
                part = data[at : at + LENGTH.size - len(self.head)]
                self.head, at = self.head + part, at + len(part)
                if len(self.head) == LENGTH.size:
                    (self.left,), self.head = LENGTH.unpack(self.head), b""
                    self.ended = self.left == 0
            else:
                part = data[at : at + self.left]
                self.left, at = self.left - len(part), at + len(part)
                parts.append(part)
        self.beyond = data[at:]
        return b"".join(parts)


class _Joint:
    """One connection: its line (`line`), the caller's socket (`end`), the socket into the job (`target`)."""

    def __init__(self, board: _Board, line: socket.socket, ask: Dict[str, Any]) -> None:
        self._board, self._line, self._ask = board, line, ask
        self._end: Optional[socket.socket] = None
        self._target: Optional[socket.socket] = None
        self._flows: List[_Flow] = []
        self.holder = ask["holder"]
        board.joints.add(self)
        board.end_with(self.holder)
        line.setblocking(False)
        if ask.get("spare"):
            self._answer({"body": {}})
        else:
            self._connect()

    def close(self) -> None:
        for one in (self._line, self._end, self._target):
            if one is not None and one.fileno() >= 0:
                self._board.want(one, NOTHING)
                one.close()
        self._board.joints.discard(self)

    # -- making it

    def _connect(self) -> None:
        target = listeners.find(listeners.place_of(self._ask), self._ask["port"])
        if target is None:
            self._failed()
            return
        self._target = socket.socket(target[0], socket.SOCK_STREAM)
        self._target.setblocking(False)
        self._target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._target.connect_ex((target[1], self._ask["port"]))
        if code not in (0, errno.EINPROGRESS):
            self._failed()
        elif code == 0:
            self._connected()
        else:
            self._board.want(self._target, WRITE, self._made)

    def _made(self, _: int) -> None:
        assert self._target is not None
        if self._target.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._failed()
        else:
            self._connected()

    def _connected(self) -> None:
        assert self._target is not None
        self._board.want(self._target, NOTHING)
        if self._end is None:
            self._answer({"body": {}})
        else:
            self._end.send(CONNECTED)
            self._join()

    def _failed(self) -> None:
        """Where the caller's socket is here already (a spare one), it hears of it by a byte."""
        if self._end is not None:
            self._end.send(NOBODY)
        else:
            message = "nobody of this job listens on port {}".format(self._ask["port"])
            self._answer({"error": "Rejected", "message": message})
        self.close()

    def _answer(self, word: Dict[str, Any]) -> None:
        self._line.send(frames.encode(dict(word, re=self._ask.get("number"))))
        if "error" not in word:
            if self._ask.get("by") == "handing":
                self._board.want(self._line, READ, self._attached)
            else:
                self._take(self._line)

    def _attached(self, events: int) -> None:
        _, descriptors = handing.receive(self._line)
        if not descriptors:
            self.close()
            return
        self._board.want(self._line, READ, self._let_go)
        self._take(socket.socket(fileno=descriptors[0]))

    def _take(self, end: socket.socket) -> None:
        self._end = end
        end.setblocking(False)
        if self._target is not None:
            self._join()
        else:
            self._board.want(end, READ, self._called)

    def _called(self, _: int) -> None:
        """The first byte on a spare connection."""
        assert self._end is not None
        self._board.want(self._end, NOTHING)
        try:
            said = self._end.recv(1)
        except OSError:
            said = b""
        if said:
            self._connect()
        else:
            self.close()

    def _let_go(self, _: int) -> None:
        self.close()

    def _over(self) -> None:
        """Both directions have ended in good order."""
        flow = self._flows[0]
        if not isinstance(flow, _Unframed):
            self.close()
            return
        assert self._end is not None
        assert self._target is not None
        self._board.want(self._target, NOTHING)
        self._target.close()
        self._target, self._flows = None, []
        if flow.beyond:
            self._board.want(self._end, NOTHING)
            self._connect()
        else:
            self._board.want(self._end, READ, self._called)

    # -- carrying

    def _join(self) -> None:
        assert self._end is not None
        assert self._target is not None
        if self._ask.get("spare"):
            self._flows = [_Unframed(self._end, self._target), _Framed(self._target, self._end)]
        else:
            self._flows = [_Flow(self._end, self._target), _Flow(self._target, self._end)]
        self._carry(0)

    def _carry(self, events: int) -> None:
        try:
            for flow in self._flows:
                flow.pump()
        except OSError:
            events = ERROR
        if events & ERROR:
            self.close()  # reset by one side: so it is for the other
            return
        if all(flow.done for flow in self._flows):
            self._over()
            return
        wanted: Dict[socket.socket, int] = {}
        for flow in self._flows:
            if flow.rest:
                wanted[flow.sink] = wanted.get(flow.sink, 0) | WRITE
            elif not flow.ended:
                wanted[flow.source] = wanted.get(flow.source, 0) | READ
        for one in (self._end, self._target):
            assert one is not None
            # One that hung up would say so again and again; what it left is read when the other side has room.
            self._board.want(one, wanted.get(one, NOTHING if events & HANGUP else 0), self._carry)
