"""The head's side of the agent: the Engine Protocol spoken over a pair of streams, whatever they run through.

A `Way` opens the streams (a unix socket for `local:`, one ssh connection later) and starts the agent if need be.
A connection that breaks is made again; every verb is idempotent, so one that lost its answer is asked once more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from snakepit.core.job import AttemptId, ProcessId
from snakepit.engines import agent_wire as wire
from snakepit.engines.agent import frames
from snakepit.engines.agent_wire import Body
from snakepit.engines.base import Command, Created, Event, Go, Inventory, Launch, Offline, Online, Seen, Session
from snakepit.errors import EngineError, NotNow, Rejected, Unreachable

CALL_TIMEOUT_S = 120
HELLO_TIMEOUT_S = 20
RETRY_S = 2.0
SHORT_LIFE_S = 1.0
QUIET_S = 3.0  # an agent that said nothing for so long is asked whether it lives,
PATIENCE_S = 4.0  # and has so long to answer
CHUNK = 1 << 20

CONNECT_TRIES = 4

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Lost(Unreachable):
    """The connection ended under a question."""


class Way(Protocol):
    """How to reach one agent. `version` is that of the program it brings along."""

    version: str

    async def open(self) -> Streams:
        """Streams to a running agent, started if need be; raises Unreachable or Rejected."""
        ...

    async def session(self, ask: Body) -> Session:
        """A fresh connection for one `exec` or `connect`; see `inside`."""
        ...


class Link:
    """One connection: questions with numbers, answers that find their question, events in order."""

    def __init__(self, streams: Streams, epoch: int) -> None:
        self._reader, self._writer = streams
        self._epoch = epoch
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._watching = 0
        self.events: asyncio.Queue[tuple[Body, bytes] | None] = asyncio.Queue()
        self.open, self.silent = True, False
        self.boot_id = self.state_id = ""
        self.opened_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._read())

    async def call(self, verb: str, timeout_s: float = CALL_TIMEOUT_S, **body: Any) -> Any:
        self._number = number = self._number + 1
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        if verb == "watch":
            self._watching = number
        try:
            self._send({"verb": verb, "number": number, "epoch": self._epoch, **body})
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            await self.close()
            raise Unreachable(f"the agent did not answer within {timeout_s:.0f} s") from None
        finally:
            self._answers.pop(number, None)

    def cast(self, verb: str, **body: Any) -> None:
        """A word that needs no answer."""
        with contextlib.suppress(Unreachable):
            self._send({"verb": verb, "epoch": self._epoch, **body})

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._lose("the connection was closed")
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _send(self, header: Body) -> None:
        if not self.open:
            raise Lost("the connection to the agent was lost")
        self._writer.write(frames.encode(header))

    async def _read(self) -> None:
        decoder = frames.Decoder()
        reason = "the agent closed the connection"
        try:
            while data := await self._reader.read(CHUNK):
                for header, payload in decoder.feed(data):
                    self._take(header, payload)
        except (OSError, frames.Garbled) as error:
            reason = str(error)
        self._lose(reason)

    def _take(self, header: Body, payload: bytes) -> None:
        if "event" in header:
            self.events.put_nowait((header, payload))
            return
        if header.get("re") == self._watching:
            self.events = asyncio.Queue()  # what a watch before this one left unread comes again
        answer = self._answers.get(header.get("re") or 0)
        if answer is None or answer.done():
            return
        if "error" in header:
            kind = Rejected if header["error"] == "Rejected" else NotNow
            answer.set_exception(kind(header["message"]))
        else:
            answer.set_result(header["body"])

    def _lose(self, reason: str) -> None:
        if self.open:
            self.open = False
            self._writer.close()
            self.events.put_nowait(None)
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(Lost(f"the connection to the agent was lost: {reason}"))


class AgentEngine:
    """An Engine (base.Engine) over any Way to an agent."""

    def __init__(self, way: Way, cluster: str, epoch: int, options: Body) -> None:
        self._way, self._cluster, self._epoch, self._options = way, cluster, epoch, options
        self._link: Link | None = None
        self._connecting = asyncio.Lock()
        self._offsets: dict[ProcessId, int] = {}
        self._closed = asyncio.Event()

    async def probe(self) -> Inventory:
        found = await self._ask("probe")
        link = await self._connected()
        return wire.inventory(found, link.boot_id, link.state_id)

    async def create(self, launches: Sequence[Launch]) -> Sequence[Created]:
        answer = await self._ask("create", launches=[wire.launch_body(launch) for launch in launches])
        return [wire.created(body) for body in answer]

    async def go(self, goes: Sequence[Go]) -> None:
        await self._ask("go", goes=[wire.go_body(go) for go in goes])

    async def look(self) -> Sequence[Seen]:
        return [wire.seen(body) for body in await self._ask("look")]

    async def stop(self, attempts: Sequence[AttemptId], grace_s: float, cause: str, note: str) -> None:
        await self._ask("stop", attempts=[str(one) for one in attempts], grace_s=grace_s, cause=str(cause), note=note)

    async def clean(self, attempts: Sequence[AttemptId]) -> None:
        await self._ask("clean", attempts=[str(one) for one in attempts])
        gone = set(attempts)
        self._offsets = {process: end for process, end in self._offsets.items() if process.attempt not in gone}

    async def forget(self, user: str) -> None:
        await self._ask("forget", user=user)

    async def watch(self, offsets: Mapping[ProcessId, int]) -> AsyncIterator[Event]:
        self._offsets = {**self._offsets, **offsets}
        while not self._closed.is_set():
            try:
                link = await self._connected()
                answer = await link.call("watch", offsets={str(one): end for one, end in self._offsets.items()})
            except EngineError as error:
                yield Offline(error.message)
                await self._pause(RETRY_S)
                continue
            yield Online(link.boot_id, link.state_id, tuple(wire.seen(body) for body in answer["seen"]))
            while (word := await self._next_word(link)) is not None:
                yield wire.event(*word)
            if link.silent:
                yield Offline("the agent does not answer")
            elif asyncio.get_running_loop().time() - link.opened_at < SHORT_LIFE_S:
                await self._pause(SHORT_LIFE_S)  # an agent that dies as soon as it lives is not worth a busy loop

    async def _next_word(self, link: Link) -> tuple[Body, bytes] | None:
        """The next event; None when the connection is lost, or so silent that it was given up."""
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    return await link.events.get()
            except TimeoutError:
                try:
                    await link.call("hello", PATIENCE_S, cluster=self._cluster)
                except EngineError:
                    link.silent = True
                    return None

    async def ack_output(self, id: ProcessId, offset: int) -> None:
        self._offsets[id] = max(offset, self._offsets.get(id, 0))
        if self._link is not None:
            self._link.cast("ack", process=str(id), offset=offset)

    async def exec(self, id: ProcessId, command: Command) -> Session:
        terminal = list(command.size) if command.size is not None else None
        given = dict(command.environment)
        return await self._session(
            "exec", process=str(id), argv=list(command.argv), environment=given, terminal=terminal
        )

    async def connect(self, id: ProcessId, port: int, spare: bool = False) -> Session:
        return await self._session("connect", process=str(id), port=port, spare=spare)

    async def _session(self, verb: str, **body: Any) -> Session:
        await self._connected()  # so that the agent is there, and of our version
        return await self._way.session({"verb": verb, "epoch": self._epoch, **body})

    async def close(self) -> None:
        self._closed.set()
        if self._link is not None:
            await self._link.close()
            self._link = None

    async def leave(self) -> None:
        if self._link is not None and self._link.open:  # none is started in order to be ended
            with contextlib.suppress(EngineError):
                await self._link.call("retire", HELLO_TIMEOUT_S)
        await self.close()

    async def _ask(self, verb: str, **body: Any) -> Any:
        link = await self._connected()
        try:
            return await link.call(verb, **body)
        except Unreachable:
            return await (await self._connected()).call(verb, **body)

    async def _connected(self) -> Link:
        if self._closed.is_set():
            raise Unreachable("this engine was closed")
        async with self._connecting:
            if self._link is None or not self._link.open:
                self._link = await self._connect()
            return self._link

    async def _connect(self) -> Link:
        """One of another version gives way. What a dead one had just forked may hold its socket open a moment longer:
        then the connection ends unheard, and the next one finds nobody, or another agent."""
        problem = Unreachable("an agent of another version will not give way")
        for _ in range(CONNECT_TRIES):
            link = Link(await self._way.open(), self._epoch)
            try:
                hello = await link.call("hello", HELLO_TIMEOUT_S, cluster=self._cluster)
                if hello["version"] == self._way.version:
                    await link.call("settle", HELLO_TIMEOUT_S, options=self._options)
                    link.boot_id, link.state_id = hello["boot_id"], hello["state_id"]
                    return link
                await link.call("retire", HELLO_TIMEOUT_S)
                await link.events.get()  # None: it is gone, and its lock with it
            except Lost as lost:
                problem = lost
            except EngineError:
                await link.close()
                raise
            await link.close()
        raise problem

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
