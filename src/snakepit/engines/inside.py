"""Sessions inside a running process, over a connection of their own to the agent.

On this machine the caller's socket itself is handed to the agent, so that none of its bytes pass through the service.
Where there is only a stream (ssh), the bytes are carried between the two.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import socket
from typing import Any

from snakepit.engines.agent import frames
from snakepit.engines.agent_wire import Body
from snakepit.errors import NotNow, Rejected, Unreachable

ANSWER_TIMEOUT_S = 20
CHUNK = 1 << 18
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Handed:
    """A Session (base.Session) whose end is given away over a unix socket."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._watched = False

    @classmethod
    async def open(cls, line: socket.socket, ask: Body) -> Handed:
        """Asks on a fresh connection; what is refused is raised."""
        line.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(line, frames.encode({**ask, "number": 1, "by": "handing"}))
            decoder = frames.Decoder()
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while not (found := decoder.feed(await _some(loop, line))):
                    pass
            check(found[0][0])
        except BaseException as problem:
            line.close()
            if isinstance(problem, OSError | frames.Garbled):
                raise Unreachable(f"the agent did not answer: {problem or 'it took too long'}") from None
            raise
        return cls(line)

    async def attach(self, end: socket.socket) -> None:
        rights = array.array("i", [end.fileno()])
        try:
            self._line.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError as problem:
            raise Unreachable(f"the agent is gone: {problem}") from None
        finally:
            end.close()

    async def ended(self) -> None:
        self._watched = True
        with contextlib.suppress(OSError):
            while await asyncio.get_running_loop().sock_recv(self._line, 4096):
                pass
        self._line.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)  # whoever waits in `ended` hears of it
        if not self._watched:
            self._line.close()


async def _some(loop: asyncio.AbstractEventLoop, line: socket.socket) -> bytes:
    data = await loop.sock_recv(line, 65536)
    if not data:
        raise ConnectionResetError("the agent closed the connection")
    return data


class Carried:
    """A Session over any pair of streams to an agent."""

    def __init__(self, streams: Streams) -> None:
        self._reader, self._writer = streams
        self._carrying: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    @classmethod
    async def open(cls, streams: Streams, ask: Body) -> Carried:
        reader, writer = streams
        try:
            writer.write(frames.encode({**ask, "number": 1, "by": "stream"}))
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answer = await reader.readline()
            check(frames.Decoder().feed(answer)[0][0])
        except BaseException as problem:
            writer.close()
            if isinstance(problem, OSError | frames.Garbled | IndexError):
                raise Unreachable("the agent did not answer") from None
            raise
        return cls(streams)

    async def attach(self, end: socket.socket) -> None:
        if self._over.is_set():
            end.close()
            raise Unreachable("the session was closed")
        self._carrying = asyncio.create_task(self._carry(end))
        self._carrying.add_done_callback(lambda _: self._over.set())

    async def ended(self) -> None:
        await self._over.wait()

    def close(self) -> None:
        self._writer.close()
        if self._carrying is not None:
            self._carrying.cancel()
        else:
            self._over.set()

    async def _carry(self, end: socket.socket) -> None:
        end.setblocking(False)
        loop = asyncio.get_running_loop()
        both = [asyncio.create_task(self._out(loop, end)), asyncio.create_task(self._into(loop, end))]
        try:
            await asyncio.gather(*both)
        except OSError:
            pass
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._writer.close()
            end.close()

    async def _out(self, loop: asyncio.AbstractEventLoop, end: socket.socket) -> None:
        while data := await loop.sock_recv(end, CHUNK):
            self._writer.write(data)
            await self._writer.drain()
        if self._writer.can_write_eof():
            self._writer.write_eof()

    async def _into(self, loop: asyncio.AbstractEventLoop, end: socket.socket) -> None:
        while data := await self._reader.read(CHUNK):
            await loop.sock_sendall(end, data)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_WR)


def check(answer: dict[str, Any]) -> None:
    if "error" in answer:
        kind = Rejected if answer["error"] == "Rejected" else NotNow
        raise kind(answer["message"])
