"""Doing something with one job: stopping, removing, sharing, reading its log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sqlalchemy import Connection
from starlette.responses import Response

from snakepit.core import access
from snakepit.core.access import JobRights
from snakepit.core.job import State
from snakepit.errors import WrongState
from snakepit.loop.logbook import LogBooks
from snakepit.service.call import Call
from snakepit.service.streams import Stream
from snakepit.service.usage import Owner
from snakepit.store import groups, jobs
from snakepit.store.rows import JobRow
from snakepit.wire.fields import Field, table

LOG = table(
    Field("follow", "flag", words="go on until the job ends; the default"),
    Field("lines", "whole", high=10_000_000, words="only the last lines of what is there"),
    Field("offset", "whole", high=2**62, words="in bytes"),
)
SHARE = table(Field("exec", "flag", words="whether its members may also go inside; left out: as it was"))
CHUNK_BYTES = 256 * 1024


async def stop(call: Call) -> None:
    """Stop a job."""
    row = await _job(call)
    access.stop_job(call.person, _rights(row))
    await call.service.loop.stop(row.id, f"Stopped by user {call.person.id}")


async def remove(call: Call) -> None:
    """Remove a job that is done, with its directory and its log."""
    row = await _job(call)
    access.change_job(call.person, _rights(row))
    if row.state is not State.DONE:
        raise WrongState("Only stopped jobs can be deleted")
    await call.service.loop.remove_job(row.id)
    call.service.limits.room_made(Owner("user", row.user))
    await call.service.review()


async def share(call: Call) -> None:
    """Share a job with a group; `exec` says whether its members may go inside too, as long as it runs."""
    row = await _job(call)
    access.change_job(call.person, _rights(row))
    await call.service.store.read(groups.get, call.path["group"])
    access.share_with(call.person, call.path["group"])
    await call.service.store.write(_share, row.id, call.path["group"], call.query.get("exec"))
    await call.service.review()


async def unshare(call: Call) -> None:
    """Share a job no longer with a group."""
    row = await _job(call)
    access.change_job(call.person, _rights(row))
    await call.service.store.write(jobs.set_group, row.id, call.path["group"], False)
    await call.service.review()


async def log(call: Call) -> Response:
    """The log of a job, until it ends."""
    row = await _job(call)
    access.read_job(call.person, _rights(row))
    book, query = call.service.loop.log, call.query
    offset = query.get("offset", 0)
    if "lines" in query:
        offset = max(offset, await asyncio.to_thread(book.tail_offset, row.id, query["lines"]))
    follows = query.get("follow", True) and row.state is not State.DONE
    source = book.follow(row.id, offset) if follows else _to_its_end(book, row.id, offset)
    # Proxies would otherwise gather lines before they pass them on.
    # Where these bytes begin: a follower that loses its connection goes on from there.
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no", "x-offset": str(offset)}
    return Stream(source, call.service.closing, headers=headers)


async def _to_its_end(book: LogBooks, job: int, offset: int) -> AsyncIterator[bytes]:
    end = await asyncio.to_thread(book.size, job)
    while offset < end:
        chunk = await asyncio.to_thread(book.read, job, offset, min(CHUNK_BYTES, end - offset))
        if not chunk:
            return
        offset += len(chunk)
        yield chunk


def _share(c: Connection, job: int, group: str, inside: bool | None) -> None:
    jobs.set_group(c, job, group, True)
    if inside is not None:
        jobs.set_exec_group(c, job, group, inside)


async def _job(call: Call) -> JobRow:
    return await call.service.store.read(jobs.get, call.job)


def _rights(row: JobRow) -> JobRights:
    return JobRights(row.user, row.groups)
