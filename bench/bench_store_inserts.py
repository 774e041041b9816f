"""Durable job inserts per second, eight clients at once, next to raw sqlite3 with one commit per insert.

Both on the same disk, in turns, in the same run. The peer writes one row of one table; a job is three rows in three."""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from snakepit.store import jobs
from snakepit.store.database import Store
from snakepit.store.rows import NewJob

CLIENTS = 8
EACH = 100
ROUNDS = 5
AT_LEAST = 500
SCRIPT = "python train.py --epochs 10\n" * 5


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="snakepit-bench-", dir=Path.cwd()) as directory:
        store = Store.open(f"sqlite:///{directory}/store.db")
        raw = open_raw(Path(directory) / "raw.db")
        rates: dict[str, list[float]] = {"store": [], "raw": []}
        for turn in range(ROUNDS + 1):
            ours, theirs = asyncio.run(inserts_per_second(store)), raw_inserts_per_second(raw)
            if turn:  # the first is for warming up
                rates["store"].append(ours)
                rates["raw"].append(theirs)
        store.close()
        raw.close()
    ours, theirs = statistics.median(rates["store"]), statistics.median(rates["raw"])
    verdict = "ok" if ours >= AT_LEAST else "TOO SLOW"
    print(f"durable job inserts, {CLIENTS} clients: {ours:.0f} per second (at least {AT_LEAST}): {verdict}")
    print(f"raw sqlite3, one commit per insert: {theirs:.0f} per second, ratio {ours / theirs:.2f} (more is better)")


async def inserts_per_second(store: Store) -> float:
    new = NewJob("anna", "My task", "[]", script=SCRIPT)

    async def client(name: str) -> None:
        for number in range(EACH):
            await store.write(jobs.insert, new, datetime.now(UTC), f"{name}-{number}")

    begin = time.perf_counter()
    await asyncio.gather(*(client(f"{begin}-{number}") for number in range(CLIENTS)))
    return CLIENTS * EACH / (time.perf_counter() - begin)


def open_raw(path: Path) -> sqlite3.Connection:
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute("PRAGMA synchronous = FULL")
    raw.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT, title TEXT, script TEXT)")
    return raw


def raw_inserts_per_second(raw: sqlite3.Connection) -> float:
    count = CLIENTS * EACH
    begin = time.perf_counter()
    for _ in range(count):
        raw.execute("INSERT INTO jobs (user, title, script) VALUES (?, ?, ?)", ("anna", "My task", SCRIPT))
    return count / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
