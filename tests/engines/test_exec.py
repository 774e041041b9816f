"""Commands inside a running process: its world, its limits, none of the agent's powers; ends as ssh would have them."""

import asyncio
import os
import re
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from snakepit.core.domains import Mount
from snakepit.engines.agent import procs
from snakepit.errors import Rejected
from tests.engines.bench import Room, eventually, process, room, run, shell
from tests.engines.visiting import Visit, run_inside, shell_inside
from tests.processes import alive

pytestmark = pytest.mark.system
ISOLATIONS = ("sandbox", "none")
NUMBER = process(1)
OWN = os.getpid()  # in command lines: others may run these tests here, too


@asynccontextmanager
async def inside(script: str = "sleep 1000", isolation: str = "sandbox", **go: Any) -> AsyncIterator[Room]:
    """A room in which process 1 runs."""
    async with room(isolation=isolation) as found:
        await found.start(shell(NUMBER, f"echo ready; {script}"), **go)
        await found.watcher.text(NUMBER, "ready")
        yield found


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_streams_stay_apart_and_the_code_comes_back(isolation: str) -> None:
    async def check() -> None:
        async with inside(isolation=isolation) as found:
            script = "cat; echo complaint >&2; exit 7"
            assert await shell_inside(found.engine, NUMBER, script, stdin=b"spoken") == (7, "spoken", "complaint\n")
            assert await shell_inside(found.engine, NUMBER, "kill -TERM $$") == (143, "", "")
            assert await run_inside(found.engine, NUMBER, "/bin/true") == (0, "", "")

    run(check())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_cannot_be_started_says_so_as_a_shell_would(isolation: str) -> None:
    async def check() -> None:
        async with inside(isolation=isolation) as found:
            assert await run_inside(found.engine, NUMBER, "no-such") == (
                127,
                "",
                "no-such: No such file or directory\n",
            )
            code, _, words = await run_inside(found.engine, NUMBER, "/etc/passwd")
            assert (code, words) == (126, "/etc/passwd: Permission denied\n")

    run(check())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_environment_directory_and_mark_are_those_of_the_process(isolation: str) -> None:
    async def check() -> None:
        async with room(isolation=isolation) as found:
            there = found.bench.directory("there")
            path = "/data/there" if isolation == "sandbox" else str(there)
            mounts = (Mount(str(there), path, writable=True),) if isolation == "sandbox" else ()
            script = "env > before; pwd >> before; echo ready; sleep 1000"
            await found.start(shell(NUMBER, script, cwd=path, mounts=mounts), environment={"COLOUR": "blue green"})
            await found.watcher.text(NUMBER, "ready")
            given = {"EXTRA": "more"}
            code, said, _ = await shell_inside(found.engine, NUMBER, "env; pwd", environment=given)
            before = set((there / "before").read_text().splitlines())
            assert code == 0
            assert {"COLOUR=blue green", path} <= before
            assert {line for line in set(said.splitlines()) ^ before if not line.startswith("_=")} == {"EXTRA=more"}

    run(check())


def test_nothing_is_gained_by_going_in() -> None:
    """Joining a user namespace gives every capability in it; none may be left, nor come back by any program."""
    probes = {
        "grep -E '^Cap' /proc/self/status": r"(Cap\w+:\t0+\n){5}",
        "grep NoNewPrivs /proc/self/status": r"NoNewPrivs:\t1\n",
        "mount -o remount,rw / 2>&1 || echo no": r"(.*\n)*no\n",
        "mount -t tmpfs none /mnt 2>&1 || echo no": r"(.*\n)*no\n",
        "mknod /tmp/sda b 8 0 2>&1 || echo no": r"(.*\n)*no\n",
        "cat /etc/shadow 2>&1 || echo no": r"(.*\n)*no\n",
        "touch /usr/x 2>&1 || echo no": r"(.*\n)*no\n",
        "chroot / true 2>&1 || echo no": r"(.*\n)*no\n",
        "hostname other 2>&1 || echo no": r"(.*\n)*no\n",
        "ls /proc/self/fd | wc -l": r"4\n",
    }

    async def check() -> None:
        async with inside() as found:
            for probe, wanted in probes.items():
                _, said, _ = await shell_inside(found.engine, NUMBER, probe)
                assert re.fullmatch(wanted, said), (probe, said)

    run(check())


