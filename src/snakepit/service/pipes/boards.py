"""TensorBoards on the head, for jobs that have none: confined, seeing the jobs' directories and nothing else.

One runs for each token, set of jobs and directory. It has no network; connections of those who are let in are handed to
it. It stands on its token and on the right to read the jobs, as any pipe, and ends when nobody is connected.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from snakepit.core.confine import Bind, World, showing
from snakepit.engines.agent import handing
from snakepit.errors import BadRequest, Unavailable
from snakepit.service.pipes.entity import Place
from snakepit.service.pipes.programs import DATA, Program, world_etc
from snakepit.service.pipes.registry import Pipes, Right
from snakepit.service.pipes.upgrade import Handover

HOST = Path(__file__).with_name("board_host.py")
INSIDE = "/run/board.py"
MOST_JOBS = 50


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose (user and the token's hash), of which jobs (number and directory), below which directory of theirs."""

    user: str
    key: bytes
    jobs: tuple[tuple[int, Path], ...]
    directory: str


class Boards:
    def __init__(self, pipes: Pipes, root: Path) -> None:
        self._pipes, self._root = pipes, root
        self._lines: dict[Wanted, socket.socket] = {}
        self._starting = asyncio.Lock()

    async def open(self, handover: Handover, wanted: Wanted, right: Right) -> None:
        """Hands the connection to the TensorBoard that is wanted, started if need be."""
        async with self._starting:
            self._forget_the_dead()
            if wanted not in self._lines:
                self._lines[wanted] = await self._start(wanted, right)
            line = self._lines[wanted]
        end = await handover.take()
        try:
            handing.send(line, b"!", [end.fileno()])
        except OSError:
            pass  # it went just now: so does the connection, and the next one finds another
        finally:
            end.close()

    async def _start(self, wanted: Wanted, right: Right) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            program = await asyncio.to_thread(_program, wanted, self._root.absolute())
            await self._pipes.open(_Given(theirs), wanted.user, wanted.key, program, right)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return ours

    def _forget_the_dead(self) -> None:
        for wanted, line in tuple(self._lines.items()):
            try:
                ended = line.recv(1) == b""
            except BlockingIOError:
                ended = False
            except OSError:
                ended = True
            if ended:
                line.close()
                del self._lines[wanted]


class _Given(Handover):
    """A socket that is there already."""

    def __init__(self, given: socket.socket) -> None:
        self._given = given

    async def take(self) -> socket.socket:
        return self._given


def place_of(wanted: Wanted) -> Place:
    return Place(wanted.jobs[0][1], False)


def check_directory(directory: str, several: bool) -> None:
    parts = directory.split("/")
    if directory.startswith("/") or ".." in parts or "\0" in directory or len(directory) > 1000:
        raise BadRequest("The directory counts from that of the job: keep/logs, src/runs, runs")
    if several and any(char in directory for char in ",:"):
        raise BadRequest("With several jobs the directory may not contain a comma or a colon")


def _program(wanted: Wanted, root: Path) -> Program:
    if importlib.util.find_spec("tensorboard") is None:
        raise Unavailable(
            "TensorBoard is not installed on the head (pip install tensorboard, where snakepit is installed), "
            "and the job has none or is not running"
        )
    single = len(wanted.jobs) == 1
    shown = [Bind(str(path), DATA if single else f"{DATA}/{number}") for number, path in wanted.jobs]
    world = World(
        binds=(*_python(), Bind(str(HOST), INSIDE), *shown),
        hidden=(str(root),),
        cwd="/",
        hostname="pit",
        etc=_etc(root),
        die_with_parent=True,
    )
    jobs = [str(number) for number, _ in wanted.jobs]
    argv = (sys.executable, "-I", INSIDE, wanted.directory, *jobs)
    return Program("tensorboard", argv, place_of(wanted), idle_s=None, world=world)


def _etc(root: Path) -> str:
    """That of all pipes, and in it the one name that TensorBoard looks up."""
    etc = root / "pipes" / "etc-board"
    if not (etc / "hosts").exists():
        shutil.copytree(world_etc(root), etc, dirs_exist_ok=True)
        (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n")
    return str(etc)


def _python() -> list[Bind]:
    """The interpreter and its libraries, where they lie outside the system's directories."""
    paths = {os.path.realpath(sys.base_prefix), sys.prefix, str(Path(sys.executable).parent)}
    spec = importlib.util.find_spec("tensorboard")
    if spec is not None and spec.submodule_search_locations:
        paths.add(str(Path(next(iter(spec.submodule_search_locations))).parent))
    wanted = sorted(path for path in paths if not showing(path) and path != "/")
    return [Bind(path, path) for path in wanted if not any(path.startswith(other + "/") for other in wanted)]
