"""What was acknowledged is there, whatever happens; what was refused is not; and after the trouble all goes on."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from snakepit import errors
from snakepit.store import jobs, meta
from snakepit.store.database import Store
from tests.postgres import Postgres
from tests.store.building import submit, together
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent


def test_every_job_acknowledged_before_a_kill_is_there_afterwards(url: str) -> None:
    inserting = subprocess.Popen(
        [sys.executable, "-m", "tests.store.inserting", url], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert inserting.stdout is not None
    printed = [inserting.stdout.readline() for _ in range(200)]
    inserting.send_signal(signal.SIGKILL)
    printed += inserting.stdout.readlines()
    inserting.stdout.close()
    assert inserting.wait() == -signal.SIGKILL
    acknowledged = {int(line.split()[0]): line.split()[1] for line in printed if line.endswith("\n")}
    assert len(acknowledged) >= 200
    store = Store.open(url)
    try:
        there = {job.id: job.user for job in store.read_now(jobs.live)}
        assert acknowledged.items() <= there.items()
        assert [store.read_now(jobs.input_of, job).script for job in there] == ["echo"] * len(there)
        assert submit(store) > max(acknowledged)
    finally:
        store.close()


def small_file_system(directory: Path) -> list[str]:
    """A command prefix under which `directory` is a file system of 3 MB; skips where namespaces are not allowed."""
    prefix = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    mount = ["sh", "-c", 'mount -t tmpfs -o size=3m none "$0" && exec "$@"', str(directory)]
    if shutil.which("unshare") is None or subprocess.run([*prefix, *mount, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace of one's own here")
    return prefix + mount


@pytest.mark.parametrize("how", ["tmpfs", "limit"])
def test_a_full_disk_refuses_in_words_loses_nothing_and_is_over_when_there_is_room(how: str, tmp_path: Path) -> None:
    prefix = small_file_system(tmp_path) if how == "tmpfs" else []
    program = [*prefix, sys.executable, "-m", "tests.store.filling", how, str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, timeout=120)
    assert done.returncode == 0
    seen = json.loads(done.stdout)
    assert len(seen["acknowledged"]) >= 8
    assert seen["refused"]
    assert all("the database cannot be written at the moment: d" in words for words in seen["refused"])
    assert seen["readable"] == seen["acknowledged"]
    assert seen["there"] == sorted(seen["acknowledged"] + seen["again"])
    assert seen["sound"] == "ok"


def test_a_stranger_who_locks_the_file_delays_a_write_and_breaks_nothing(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/snakepit.db")
    stranger = sqlite3.connect(tmp_path / "snakepit.db", isolation_level=None)
    try:
        stranger.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(submit, store)
            assert store.read_now(jobs.live) == []
            assert not waiting.done()
            stranger.execute("ROLLBACK")
            assert waiting.result(timeout=60) == 1
    finally:
        stranger.close()
        store.close()


@pytest.fixture
def admin(postgres: Postgres) -> Iterator[Engine]:
    engine = create_engine(postgres.url("postgres"), isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()


@pytest.fixture
def own(postgres: Postgres) -> Iterator[Store]:
    store = Store.open(postgres.fresh_database("store_trouble"))
    yield store
    store.close()


def cut_off(admin: Engine) -> None:
    """Ends every connection of the store, as a restart of the server does."""
    with admin.connect() as connection:
        others = "FROM pg_stat_activity WHERE datname = 'store_trouble'"
        connection.execute(text(f"SELECT pg_terminate_backend(pid) {others}"))
        wait_until(lambda: connection.execute(text(f"SELECT count(*) {others}")).scalar() == 0)


@pytest.mark.system
def test_after_a_restart_of_postgresql_reads_and_writes_just_go_on(own: Store, admin: Engine) -> None:
    assert submit(own) == 1
    assert len(own.read_now(jobs.live)) == 1
    cut_off(admin)
    assert len(own.read_now(jobs.live)) == 1
    assert submit(own) == 2
    assert len(own.read_now(jobs.live)) == 2


@pytest.mark.system
def test_a_connection_lost_in_the_middle_undoes_the_whole_transaction_and_tells_all(own: Store) -> None:
    def lose(c: Connection) -> None:
        c.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    told = together(
        own,
        lambda s: s.write(meta.put, "before", "1"),
        lambda s: s.write(lose),
        lambda s: s.write(meta.put, "after", "1"),
    )
    assert [type(each) for each in told] == [errors.Unavailable] * 3
    assert "the database cannot be written at the moment: terminating connection" in str(told[0])
    assert [own.read_now(meta.get, key) for key in ("before", "after")] == [None, None]
    own.write_now(meta.put, "before", "2")
    assert own.read_now(meta.get, "before") == "2"


@pytest.mark.system
def test_while_postgresql_is_away_everyone_is_told_and_afterwards_it_works(own: Store, admin: Engine) -> None:
    submit(own)
    with admin.connect() as connection:
        connection.execute(text("ALTER DATABASE store_trouble ALLOW_CONNECTIONS false"))
    cut_off(admin)
    for ask in (lambda: submit(own), lambda: own.read_now(jobs.live)):
        with pytest.raises(errors.Unavailable, match="at the moment"):
            ask()
    with admin.connect() as connection:
        connection.execute(text("ALTER DATABASE store_trouble ALLOW_CONNECTIONS true"))
    assert submit(own) == 2
    assert [job.id for job in own.read_now(jobs.live)] == [1, 2]


def test_two_that_open_an_empty_database_at_once_both_succeed(empty_url: str) -> None:
    gate = threading.Barrier(2)

    def open_it() -> int:
        gate.wait(30)
        store = Store.open(empty_url)
        try:
            return submit(store)
        finally:
            store.close()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda _: open_it(), range(2))) == [1, 2]
