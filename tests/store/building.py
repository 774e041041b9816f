"""Builders for the tests of this room."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from snakepit.core.job import AttemptId, State
from snakepit.core.placement import Grant, Placed, Placement
from snakepit.store import attempts, jobs
from snakepit.store.database import Store
from snakepit.store.rows import NewJob

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def new_job(user: str = "anna", description: str = "My task", request: str = "[]", **more: Any) -> NewJob:
    return NewJob(user, description, request, **more)


def submit(store: Store, user: str = "anna", description: str = "My task", at: datetime = NOW, **more: Any) -> int:
    return store.write_now(jobs.insert, new_job(user, description, **more), at)[0]


def bring(store: Store, job: int, *states: State, at: datetime = NOW) -> None:
    """Moves the job through these states."""
    for state in states:
        before = store.read_now(jobs.get, job).state
        assert store.write_now(jobs.move, job, before, [jobs.Step(state)], at)


def two_processes() -> Placement:
    shared = Grant(2, Fraction(1, 2), 10 * 10**9)
    return Placement((Placed(0, 0, "n0", (Grant(0), Grant(1))), Placed(1, 0, "n1", (shared,), 4, 8 * 10**9, True)))


def begin(store: Store, job: int, task: int = 0, attempt: int = 0) -> AttemptId:
    id = AttemptId(job, task, attempt)
    store.write_now(attempts.begin, id, two_processes(), NOW)
    return id


def together(store: Store, *calls: Callable[[Store], Coroutine[Any, Any, Any]]) -> list[Any]:
    """Results (or exceptions) of writes that are sure to share one transaction: the writer is held until all wait."""

    async def gather() -> list[Any]:
        entered, gate = threading.Event(), threading.Event()

        def hold(_: object) -> None:
            entered.set()
            assert gate.wait(30)

        held = asyncio.ensure_future(store.write(hold))
        await asyncio.to_thread(entered.wait, 30)  # the writer is busy with this one, and with no other
        waiting = [asyncio.ensure_future(call(store)) for call in calls]
        await asyncio.sleep(0)  # now all of them are in it
        gate.set()
        await held
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(gather())
