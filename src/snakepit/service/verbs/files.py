"""simplefs: stats, listings and contents of a home, a group's directory, the shared data, a job.

Homes and group directories are writable; shared data and jobs are read-only. Names are bytes, percent-encoded in the
address; in JSON, what is not UTF-8 in them stands as lone surrogates (`\\udcff`), as Python writes it.
"""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.responses import Response

from snakepit.errors import BadRequest, Forbidden
from snakepit.service import beneath
from snakepit.service.call import Call, read_json
from snakepit.service.pipes.entity import resolve
from snakepit.service.usage import OverLimit, Owner, measure
from snakepit.service.verbs import contents
from snakepit.wire.fields import Field, check, table
from snakepit.wire.shapes import FileStats

STATS = table(
    Field("type", required=True, choices=("file", "directory")),
    Field("size", "whole", high=2**53, words="of a file; what is missing is zeros"),
    Field("coming", "whole", high=2**53, words="how much will be sent to it; refused now where it does not fit"),
)
QUERY = table(
    Field("details", "flag", words="content of a directory: lines of JSON, each a list of [name, isFile, size, mtime]"),
    Field("usage", "flag", words="stats of a directory: what each entry takes on the disk"),
    Field("room", "flag", words="stats of a whole place: says where its owner is over the limit"),
    Field("archive", choices=("tar",), words="content of a directory: as a tar stream, both ways"),
    Field("replace", "flag", words="a directory that is there is added to"),
    Field("size", "whole", high=2**53, words="about how much an archive will bring"),
)


@dataclass(frozen=True, slots=True)
class Room:
    """Where a request may go, and whose limit it is that it writes to; None where nobody writes."""

    base: Path
    path: str
    owner: Owner | None


async def shared(call: Call) -> Response:
    """Shared data, read-only."""
    return await _serve(call, "shared", None)


async def home(call: Call) -> Response:
    """The home of a user."""
    return await _serve(call, f"user:{call.user}", Owner("user", call.user))


async def group(call: Call) -> Response:
    """The directory of a group."""
    return await _serve(call, f"group:{call.path['group']}", Owner("group", call.path["group"]))


async def job(call: Call) -> Response:
    """The directory of a job, read-only."""
    return await _serve(call, f"job:{call.job}", None)


async def targz(call: Call) -> Response:
    """The directory of a job as a tar.gz archive."""
    place = await resolve(call.service.store, call.service.settings.data_root, call.person, f"job:{call.job}")
    return await contents.archive(call, place.directory, "", prefix=f"job{call.job}", compressed=True)


async def _serve(call: Call, entity: str, owner: Owner | None) -> Response:
    aspect, method = call.path["aspect"], call.request.method
    if aspect not in ("stats", "content"):
        raise BadRequest(f"Unknown aspect {aspect[:40]!r}: there are stats and content")
    place = await resolve(call.service.store, call.service.settings.data_root, call.person, entity)
    room = Room(place.directory, path_of(call), owner)
    if method in ("GET", "HEAD"):
        return await (_stats(call, room) if aspect == "stats" else contents.show(call, room.base, room.path))
    if not place.writable or owner is None:
        raise Forbidden("This is read-only")
    if aspect == "stats":
        await _change(call, room, owner)
    elif method == "PUT":
        await contents.take(call, room.base, room.path, owner)
    else:
        raise Forbidden("Only whole entries can be deleted: use stats")
    return Response()


def path_of(call: Call) -> str:
    """The path below the entity, byte for byte; the framework's own has lost what is not UTF-8."""
    raw: bytes = call.request.scope["raw_path"]
    before = 4 if raw.startswith(b"/shared/") else 5  # slashes
    parts = raw.split(b"/", before)
    return os.fsdecode(unquote_to_bytes(parts[before])) if len(parts) > before else ""


async def _change(call: Call, room: Room, owner: Owner) -> None:
    match call.request.method:
        case "DELETE":
            trash = call.service.settings.data_root / "trash"
            await asyncio.to_thread(beneath.remove, room.base, room.path, trash)
            call.service.limits.room_made(owner)
        case "POST":
            await asyncio.to_thread(beneath.move, room.base, _source(await read_json(call.request)), room.path)
        case _:
            await _create(call, room, owner)


def _source(body: object) -> str:
    """`{from: path}`; a name in any encoding is more than the fields of other bodies may be."""
    source = body.get("from") if isinstance(body, dict) else None
    if not isinstance(source, str):
        raise BadRequest('Expected {"from": the path of a file of the same entity}')
    return source


async def _create(call: Call, room: Room, owner: Owner) -> None:
    body = check(STATS, await read_json(call.request))
    if body["type"] == "directory":
        await asyncio.to_thread(beneath.make_directories, room.base, room.path)
        return
    if await asyncio.to_thread(beneath.drop_remains, room.base, room.path):
        call.service.limits.room_made(owner)
    await call.service.limits.check(owner, max(body.get("size", 0), body.get("coming", 0)))
    await asyncio.to_thread(_make_file, room.base, room.path, body.get("size", 0))


def _make_file(base: Path, path: str, size: int) -> None:
    handle = beneath.open_file(base, path, os.O_WRONLY | os.O_CREAT, 0o640)
    try:
        with beneath.speaking(path):
            os.ftruncate(handle, 0)
            os.ftruncate(handle, size)
    finally:
        os.close(handle)


async def _stats(call: Call, room: Room) -> Response:
    if call.query.get("usage"):
        return await _usage(call, room)
    found = await asyncio.to_thread(beneath.status, room.base, room.path)
    shown: FileStats = {
        "isFile": stat.S_ISREG(found.st_mode),
        "size": found.st_size,
        "mtime": _date(found.st_mtime),
        "atime": _date(found.st_atime),
        "ctime": _date(found.st_ctime),
    }
    if call.query.get("room") and room.owner is not None:
        try:
            await call.service.limits.check(room.owner)
        except OverLimit as over:
            shown["overLimit"] = over.message
    return contents.ascii_json(shown)


async def _usage(call: Call, room: Room) -> Response:
    found = await asyncio.to_thread(_measured, room.base, room.path)
    if room.owner is not None and not beneath.components(room.path):
        found["limit"] = call.service.limits.limit(room.owner)
        found["used"] = await call.service.limits.used(room.owner)
    return contents.ascii_json(found)


def _measured(base: Path, path: str) -> dict[str, Any]:
    with beneath.directory(base, beneath.components(path)) as handle, beneath.speaking(path):
        entries = [[name, each.size_bytes, each.files] for name, each in sorted(measure(handle).items())]
    sizes = sum(each[1] for each in entries), sum(each[2] for each in entries)  # type: ignore[misc]
    return {"size": sizes[0], "files": sizes[1], "entries": entries}


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
