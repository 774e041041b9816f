"""The directory of a job: made whole or not at all, kept over attempts, quick where there is only a script."""

import asyncio
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from snakepit.errors import BadRequest, SnakepitError
from snakepit.source import provision as provisioning
from snakepit.source.provision import COMPUTE, prepared, provision
from snakepit.source.sandbox import Finished, Sandbox
from snakepit.source.sweep import drop_leftovers
from tests.source.preparing import Head, needs_bubblewrap, processes_naming
from tests.source.repositories import Repository
from tests.waiting import await_until, wait_until


def test_a_script_makes_the_directory_of_the_spec(head: Head) -> None:
    assert head.prepare(script="echo hi") == []
    assert {path.name for path in head.pit().iterdir()} >= {"src", "keep", "tmp", "workers", "log", "script.sh"}
    assert (head.pit() / "script.sh").read_text() == "echo hi\n"
    assert prepared(head.root, 1)
    assert not prepared(head.root, 2)


def test_without_commands_the_script_runs_compute(head: Head) -> None:
    head.prepare()
    assert (head.pit() / "script.sh").read_text() == COMPUTE
    (head.src() / ".compute").write_text("echo computed")
    words = ["bash", str(head.pit() / "script.sh")]
    assert subprocess.run(words, cwd=head.src(), capture_output=True, text=True).stdout == "computed\n"


def test_a_script_costs_little_more_than_making_its_directory_by_hand(head: Head) -> None:
    """In time of its own: what else the machine does is not its fault."""

    async def all_of_them() -> tuple[float, float]:
        costs, by_hand = [], []
        for job in range(1, 60):
            (head.root / "pits" / str(job) / "log").mkdir(parents=True)
            start = time.thread_time()
            await provision(head.work(job, script="true"), print)
            costs.append(time.thread_time() - start)
            by_hand.append(made_by_hand(f"{head.root}/pits/by-hand-{job}"))
        return min(costs), min(by_hand)

    def made_by_hand(place: str) -> float:
        start = time.thread_time()
        for name in ("", "/log", "/src", "/tmp", "/keep", "/workers"):
            os.mkdir(place + name)  # noqa: PTH102
        for name in ("script.sh", ".prepared"):
            with open(f"{place}/{name}", "wb", buffering=0) as file:  # noqa: PTH123
                file.write(b"true\n")
        return time.thread_time() - start

    cost, by_hand = asyncio.run(all_of_them())
    assert cost < 3 * by_hand


def test_a_log_that_is_there_already_stays(head: Head) -> None:
    (head.pit() / "log").mkdir(parents=True)
    (head.pit() / "log/pit.log").write_text("[prepare] before\n")
    head.prepare(script="true")
    assert (head.pit() / "log/pit.log").read_text() == "[prepare] before\n"
    assert prepared(head.root, 1)


def test_a_retry_gets_fresh_code_and_keeps_data_log_and_results(head: Head) -> None:
    head.prepare(script="true")
    for name in ("src", "tmp", "keep", "log", "workers"):
        (head.pit() / name / "mine").write_text(name)
    assert not prepared(head.root, 1, attempt=1)
    head.prepare(script="true", attempt=1)
    assert prepared(head.root, 1, attempt=1)
    assert not prepared(head.root, 1, attempt=0)
    assert [(head.pit() / name / "mine").exists() for name in ("src", "tmp")] == [False, False]
    assert [(head.pit() / name / "mine").exists() for name in ("keep", "log", "workers")] == [True, True, True]
    assert [path.name.rpartition("-")[2] for path in (head.root / "trash").iterdir()].count("src") == 1


