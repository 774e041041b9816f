"""Jobs: inserted once, moved from state to state by guarded updates, found again.

`move` is the only way a job's state changes: it names the states it starts from, so of two that act at once one wins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Executable, bindparam, select

from snakepit import errors
from snakepit.core.job import Outcome, State
from snakepit.store import groups as group_table
from snakepit.store.job_queries import (
    archives,
    done_before,
    find,
    get,
    input_of,
    listing,
    live,
    of_user,
    src_due,
    state_changes,
    status,
)
from snakepit.store.rows import NewJob
from snakepit.store.schema import job_exec_groups, job_groups, job_inputs, jobs
from snakepit.store.schema import state_changes as changes
from snakepit.store.statements import insert_all, insert_by, link

__all__ = (
    "Step",
    "archives",
    "delete",
    "done_before",
    "exec_groups",
    "find",
    "forget_origin",
    "get",
    "input_of",
    "insert",
    "listing",
    "live",
    "move",
    "of_user",
    "set_exec_group",
    "set_group",
    "set_src_until",
    "src_due",
    "state_changes",
    "status",
)

# What the service makes of the submission, which may differ when the same submission comes again.
DERIVED = ("groups", "provisioning", "origin_shown", "diff_loc")
COPIED = tuple(name for name in NewJob.__slots__ if name in jobs.c)
UNTOUCHED: dict[str, Any] = {"reason": "", "allocation": "", "attempt": 0, "util_comp": 0.0, "util_mem": 0.0}


def insert(
    c: Connection, new: NewJob, now: datetime, idempotency_key: str = "", state: State = State.NEW
) -> tuple[int, bool]:
    """The job's number, and whether it was made now: the same user and key give the same job again.

    One that needs no preparation is WAITING from the start.
    """
    values = {name: getattr(new, name) for name in COPIED} | UNTOUCHED
    values |= {"state": state, "since": now, "created_at": now}
    values |= {"idempotency_key": idempotency_key or None, "body_hash": _body_hash(new) if idempotency_key else None}
    job: int | None = c.execute(_insert_unless_known(c.dialect.name), values).scalar()
    if job is None:
        return _same_again(c, new.user, idempotency_key, values["body_hash"]), False
    script = new.script.encode("utf-8", "surrogatepass")
    given = {"job": job, "script": script, "origin": new.origin, "hash": new.hash, "diff": new.diff}
    c.execute(_INSERT_INPUT, given | {"archive": new.archive})
    states = [State.NEW] if state is State.NEW else [State.NEW, state]
    c.execute(_INSERT_CHANGE, [{"job": job, "state": each, "since": now, "reason": ""} for each in states])
    if new.groups:
        group_table.require(c, new.groups)
        insert_all(c, job_groups, ({"job": job, "group": group} for group in new.groups))
    return job, True


@dataclass(frozen=True, slots=True)
class Step:
    """A change of a job's state, and what comes with it."""

    to: State
    reason: str = ""
    outcome: Outcome | None = None
    allocation: str | None = None
    attempt: int | None = None
    src_until: datetime | None = None
    util_comp: float | None = None
    util_mem: float | None = None

    def values(self, now: datetime) -> dict[str, Any]:
        kept = ("outcome", "allocation", "attempt", "src_until", "util_comp", "util_mem")
        values: dict[str, Any] = {name: getattr(self, name) for name in kept if getattr(self, name) is not None}
        values |= {"state": self.to, "since": now}
        # On the way to its end a job keeps the reason that sent it there.
        if self.reason or self.to < State.STOPPING:
            values["reason"] = self.reason
        if self.to < State.STOPPING:
            values["outcome"] = None  # of an attempt before this one
        if self.to is State.DONE:
            values["ended_at"] = now
        if self.to is State.WAITING:
            values.setdefault("allocation", "")  # what a failed start had been given is given back
        return values


def move(c: Connection, id: int, expected: State | Collection[State], steps: Sequence[Step], now: datetime) -> bool:
    """Whether the job was in one of `expected`, and went all the steps. One that the first step would leave where it is
    stays as it is (False)."""
    allowed = ({expected} if isinstance(expected, State) else set(expected)) - {steps[0].to}
    if not allowed:
        return False
    values: dict[str, Any] = {}
    for step in steps:
        values |= step.values(now)
    # Fixed statements, with the new values as parameters: building one takes longer than running it.
    if len(allowed) == 1:
        moved = c.execute(_MOVE, values | {"b_job": id, "b_from": allowed.pop()})
    else:
        moved = c.execute(_MOVE_FROM_ANY, values | {"b_job": id, "b_from": sorted(allowed)})
    if moved.rowcount == 0:
        return False
    c.execute(_INSERT_CHANGE, [{"job": id, "state": step.to, "since": now, "reason": step.reason} for step in steps])
    return True


def set_src_until(c: Connection, id: int, src_until: datetime | None) -> None:
    """None: src/ is gone."""
    c.execute(jobs.update().where(jobs.c.id == id).values(src_until=src_until))


def set_group(c: Connection, job: int, group: str, on: bool) -> None:
    get(c, job)
    group_table.require(c, [group])
    link(c, job_groups, on, job=job, group=group)
    if not on:
        link(c, job_exec_groups, False, job=job, group=group)


def set_exec_group(c: Connection, job: int, group: str, on: bool) -> None:
    """Whether members of a group that the job is shared with may go inside it too."""
    link(c, job_exec_groups, on, job=job, group=group)


def exec_groups(c: Connection, job: int) -> frozenset[str]:
    return frozenset(c.scalars(select(job_exec_groups.c.group).where(job_exec_groups.c.job == job)))


def forget_origin(c: Connection, id: int) -> None:
    """Leaves of the address only what may be shown; the credentials in it are gone."""
    shown = select(jobs.c.origin_shown).where(jobs.c.id == id).scalar_subquery()
    c.execute(job_inputs.update().where(job_inputs.c.job == id).values(origin=shown))


def delete(c: Connection, id: int) -> None:
    """With all that belongs to it. Its number is never given again."""
    gone = c.execute(jobs.delete().where(jobs.c.id == id, jobs.c.state == State.DONE))
    if gone.rowcount == 0:
        get(c, id)
        raise errors.WrongState("Only stopped jobs can be deleted")


def _same_again(c: Connection, user: str, key: str, body_hash: bytes | None) -> int:
    which = select(jobs.c.id, jobs.c.body_hash).where(jobs.c.user == user, jobs.c.idempotency_key == key)
    job, before = c.execute(which).one()
    if before != body_hash:
        raise errors.Conflict(f"This Idempotency-Key was used for job {job}, which was submitted with other content")
    number: int = job
    return number


def _body_hash(new: NewJob) -> bytes:
    own = {name: getattr(new, name) for name in NewJob.__slots__ if name not in (*DERIVED, "diff")}
    body = hashlib.sha256(json.dumps(own, sort_keys=True).encode())
    body.update(new.diff)
    return body.digest()


@cache
def _insert_unless_known(dialect: str) -> Executable:
    return insert_by(dialect, jobs).on_conflict_do_nothing().returning(jobs.c.id)


_MOVE = jobs.update().where(jobs.c.id == bindparam("b_job"), jobs.c.state == bindparam("b_from"))
_MOVE_FROM_ANY = jobs.update().where(
    jobs.c.id == bindparam("b_job"), jobs.c.state.in_(bindparam("b_from", expanding=True))
)
_INSERT_INPUT = job_inputs.insert()
_INSERT_CHANGE = changes.insert().inline()
