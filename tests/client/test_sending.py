"""Snapshots on their way to the head, and the versions of jobs that stay findable here."""

import subprocess
from pathlib import Path

import pytest

from snakepit.client import versions
from snakepit.client.reaching import Here
from snakepit.client.sending import push
from snakepit.client.snapshot import Snapshot
from snakepit.errors import SnakepitError
from tests.client.checkouts import BINARY, contents, found, on_disk, snapped
from tests.source.repositories import ENV
from tests.source.repositories import Repository as Real


@pytest.fixture
def head(tmp_path: Path) -> Real:
    (tmp_path / "head.git").mkdir()
    real = Real(tmp_path / "head.git")
    real.git("init", "--quiet", "--bare")
    real.git("config", "receive.shallowUpdate", "true")
    real.git("config", "receive.fsckObjects", "true")
    real.git("config", "receive.hideRefs", "refs")
    real.git("config", "--add", "receive.hideRefs", "!refs/pit/incoming")
    return real


def send(snapshot: Snapshot, head: Real) -> None:
    push(snapshot.repository, snapshot.commit, Here(str(head.path)))


def test_what_arrives_is_what_was_on_disk(mine: Real, head: Real) -> None:
    mine.write({"new.bin": BINARY})
    snapshot = snapped(mine.path)
    send(snapshot, head)
    send(snapshot, head)
    assert contents(head, snapshot.commit) == on_disk(mine.path)
    assert head.git("for-each-ref", "--format=%(refname)") == f"refs/pit/incoming/{snapshot.commit}"


def test_a_full_disk_of_the_head_is_called_so(mine: Real, head: Real) -> None:
    hook = head.path / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'fatal: sha1 file write error. Out of diskspace' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(SnakepitError, match="the disk of the head is full"):
        send(snapped(mine.path), head)
    hook.unlink()
    send(snapped(mine.path), head)


@pytest.mark.parametrize("options", [("--depth=1",), ("--filter=blob:none",), ("--depth=2", "--filter=blob:none")])
def test_shallow_and_partial_clones_can_be_sent_again_and_again(
    mine: Real, head: Real, tmp_path: Path, options: tuple[str, ...]
) -> None:
    mine.commit({"second": "2\n"})
    mine.commit({"third": "3\n"})
    mine.git("config", "uploadpack.allowFilter", "true")
    subprocess.run(["git", "clone", "-q", *options, mine.url, str(tmp_path / "clone")], env=ENV, check=True)
    clone = Real(tmp_path / "clone")
    send(snapped(clone.path), head)
    for text in ("x\n", "y\n"):
        clone.write({"new.py": text})
        snapshot = snapped(clone.path)
        send(snapshot, head)
        assert contents(head, snapshot.commit) == on_disk(clone.path)
    assert head.git("fsck", "--no-dangling") == ""


def test_pushes_of_a_user_with_strange_settings_work_too(mine: Real, head: Real) -> None:
    for name, value in (
        ("push.gpgSign", "true"),
        ("push.recurseSubmodules", "check"),
        ("push.followTags", "true"),
        ("url.ssh://nowhere.invalid/.insteadOf", str(head.path.parent)),
    ):
        mine.git("config", name, value)
    mine.write({"new.bin": BINARY})
    snapshot = snapped(mine.path)
    send(snapshot, head)
    assert contents(head, snapshot.commit) == on_disk(mine.path)


# ---------------------------------------------------------------------------------------------------- kept for the jobs


@pytest.mark.parametrize("other", ["https://lab.example:8443/pit", "http://[::1]:8080", "http://head.lock"])
def test_jobs_of_two_clusters_with_one_number_are_kept_apart(mine: Real, other: str) -> None:
    repository, head = found(mine.path), "http://head:8080"
    first = mine.head
    mine.commit({"second": "2\n"})
    second = mine.head
    versions.keep(repository, head, 5, first)
    versions.keep(repository, other, 5, second)
    assert mine.git("rev-parse", "refs/pit/5") == second
    assert versions.find(repository, head, 5) == (first, versions.ref_of(5, head))
    assert versions.find(repository, other, 5) == (second, versions.ref_of(5, other))
    assert versions.find(repository, "", 5) == (second, "refs/pit/5")
    versions.drop(repository, {head: {5: first}})
    assert versions.kept(repository) == {other: {5: second}}
    assert mine.git("rev-parse", "refs/pit/5") == second
    versions.drop(repository, versions.kept(repository))
    assert mine.git("for-each-ref", "refs/pit") == ""


def test_a_version_that_somebody_fetched_by_hand_is_found_and_of_unknown_origin(mine: Real) -> None:
    repository, head = found(mine.path), "http://head:8080"
    mine.git("update-ref", "refs/pit/7", mine.head)
    assert versions.kept(repository) == {"": {7: mine.head}}
    assert versions.find(repository, head, 7) == (mine.head, "refs/pit/7")
    assert versions.find(repository, head, 8) is None
    versions.drop(repository, versions.kept(repository))
    assert mine.git("for-each-ref", "refs/pit") == ""
