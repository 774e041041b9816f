"""Throwing away: nothing outside is touched, nothing inside withstands."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from snakepit.source.layout import held
from snakepit.source.sweep import (
    drop_job,
    drop_leftovers,
    drop_old_caches,
    drop_src,
    drop_user,
    empty_trash,
    remove_tree,
    to_trash,
)
from tests.source.preparing import Head


def test_what_is_thrown_away_goes_when_it_is_old_enough(data_root: Path) -> None:
    (data_root / "thing").mkdir()
    (data_root / "thing/file").write_text("x")
    trashed = to_trash(data_root, data_root / "thing")
    assert trashed is not None
    assert (trashed / "file").read_text() == "x"
    assert not (data_root / "thing").exists()
    assert empty_trash(data_root, older_than_s=3600) == 0
    assert empty_trash(data_root, older_than_s=-1) == 1
    assert list((data_root / "trash").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
def test_a_disk_of_its_own_has_a_trash_of_its_own(head: Head) -> None:
    pits = head.root / "pits"
    pits.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", pits], check=True)
    try:
        head.prepare(1, script="true")
        (head.src() / "old").write_text("old")
        head.prepare(1, script="true", attempt=1)
        assert list(head.src().iterdir()) == []
        drop_job(head.root, 1)
        assert not head.pit().exists()
        assert empty_trash(head.root, 3600) == 0
        assert empty_trash(head.root, -1) > 1
        assert [path.name for path in pits.rglob("*")] == [".trash"]
    finally:
        subprocess.run(["umount", "--lazy", pits], check=True)


def test_throwing_away_nothing_is_fine(data_root: Path) -> None:
    assert to_trash(data_root, data_root / "absent") is None
    assert empty_trash(data_root / "absent", 0) == 0
    remove_tree(data_root / "absent")
    drop_src(data_root, 7)
    drop_job(data_root, 7)


def test_links_are_removed_and_never_followed(data_root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("p")
    tree = data_root / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    (tree / "sub").mkdir()
    (tree / "sub/link").symlink_to(outside / "precious")
    (data_root / "toplink").symlink_to(outside)
    remove_tree(tree)
    remove_tree(data_root / "toplink")
    moved = to_trash(data_root, data_root / "toplink2")
    assert moved is None
    assert (outside / "precious").read_text() == "p"
    assert not tree.exists()


def test_a_tree_thousands_of_directories_deep_goes(data_root: Path) -> None:
    handle = os.open(data_root, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=handle)
        (below, handle) = (handle, os.open("d", os.O_RDONLY, dir_fd=handle))
        os.close(below)
    os.close(handle)
    remove_tree(data_root / "d")
    assert list(data_root.iterdir()) == []


BASE_PYTHON = str(Path(sys.base_prefix) / "bin/python3")
REMOVE = (
    "import sys; from pathlib import Path; from snakepit.source.sweep import remove_tree as r; r(Path(sys.argv[1]))"
)


def test_read_only_and_unreadable_directories_go_for_an_ordinary_user_too(
    ordinary_root: Path, ordinary: dict[str, Any]
) -> None:
    tree = ordinary_root / "tree"
    (tree / "a/b/c").mkdir(parents=True)
    (tree / "a/b/c/file").write_text("x")
    for path in (tree / "a/b/c/file", tree / "a/b/c", tree / "a/b", tree / "a", tree):
        if os.getuid() == 0:
            os.chown(path, 65534, 65534)
        path.chmod(0o000)
    done = subprocess.run([BASE_PYTHON, "-c", REMOVE, str(tree)], capture_output=True, **ordinary)
    assert done.returncode == 0, done.stderr.decode()
    assert not tree.exists()


def test_after_keep_src_the_data_the_log_and_the_results_stay(head: Head) -> None:
    head.prepare(script="true")
    drop_src(head.root, 1)
    assert {path.name for path in head.pit().iterdir()} == {"keep", "log", "workers", "script.sh", ".prepared"}
    assert empty_trash(head.root, older_than_s=3600) == 2  # at once, however young


def test_a_removed_user_leaves_a_home_in_the_trash_and_no_cache(data_root: Path) -> None:
    for name in ("home/anna", "home/bert", "cache/anna", "cache/bert"):
        (data_root / name).mkdir(parents=True)
    drop_user(data_root, "anna")
    assert sorted(path.name for path in data_root.glob("*/*") if path.parent.name != "trash") == ["bert", "bert"]
    assert len(list((data_root / "trash").iterdir())) == 2
    empty_trash(data_root, older_than_s=3600)
    assert len(list((data_root / "trash").iterdir())) == 1


@pytest.mark.parametrize("count", [0, 3])
def test_leftovers_of_a_crash_are_removed_at_the_start(data_root: Path, count: int) -> None:
    for number in range(count):
        (data_root / f"pits/.prep-{number}/pit/src").mkdir(parents=True)
    (data_root / "pits/7").mkdir(parents=True)
    assert drop_leftovers(data_root) == count
    assert [path.name for path in (data_root / "pits").iterdir()] == ["7"]


def test_caches_that_nobody_used_for_long_go(data_root: Path) -> None:
    for name in ("cache/anna/old", "cache/anna/new", "cache/bert/busy"):
        (data_root / name).mkdir(parents=True)
        (data_root / f"{name}.lock").touch()
    os.utime(data_root / "cache/anna/old.lock", (0, 0))
    os.utime(data_root / "cache/bert/busy.lock", (0, 0))
    with held(data_root / "cache/bert/busy.lock") as mine:
        assert mine
        assert drop_old_caches(data_root, unused_s=3600) == 1
    assert sorted(path.name for path in data_root.glob("cache/*/*")) == ["busy", "busy.lock", "new", "new.lock"]
    assert drop_old_caches(data_root / "absent", unused_s=0) == 0


def test_a_lock_that_was_removed_meanwhile_locks_nothing(data_root: Path) -> None:
    lock = data_root / "x.lock"
    with held(lock) as mine:
        assert mine
        with held(lock) as theirs:
            assert not theirs
        lock.unlink()
        with held(lock) as another:
            assert another


def test_two_who_remove_the_same_tree_both_succeed(tmp_path: Path) -> None:
    for number in range(400):
        place = tmp_path / "tree" / str(number % 20) / "deep"
        place.mkdir(parents=True, exist_ok=True)
        (place / str(number)).write_text("x")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(remove_tree, [tmp_path / "tree"] * 4))
    assert not (tmp_path / "tree").exists()
