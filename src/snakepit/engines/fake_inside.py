"""What goes on inside processes of the honest fake: `cat`, `echo`, `exit N`; a port that says back what it hears."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable

from snakepit.engines.base import Command

HEAD, LENGTH = struct.Struct("!BI"), struct.Struct("!I")
Work = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class FakeSession:
    """A Session (base.Session) in memory."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    async def attach(self, end: socket.socket) -> None:
        self._task = asyncio.create_task(self._serve(end))

    async def ended(self) -> None:
        await self._over.wait()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self._over.set()

    async def _serve(self, end: socket.socket) -> None:
        end.setblocking(False)
        try:
            reader, writer = await asyncio.open_connection(sock=end)
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                await self._work(reader, writer)
                writer.write_eof()
                while await reader.read(1 << 16):  # closing on what nobody read would reset the connection
                    pass
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        finally:
            end.close()
            self._over.set()


async def run(command: Command, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    code = 0
    match command.argv:
        case ("cat",):
            while data := await _stdin(reader):
                writer.write(HEAD.pack(1, len(data)) + data)
                await writer.drain()
        case ("exit", number):
            code = int(number)
        case words:
            said = " ".join(words[1:]).encode() + b"\n"
            writer.write(HEAD.pack(1, len(said)) + said)
    last = json.dumps({"exit": code}).encode()
    writer.write(HEAD.pack(0, len(last)) + last)
    await writer.drain()


async def _stdin(reader: asyncio.StreamReader) -> bytes:
    while True:
        channel, length = HEAD.unpack(await reader.readexactly(HEAD.size))
        data = await reader.readexactly(length)
        if channel == 1:
            return data


async def echo(listening: bool, spare: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if spare:
        await reader.readexactly(1)
        writer.write(b"\0" if listening else b"\1")
        while listening and (length := LENGTH.unpack(await reader.readexactly(LENGTH.size))[0]):
            writer.write(LENGTH.pack(length) + await reader.readexactly(length))
            await writer.drain()
        writer.write(LENGTH.pack(0) if listening else b"")
        return
    while listening and (data := await reader.read(1 << 16)):
        writer.write(data)
        await writer.drain()
