"""Following the log of a job that the loop has not even looked at yet."""

import asyncio
from pathlib import Path

from snakepit.core.job import State
from snakepit.store import jobs
from snakepit.store.rows import NewJob, new_row
from tests.service.house import House, open_house


def test_who_follows_a_job_the_moment_it_is_submitted_hears_it_to_its_end(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        house.user("anna")
        said = asyncio.run_coroutine_threadsafe(submit_and_follow(house), house.events).result(60)
        assert b"] failing\n" in said
        assert b"ended with exit code 3" in said


async def submit_and_follow(house: House) -> bytes:
    service, now, new = house.service, house.now(), NewJob("anna", "a job", "[]", script="exit 3")
    id, _ = await service.store.write(jobs.insert, new, now, "", State.WAITING)
    service.loop.submitted(new_row(id, new, State.WAITING, now))
    return b"".join([block async for block in service.loop.log.follow(id)])
