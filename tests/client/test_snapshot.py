"""A snapshot holds the very bytes on disk: most tests compare the objects of its tree with the directory."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from snakepit.client import versions
from snakepit.client.aside import NoRepository, find_repository
from snakepit.client.snapshot import Concerns, Limits
from snakepit.errors import SnakepitError
from tests.client.checkouts import BINARY, contents, found, on_disk, snapped
from tests.source.repositories import ENV, LFS
from tests.source.repositories import Repository as Real
from tests.waiting import wait_until

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def state(real: Real) -> dict[str, object]:
    """All of a repository that is the user's: everything but objects and our own directory."""
    common = Path(real.git("rev-parse", "--absolute-git-dir"))
    kept = {}
    for path in sorted(common.rglob("*")):
        parts = path.relative_to(common).parts
        if parts[0] not in ("objects", "pit") and path.is_file():
            kept["/".join(parts)] = (path.read_bytes(), path.stat().st_mtime_ns)
    return {**kept, "stash": real.git("stash", "list"), "head": real.git("symbolic-ref", "-q", "HEAD")}


def test_a_clean_checkout_is_its_own_commit(mine: Real) -> None:
    snapshot = snapped(mine.path)
    assert (snapshot.commit, snapshot.diff_loc, snapshot.notes) == (mine.head, 0, ())


def test_everything_on_disk_is_in_it_whatever_git_thinks_of_it(mine: Real) -> None:
    mine.commit({".gitignore": "*.log\n"})
    mine.write({"staged.py": "y\n", "train.py": "print(2)\n", "old": BINARY[::-1]})
    mine.git("add", "staged.py")
    mine.write({"staged.py": "z\n", "dir/untracked.bin": BINARY, "odd name ü\n.txt": "o\n", "noise.log": "n\n"})
    (mine.path / "lib/net.py").unlink()
    (mine.path / "run.sh").write_text("true\n")
    (mine.path / "run.sh").chmod(0o755)
    (mine.path / "train.py").chmod(0o755)
    (mine.path / "link").symlink_to("/nowhere/at all")
    (mine.path / "dirlink").symlink_to("dir")
    (mine.path / os.fsdecode(b"latin-\xe9\xff.txt")).write_bytes(b"\xe9")
    snapshot = snapped(mine.path)
    assert contents(mine, snapshot.commit) == on_disk(mine.path, "noise.log")
    assert mine.git("rev-parse", f"{snapshot.commit}^") == mine.head == snapshot.repository.head


def test_the_same_files_on_the_same_commit_are_the_same_snapshot(mine: Real) -> None:
    mine.write({"new.py": "x\n"})
    first = snapped(mine.path).commit
    mine.write({"new.py": "y\n"})
    other = snapped(mine.path).commit
    mine.write({"new.py": "x\n"})
    assert first != other
    assert snapped(mine.path).commit == first


def test_changed_lines_are_counted_against_head(mine: Real) -> None:
    mine.write({"train.py": "print(2)\nprint(3)\n", "new.txt": "1\n2\n", "b.bin": BINARY})
    assert snapped(mine.path).diff_loc == 1 + 2 + 2


def test_head_index_refs_stash_and_hooks_stay_untouched(mine: Real) -> None:
    mine.write({"train.py": "stashed\n"})
    mine.git("stash")
    hook = mine.path / ".git/hooks"
    hook.mkdir(exist_ok=True)
    for name in ("pre-commit", "post-commit", "pre-push", "reference-transaction", "post-index-change"):
        (hook / name).write_text("#!/bin/sh\ntouch ../hooked hooked\nexit 1\n")
        (hook / name).chmod(0o755)
    mine.write({"train.py": "print(2)\n", "staged": "s\n", "new.txt": "new\n"})
    mine.git("-c", "core.hooksPath=/dev/null", "add", "staged")
    before = state(mine)
    snapshot = snapped(mine.path)
    assert state(mine) == before
    assert b"hooked" not in contents(mine, snapshot.commit)
    versions.keep(snapshot.repository, "http://head:8080", 190, snapshot.commit)
    assert versions.kept(snapshot.repository) == {"http://head:8080": {190: snapshot.commit}}
    assert not (mine.path / "hooked").exists()
    versions.drop(snapshot.repository, {"http://head:8080": {190: snapshot.commit}})
    assert versions.kept(snapshot.repository) == {}


