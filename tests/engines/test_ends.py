"""How processes end, and what is said of it: TERM and traps, strays, limits, signals."""

import atexit
import os
from pathlib import Path

import pytest

from snakepit.core.job import Cause, ProcessId
from snakepit.engines.agent import procs
from snakepit.engines.agent.limits import base_name
from snakepit.engines.cgroups import prepare_cgroups, remove_cgroups
from tests.engines.bench import CLUSTER, Room, account, process, room, run, shell
from tests.waiting import await_until, wait_until

pytestmark = pytest.mark.system

ISOLATIONS = pytest.mark.parametrize("isolation", ["sandbox", "none"])
# Short sleeps: bash runs a trap when its child ended, and one born just now was not told to.
TRAP = "trap 'echo bye; exit 3' TERM; echo ready; while true; do sleep 0.2; done"


async def stop_when_ready(here: Room, id: ProcessId, grace_s: float) -> None:
    await here.watcher.text(id, "ready")
    await here.engine.stop([id.attempt], grace_s, Cause.STOPPED, "stopped by anna")


@ISOLATIONS
def test_a_term_trap_decides_the_exit_code(isolation: str) -> None:
    async def story() -> None:
        async with room(isolation=isolation) as here:
            one = shell(process(1), TRAP)
            await here.start(one)
            await stop_when_ready(here, one.id, 60)
            ended = await here.watcher.end(one.id)
            assert (ended.cause, ended.code, ended.note) == (Cause.STOPPED, 3, "stopped by anna")
            assert here.watcher.log(one.id).endswith("bye\n")

    run(story())


@ISOLATIONS
def test_who_ignores_term_is_killed_after_the_grace(isolation: str) -> None:
    async def story() -> None:
        async with room(isolation=isolation) as here:
            one = shell(process(1), "trap '' TERM; echo ready; while true; do sleep 100; done")
            await here.start(one)
            await stop_when_ready(here, one.id, 0.3)
            ended = await here.watcher.end(one.id)
            assert (ended.cause, ended.code) == (Cause.STOPPED, 137)
            assert "killed by signal 9 (KILL)" in ended.note

    run(story())


@ISOLATIONS
def test_a_script_that_kills_its_own_group_kills_nothing_of_ours(isolation: str) -> None:
    async def story() -> None:
        async with room(isolation=isolation) as here:
            ended, _ = await here.run(shell(process(1), "echo hi; kill -KILL 0; sleep 100"))
            assert (ended.cause, ended.code, ended.note) == (Cause.SIGNAL, 137, "killed by signal 9 (KILL)")

    run(story())


@ISOLATIONS
def test_a_signal_of_its_own_is_named(isolation: str) -> None:
    async def story() -> None:
        async with room(isolation=isolation) as here:
            ended, _ = await here.run(shell(process(1), "kill -SEGV $$"))
            assert (ended.cause, ended.code, ended.note) == (Cause.SIGNAL, 139, "killed by signal 11 (SEGV)")

    run(story())


@ISOLATIONS
def test_what_a_process_leaves_behind_is_ended_before_its_end_is_told(isolation: str) -> None:
    async def story() -> None:
        async with room(isolation=isolation) as here:
            marker = f"3{os.getpid()}.125"
            script = f"""
                (setsid nohup sleep {marker} > /dev/null 2>&1 &)
                env -i setsid sleep {marker} &
                (trap '' TERM HUP; sleep {marker}; sleep {marker}) &
                sleep 0.1; exit 7
            """
            ended, log = await here.run(shell(process(1), script))
            assert (ended.cause, ended.code) == (Cause.EXIT, 7), log
            assert not running(marker)

    run(story())


def running(argument: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if argument.encode() in words:
                found.append(entry.name)
    return found


def test_a_process_whose_holder_was_killed_is_ended_and_called_lost() -> None:
    async def story() -> None:
        async with room() as here:
            marker = f"4{os.getpid()}.125"
            one = shell(process(1), f"echo ready; sleep {marker}")
            await here.start(one)
            await here.watcher.text(one.id, "ready")
            record = (here.bench.state / "procs" / str(one.id) / "record").read_text()
            holder = int(record.split('"pid": ')[1].split(",")[0])
            os.kill(holder, 9)
            ended = await here.watcher.end(one.id)
            assert (ended.cause, ended.code) == (Cause.LOST, None)
            wait_until(lambda: not running(marker), message="the payload's end")

    run(story())


def test_who_kills_bubblewrap_from_outside_leaves_no_orphan() -> None:
    async def story() -> None:
        async with room() as here:
            marker = f"5{os.getpid()}.125"
            one = shell(process(1), f"echo ready; sleep {marker}")
            await here.start(one)
            await here.watcher.text(one.id, "ready")
            both = {int(pid) for pid in running("--json-status-fd") if pid in running(f"echo ready; sleep {marker}")}
            (outer,) = (pid for pid in both if (seen := procs.stat(pid)) and seen.parent not in both)
            os.kill(outer, 9)
            ended = await here.watcher.end(one.id)
            assert (ended.cause, ended.code) == (Cause.SIGNAL, 137)
            assert not running(marker)

    run(story())


# -- limits by control groups


def groups_of(id: ProcessId) -> list[Path]:
    top = Path("/sys/fs/cgroup")
    return [path for tree in (top, *top.glob("*/")) if (path := tree / base_name(CLUSTER) / str(id)).is_dir()]


def limited() -> tuple[str, ...]:
    who = account()
    if who is None:
        pytest.skip("control groups are prepared as root")
    found = prepare_cgroups(CLUSTER, who.uid, who.gid)
    atexit.register(remove_cgroups, CLUSTER)
    if "mem" not in found:
        pytest.skip("this machine hands out no memory controller")
    return found


def test_more_memory_than_asked_for_is_out_of_memory() -> None:
    limits = limited()

    async def story() -> None:
        async with room() as here:
            assert (await here.engine.probe()).limits == limits
            eater = "head -c 400000000 /dev/zero | tail"
            ended, log = await here.run(shell(process(1), eater + "; exit $?", mem_bytes=64 << 20))
            assert ended.cause == Cause.OUT_OF_MEMORY, (ended, log)
            assert ended.note == "out of memory (limit 64 MiB)"
            ended, _ = await here.run(shell(process(2), "echo small", mem_bytes=64 << 20))
            assert ended.succeeded

    run(story())


def test_groups_are_set_as_asked_and_removed_at_the_end() -> None:
    limited()
    most_pids = int(Path("/proc/sys/kernel/pid_max").read_text())

    async def story() -> None:
        async with room() as here:
            one = shell(process(1), "echo ready; sleep 1000", cpus=1, mem_bytes=128 << 20)
            await here.start(one)
            await here.watcher.text(one.id, "ready")
            groups = groups_of(one.id)
            values = {
                file.name: file.read_text().split()[0]
                for group in groups
                for file in group.iterdir()
                if file.name in ("cpu.cfs_quota_us", "cpu.max", "memory.limit_in_bytes", "memory.max")
            }
            assert set(values.values()) == {"100000", str(128 << 20)}
            tasks = [int((group / "pids.max").read_text()) for group in groups if (group / "pids.max").exists()]
            assert tasks
            assert max(tasks) <= most_pids // 4
            await here.engine.stop([one.id.attempt], 5, Cause.STOPPED, "")
            await here.watcher.end(one.id)
            await await_until(lambda: not any(group.exists() for group in groups), message="the groups' removal")

    run(story())
