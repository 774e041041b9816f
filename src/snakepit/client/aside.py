"""Our own git directory inside the user's, `<git dir>/pit`: for an index of ours beside the user's, over one store of
objects. What is in it: a configuration, attributes that switch all conversion off, the index of the last snapshot.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from snakepit.client.git import Git
from snakepit.core.origin import read_origin
from snakepit.errors import BadRequest, SnakepitError

# The last word on attributes, over every .gitattributes in the tree.
ATTRIBUTES = "* -text -filter -ident !eol !crlf !working-tree-encoding\n"
LEFT_OVER_S = 3600
KEPT_SETTINGS = ("core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode", "core.trustctime")
CONFIG = """\
[core]
	repositoryformatversion = 0
	bare = false
	autocrlf = false
	safecrlf = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	logAllRefUpdates = false
[gc]
	auto = 0
[maintenance]
	auto = false
"""


class Repository(NamedTuple):
    """A checkout, as far as a snapshot of it needs to know it."""

    top: Path
    directory: Path  # its git directory; of a worktree, its own
    common: Path  # where objects and branches are
    subdirectory: str  # where in the checkout we were called: "" is its top
    head: str = ""  # "" where there is no commit yet
    head_tree: str = ""
    head_time: int = 0
    remote: str = ""
    shown: str = ""  # the remote's address, without credentials; "" where there is none to show
    partial: bool = False  # not all objects of its history are here
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def pit(self) -> Path:
        return self.directory / "pit"

    @property
    def git(self) -> Git:
        return Git(self.top)


class NoRepository(NamedTuple):
    reason: str


def find_repository(cwd: Path) -> Repository | NoRepository:
    if shutil.which("git") is None:
        return NoRepository("git is not installed")
    git = Git(cwd)
    asked = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--show-prefix")
    last = ("log", "-1", "--no-show-signature", "--format=%H %T %ct", "HEAD", "--")
    names = ("symbolic-ref", "--quiet", "HEAD")
    with git.asking(("rev-parse", *asked), ("config", "--null", "--list"), last, names) as (where, set_to, commit, on):
        try:
            places = os.fsdecode(where.answer()).split("\n")
        except SnakepitError as problem:
            if "not a git repository" in problem.message:
                return NoRepository("this is not a git checkout")
            if "must be run in a work tree" in problem.message:
                return NoRepository("this is a git repository without files")
            raise
        if len(places) != len(asked) + 1:
            return NoRepository("the path of this checkout has a line break")
        config = _config(set_to.answer())
        if config.get("extensions.objectformat", "sha1") != "sha1":
            return NoRepository("this checkout has SHA-256 names, which the head does not take")
        head, tree, when = _head(commit.found())
        remote = _remote((on.found() or "").removeprefix("refs/heads/"), config)
    top, directory, common, prefix, _ = places
    return Repository(
        top=Path(top),
        directory=Path(directory),
        common=(cwd / common).resolve(),
        subdirectory=prefix.rstrip("/"),
        head=head,
        head_tree=tree,
        head_time=when,
        remote=remote,
        shown=_shown(git, remote),
        partial=any(name.endswith(".promisor") for name in config) or "extensions.partialclone" in config,
        settings=tuple((name, config[name]) for name in KEPT_SETTINGS if name in config),
    )


def _config(listed: bytes) -> dict[str, str]:
    pairs = (entry.partition("\n") for entry in listed.decode("utf-8", "surrogateescape").split("\0")[:-1])
    return {name: value for name, _, value in pairs}


def _head(found: str | None) -> tuple[str, str, int]:
    if found is None:
        return "", "", 0
    commit, tree, when = found.split()
    return commit, tree, max(0, int(when))


def _remote(branch: str, config: dict[str, str]) -> str:
    """The upstream's, else origin, else any."""
    names = [
        name[len("remote.") : -len(".url")] for name in config if name.startswith("remote.") and name.endswith(".url")
    ]
    wanted = (config.get(f"branch.{branch}.remote", ""), "origin", *names)
    return next((name for name in wanted if name in names), "")


