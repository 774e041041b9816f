"""Attempts of tasks, their processes, and the cards these were given. The first word about an end counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Executable, Select, Table, and_, bindparam, select

from snakepit.core.job import AttemptId, Ended, Outcome, ProcessId
from snakepit.core.placement import Grant, Placed, Placement
from snakepit.store.rows import AttemptRow, ProcessRow
from snakepit.store.schema import attempts, grants, tasks
from snakepit.store.schema import processes as table
from snakepit.store.statements import insert_all, insert_by

STARTING, RUNNING, ENDED = "starting", "running", "ended"


class _Queries(NamedTuple):
    """Some attempts with all that belongs to them. Made once: building a statement takes longer than running it."""

    attempts: Select[Any]
    processes: Select[Any]
    grants: Select[Any]


def begin(c: Connection, id: AttemptId, placement: Placement, now: datetime) -> None:
    """Writes down the attempt and what it was given, before anything is done. Doing it again changes nothing."""
    c.execute(_new_task(c.dialect.name), _key(id))
    insert_all(c, attempts, [_key(id) | {"started_at": now, "reason": ""}])
    placed = list(enumerate(placement.processes))
    insert_all(c, table, (_new_process(ProcessId(id, number), process) for number, process in placed))
    insert_all(
        c,
        grants,
        (_new_grant(ProcessId(id, number), grant) for number, process in placed for grant in process.grants),
    )


def find(c: Connection, id: AttemptId) -> AttemptRow | None:
    row = c.execute(select(attempts).where(_is(attempts, id))).first()
    return _attempt(row) if row else None


def processes(c: Connection, id: AttemptId) -> list[ProcessRow]:
    """By number."""
    return next((found for attempt, found in of_job(c, id.job) if attempt.id == id), [])


def live(c: Connection) -> list[tuple[AttemptRow, list[ProcessRow]]]:
    """Attempts that did not end, by number."""
    return _with_processes(c, _LIVE, {})


def of_job(c: Connection, job: int) -> list[tuple[AttemptRow, list[ProcessRow]]]:
    """All that ever were, by task and number."""
    return _with_processes(c, _OF_JOB, {"b_job": job})


def process_created(c: Connection, id: ProcessId, address: str, ports: Iterable[int] = ()) -> None:
    """It stands ready, and is reached there."""
    c.execute(_CREATED, _at_process(id) | {"address": address, "ports": tuple(ports)})


def process_running(c: Connection, id: ProcessId) -> bool:
    """Whether that is news; one that ended stays ended."""
    return c.execute(_RUNNING, _at_process(id) | {"phase": RUNNING}).rowcount == 1


def process_ended(c: Connection, id: ProcessId, ended: Ended, log_bytes: int = 0) -> bool:
    """Whether this was the first word about it; later ones change nothing."""
    values = _at_process(id) | {"phase": ENDED, "code": ended.code, "cause": ended.cause, "note": ended.note}
    values |= {"result": ended.result, "ended_at": datetime.fromtimestamp(ended.at, UTC), "log_bytes": log_bytes}
    return c.execute(_ENDED, values).rowcount == 1


def end(c: Connection, id: AttemptId, outcome: Outcome | None, reason: str, now: datetime) -> bool:
    """Whether it ended now; one that ended before keeps its outcome. None: it never ran."""
    over = _at(id) | {"ended_at": now, "outcome": outcome}
    if c.execute(_END, over | {"reason": reason}).rowcount == 0:
        return False
    c.execute(_END_TASK, over)
    return True


def _with_processes(
    c: Connection, queries: _Queries, given: dict[str, Any]
) -> list[tuple[AttemptRow, list[ProcessRow]]]:
    granted: dict[ProcessId, list[Grant]] = defaultdict(list)
    for job, task, attempt, process, index, share, mem_bytes in c.execute(queries.grants, given):
        granted[ProcessId(AttemptId(job, task, attempt), process)].append(Grant(index, share, mem_bytes))
    found: dict[AttemptId, list[ProcessRow]] = defaultdict(list)
    for row in c.execute(queries.processes, given):
        job, task, attempt, process, group_index, process_index, node, *rest = row
        id = ProcessId(AttemptId(job, task, attempt), process)
        found[id.attempt].append(ProcessRow(id, group_index, process_index, node, tuple(granted.get(id, ())), *rest))
    return [(attempt, found.get(attempt.id, [])) for attempt in map(_attempt, c.execute(queries.attempts, given))]


def _attempt(row: Any) -> AttemptRow:
    job, task, attempt, *rest = row
    return AttemptRow(AttemptId(job, task, attempt), *rest)


def _new_process(id: ProcessId, placed: Placed) -> dict[str, Any]:
    own = ("group_index", "process_index", "node", "cpus", "mem_bytes", "whole_node")
    empty = {"phase": STARTING, "note": "", "result": "", "log_bytes": 0, "address": "", "ports": ()}
    return _process_key(id) | {name: getattr(placed, name) for name in own} | empty


def _new_grant(id: ProcessId, grant: Grant) -> dict[str, Any]:
    own = {"index": grant.index, "share": grant.share, "mem_bytes": grant.mem_bytes}
    return _process_key(id) | own | {"compute_sum": 0.0, "memory_sum": 0.0, "samples": 0}


def _key(id: AttemptId) -> dict[str, Any]:
    return {"job": id.job, "task": id.task, "attempt": id.attempt}


def _process_key(id: ProcessId) -> dict[str, Any]:
    return _key(id.attempt) | {"process": id.process}


def _is(table: Table, id: AttemptId) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in _key(id).items()))


def _at(id: AttemptId) -> dict[str, Any]:
    """The parameters of the fixed statements below; building a statement takes longer than running it."""
    return {"b_job": id.job, "b_task": id.task, "b_attempt": id.attempt}


def _at_process(id: ProcessId) -> dict[str, Any]:
    return _at(id.attempt) | {"b_process": id.process}


def _keyed(table: Table, *names: str) -> ColumnElement[bool]:
    keys = names or [column.name for column in table.primary_key.columns]
    return and_(*(table.c[name] == bindparam(f"b_{name}") for name in keys))


@cache
def _new_task(dialect: str) -> Executable:
    """The task is made with its first attempt; a later attempt opens it again."""
    fresh = insert_by(dialect, tasks)
    return fresh.on_conflict_do_update(
        index_elements=[tasks.c.job, tasks.c.task],
        set_={"attempt": fresh.excluded.attempt, "outcome": None, "ended_at": None},
        where=tasks.c.attempt < fresh.excluded.attempt,
    )


def _queries(which: ColumnElement[bool], theirs: ColumnElement[bool], cards: ColumnElement[bool]) -> _Queries:
    given = (*grants.primary_key.columns, grants.c.share, grants.c.mem_bytes)
    return _Queries(
        select(attempts).where(which).order_by(*attempts.primary_key.columns),
        select(table).where(theirs).order_by(*table.primary_key.columns),
        select(*given).where(cards).order_by(*grants.primary_key.columns),
    )


_GOING = select(attempts.c.job).where(attempts.c.ended_at.is_(None))
_LIVE = _queries(attempts.c.ended_at.is_(None), table.c.job.in_(_GOING), grants.c.job.in_(_GOING))
_OF_JOB = _queries(*(each.c.job == bindparam("b_job") for each in (attempts, table, grants)))
_CREATED = table.update().where(_keyed(table))
_RUNNING = table.update().where(_keyed(table), table.c.phase == STARTING)
_ENDED = table.update().where(_keyed(table), table.c.phase != ENDED)
_END = attempts.update().where(_keyed(attempts), attempts.c.ended_at.is_(None))
_END_TASK = tasks.update().where(_keyed(tasks, "job", "task", "attempt"))