def test_it_sees_its_own_job_and_no_other() -> None:
    async def check() -> None:
        async with inside("sleep 4321") as found:
            other = process(2)
            await found.start(shell(other, "echo ready; sleep 8765"))
            await found.watcher.text(other, "ready")
            _, said, _ = await shell_inside(found.engine, NUMBER, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; hostname")
            assert "sleep 4321" in said
            assert "8765" not in said
            assert said.endswith("sp-n0-1-0\n")
            links = "readlink /proc/self/ns/user /proc/1/ns/user /proc/self/ns/mnt /proc/1/ns/mnt"
            _, same, _ = await shell_inside(found.engine, NUMBER, links)
            user, first_user, mounts, first_mounts = same.split()
            assert (user, mounts) == (first_user, first_mounts)

    run(check())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_it_lives_within_the_limits_of_the_process(isolation: str) -> None:
    async def check() -> None:
        async with inside("cat /proc/self/cgroup; echo done; sleep 1000", isolation) as found:
            text = await found.watcher.text(NUMBER, "done")
            _, said, _ = await shell_inside(found.engine, NUMBER, "cat /proc/self/cgroup")
            assert said in text

    run(check())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_a_filter_beside_the_command_says_last_is_heard(isolation: str) -> None:
    async def check() -> None:
        async with inside(isolation=isolation) as found:
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", "echo late > >(sleep 0.1; cat)")
            while await visit.hear():
                pass
            visit.end.close()
            await visit.session.ended()
            assert (visit.code, bytes(visit.said[1])) == (0, b"late\n")

    run(check())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_floods_go_both_ways_and_nobody_holds_them(isolation: str) -> None:
    size = 64 << 20

    async def check() -> None:
        async with inside(isolation=isolation) as found:
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", "tee >(cat >&2)")
            block = os.urandom(1 << 20)

            async def feed() -> None:
                for _ in range(size // len(block)):
                    await visit.send(block)
                await visit.send(b"")

            feeding = asyncio.create_task(feed())
            while await visit.hear():
                pass
            await feeding
            visit.end.close()
            await visit.session.ended()
            assert visit.code == 0
            assert bytes(visit.said[1]) == bytes(visit.said[2]) == block * (size // len(block))

    run(check())


def test_a_caller_who_does_not_read_stops_the_command_and_costs_little_memory() -> None:
    async def check() -> None:
        async with inside() as found:
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", f"yes steadily{OWN}")
            await visit.until(b"steadily")

            async def waits() -> bool:
                return all(procs.stat(pid).state == "S" for pid in alive(f"yes\0steadily{OWN}\0"))  # type: ignore[union-attr]

            await eventually(waits, "the command waits for its reader")
            keepers = [pid for pid in alive("agent.pyz") if str(found.bench.state) in _line(pid)]
            assert max(_resident(pid) for pid in keepers) < 64 << 20
            visit.end.close()
            await visit.session.ended()

    run(check())


def test_a_terminal_is_one() -> None:
    async def check() -> None:
        async with inside() as found:
            script = "tty; stty size; trap 'stty size; exit 3' WINCH; echo go; while :; do sleep 0.05; done"
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", script, size=(91, 17))
            await visit.until(b"go")
            assert visit.said[1].startswith(b"/dev/pts/0\r\n17 91\r\n")
            await visit.control(command="window-resize", args={"width": "132", "height": "50"})
            code, said, _ = await visit.finish()
            assert (code, said.splitlines()[-1]) == (3, "50 132")

    run(check())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_ctrl_c_on_the_terminal_interrupts_what_is_in_front(isolation: str) -> None:
    async def check() -> None:
        async with inside(isolation=isolation) as found:
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-i", size=(80, 24))
            await visit.send(f"sleep 1234.{OWN}; echo not said\n".encode())
            await eventually_alive(f"sleep\x001234.{OWN}\0")
            await visit.send(b"\x03")
            await visit.send(b"echo back again $((40+2))\nexit 5\n")
            code, said, _ = await visit.finish()
            assert code == 5
            assert "back again 42" in said
            assert "\nnot said" not in said

    run(check())


async def eventually_alive(text: str, wanted: bool = True) -> None:
    async def fact() -> bool:
        return bool(alive(text)) is wanted

    await eventually(fact, f"{text!r} is {'there' if wanted else 'gone'}")


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("terminal", [None, (80, 24)])
def test_a_caller_who_goes_hangs_up(isolation: str, terminal: tuple[int, int] | None) -> None:
    async def check() -> None:
        async with inside(isolation=isolation) as found:
            script = f"trap 'echo hung up > /tmp/hup-$TASK; exit' HUP; echo go; sleep 2345.{OWN} & wait"
            if isolation == "none":
                script = script.replace("/tmp/", "$TMPDIR/")
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", script, size=terminal)
            await visit.until(b"go")
            visit.end.close()
            await visit.session.ended()
            await eventually_alive(f"sleep\x002345.{OWN}\0", wanted=False)
            assert (found.bench.state / "procs" / str(NUMBER) / "tmp" / "hup-").read_text() == "hung up\n"

    run(check())


def test_one_who_does_not_hear_the_hangup_is_killed() -> None:
    async def check() -> None:
        async with inside() as found:
            script = f"trap '' HUP; echo go; sleep 3456.{OWN}"
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", script)
            await visit.until(b"go")
            visit.session.close()
            await visit.session.ended()
            await eventually_alive(f"sleep\x003456.{OWN}\0", wanted=False)
            visit.end.close()

    run(check())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_it_ends_with_the_process(isolation: str) -> None:
    async def check() -> None:
        async with inside(isolation=isolation) as found:
            visit = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", f"echo go; sleep 4567.{OWN}")
            stopped = await Visit.begin(found.engine, NUMBER, "/bin/bash", "-c", "echo go; kill -STOP $$")
            await visit.until(b"go")
            await stopped.until(b"go")
            await found.engine.stop([NUMBER.attempt], 5, "stopped", "by a test")
            ended = await found.watcher.end(NUMBER)
            assert ended.code == 143
            assert (await visit.finish())[0] == 137
            assert (await stopped.finish())[0] == 137
            assert alive(f"sleep\x004567.{OWN}\0") == []

    run(check())


def test_what_it_leaves_in_the_background_does_not_hold_it_up_and_ends_with_the_job() -> None:
    async def check() -> None:
        async with inside() as found:
            code, said, _ = await shell_inside(found.engine, NUMBER, f"setsid sleep 5678.{OWN} & echo left")
            assert (code, said) == (0, "left\n")
            await eventually_alive(f"sleep\x005678.{OWN}\0")
            await found.engine.stop([NUMBER.attempt], 5, "stopped", "by a test")
            await found.watcher.end(NUMBER)
            assert alive(f"sleep\x005678.{OWN}\0") == []

    run(check())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_process_that_does_not_run_is_not_entered(isolation: str) -> None:
    async def check() -> None:
        async with inside("exit 0", isolation) as found:
            await found.watcher.end(NUMBER)
            made = process(2)
            await found.engine.create([shell(made, "true")])
            for id in (NUMBER, made, process(3)):
                with pytest.raises(Rejected, match="Worker not active"):
                    await run_inside(found.engine, id, "true")

    run(check())


def test_one_who_comes_early_waits_for_the_walls_to_stand() -> None:
    """The sandbox's number is known before its root is another one than the machine's."""

    async def check() -> None:
        async with room() as found:
            secret = found.bench.directory("secret")
            # Many mounts, so that building takes a while.
            places = [found.bench.directory(f"m/{at}") for at in range(300)]
            mounts = tuple(Mount(str(place), f"/data/{place.name}", writable=False) for place in places)
            for number in range(1, 6):
                id = process(number)
                await found.start(shell(id, "sleep 1000", mounts=mounts))
                code, said, _ = await shell_inside(found.engine, id, f"ls {secret} 2>&1; ls /; readlink /proc/1/ns/mnt")
                assert code == 0
                assert "No such file" in said
                assert "root" not in said.split()

    run(check())


def test_two_hundred_at_once() -> None:
    async def check() -> None:
        async with inside() as found:
            visits = [
                shell_inside(found.engine, NUMBER, f"cat; exit {number % 100}", stdin=b"x") for number in range(200)
            ]
            ends = await asyncio.gather(*visits)
            assert ends == [(number % 100, "x", "") for number in range(200)]

    run(check())


def test_sessions_outlive_the_agent() -> None:
    async def check() -> None:
        async with inside() as found:
            visit = await Visit.begin(found.engine, NUMBER, "cat")
            os.kill(found.bench.agent_pid(), signal.SIGKILL)
            await visit.send(b"still here")
            await visit.send(b"")
            assert await visit.finish() == (0, "still here", "")

    run(check())


def test_no_handle_is_left_behind() -> None:
    async def check() -> None:
        async with inside() as found:
            await shell_inside(found.engine, NUMBER, "true")
            before = _handles(found.bench.agent_pid())
            for _ in range(10):
                await shell_inside(found.engine, NUMBER, "true")

            async def fact() -> bool:
                return _handles(found.bench.agent_pid()) <= before

            await eventually(fact, "the agent holds no more than before")

    run(check())


def _handles(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
