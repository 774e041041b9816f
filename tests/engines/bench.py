"""The bench for tests of engines: a node that runs as an unprivileged user, launches in one line, a watcher that keeps
what it saw and acknowledges it.

As root (the usual case in CI) the agent runs as the user `snakepit-test`; its directories lie where that one can go.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from snakepit.core.job import AttemptId, Ended, ProcessId
from snakepit.engines.base import Created, Engine, Event, Exited, Go, Launch, Offline, Online, Output, Usage
from snakepit.engines.local import Account, LocalEngine, LocalOptions
from tests.waiting import await_until

T = TypeVar("T")
LONG_S = 150  # what takes seconds here may take a minute on a small machine that is busy
USER = "snakepit-test"
AGENT_PYTHON = os.environ.get("SNAKEPIT_TEST_AGENT_PYTHON", "")  # an old one, to see that the agent runs there too
CLUSTER = f"test{os.getpid()}"  # two runs of the tests on one machine do not meet


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 240))


def account() -> Account | None:
    """Whom the agent runs as; nobody else where we are unprivileged ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", "--system", "--no-create-home", USER], check=False, capture_output=True)
        entry = pwd.getpwnam(USER)
    return Account(entry.pw_uid, entry.pw_gid)


def process(job: int, index: int = 0, attempt: int = 0) -> ProcessId:
    return ProcessId(AttemptId(job, 0, attempt), index)


def launch(id: ProcessId, *argv: str, **more: Any) -> Launch:
    more = {"cwd": "/", "mounts": (), "user": "anna", **more}
    return Launch(id, id.name("n0"), argv, **more)


def shell(id: ProcessId, script: str, **more: Any) -> Launch:
    return launch(id, "/bin/bash", "-c", script, **more)


async def eventually(fact: Callable[[], Awaitable[bool]], message: str) -> None:
    await await_until(cast("Callable[[], bool]", fact), message=message)


@dataclass
class Watcher:
    """What one head saw: the log it put together byte by byte, and the ends."""

    engine: Engine
    acking: bool = True
    events: list[Event] = field(default_factory=list)
    logs: dict[ProcessId, bytearray] = field(default_factory=dict)
    ends: dict[ProcessId, Ended] = field(default_factory=dict)
    log_bytes: dict[ProcessId, int] = field(default_factory=dict)
    dropped: dict[ProcessId, int] = field(default_factory=dict)
    keep_events: bool = True

    async def follow(self) -> None:
        async for event in self.engine.watch({id: len(log) for id, log in self.logs.items()}):
            if self.keep_events:
                self.events.append(event)
            await self._take(event)

    async def _take(self, event: Event) -> None:
        match event:
            case Output(id, offset, data, _, dropped):
                log = self.logs.setdefault(id, bytearray())
                assert offset <= len(log), "a gap in the log"
                log += data[len(log) - offset :]
                self.dropped[id] = max(dropped, self.dropped.get(id, 0))
                if self.acking:
                    await self.engine.ack_output(id, len(log))
            case Exited(id, ended, log_bytes):
                assert log_bytes == len(self.logs.get(id, b"")), "the end came before the last byte"
                assert self.ends.get(id, ended) == ended, "two different ends"
                self.ends[id], self.log_bytes[id] = ended, log_bytes
            case Online() | Offline() | Usage():
                pass

    async def end(self, id: ProcessId, timeout_s: float = LONG_S) -> Ended:
        await await_until(
            lambda: id in self.ends, timeout_s, f"the end of {id}; log {bytes(self.logs.get(id, b''))[-500:]!r}"
        )
        return self.ends[id]

    async def text(self, id: ProcessId, wanted: str, timeout_s: float = LONG_S) -> str:
        await await_until(
            lambda: wanted.encode() in self.logs.get(id, b""), timeout_s, f"{wanted!r} in the log of {id}"
        )
        return self.log(id)

    def log(self, id: ProcessId) -> str:
        return self.logs.get(id, bytearray()).decode(errors="replace")


@dataclass
class Bench:
    """A state directory of its own, and engines to it."""

    top: Path
    options: LocalOptions
    engines: list[LocalEngine] = field(default_factory=list)

    @classmethod
    def make(cls, **options: Any) -> Self:
        top = Path(tempfile.mkdtemp(prefix="snakepit-engine-"))
        bench = cls(top, LocalOptions(run_as=account(), python=AGENT_PYTHON, **options))
        bench.give(top)
        return bench

    def give(self, path: Path) -> Path:
        """Makes a directory (or file) the agent's own."""
        path.chmod(0o755)
        if self.options.run_as is not None:
            os.chown(path, self.options.run_as.uid, self.options.run_as.gid)
        return path

    def directory(self, name: str) -> Path:
        path = self.top / name
        path.mkdir(parents=True, exist_ok=True)
        return self.give(path)

    @property
    def state(self) -> Path:
        return self.top / "state"

    def engine(self, epoch: int = 1) -> LocalEngine:
        self.engines.append(LocalEngine("n0", self.state, CLUSTER, epoch, self.options))
        return self.engines[-1]

    def agent_pid(self) -> int:
        return int((self.state / "lock").read_text())

    def kill_agent(self) -> None:
        with contextlib.suppress(ProcessLookupError, ValueError, FileNotFoundError):
            os.kill(self.agent_pid(), signal.SIGKILL)

    async def take_down(self) -> None:
        epoch = int((self.state / "epoch").read_text()) if (self.state / "epoch").exists() else 1
        engine = self.engine(epoch)
        if self.state.exists():
            await engine.clean(sorted({seen.id.attempt for seen in await engine.look()}))
        for one in self.engines:
            await one.close()
        self.kill_agent()
        for pid in marked(CLUSTER + "/"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.top, ignore_errors=True)


def marked(prefix: str) -> list[int]:
    """Processes of this test run that a test made unknown to its agent."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdigit()
                and f"\0SNAKEPIT_MARK={prefix}".encode() in b"\0" + (entry / "environ").read_bytes()
            ):
                found.append(int(entry.name))
    return found


@dataclass
class Room:
    """A bench with one engine and one watcher on it, while a test runs."""

    bench: Bench
    engine: LocalEngine
    watcher: Watcher

    async def start(self, *launches: Launch, **go: Any) -> list[Created]:
        made = list(await self.engine.create(launches))
        await self.engine.go([Go(one.id, **go) for one in launches])
        return made

    async def run(self, one: Launch, **go: Any) -> tuple[Ended, str]:
        """Start it, see its end; how it ended and what it said."""
        await self.start(one, **go)
        ended = await self.watcher.end(one.id)
        return ended, self.watcher.log(one.id)


@contextlib.asynccontextmanager
async def room(**options: Any) -> AsyncIterator[Room]:
    async with furnished(Bench.make(**options)) as made:
        yield made


@contextlib.asynccontextmanager
async def furnished(bench: Bench) -> AsyncIterator[Room]:
    engine = bench.engine()
    watcher = Watcher(engine)
    following = asyncio.create_task(watcher.follow())
    try:
        await engine.probe()
        yield Room(bench, engine, watcher)
    finally:
        await bench.take_down()
        await asyncio.wait_for(following, 60)
