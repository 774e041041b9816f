"""One writer, many readers: group commit, refusals that stay alone, snapshots."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from snakepit import errors
from snakepit.store import jobs, meta
from snakepit.store.database import Store
from tests.store.building import NOW, new_job, submit, together


def put_and_fail(c: Connection, key: str) -> None:
    meta.put(c, key, "half done")
    raise ValueError(key)


def transaction_of(c: Connection, key: str) -> str:
    """Which transaction this write is in. PostgreSQL numbers them; what SQLAlchemy holds is one object each."""
    meta.put(c, key, "here")
    if c.dialect.name == "postgresql":
        return str(c.execute(text("SELECT pg_current_xact_id()")).scalar_one())
    return repr(c.get_transaction())


def test_writes_that_wait_together_share_one_transaction(store: Store) -> None:
    seen = together(store, *[lambda s, n=n: s.write(transaction_of, f"key{n}") for n in range(8)])
    assert len(set(seen)) == 1
    assert all(store.read_now(meta.get, f"key{n}") == "here" for n in range(8))


def test_one_that_raises_is_undone_alone_and_its_caller_gets_the_exception(store: Store) -> None:
    before, failed, after = together(
        store,
        lambda s: s.write(meta.put, "before", "1"),
        lambda s: s.write(put_and_fail, "failed"),
        lambda s: s.write(meta.put, "after", "2"),
    )
    assert (before, after) == (None, None)
    assert isinstance(failed, ValueError)
    assert [store.read_now(meta.get, key) for key in ("before", "failed", "after")] == ["1", None, "2"]


def test_one_alone_that_raises_leaves_nothing_and_the_next_works(store: Store) -> None:
    with pytest.raises(ValueError, match="failed"):
        store.write_now(put_and_fail, "failed")
    store.write_now(meta.put, "next", "1")
    assert [store.read_now(meta.get, key) for key in ("failed", "next")] == [None, "1"]


def test_a_write_that_breaks_a_rule_of_the_database_is_refused_alone(store: Store) -> None:
    def twice(c: Connection) -> None:
        for _ in range(2):
            c.execute(text("INSERT INTO meta (key, value) VALUES ('same', '')"))

    good, bad = together(store, lambda s: s.write(meta.put, "good", "1"), lambda s: s.write(twice))
    assert good is None
    assert isinstance(bad, errors.Conflict)
    assert [store.read_now(meta.get, key) for key in ("good", "same")] == ["1", None]


def test_a_caller_that_stops_waiting_does_not_undo_its_write(store: Store) -> None:
    async def give_up() -> None:
        gate = threading.Event()
        held = asyncio.ensure_future(store.write(lambda _: gate.wait(30)))
        impatient = asyncio.ensure_future(store.write(meta.put, "key", "written"))
        await asyncio.sleep(0)
        impatient.cancel()
        gate.set()
        await held
        await asyncio.gather(impatient, return_exceptions=True)
        assert impatient.cancelled()
        await store.write(meta.put, "later", "1")

    asyncio.run(give_up())
    assert store.read_now(meta.get, "key") == "written"


def test_what_was_written_is_read_at_once(store: Store) -> None:
    async def follow() -> None:
        for number in range(50):
            await store.write(meta.put, "number", str(number))
            assert await store.read(meta.get, "number") == str(number)

    asyncio.run(follow())


def test_reading_goes_on_while_a_write_takes_its_time(store: Store) -> None:
    async def both() -> str | None:
        gate = threading.Event()

        def slow(c: Connection) -> None:
            meta.put(c, "key", "new")
            assert gate.wait(30)

        await store.write(meta.put, "key", "old")
        writing = asyncio.ensure_future(store.write(slow))
        seen = [await store.read(meta.get, "key") for _ in range(20)]
        gate.set()
        await writing
        assert seen == ["old"] * 20
        return await store.read(meta.get, "key")

    assert asyncio.run(both()) == "new"


def test_one_read_sees_one_moment(store: Store) -> None:
    store.write_now(meta.put, "key", "old")

    def twice(c: Connection) -> tuple[str | None, str | None]:
        first = meta.get(c, "key")
        store.write_now(meta.put, "key", "new")
        return first, meta.get(c, "key")

    assert store.read_now(twice) == ("old", "old")
    assert store.read_now(meta.get, "key") == "new"


def test_readers_cannot_write(store: Store) -> None:
    with pytest.raises(errors.SnakepitError, match=r"readonly|read-only"):
        store.read_now(meta.put, "key", "value")
    assert store.read_now(meta.get, "key") is None


def test_many_threads_and_a_loop_write_and_read_without_losing_anything(store: Store) -> None:
    def thread(number: int) -> list[int]:
        made = [store.write_now(jobs.insert, new_job(f"user{number}"), NOW)[0] for _ in range(20)]
        assert [job.id for job in store.read_now(jobs.of_user, f"user{number}")] == made
        return made

    async def loop() -> list[int]:
        async def one(number: int) -> int:
            made, _ = await store.write(jobs.insert, new_job(), NOW, f"key{number}")
            assert (await store.read(jobs.get, made)).id == made
            return made

        return await asyncio.gather(*(one(number) for number in range(300)))

    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(thread, number) for number in range(4)]
        made = asyncio.run(loop()) + [id for each in threads for id in each.result()]
    assert sorted(made) == list(range(1, 381))


def test_closing_writes_what_was_asked_for_and_refuses_what_comes_later(url: str) -> None:
    store = Store.open(url)

    async def close_in_between() -> list[object]:
        gate = threading.Event()
        waiting = [asyncio.ensure_future(store.write(lambda _: gate.wait(30)))]
        waiting += [asyncio.ensure_future(store.write(jobs.insert, new_job(), NOW)) for _ in range(5)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        closing = asyncio.get_running_loop().run_in_executor(None, store.close)
        gate.set()
        await closing
        return await asyncio.gather(*waiting)

    assert asyncio.run(close_in_between())[1:] == [(number, True) for number in range(1, 6)]
    with pytest.raises(errors.Unavailable, match="closed"):
        submit(store)
    with pytest.raises(errors.Unavailable, match="closed"):
        asyncio.run(store.read(jobs.live))
    with pytest.raises(errors.Unavailable, match="closed"):
        store.read_now(jobs.live)
    store.close()


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "snakepit.db"
    path.touch(mode=0o644)
    store = Store.open(f"sqlite:///{path}")
    submit(store)
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    store.close()
    assert set(modes.values()) == {"0o600"}
    assert modes.keys() == {"snakepit.db", "snakepit.db-wal", "snakepit.db-shm"}
    assert [file.name for file in tmp_path.iterdir()] == ["snakepit.db"]


def test_sqlite_commits_with_a_real_sync_and_keeps_foreign_keys(tmp_path: Path) -> None:
    def pragma(c: Connection, name: str) -> object:
        return c.exec_driver_sql(f"PRAGMA {name}").scalar()

    store = Store.open(f"sqlite:///{tmp_path}/a b?.db".replace("?", "%3F"))
    try:
        written = {name: store.write_now(pragma, name) for name in ("journal_mode", "synchronous", "foreign_keys")}
        assert written == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    finally:
        store.close()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nonsense", "address of the database"),
        ("mysql://user:secret@host/db", r"cannot use the database mysql://user:\*\*\*@host/db"),
        ("sqlite://", "expected sqlite:////path"),
        ("sqlite:////nowhere/at/all.db", "cannot open the database /nowhere/at/all.db: No such file"),
    ],
)
def test_an_address_that_is_none_is_refused_in_words(address: str, words: str) -> None:
    with pytest.raises(errors.ConfigError, match=words) as told:
        Store.open(address)
    assert "secret" not in str(told.value)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Anna, " * 100)
    with pytest.raises(errors.Unavailable, match="not a database"):
        Store.open(f"sqlite:///{path}")
    assert path.read_text() == "Dear Anna, " * 100


def test_a_server_nobody_listens_at_is_said_in_one_line(free_port: int) -> None:
    with pytest.raises(errors.Unavailable, match="cannot open the database postgresql") as told:
        Store.open(f"postgresql://anna:secret@127.0.0.1:{free_port}/x")
    assert "\n" not in str(told.value)
    assert "secret" not in str(told.value)
