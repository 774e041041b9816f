"""kill -9 of the agent at any moment: nothing is lost, nothing runs twice, no end is wrong."""

import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from snakepit.core.domains import Mount
from snakepit.core.job import Cause, ProcessId
from snakepit.engines.agent import holder
from snakepit.engines.agent.procs import boot_id, children
from snakepit.engines.agent_client import Streams
from snakepit.engines.base import Engine, Go, Launch, Offline, Online
from snakepit.engines.local import SocketWay
from snakepit.errors import EngineError, NotNow, Unreachable
from tests.engines.bench import CLUSTER, Bench, Room, Watcher, eventually, launch, marked, process, room, run, shell
from tests.waiting import await_until

pytestmark = pytest.mark.system


@pytest.mark.parametrize("isolation", ["sandbox", "none"])
def test_an_agent_killed_mid_log_loses_no_byte_and_no_exit_code(isolation: str) -> None:
    async def story() -> None:
        async with room(isolation=isolation) as here:
            one = shell(process(1), "for i in {1..20000}; do echo line $i; done; sleep 0.3; echo last; exit 5")
            await here.start(one)
            for count in (100, 5000, 15000):
                await here.watcher.text(one.id, f"line {count}\n")
                here.bench.kill_agent()
            ended = await here.watcher.end(one.id)
            assert (ended.cause, ended.code) == (Cause.EXIT, 5)
            lines = here.watcher.log(one.id).splitlines()
            assert lines == [f"line {i}" for i in range(1, 20001)] + ["last"]

    run(story())


def test_a_process_that_ends_while_there_is_no_agent_is_known_when_it_is_back() -> None:
    async def story() -> None:
        async with room() as here:
            flag = here.bench.directory("shared") / "flag"
            mounts = (Mount(str(flag.parent), "/shared", True),)
            one = shell(process(1), "echo before; touch /shared/flag; sleep 0.2; echo after; exit 9", mounts=mounts)
            await here.start(one)
            await await_until(flag.exists)
            here.bench.kill_agent()
            ended = await here.watcher.end(one.id)
            assert (ended.cause, ended.code) == (Cause.EXIT, 9)
            assert here.watcher.log(one.id) == "before\nafter\n"
            onlines = [event for event in here.watcher.events if isinstance(event, Online)]
            assert len({(event.boot_id, event.state_id) for event in onlines}) == 1
            assert not [event for event in here.watcher.events if isinstance(event, Offline)]

    run(story())


def test_a_time_limit_and_a_stop_go_on_under_the_next_agent() -> None:
    async def story() -> None:
        async with room() as here:
            limited, stubborn = (
                shell(process(1), "sleep 1000"),
                shell(process(2), "trap '' TERM; echo ready; sleep 1000"),
            )
            await here.start(limited, time_limit_s=2)
            await here.start(stubborn)
            await here.watcher.text(stubborn.id, "ready")
            await here.engine.stop([stubborn.id.attempt], 1, Cause.STOPPED, "by anna")
            here.bench.kill_agent()
            ended = await here.watcher.end(stubborn.id)
            assert (ended.cause, ended.code) == (Cause.STOPPED, 137)
            assert (await here.watcher.end(limited.id)).cause == Cause.TIME_LIMIT

    run(story())


def test_tombstones_epochs_and_places_outlive_the_agent() -> None:
    async def story() -> None:
        async with room() as here:
            await here.engine.stop([process(1).attempt], 1, Cause.STOPPED, "")
            made = await here.engine.create([launch(process(2), "/bin/true")])
            later = here.bench.engine(7)
            await later.probe()
            here.bench.kill_agent()
            with pytest.raises(EngineError, match="newer head"):
                await here.engine.look()
            with pytest.raises(EngineError, match="before"):
                await later.create([launch(process(1), "/bin/true")])
            assert await later.create([launch(process(2), "/bin/true")]) == made
            other = await later.create([launch(process(3), "/bin/true")])
            assert not set(other[0].ports) & set(made[0].ports)
            assert other[0].address != made[0].address

    run(story())


def test_after_a_reboot_what_ran_is_lost_and_what_ended_is_not() -> None:
    async def story() -> None:
        async with room() as here:
            ran, done = shell(process(1), "echo ready; sleep 1000"), shell(process(2), "exit 4")
            await here.start(ran, done)
            await here.watcher.end(done.id)
            await here.watcher.text(ran.id, "ready")
            record = here.bench.state / "procs" / str(ran.id) / "record"
            here.bench.kill_agent()
            known = json.loads(record.read_text())
            record.write_text(json.dumps({**known, "boot": "another-boot"}))
            ended = await here.watcher.end(ran.id)
            assert (ended.cause, ended.code) == (Cause.LOST, None)
            assert "restarted" in ended.note
            assert here.watcher.ends[done.id].code == 4

    run(story())


