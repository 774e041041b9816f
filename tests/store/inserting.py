"""A program that inserts jobs for ever, eight at a time, and prints each number once it is acknowledged."""

import asyncio
import sys

from snakepit.store import jobs
from snakepit.store.database import Store
from tests.store.building import NOW, new_job


async def main(url: str) -> None:
    store = Store.open(url)

    async def client(name: str) -> None:
        while True:
            job, _ = await store.write(jobs.insert, new_job(name, script="echo"), NOW)
            sys.stdout.write(f"{job} {name}\n")
            sys.stdout.flush()

    await asyncio.gather(*(client(f"user{number}") for number in range(8)))


asyncio.run(main(sys.argv[1]))
