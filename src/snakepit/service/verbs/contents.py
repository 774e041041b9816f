"""What is in files and directories, on its way out and in: ranges, offsets, listings, tar streams, never held whole."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import zlib
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from pathlib import Path
from types import GeneratorType
from typing import Any

from starlette.responses import Response

from snakepit.errors import BadRequest, NotFound, SnakepitError
from snakepit.service import beneath, bodies
from snakepit.service.call import Call, int_header
from snakepit.service.streams import Stream
from snakepit.service.usage import Owner
from snakepit.wire import tree

CHUNK_BYTES = 512 * 1024
WRITE_BYTES = 1024 * 1024
MOST_PARTS = 500  # the kernel takes 1024 at once
BYTES = "application/octet-stream"


class NoSuchRange(SnakepitError):
    status = 416


def ascii_json(value: Any) -> Response:
    """Names that are not UTF-8 keep their bytes as lone surrogates, which only ASCII JSON can write."""
    return Response(json.dumps(value, separators=(",", ":")), media_type="application/json")


# ----------------------------------------------------------------------------------------------------------------- out


async def show(call: Call, base: Path, path: str) -> Response:
    """The bytes of a file, the names in a directory."""
    found = await asyncio.to_thread(beneath.status, base, path)
    if not stat.S_ISDIR(found.st_mode):
        return await _file(call, base, path)
    if call.query.get("archive"):
        return await archive(call, base, path)
    if call.query.get("details"):
        return _stream(call, await _begun(_lines(base, path)), "application/x-ndjson")
    directories, files = await asyncio.to_thread(beneath.listing, base, path)
    return await asyncio.to_thread(ascii_json, {"dirs": directories, "files": files})


async def archive(call: Call, base: Path, path: str, prefix: str = "", compressed: bool = False) -> Response:
    """A directory as one stream."""
    parts = _packed(base, path, prefix)
    kind = "application/gzip" if compressed else "application/x-tar"
    return _stream(call, await _begun(_compressed(parts) if compressed else parts), kind)


async def _file(call: Call, base: Path, path: str) -> Response:
    handle = await asyncio.to_thread(beneath.open_file, base, path, os.O_RDONLY)
    try:
        found = os.fstat(handle)
        tag = f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"'
        # Who goes on where he was cut off says what he had the beginning of.
        same = call.request.headers.get("if-range", tag) == tag
        wanted = parse_range(call.request.headers.get("range", ""), found.st_size) if same else None
    except BaseException:
        os.close(handle)
        raise
    start, end = wanted or (0, found.st_size)
    headers = {"content-length": str(end - start), "accept-ranges": "bytes", "etag": tag}
    if wanted is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{found.st_size}"
    chunks = _chunks(handle, start, end)
    status = 206 if wanted else 200
    return Stream(chunks, call.service.closing, status, headers, BYTES, on_end=lambda: os.close(handle))


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
        start, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    else:
        start, end = max(0, size - int(match[2])), size
    if start == 0 and size == 0:
        return None  # all of nothing
    if start >= end:
        raise NoSuchRange(f"The file has {size} bytes")
    return start, end


def _lines(base: Path, path: str) -> Iterator[bytes]:
    """Lines of JSON, each a list of many entries."""
    for found in beneath.details(base, path):
        entries = [[name, stat.S_ISREG(each.st_mode), each.st_size, each.st_mtime] for name, each in found]
        yield json.dumps(entries, separators=(",", ":")).encode() + b"\n"


def _packed(base: Path, path: str, prefix: str) -> Iterator[bytes]:
    with beneath.directory(base, beneath.components(path)) as handle, beneath.speaking(path):
        yield from tree.gathered(tree.pack(handle, prefix))


def _compressed(parts: Iterator[bytes]) -> Iterator[bytes]:
    # The fastest level: most of what lies in jobs is weights, which hardly shrink.
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    for part in parts:
        if packed := packer.compress(part):
            yield packed
    yield packer.flush()


async def _begun(parts: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first part, before anything is promised: what cannot be opened is refused with words."""
    return await asyncio.to_thread(next, parts, b""), parts


def _stream(call: Call, begun: tuple[bytes, Iterator[bytes]], media_type: str) -> Response:
    first, parts = begun

    async def rest() -> AsyncIterator[bytes]:
        yield first
        while part := await asyncio.to_thread(next, parts, b""):
            yield part

    def end() -> None:
        # A reader that left while a thread was in the middle: then the last reference to it closes the handles.
        if isinstance(parts, GeneratorType) and not parts.gi_running:
            parts.close()

    return Stream(rest(), call.service.closing, media_type=media_type, on_end=end)