def test_a_record_that_a_torn_disk_left_unreadable_is_lost_and_nothing_else_is() -> None:
    async def story() -> None:
        async with room() as here:
            torn, sound = (
                shell(process(1), "echo ready; sleep 1000"),
                shell(process(2), "echo ready; sleep 0.5; exit 6"),
            )
            await here.start(torn, sound)
            await here.watcher.text(torn.id, "ready")
            here.bench.kill_agent()
            (here.bench.state / "procs" / str(torn.id) / "record").write_text("{")
            assert (await here.watcher.end(torn.id)).cause == Cause.LOST
            assert (await here.watcher.end(sound.id)).code == 6
            # Over means over: its cards are given to the next one.
            assert marked(f"{CLUSTER}/{torn.id}") == []

    run(story())


def states(watcher: Watcher) -> set[str]:
    return {event.state_id for event in watcher.events if isinstance(event, Online)}


def test_when_its_directory_is_removed_an_agent_ends_what_it_runs_and_a_new_one_serves() -> None:
    async def story() -> None:
        async with room() as here:
            one = shell(process(1), "trap '' TERM; echo ready; while sleep 0.1; do :; done")
            await here.start(one)
            await here.watcher.text(one.id, "ready")
            before = here.bench.agent_pid()
            shutil.rmtree(here.bench.state)
            await await_until(lambda: not marked(f"{CLUSTER}/{one.id}"), 30)
            await await_until(lambda: not Path(f"/proc/{before}").exists(), 30)
            await await_until(lambda: len(states(here.watcher)) == 2, 30)
            ended, said = await here.run(shell(process(2), "echo served"))
            assert (ended.code, said) == (0, "served\n")

    run(story())


@pytest.mark.parametrize("said", [0.0, 0.5, 1.0])
def test_a_holder_whose_agent_dies_before_it_said_all_goes_home_and_runs_nothing(tmp_path: Path, said: float) -> None:
    ran = tmp_path / "ran"
    files = {name: str(tmp_path / name) for name in ("out", "dropped", "status")}
    payload = holder.Payload(
        argv=["/usr/bin/touch", str(ran)],
        environment={},
        cwd="/",
        sandboxed=False,
        limit_bytes=1000,
        cgroups=[],
        **files,
    )
    pid, gate = holder.fork()
    words = json.dumps(payload._asdict()).encode()
    os.write(gate, words[: int(len(words) * said)])
    os.close(gate)
    os.waitpid(pid, 0)
    assert ran.exists() == (tmp_path / "status").exists() == (said == 1.0)


def test_a_holder_that_is_killed_where_it_stands_ready_costs_no_start() -> None:
    async def story() -> None:
        async with room() as here:
            assert (await here.run(shell(process(1), "exit 3")))[0].code == 3
            (ready,) = await await_until(lambda: children(here.bench.agent_pid()), message="one stands ready")
            os.kill(ready, 9)
            pair = [shell(process(number), f"exit {number}") for number in (2, 3)]
            for each in pair:
                await here.start(each)
            assert [(await here.watcher.end(each.id)).code for each in pair] == [2, 3]

    run(story())


def test_an_agent_killed_between_record_and_gate_starts_the_process_at_its_next_start() -> None:
    async def story() -> None:
        async with room() as here:
            runs = here.bench.directory("runs")
            one = shell(process(1), "echo run >> /runs/one; exit 4", mounts=(Mount(str(runs), "/runs", True),))
            await here.engine.create([one])
            here.bench.kill_agent()
            folder = here.bench.state / "procs" / str(one.id)
            known = json.loads((folder / "record").read_text())
            known["go"] = {"id": str(one.id), "environment": {}, "hosts": {}, "time_limit_s": 0}
            known.update(phase="running", pid=2**22 - 3, started=1, boot=boot_id(), begun=0.0, status="status-x")
            (folder / "record").write_text(json.dumps(known))
            ended = await here.watcher.end(one.id)
            assert (ended.cause, ended.code) == (Cause.EXIT, 4)
            assert (runs / "one").read_text() == "run\n"

    run(story())


