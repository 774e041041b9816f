"""The original client's ways inside: web-sockets for `exec` and `forward`, spoken as it speaks them.

A message is one byte (the channel) and the bytes; ours says more: an empty message on channel 1 ends stdin, and the
reason of the closing frame carries the exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from snakepit.errors import SnakepitError, Unauthorized
from snakepit.service.api.answers import refusal, unforeseen
from snakepit.service.api.dispatch import check_ids
from snakepit.service.auth import digest
from snakepit.service.call import token_of
from snakepit.service.inside.forwarder import Forwarder, attach
from snakepit.service.inside.multiplex import Decoder
from snakepit.service.inside.order import read_order
from snakepit.service.inside.visits import Visitor
from snakepit.service.service import Service

HEAD = struct.Struct("!BI")
LARGEST = 1 << 20
LOOK_S = 2.0
NOTHING = b"\2"  # on stderr
OVER, BROKEN_OFF = 1000, 1011
Serve = Callable[[Service, Visitor, WebSocket], Awaitable[None]]


class Inside:
    """One of the two, as an ASGI application."""

    def __init__(self, service: Service, serve: Serve) -> None:
        self._service, self._serve = service, serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        try:
            check_ids(websocket.path_params)
            await self._serve(self._service, await self._visitor(websocket), websocket)
        except WebSocketDisconnect:
            return
        except SnakepitError as problem:
            await websocket.send_denial_response(refusal(problem))
        except Exception as problem:  # one session, whatever befell it, harms no other
            with contextlib.suppress(RuntimeError):
                await websocket.send_denial_response(unforeseen(problem))

    async def _visitor(self, websocket: WebSocket) -> Visitor:
        text = token_of(websocket)
        session = await self._service.sessions.find(text) if text else None
        if session is None:
            raise Unauthorized("No token")
        host = websocket.client.host if websocket.client else ""
        job, worker = int(websocket.path_params["job"]), int(websocket.path_params["index"])
        return Visitor(session.person, digest(text), host, job, worker)


async def exec(service: Service, visitor: Visitor, websocket: WebSocket) -> None:
    command = read_order(websocket.query_params.get("context", ""))
    visit = await service.visits.exec(visitor, command)
    try:
        await websocket.accept()
        reader, writer = await attach(service.visits, visit)
        there = asyncio.create_task(_to_command(websocket, writer))
        back = asyncio.create_task(_to_client(websocket, reader))
        try:
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            writer.close()
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
    finally:
        visit.end("it is over")


async def _to_command(websocket: WebSocket, writer: asyncio.StreamWriter) -> None:
    while True:
        message = await websocket.receive_bytes()
        if message[:1] not in (b"\0", b"\1"):
            continue
        for at in range(1, max(2, len(message)), LARGEST):  # an empty one too: it ends stdin
            part = message[at : at + LARGEST]
            writer.write(HEAD.pack(message[0], len(part)) + part)
        await _drained(websocket, writer)


async def _drained(websocket: WebSocket, writer: asyncio.StreamWriter) -> None:
    """Once the command has read enough. That its client went meanwhile is told only to who reads on or sends."""
    draining = asyncio.ensure_future(writer.drain())
    try:
        while not (await asyncio.wait((draining,), timeout=LOOK_S))[0]:
            await websocket.send_bytes(NOTHING)
        await draining
    finally:
        draining.cancel()


async def _to_client(websocket: WebSocket, reader: asyncio.StreamReader) -> None:
    try:
        while True:
            channel, length = HEAD.unpack(await reader.readexactly(HEAD.size))
            data = await reader.readexactly(length)
            if channel == 0 and "exit" in json.loads(data):
                await websocket.close(OVER, data.decode())
                return
            await websocket.send_bytes(bytes([channel]) + data)
    except (asyncio.IncompleteReadError, OSError):
        await websocket.close(BROKEN_OFF, "the command was ended from outside")


async def forward(service: Service, visitor: Visitor, websocket: WebSocket) -> None:
    await service.visits.enter(visitor)
    await websocket.accept()
    busy = asyncio.Lock()

    async def send(data: bytes) -> None:
        async with busy:
            await websocket.send_bytes(data)

    forwarder, decoder = Forwarder(service.visits, visitor, send), Decoder()
    receiving = asyncio.create_task(_receive(websocket, forwarder, decoder))
    closing = asyncio.create_task(service.closing.wait())
    try:
        await asyncio.wait((receiving, closing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (receiving, closing):
            task.cancel()
        await forwarder.close()
        await asyncio.gather(receiving, closing, return_exceptions=True)
        with contextlib.suppress(RuntimeError):
            await websocket.close(OVER)


async def _receive(websocket: WebSocket, forwarder: Forwarder, decoder: Decoder) -> None:
    while True:
        for frame in decoder.feed(await websocket.receive_bytes()):
            await forwarder.take(frame)


ROUTES: dict[str, Serve] = {
    "/jobs/{job}/instances/{index}/exec": exec,
    "/jobs/{job}/instances/{index}/forward": forward,
}
