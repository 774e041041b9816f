"""The original's `forward`: channels of one web-socket, each a connection to a port of the worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Awaitable, Callable

from snakepit.errors import BadRequest, SnakepitError, TooMany
from snakepit.service.inside.multiplex import Frame, Kind, encode
from snakepit.service.inside.visits import Visit, Visitor, Visits

BLOCK = 1 << 16
MOST_CHANNELS = 500
NAME = re.compile(rb"\d+-(\d{1,5})")  # <counter>-<remotePort>
Send = Callable[[bytes], Awaitable[None]]


class Forwarder:
    """The other side of the original client's multiplexer. `send` waits while the client is slower than we are."""

    def __init__(self, visits: Visits, visitor: Visitor, send: Send) -> None:
        self._visits, self._visitor, self._send = visits, visitor, send
        self._visit = os.urandom(12).hex()
        self._channels: dict[int, _Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, frame: Frame) -> None:
        """Comes back when there is room for more: a channel that does not read holds up the rest, as it always did."""
        channel = self._channels.get(frame.channel)
        match frame.kind:
            case Kind.OPEN:
                self._open(frame)
            case Kind.DATA if channel is not None:
                await channel.write(frame.data)
            case Kind.END if channel is not None:
                await channel.write(b"")
            case Kind.BROKEN if channel is not None:
                channel.close()
            case _:
                pass  # of a channel that is gone already

    async def close(self) -> None:
        for channel in list(self._channels.values()):
            channel.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _open(self, frame: Frame) -> None:
        if frame.channel in self._channels:
            return
        channel = self._channels[frame.channel] = _Channel()
        task = asyncio.create_task(self._serve(frame, channel))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, frame: Frame, channel: _Channel) -> None:
        try:
            reader = await self._connect(frame, channel)
            while data := await reader.read(BLOCK):
                await self._send(encode(Frame(frame.channel, Kind.ANSWER, data)))
            await self._send(encode(Frame(frame.channel, Kind.ANSWER_END)))
            await channel.written()
        except (SnakepitError, OSError) as problem:
            words = problem.message if isinstance(problem, SnakepitError) else "connection lost"
            with contextlib.suppress(Exception):
                await self._send(encode(Frame(frame.channel, Kind.ANSWER_BROKEN, words.encode())))
        finally:
            self._channels.pop(frame.channel, None)
            channel.close()

    async def _connect(self, frame: Frame, channel: _Channel) -> asyncio.StreamReader:
        name = NAME.fullmatch(frame.data)
        if name is None or len(self._channels) > MOST_CHANNELS:
            raise TooMany("too many connections") if name else BadRequest("a channel is named <number>-<port>")
        visit = await self._visits.connect(self._visitor, int(name[1]), self._visit)
        reader, writer = await attach(self._visits, visit)
        channel.begin(writer, visit)
        return reader


async def attach(visits: Visits, visit: Visit) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The outer end of a session, as streams of our own."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    await visits.attach(visit, theirs)
    return await asyncio.open_connection(sock=ours, limit=BLOCK * 4)


class _Channel:
    """A connection: what is written before it stands waits for it."""

    def __init__(self) -> None:
        self._settled = asyncio.Event()
        self._ended = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._visit: Visit | None = None

    def begin(self, writer: asyncio.StreamWriter, visit: Visit) -> None:
        self._writer, self._visit = writer, visit
        self._settled.set()

    async def write(self, data: bytes) -> None:
        """An empty one is the end of this direction."""
        await self._settled.wait()
        if self._writer is None or self._ended.is_set():
            return
        try:
            if data:
                self._writer.write(data)
                await self._writer.drain()
            else:
                self._ended.set()
                self._writer.write_eof()
        except OSError:
            self._ended.set()  # whoever reads hears of it too

    async def written(self) -> None:
        await self._ended.wait()

    def close(self) -> None:
        self._settled.set()
        self._ended.set()
        if self._writer is not None:
            self._writer.close()
        if self._visit is not None:
            self._visit.end("its channel was closed")
