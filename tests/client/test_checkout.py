"""A checkout described for the head: the test of each is that origin + hash + diff gives the files on disk again."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from snakepit.client.checkout import Checkout, NoCheckout, describe
from snakepit.errors import TooLarge
from tests.client.checkouts import BINARY
from tests.source.repositories import ENV, LFS, Repository


@pytest.fixture
def upstream(tmp_path: Path) -> Repository:
    return Repository.make(tmp_path / "upstream", {"train.py": "print(1)\n", "lib/net.py": "a\nb\nc\n", "old": BINARY})


@pytest.fixture
def mine(upstream: Repository, tmp_path: Path) -> Repository:
    return upstream.clone(tmp_path / "mine")


def described(repository: Repository, subdirectory: str = "") -> Checkout:
    checkout = describe(repository.path / subdirectory)
    assert isinstance(checkout, Checkout), checkout
    return checkout


def rebuilt(checkout: Checkout, place: Path) -> dict[str, bytes]:
    """What somebody gets who fetches the hash and applies the diff."""
    other = Repository(place)
    place.mkdir()
    other.git("clone", "--quiet", checkout.origin, ".")
    other.git("checkout", "--quiet", "--detach", checkout.hash)
    if checkout.diff:
        subprocess.run(["git", "apply", "-"], cwd=place, input=checkout.diff, env=ENV, check=True)
    return files(place)


def files(place: Path) -> dict[str, bytes]:
    found = (path for path in place.rglob("*") if path.is_file() and ".git" not in path.relative_to(place).parts)
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


def test_a_clean_checkout_is_its_commit_and_no_diff(mine: Repository, upstream: Repository) -> None:
    checkout = described(mine)
    assert (checkout.hash, checkout.diff, checkout.diff_loc, checkout.remote) == (upstream.head, b"", 0, "origin")
    assert checkout.origin == checkout.origin_shown == upstream.url


def test_everything_on_disk_arrives_whatever_git_thinks_of_it(mine: Repository, tmp_path: Path) -> None:
    mine.write({".gitignore": "*.log\n"})
    mine.commit({"unpushed.py": "x\n", ".gitignore": "*.log\n"})
    mine.write({"staged.py": "y\n", "train.py": "print(2)\n", "old": BINARY[::-1]})
    mine.git("add", "staged.py")
    mine.write({"staged.py": "z\n", "dir/untracked.bin": BINARY, "odd name ü.txt": "o\n", "noise.log": "n\n"})
    (mine.path / "lib/net.py").unlink()
    got = rebuilt(described(mine), tmp_path / "other")
    assert got == {name: content for name, content in files(mine.path).items() if name != "noise.log"}
    assert got["old"] == BINARY[::-1]
    assert "lib/net.py" not in got


def test_the_count_of_lines_is_that_of_numstat(mine: Repository) -> None:
    mine.write({"train.py": "print(2)\nprint(3)\n", "new.txt": "1\n2\n", "b.bin": BINARY})
    assert described(mine).diff_loc == 1 + 2 + 2


def test_index_refs_and_objects_stay_untouched(mine: Repository) -> None:
    mine.write({"train.py": "print(2)\n", "new.txt": "new\n"})
    mine.git("add", "train.py")

    def traces() -> dict[str, str]:
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (mine.path / ".git").rglob("*")
            if path.is_file()
        }

    before = traces()
    assert described(mine).diff
    assert traces() == before


def test_it_works_from_a_subdirectory_and_says_which(mine: Repository, tmp_path: Path) -> None:
    mine.write({"top.txt": "t\n"})
    checkout = described(mine, "lib")
    assert checkout.subdirectory == "lib"
    assert "top.txt" in rebuilt(checkout, tmp_path / "other")


def test_branch_names_may_contain_slashes(mine: Repository) -> None:
    mine.git("checkout", "--quiet", "-b", "feature/deep/net")
    head = mine.commit({"f.py": "f\n"})
    mine.git("push", "--quiet", "--set-upstream", "origin", "feature/deep/net")
    checkout = described(mine)
    assert (checkout.hash, checkout.diff) == (head, b"")


def test_without_an_upstream_the_default_branch_of_origin_counts(mine: Repository, upstream: Repository) -> None:
    mine.git("checkout", "--quiet", "-b", "own")
    mine.commit({"f.py": "f\n"})
    checkout = described(mine)
    assert checkout.hash == upstream.head
    assert b"f.py" in checkout.diff


def test_a_local_branch_as_upstream_is_no_remote(mine: Repository, upstream: Repository) -> None:
    mine.git("checkout", "--quiet", "-b", "own", "--track", "main")
    assert described(mine).hash == upstream.head


def test_an_upstream_that_went_ahead_gives_the_commit_that_is_here(
    mine: Repository, upstream: Repository, tmp_path: Path
) -> None:
    base = mine.head
    upstream.commit({"train.py": "print('theirs')\n"})
    mine.git("fetch", "--quiet")
    mine.write({"new.txt": "n\n"})
    checkout = described(mine)
    assert checkout.hash == base
    assert rebuilt(checkout, tmp_path / "other")["train.py"] == b"print(1)\n"


def test_any_remote_branch_with_an_ancestor_will_do(tmp_path: Path) -> None:
    upstream = Repository.make(tmp_path / "upstream", {"a": "a\n"}, branch="odd/name")
    mine = Repository.make(tmp_path / "mine")
    mine.git("remote", "add", "lab/server", upstream.url)
    mine.git("fetch", "--quiet", "lab/server")
    mine.git("checkout", "--quiet", "--no-track", "-b", "work", "lab/server/odd/name")
    mine.commit({"b": "b\n"})
    checkout = described(mine)
    assert (checkout.remote, checkout.hash, checkout.origin) == ("lab/server", upstream.head, upstream.url)


def test_a_detached_head_works(mine: Repository, upstream: Repository) -> None:
    mine.git("checkout", "--quiet", "--detach")
    assert described(mine).hash == upstream.head


def test_a_worktree_is_described_like_any_checkout(mine: Repository, tmp_path: Path) -> None:
    mine.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    side = Repository(tmp_path / "side")
    side.write({"new.txt": "n\n"})
    assert rebuilt(described(side), tmp_path / "other") == files(side.path)
    assert described(mine).diff == b""


def test_a_bare_repository_is_no_checkout(upstream: Repository) -> None:
    answer = describe(upstream.path / ".git")
    assert isinstance(answer, NoCheckout)
    assert "work tree" in answer.reason


def test_what_cannot_be_fetched_is_said_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert describe(tmp_path / "plain") == NoCheckout("this is not a git checkout")
    empty = Repository.make(tmp_path / "empty")
    assert describe(empty.path) == NoCheckout("this checkout has no commit yet")
    lonely = Repository.make(tmp_path / "lonely", {"a": "a"})
    assert describe(lonely.path) == NoCheckout("this checkout has no remote")
    lonely.git("remote", "add", "origin", "https://example.org/x.git")
    answer = describe(lonely.path)
    assert isinstance(answer, NoCheckout)
    assert "fetch or push" in answer.reason


@pytest.mark.parametrize(
    ("address", "sent", "shown"),
    [
        ("git@github.com:mozilla/snakepit.git", "https://github.com/mozilla/snakepit.git", None),
        ("git@gitlab.com:a/b.git", "git@gitlab.com:a/b.git", None),
        ("https://me:s3cret@example.org/x.git", "https://me:s3cret@example.org/x.git", "https://example.org/x.git"),
        ("ssh://git@example.org:2222/x.git", "ssh://git@example.org:2222/x.git", None),
    ],
)
def test_addresses_are_sent_as_the_head_can_use_them(
    mine: Repository, address: str, sent: str, shown: str | None
) -> None:
    mine.git("remote", "set-url", "origin", address)
    checkout = described(mine)
    assert (checkout.origin, checkout.origin_shown) == (sent, shown or sent)
    assert "s3cret" not in repr(checkout)


def test_tokens_and_uploads_are_never_sent(mine: Repository, tmp_path: Path) -> None:
    secrets: dict[str, str | bytes] = {
        ".pituser.txt": "token\n",
        "lib/.pituser.txt": "token\n",
        ".job-upload.tar.gz": "x",
    }
    mine.write(secrets)
    assert described(mine).diff == b""
    mine.commit(secrets)
    assert described(mine).diff == b""


def test_the_settings_of_the_user_do_not_change_the_diff(mine: Repository, tmp_path: Path) -> None:
    hook = mine.path / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
    hook.chmod(0o755)
    settings = "diff.noprefix=true diff.mnemonicPrefix=true color.ui=always diff.external=/bin/false diff.context=0"
    for setting in (*settings.split(), "core.quotePath=false", "diff.submodule=log"):
        mine.git("config", *setting.split("="))
    mine.write({"lib/net.py": "a\nB\nc\n"})
    assert rebuilt(described(mine), tmp_path / "other")["lib/net.py"] == b"a\nB\nc\n"
    assert not (tmp_path / "hook-ran").exists()


def test_sparse_and_conflicting_checkouts_go_as_they_lie_there(mine: Repository, tmp_path: Path) -> None:
    mine.git("checkout", "--quiet", "-b", "other")
    mine.commit({"train.py": "print('other')\n"})
    mine.git("checkout", "--quiet", "main")
    mine.commit({"train.py": "print('main')\n"})
    subprocess.run(["git", "merge", "other"], cwd=mine.path, env=ENV, capture_output=True)
    assert b"<<<<<<<" in rebuilt(described(mine), tmp_path / "conflict")["train.py"]
    mine.git("reset", "--quiet", "--hard", "origin/main")
    mine.git("sparse-checkout", "set", "lib")
    assert described(mine).diff == b""


def test_a_repository_inside_that_is_no_submodule_is_left_out_and_named(mine: Repository) -> None:
    Repository.make(mine.path / "vendor/nested", {"n": "n\n"})
    checkout = described(mine)
    assert checkout.diff == b""
    assert checkout.notes == ("the repository in vendor/nested/ is no submodule and is not sent",)


def test_a_submodule_goes_as_its_commit_and_its_own_changes_are_named(mine: Repository, tmp_path: Path) -> None:
    library = Repository.make(tmp_path / "library", {"l": "l\n"})
    mine.git("submodule", "--quiet", "add", library.url, "libs/l")
    (mine.path / "libs/l/l").write_text("changed\n")
    checkout = described(mine)
    assert f"+Subproject commit {library.head}".encode() in checkout.diff
    assert checkout.notes == ("changes inside the submodule libs/l are not sent: commit and push them there",)


def test_changed_files_of_git_lfs_go_with_their_contents(tmp_path: Path) -> None:
    if shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed")
    upstream = Repository.make(tmp_path / "upstream")
    upstream.commit({".gitattributes": "*.bin filter=lfs -text\n", "same.bin": b"same" * 99, "x.bin": b"1" * 99}, *LFS)
    mine = upstream.clone(tmp_path / "mine")
    for word in LFS[1::2]:
        mine.git("config", *word.split("=", 1))
    mine.write({"same.bin": b"same" * 99, "x.bin": b"2" * 99})
    mine.commit({"committed.bin": b"3" * 99}, *LFS)
    got = rebuilt(described(mine), tmp_path / "other")
    assert (got["x.bin"], got["committed.bin"]) == (b"2" * 99, b"3" * 99)
    assert got["same.bin"].startswith(b"version https://git-lfs")  # the head gets it from where the others do


def test_more_than_the_service_takes_is_refused_with_the_largest_file(mine: Repository) -> None:
    mine.write({"data/big.bin": b"0" * 2000, "small": "s"})
    with pytest.raises(TooLarge, match=r"data/big\.bin.*gitignore"):
        describe(mine.path, limit_bytes=1000)
    mine.git("add", "--all")
    with pytest.raises(TooLarge, match="can be sent"):
        describe(mine.path, limit_bytes=100)
