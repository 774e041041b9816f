"""Processes that end while the node's disk is full: their exit codes are true once there is room again."""

import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from snakepit.core.domains import Mount
from snakepit.core.job import Cause
from tests.engines.bench import CLUSTER, Bench, Room, furnished, marked, process, run, shell
from tests.waiting import await_until

pytestmark = pytest.mark.system

ISOLATIONS = pytest.mark.parametrize("isolation", ["sandbox", "none"])
DISK = "size=80m"


@contextlib.contextmanager
def small_disk(bench: Bench) -> Iterator[None]:
    """The agent's state on a disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a small disk")
    bench.directory("state")
    subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(bench.state)], check=True)
    try:
        bench.give(bench.state)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(bench.state)], check=True)


@contextlib.asynccontextmanager
async def cramped_room(isolation: str) -> AsyncIterator[Room]:
    bench = Bench.make(isolation=isolation)
    with small_disk(bench):
        async with furnished(bench) as made:
            yield made


def fill(directory: Path) -> Path:
    """Until not a byte goes in any more."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * (1 << 12)):
            pass
    left = os.statvfs(directory)
    assert left.f_bfree == 0
    return filler


@ISOLATIONS
@pytest.mark.parametrize("killed", [False, True], ids=["agent runs on", "agent killed"])
def test_an_end_with_words_on_a_full_disk_is_told_truly_once_there_is_room(isolation: str, killed: bool) -> None:
    assert ends_on_a_full_disk(isolation, killed, "seq 100000; ") > 0


@ISOLATIONS
@pytest.mark.parametrize("killed", [False, True], ids=["agent runs on", "agent killed"])
def test_a_silent_end_on_a_full_disk_is_told_truly_once_there_is_room(isolation: str, killed: bool) -> None:
    assert ends_on_a_full_disk(isolation, killed, "") == 0


def ends_on_a_full_disk(isolation: str, killed: bool, words: str) -> int:
    """How much of its output was said to be missing."""

    async def story() -> int:
        async with cramped_room(isolation) as here:
            shared = here.bench.directory("shared")
            seen = "/shared" if isolation == "sandbox" else str(shared)
            mounts = (Mount(str(shared), "/shared", False),) if isolation == "sandbox" else ()
            script = f"echo ready; until [ -e {seen}/go ]; do sleep 0.05; done; {words}exit 7"
            one = shell(process(1), script, mounts=mounts)
            await here.start(one)
            await here.watcher.text(one.id, "ready")
            filler = fill(here.bench.state)
            (shared / "go").touch()
            await await_until(lambda: marked(f"{CLUSTER}/") == [], message="the process ended")
            if killed:
                here.bench.kill_agent()
            filler.unlink()
            ended = await here.watcher.end(one.id)
            assert (ended.cause, ended.code) == (Cause.EXIT, 7)
            assert here.watcher.log(one.id).startswith("ready\n")
            return here.watcher.dropped.get(one.id, 0)

    return run(story())
