"""The pipes that are open: each is a socket, a program and the right it stands on.

Whenever rights change, and now and then, every right is looked at again; what it no longer allows ends at once. A pipe
in use keeps its token alive, as requests do. Pipes end with the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import struct
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from snakepit.core.access import Person
from snakepit.errors import Forbidden, SnakepitError, TooMany, Unavailable
from snakepit.service.auth import Sessions
from snakepit.service.pipes import programs
from snakepit.service.pipes.entity import Place
from snakepit.service.pipes.programs import Program
from snakepit.service.pipes.upgrade import Handover

log = logging.getLogger("snakepit.pipes")

SWEEP_S = 30.0
MOST_OF_A_USER = 100
MOST = 1000
KEPT_WORDS_BYTES = 4096
FAREWELL_S = 2.0
Right = Callable[[Person], Awaitable[Place]]


@dataclass(slots=True, eq=False)
class Pipe:
    """`key` is its token's hash; `right` says, for a person, what place the pipe may have now."""

    user: str
    key: bytes
    program: Program
    right: Right
    socket: socket.socket | None = None
    process: Process | None = None
    ended_for: str = ""
    said: bytearray = field(default_factory=bytearray)

    def end(self, reason: str) -> None:
        """At once, whatever it is doing. Twice is as good as once."""
        self.ended_for = self.ended_for or reason
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        if self.process is not None and self.process.returncode is None:
            # The group, not the process alone: bubblewrap's second process may not be under its wing yet.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def idle_s(self) -> float:
        """Since the last byte in either direction, by the kernel's own notes: we do not see the bytes."""
        if self.socket is None:
            return 0.0
        with contextlib.suppress(OSError, struct.error):
            notes = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            sent_ms, _, received_ms = struct.unpack_from("=3I", notes, 44)
            return float(min(sent_ms, received_ms)) / 1000
        return 0.0


class Pipes:
    def __init__(self, sessions: Sessions, root: Path) -> None:
        self._sessions, self._root = sessions, root.absolute()
        self._open: set[Pipe] = set()
        self._watchers: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, handover: Handover, user: str, key: bytes, program: Program, right: Right) -> None:
        """Gives the connection to the program. What is wrong before the 101 is raised; after it, the pipe ends."""
        if self._closed:
            raise Unavailable("The service is being stopped; ask again in a moment")
        if sum(pipe.user == user for pipe in self._open) >= MOST_OF_A_USER:
            raise TooMany(f"Too many pipes of yours are open ({MOST_OF_A_USER} at most)")
        if len(self._open) >= _most():
            raise TooMany(f"Too many pipes are open ({_most()} at most)")
        pipe = Pipe(user, key, program, right)
        self._open.add(pipe)  # from here on a revocation finds it
        try:
            command = await asyncio.to_thread(programs.command, program, self._root)
            # Asked once more: what was revoked after the caller's look, but before the line above, found no pipe.
            await self._stands(pipe)
            pipe.socket = await handover.take()
            await self._start(pipe, command)
        except BaseException:
            self._forget(pipe)
            raise

    async def review(self) -> None:
        """After any change of tokens or rights: whatever stands on nothing any more ends now."""
        for pipe in tuple(self._open):
            await self._look_at(pipe)

    async def sweep(self) -> None:
        """Renews the tokens of pipes in use; ends what stands idle, or lost its right by a way we were not told of."""
        for pipe in tuple(self._open):
            idle_s = pipe.idle_s()
            if pipe.program.idle_s is not None and idle_s > pipe.program.idle_s:
                pipe.end("nothing passed for too long")
            else:
                await self._look_at(pipe, in_use=idle_s < 2 * SWEEP_S)

    def close(self) -> None:
        """All of them, at once."""
        self._closed = True
        for pipe in tuple(self._open):
            pipe.end("the service stops")
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def ended(self) -> None:
        """Once nothing of them is left, or after a short while."""
        tasks = [*self._watchers, *([self._sweeper] if self._sweeper is not None else [])]
        if tasks:
            await asyncio.wait(tasks, timeout=FAREWELL_S)

    async def _start(self, pipe: Pipe, command: list[str]) -> None:
        assert pipe.socket is not None
        handle = pipe.socket.fileno()
        # On this very thread: bubblewrap dies with the thread that started it.
        pipe.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=handle,
            stdout=handle,
            stderr=PIPE,
            env=programs.ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
        watcher = asyncio.create_task(self._watch(pipe, pipe.process))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        if pipe.ended_for or self._closed:  # while it was being started
            pipe.end(pipe.ended_for or "the service stops")
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._sweep_on())
        log.debug("pipe %s of %s opened", pipe.program.name, pipe.user)

    async def _watch(self, pipe: Pipe, process: Process) -> None:
        try:
            assert process.stderr is not None
            while words := await process.stderr.read(KEPT_WORDS_BYTES):
                pipe.said += words[: KEPT_WORDS_BYTES - len(pipe.said)]
            code = await process.wait()
            if pipe.socket is not None and not pipe.ended_for:
                await _farewell(pipe.socket)
        finally:
            told = pipe.ended_for
            pipe.end("it is over")
            self._forget(pipe)
        text = pipe.said.decode("utf-8", "replace").encode("unicode_escape").decode().replace("\\n", " / ").strip(" /")
        level = logging.WARNING if pipe.said.startswith(b"bwrap:") and not told else logging.DEBUG
        log.log(level, "pipe %s of %s: %s (code %d) %s", pipe.program.name, pipe.user, pipe.ended_for, code, text)

    def _forget(self, pipe: Pipe) -> None:
        self._open.discard(pipe)
        if pipe.socket is not None:
            pipe.socket.close()

    async def _sweep_on(self) -> None:
        while self._open:
            await asyncio.sleep(SWEEP_S)
            await self.sweep()

    async def _look_at(self, pipe: Pipe, in_use: bool = False) -> None:
        try:
            await self._stands(pipe, in_use)
        except SnakepitError as problem:
            pipe.end(problem.message)
        except Exception:  # a store in trouble: what cannot be checked does not go on
            log.exception("the right of a pipe could not be checked")
            pipe.end("its right could not be checked")

    async def _stands(self, pipe: Pipe, in_use: bool = False) -> None:
        """Raises what its owner would hear if he asked for it now."""
        session = await (self._sessions.use(pipe.key) if in_use else self._sessions.look(pipe.key))
        if await pipe.right(session.person) != pipe.program.place:
            raise Forbidden("The right to this pipe has changed")


def _most() -> int:
    """Each takes up to four of the service's open files; the other half is for everybody else."""
    return min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8)


async def _farewell(own: socket.socket) -> None:
    """The program is gone. What the client still sends is read away for a moment: a close with bytes unread would make
    the kernel throw away the program's last words, too."""
    with contextlib.suppress(OSError, TimeoutError):
        own.shutdown(socket.SHUT_WR)
        own.setblocking(False)
        async with asyncio.timeout(FAREWELL_S):
            while await asyncio.get_running_loop().sock_recv(own, 1 << 16):
                pass