def test_no_filter_and_no_line_end_conversion_has_a_say(mine: Real) -> None:
    mine.git("config", "core.autocrlf", "true")
    mine.git("config", "filter.shout.clean", "tr a-z A-Z")
    mine.commit(
        {
            ".gitattributes": "*.txt text\n*.up filter=shout\n*.id ident\n*.u16 working-tree-encoding=UTF-16\n",
            "a.txt": "one\r\ntwo\r\n",
            "b.up": "quiet\n",
            "c.id": "$Id: none$\n",
            "d.u16": "zwei\n".encode("utf-16"),
            "auto": "x\r\ny\r\n",
        }
    )
    assert contents(mine, "HEAD")[b"b.up"][1] == b"QUIET\n"
    assert contents(mine, snapped(mine.path).commit) == on_disk(mine.path)
    mine.write({"a.txt": "three\r\nfour\n", "b.up": "still quiet\n"})
    assert contents(mine, snapped(mine.path).commit) == on_disk(mine.path)


def test_line_ends_alone_are_no_changed_lines(mine: Real) -> None:
    mine.git("config", "core.autocrlf", "true")
    mine.commit({"a.txt": "one\r\ntwo\r\n"})
    mine.write({"train.py": "print(2)\n"})
    assert snapped(mine.path).diff_loc == 2


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="Git LFS is not installed")
def test_large_files_are_there_with_their_contents_and_missing_ones_are_named(mine: Real) -> None:
    mine.commit({".gitattributes": "*.bin filter=lfs -text\n", "m/a.bin": BINARY, "m/b.bin": BINARY[::-1]}, *LFS)
    pointer = contents(mine, "HEAD")[b"m/b.bin"][1]
    assert pointer.startswith(b"version https://git-lfs")
    snapshot = snapped(mine.path)
    assert contents(mine, snapshot.commit)[b"m/a.bin"][1] == BINARY
    assert snapshot.notes == ()
    mine.write({"m/b.bin": pointer})
    (note,) = snapped(mine.path).notes
    assert note.startswith("m/b.bin: only the Git LFS pointer is here")


def test_submodules_come_as_the_files_they_are_nested_and_dirty(mine: Real, tmp_path: Path) -> None:
    deep = Real.make(tmp_path / "deep", {"deep.py": "1\n"})
    lib = Real.make(tmp_path / "lib", {"lib.py": "1\n", ".gitignore": "*.o\n"})
    lib.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", deep.url, "deep")
    lib.commit({})
    mine.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", lib.url, "vendor/lib")
    mine.git("-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init", "--recursive")
    mine.commit({})
    mine.write({"vendor/lib/lib.py": "dirty\n", "vendor/lib/deep/new.py": "new\n", "vendor/lib/x.o": "object\n"})
    snapshot = snapped(mine.path)
    assert contents(mine, snapshot.commit) == on_disk(mine.path, "vendor/lib/x.o")
    mine.write({"vendor/lib/deep/new.py": "newer\n"})
    (mine.path / "vendor/lib/lib.py").unlink()
    assert contents(mine, snapped(mine.path).commit) == on_disk(mine.path, "vendor/lib/x.o")
    assert snapped(mine.path).diff_loc == 0


def test_a_submodule_that_is_not_checked_out_is_named_and_a_broken_one_refused(mine: Real, tmp_path: Path) -> None:
    lib = Real.make(tmp_path / "lib", {"lib.py": "1\n"})
    mine.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", lib.url, "lib2")
    mine.commit({})
    mine.git("submodule", "deinit", "-q", "--force", "lib2")
    assert snapped(mine.path).notes == ("the submodule lib2 is not checked out here, so it is empty in the job",)
    mine.write({"lib2/.git": "gitdir: ../nowhere\n"})
    with pytest.raises(SnakepitError, match="the repository in lib2 is broken"):
        snapped(mine.path)
    mine.write({".pitignore": "lib2/\n"})
    assert b".pitignore" in contents(mine, snapped(mine.path).commit)


def test_another_repository_inside_comes_as_plain_files(mine: Real) -> None:
    Real.make(mine.path / "inner", {"x.py": "1\n"})
    snapshot = snapped(mine.path)
    assert contents(mine, snapshot.commit) == on_disk(mine.path)


