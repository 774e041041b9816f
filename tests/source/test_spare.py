"""Directories that stand ready for jobs which are only scripts."""

import asyncio
from pathlib import Path

import pytest

from snakepit.source import spare
from snakepit.source.provision import Work, prepared, provision
from snakepit.source.sweep import drop_leftovers
from tests.waiting import await_until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pits").mkdir()
    return tmp_path


async def run(root: Path, job: int) -> Path:
    await provision(Work(root, job, "anna", "script", script=f"echo {job}"), lambda _: None)
    assert prepared(root, job)
    return root / "pits" / str(job)


def filled(root: Path) -> bool:
    """As many as there may be, and nobody is about to make more."""
    return len(spare.known(root)) == spare.MOST and root not in spare._refilling


def looks(pit: Path) -> tuple[set[str], str]:
    return {str(path.relative_to(pit)) for path in pit.rglob("*") if path.is_dir()}, (pit / "script.sh").read_text()


def test_the_second_job_gets_one_that_looks_like_the_first_which_had_to_make_its_own(root: Path) -> None:
    async def story() -> None:
        first = await run(root, 1)
        await await_until(lambda: filled(root))
        second = await run(root, 2)
        assert len(spare.known(root)) == spare.MOST - 1
        assert looks(second) == (looks(first)[0] | {"workers/0"}, "echo 2\n")

    asyncio.run(story())


def test_what_a_job_has_already_stays_and_the_ready_one_waits_for_another(root: Path) -> None:
    async def story() -> None:
        await run(root, 1)
        await await_until(lambda: filled(root))
        (root / "pits" / "2" / "log").mkdir(parents=True)
        (root / "pits" / "2" / "log" / "pit.log").write_text("before\n")
        pit = await run(root, 2)
        assert (pit / "log" / "pit.log").read_text() == "before\n"
        assert len(spare.known(root)) == spare.MOST

    asyncio.run(story())


def test_those_of_a_service_before_go_and_those_in_use_stay(root: Path) -> None:
    async def story() -> None:
        await run(root, 1)
        await await_until(lambda: filled(root))
        (root / "pits" / f"{spare.READY}of-before" / "src").mkdir(parents=True)
        assert drop_leftovers(root) == 1
        assert {path.name for path in (root / "pits").glob(f"{spare.READY}*")} == spare.known(root)

    asyncio.run(story())


def test_one_that_somebody_removed_is_made_anew(root: Path) -> None:
    async def story() -> None:
        await run(root, 1)
        await await_until(lambda: filled(root))
        for name in spare.known(root):
            (root / "pits" / name).rename(root / name)
        assert (await run(root, 2) / "src").is_dir()

    asyncio.run(story())
