"""Looking for jobs: one, the live ones, the status, filtered lists, what is due for removal. Called through `jobs`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select, type_coerce

from snakepit import errors
from snakepit.core.job import State
from snakepit.store.columns import Names
from snakepit.store.rows import JobInput, JobRow, StateChange, Status
from snakepit.store.schema import job_groups, job_inputs, jobs
from snakepit.store.schema import state_changes as changes

LARGEST = 2**63 - 1  # what a person types may be larger than any number a database knows
ORDERS = {
    "date": jobs.c.since,
    "title": jobs.c.description,
    "state": jobs.c.state,
    "user": jobs.c.user,
    "id": jobs.c.id,
}


def find(c: Connection, id: int) -> JobRow | None:
    if not 0 < id <= LARGEST:
        return None
    row = c.execute(_ONE, {"wanted": id}).first()
    return JobRow(*row) if row else None


def get(c: Connection, id: int) -> JobRow:
    found = find(c, id)
    if found is None:
        raise errors.NotFound("Job not found")
    return found


def input_of(c: Connection, id: int) -> JobInput:
    row = c.execute(_INPUT, {"wanted": id}).first()
    if row is None:
        raise errors.NotFound("Job not found")
    script, *rest = row
    return JobInput(script.decode("utf-8", "surrogatepass"), *rest)


def archives(c: Connection) -> set[str]:
    """The paths of all archives that a job came with."""
    return set(c.scalars(select(job_inputs.c.archive).where(job_inputs.c.archive != "")))


def state_changes(c: Connection, id: int) -> list[StateChange]:
    """The oldest first."""
    return [StateChange(*row) for row in c.execute(_CHANGES, {"wanted": id})]


def live(c: Connection) -> list[JobRow]:
    """All that are not DONE, by number."""
    return _rows(c, _JOBS.where(jobs.c.state < State.DONE).order_by(jobs.c.id))


def of_user(c: Connection, user: str) -> list[JobRow]:
    return _rows(c, _JOBS.where(jobs.c.user == user).order_by(jobs.c.id))


def status(c: Connection, done_limit: int = 20) -> Status:
    """What people look at most: all that runs and waits, and the last `done_limit` that are over."""
    by_state: dict[State, list[JobRow]] = {state: [] for state in State}
    for job in live(c):
        by_state[job.state].append(job)
    over = _rows(c, _JOBS.where(jobs.c.state == State.DONE).order_by(*_NEWEST).limit(done_limit))
    done = sorted(by_state[State.CLEANING] + over, key=lambda job: (job.since, job.id), reverse=True)
    running = by_state[State.STARTING] + by_state[State.RUNNING] + by_state[State.STOPPING]
    waiting = sorted(by_state[State.WAITING], key=lambda job: (-job.priority, job.id))
    return Status(
        running=tuple(sorted(running, key=lambda job: job.id)),
        waiting=(*waiting, *by_state[State.PREPARING], *by_state[State.NEW]),
        done=tuple(done[:done_limit]),
    )


def listing(
    c: Connection,
    since: datetime | None = None,
    till: datetime | None = None,
    user: str | None = None,
    title: str | None = None,
    state: State | None = None,
    order: Sequence[tuple[str, str]] = (),
    limit: int = 100,
    offset: int = 0,
) -> list[JobRow]:
    """Jobs for which everything given holds; `since` and `till` bound the last change of state, both included.

    `title` is a pattern (% any text, _ any character, letters as they are). `order` has pairs of a field (date, title,
    state, user, id) and asc or desc; the newest change comes first where it says nothing.
    """
    wanted: list[ColumnElement[bool]] = []
    if since is not None:
        wanted.append(jobs.c.since >= since)
    if till is not None:
        wanted.append(jobs.c.since <= till)
    if user is not None:
        wanted.append(jobs.c.user == user)
    if title is not None:
        wanted.append(_like(c, title))
    if state is not None:
        wanted.append(jobs.c.state == state)
    ordered = [_order(field, direction) for field, direction in order]
    return _rows(c, _JOBS.where(*wanted).order_by(*ordered, *_NEWEST).limit(limit).offset(offset))


def done_before(c: Connection, when: datetime, limit: int) -> list[int]:
    """Numbers of jobs that ended before `when`, the oldest first."""
    over = select(jobs.c.id).where(jobs.c.state == State.DONE, jobs.c.since < when)
    return list(c.scalars(over.order_by(jobs.c.since, jobs.c.id).limit(limit)))


def src_due(c: Connection, now: datetime, limit: int) -> list[int]:
    """Numbers of jobs whose src/ has been kept long enough."""
    due = select(jobs.c.id).where(jobs.c.src_until.is_not(None), jobs.c.src_until <= now)
    return list(c.scalars(due.order_by(jobs.c.src_until).limit(limit)))


def _rows(c: Connection, query: Select[Any]) -> list[JobRow]:
    return [JobRow(*row) for row in c.execute(query).all()]


def _order(field: str, direction: str) -> ColumnElement[Any]:
    if field not in ORDERS:
        raise errors.BadRequest(f"Cannot order by {field}: expected one of {', '.join(sorted(ORDERS))}")
    if direction not in ("asc", "desc"):
        raise errors.BadRequest(f"Cannot order {direction}: expected asc or desc")
    column: ColumnElement[Any] = ORDERS[field]
    return column.asc() if direction == "asc" else column.desc()


def _like(c: Connection, pattern: str) -> ColumnElement[bool]:
    """LIKE with letters as they are and no escape character. SQLite's own folds case; its GLOB does not."""
    if c.dialect.name == "postgresql":
        return jobs.c.description.like(pattern, escape="")
    marks = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
    return jobs.c.description.op("GLOB", is_comparison=True)("".join(marks.get(each, each) for each in pattern))


def _jobs() -> Select[Any]:
    joined = select(func.aggregate_strings(job_groups.c.group, ",")).where(job_groups.c.job == jobs.c.id)
    shared = type_coerce(joined.scalar_subquery(), Names)
    return select(*(jobs.c[name] for name in JobRow.__slots__ if name != "groups"), shared)


_JOBS = _jobs()
_NEWEST = (jobs.c.since.desc(), jobs.c.id.desc())
_ONE = _JOBS.where(jobs.c.id == bindparam("wanted"))
_INPUT = select(*(job_inputs.c[name] for name in JobInput.__slots__)).where(job_inputs.c.job == bindparam("wanted"))
_CHANGES = (
    select(changes.c.state, changes.c.since, changes.c.reason)
    .where(changes.c.job == bindparam("wanted"))
    .order_by(changes.c.id)
)