def test_pitignore_leaves_out_tracked_files_too_and_takes_ignored_ones_back(mine: Real) -> None:
    mine.commit({".gitignore": "build/\n*.ckpt\n", "data/big.bin": BINARY, "data/small": "s\n"})
    mine.write(
        {".pitignore": "*.bin\n/scratch/\n!best.ckpt\n", "scratch/x": "x\n", "best.ckpt": "b\n", "old.ckpt": "o"}
    )
    mine.write({"build/y": "y\n", "lib/.pitignore": "net.py\n"})
    names = set(contents(mine, snapped(mine.path).commit))
    assert names == {
        b".gitignore",
        b".pitignore",
        b"best.ckpt",
        b"data/small",
        b"lib/.pitignore",
        b"old",
        b"train.py",
    }


def test_what_is_ignored_from_now_on_is_left_out_from_now_on(mine: Real) -> None:
    mine.write({"data.bin": BINARY})
    assert b"data.bin" in contents(mine, snapped(mine.path).commit)
    mine.write({".gitignore": "data.bin\n"})
    assert b"data.bin" not in contents(mine, snapped(mine.path).commit)


def test_the_users_token_and_our_uploads_are_never_in_it(mine: Real) -> None:
    mine.commit({"sub/.pituser.txt": "tilman\ntoken\n"})
    mine.write({".pituser.txt": "token\n", ".job-upload.tar.gz": "x", "sub/.job-upload.json": "y"})
    assert set(contents(mine, snapped(mine.path).commit)) == {b"train.py", b"lib/net.py", b"old"}


def test_a_repository_without_a_commit_can_be_sent(tmp_path: Path) -> None:
    mine = Real.make(tmp_path / "fresh")
    assert snapped(mine.path).tree == EMPTY_TREE
    mine.write({"a.py": "1\n2\n"})
    snapshot = snapped(mine.path)
    assert contents(mine, snapshot.commit) == on_disk(mine.path)
    assert (snapshot.diff_loc, snapshot.repository.head, snapshot.repository.shown) == (2, "", "")


def test_a_detached_head_and_a_branch_with_slashes_are_as_good_as_any(mine: Real) -> None:
    mine.git("checkout", "-q", "-b", "feature/deep/er")
    mine.write({"a": "1\n"})
    first = snapped(mine.path).commit
    mine.git("checkout", "-q", "--detach")
    assert snapped(mine.path).commit == first


