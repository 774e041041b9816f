"""An honest Engine in memory: the verbs, the order of events, the refusals, no processes. For tests of other rooms.

A `FakeNode` is the machine and what its agent remembers; a `FakeEngine` is one head's way to it. What a process does is
said by `behave`. The node can be cut off, rebooted, or lose its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from snakepit.core.job import AttemptId, Cause, Ended, ProcessId
from snakepit.engines.base import (
    Command,
    Created,
    Event,
    Exited,
    Go,
    Inventory,
    Launch,
    Offline,
    Online,
    Output,
    Seen,
    Session,
)
from snakepit.engines.fake_inside import FakeSession, echo, run
from snakepit.errors import Rejected, Unreachable

CHUNK = 256 << 10


@dataclass(frozen=True, slots=True)
class Act:
    """What a process does: says `output`, then exits with `code`; None: runs until it is stopped."""

    output: bytes = b""
    code: int | None = 0
    code_on_term: int = 143
    result: str = ""


@dataclass(slots=True)
class Held:
    """One process on the node."""

    launch: Launch
    created: Created
    phase: str = "created"
    output: bytes = b""
    act: Act = field(default_factory=Act)
    ended: Ended | None = None
    sent: int = 0
    waiting: bool = False
    told: bool = False


Behave = Callable[[Launch, Go], Act]


class FakeNode:
    def __init__(self, behave: Behave = lambda launch, go: Act(), inventory: Inventory | None = None) -> None:
        self.behave = behave
        self.inventory = inventory or Inventory(4, 16 << 30, (), "sandbox", hostname="fake")
        self.held: dict[ProcessId, Held] = {}
        self.tombstones: set[AttemptId] = set()
        self.epoch = 0
        self.offline = ""  # why it cannot be reached
        self.ports: set[int] = set()  # where somebody listens, and says back what he hears
        self.boot_id, self.state_id = "boot-1", "state-1"
        self.listener: asyncio.Queue[Event | None] | None = None
        self.changed = asyncio.Event()
        self._numbers = count(2)

    def cut_off(self, reason: str = "no route to host") -> None:
        self.offline = reason
        self.disconnect()

    def come_back(self) -> None:
        self.offline = ""
        self.changed.set()

    def reboot(self) -> None:
        """What ran is lost; the agent remembers that it did."""
        self.boot_id = f"boot-{next(self._numbers)}"
        for held in self.held.values():
            if held.phase == "running":
                self._end(held, Ended(Cause.LOST, None, "the node was restarted while it ran"))
        self.disconnect()

    def lose_memory(self) -> None:
        self.state_id = f"state-{next(self._numbers)}"
        self.held.clear()
        self.tombstones.clear()
        self.disconnect()

    def say(self, id: ProcessId, data: bytes) -> None:
        self.held[id].output += data
        self.push(self.held[id])

    def finish(self, id: ProcessId, code: int = 0) -> None:
        held = self.held[id]
        if held.phase == "running":
            signal = 128 < code <= 192
            note = f"killed by signal {code - 128}" if signal else ""
            self._end(held, Ended(Cause.SIGNAL if signal else Cause.EXIT, code, note, held.act.result, 1.0))

    def start(self, held: Held, go: Go) -> None:
        held.phase, held.act = "running", self.behave(held.launch, go)
        held.output += held.act.output[: held.launch.log_limit_bytes]
        if held.act.code is not None:
            self.finish(held.launch.id, held.act.code)
        elif go.time_limit_s:
            note = f"time limit of {go.time_limit_s} s reached"
            asyncio.get_running_loop().call_later(go.time_limit_s, self.stop, held, "time limit", note)
        self.push(held)

    def stop(self, held: Held, cause: str, note: str) -> None:
        if held.phase != "ended":
            code = held.act.code_on_term if held.phase == "running" else None
            self._end(held, Ended(Cause(cause), code, note, held.act.result, 1.0))

    def push(self, held: Held) -> None:
        """Sends what may be sent: a chunk, after its acknowledgement the next, at last the end."""
        if self.listener is None or held.waiting or held.told:
            return
        data = held.output[held.sent : held.sent + CHUNK]
        if data:
            self.listener.put_nowait(Output(held.launch.id, held.sent, data, 1.0))
            held.sent += len(data)
            held.waiting = True
        elif held.ended is not None:
            held.told = True
            self.listener.put_nowait(Exited(held.launch.id, held.ended, held.sent))

    def _end(self, held: Held, ended: Ended) -> None:
        held.phase, held.ended = "ended", ended
        self.push(held)

    def disconnect(self) -> None:
        if self.listener is not None:
            self.listener.put_nowait(None)
            self.listener = None


class FakeEngine:
    """The Engine of one head (`epoch`) to a FakeNode."""

    def __init__(self, node: FakeNode, epoch: int = 1) -> None:
        self._node, self._epoch = node, epoch
        self._offsets: dict[ProcessId, int] = {}
        self._closed = False

    async def probe(self) -> Inventory:
        node = self._reached()
        found = node.inventory
        return Inventory(
            found.cpus, found.mem_bytes, found.resources, found.isolation, found.isolation_problem, found.limits,
            found.hostname, node.boot_id, node.state_id,
        )  # fmt: skip

    async def create(self, launches: Sequence[Launch]) -> Sequence[Created]:
        node = self._reached()
        for launch in launches:
            if launch.id not in node.held:
                self._refuse_buried(launch.id)
                if not launch.argv:
                    raise Rejected(f"{launch.id}: nothing to run")
        for launch in launches:
            if launch.id not in node.held:
                place = len(node.held) + 1
                ports = tuple(range(20000 + 8 * place, 20000 + 8 * place + launch.ports))
                node.held[launch.id] = Held(launch, Created(launch.id, f"127.9.{place >> 8}.{place & 255}", ports))
        return [node.held[launch.id].created for launch in launches]

    async def go(self, goes: Sequence[Go]) -> None:
        node = self._reached()
        for go in goes:
            if go.id not in node.held:
                self._refuse_buried(go.id)
                raise Rejected(f"{go.id} was never created here")
        for go in goes:
            if node.held[go.id].phase == "created":
                node.start(node.held[go.id], go)

    async def look(self) -> Sequence[Seen]:
        held = self._reached().held
        return [Seen(id, one.phase, one.ended, len(one.output)) for id, one in held.items()]

    async def stop(self, attempts: Sequence[AttemptId], grace_s: float, cause: str, note: str) -> None:
        node = self._reached()
        node.tombstones.update(attempts)
        for held in list(node.held.values()):
            if held.launch.id.attempt in attempts:
                node.stop(held, cause, note)

    async def clean(self, attempts: Sequence[AttemptId]) -> None:
        node = self._reached()
        node.tombstones.update(attempts)
        for id in [id for id in node.held if id.attempt in attempts]:
            del node.held[id]
            self._offsets.pop(id, None)

    async def forget(self, user: str) -> None:
        self._reached()  # nothing is kept for anybody

    async def watch(self, offsets: Mapping[ProcessId, int]) -> AsyncIterator[Event]:
        self._offsets = {**self._offsets, **offsets}
        while not self._closed:
            try:
                node = self._reached()
            except (Unreachable, Rejected) as error:
                yield Offline(error.message)
                self._node.changed.clear()
                await self._node.changed.wait()
                continue
            events = self._listen(node)
            yield Online(node.boot_id, node.state_id, tuple(await self.look()))
            for held in list(node.held.values()):
                node.push(held)
            while (event := await events.get()) is not None:
                yield event

    async def ack_output(self, id: ProcessId, offset: int) -> None:
        self._offsets[id] = max(offset, self._offsets.get(id, 0))
        held = self._node.held.get(id)
        if held is not None and held.waiting and offset >= held.sent:
            held.waiting = False
            self._node.push(held)

    async def exec(self, id: ProcessId, command: Command) -> Session:
        self._running(id)
        return FakeSession(lambda reader, writer: run(command, reader, writer))

    async def connect(self, id: ProcessId, port: int, spare: bool = False) -> Session:
        self._running(id)
        if not spare and port not in self._node.ports:
            raise Rejected(f"nobody of this job listens on port {port}")
        return FakeSession(lambda reader, writer: echo(port in self._node.ports, spare, reader, writer))

    def _running(self, id: ProcessId) -> None:
        held = self._reached().held.get(id)
        if held is None or held.phase != "running":
            raise Rejected("Worker not active")

    async def close(self) -> None:
        self._closed = True
        self._node.changed.set()
        self._node.disconnect()

    async def leave(self) -> None:
        await self.close()

    def _listen(self, node: FakeNode) -> asyncio.Queue[Event | None]:
        if node.listener is not None:
            node.listener.put_nowait(None)
        node.listener = asyncio.Queue()
        for id, held in node.held.items():
            held.sent, held.waiting, held.told = min(self._offsets.get(id, 0), len(held.output)), False, False
        return node.listener

    def _reached(self) -> FakeNode:
        node = self._node
        if node.offline:
            raise Unreachable(node.offline)
        if self._epoch < node.epoch:
            raise Rejected(f"a newer head took over (epoch {node.epoch}, yours {self._epoch})")
        node.epoch = self._epoch
        return node

    def _refuse_buried(self, id: ProcessId) -> None:
        if id.attempt in self._node.tombstones:
            raise Rejected(f"{id} was stopped or cleaned before")