def test_what_a_job_put_in_the_place_of_its_directories_leads_nowhere(head: Head, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("p")
    head.prepare(script="true")
    for name in ("src", "tmp", "keep", "workers"):
        (head.pit() / name).rmdir()
        (head.pit() / name).symlink_to(outside)
    (head.pit() / "script.sh").unlink()
    (head.pit() / "script.sh").mkdir()
    (head.pit() / ".prepared").unlink()
    (head.pit() / ".prepared").symlink_to(outside / "precious")
    head.prepare(script="echo again", attempt=1)
    assert [path.name for path in outside.iterdir()] == ["precious"]
    assert (outside / "precious").read_text() == "p"
    assert (head.pit() / "script.sh").read_text() == "echo again\n"
    assert not any((head.pit() / name).is_symlink() for name in ("src", "tmp", "keep", "workers", ".prepared"))


def test_after_a_reboot_it_counts_as_not_prepared(head: Head) -> None:
    head.prepare(script="true")
    mark = head.pit() / ".prepared"
    mark.write_text(mark.read_text().replace("boot ", "boot 0"))
    assert not prepared(head.root, 1)


def test_leftovers_of_a_crash_do_not_get_into_the_job(head: Head) -> None:
    half = head.root / "pits/.prep-1/pit/src"
    half.mkdir(parents=True)
    (half / "half").write_text("x")
    head.prepare(script="true")
    assert list(head.src().iterdir()) == []


def test_continuing_copies_the_data_and_never_shares_it(either: Head) -> None:
    either.prepare(1, script="true")
    (either.pit(1) / "keep/sub").mkdir()
    (either.pit(1) / "keep/sub/model").write_text("v1")
    (either.pit(1) / "keep/link").symlink_to("sub/model")
    either.prepare(2, script="true", continues=1)
    copy = either.pit(2) / "keep/sub/model"
    assert copy.read_text() == "v1"
    assert copy.stat().st_nlink == 1
    assert (either.pit(2) / "keep/link").is_symlink()
    copy.write_text("v2")
    either.prepare(2, script="true", continues=1, attempt=1)  # a retry goes on with what it has
    assert copy.read_text() == "v2"
    assert (either.pit(1) / "keep/sub/model").read_text() == "v1"


def test_a_copy_that_takes_its_time_says_how_far_it_is(either: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    either.prepare(1, script="true")
    for number in range(300):
        (either.pit(1) / "keep" / str(number)).write_bytes(bytes(1000))
    monkeypatch.setattr(provisioning, "PROGRESS_S", 3600)
    assert either.prepare(2, script="true", continues=1) == []  # a quick one says nothing
    monkeypatch.setattr(provisioning, "PROGRESS_S", 0.001)
    looks, size_of, run = threading.Semaphore(0), provisioning._size_of, Sandbox.run

    def looked(directory: Path) -> int:
        looks.release()
        return size_of(directory)

    async def slow(box: Sandbox, argv: Sequence[str], **more: Any) -> Finished:
        """After the third look: the first was at the whole, and after the second something is said."""
        for _ in range(3):
            await asyncio.to_thread(looks.acquire)
        return await run(box, argv, **more)

    monkeypatch.setattr(provisioning, "_size_of", looked)
    monkeypatch.setattr(Sandbox, "run", slow)
    said = either.prepare(3, script="true", continues=1)
    assert re.fullmatch(r"Copying keep/ of job 1: \S+ of 300K", said[0])
    assert len(list((either.pit(3) / "keep").iterdir())) == 300


@pytest.mark.parametrize("target", ["/etc", "../../home/bert"])
def test_continuing_a_job_whose_data_is_a_link_copies_nothing_of_others(either: Head, target: str) -> None:
    (either.root / "home/bert").mkdir(parents=True)
    (either.root / "home/bert/secret").write_text("s")
    either.prepare(1, script="true")
    (either.pit(1) / "keep").rmdir()
    (either.pit(1) / "keep").symlink_to(target)
    assert either.prepare(2, script="true", continues=1) == ["Job 1 has no data to continue with"]
    assert list((either.pit(2) / "keep").iterdir()) == []


@pytest.mark.parametrize("user", ["", "..", "a/b", "../bert"])
def test_odd_user_ids_make_no_paths(head: Head, user: str) -> None:
    with pytest.raises(BadRequest):
        head.prepare(1, "archive", user)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Accepts connections and never says a word: a clone from it takes forever."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/x.git"


@pytest.mark.system
def test_preparation_ends_at_its_time_limit(either: Head, silent_server: str) -> None:
    with pytest.raises(SnakepitError, match=r"longer than the 0\.5 s"):
        either.prepare(1, "git", origin=silent_server, hash="a" * 40, time_limit_s=0.5)
    assert not prepared(either.root, 1)
    assert not either.pit(1).exists()
    assert processes_naming(str(either.root)) == []


@pytest.mark.system
def test_a_cancel_kills_every_program_and_leaves_nothing(either: Head, silent_server: str) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(provision(either.work(1, "git", origin=silent_server, hash="a" * 40), print))
        await await_until(lambda: [line for line in processes_naming(silent_server) if "remote-http" in line])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert processes_naming(silent_server) == []
    assert list((either.root / "pits").iterdir()) == []


@pytest.mark.system
@pytest.mark.parametrize("seed", range(3))
def test_cancels_at_any_moment_leave_nothing_and_the_next_one_works(either: Head, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    upstream = Repository.make(tmp_path / "upstream", {f"d{n}/f": os.urandom(2000) for n in range(50)})
    work = either.work(1, "git", origin=upstream.url, hash=upstream.head, diff=b"")

    async def cancelled_after(delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await provision(work, lambda _line: None)
        except TimeoutError:
            assert not list((either.root / "pits").iterdir())

    for _ in range(12):
        asyncio.run(cancelled_after(chance.uniform(0.001, 0.1)))
        assert not list((either.root / "pits").glob(".prep*"))
        assert processes_naming(str(either.root)) == []
        if either.pit().exists():
            subprocess.run(["rm", "-rf", str(either.pit())], check=True)
    either.prepare(1, "git", origin=upstream.url, hash=upstream.head)
    assert len(list(either.src().glob("d*/f"))) == 50


HANG = """
import asyncio, sys
from pathlib import Path
from snakepit.source.provision import Work, provision
root, url = sys.argv[1:]
asyncio.run(provision(Work(Path(root), 1, "anna", "git", origin=url, hash="a" * 40), print))
"""


@pytest.mark.system
@needs_bubblewrap
def test_a_killed_service_takes_its_programs_along(head: Head, silent_server: str) -> None:
    service = subprocess.Popen([sys.executable, "-c", HANG, str(head.root), silent_server], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: [line for line in processes_naming(silent_server) if "remote-http" in line])
    finally:
        service.kill()
        service.wait()
    wait_until(lambda: processes_naming(str(head.root)) == [])
    head.prepare(1, script="true")


FULL = """
import asyncio, sys
from pathlib import Path
from snakepit.errors import SnakepitError
from snakepit.source.provision import Work, provision
root, origin, hash = sys.argv[1:]
work = Work(Path(root), 1, "anna", "git", origin=origin, hash=hash, allow_file=True, confined=False)
try:
    asyncio.run(provision(work, print))
except SnakepitError as error:
    print(error.message)
print(sorted(path.name for path in Path(root, "pits").iterdir()))
"""


@pytest.mark.system
def test_a_full_disk_is_called_so(tmp_path: Path, data_root: Path) -> None:
    upstream = Repository.make(tmp_path / "upstream", {"big": os.urandom(1_000_000)})
    mount = 'mount -t tmpfs -o size=600k tmpfs "$1" && shift && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(data_root)]
    run = [sys.executable, "-c", FULL, str(data_root), upstream.url, upstream.head]
    done = subprocess.run([*words, *run], capture_output=True, text=True)
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no small disk can be made here: {done.stderr.strip()}")
    assert "The disk of the head is full" in done.stdout, done
    assert done.stdout.strip().endswith("[]")


@pytest.mark.system
def test_a_slow_preparation_holds_up_no_other(either: Head, silent_server: str) -> None:
    async def both() -> None:
        slow = asyncio.create_task(provision(either.work(1, "git", origin=silent_server, hash="a" * 40), print))
        await await_until(lambda: processes_naming(silent_server))
        await provision(either.work(2, script="true"), print)
        assert not slow.done()
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)

    asyncio.run(both())
    assert prepared(either.root, 2)


def test_a_preparation_under_way_is_no_leftover(head: Head, silent_server: str) -> None:
    async def swept() -> bool:
        task = asyncio.create_task(provision(head.work(1, "git", origin=silent_server, hash="a" * 40), print))
        prep = head.root / "pits/.prep-1"
        await await_until(prep.exists)
        assert drop_leftovers(head.root) == 0
        there = prep.exists()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return there

    assert asyncio.run(swept())
    (head.root / "pits/.prep-1").mkdir()
    assert drop_leftovers(head.root) == 1


@pytest.mark.system
def test_the_next_preparation_of_a_job_waits_for_one_that_is_being_broken_off(
    either: Head, silent_server: str, tmp_path: Path
) -> None:
    upstream = Repository.make(tmp_path / "upstream", {"f": "f"})

    async def both() -> None:
        first = asyncio.create_task(provision(either.work(1, "git", origin=silent_server, hash="a" * 40), print))
        await await_until(lambda: processes_naming(silent_server))
        first.cancel()
        await asyncio.sleep(0)  # it has begun to end its programs
        await provision(either.work(1, "git", origin=upstream.url, hash=upstream.head), print)
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(both())
    assert (either.src() / "f").read_text() == "f"
    assert not list((either.root / "pits").glob(".prep-*"))


def test_what_cannot_be_tidied_away_fails_no_job(head: Head) -> None:
    head.prepare(1, script="true")
    for name in ("src", "tmp"):
        (head.pit() / name).rmdir()
    (head.root / "trash").write_text("in the way")
    asyncio.run(provision(head.work(1, script="false", attempt=1, continues=99), print))
    assert prepared(head.root, 1, attempt=1)
    (head.root / "trash").unlink()
    assert drop_leftovers(head.root) == 1


def test_threads_of_preparation_end_with_it(head: Head) -> None:
    before = threading.active_count()
    with pytest.raises(SnakepitError):
        head.prepare(1, "git", origin="https://127.0.0.1:1/x", hash="a" * 40)
    wait_until(lambda: threading.active_count() <= before)
