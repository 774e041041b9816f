"""The sessions inside jobs that are open: each stands on a token and a right, and ends when either does.

Whenever rights change, and now and then, every right is looked at again. Sessions end with the service: the line to the
agent is ours, and the agent hangs up when it is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from snakepit.core import access
from snakepit.core.access import JobRights, Person
from snakepit.core.job import ProcessId
from snakepit.engines.base import Command, Engine, Session
from snakepit.errors import NotFound, Rejected, SnakepitError, TooMany, Unavailable
from snakepit.loop.loop import Loop
from snakepit.service.auth import Sessions
from snakepit.service.inside.order import shown
from snakepit.store import audit, jobs
from snakepit.store.database import Store

log = logging.getLogger("snakepit.inside")
SWEEP_S = 30.0
MOST_OF_A_USER = 1000
MOST = 5000
# A browser opens connections by the dozen: those of one `pit forward` are one entry, a new one every day; where a
# client does not say what belongs together, those to one port within a while.
SAME_VISIT, UNNAMED_VISIT = timedelta(days=1), timedelta(minutes=10)
MOST_NOTED = 20_000


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, by which token (its hash), from where; for which worker of which job."""

    person: Person
    key: bytes
    address: str
    job: int
    worker: int


@dataclass(slots=True, eq=False)
class Visit:
    visitor: Visitor
    session: Session
    ended_for: str = ""
    on_end: Callable[[str], None] = field(default=lambda reason: None)

    def end(self, reason: str) -> None:
        if not self.ended_for:
            self.ended_for = reason
            self.session.close()
            self.on_end(reason)


class Visits:
    def __init__(self, store: Store, loop: Loop, sessions: Sessions, clock: Callable[[], datetime]) -> None:
        self._store, self._loop, self._sessions, self._clock = store, loop, sessions, clock
        self._open: set[Visit] = set()
        self._watchers: set[asyncio.Task[None]] = set()
        self._noted: dict[tuple[str, int, int, str, str], datetime] = {}
        self._noting = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    async def exec(self, visitor: Visitor, command: Command) -> Visit:
        """A command that stands ready inside the worker; `attach` gives it the caller's socket."""
        engine, id, node = await self.enter(visitor)
        kind, detail = shown(command)
        await self._note(visitor, kind, node, detail)
        return await self._begin(visitor, lambda: engine.exec(id, command))

    async def connect(self, visitor: Visitor, port: int, visit: str = "", spare: bool = False) -> Visit:
        """A connection to a port of the worker; those of one `visit` (any text of the client's) belong together."""
        engine, id, node = await self.enter(visitor)
        await self._note_once(visitor, "forward", node, str(port), visit)
        return await self._begin(visitor, lambda: engine.connect(id, port, spare))

    async def enter(self, visitor: Visitor) -> tuple[Engine, ProcessId, str]:
        """The way into the worker, for one who may."""
        await self.check(visitor.person, visitor.job)
        return self._loop.way_into(visitor.job, visitor.worker)

    async def check(self, person: Person, job: int) -> None:
        row = await self._store.read(jobs.get, job)
        inside = await self._store.read(jobs.exec_groups, job)
        access.enter_job(person, JobRights(row.user, row.groups, inside))

    async def attach(self, visit: Visit, end: socket.socket) -> None:
        await visit.session.attach(end)

    async def review(self) -> None:
        """After any change of tokens or rights: whatever stands on nothing any more ends now."""
        for visit in tuple(self._open):
            await self._look_at(visit)

    def close(self) -> None:
        self._closed = True
        for visit in tuple(self._open):
            visit.end("the service stops")
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def ended(self) -> None:
        """Once nothing of them is left, or after a short while."""
        tasks = [*self._watchers, *([self._sweeper] if self._sweeper is not None else [])]
        if tasks:
            await asyncio.wait(tasks, timeout=2)

    async def _begin(self, visitor: Visitor, opening: Callable[[], Awaitable[Session]]) -> Visit:
        self._check_room(visitor)
        try:
            session = await opening()
        except Rejected as problem:  # it is over, or nobody listens: to the caller, it is not there
            raise NotFound(problem.message) from None
        visit = Visit(visitor, session)
        self._open.add(visit)
        watcher = asyncio.create_task(self._watch(visit))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._sweep())
        # Once more, now that a revocation would find it.
        await self._look_at(visit)
        if visit.ended_for:
            raise Unavailable(f"It was ended: {visit.ended_for}")
        return visit

    def _check_room(self, visitor: Visitor) -> None:
        if self._closed:
            raise Unavailable("The service is being stopped; ask again in a moment")
        theirs = sum(visit.visitor.person.id == visitor.person.id for visit in self._open)
        if len(self._open) >= MOST or theirs >= MOST_OF_A_USER:
            raise TooMany(f"Too many sessions are open ({MOST_OF_A_USER} of a user, {MOST} in all)")

    async def _watch(self, visit: Visit) -> None:
        await visit.session.ended()
        visit.end("it is over")
        self._open.discard(visit)

    async def _sweep(self) -> None:
        """Keeps the tokens of open sessions alive, and ends what lost its right by a way we were not told of."""
        while self._open:
            await asyncio.sleep(SWEEP_S)
            for visit in tuple(self._open):
                await self._look_at(visit, in_use=True)

    async def _look_at(self, visit: Visit, in_use: bool = False) -> None:
        key = visit.visitor.key
        try:
            session = await (self._sessions.use(key) if in_use else self._sessions.look(key))
            await self.check(session.person, visit.visitor.job)
        except SnakepitError as problem:
            visit.end(problem.message)
        except Exception:  # a store in trouble: what cannot be checked does not go on
            log.exception("the right of a session could not be checked")
            visit.end("its right could not be checked")

    # -- the audit trail

    async def _note(self, visitor: Visitor, kind: str, node: str, detail: str) -> None:
        """On the disk before anything happens."""
        who, where = visitor.person.id, (visitor.job, visitor.worker, node)
        await self._store.write(audit.insert, self._clock(), who, kind, *where, detail, visitor.address)

    async def _note_once(self, visitor: Visitor, kind: str, node: str, detail: str, visit: str) -> None:
        key = (visitor.person.id, visitor.job, visitor.worker, detail, visit)
        if self._is_noted(key):
            return
        async with self._noting:  # whoever comes second waits until it is on the disk, too
            if self._is_noted(key):
                return
            await self._note(visitor, kind, node, detail)
            self._noted.pop(key, None)
            self._noted[key] = self._clock()
            while len(self._noted) > MOST_NOTED:
                del self._noted[next(iter(self._noted))]  # the oldest

    def _is_noted(self, key: tuple[str, int, int, str, str]) -> bool:
        at = self._noted.get(key)
        return at is not None and self._clock() - at < (SAME_VISIT if key[-1] else UNNAMED_VISIT)
