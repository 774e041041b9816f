"""Running one program of preparation, confined: it sees the system's programs, the directories it was given and
nothing else, with an environment made from scratch. Where there is no bubblewrap the same program runs plainly.

Directories keep their path inside, so that argv is the same with and without confinement.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from snakepit.core.confine import Bind, World, bubblewrap
from snakepit.errors import SnakepitError

PATH = "/usr/local/bin:/usr/bin:/bin"
NAMES = ("/etc/hosts", "/etc/ssh/ssh_known_hosts")
LINES_SAID = 1000  # a server may send any number of "remote:" lines
LINE_CHARS = 2000
KEPT_BYTES = 1 << 20
LAST_LINES = 12
FAREWELL_S = 5.0
HALT_TRIES = 200


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    out: str
    last: tuple[str, ...]  # the last lines of its errors, scrubbed

    @property
    def words(self) -> str:
        """What the program said, on one line."""
        return re.sub(r"\s+", " ", " ".join(self.last)).strip() or f"it exited with code {self.code}"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where the programs of one preparation run; `scrub` removes secrets from every line before anyone sees it."""

    root: Path  # the data root: hidden, but for what is handed in
    home: Path
    confined: bool
    say: Callable[[str], None]
    scrub: Callable[[str], str] = str
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where programs are looked for."""
        return self.env.get("PATH", PATH)

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        writable: Sequence[Path] = (),
        readable: Sequence[Path] = (),
        network: bool = False,
        stdin: bytes | BinaryIO = b"",
        env: Mapping[str, str] | None = None,
        quiet: bool = False,
    ) -> Finished:
        """Runs to the end; a cancel kills the program and all that it started."""
        variables = {"PATH": PATH, "HOME": str(self.home), "TMPDIR": str(self.home), "LC_ALL": "C.UTF-8"}
        variables |= {**self.env, **(env or {})}
        if self.confined:
            argv = bubblewrap(world(self, readable, writable, cwd, network), argv)
        process = await _spawned(argv, cwd, variables, stdin)
        say = (lambda _line: None) if quiet else self.say
        return await _attended(process, stdin if isinstance(stdin, bytes) else None, _Ear(say, self.scrub))


def world(box: Sandbox, readable: Sequence[Path], writable: Sequence[Path], cwd: Path, network: bool) -> World:
    """What the program sees. Own pid namespace, dying with its parent: who kills the outer process kills all."""
    return World(
        binds=(
            *(Bind(path, path, optional=True) for path in NAMES),
            *(Bind(str(path), str(path)) for path in readable),
            *(Bind(str(path), str(path), writable=True) for path in (*writable, box.home)),
        ),
        hidden=(str(box.root),),
        cwd=str(cwd),
        network=network,
        die_with_parent=True,
    )


async def _spawned(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: bytes | BinaryIO
) -> asyncio.subprocess.Process:
    """Starts it, or not: a cancel in between would kill bubblewrap's first process alone, and its second, which waits
    for a word of the first, would stay forever."""
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=env,
            stdin=asyncio.subprocess.PIPE if isinstance(stdin, bytes) else stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        await _end(await spawning)
        raise
    except FileNotFoundError as missing:
        raise SnakepitError(f"{missing.filename} is not installed on the head") from None


class _Ear:
    """Hears a program's errors: says the lines, remembers the last."""

    def __init__(self, say: Callable[[str], None], scrub: Callable[[str], str]) -> None:
        self.say, self.scrub = say, scrub
        self.last: list[str] = []
        self.count = 0
        self.rest = b""

    def hear(self, chunk: bytes) -> None:
        *lines, self.rest = re.split(rb"[\r\n]+", self.rest + chunk)
        if len(self.rest) > KEPT_BYTES:  # nobody's line is that long; keep memory flat
            lines, self.rest = [*lines, self.rest], b""
        for line in lines:
            self._line(line)

    def close(self) -> None:
        self._line(self.rest)
        self.rest = b""

    def _line(self, raw: bytes) -> None:
        # Scrubbed before it is cut, or half a secret could survive at the cut.
        text = self.scrub(raw.decode("utf-8", "replace").rstrip())[:LINE_CHARS]
        if not text:
            return
        self.last = [*self.last[-LAST_LINES + 1 :], text]
        self.count += 1
        if self.count <= LINES_SAID:
            self.say(text)
        elif self.count == LINES_SAID + 1:
            self.say("… (more lines left out)")


async def _attended(process: asyncio.subprocess.Process, stdin: bytes | None, ear: _Ear) -> Finished:
    assert process.stdout is not None
    assert process.stderr is not None
    kept = bytearray()

    def keep(chunk: bytes) -> None:
        kept.extend(chunk[: KEPT_BYTES - len(kept)])

    talk: list[Awaitable[None]] = [_drain(process.stdout, keep), _drain(process.stderr, ear.hear)]
    if stdin is not None:
        talk.append(_feed(process, stdin))
    pipes = asyncio.gather(*talk)
    try:
        await asyncio.shield(pipes)
        code = await process.wait()
    except BaseException:
        await _end(process, pipes)
        raise
    ear.close()
    return Finished(code, kept.decode("utf-8", "replace"), tuple(ear.last))


async def _drain(stream: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
    while chunk := await stream.read(1 << 16):
        take(chunk)


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a program may end without reading it all
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _end(process: asyncio.subprocess.Process, pipes: asyncio.Future[list[None]] | None = None) -> None:
    """Kills it all and waits for the end of its pipes: only then nobody writes into our directories any more."""
    if process.returncode is None:
        await _kill_family(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):  # asyncio waits for the pipes too, whoever holds them
        async with asyncio.timeout(FAREWELL_S):
            await process.wait()
    if pipes is not None:
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(FAREWELL_S):
                await pipes


async def _kill_family(pid: int) -> None:
    """A process and all below it. Bubblewrap's second process has a session of its own and, early on, waits for a word
    of the first: so that none is born or left meanwhile, each is halted before its children are looked for."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, signal.SIGSTOP)
        for _ in range(HALT_TRIES):
            if _halted(pid):
                break
            await asyncio.sleep(0.001)
        for child in _children(pid):
            await _kill_family(child)
        os.kill(pid, signal.SIGKILL)


def _halted(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TtZX"


def _children(pid: int) -> list[int]:
    found = (path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for children in found for child in children]
