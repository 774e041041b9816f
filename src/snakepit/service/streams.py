"""Answers that flow: each follower at its own pace, gone the moment its reader, or the service, goes.

A stream that the service cuts off is left incomplete on purpose, so that a client does not take it for the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from snakepit.errors import Unavailable

T = TypeVar("T")


class Stream(Response):
    def __init__(
        self,
        source: AsyncIterator[bytes],
        closing: asyncio.Event,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = "text/plain; charset=utf-8",
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(None, status, headers, media_type)
        if "content-length" not in (headers or {}):
            del self.headers["content-length"]
        self._source, self._closing, self._on_end = source, closing, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._run(scope, receive, send)
        finally:
            self._on_end()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        pump = asyncio.create_task(self._pump(send))
        ends = [asyncio.create_task(_disconnected(receive)), asyncio.create_task(self._closing.wait())]
        try:
            await asyncio.wait([pump, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, *ends):
                task.cancel()
            await asyncio.gather(pump, *ends, return_exceptions=True)
        if not pump.cancelled() and (problem := pump.exception()) is not None and not isinstance(problem, OSError):
            raise problem

    async def _pump(self, send: Send) -> None:
        if isinstance(self._source, AsyncGenerator):
            async with aclosing(self._source) as source:
                async for chunk in source:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        else:
            async for chunk in self._source:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def until_closing(work: Awaitable[T], closing: asyncio.Event) -> T:
    """`work`, unless the service is asked to stop meanwhile: long polls do not hold it up."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    end = asyncio.create_task(closing.wait())
    try:
        await asyncio.wait((task, end), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Unavailable("The service is being stopped; ask again in a moment")
        return task.result()
    finally:
        task.cancel()
        end.cancel()
        await asyncio.gather(task, end, return_exceptions=True)
