"""simplefs: stats, listings and contents of a home, a group's directory, the shared data, a job. Bodies are streamed.

Homes and group directories are writable; shared data and jobs are read-only.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from starlette.responses import Response

from snakepit.core import access
from snakepit.core.access import JobRights
from snakepit.errors import BadRequest, Forbidden, NotFound, SnakepitError
from snakepit.service import beneath
from snakepit.service.api.answers import json_response
from snakepit.service.call import Call, int_header, read_json
from snakepit.service.streams import Stream
from snakepit.store import groups, jobs, users
from snakepit.wire.fields import Field, check, table
from snakepit.wire.shapes import FileStats

CHUNK_BYTES = 256 * 1024
WRITE_BYTES = 1024 * 1024
STATS = table(
    Field("type", required=True, choices=("file", "directory")),
    Field("size", "whole", high=2**53, words="of a file; what is missing is zeros"),
)


class NoSuchRange(SnakepitError):
    status = 416


async def shared(call: Call) -> Response:
    """Shared data, read-only."""
    return await _serve(call, call.service.settings.data_root / "shared", writable=False)


async def home(call: Call) -> Response:
    """The home of a user."""
    access.see_user(call.person, call.user)
    await call.service.store.read(users.get, call.user)
    base = call.service.settings.data_root / "home" / call.user
    await asyncio.to_thread(beneath.make_directory, base)
    return await _serve(call, base, writable=True)


async def group(call: Call) -> Response:
    """The directory of a group."""
    access.use_group_data(call.person, call.path["group"])
    await call.service.store.read(groups.get, call.path["group"])
    base = call.service.settings.data_root / "groups" / call.path["group"]
    await asyncio.to_thread(beneath.make_directory, base)
    return await _serve(call, base, writable=True)


async def job(call: Call) -> Response:
    """The directory of a job, read-only."""
    row = await call.service.store.read(jobs.get, call.job)
    access.read_job(call.person, JobRights(row.user, row.groups))
    return await _serve(call, call.service.settings.data_root / "pits" / str(row.id), writable=False)


async def _serve(call: Call, base: Path, writable: bool) -> Response:
    path, aspect, method = call.path.get("path", ""), call.path["aspect"], call.request.method
    if aspect not in ("stats", "content"):
        raise BadRequest(f"Unknown aspect {aspect[:40]!r}: there are stats and content")
    if method in ("GET", "HEAD"):
        return await (_stats(base, path) if aspect == "stats" else _content(call, base, path))
    if not writable:
        raise Forbidden("This is read-only")
    if method == "PUT" and aspect == "stats":
        await _create(call, base, path)
    elif method == "PUT":
        await _upload(call, base, path)
    elif method == "DELETE" and aspect == "stats":
        await asyncio.to_thread(beneath.remove, base, path, call.service.settings.data_root / "trash")
    else:
        raise Forbidden("Only whole entries can be deleted: use stats")
    return Response()


async def _stats(base: Path, path: str) -> Response:
    found = await asyncio.to_thread(beneath.status, base, path)
    shown: FileStats = {
        "isFile": stat.S_ISREG(found.st_mode),
        "size": found.st_size,
        "mtime": _date(found.st_mtime),
        "atime": _date(found.st_atime),
        "ctime": _date(found.st_ctime),
    }
    return json_response(shown)


async def _create(call: Call, base: Path, path: str) -> None:
    body = check(STATS, await read_json(call.request))
    if body["type"] == "directory":
        await asyncio.to_thread(beneath.make_directories, base, path)
    else:
        await asyncio.to_thread(_make_file, base, path, body.get("size", 0))


def _make_file(base: Path, path: str, size: int) -> None:
    handle = beneath.open_file(base, path, os.O_WRONLY | os.O_CREAT, 0o640)
    try:
        with beneath.speaking(path):
            os.ftruncate(handle, 0)
            os.ftruncate(handle, size)
    finally:
        os.close(handle)


async def _upload(call: Call, base: Path, path: str) -> None:
    """The body goes to the end of the file, after it was cut to Content-Offset."""
    offset = int_header(call.request, "content-offset", 0)
    try:
        handle = await asyncio.to_thread(beneath.open_file, base, path, os.O_WRONLY)
    except NotFound as problem:
        raise BadRequest(f"{problem.message}: make it with stats first") from problem
    try:
        if offset > os.fstat(handle).st_size:
            raise BadRequest("Content-Offset lies beyond the end of the file")
        await asyncio.to_thread(os.ftruncate, handle, offset)
        parts, size = [], 0
        async for part in call.request.stream():
            parts.append(part)
            size += len(part)
            if size >= WRITE_BYTES:
                offset = await asyncio.to_thread(_write, handle, b"".join(parts), offset, path)
                parts, size = [], 0
        await asyncio.to_thread(_write, handle, b"".join(parts), offset, path)
    finally:
        os.close(handle)


def _write(handle: int, data: bytes, offset: int, path: str) -> int:
    view = memoryview(data)
    with beneath.speaking(path):
        while view:
            written = os.pwrite(handle, view, offset)
            offset += written
            view = view[written:]
    return offset


async def _content(call: Call, base: Path, path: str) -> Response:
    found = await asyncio.to_thread(beneath.status, base, path)
    if stat.S_ISDIR(found.st_mode):
        directories, files = await asyncio.to_thread(beneath.listing, base, path)
        return json_response({"dirs": directories, "files": files})
    handle = await asyncio.to_thread(beneath.open_file, base, path, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        wanted = parse_range(call.request.headers.get("range", ""), size)
    except BaseException:
        os.close(handle)
        raise
    start, end = wanted or (0, size)
    headers = {"content-length": str(end - start), "accept-ranges": "bytes"}
    if wanted is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    return Stream(
        _chunks(handle, start, end),
        call.service.closing,
        206 if wanted else 200,
        headers,
        "application/octet-stream",
        on_end=lambda: os.close(handle),
    )


async def _chunks(handle: int, start: int, end: int) -> AsyncIterator[bytes]:
    while start < end:
        chunk = await asyncio.to_thread(os.pread, handle, min(CHUNK_BYTES, end - start), start)
        if not chunk:
            return  # it was cut while being read; the missing length tells
        start += len(chunk)
        yield chunk


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Start and end (exclusive) of a single range; None for all of it."""
    if not header:
        return None
    if "," in header:
        raise NoSuchRange("Only a single range can be served")
    match = re.fullmatch(r"\s*bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", header)
    if match is None or not (match[1] or match[2]):
        raise BadRequest("Malformed Range header")
    if match[1]:
        start, end = int(match[1]), min(int(match[2] or size) + 1, size) if match[2] else size
    else:
        start, end = max(0, size - int(match[2])), size
    if start == 0 and size == 0:
        return None  # all of nothing
    if start >= end:
        raise NoSuchRange(f"The file has {size} bytes")
    return start, end


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
