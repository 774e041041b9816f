"""The caller's side of a session inside a process, for tests: frames in and out over a socket pair."""

import asyncio
import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Self

from snakepit.core.job import ProcessId
from snakepit.engines.base import Command, Engine, Session
from tests.engines.bench import LONG_S

HEAD = struct.Struct("!BI")


@dataclass
class Visit:
    """A command that runs; what it said so far, and its code once it ended."""

    session: Session
    end: socket.socket
    said: dict[int, bytearray] = field(default_factory=lambda: {1: bytearray(), 2: bytearray()})
    code: int | None = None
    _heard: bytearray = field(default_factory=bytearray)

    @classmethod
    async def begin(cls, engine: Engine, id: ProcessId, *argv: str, **more: Any) -> Self:
        session = await engine.exec(id, Command(argv, **more))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        await session.attach(theirs)
        return cls(session, ours)

    async def send(self, data: bytes, channel: int = 1) -> None:
        await asyncio.get_running_loop().sock_sendall(self.end, HEAD.pack(channel, len(data)) + data)

    async def control(self, **word: Any) -> None:
        await self.send(json.dumps(word).encode(), 0)

    async def hear(self) -> bool:
        """Whether there is more to come."""
        data = await asyncio.get_running_loop().sock_recv(self.end, 1 << 18)
        self._heard += data
        while len(self._heard) >= HEAD.size:
            channel, length = HEAD.unpack_from(self._heard)
            if len(self._heard) < HEAD.size + length:
                break
            content = bytes(self._heard[HEAD.size : HEAD.size + length])
            del self._heard[: HEAD.size + length]
            if channel == 0:
                self.code = json.loads(content)["exit"]
            else:
                self.said[channel] += content
        return bool(data)

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(LONG_S):
            while text not in self.said[1]:
                assert await self.hear(), f"it ended before it said {text!r}: {self.said}"

    async def finish(self) -> tuple[int | None, str, str]:
        async with asyncio.timeout(LONG_S):
            while await self.hear():
                pass
            self.end.close()
            await self.session.ended()
        return self.code, self.said[1].decode(errors="replace"), self.said[2].decode(errors="replace")


async def run_inside(
    engine: Engine, id: ProcessId, *argv: str, stdin: bytes = b"", **more: Any
) -> tuple[int | None, str, str]:
    """Code, stdout and stderr of a command that reads `stdin`."""
    visit = await Visit.begin(engine, id, *argv, **more)
    if stdin:
        await visit.send(stdin)
    await visit.send(b"")
    return await visit.finish()


async def shell_inside(engine: Engine, id: ProcessId, script: str, **more: Any) -> tuple[int | None, str, str]:
    return await run_inside(engine, id, "/bin/bash", "-c", script, **more)