def test_worktrees_have_snapshots_of_their_own(mine: Real, tmp_path: Path) -> None:
    mine.git("worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    other = Real(tmp_path / "tree")
    other.write({"only/here.py": "1\n"})
    mine.write({"only/there.py": "1\n"})
    assert contents(mine, snapped(other.path).commit) == on_disk(other.path)
    assert contents(mine, snapped(mine.path).commit) == on_disk(mine.path)


def test_called_in_a_subdirectory_it_is_of_the_whole_checkout(mine: Real) -> None:
    mine.write({"lib/new.py": "n\n", "top.py": "t\n"})
    snapshot = snapped(mine.path / "lib")
    assert snapshot.repository.subdirectory == "lib"
    assert contents(mine, snapshot.commit) == on_disk(mine.path)


def test_a_directory_replaced_by_a_link_is_a_link(mine: Real, tmp_path: Path) -> None:
    snapped(mine.path)
    (mine.path / "lib").rename(tmp_path / "moved")
    (mine.path / "lib").symlink_to(tmp_path / "moved")
    (mine.path / "train.py").unlink()
    mine.write({"train.py/inside": "now a directory\n"})
    (mine.path / "old").unlink()
    os.mkfifo(mine.path / "old")
    assert contents(mine, snapped(mine.path).commit) == {
        b"lib": ("120000", os.fsencode(tmp_path / "moved")),
        b"train.py/inside": ("100644", b"now a directory\n"),
    }


def test_the_shown_address_has_no_credentials(mine: Real) -> None:
    mine.git("remote", "add", "origin", "https://tilman:secret-token@example.org/code.git")
    assert (found(mine.path).shown, found(mine.path).remote) == ("https://example.org/code.git", "origin")
    mine.git("remote", "add", "up", "../elsewhere")
    mine.git("config", "branch.main.remote", "up")
    assert (found(mine.path).shown, found(mine.path).remote) == ("", "up")


def test_outside_a_checkout_there_is_none(tmp_path: Path) -> None:
    assert find_repository(tmp_path) == NoRepository("this is not a git checkout")


# ---------------------------------------------------------------------------------------------------------- asked about


def refuse(concerns: Concerns) -> None:
    raise SnakepitError(f"{concerns.secrets} {[name for name, _ in concerns.large]} {concerns.too_much}")


def test_new_secrets_are_asked_about_before_anything_is_read(mine: Real) -> None:
    mine.commit({"tests/cert.pem": "committed on purpose\n"})
    mine.write(
        {".env": "KEY=1\n", "keys/id_rsa": "k", "keys/id_rsa.pub": "k", "id_mapping.py": "x", ".env.example": ""}
    )
    with pytest.raises(SnakepitError, match=r"\('\.env', 'keys/id_rsa'\)"):
        snapped(mine.path, review=refuse)
    assert not (mine.path / ".git/pit/index").exists()


def test_what_was_agreed_to_is_not_asked_again_but_said(mine: Real) -> None:
    mine.write({".env": "KEY=1\n"})
    snapped(mine.path)
    assert snapped(mine.path, review=refuse).notes == (".env goes along, as before (it looks like a secret)",)
    mine.write({".env": "KEY=another\n"})
    with pytest.raises(SnakepitError, match=r"\.env"):
        snapped(mine.path, review=refuse)


def test_large_files_and_too_much_of_them_are_asked_about_unless_committed(mine: Real) -> None:
    mine.commit({"committed.bin": BINARY})
    snapped(mine.path, review=refuse, limits=Limits(file_bytes=10_000))
    mine.write({"new.bin": BINARY})
    with pytest.raises(SnakepitError, match=r"\['new.bin'\] False"):
        snapped(mine.path, review=refuse, limits=Limits(file_bytes=10_000))
    with pytest.raises(SnakepitError, match=r"\[\] True"):
        snapped(mine.path, review=refuse, limits=Limits(total_bytes=10_000))


# ------------------------------------------------------------------------------------------------------------- trouble


def test_objects_that_were_collected_are_made_again(mine: Real) -> None:
    mine.write({"dir/new.py": "x\n"})
    first = snapped(mine.path)
    mine.git("gc", "--quiet", "--prune=now")
    assert subprocess.run(["git", "cat-file", "-e", first.commit], cwd=mine.path, env=ENV).returncode != 0
    mine.write({"other.py": "y\n"})
    assert contents(mine, snapped(mine.path).commit) == on_disk(mine.path)


def test_an_edit_within_the_same_tick_of_the_clock_is_seen(mine: Real) -> None:
    for turn in range(30):
        mine.write({"train.py": f"print({turn % 10})\n"})
        assert contents(mine, snapped(mine.path).commit)[b"train.py"][1] == f"print({turn % 10})\n".encode()


def test_two_at_once_do_not_disturb_each_other(mine: Real) -> None:
    mine.write({f"many/{number}.py": f"{number}\n" for number in range(300)})
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.append(snapped(mine.path).commit)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4
    assert len(set(got)) == 1
    assert contents(mine, got[0]) == on_disk(mine.path)
    assert not list((mine.path / ".git/pit").glob("work-*"))


TAKE = """
import pathlib, sys
from snakepit.client.snapshot import find_repository, take
take(find_repository(pathlib.Path(sys.argv[1])))
"""


@pytest.mark.system
def test_killed_at_any_moment_it_leaves_everything_as_it_was_and_nothing_in_the_way(mine: Real) -> None:
    mine.write({f"many/{number}.py": f"{number}\n" * 50 for number in range(500)})
    before = state(mine)
    for step in range(25):
        process = subprocess.Popen([sys.executable, "-c", TAKE, str(mine.path)], start_new_session=True, env=os.environ)
        threading.Event().wait(0.02 * step)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        mine.write({"train.py": f"print({step})\n"})
    assert state(mine) == before
    assert contents(mine, snapped(mine.path).commit) == on_disk(mine.path)
    wait_until(lambda: not list((mine.path / ".git/pit").glob("work-*")))
    mine.git("add", "--all")
    mine.git("commit", "--quiet", "--message=still works")
