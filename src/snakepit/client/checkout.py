"""A git checkout as the head needs it: where to fetch it, which commit, and all that differs from that commit on disk.

The difference is made with an index and an object directory of its own, so that the user's index, refs and objects stay
as they are. It holds unpushed commits, staged, unstaged and untracked (not ignored) files, binary ones too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from snakepit.client.archive import NEVER_SENT
from snakepit.client.git import Git
from snakepit.core.origin import read_origin
from snakepit.errors import BadRequest, SnakepitError, TooLarge

LIMIT_BYTES = 50_000_000  # what the service takes as a body, roughly
POINTER = b"version https://git-lfs.github.com/spec/"
GITHUB_SSH = ("git@github.com:", "ssh://git@github.com/")

_DIFF = ("diff-index", "--cached", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
_FORM = (
    *("--patch", "--binary", "--full-index", "--unified=3", "--no-color"),
    *("--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"),
)
_EXCEPT = tuple(f":(top,exclude,glob)**/{pattern}" for pattern in NEVER_SENT)


@dataclass(frozen=True, slots=True)
class Checkout:
    origin_shown: str  # without credentials
    origin: str = field(repr=False)
    hash: str  # the newest commit of ours that the remote has
    diff: bytes = field(repr=False)  # `git diff --binary` from there to the files on disk
    diff_loc: int
    remote: str  # its name here: "origin"
    top: Path
    subdirectory: str = ""  # where in the checkout we were called: "" is its top
    notes: tuple[str, ...] = ()  # what is not sent, in words for people


@dataclass(frozen=True, slots=True)
class NoCheckout:
    """Nothing that the head could fetch; an archive can still be sent."""

    reason: str


def describe(cwd: Path, limit_bytes: int = LIMIT_BYTES) -> Checkout | NoCheckout:
    """TooLarge where the difference is more than the service would take."""
    git = Git(cwd)
    if shutil.which("git") is None:
        return NoCheckout("git is not installed")
    try:
        git = Git(Path(git.text("rev-parse", "--show-toplevel")))
    except SnakepitError as problem:
        plain = "not a git repository" in problem.message
        return NoCheckout("this is not a git checkout" if plain else problem.message)
    if git.find("rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
        return NoCheckout("this checkout has no commit yet")
    if not git.find("remote"):
        return NoCheckout("this checkout has no remote")
    base = _pushed(git)
    if base is None:
        return NoCheckout("no commit of this checkout is known to be on a remote: fetch or push once")
    remote, commit = base
    origin = _address(git, remote)
    try:
        shown = read_origin(origin).shown
    except BadRequest as problem:
        return NoCheckout(problem.message)
    diff, loc, notes = _difference(git, commit, limit_bytes)
    return Checkout(shown, origin, commit, diff, loc, remote, git.top, _subdirectory(cwd, git.top), notes)


def _pushed(git: Git) -> tuple[str, str] | None:
    """(remote, commit): the newest commit of ours on the upstream, on origin's main branch, or on any remote branch."""
    for remote, ref in _candidates(git):
        if commit := git.find("merge-base", "HEAD", ref):
            return remote, commit
    if git.find("rev-list", "--max-count=1", "HEAD", "--not", "--remotes") == "":
        commits = [git.text("rev-parse", "HEAD")]
    else:
        unpushed = (git.find("rev-list", "--boundary", "--date-order", "HEAD", "--not", "--remotes") or "").split()
        commits = [commit.removeprefix("-") for commit in unpushed if commit.startswith("-")]
    for commit in commits:
        for ref in git.text("for-each-ref", "--contains", commit, "--format=%(refname)", "refs/remotes").split("\n"):
            if (known := _remote_of(git, ref)) is not None:
                return known, commit
    return None


def _candidates(git: Git) -> Iterator[tuple[str, str]]:
    if branch := git.find("symbolic-ref", "--quiet", "HEAD"):
        upstream = git.text("for-each-ref", "--format=%(upstream:remotename) %(upstream)", branch)
        remote, _, ref = upstream.rpartition(" ")  # a branch of our own as upstream has the remote "."
        if remote and remote != "." and ref.startswith("refs/remotes/"):
            yield remote, ref
    if main := git.find("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD"):
        yield "origin", main
    for name in ("main", "master"):
        if git.find("rev-parse", "--verify", "--quiet", f"refs/remotes/origin/{name}"):
            yield "origin", f"refs/remotes/origin/{name}"


def _remote_of(git: Git, ref: str) -> str | None:
    """Names of remotes may contain slashes, like those of branches: the longest that fits."""
    name = ref.removeprefix("refs/remotes/")
    fitting = [remote for remote in git.text("remote").split("\n") if name.startswith(remote + "/")]
    return max(fitting, key=len, default=None)


def _address(git: Git, remote: str) -> str:
    """Where the head can fetch: GitHub's ssh addresses become https ones (the head has no keys), paths whole."""
    address = git.text("remote", "get-url", remote)
    for prefix in GITHUB_SSH:
        if address.startswith(prefix):
            return "https://github.com/" + address.removeprefix(prefix)
    if address.startswith((".", "~")) or (git.top / address).is_dir():
        return str((git.top / Path(address).expanduser()).resolve())
    return address


def _subdirectory(cwd: Path, top: Path) -> str:
    inside = cwd.resolve().relative_to(top.resolve())
    return "" if inside == Path() else str(inside)