# ------------------------------------------------------------------------------------------------------------------ in


async def take(call: Call, base: Path, path: str, owner: Owner) -> None:
    """The body becomes the content of a file from an offset on, or a new directory."""
    if call.query.get("archive"):
        await _unpack(call, base, path, owner)
    else:
        await _upload(call, base, path, owner)


async def _upload(call: Call, base: Path, path: str, owner: Owner) -> None:
    """The body goes to the end of the file, after it was cut to Content-Offset."""
    offset = int_header(call.request, "content-offset", 0)
    expected = int_header(call.request, "content-length", 0)
    try:
        handle = await asyncio.to_thread(beneath.open_file, base, path, os.O_WRONLY)
    except NotFound as problem:
        raise BadRequest(f"{problem.message}: make it with stats first") from problem
    try:
        size = os.fstat(handle).st_size
        if offset > size:
            raise BadRequest("Content-Offset lies beyond the end of the file")
        await call.service.limits.check(owner, max(0, offset + expected - size))
        await asyncio.to_thread(os.ftruncate, handle, offset)
        end = await _received(call, handle, offset, path, expected)
        call.service.limits.wrote(owner, max(0, end - size))
    finally:
        os.close(handle)


async def _received(call: Call, handle: int, offset: int, path: str, expected: int) -> int:
    direct = bodies.body_of(call.request, expected)
    if direct is None:
        return await _written(bodies.progressing(call.request), handle, offset, path)
    early, source = direct
    target = os.dup(handle)  # the thread's own: it may outlive a request that is given up

    def work() -> int:
        at = offset

        def write(data: memoryview) -> None:
            nonlocal at
            at = _write(target, [data], at, path)

        try:
            bodies.drain(source, early, expected, write, call.service.closing.is_set)
        finally:
            os.close(source)
            os.close(target)
        return at

    return await bodies.apart(work)


async def _written(body: AsyncIterator[bytes], handle: int, offset: int, path: str) -> int:
    """Where the file ends now. A thread writes while the next bytes come in; what came before a connection broke is
    written too: it need not come again."""
    parts: list[bytes] = []
    size = 0
    writing: Awaitable[int] = _done(offset)
    try:
        async for part in body:
            parts.append(part)
            size += len(part)
            if size >= WRITE_BYTES or len(parts) >= MOST_PARTS:
                offset = await writing
                writing = asyncio.ensure_future(asyncio.to_thread(_write, handle, parts, offset, path))
                parts, size = [], 0
    finally:  # also when the client went: nobody else may close the handle before the thread is done
        offset = await writing
        offset = await asyncio.to_thread(_write, handle, parts, offset, path)
    return offset


async def _done(offset: int) -> int:
    return offset


def _write(handle: int, parts: Sequence[bytes | memoryview], offset: int, path: str) -> int:
    """Where it ended. As they came, without making one of them first."""
    with beneath.speaking(path):
        size = sum(len(part) for part in parts)
        written = os.pwritev(handle, parts, offset) if parts else 0
        view = memoryview(b"".join(parts))[written:] if written < size else memoryview(b"")
        while view:
            count = os.pwrite(handle, view, offset + written)
            written += count
            view = view[count:]
    return offset + written


async def _unpack(call: Call, base: Path, path: str, owner: Owner) -> None:
    size = call.query.get("size", 0)
    await call.service.limits.check(owner, size)
    body = _Body(bodies.progressing(call.request), asyncio.get_running_loop())
    await bodies.apart(lambda: _fill(body, base, path, bool(call.query.get("replace"))))
    call.service.limits.wrote(owner, body.count)


def _fill(body: _Body, base: Path, path: str, replace: bool) -> None:
    with beneath.new_directory(base, path, replace) as handle, beneath.speaking(path):
        tree.unpack(body, handle)
        while body.read(tree.BLOCK):  # what follows the archive's end; unread, the answer would not be heard
            pass


class _Body:
    """A request's body as a file, for a thread."""

    def __init__(self, parts: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._parts, self._loop = parts, loop
        self._left = b""
        self.count = 0

    def read(self, size: int) -> bytes:
        while not self._left:
            self._left = asyncio.run_coroutine_threadsafe(self._next(), self._loop).result()
            if not self._left:
                return b""
        part, self._left = self._left[:size], self._left[size:]
        self.count += len(part)
        return part

    async def _next(self) -> bytes:
        """Several parts at once; empty at the end."""
        parts, size = [], 0
        async for part in self._parts:
            parts.append(part)
            size += len(part)
            if size >= CHUNK_BYTES:
                break
        return b"".join(parts)
