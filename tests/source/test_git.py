"""Code from git, with real repositories: both spellings of diffs, submodules, large files, caches that broke."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snakepit.client.checkout import Checkout, describe
from snakepit.errors import BadRequest, SnakepitError
from snakepit.source.provision import provision
from tests.conftest import pick_free_port
from tests.source.preparing import Head
from tests.source.repositories import ENV, LFS, Repository, served
from tests.waiting import wait_until

pytestmark = pytest.mark.system  # real programs, a dozen for each test
BINARY = bytes(range(256)) * 40


@pytest.fixture
def upstream(tmp_path: Path) -> Repository:
    return Repository.make(
        tmp_path / "upstream", {"train.py": "print(1)\n", "lib/net.py": "a\nb\n\n\n", "x.bin": BINARY}
    )


def ask(src: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=src, env=ENV, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_src_is_a_real_checkout_that_borrows_nothing(either: Head, upstream: Repository) -> None:
    either.prepare(1, "git", origin=upstream.url, hash=upstream.head)
    shutil.rmtree(either.root / "cache")
    assert ask(either.src(), "rev-parse", "HEAD") == upstream.head
    assert ask(either.src(), "status", "--porcelain") == ""
    assert ask(either.src(), "remote", "get-url", "origin") == upstream.url
    ask(either.src(), "fsck")
    assert not (either.src() / ".git/objects/info/alternates").exists()


def test_an_old_commit_a_branch_a_tag_and_no_hash_at_all_are_found(head: Head, upstream: Repository) -> None:
    old = upstream.head
    new = upstream.commit({"train.py": "print(2)\n"})
    upstream.git("branch", "feature/x", old)
    upstream.git("tag", "v1", old)
    for job, (text, expected) in enumerate([(old, old), ("", new), ("feature/x", old), ("v1", old), (new[:10], new)]):
        head.prepare(job, "git", origin=upstream.url, hash=text)
        assert ask(head.src(job), "rev-parse", "HEAD") == expected


def test_a_commit_without_a_branch_is_found_where_the_server_gives_it(head: Head, upstream: Repository) -> None:
    upstream.git("checkout", "--quiet", "--detach")
    hidden = upstream.commit({"h": "h\n"})
    upstream.git("update-ref", "refs/pull/1/head", hidden)
    upstream.git("checkout", "--quiet", "main")
    upstream.git("config", "uploadpack.allowAnySHA1InWant", "true")
    head.prepare(1, "git", origin=upstream.url, hash=hidden)
    assert ask(head.src(), "rev-parse", "HEAD") == hidden


def test_a_cached_commit_needs_no_remote(head: Head, upstream: Repository) -> None:
    head.prepare(1, "git", origin=upstream.url, hash=upstream.head)
    commit = upstream.head
    shutil.rmtree(upstream.path)
    upstream.path.mkdir()
    said = head.prepare(2, "git", origin=upstream.url, hash=commit)
    assert not any("Fetching" in line for line in said)
    assert (head.src(2) / "train.py").exists()


def test_a_commit_that_was_not_pushed_is_named_with_the_remote(either: Head, upstream: Repository) -> None:
    with pytest.raises(
        SnakepitError, match=f"Commit {'a' * 40} was not found on the remote {upstream.url}: push it first"
    ):
        either.prepare(1, "git", origin=upstream.url, hash="a" * 40)


def test_a_remote_without_any_commit_says_so(head: Head, tmp_path: Path) -> None:
    empty = Repository.make(tmp_path / "empty")
    with pytest.raises(SnakepitError, match="not found on the remote"):
        head.prepare(1, "git", origin=empty.url)


@pytest.mark.parametrize("hash_text", ["--all", "a..b", "HEAD;id", "x y", "@{u}"])
def test_odd_hashes_are_refused(head: Head, upstream: Repository, hash_text: str) -> None:
    with pytest.raises(BadRequest, match="Not a commit"):
        head.prepare(1, "git", origin=upstream.url, hash=hash_text)


@pytest.mark.parametrize("origin", ["ext::sh -c id", "--upload-pack=id", "ftp://example.org/x", ""])
def test_odd_origins_are_refused_before_anything(head: Head, origin: str) -> None:
    with pytest.raises(BadRequest):
        head.prepare(1, "git", origin=origin)
    assert not (head.root / "cache").exists()


def test_file_origins_need_permission_and_never_lie_in_the_data_of_the_service(
    head: Head, upstream: Repository
) -> None:
    with pytest.raises(BadRequest, match="not allowed"):
        head.prepare(1, "git", origin=upstream.url, allow_file=False)
    inside = Repository.make(head.root / "home/bert/r", {"secret": "s"})
    link = head.root.parent / "link"
    link.symlink_to(inside.path)
    for origin in (inside.url, f"file://{link}", f"file://{head.root.parent}/x/../{head.root.name}/home/bert/r"):
        with pytest.raises(BadRequest, match="lies in the data"):
            head.prepare(1, "git", origin=origin)


# ------------------------------------------------------------------------------------------------------------- diffs


def changed(upstream: Repository, place: Path) -> Repository:
    mine = upstream.clone(place)
    mine.write({"train.py": "print(2)\n", "lib/net.py": "A\nb\n\n\n", "x.bin": BINARY[::-1], "a/new": "n\n"})
    (mine.path / "lib/gone.py").unlink(missing_ok=True)
    mine.git("add", "--all")
    return mine


def test_our_own_diff_is_applied_with_binaries_and_new_files(
    either: Head, upstream: Repository, tmp_path: Path
) -> None:
    mine = changed(upstream, tmp_path / "mine")
    checkout = describe(mine.path)
    assert isinstance(checkout, Checkout)
    either.prepare(1, "git", origin=checkout.origin, hash=checkout.hash, diff=checkout.diff)
    for name in ("train.py", "lib/net.py", "x.bin", "a/new"):
        assert (either.src() / name).read_bytes() == (mine.path / name).read_bytes()


def test_the_original_clients_diff_is_applied(either: Head, upstream: Repository, tmp_path: Path) -> None:
    mine = changed(upstream, tmp_path / "mine")
    mine.git("checkout", "HEAD", "--", "x.bin")
    words = ["git", "diff", "--no-prefix", "origin/main"]
    diff = subprocess.run(words, cwd=mine.path, env=ENV, capture_output=True, check=True).stdout.strip()
    either.prepare(1, "git", origin=upstream.url, hash=upstream.head, diff=diff)
    for name in ("train.py", "lib/net.py", "a/new"):
        assert (either.src() / name).read_bytes() == (mine.path / name).read_bytes()


def test_a_diff_that_does_not_apply_is_an_error_in_git_s_words(either: Head, upstream: Repository) -> None:
    diff = b"diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-print(7)\n+print(8)\n"
    with pytest.raises(SnakepitError, match=r"does not apply to commit .*: .*train\.py: patch does not apply"):
        either.prepare(1, "git", origin=upstream.url, hash=upstream.head, diff=diff)
    with pytest.raises(SnakepitError, match="does not apply"):
        either.prepare(1, "git", origin=upstream.url, hash=upstream.head, diff=b"junk")
    assert not either.pit().exists()


def test_a_binary_that_the_diff_only_names_is_an_error(head: Head, upstream: Repository, tmp_path: Path) -> None:
    mine = changed(upstream, tmp_path / "mine")
    words = ["git", "diff", "--no-prefix", "origin/main"]
    diff = subprocess.run(words, cwd=mine.path, env=ENV, capture_output=True, check=True).stdout.strip()
    with pytest.raises(SnakepitError, match=r"x\.bin changed, but does not hold it .*push it first"):
        head.prepare(1, "git", origin=upstream.url, hash=upstream.head, diff=diff)


def adding(name: str) -> bytes:
    header = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    return f"{header}@@ -0,0 +1 @@\n+evil\n".encode()


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/snakepit-evil", ".git/hooks/evil"])
def test_a_diff_writes_nowhere_else(either: Head, upstream: Repository, name: str) -> None:
    with pytest.raises(SnakepitError, match="does not apply"):
        either.prepare(1, "git", origin=upstream.url, hash=upstream.head, diff=adding(name))
    assert not list(either.root.rglob("evil"))


def test_a_diff_through_a_link_writes_nowhere_else(either: Head, upstream: Repository, tmp_path: Path) -> None:
    (upstream.path / "link").symlink_to(tmp_path)
    upstream.commit({})
    with pytest.raises(SnakepitError, match="does not apply"):
        either.prepare(1, "git", origin=upstream.url, hash=upstream.head, diff=adding("link/evil"))
    assert not (tmp_path / "evil").exists()


def test_line_ends_that_git_rewrites_do_not_stop_a_diff(head: Head, tmp_path: Path) -> None:
    upstream = Repository.make(tmp_path / "crlf", {"f": "1\r\n2\r\n"})
    upstream.commit({".gitattributes": "* text=auto\n"})
    diff = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-1\r\n+one\r\n 2\r\n"
    head.prepare(1, "git", origin=upstream.url, hash=upstream.head, diff=diff)
    assert (head.src() / "f").read_bytes().startswith(b"one")


# ------------------------------------------------------------------------------------------------ other repositories


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[str]:
    """A real git daemon for everything below tmp_path/served."""
    (tmp_path / "served").mkdir(exist_ok=True)
    port = pick_free_port()
    where = ["--listen=127.0.0.1", f"--port={port}", f"--base-path={tmp_path}/served", "--reuseaddr", "--export-all"]
    config = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    process = subprocess.Popen(["git", "daemon", *where, str(tmp_path / "served")], env={**ENV, **config})
    url = f"git://127.0.0.1:{port}"
    probe = ["git", "ls-remote", f"{url}/probe"]
    Repository.make(tmp_path / "served/probe", {"p": "p"})
    try:
        wait_until(lambda: subprocess.run(probe, env=ENV, capture_output=True).returncode == 0)
        yield url
    finally:
        process.terminate()
        process.wait()


def test_submodules_come_along_and_below_them_too(either: Head, tmp_path: Path, daemon: str) -> None:
    Repository.make(tmp_path / "served/deep", {"deep": "d\n"})
    middle = Repository.make(tmp_path / "served/middle", {"middle": "m\n"})
    top = Repository.make(tmp_path / "served/top", {"top": "t\n"})
    middle.git("submodule", "--quiet", "add", f"{daemon}/deep", "deep")
    middle.commit({})
    top.git("submodule", "--quiet", "add", f"{daemon}/middle", "libs/middle")
    gitmodules = (
        (top.path / ".gitmodules").read_text().replace(f"{daemon}/middle", "../middle")
    )  # relative, as many are
    top.commit({".gitmodules": gitmodules})
    either.prepare(1, "git", origin=f"{daemon}/top", hash=top.head)
    assert (either.src() / "libs/middle/deep/deep").read_text() == "d\n"


def test_a_diff_that_adds_or_moves_a_submodule_is_followed(either: Head, tmp_path: Path, daemon: str) -> None:
    library = Repository.make(tmp_path / "served/library", {"v": "1\n"})
    top = Repository.make(tmp_path / "served/top", {"t": "t\n"})
    mine = Repository(tmp_path / "mine")
    subprocess.run(["git", "clone", "--quiet", f"{daemon}/top", str(mine.path)], env=ENV, check=True)
    mine.git("submodule", "--quiet", "add", f"{daemon}/library", "lib")
    library.commit({"v": "2\n"})
    subprocess.run(["git", "pull", "--quiet"], cwd=mine.path / "lib", env=ENV, check=True)
    checkout = describe(mine.path)
    assert isinstance(checkout, Checkout)
    either.prepare(1, "git", origin=checkout.origin, hash=top.head, diff=checkout.diff)
    assert (either.src() / "lib/v").read_text() == "2\n"


def test_a_submodule_that_cannot_be_fetched_is_an_error(either: Head, tmp_path: Path, daemon: str) -> None:
    top = Repository.make(tmp_path / "served/top", {"t": "t\n"})
    top.git("submodule", "--quiet", "add", f"{daemon}/probe", "lib")
    top.commit({})
    shutil.rmtree(tmp_path / "served/probe")
    with pytest.raises(SnakepitError, match="Cannot fetch the submodules"):
        either.prepare(1, "git", origin=f"{daemon}/top", hash=top.head)


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
def test_large_files_come_with_their_contents_and_from_the_cache_the_next_time(either: Head, tmp_path: Path) -> None:
    upstream = Repository.make(tmp_path / "upstream", {"plain": "p\n"})
    upstream.commit({".gitattributes": "*.big filter=lfs -text\n", "data/x.big": BINARY}, *LFS)
    assert upstream.git("show", "HEAD:data/x.big").startswith("version https://git-lfs")
    either.prepare(1, "git", origin=upstream.url, hash=upstream.head)
    assert (either.src(1) / "data/x.big").read_bytes() == BINARY
    assert ask(either.src(1), "status", "--porcelain") == ""
    shutil.rmtree(upstream.path / ".git/lfs")
    either.prepare(2, "git", origin=upstream.url, hash=upstream.head)
    assert (either.src(2) / "data/x.big").read_bytes() == BINARY


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
def test_large_files_that_nobody_has_are_an_error_unless_the_diff_brings_them(head: Head, tmp_path: Path) -> None:
    upstream = Repository.make(tmp_path / "upstream", {"plain": "p\n"})
    upstream.commit({".gitattributes": "*.big filter=lfs -text\n", "x.big": BINARY}, *LFS)
    mine = upstream.clone(tmp_path / "mine")
    mine.git("config", "filter.lfs.clean", "git-lfs clean -- %f")
    mine.write({"x.big": BINARY[::-1]})
    checkout = describe(mine.path)
    assert isinstance(checkout, Checkout)
    shutil.rmtree(upstream.path / ".git/lfs")
    with pytest.raises(SnakepitError, match="Cannot fetch the large files"):
        head.prepare(1, "git", origin=upstream.url, hash=upstream.head)


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
def test_a_changed_large_file_arrives_as_it_was_changed(either: Head, tmp_path: Path) -> None:
    upstream = Repository.make(tmp_path / "upstream", {"plain": "p\n"})
    upstream.commit({".gitattributes": "*.big filter=lfs -text\n", "x.big": BINARY, "y.big": b"y" * 500}, *LFS)
    mine = upstream.clone(tmp_path / "mine")
    mine.git("config", "filter.lfs.clean", "git-lfs clean -- %f")
    mine.write({"x.big": BINARY[::-1], "y.big": b"y" * 500})
    checkout = describe(mine.path)
    assert isinstance(checkout, Checkout)
    either.prepare(1, "git", origin=upstream.url, hash=checkout.hash, diff=checkout.diff)
    assert (either.src() / "x.big").read_bytes() == BINARY[::-1]
    assert (either.src() / "y.big").read_bytes() == b"y" * 500


def test_where_git_lfs_is_missing_the_log_says_so(head: Head, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name != "git-lfs":
            (tmp_path / "bin" / program.name).symlink_to(program)
    files: dict[str, str | bytes] = {".gitattributes": "*.big filter=lfs\n", "x.big": "version https://git-lfs…\n"}
    upstream = Repository.make(tmp_path / "upstream", files)
    said = head.prepare(1, "git", origin=upstream.url, environment=(("PATH", str(tmp_path / "bin")),))
    assert [line for line in said if "Git LFS, which is not installed" in line]
    assert (head.src() / "x.big").exists()


# ------------------------------------------------------------------------------------------------------------ caches


def the_cache(head: Head) -> Path:
    return next(path for path in (head.root / "cache/anna").iterdir() if path.is_dir())


def cut(cache: Path, pattern: str) -> None:
    for path in cache.glob(pattern):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lose(cache: Path, pattern: str) -> None:
    for path in cache.glob(pattern):
        path.unlink()


def replace(cache: Path, by: str | None) -> None:
    shutil.rmtree(cache)
    if by is None:
        cache.mkdir()
    else:
        cache.write_text(by)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "half a pack": lambda cache: cut(cache, "objects/pack/*.pack"),
    "no pack": lambda cache: lose(cache, "objects/pack/*.pack"),
    "half an index": lambda cache: cut(cache, "objects/pack/*.idx"),
    "no objects": lambda cache: shutil.rmtree(cache / "objects"),
    "no HEAD": lambda cache: lose(cache, "HEAD"),
    "junk in HEAD": lambda cache: (cache / "HEAD").write_text("junk"),
    "junk in config": lambda cache: (cache / "config").write_text("[junk"),
    "a lock left": lambda cache: (cache / "packed-refs.lock").write_text(""),
    "a directory only": lambda cache: replace(cache, None),
    "a file": lambda cache: replace(cache, ""),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("fresh", [True, False], ids=["new commit", "old commit"])
def test_a_damaged_cache_is_thrown_away(head: Head, upstream: Repository, damage: str, fresh: bool) -> None:
    upstream.git("config", "transfer.unpackLimit", "1")
    head.prepare(1, "git", origin=upstream.url, hash=upstream.head)
    subprocess.run(["git", "repack", "-adq"], cwd=the_cache(head), env=ENV, check=True)
    DAMAGES[damage](the_cache(head))
    commit = upstream.commit({"train.py": "print(3)\n"}) if fresh else upstream.head
    head.prepare(2, "git", origin=upstream.url, hash=commit)
    assert ask(head.src(2), "rev-parse", "HEAD") == commit
    ask(head.src(2), "fsck")


def test_a_missing_loose_object_is_noticed(head: Head, upstream: Repository) -> None:
    head.prepare(1, "git", origin=upstream.url, hash=upstream.head)
    tree = upstream.git("rev-parse", "HEAD:lib")
    (the_cache(head) / f"objects/{tree[:2]}/{tree[2:]}").unlink()
    head.prepare(2, "git", origin=upstream.url, hash=upstream.head)
    assert (head.src(2) / "lib/net.py").exists()


def test_an_unreachable_remote_costs_no_cache(head: Head, upstream: Repository, tmp_path: Path) -> None:
    head.prepare(1, "git", origin=upstream.url, hash=upstream.head)
    known = upstream.head
    upstream.path.rename(tmp_path / "away")
    upstream.path.mkdir()
    with pytest.raises(SnakepitError, match="Cannot fetch"):
        head.prepare(2, "git", origin=upstream.url, hash="b" * 40)
    head.prepare(3, "git", origin=upstream.url, hash=known)


def test_two_jobs_of_one_origin_do_not_collide(either: Head, upstream: Repository) -> None:
    async def all_at_once() -> list[str]:
        said: list[str] = []
        works = [either.work(job, "git", origin=upstream.url, hash=upstream.head) for job in range(1, 7)]
        await asyncio.gather(*(provision(work, said.append) for work in works))
        return said

    said = asyncio.run(all_at_once())
    assert said.count(f"Fetching {upstream.url}") == 1
    assert all((either.src(job) / "train.py").exists() for job in range(1, 7))


def test_branches_that_were_renamed_into_directories_are_fetched(head: Head, upstream: Repository) -> None:
    upstream.git("branch", "a")
    head.prepare(1, "git", origin=upstream.url)
    upstream.git("branch", "--quiet", "-D", "a")
    upstream.git("branch", "a/b")
    upstream.git("commit", "--quiet", "--amend", "--message=other")
    head.prepare(2, "git", origin=upstream.url)
    assert ask(head.src(2), "rev-parse", "HEAD") == upstream.head


def test_a_repository_over_http_is_cloned(either: Head, tmp_path: Path) -> None:
    upstream = Repository.make(tmp_path / "www/r", {"f": os.urandom(3000)})
    upstream.serve_dumbly()
    with served(tmp_path / "www") as host:
        either.prepare(1, "git", origin=f"http://{host}/r/.git", hash=upstream.head)
    assert (either.src() / "f").read_bytes() == (upstream.path / "f").read_bytes()
