"""Output of all sorts: raw bytes, endless lines, a great deal of it, more than allowed, and a head that is slow."""

import hashlib
from pathlib import Path

import pytest

from tests.engines.bench import Room, eventually, process, room, run, shell
from tests.waiting import await_until

pytestmark = pytest.mark.system

MIB = 1 << 20


def agent_memory(here: Room) -> int:
    """The highest resident size of the agent so far, in bytes."""
    text = Path(f"/proc/{here.bench.agent_pid()}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def test_raw_bytes_and_lines_of_a_megabyte_arrive_as_they_are() -> None:
    async def story() -> None:
        async with room() as here:
            script = """import sys
out = sys.stdout.buffer
for number in range(5):
    out.write(bytes([65 + number]) * (1 << 20) + b"\\n")
out.write(bytes(range(256)) * 100)
"""
            target = shell(process(1), 'exec /usr/bin/python3 -c "$SCRIPT"')
            ended, _ = await here.run(target, environment={"SCRIPT": script})
            assert ended.succeeded
            expected = b"".join(bytes([65 + number]) * MIB + b"\n" for number in range(5)) + bytes(range(256)) * 100
            assert bytes(here.watcher.logs[target.id]) == expected

    run(story())


def test_200_megabytes_of_log_pass_through_in_bounded_memory() -> None:
    async def story() -> None:
        async with room() as here:
            here.watcher.keep_events = False
            one = shell(process(1), "yes 0123456789abcde | head -c 200000000")
            ended, _ = await here.run(one)
            assert ended.succeeded
            expected = (b"0123456789abcde\n" * (200000000 // 16 + 1))[:200000000]
            digest = hashlib.sha256(here.watcher.logs[one.id]).hexdigest()
            assert digest == hashlib.sha256(expected).hexdigest()
            assert agent_memory(here) < 80 * MIB

    run(story())


def test_above_the_cap_bytes_are_dropped_and_counted_and_the_disk_is_spared() -> None:
    async def story() -> None:
        async with room() as here:
            one = shell(process(1), "head -c 5000000 /dev/zero; exit 2", log_limit_bytes=1000000)
            ended, _ = await here.run(one)
            assert ended.code == 2
            assert len(here.watcher.logs[one.id]) == 1000000
            assert here.watcher.dropped[one.id] == 4000000
            assert (here.bench.state / "procs" / str(one.id) / "out").stat().st_size == 1000000

    run(story())


@pytest.mark.parametrize("isolation", ["sandbox", "none"])
def test_writing_to_dev_stderr_and_dev_stdout_empties_nothing(isolation: str) -> None:
    async def story() -> None:
        async with room(isolation=isolation) as here:
            one = shell(process(1), "echo a; echo b > /dev/stderr; echo c > /dev/stdout; echo d >&2")
            _, log = await here.run(one)
            assert log == "a\nb\nc\nd\n"

    run(story())


def test_a_head_that_does_not_listen_holds_up_no_process() -> None:
    async def story() -> None:
        async with room() as here:
            here.watcher.acking = False
            loud, quiet = shell(process(1), "head -c 3000000 /dev/zero"), shell(process(2), "true")
            await here.start(loud, quiet)
            await here.watcher.end(quiet.id)

            async def over() -> bool:
                return {seen.phase for seen in await here.engine.look()} == {"ended"}

            await eventually(over, "both ended though nothing was acknowledged")
            assert loud.id not in here.watcher.ends
            await await_until(lambda: here.watcher.logs.get(loud.id), message="the first chunk")
            here.watcher.acking = True
            await here.engine.ack_output(loud.id, len(here.watcher.logs[loud.id]))
            await here.watcher.end(loud.id)
            assert len(here.watcher.logs[loud.id]) == 3000000

    run(story())


def test_output_arrives_while_the_process_runs() -> None:
    async def story() -> None:
        async with room() as here:
            one = shell(process(1), "echo first; sleep 1000")
            await here.start(one)
            await here.watcher.text(one.id, "first")
            assert one.id not in here.watcher.ends

    run(story())
