"""A program that writes until there is no room, makes room, writes again, and prints what it saw as JSON.

`tmpfs DIR`: DIR is a small file system of its own; `limit DIR`: files may not grow beyond a megabyte.
"""

import asyncio
import json
import resource
import sys
from pathlib import Path

from snakepit import errors
from snakepit.store import jobs
from snakepit.store.database import Store
from tests.store.building import NOW, new_job

BALLAST = 1_000_000


def take_room(how: str, directory: Path) -> None:
    if how == "tmpfs":
        (directory / "ballast").write_bytes(bytes(BALLAST))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))


def make_room(how: str, directory: Path) -> None:
    if how == "tmpfs":
        (directory / "ballast").unlink()
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


async def main(how: str, directory: Path) -> None:
    store = Store.open(f"sqlite:///{directory}/snakepit.db")
    acknowledged: list[int] = []
    refused: list[str] = []
    take_room(how, directory)
    while not refused:
        writes = (store.write(jobs.insert, new_job(diff=bytes(20_000)), NOW) for _ in range(8))
        for answer in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(answer, errors.Unavailable):
                refused.append(answer.message)
            else:
                assert isinstance(answer, tuple), answer
                acknowledged.append(answer[0])
    readable = [job.id for job in await store.read(jobs.live)]
    make_room(how, directory)
    again = [(await store.write(jobs.insert, new_job(), NOW))[0] for _ in range(3)]
    there = [job.id for job in await store.read(jobs.live)]
    sound = await store.read(lambda c: c.exec_driver_sql("PRAGMA integrity_check").scalar())
    store.close()
    seen = {"acknowledged": acknowledged, "refused": refused, "readable": readable, "again": again, "there": there}
    sys.stdout.write(json.dumps(seen | {"sound": sound}))


asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
