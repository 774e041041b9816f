"""`local:`: the agent of this machine, reached through a unix socket in its state directory, started where none is.

Nothing of a user ever runs as root: an engine in a root process needs the account (`run_as`) that the agent shall have.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from snakepit.core.domains import Mount
from snakepit.engines.agent import gpus
from snakepit.engines.agent_client import AgentEngine, Streams
from snakepit.engines.agent_wire import Body
from snakepit.engines.base import Inventory, Session
from snakepit.engines.inside import Handed
from snakepit.engines.package import agent_package
from snakepit.errors import ConfigError, Rejected, Unreachable

START_TIMEOUT_S = 30
DIAL_TIMEOUT_S = 20
BUFFER = 1 << 20
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
AS_ROOT = "jobs never run as root: start the service as an ordinary user, or as root with a data root that one owns"


@dataclass(frozen=True, slots=True)
class Account:
    """Whom the agent runs as, where the engine itself runs as root."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class LocalOptions:
    declared: str = ""  # "2:GeForce GTX 1070/8G": instead of detected cards
    isolation: str = "auto"  # auto and sandbox confine, or refuse; none is an admin's choice
    mounts: tuple[Mount, ...] = ()  # the node's own, seen by every process
    port_range: tuple[int, int] = (20000, 29999)
    python: str = ""  # empty: `reachable_python`
    hidden: tuple[str, ...] = ()  # directories no process may see (the data root)
    run_as: Account | None = None
    reserve_cpus: int = 0  # what the head keeps for itself: offered to no job
    reserve_mem_bytes: int = 0

    def __post_init__(self) -> None:
        if self.isolation not in ("auto", "sandbox", "none"):
            raise ConfigError(f"isolation is auto, sandbox or none, not {self.isolation!r}")
        try:
            gpus.declared(self.declared)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def body(self) -> Body:
        return {
            "declared": self.declared,
            "isolation": self.isolation,
            "mounts": [{"source": m.source, "path": m.path, "writable": m.writable} for m in self.mounts],
            "ports": list(self.port_range),
            "hidden": list(self.hidden),
        }


class LocalEngine(AgentEngine):
    """The Engine of this machine."""

    def __init__(self, node: str, state_dir: Path, cluster: str, epoch: int, options: LocalOptions) -> None:
        self.node, self._local = node, options
        super().__init__(SocketWay(state_dir, cluster, options), cluster, epoch, options.body())

    async def probe(self) -> Inventory:
        for mount in self._local.mounts:
            if not await asyncio.to_thread(os.access, mount.source, os.F_OK):
                raise Rejected(f"mounts: {mount.source} is not there, or its directory is closed to the service's user")
        found = await super().probe()
        kept = self._local
        cpus, mem_bytes = found.cpus - kept.reserve_cpus, found.mem_bytes - kept.reserve_mem_bytes
        return replace(found, cpus=max(1, cpus), mem_bytes=max(0, mem_bytes))


class SocketWay:
    """To the agent through its socket; where nobody answers, it is started first."""

    def __init__(self, state_dir: Path, cluster: str, options: LocalOptions) -> None:
        self._state_dir, self._cluster, self._options = state_dir, cluster, options
        self.version = agent_package()[1]

    async def open(self) -> Streams:
        if os.geteuid() == 0 and (self._options.run_as is None or self._options.run_as.uid == 0):
            raise Rejected(AS_ROOT)
        try:
            return await self._connect()
        except OSError:
            await self._start()
        try:
            return await self._connect()
        except OSError as error:
            raise Unreachable(f"the agent does not answer: {error}") from None

    async def session(self, ask: Body) -> Session:
        try:
            line = await self._dial()
        except OSError as error:
            raise Unreachable(f"the agent does not answer: {error}") from None
        return await Handed.open(line, ask)

    async def _connect(self) -> Streams:
        return await asyncio.open_unix_connection(sock=await self._dial(), limit=BUFFER)

    async def _dial(self) -> socket.socket:
        # By way of a handle, as the path may be longer than the 107 bytes a socket's name can have.
        directory = os.open(self._state_dir, os.O_PATH | os.O_DIRECTORY)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.setblocking(False)
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                # Many may knock at once: a unix socket whose queue is full says so, and forgets us.
                while line.connect_ex(f"/proc/self/fd/{directory}/socket") == errno.EAGAIN:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            line.getpeername()
        except BaseException:
            line.close()
            raise
        finally:
            os.close(directory)
        return line

    async def _start(self) -> None:
        try:
            package = self._lay_out()
            python = self._options.python or await asyncio.to_thread(reachable_python, self._options.run_as)
            child = await asyncio.create_subprocess_exec(
                python, "-I", "-S", str(package), str(self._state_dir), self._cluster, self.version,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                cwd="/", env={"PATH": PATH, "HOME": str(self._state_dir), "LANG": "C.UTF-8"},
                **_identity(self._options.run_as),
            )  # fmt: skip
            async with asyncio.timeout(START_TIMEOUT_S):
                said, _ = await child.communicate()
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"the agent cannot be started: {error or 'it took too long'}") from None
        if child.returncode != 0:
            raise Unreachable(f"the agent cannot be started: {said.decode(errors='replace').strip()[-500:]}")

    def _lay_out(self) -> Path:
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        target, beside = self._state_dir / "agent.pyz", self._state_dir / "agent.pyz.new"
        if target.exists() and target.read_bytes() == agent_package()[0]:
            return target
        beside.write_bytes(agent_package()[0])
        if self._options.run_as is not None and os.geteuid() == 0:
            for path in (self._state_dir, beside):
                os.chown(path, self._options.run_as.uid, self._options.run_as.gid)
        beside.rename(target)
        return target


def reachable_python(run_as: Account | None = None) -> str:
    """A Python that the agent's account can really start: one in root's private home is of no use to it."""
    candidates: Sequence[str] = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3")
    for python in candidates:
        try:
            command = [python, "-I", "-S", "-c", "import json, selectors"]
            done = subprocess.run(command, cwd="/", env={}, capture_output=True, timeout=20, **_identity(run_as))
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return python
    raise Unreachable(f"no Python that this account can start: tried {', '.join(candidates)}")


def _identity(run_as: Account | None) -> Body:
    if run_as is None or os.geteuid() != 0:
        return {}
    return {"user": run_as.uid, "group": run_as.gid, "extra_groups": []}
