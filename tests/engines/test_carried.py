"""Sessions carried over a stream to the agent, as where its socket cannot be handed on: no less than the others can."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from snakepit.engines.base import Session
from snakepit.engines.inside import Carried
from snakepit.engines.local import SocketWay
from snakepit.errors import Rejected, Unreachable
from tests.conftest import pick_free_port
from tests.engines.bench import Room, eventually, process, room, shell
from tests.engines.bench import run as run_all
from tests.engines.visiting import Visit, shell_inside
from tests.forwarding import SERVER
from tests.processes import alive

pytestmark = pytest.mark.system
NUMBER = process(1)
OWN = os.getpid()


class ByStream(SocketWay):
    """The way of this machine, that hands nothing on."""

    async def session(self, ask: dict[str, Any]) -> Session:
        return await Carried.open(await self._connect(), ask)


@contextlib.asynccontextmanager
async def inside(script: str = "sleep 1000") -> AsyncIterator[Room]:
    async with room() as found:
        found.engine._way.__class__ = ByStream
        await found.start(shell(NUMBER, f"echo ready; {script}"))
        await found.watcher.text(NUMBER, "ready")
        yield found


def test_streams_end_of_input_and_the_code_come_through() -> None:
    async def check() -> None:
        async with inside() as found:
            script = "cat; echo complaint >&2; exit 7"
            assert await shell_inside(found.engine, NUMBER, script, stdin=b"spoken") == (7, "spoken", "complaint\n")

    run_all(check())


def test_floods_go_both_ways() -> None:
    async def check() -> None:
        async with inside() as found:
            visit = await Visit.begin(found.engine, NUMBER, "/bin/cat")
            block = os.urandom(1 << 20)

            async def feed() -> None:
                for _ in range(16):
                    await visit.send(block)
                await visit.send(b"")

            feeding = asyncio.create_task(feed())
            while await visit.hear():
                pass
            await feeding
            visit.end.close()
            assert (visit.code, bytes(visit.said[1])) == (0, block * 16)

    run_all(check())


def test_it_lasts_from_its_opening_until_it_is_over() -> None:
    """Whoever waits for its end may begin before its outer end is there."""

    async def check() -> None:
        async with inside() as found:
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", "echo in; read word")
            await visit.until(b"in\n")
            waiting = asyncio.create_task(visit.session.ended())
            await visit.send(b"go\n")
            assert not waiting.done()
            assert (await visit.finish())[0] == 0
            await asyncio.wait_for(waiting, 30)
            session = await found.engine.connect(NUMBER, 1, spare=True)
            waiting = asyncio.create_task(session.ended())
            await asyncio.wait({waiting}, timeout=0)
            assert not waiting.done()
            session.close()
            await asyncio.wait_for(waiting, 30)
            ours, theirs = socket.socketpair()
            with ours, pytest.raises(Unreachable):
                await session.attach(theirs)

    run_all(check())


@pytest.mark.parametrize("leaver", ["service", "caller"])
def test_whoever_lets_go_hangs_up(leaver: str) -> None:
    async def check() -> None:
        async with inside() as found:
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", f"echo in; sleep 6789.{OWN}; true")
            await visit.until(b"in\n")
            if leaver == "service":
                visit.session.close()
            else:
                visit.end.close()

            async def gone() -> bool:
                return not alive(f"sleep\x006789.{OWN}\0")

            await eventually(gone, "the command is gone")
            await asyncio.wait_for(visit.session.ended(), 30)
            visit.end.close()

    run_all(check())


def test_a_connection_reaches_a_port_and_each_direction_ends_on_its_own() -> None:
    port = pick_free_port()

    async def check() -> None:
        async with inside(f"exec python3 -c '{SERVER}' -- {port}") as found:
            await found.watcher.text(NUMBER, f"listening {port}")
            session = await found.engine.connect(NUMBER, port)
            ours, theirs = socket.socketpair()
            await session.attach(theirs)
            reader, writer = await asyncio.open_connection(sock=ours)
            writer.write(b"echo\n" + b"x" * 1_000_000)
            writer.write_eof()
            assert await reader.read() == b"x" * 1_000_000
            writer.close()
            await asyncio.wait_for(session.ended(), 30)
            with pytest.raises(Rejected, match="nobody of this job listens"):
                await found.engine.connect(NUMBER, pick_free_port())
            with pytest.raises(Rejected, match="Worker not active"):
                await shell_inside(found.engine, process(2), "true")

    run_all(check())
