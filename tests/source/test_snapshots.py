"""Snapshots at the head, with real repositories: kept by their jobs, checked out into src/, collected when nobody needs
them."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from snakepit.client.aside import find_repository
from snakepit.client.reaching import Here
from snakepit.client.sending import push
from snakepit.client.snapshot import Repository, Snapshot, take
from snakepit.errors import SnakepitError
from snakepit.source import snapshots
from snakepit.source.provision import provision
from snakepit.source.sweep import drop_job, empty_trash
from tests.source.preparing import Head
from tests.source.repositories import ENV
from tests.source.repositories import Repository as Real

pytestmark = pytest.mark.system  # real programs, a dozen for each test
MANY = int(os.environ.get("STRESS_JOBS", "24"))
BINARY = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def _plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def mine(tmp_path: Path) -> Real:
    real = Real.make(tmp_path / "mine", {"train.py": "print(1)\n", "x.bin": BINARY})
    real.commit({"lib/net.py": "a\r\nb\n"})
    return real


def made(root: Path, user: str = "anna") -> Real:
    cache = snapshots.repository(root, user)
    cache.mkdir(parents=True)
    real = Real(cache)
    real.git("init", "--quiet", "--bare")
    real.git("config", "receive.shallowUpdate", "true")
    return real


def sent(place: Path, cache: Real) -> Snapshot:
    repository = find_repository(place)
    assert isinstance(repository, Repository)
    snapshot = take(repository)
    push(repository, snapshot.commit, Here(str(cache.path)))
    return snapshot


def files(place: Path) -> dict[str, bytes]:
    found = (path for path in place.rglob("*") if path.is_file() and ".git" not in path.relative_to(place).parts)
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


def ask(src: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=src, env=ENV, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_src_is_a_real_checkout_of_the_very_bytes_that_borrows_nothing(either: Head, mine: Real) -> None:
    mine.write(
        {".gitattributes": "* text eol=crlf\n*.bin filter=nowhere\n", "new/x.txt": "one\ntwo\r\n", "y.bin": BINARY}
    )
    (mine.path / "run.sh").write_text("true\n")
    (mine.path / "run.sh").chmod(0o755)
    (mine.path / "link").symlink_to("train.py")
    snapshot = sent(mine.path, made(either.root))
    either.prepare(1, "snapshot", snapshot=snapshot.commit, origin="https://example.org/code.git")
    shutil.rmtree(either.root / "cache")
    src = either.src()
    assert files(src) == files(mine.path)
    assert os.access(src / "run.sh", os.X_OK)
    assert (src / "link").readlink() == Path("train.py")
    assert ask(src, "rev-parse", "HEAD") == snapshot.commit
    assert ask(src, "rev-parse", "HEAD~1") == mine.head
    assert ask(src, "status", "--porcelain") == ""
    assert ask(src, "remote", "get-url", "origin") == "https://example.org/code.git"
    assert ask(src, "fsck", "--full") == ""
    assert "train.py" in ask(src, "ls-tree", "--name-only", "HEAD~1")


def test_only_what_the_job_needs_is_copied(head: Head, mine: Real, tmp_path: Path) -> None:
    cache = made(head.root)
    other = Real.make(tmp_path / "other", {"huge.bin": os.urandom(300_000)})
    sent(other.path, cache)
    mine.commit({"old.bin": os.urandom(300_000)})
    (mine.path / "old.bin").unlink()
    mine.commit({})
    mine.commit({"one.py": "1\n"})
    head.prepare(1, "snapshot", snapshot=sent(mine.path, cache).commit)
    size = sum(path.stat().st_size for path in (head.src() / ".git/objects").rglob("*") if path.is_file())
    assert size < 100_000


def test_snapshots_of_shallow_clones_and_of_no_commit_can_be_run(head: Head, mine: Real, tmp_path: Path) -> None:
    cache = made(head.root)
    subprocess.run(["git", "clone", "-q", "--depth=1", mine.url, str(tmp_path / "shallow")], env=ENV, check=True)
    clean = sent(tmp_path / "shallow", cache)
    head.prepare(1, "snapshot", snapshot=clean.commit)
    (tmp_path / "shallow" / "new.py").write_text("1\n")
    head.prepare(2, "snapshot", snapshot=sent(tmp_path / "shallow", cache).commit)
    fresh = Real.make(tmp_path / "fresh")
    fresh.write({"a.py": "1\n"})
    head.prepare(3, "snapshot", snapshot=sent(fresh.path, cache).commit)
    assert ask(head.src(1), "rev-parse", "HEAD") == mine.head
    assert files(head.src(2)) == files(tmp_path / "shallow")
    assert files(head.src(3)) == {"a.py": b"1\n"}
    for job in (1, 2, 3):
        assert ask(head.src(job), "log", "--format=%H").split()[0] == ask(head.src(job), "rev-parse", "HEAD")


def test_a_snapshot_is_kept_by_its_job_and_dropped_with_it(head: Head, mine: Real) -> None:
    cache = made(head.root)
    mine.write({"new.py": "1\n"})
    commit = sent(mine.path, cache).commit
    assert snapshots.has(head.root, "anna", commit)
    assert not snapshots.has(head.root, "bert", commit)
    assert not snapshots.has(head.root, "anna", mine.head)
    snapshots.keep(head.root, "anna", 190, commit)
    assert cache.git("rev-parse", "refs/pit/190") == commit
    assert list(snapshots.all_kept(head.root)) == [("anna", 190)]
    snapshots.drop(head.root, "anna", 190)
    snapshots.drop(head.root, "anna", 190)
    assert snapshots.kept(head.root, "anna", 190) == ""
    assert list(snapshots.all_kept(head.root)) == []


def long_ago(path: Path) -> None:
    then = time.time() - 3 * 86400
    for each in [path, *path.rglob("*")]:
        os.utime(each, (then, then))


def test_collecting_takes_what_nobody_keeps_and_nothing_else(either: Head, mine: Real) -> None:
    cache = made(either.root)
    commits = []
    for number in range(snapshots.RECENT + 3):
        mine.write({"new.py": f"{number}\n"})
        commits.append(sent(mine.path, cache).commit)
    snapshots.keep(either.root, "anna", 1, commits[0])
    snapshots.keep(either.root, "anna", 2, commits[1])
    long_ago(cache.path)
    for age, commit in enumerate(commits):
        os.utime(cache.path / snapshots.INCOMING / commit, (age, age))
    snapshots.drop(either.root, "anna", 2)
    assert snapshots.due(either.root) == ["anna"]
    asyncio.run(snapshots.collect(either.root, "anna", either.confined))
    assert snapshots.due(either.root) == []
    there = [cache.path.exists() and _has_object(cache, commit) for commit in commits]
    assert there == [True, False, False] + [True] * snapshots.RECENT
    either.prepare(1, "snapshot", snapshot=commits[0])
    assert cache.git("fsck", "--no-dangling") == ""
    assert sent(mine.path, cache).commit == commits[-1]
    assert sorted(path.name for path in cache.path.parent.iterdir()) == [".snapshots-lock", "snapshots.git"]


def _has_object(cache: Real, commit: str) -> bool:
    return (
        subprocess.run(["git", "cat-file", "-e", commit], cwd=cache.path, env=ENV, capture_output=True).returncode == 0
    )


def test_what_was_pushed_today_is_not_collected(head: Head, mine: Real) -> None:
    cache = made(head.root)
    commits = []
    for number in range(snapshots.RECENT + 2):
        mine.write({"new.py": f"{number}\n"})
        commits.append(sent(mine.path, cache).commit)
    asyncio.run(snapshots.collect(head.root, "anna", False))
    assert all(snapshots.has(head.root, "anna", commit) and _has_object(cache, commit) for commit in commits)


class CutOff:
    """A head that goes in the middle of a push: it has named its refs, and says nothing more."""

    @contextmanager
    def reach(self, _service: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        refs = b"%s capabilities^{}\0 report-status side-band-64k\n" % (b"0" * 40)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(b"%04x%s0000" % (len(refs) + 4, refs))
            theirs.shutdown(socket.SHUT_WR)
            yield f"fd::{ours.fileno()}", (ours.fileno(),)


def test_a_push_that_broke_off_says_that_and_what_to_do(mine: Real) -> None:
    repository = find_repository(mine.path)
    assert isinstance(repository, Repository)
    with pytest.raises(SnakepitError, match=r"sent: the connection broke off\. No job was made: try again"):
        push(repository, take(repository).commit, CutOff())


def test_refs_with_slashes_in_their_names_are_forgotten_like_others_and_stop_no_collection(
    head: Head, mine: Real
) -> None:
    cache = made(head.root)
    commit = sent(mine.path, cache).commit
    for number in range(snapshots.RECENT + 1):
        mine.git("push", "--quiet", str(cache.path), f"{commit}:{snapshots.INCOMING}/some/{number}")
    long_ago(cache.path)
    asyncio.run(snapshots.collect(head.root, "anna", False))
    assert sum(not path.is_dir() for path in (cache.path / snapshots.INCOMING).rglob("*")) == snapshots.RECENT


def test_a_lock_that_goes_while_it_is_looked_at_stops_no_collection(head: Head, mine: Real) -> None:
    cache = made(head.root)
    commit = sent(mine.path, cache).commit
    (cache.path / snapshots.INCOMING / "other.lock").symlink_to("gone-by-now")
    asyncio.run(snapshots.collect(head.root, "anna", False))
    assert snapshots.has(head.root, "anna", commit)


@pytest.mark.system
def test_jobs_are_prepared_while_others_are_removed_pushed_and_collected(either: Head, mine: Real) -> None:
    cache = made(either.root)
    commits = []
    for number in range(4):
        mine.write({"new.py": f"{number}\n"})
        commits.append(sent(mine.path, cache).commit)
    going = True

    async def one(job: int) -> None:
        commit = commits[job % len(commits)]
        snapshots.offer(either.root, "anna", commit)
        await provision(either.work(job, "snapshot", snapshot=commit), lambda _line: None)
        assert (either.src(job) / "new.py").read_text() == f"{job % len(commits)}\n"
        await asyncio.to_thread(drop_job, either.root, job)
        await asyncio.to_thread(snapshots.drop, either.root, "anna", job)

    async def sweeping() -> None:
        while going:
            for user in await asyncio.to_thread(snapshots.due, either.root):
                await snapshots.collect(either.root, user, either.confined)
            await asyncio.to_thread(empty_trash, either.root, 0)

    async def all_at_once() -> None:
        nonlocal going
        sweeper = asyncio.create_task(sweeping())
        for first in range(1, MANY, 8):
            await asyncio.gather(*(one(job) for job in range(first, min(first + 8, MANY + 1))))
        going = False
        await sweeper

    asyncio.run(all_at_once())
    assert cache.git("fsck", "--no-dangling") == ""
    assert not list((either.root / "pits").iterdir())


def test_a_snapshot_goes_to_another_user_who_runs_the_job_again(either: Head, mine: Real) -> None:
    cache = made(either.root)
    made(either.root, "bert")
    mine.write({"new.py": "1\n"})
    commit = sent(mine.path, cache).commit
    snapshots.keep(either.root, "anna", 1, commit)
    asyncio.run(snapshots.bring(either.root, "anna", "bert", 1, commit, either.confined))
    shutil.rmtree(cache.path)
    either.prepare(2, "snapshot", user="bert", snapshot=commit)
    assert files(either.src(2)) == files(mine.path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_called_so_and_the_job_can_be_prepared_when_there_is_room(head: Head, mine: Real) -> None:
    cache = made(head.root)
    mine.write({"large": os.urandom(3_000_000)})
    commit = sent(mine.path, cache).commit
    (head.root / "pits").mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", head.root / "pits"], check=True)
    try:
        with pytest.raises(SnakepitError, match="The disk of the head is full"):
            head.prepare(1, "snapshot", snapshot=commit)
        assert not list((head.root / "pits").glob("[!.]*")) + list((head.root / "pits").glob(".prep-*"))
    finally:
        subprocess.run(["umount", "--lazy", head.root / "pits"], check=True)
    head.prepare(1, "snapshot", snapshot=commit)


def test_a_snapshot_that_is_not_there_is_said(head: Head, mine: Real) -> None:
    made(head.root)
    with pytest.raises(SnakepitError, match="The snapshot 0123456789ab is not on the head"):
        head.prepare(1, "snapshot", snapshot="0123456789abcdef0123456789abcdef01234567")
