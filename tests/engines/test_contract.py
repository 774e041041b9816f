"""What every engine keeps, the fake included: one test-suite over both."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest

from snakepit.core.job import Cause
from snakepit.engines.base import Engine, Exited, Go, Launch, Offline, Online, Output
from snakepit.engines.fake import Act, FakeEngine, FakeNode
from snakepit.errors import Rejected
from tests.engines.bench import Bench, Watcher, eventually, launch, process, run
from tests.engines.visiting import run_inside
from tests.waiting import await_until

# The same programs for a real node and, as what they do, for the fake.
HELLO = ("/bin/sh", "-c", "printf 'hello\\nworld\\n'; exit 3")
QUIET = ("/bin/true",)
FOREVER = ("/bin/sleep", "1000")
LARGE = ("/bin/sh", "-c", "head -c 700000 /dev/zero")
ACTS = {
    HELLO: Act(b"hello\nworld\n", 3),
    QUIET: Act(),
    FOREVER: Act(code=None),
    LARGE: Act(b"\0" * 700000),
}


@dataclass
class Site:
    """A node, and new heads to it."""

    head: Callable[[int], Engine]

    @contextlib.asynccontextmanager
    async def watched(self, engine: Engine, **more: bool) -> AsyncIterator[Watcher]:
        watcher = Watcher(engine, **more)  # type: ignore[arg-type]
        following = asyncio.create_task(watcher.follow())
        await await_until(lambda: watcher.events, message="the first event")
        try:
            yield watcher
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


@contextlib.asynccontextmanager
async def fake_site() -> AsyncIterator[Site]:
    node = FakeNode(lambda launch, go: ACTS[launch.argv])
    yield Site(lambda epoch: FakeEngine(node, epoch))


@contextlib.asynccontextmanager
async def local_site() -> AsyncIterator[Site]:
    bench = Bench.make()
    try:
        yield Site(bench.engine)
    finally:
        await bench.take_down()


Sites = Callable[[], AbstractAsyncContextManager[Site]]


@pytest.fixture(params=[fake_site, pytest.param(local_site, marks=pytest.mark.system)], ids=["fake", "local"])
def sites(request: pytest.FixtureRequest) -> Sites:
    chosen: Sites = request.param
    return chosen


def go(*launches: Launch, time_limit_s: int = 0) -> list[Go]:
    return [Go(one.id, time_limit_s=time_limit_s) for one in launches]


def test_a_process_is_created_runs_speaks_and_ends_with_its_code(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)
            inventory = await engine.probe()
            assert inventory.boot_id
            assert inventory.state_id
            async with site.watched(engine) as watcher:
                assert watcher.events[0] == Online(inventory.boot_id, inventory.state_id, ())
                one = launch(process(1), *HELLO)
                made = await engine.create([one])
                assert made[0].address.startswith("127.")
                assert len(made[0].ports) == one.ports
                assert [seen.phase for seen in await engine.look()] == ["created"]
                await engine.go(go(one))
                ended = await watcher.end(one.id)
                assert (ended.cause, ended.code) == (Cause.EXIT, 3)
                assert watcher.log(one.id) == "hello\nworld\n"
                seen = await engine.look()
                assert [(one.phase, one.ended, one.log_bytes) for one in seen] == [("ended", ended, 12)]

    run(story())


def test_create_and_go_said_twice_do_nothing_more(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)
            async with site.watched(engine) as watcher:
                one = launch(process(1), *HELLO)
                first = await engine.create([one])
                assert await engine.create([one]) == first
                await engine.go(go(one))
                await engine.go(go(one))
                await watcher.end(one.id)
                await engine.go(go(one))
                assert await engine.create([one]) == first
                assert watcher.log(one.id) == "hello\nworld\n"
                assert [seen.phase for seen in await engine.look()] == ["ended"]

    run(story())


def test_processes_of_a_pit_get_addresses_and_ports_of_their_own(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            made = await site.head(1).create([launch(process(1, index), *QUIET) for index in range(5)])
            assert len({one.address for one in made}) == 5
            assert len({port for one in made for port in one.ports}) == 20

    run(story())


def test_create_makes_all_or_none(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)
            with pytest.raises(Rejected):
                await engine.create([launch(process(1, 0), *QUIET), launch(process(1, 1))])
            assert await engine.look() == []

    run(story())


def test_output_waits_for_its_acknowledgement_and_the_end_for_all_of_it(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)

            async def ended() -> bool:
                return [seen.phase for seen in await engine.look()] == ["ended"]

            async with site.watched(engine, acking=False) as watcher:
                one = launch(process(1), *LARGE)
                await engine.create([one])
                await engine.go(go(one))
                await await_until(lambda: watcher.logs.get(one.id), message="the first chunk")
                await eventually(ended, "the end, seen by looking")
                assert len([event for event in watcher.events if isinstance(event, Output)]) == 1
                watcher.acking = True
                await engine.ack_output(one.id, len(watcher.logs[one.id]))
                await watcher.end(one.id)
                assert watcher.logs[one.id] == b"\0" * 700000

    run(story())


def test_an_end_is_told_to_every_new_watch_until_it_is_cleaned(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)
            one = launch(process(1), *HELLO)
            async with site.watched(engine) as watcher:
                await engine.create([one])
                await engine.go(go(one))
                first = await watcher.end(one.id)
            later = site.head(2)
            watcher = Watcher(later, logs={one.id: bytearray(b"hello\nwor")})
            following = asyncio.create_task(watcher.follow())
            assert await watcher.end(one.id) == first
            assert watcher.log(one.id) == "hello\nworld\n"
            outputs = [event for event in watcher.events if isinstance(event, Output)]
            assert [(event.offset, event.data) for event in outputs] == [(9, b"ld\n")]
            following.cancel()
            await later.clean([one.id.attempt])
            assert await later.look() == []
            async with site.watched(later) as watcher:
                assert not [event for event in watcher.events if isinstance(event, Exited)]

    run(story())


def test_stop_ends_a_process_and_keeps_who_did_it(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)
            async with site.watched(engine) as watcher:
                runs, stands = launch(process(1), *FOREVER), launch(process(2), *FOREVER)
                await engine.create([runs, stands])
                await engine.go(go(runs))
                await engine.stop([runs.id.attempt, stands.id.attempt], 20, Cause.STOPPED, "stopped by anna")
                ended = await watcher.end(runs.id)
                assert (ended.cause, ended.code) == (Cause.STOPPED, 143)
                assert ended.note.startswith("stopped by anna")
                ended = await watcher.end(stands.id)
                assert (ended.cause, ended.code) == (Cause.STOPPED, None)
                await engine.go(go(stands))
                assert {seen.phase for seen in await engine.look()} == {"ended"}

    run(story())


def test_a_time_limit_ends_a_process(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)
            async with site.watched(engine) as watcher:
                one = launch(process(1), *FOREVER)
                await engine.create([one])
                await engine.go(go(one, time_limit_s=1))
                ended = await watcher.end(one.id)
                assert ended.cause == Cause.TIME_LIMIT
                assert "time limit of 1 s" in ended.note

    run(story())


def test_what_was_stopped_or_cleaned_unknown_is_never_started_later(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)
            await engine.stop([process(1).attempt], 1, Cause.STOPPED, "")
            await engine.clean([process(2).attempt])
            for job in (1, 2):
                with pytest.raises(Rejected, match="before"):
                    await engine.create([launch(process(job), *QUIET)])
                with pytest.raises(Rejected, match="before"):
                    await engine.go([Go(process(job))])
            with pytest.raises(Rejected, match="never created"):
                await engine.go([Go(process(3))])
            await engine.create([launch(process(1, attempt=1), *QUIET)])

    run(story())


def test_clean_of_a_running_process_ends_and_forgets_it(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)
            one = launch(process(1), *FOREVER)
            await engine.create([one])
            await engine.go(go(one))
            await engine.clean([one.id.attempt])
            assert await engine.look() == []
            with pytest.raises(Rejected):
                await engine.create([one])

    run(story())


def test_a_head_of_a_lower_epoch_is_refused(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            old, new = site.head(4), site.head(5)
            await old.probe()
            await new.probe()
            with pytest.raises(Rejected, match="newer head"):
                await old.create([launch(process(1), *QUIET)])
            async with site.watched(old) as watcher:
                assert isinstance(watcher.events[0], Offline)
                assert "newer head" in watcher.events[0].reason

    run(story())


def test_a_command_inside_reads_speaks_and_ends_with_its_code(sites: Sites) -> None:
    async def story() -> None:
        async with sites() as site:
            engine = site.head(1)
            one = launch(process(1), *FOREVER)
            await engine.create([one])
            with pytest.raises(Rejected, match="Worker not active"):
                await run_inside(engine, one.id, "cat")
            await engine.go(go(one))
            await eventually_inside(engine, one)
            assert await run_inside(engine, one.id, "cat", stdin=b"spoken") == (0, "spoken", "")
            assert await run_inside(engine, one.id, "echo", "a", "b") == (0, "a b\n", "")
            with pytest.raises(Rejected, match="nobody of this job listens on port 1"):
                await engine.connect(one.id, 1)
            await engine.clean([one.id.attempt])
            with pytest.raises(Rejected, match="Worker not active"):
                await run_inside(engine, one.id, "cat")

    run(story())


async def eventually_inside(engine: Engine, one: Launch) -> None:
    """It takes a moment until a sandbox stands."""

    async def stands() -> bool:
        try:
            return await run_inside(engine, one.id, "echo") == (0, "\n", "")
        except Rejected:
            return False

    await eventually(stands, "the sandbox stands")