def test_what_runs_keeps_its_world_when_the_agent_starts_again() -> None:
    async def story() -> None:
        async with room() as here:
            flag = here.bench.directory("shared") / "flag"
            script = "echo ready; until test -e /shared/flag; do sleep 0.05; done; id -un; getent hosts $(hostname)"
            one = shell(process(1), script, mounts=(Mount(str(flag.parent), "/shared", False),))
            await here.start(one)
            await here.watcher.text(one.id, "ready")
            here.bench.kill_agent()
            other = shell(process(2), "exit 0")
            assert (await here.run(other))[0].succeeded
            flag.touch()
            ended = await here.watcher.end(one.id)
            assert ended.succeeded, here.watcher.log(one.id)
            assert "sp-n0-1-0" in here.watcher.log(one.id)

    run(story())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_full_disk_loses_no_exit_code_and_lets_stops_through() -> None:
    async def story() -> None:
        bench = Bench.make()
        command("mount", "-t", "tmpfs", "-o", "size=90m", "tmpfs", str(bench.top))
        try:
            bench.give(bench.top)
            engine = bench.engine()
            watcher = Watcher(engine)
            following = asyncio.create_task(watcher.follow())
            speaks = shell(process(1), "echo ready; sleep 1.5; head -c 100000 /dev/zero; exit 5")
            stays = shell(process(2), "echo ready; sleep 1000")
            await engine.create([speaks, stays])
            await engine.go([Go(speaks.id), Go(stays.id)])
            await watcher.text(stays.id, "ready")
            await watcher.text(speaks.id, "ready")
            command("dd", "if=/dev/zero", f"of={bench.top}/filler", "bs=64k")
            with pytest.raises(NotNow, match="full"):
                await engine.create([shell(process(3), "exit 0")])
            await engine.stop([stays.id.attempt], 5, Cause.STOPPED, "by anna")
            await eventually(lambda: looks_ended(engine, stays.id), "the stop")
            (bench.top / "filler").unlink()
            assert (await watcher.end(stays.id)).code == 143
            assert (await watcher.end(speaks.id)).code == 5
            await bench.take_down()
            await following
        finally:
            command("umount", "-l", str(bench.top))
            bench.top.rmdir()

    def command(*argv: str) -> None:
        subprocess.run(argv, capture_output=True)

    async def looks_ended(engine: Engine, id: ProcessId) -> bool:
        return any(seen.id == id and seen.phase == "ended" for seen in await engine.look())

    run(story())


class Haunted(SocketWay):
    """Leads once to what a dead agent left open."""

    haunted = True

    async def open(self) -> Streams:
        if not self.haunted:
            return await super().open()
        self.haunted = False
        ours, theirs = socket.socketpair()
        theirs.close()
        return await asyncio.open_unix_connection(sock=ours)


def test_a_connection_to_what_a_dead_agent_left_open_is_made_again() -> None:
    async def story() -> None:
        async with room() as here:
            later = here.bench.engine(2)
            later._way.__class__ = Haunted
            assert (await later.probe()).boot_id == boot_id()

    run(story())


def test_another_version_of_the_agent_takes_over_what_runs() -> None:
    async def story() -> None:
        async with room() as here:
            one = shell(process(1), "echo ready; sleep 0.5; exit 8")
            await here.start(one)
            await here.watcher.text(one.id, "ready")
            first = here.bench.agent_pid()
            later = here.bench.engine(2)
            later._way.version = "newer"
            watcher = Watcher(later)
            following = asyncio.create_task(watcher.follow())
            assert (await watcher.end(one.id)).code == 8
            assert here.bench.agent_pid() != first
            following.cancel()

    run(story())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_kills_while_many_processes_start_and_end(seed: int) -> None:
    """Every process writes one line where only it can: a second run, or none, would show."""

    async def story() -> None:
        dice = random.Random(seed)
        async with room() as here:
            runs = here.bench.directory("runs")
            mounts = (Mount(str(runs), "/runs", True),)
            launches = [
                shell(
                    process(job),
                    f"echo run >> /runs/{job}; echo out {job}; sleep 0.{job % 4}; exit {job % 7}",
                    mounts=mounts,
                )
                for job in range(1, 41)
            ]
            killing = asyncio.create_task(kill_now_and_then(here, dice))
            await asyncio.gather(*(start_at_last(here, one) for one in launches))
            for one in launches:
                ended = await here.watcher.end(one.id)
                assert (ended.cause, ended.code) == (Cause.EXIT, one.id.attempt.job % 7), one.id
            killing.cancel()
            for one in launches:
                job = one.id.attempt.job
                assert (runs / str(job)).read_text() == "run\n"
                assert here.watcher.log(one.id) == f"out {job}\n"

    async def start_at_last(here: Room, one: Launch) -> None:
        await insist(lambda: here.engine.create([one]))
        await insist(lambda: here.engine.go([Go(one.id)]))

    run(story())


async def insist(verb: Callable[[], Awaitable[object]]) -> None:
    """As the loop does: Unreachable means again."""
    for _ in range(200):
        try:
            await verb()
            return
        except Unreachable:
            await asyncio.sleep(0.05)
    raise AssertionError("never reached")


async def kill_now_and_then(here: Room, dice: random.Random) -> None:
    for _ in range(12):
        await asyncio.sleep(dice.uniform(0.01, 0.5))
        here.bench.kill_agent()