def _shown(git: Git, remote: str) -> str:
    address = git.find("remote", "get-url", "--", remote) if remote else None
    if not address:
        return ""
    with suppress(BadRequest):
        return read_origin(address).shown
    return ""


class Aside:
    """Our git directory while one snapshot is taken. Several at once do not meet: each has an index of its own."""

    __slots__ = ("git", "repository", "work")

    def __init__(self, repository: Repository, work: Path) -> None:
        self.repository, self.work, self.git = repository, work, private_git(repository, work / "index")

    @classmethod
    @contextmanager
    def of(cls, repository: Repository) -> Iterator[Aside]:
        pit = repository.pit
        _furnish(repository)
        _remove_leftovers(pit)
        made, work = pit / f"{(nonce := os.urandom(6).hex())}.new", pit / f"work-{nonce}"
        made.mkdir()
        lock = os.open(made / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made.rename(work)  # named so only now that it is locked: nobody takes it for a leftover
            aside = cls(repository, work)
            aside._take_index()
            yield aside
        finally:
            shutil.rmtree(work, ignore_errors=True)
            os.close(lock)

    def keep(self, commit: str) -> None:
        """The index is worth its objects, and those are there as long as the snapshot is."""
        with suppress(FileNotFoundError):
            (self.work / "index").replace(self.repository.pit / "index")
        replace_text(self.repository.pit / "last", commit + "\n")

    def forget(self) -> None:
        for path in (self.work / "index", self.repository.pit / "index"):
            path.unlink(missing_ok=True)

    def _take_index(self) -> None:
        pit = self.repository.pit
        try:
            last = (pit / "last").read_text().strip()
        except FileNotFoundError:
            return
        if last and self.git.find("cat-file", "-e", last) is not None:
            with suppress(FileNotFoundError):
                shutil.copy2(pit / "index", self.work / "index")  # with its time: git tells by it what to read again


def private_git(repository: Repository, index: Path | None = None) -> Git:
    """git with our directory and nobody's settings; without an index it can still send, fetch and compare."""
    nothing = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_NO_REPLACE_OBJECTS": "1"}
    env = {
        **nothing,
        "GIT_DIR": str(repository.pit),
        "GIT_WORK_TREE": str(repository.top),
        "GIT_OBJECT_DIRECTORY": str(repository.common / "objects"),
        "GIT_INDEX_FILE": str(index or repository.pit / "index"),
    }
    return Git(repository.top, env)


def _furnish(repository: Repository) -> None:
    pit = repository.pit
    for name in ("refs", "objects", "info"):
        (pit / name).mkdir(parents=True, exist_ok=True)
    own = [f"[core]\n\t{name.partition('.')[2]} = {_quoted(value)}\n" for name, value in repository.settings]
    config = CONFIG + "".join(own)
    for name, text in (("HEAD", "ref: refs/heads/none\n"), ("config", config), ("info/attributes", ATTRIBUTES)):
        replace_text(pit / name, text)
    try:
        replace_text(pit / "shallow", (repository.common / "shallow").read_text())
    except FileNotFoundError:
        (pit / "shallow").unlink(missing_ok=True)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def replace_text(path: Path, text: str) -> None:
    """Whole or not at all, and not at all where it is that already."""
    with suppress(OSError):
        if path.read_text() == text:
            return
    fresh = path.with_name(f"{path.name}.{os.urandom(6).hex()}.new")
    fresh.write_text(text)
    fresh.replace(path)


def _remove_leftovers(pit: Path) -> None:
    """Of runs that were killed: their lock is free."""
    for work in pit.glob("work-*"):
        with suppress(OSError):
            handle = os.open(work / "alive", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(work, ignore_errors=True)
            finally:
                os.close(handle)
    for path in (*pit.glob("*.new"), *pit.glob("info/*.new")):
        with suppress(OSError):
            if path.stat().st_mtime + LEFT_OVER_S < time.time():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
