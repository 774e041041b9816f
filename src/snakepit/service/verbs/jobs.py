"""Seeing jobs: lists with filters and orders, the status, one job in full, why it waits, waiting for its end."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection
from starlette.responses import Response

from snakepit.core import access
from snakepit.core.access import JobRights
from snakepit.core.job import Outcome, State
from snakepit.core.lifecycle import exit_code_of
from snakepit.errors import BadRequest
from snakepit.service.api.answers import json_response
from snakepit.service.call import Call
from snakepit.service.dates import elapsed, iso, parse_date
from snakepit.service.service import Service
from snakepit.service.streams import until_closing
from snakepit.store import attempts, jobs
from snakepit.store.rows import AttemptRow, JobRow, ProcessRow, StateChange
from snakepit.wire import shapes
from snakepit.wire.fields import Field, table

LISTING = table(
    Field("since"),
    Field("till"),
    Field("user", longest=64),
    Field("title"),
    Field("asc", "texts", words="date, title, state or user; several, in their order"),
    Field("desc", "texts"),
    Field("limit", "whole", high=2**31 - 1),
    Field("offset", "whole", high=2**31 - 1),
)
POLL = table(Field("version", "whole", high=2**53), Field("timeout", "whole", high=300))
WAIT = table(Field("timeout", "whole", high=300))
ORDERS = ("date", "title", "state", "user")

Attempts = list[tuple[AttemptRow, list[ProcessRow]]]


async def listing(call: Call) -> list[shapes.Job]:
    """Jobs of everybody, the newest change first; filters are joined by and."""
    query = call.query
    rows = await call.service.store.read(
        jobs.listing,
        since=_date(query, "since"),
        till=_date(query, "till"),
        user=query.get("user"),
        title=query.get("title"),
        order=_order(call),
        limit=min(query.get("limit", call.service.settings.query_limit), call.service.settings.query_limit),
        offset=query.get("offset", 0),
    )
    now = call.service.clock()
    return [describe(call.service, row, now) for row in rows]


async def status(call: Call) -> Response:
    """What runs, what waits, what ended lately; with `version` only once something changed (or after `timeout` s)."""
    service = call.service
    version, timeout_s = call.query.get("version"), call.query.get("timeout", 30)
    fresh = await until_closing(service.loop.changed(version, timeout_s), service.closing)
    found = await service.store.read(jobs.status)
    now = service.clock()
    shown: shapes.Status = {
        "running": [describe(service, row, now) for row in found.running],
        "waiting": [describe(service, row, now) for row in found.waiting],
        "done": [describe(service, row, now) for row in found.done],
    }
    return json_response(shown, headers={"x-version": str(fresh)})


async def show(call: Call) -> shapes.JobDetails:
    """One job; its details for whoever may read it."""
    row, changes, runs, inside = await call.service.store.read(_job, call.job)
    shown = _details(call, row, changes, runs)
    if inside and "groups" in shown:
        shown["execGroups"] = sorted(inside)
    return shown


async def wait(call: Call) -> shapes.JobDetails:
    """One job, once it is done (or after `timeout` s)."""
    service = call.service
    if not service.loop.is_live(call.job):
        await service.store.read(jobs.get, call.job)
    timeout_s = call.query.get("timeout", 30)
    await until_closing(service.loop.wait_done(call.job, timeout_s), service.closing)
    return await show(call)


async def why(call: Call) -> shapes.Reasons:
    """Why a job waits, in words."""
    row = await call.service.store.read(jobs.get, call.job)
    reasons = list(call.service.loop.why(row.id))
    return {"reasons": reasons or ([row.reason] if row.reason else [])}


def describe(service: Service, row: JobRow, now: datetime) -> shapes.Job:
    """The original's `desc`, and the outcome."""
    running = row.state in (State.RUNNING, State.STOPPING)
    compute, memory = service.loop.usage(row.id) if running else (row.util_comp, row.util_mem)
    return {
        "id": row.id,
        "description": row.description,
        "user": row.user,
        "resources": row.allocation or row.request,
        "state": int(row.state),
        "date": iso(row.since),
        "since": elapsed(row.since, now),
        "schedulePosition": service.loop.position(row.id) if row.state is State.WAITING else 0,
        "utilComp": compute,
        "utilMem": memory,
        "outcome": row.outcome.value if row.outcome is not None else None,
    }


def _details(call: Call, row: JobRow, changes: list[StateChange], runs: Attempts) -> shapes.JobDetails:
    shown = cast(shapes.JobDetails, describe(call.service, row, call.service.clock()))
    shown["allocation"] = row.allocation
    shown["request"] = row.request
    shown["reason"] = row.reason
    shown["exitCode"] = exit_code(row, runs)
    if row.continues is not None:
        shown["continueJob"] = row.continues
    if not access.may_read_job(call.person, JobRights(row.user, row.groups)):
        return shown
    shown["provisioning"] = row.provisioning
    if row.snapshot:
        shown["snapshot"] = row.snapshot
    shown["groups"] = sorted(row.groups) or False
    shown["stateChanges"] = [
        {"state": int(change.state), "since": iso(change.since), "reason": change.reason} for change in changes
    ]
    shown["attempts"] = [_attempt(attempt, processes) for attempt, processes in runs]
    if runs:
        shown["processes"] = shown["attempts"][-1]["processes"]
    if row.src_until is not None:
        shown["keepsSrcUntil"] = iso(row.src_until)
    return shown


def exit_code(row: JobRow, runs: Attempts) -> int | None:
    """The first failing process's code; 1 where a job failed without any; None before its end."""
    if row.state is not State.DONE:
        return None
    if row.outcome is Outcome.SUCCEEDED:
        return 0
    ends = [process.ended for process in (runs[-1][1] if runs else [])]
    return exit_code_of([end for end in ends if end is not None]) or 1


def _attempt(row: AttemptRow, processes: list[ProcessRow]) -> shapes.Attempt:
    return {
        "number": row.id.attempt,
        "outcome": row.outcome.value if row.outcome is not None else None,
        "reason": row.reason,
        "started": iso(row.started_at),
        "ended": iso(row.ended_at) if row.ended_at is not None else None,
        "processes": [
            {
                "groupIndex": process.group_index,
                "processIndex": process.process_index,
                "status": "?" if process.code is None else process.code,
                "result": process.result,
                "node": process.node,
                "cause": process.cause.value if process.cause is not None else None,
                "note": process.note,
            }
            for process in processes
        ],
    }


def _job(c: Connection, job: int) -> tuple[JobRow, list[StateChange], Attempts, frozenset[str]]:
    return jobs.get(c, job), jobs.state_changes(c, job), attempts.of_job(c, job), jobs.exec_groups(c, job)


def _date(query: dict[str, Any], name: str) -> datetime | None:
    if name not in query:
        return None
    try:
        return parse_date(query[name])
    except ValueError as problem:
        raise BadRequest(f"Cannot parse query parameter {name}: {problem}") from problem


def _order(call: Call) -> list[tuple[str, str]]:
    """Orders as they stand in the address, the first one first."""
    order = []
    for name, text in call.request.query_params.multi_items():
        if name in ("asc", "desc"):
            for column in text.split(","):
                if column.strip() not in ORDERS:
                    raise BadRequest(f"Cannot parse query parameter {name}: expected one of {', '.join(ORDERS)}")
                order.append((column.strip(), name))
    return order or [("date", "desc")]