def _difference(git: Git, commit: str, limit_bytes: int) -> tuple[bytes, int, tuple[str, ...]]:
    _check_size(git, limit_bytes)
    with _aside(git) as mine:
        mine.ask("add", "--all", "--", ".", *_EXCEPT)
        notes = (*_leave_out_nested(mine, commit), *_dirty_submodules(mine))
        _take_contents(mine, commit)
        diff = mine.ask(*_DIFF, *_FORM, commit, "--", ".", *_EXCEPT)
        counts = mine.text(*_DIFF, "--numstat", commit, "--", ".", *_EXCEPT)
    if len(diff) > limit_bytes:
        raise TooLarge(
            f"The changes since {commit[:12]} are {len(diff) / 1e6:.0f} MB, more than the {limit_bytes / 1e6:.0f} MB "
            "that can be sent: push, add to .gitignore, or use --archive"
        )
    numbers = [number for line in counts.splitlines() for number in line.split("\t")[:2]]
    return diff, sum(int(number) for number in numbers if number != "-"), notes


def _check_size(git: Git, limit_bytes: int) -> None:
    """Before gigabytes of a forgotten data directory are read."""
    sizes: dict[bytes, int] = {}
    for name in git.names("ls-files", "--others", "--exclude-standard", "-z", "--", ".", *_EXCEPT):
        with contextlib.suppress(OSError):
            sizes[name] = os.lstat(os.path.join(os.fsencode(git.top), name)).st_size
    if sum(sizes.values()) > limit_bytes:
        largest = os.fsdecode(max(sizes, key=lambda name: sizes[name]))
        raise TooLarge(
            f"Untracked files of {sum(sizes.values()) / 1e6:.0f} MB would be sent (the largest: {largest}): "
            "add them to .gitignore, or use --archive"
        )


@contextlib.contextmanager
def _aside(git: Git) -> Iterator[Git]:
    """The same repository, with an index and new objects that nobody else sees."""
    index = git.top / git.text("rev-parse", "--git-path", "index")
    objects = (git.top / git.text("rev-parse", "--git-path", "objects")).resolve()
    with tempfile.TemporaryDirectory(prefix="pit-") as name:
        aside = Path(name)
        (aside / "objects").mkdir()
        if index.exists():
            shutil.copy2(index, aside / "index")  # with its time: git tells by it which files to look at again
        shown = str(objects).replace("\\", "\\\\").replace('"', '\\"')
        yield Git(
            git.top,
            {
                "GIT_INDEX_FILE": str(aside / "index"),
                "GIT_OBJECT_DIRECTORY": str(aside / "objects"),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{shown}"',
                "GIT_CONFIG_COUNT": "2",
                "GIT_CONFIG_KEY_0": "lfs.storage",  # git-lfs would keep a copy of every changed file
                "GIT_CONFIG_VALUE_0": str(aside / "lfs"),
                "GIT_CONFIG_KEY_1": "core.looseCompression",  # soon gone again
                "GIT_CONFIG_VALUE_1": "0",
            },
        )


def _leave_out_nested(mine: Git, commit: str) -> list[str]:
    """A repository inside ours that is no submodule: git would record a commit that nobody can fetch."""
    entries = mine.names(*_DIFF, "--raw", "--abbrev=40", "-z", commit)
    new = [path for entry, path in zip(entries[::2], entries[1::2], strict=True) if entry.split()[1] == b"160000"]
    known = {os.fsencode(path) for path in _submodules(mine)}
    nested = [path for path in new if path not in known]
    for path in nested:
        mine.ask("update-index", "--force-remove", "-z", "--stdin", stdin=path + b"\0")
    return [f"the repository in {os.fsdecode(path).rstrip('/')}/ is no submodule and is not sent" for path in nested]


def _submodules(git: Git) -> list[str]:
    if not (git.top / ".gitmodules").is_file():
        return []
    listing = git.find("config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$") or ""
    return [line.partition(" ")[2] for line in listing.splitlines()]


def _dirty_submodules(git: Git) -> list[str]:
    notes = []
    for path in _submodules(git):
        if (git.top / path / ".git").exists() and Git(git.top / path).find("status", "--porcelain"):
            notes.append(f"changes inside the submodule {path} are not sent: commit and push them there")
    return notes


def _take_contents(mine: Git, commit: str) -> None:
    """Changed files of Git LFS go as what they are: their pointers may lead to what only this machine has."""
    changed = mine.names(*_DIFF, "--name-only", "--diff-filter=AMT", "-z", commit)
    if not changed:
        return
    fields = mine.names("check-attr", "--stdin", "-z", "filter", stdin=b"\0".join(changed) + b"\0")
    large = [name for name, _, value in zip(*[iter(fields)] * 3, strict=True) if value == b"lfs"]
    for name in large:
        path = Path(os.fsdecode(os.path.join(os.fsencode(mine.top), name)))
        if path.is_symlink() or not path.is_file() or _is_pointer(path):
            continue
        blob = mine.ask("hash-object", "-w", "--no-filters", "--", os.fsdecode(name)).strip()
        mode = b"100755" if os.access(path, os.X_OK) else b"100644"
        mine.ask("update-index", "-z", "--index-info", stdin=mode + b" " + blob + b"\t" + name + b"\0")


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(POINTER)) == POINTER
