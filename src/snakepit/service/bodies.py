"""Bodies of requests: small ones whole and in time, large ones from the socket to the disk in a thread, with few copies
and none of them in the event loop.

For the large ones the HTTP side stops reading, and after its answer it closes the connection. Threads of their own: a
slow sender holds one for long, and the shared ones are for quick work.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import ClientDisconnect, Request

from snakepit.core.sizes import render_size
from snakepit.errors import TooLarge, TooSlow, Unavailable

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

T = TypeVar("T")
EXTENSION = "pit.body"
WORTH_BYTES = 1024 * 1024
BUFFER_BYTES = 1024 * 1024
MOST_DIRECT = 64  # more senders at a time go through the event loop
MOST = 256
SILENCE_S = 600.0  # in an upload
PATIENCE_S = 30.0  # for what is held in memory until it is whole, and more for what is large
SLOWEST_BYTES_PER_S = 32 << 10
_busy = 0


async def whole(request: Request, largest_bytes: int) -> bytes:
    """A body that is held in memory: it comes at a pace, and does not grow without end."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(PATIENCE_S) as limit:
            latest = limit.when() or 0.0
            async for part in request.stream():
                size += len(part)
                if size > largest_bytes:
                    raise too_large(largest_bytes)
                parts.append(part)
                limit.reschedule(latest + size / SLOWEST_BYTES_PER_S)
    except TimeoutError:
        raise TooSlow(f"The body came too slowly ({size} bytes so far): try again on a better line") from None
    return b"".join(parts)


def too_large(largest_bytes: int) -> TooLarge:
    return TooLarge(f"The body is too large ({render_size(largest_bytes)} max)")


async def progressing(request: Request) -> AsyncIterator[bytes]:
    """The parts of an upload, as slow as they are; one that falls silent is given up."""
    parts = request.stream()
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                part = await anext(parts)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise TooSlow(f"The upload was given up: nothing came for {SILENCE_S:g} seconds") from None
        yield part


async def apart(function: Callable[[], T]) -> T:
    """`function` on a thread of its own, which a service that stops does not wait for."""
    global _busy
    if _busy >= MOST:
        raise Unavailable("Too many uploads at the moment: try again later")
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, problem: BaseException | None) -> None:
        if future.cancelled():
            return
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, problem = None, None
        try:
            result = function()
        except BaseException as error:
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop is gone
            loop.call_soon_threadsafe(settle, result, problem)

    _busy += 1
    try:
        threading.Thread(target=work, name="body", daemon=True).start()
        return await future
    finally:
        _busy -= 1


class Body:
    """What a request will still bring, if its connection is a plain socket."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol

    def take(self, request: Request) -> tuple[bytes, int] | None:
        """What came already, and a handle to read the rest from (the caller closes it); None where that cannot be."""
        protocol = self._protocol
        cycle, transport = protocol.cycle, protocol.transport
        known = transport.get_extra_info("socket")
        plain = transport.get_extra_info("sslcontext") is None and known is not None
        if not plain or cycle.scope is not request.scope or protocol.pipeline or transport.is_closing():
            return None
        protocol.flow.pause_reading()
        if cycle.waiting_for_100_continue:
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        early = bytes(cycle.body)
        cycle.body = bytearray()
        cycle.keep_alive = False
        return early, os.dup(known.fileno())


def body_of(request: Request, length: int) -> tuple[bytes, int] | None:
    found = request.scope.get("extensions", {}).get(EXTENSION)
    if not isinstance(found, Body) or length < WORTH_BYTES or _busy >= MOST_DIRECT:
        return None
    return found.take(request)


def drain(
    source: int, early: bytes, length: int, write: Callable[[memoryview], None], stopping: Callable[[], bool]
) -> None:
    """Gives `length` bytes to `write`. When that fails, the rest is read and dropped, so that the answer is heard."""
    problem: Exception | None = None
    space = memoryview(bytearray(BUFFER_BYTES))
    filled, left = len(early), length - len(early)
    space_left = memoryview(early)
    while filled or left:
        if filled and problem is None:
            try:
                write(space_left[:filled])
            except Exception as error:
                problem = error
        filled, broken = _fill(source, space[: min(left, BUFFER_BYTES)], stopping)
        space_left, left = space, left - filled
        if broken:
            if problem is None:
                with contextlib.suppress(Exception):
                    write(space[:filled])
            raise ClientDisconnect()
    if problem is not None:
        raise problem


def _fill(source: int, space: memoryview, stopping: Callable[[], bool]) -> tuple[int, bool]:
    """How much came, and whether the sender is gone."""
    filled, silent_s = 0, 0
    while filled < len(space):
        try:
            count = os.readv(source, [space[filled:]])
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(source, select.POLLIN)
            if waiting.poll(1000):
                silent_s = 0
            else:
                silent_s += 1
                if stopping() or silent_s >= SILENCE_S:
                    return filled, True
            continue
        except OSError:
            return filled, True
        if not count:
            return filled, True
        filled += count
    return filled, False
