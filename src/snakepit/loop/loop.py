"""Look, decide, write down, act. One turn at a time, whenever something happened; a slow timer only heals.

What happened is put in the inbox by deeds, by nodes and by people. A turn lets `Decisions` take it all in, writes the
changes in one transaction, and only then lets the deeds begin. No network call inside a transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any

from snakepit.core.job import ProcessId, State
from snakepit.core.placement import Free, Placed, Refusal, never_fits
from snakepit.core.request import Request
from snakepit.core.schedule import why
from snakepit.engines.base import Engine, Exited, Offline, Online, Output, Usage
from snakepit.errors import NotFound, Unavailable
from snakepit.loop.decisions import Decisions
from snakepit.loop.deeds import Deeds, LoopSettings, Provision
from snakepit.loop.keeping import keep, remove_job, sweep
from snakepit.loop.live import Changes, Live, LiveProcess, apply
from snakepit.loop.logbook import LogBooks, keep_output
from snakepit.loop.meetings import Meetings
from snakepit.loop.nodes import EngineFor, Nodes
from snakepit.source.sweep import drop_user
from snakepit.store import aliases, attempts, jobs, nodes, users
from snakepit.store.database import Store
from snakepit.store.rows import JobInput, JobRow, ProcessRow

log = logging.getLogger(__name__)
Clock = Callable[[], dt.datetime]


class Loop:
    """The scheduler of one cluster."""

    def __init__(
        self, store: Store, settings: LoopSettings, engine_for: EngineFor, provision: Provision, clock: Clock
    ) -> None:
        self._store, self._settings, self._clock = store, settings, clock
        self._live = Live(Free([], {}))
        self.log = LogBooks(settings.root)
        self._deeds = Deeds(store, self._live.nodes, self.log, provision, settings, self.tell, self.tell_later)
        self._decisions = Decisions(self._live, self._deeds, self.log, settings, self.tell, self.tell_later)
        self._meetings = Meetings(self._live, self._deeds, self._decisions)
        self.nodes = Nodes(self, store, self._live, engine_for, clock)
        self._inbox: list[tuple[str, tuple[Any, ...]]] = []
        self._fresh: set[int] = set()
        self._something = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._turning: asyncio.Task[None] | None = None
        self._version = 0
        self._versioned = asyncio.Event()
        self._waiters: dict[int, asyncio.Event] = {}
        self._fits: dict[tuple[Request, frozenset[str]], Refusal | None] = {}

    # --- the service's side ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up everything where it was written down, and begin to turn."""
        await sweep(self._store, self._settings.root)
        await self._reload_access()
        for row in await self._store.read(nodes.all):
            self.nodes.adopt(row)
        rows = await self._store.read(jobs.live)
        going = await self._store.read(attempts.live)
        changes = Changes(self._clock())
        self._decisions.load(
            rows, [(attempt.id, [_process(row) for row in found]) for attempt, found in going], changes
        )
        await self._write_down(changes)
        self._act(changes)
        self._turning = asyncio.create_task(self._turns())
        self.nodes.watch_all()
        self._something.set()
        self.spawn(keep(self._store, self._settings, self._clock))

    async def close(self) -> None:
        """Stop turning; what runs on the nodes runs on."""
        if self._turning is not None:
            self._turning.cancel()
        await self.nodes.close()
        tasks = [task for task in (self._turning, *self._tasks, *self._preparations()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)

    def submitted(self, row: JobRow, given: JobInput | None = None) -> None:
        """The job is in the database, as `row` says."""
        self._fresh.add(row.id)
        self.log.begin(row.id)  # whoever follows it at once waits, too
        self.tell("submitted", row, given)

    async def stop(self, job: int, reason: str) -> None:
        await self.ask("stop", job, reason)

    def never_fits(self, request: Request, user: str) -> Refusal | None:
        """Why no set of known nodes could ever hold it, or None."""
        who = self._live.who(user)
        key = (request, who.groups)
        if key not in self._fits:
            cores = [node.core() for node in self._live.nodes.values()]
            self._fits[key] = never_fits(request, cores, self._live.aliases, who)
        return self._fits[key]

    async def add_node(self, node: str, endpoint: str, properties: Mapping[str, Any]) -> None:
        await self.nodes.add(node, endpoint, dict(properties))

    async def change_node(self, node: str, properties: Mapping[str, Any]) -> None:
        await self.nodes.change(node, dict(properties))

    async def remove_node(self, node: str) -> None:
        await self.nodes.remove(node)

    async def set_drained(self, node: str, on: bool, reason: str) -> None:
        await self.nodes.set_drained(node, on, reason)

    def why(self, job: int) -> tuple[str, ...]:
        """Why the job is not further than it is, in words."""
        live = self._live.jobs.get(job)
        if live is None:
            return ()
        match live.state:
            case State.NEW:
                return (f"waits for its preparation: {self._settings.max_parallel_prep} can run at a time",)
            case State.PREPARING:
                return ("its code is being prepared",)
            case State.WAITING:
                return why(self._live.queue, self._live.free, job, 0) or (live.reason or "is about to start",)
            case State.STARTING if live.attempt is not None:
                return (f"is being started on {', '.join(live.attempt.nodes)}",)
            case State.RUNNING if live.attempt is not None:
                return (f"runs on {', '.join(live.attempt.nodes)}",)
            case _:
                return (f"is ending: {live.reason}" if live.reason else "is ending",)

    def position(self, job: int) -> int:
        """Its place among the waiting ones, from 1; 0 when it does not wait."""
        live = self._live.jobs.get(job)
        return self._live.queue.position(job, 0) if live is not None and live.state is State.WAITING else 0

    def usage(self, job: int) -> tuple[float, float]:
        """How busy and how full its cards are now."""
        live = self._live.jobs.get(job)
        if live is None or live.attempt is None:
            return 0.0, 0.0
        return live.attempt.now_compute, live.attempt.now_memory

    def way_into(self, job: int, worker: int) -> tuple[Engine, ProcessId, str]:
        """The engine, identity and node of a worker that runs; NotFound where it does not."""
        live = self._live.jobs.get(job)
        # What it says may be read before it is RUNNING here: once the word to run has left, its node knows better.
        if live is None or live.attempt is None or not live.attempt.gone:
            raise NotFound("Worker not active: the job does not run")
        found = next((one for one in live.attempt.processes if one.id.process == worker), None)
        if found is None:
            count = len(live.attempt.processes)
            raise NotFound(f"Worker not active: the job has {count} ({', '.join(map(str, range(min(count, 8))))})")
        node = self._live.nodes.get(found.placed.node)
        if found.ended is not None or node is None:
            raise NotFound(f"Worker not active: number {worker} of this job has ended")
        return node.engine, found.id, node.row.id

    async def reload_access(self) -> None:
        """Users, groups, aliases or the groups of resources changed."""
        for row in await self._store.read(nodes.all):
            if (node := self._live.nodes.get(row.id)) is not None:
                node.row = replace(node.row, resources=row.resources)
                self.tell("node_changed", row.id)
        await self.ask("access_changed", *await self._read_access())

    async def changed(self, version: int | None, timeout_s: float) -> int:
        """The version of all jobs' states, once it is another than `version` (or when time is up)."""
        if version is None or version != self._version:
            return self._version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._versioned.wait()
        return self._version

    async def wait_done(self, job: int, timeout_s: float) -> bool:
        """Whether the job is over, now or within the time."""
        # Before looking: its end may be written down while we read.
        event = self._waiters.setdefault(job, asyncio.Event())
        if job not in self._live.jobs and job not in self._fresh:
            row = await self._store.read(jobs.find, job)
            if row is None or row.state is State.DONE:
                self._waiters.pop(job, None)
                return True
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def remove_job(self, job: int) -> None:
        """A job that is over, with all it left."""
        await remove_job(self._store, self._settings.root, job)

    async def remove_home(self, user: str) -> None:
        """All data of a user who is no more, on the head and on the nodes."""
        await asyncio.to_thread(drop_user, self._settings.root, user)
        await asyncio.gather(*(self._deeds.forget_on(node, user) for node in list(self._live.nodes)))

    def is_live(self, job: int) -> bool:
        return job in self._live.jobs or job in self._fresh

    # --- the deeds' and the nodes' side ------------------------------------------------------------------------

    def tell(self, handler: str, *args: object) -> None:
        """Something happened: `handler` names a method of Decisions or Meetings."""
        self._inbox.append((handler, args))
        self._something.set()

    def tell_later(self, pause_s: float, handler: str, *args: object) -> None:
        asyncio.get_running_loop().call_later(pause_s, lambda: self.tell(handler, *args))

    async def ask(self, handler: str, *args: object) -> None:
        """The same, and wait until it is written down; raises what the decision raised."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tell(handler, *args, answer)
        try:
            async with asyncio.timeout(30):
                await answer
        except TimeoutError:
            raise Unavailable("The service cannot write it down at the moment; it will be done when it can") from None

    def in_turn(self, function: Callable[[Changes], None]) -> Coroutine[Any, Any, None]:
        """Run `function` in a turn of its own."""
        return self.ask("call", function)

    async def heard(self, name: str, event: Online | Offline | Output | Exited | Usage) -> None:
        """An event of a node. Output is kept here, at once; the rest is for the next turn."""
        match event:
            case Output():
                await self._keep_output(name, event)
            case Exited():
                await self._exited(event)
            case Usage():
                self._used(name, event)
            case Online():
                self.tell("online", name, event)
            case Offline():
                self.tell("offline", name, event.reason)

    def spawn(self, deed: Coroutine[Any, Any, Any] | asyncio.Future[Any]) -> None:
        task = asyncio.ensure_future(deed)
        self._tasks.add(task)
        task.add_done_callback(self._deed_ended)

    def forget_fits(self) -> None:
        self._fits.clear()

    # --- the turn ----------------------------------------------------------------------------------------------

    async def _turns(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            try:
                await self._turn()
            except Exception:
                log.exception("a turn of the loop failed")

    async def _turn(self) -> None:
        changes = Changes(self._clock())
        inbox, self._inbox = self._inbox, []
        for handler, args in (*inbox, ("decide", ())):
            try:
                found = getattr(self._decisions, handler, None) or getattr(self._meetings, handler)
                found(changes, *args)
            except Exception:
                log.exception("could not take in %s", handler)  # its arguments may hold what is secret
        self._fresh.clear()  # they are live now
        await self._write_down(changes)
        self._act(changes)

    async def _write_down(self, changes: Changes) -> None:
        """Until it is on the disk: memory is ahead by now, and nothing was done yet."""
        delay_s = 0.2
        while changes.writes:
            try:
                moved = await self._store.write(apply, changes.writes)
            except Unavailable as error:
                log.error("the loop waits: %s", error)
                await asyncio.sleep(delay_s)
                delay_s = min(5.0, delay_s * 2)
                continue
            except Exception:
                # One write that cannot be done does not take the others of the turn with it.
                log.exception("a turn cannot be written down as a whole; its parts are")
                moved = await self._write_apart(changes)
            for job in moved:
                log.error("job %d was changed by somebody else; the service must be restarted to see it", job)
            return

    async def _write_apart(self, changes: Changes) -> list[int]:
        moved: list[int] = []
        for write in changes.writes:
            try:
                moved += await self._store.write(apply, [write])
            except Exception:
                log.exception("not written down: %s", write)
        return moved

    def _act(self, changes: Changes) -> None:
        for word in changes.after:
            try:
                word()
            except Exception:
                log.exception("a deed could not be begun")
        for answer, problem in changes.answers:
            if not answer.done():
                answer.set_exception(problem) if problem is not None else answer.set_result(None)
        for job in changes.done:
            self.log.finish(job)
            if (waiter := self._waiters.pop(job, None)) is not None:
                waiter.set()
        for deed in changes.acts:
            self.spawn(asyncio.ensure_future(deed))
        if changes.writes or changes.news:
            self._version += 1
            self._versioned.set()
            self._versioned = asyncio.Event()

    def _deed_ended(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("a deed failed", exc_info=problem)

    def _preparations(self) -> Iterable[asyncio.Task[None] | None]:
        return [job.preparing for job in self._live.jobs.values()] + [
            job.attempt.starting for job in self._live.jobs.values() if job.attempt is not None
        ]

    # --- events of nodes ---------------------------------------------------------------------------------------

    async def _keep_output(self, name: str, event: Output) -> None:
        if self._live.attempt(event.id.attempt) is None:
            return
        length = await keep_output(self.log.open(event.id.attempt.job), event)
        if (node := self._live.nodes.get(name)) is not None:
            await node.engine.ack_output(event.id, length)

    async def _exited(self, event: Exited) -> None:
        if self._live.attempt(event.id.attempt) is None:
            return
        self.tell("ended", event.id, replace(event.ended, result=event.ended.result.strip()))

    def _used(self, name: str, event: Usage) -> None:
        for _job, attempt in self._live.attempts_on(name):
            cards = [
                event.cards[grant.index]
                for p in attempt.on(name)
                for grant in p.placed.grants
                if grant.index in event.cards
            ]
            if not cards:
                continue
            attempt.now_compute = sum(compute for compute, _ in cards) / len(cards)
            attempt.now_memory = sum(memory for _, memory in cards) / len(cards)
            attempt.compute += attempt.now_compute
            attempt.memory += attempt.now_memory
            attempt.samples += 1

    async def _reload_access(self) -> None:
        self._live.groups_of, self._live.aliases = await self._read_access()
        self._live.free.set_aliases(self._live.aliases)

    async def _read_access(self) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
        self.forget_fits()
        groups_of = {row.id: row.groups for row in await self._store.read(users.all)}
        return groups_of, await self._store.read(aliases.all)


def _process(row: ProcessRow) -> LiveProcess:
    placed = Placed(row.group_index, row.process_index, row.node, row.grants, row.cpus, row.mem_bytes, row.whole_node)
    return LiveProcess(row.id, placed, row.ended)
