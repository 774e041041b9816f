"""The live state: every job that is not DONE and every node, in memory. Loaded once, changed by the loop only.

Nothing here does IO. `Changes` gathers what one turn of the loop wants written down, and what is done after that.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from snakepit.core.job import AttemptId, Ended, Outcome, ProcessId, State
from snakepit.core.lifecycle import Event, follow
from snakepit.core.placement import Free, Placed, Placement, Who
from snakepit.core.request import Request
from snakepit.core.resources import Node
from snakepit.core.schedule import Queue, Waiting
from snakepit.engines.base import Engine
from snakepit.store import jobs
from snakepit.store.jobs import Step
from snakepit.store.rows import JobInput, JobRow, NodeRow


@dataclass(slots=True)
class LiveProcess:
    id: ProcessId
    placed: Placed
    ended: Ended | None = None


@dataclass(slots=True)
class LiveAttempt:
    """A pit. `gone`: the word to run may have reached a node, hence only a node's word ends it."""

    id: AttemptId
    placement: Placement
    processes: list[LiveProcess]
    gone: bool = False
    ending: bool = False  # the rest was asked to stop, because one failed (or until any)
    starting: asyncio.Task[None] | None = None
    compute: float = 0.0  # sums over samples, for the mean
    memory: float = 0.0
    samples: int = 0
    now_compute: float = 0.0
    now_memory: float = 0.0

    @property
    def nodes(self) -> list[str]:
        return sorted({process.placed.node for process in self.processes})

    def on(self, node: str) -> Iterator[LiveProcess]:
        return (process for process in self.processes if process.placed.node == node)


@dataclass(slots=True)
class LiveJob:
    row: JobRow  # as submitted; what changes is below
    request: Request
    who: Who
    state: State
    attempt_number: int
    attempt: LiveAttempt | None = None
    preparing: asyncio.Task[None] | None = None
    given: JobInput | None = None  # what it is prepared from, where that was read already
    start_failures: int = 0
    avoid: frozenset[str] = frozenset()
    wished: Outcome | None = None  # what we are ending it for
    reason: str = ""
    outcome: Outcome | None = None

    @property
    def id(self) -> int:
        return self.row.id


@dataclass(slots=True)
class LiveNode:
    row: NodeRow
    engine: Engine
    online: bool = False
    watching: asyncio.Task[None] | None = None
    going_offline: asyncio.TimerHandle | None = None
    probed: bool = False
    held: bool = False  # somebody is about to change or remove it: nothing is begun there

    def core(self) -> Node:
        row, drained = self.row, self.row.drained or self.held
        resources, reason = tuple(row.resources), row.drain_reason
        return Node(row.id, row.cpus, row.mem_bytes, row.slots, resources, self.online, drained, reason)


@dataclass(slots=True)
class Live:
    """Everything the loop decides on."""

    free: Free
    queue: Queue = field(default_factory=Queue)
    jobs: dict[int, LiveJob] = field(default_factory=dict)
    nodes: dict[str, LiveNode] = field(default_factory=dict)
    groups_of: dict[str, frozenset[str]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    new: dict[int, LiveJob] = field(default_factory=dict)  # to be prepared, in their order
    preparing: dict[int, LiveJob] = field(default_factory=dict)

    def who(self, user: str) -> Who:
        return Who(user, self.groups_of.get(user, frozenset()))

    def attempt(self, id: AttemptId) -> tuple[LiveJob, LiveAttempt] | None:
        job = self.jobs.get(id.job)
        if job is None or job.attempt is None or job.attempt.id != id:
            return None
        return job, job.attempt

    def attempts_on(self, node: str) -> list[tuple[LiveJob, LiveAttempt]]:
        return [
            (job, job.attempt)
            for job in self.jobs.values()
            if job.attempt is not None and any(True for _ in job.attempt.on(node))
        ]

    def enqueue(self, job: LiveJob) -> None:
        """The job's number is its rank: a slow preparation or a second attempt keeps its place."""
        self.queue.add(Waiting(job.id, 0, job.who, job.request, job.id, job.row.priority, job.avoid))


@dataclass(slots=True)
class Way:
    """The steps a job goes in one turn, from the state it was in before."""

    job: int
    begun_in: State
    steps: list[Step]


@dataclass(slots=True)
class Changes:
    """One turn's wishes: writes share one transaction; acts and words follow only when it is on the disk."""

    now: dt.datetime
    writes: list[tuple[int | None, Callable[..., Any], tuple[Any, ...]]] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)
    acts: list[Awaitable[None]] = field(default_factory=list)
    answers: list[tuple[asyncio.Future[None], BaseException | None]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    news: bool = False  # something that is written down already
    _ways: dict[int, Way] = field(default_factory=dict)

    def write(self, job: int | None, function: Callable[..., Any], *args: Any) -> None:
        """`function(connection, *args)`; it concerns `job`, or none."""
        self.writes.append((job, function, args))

    def move(
        self, job: LiveJob, event: Event, reason: str = "", outcome: Outcome | None = None, **fields: Any
    ) -> State:
        """Follow the table, in memory and on the disk."""
        to = follow(job.state, event)
        way = self._ways.get(job.id)
        if way is None:
            way = self._ways[job.id] = Way(job.id, job.state, [])
            self.write(job.id, _go, way, self.now)
        way.steps.append(Step(to, reason, outcome, **fields))
        job.state = to
        if reason or to < State.STOPPING:
            job.reason = reason
        if outcome is not None:
            job.outcome = outcome
        if to is State.DONE:
            self.done.append(job.id)
        return to


def _go(c: Any, way: Way, now: dt.datetime) -> None:
    if not jobs.move(c, way.job, way.begun_in, way.steps, now):
        raise RowMoved(way)


class RowMoved(Exception):
    """Somebody else changed the job's row; the loop reads it again."""

    def __init__(self, way: Way) -> None:
        super().__init__(
            f"job {way.job} was no longer {way.begun_in.name} when it should become {way.steps[-1].to.name}"
        )
        self.job = way.job


def apply(c: Any, writes: list[tuple[int | None, Callable[..., Any], tuple[Any, ...]]]) -> list[int]:
    """Do the writes; those of a job whose row moved are left out, the rest stand. Gives those jobs."""
    moved: list[int] = []
    for job, function, args in writes:
        if job in moved:
            continue
        try:
            function(c, *args)
        except RowMoved as refusal:
            moved.append(refusal.job)
    return moved
