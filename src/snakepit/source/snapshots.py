"""Snapshots at the head: each user has one bare repository, `<root>/cache/<user>/snapshots.git`, where they arrive by
push under `refs/pit/incoming/<hash>`. A job keeps its own by `refs/pit/<job>` for as long as it exists; what nobody
keeps is collected, under the same lock that preparations take.

Refs are plain files here and are never packed: looking one up or making one starts no program.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

from snakepit.errors import SnakepitError
from snakepit.source.git import CONFIG, environment_of, full_disk, locked, write_private
from snakepit.source.sandbox import Finished, Sandbox
from snakepit.source.sweep import remove_tree

INCOMING = "refs/pit/incoming"
FULL_HASH = re.compile(r"[0-9a-f]{40}")
# The bytes of the snapshot are those of the user's disk already: no filter, no line ends. Over all .gitattributes.
ATTRIBUTES = "* -text -filter -ident !eol !crlf !working-tree-encoding\n"
RECENT = 30  # so many pushed snapshots stay, for the next push to build on
RECENT_S = 86400.0  # and all of the last day: they may be about to become jobs
MANY_PACKS = 20
MANY_LOOSE = 8  # in one of the 256 directories of loose objects
MARK = "dropped"  # a ref was dropped since the last collection
# New deltas would cost more time than they save space: src/ is thrown away with the job.
FAST = ("-c", "pack.window=0", "-c", "pack.compression=1", "-c", "pack.threads=1")
THRIFTY = ("-c", "pack.threads=1", "-c", "pack.windowMemory=256m", "-c", "core.bigFileThreshold=32m")


def repository(root: Path, user: str) -> Path:
    return root / "cache" / user / "snapshots.git"


def has(root: Path, user: str, commit: str) -> bool:
    """Whether it was pushed by this user lately. git took the ref only after all that belongs to it was there."""
    refs = (repository(root, user) / INCOMING).glob(f"{commit}*")  # with a suffix where two pushes met
    return FULL_HASH.fullmatch(commit) is not None and any(_read(ref) == commit for ref in refs)


def kept(root: Path, user: str, job: int) -> str:
    """The snapshot that a job keeps; "" for none."""
    return _read(_ref(root, user, job))


def keep(root: Path, user: str, job: int, commit: str) -> None:
    """For a job; again and again if need be."""
    if kept(root, user, job) != commit:
        _write(repository(root, user), _ref(root, user, job), commit)


def offer(root: Path, user: str, commit: str) -> None:
    """As if it had been pushed just now: a new job is going to run what an earlier one ran."""
    _write(repository(root, user), repository(root, user) / INCOMING / commit, commit)


def _write(cache: Path, ref: Path, commit: str) -> None:
    """Whole and on the disk, or not at all."""
    if not FULL_HASH.fullmatch(commit):
        raise ValueError(f"not a hash: {commit!r}")
    ref.parent.mkdir(parents=True, exist_ok=True)
    fresh = cache / f"{secrets.token_hex(8)}.new"
    try:
        with fresh.open("x") as file:
            file.write(commit + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(ref)
    finally:
        fresh.unlink(missing_ok=True)
    handle = os.open(ref.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def drop(root: Path, user: str, job: int) -> None:
    """With the job; what only it had goes with the next collection."""
    with contextlib.suppress(FileNotFoundError):
        _ref(root, user, job).unlink()
        (repository(root, user) / MARK).touch()


def all_kept(root: Path) -> Iterator[tuple[str, int]]:
    """Every (user, job) that has a ref, for those who know which jobs there are."""
    for ref in (root / "cache").glob("*/snapshots.git/refs/pit/*"):
        if ref.name.isascii() and ref.name.isdigit():
            yield ref.parents[3].name, int(ref.name)


# --------------------------------------------------------------------------------------------------- into a job's src/


async def check_out(root: Path, user: str, job: int, commit: str, shown: str, src: Path, box: Sandbox) -> None:
    """Fills the empty directory `src` with a real checkout that borrows nothing: the snapshot and the commit it was
    made on, without the history before them."""
    cache = repository(root, user)
    write_private(box.home / "gitconfig", CONFIG)
    git = _Git(box, cache, src)
    async with locked(root / "cache" / user / ".snapshots-lock", box):
        if kept(root, user, job) != commit:
            if not has(root, user, commit):
                raise SnakepitError(f"The snapshot {commit[:12]} is not on the head (any more): submit the job again")
            keep(root, user, job, commit)
        box.say(f"Checking out the snapshot {commit}")
        await git.at_source("init", "--quiet", "--initial-branch=none", ".")
        await git.copy_objects(commit)
    (src / ".git" / "info").mkdir(exist_ok=True)
    (src / ".git" / "info" / "attributes").write_text(ATTRIBUTES)
    for name, value in (("core.autocrlf", "false"), ("remote.origin.url", shown)):
        if value:
            await git.at_source("config", name, value)
    await git.at_source("checkout", "--quiet", "--detach", commit)


class _Git:
    """git on one repository of snapshots and one checkout, confined to them."""

    def __init__(self, box: Sandbox, cache: Path, src: Path) -> None:
        self.box, self.cache, self.src = box, cache, src

    async def copy_objects(self, commit: str) -> None:
        """One pack with what two commits need, written straight into place: half the work of a fetch."""
        parents = (await self._in_cache("rev-list", "--parents", "--max-count=1", commit)).out.split()[1:]
        borders = "".join(f"{border}\n" for border in parents or [commit])
        shallow = self.box.home / "shallow"
        write_private(shallow, borders)
        words = ("--shallow-file", str(shallow), *FAST, "pack-objects", "--quiet", "--revs", "--delta-base-offset")
        objects = str(self.cache / "objects").replace("\\", "\\\\").replace('"', '\\"')
        await self.at_source(
            *(*words, ".git/objects/pack/pack"),
            stdin=f"{commit}\n".encode(),
            readable=[self.cache],
            env={"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"'},
        )
        (self.src / ".git" / "shallow").write_text(borders)

    async def at_source(
        self, *words: str, stdin: bytes = b"", readable: Sequence[Path] = (), env: Mapping[str, str] | None = None
    ) -> None:
        env = {**environment_of(self.box, self.src), **(env or {})}
        argv = ["git", *words]
        _check(await self.box.run(argv, cwd=self.src, writable=[self.src], readable=readable, env=env, stdin=stdin))

    async def _in_cache(self, *words: str) -> Finished:
        env = {**environment_of(self.box, self.cache), "GIT_DIR": str(self.cache)}
        return _check(await self.box.run(["git", *words], cwd=self.cache, readable=[self.cache], env=env, quiet=True))


def _check(done: Finished) -> Finished:
    if done.code != 0:
        raise full_disk(done) or SnakepitError(f"Cannot check out the snapshot: {done.words}")
    return done


# ------------------------------------------------------------------------------------------------- between repositories


async def bring(root: Path, owner: str, user: str, job: int, commit: str, confined: bool = True) -> None:
    """A job's snapshot into the (existing) repository of another user, who runs that job again."""
    source, target = repository(root, owner), repository(root, user)
    async with _workplace(root, user, confined) as box:
        words = ["git", "fetch", "--quiet", "--no-tags", str(source), f"refs/pit/{job}:{INCOMING}/{commit}"]
        env = {**environment_of(box, target), "GIT_ALLOW_PROTOCOL": "file"}
        done = await box.run(words, cwd=target, readable=[source], writable=[target], env=env)
    if done.code != 0 or not has(root, user, commit):
        raise full_disk(done) or SnakepitError(f"The snapshot of job {job} could not be copied: {done.words}")


# ----------------------------------------------------------------------------------------------------------- collecting


def due(root: Path) -> list[str]:
    """Users whose repository has something to collect."""
    return [path.parent.name for path in sorted((root / "cache").glob("*/snapshots.git")) if _is_due(path)]


def _is_due(path: Path) -> bool:
    packs = sum(name.endswith(".pack") for name in _listed(path / "objects" / "pack"))
    return (path / MARK).exists() or packs > MANY_PACKS or len(_listed(path / "objects" / "17")) > MANY_LOOSE


async def collect(root: Path, user: str, confined: bool = True, now: float | None = None) -> None:
    """Forgets pushes that nobody made a job of, and removes what no ref leads to. Objects of the last day stay: a push
    may be under way that counts on them."""
    cache = repository(root, user)
    async with _workplace(root, user, confined) as box, locked(root / "cache" / user / ".snapshots-lock", box):
        _forget_incoming(cache, time.time() if now is None else now)
        (cache / MARK).unlink(missing_ok=True)
        for words in (
            ("repack", "-A", "-d", "-l", "-q", "--unpack-unreachable=1.day.ago"),
            ("prune", "--expire=1.day.ago"),
        ):
            env = {**environment_of(box, cache), "GIT_DIR": str(cache)}
            done = await box.run(["git", *THRIFTY, *words], cwd=cache, writable=[cache], env=env, quiet=True)
            if done.code != 0:
                raise full_disk(done) or SnakepitError(f"Collecting the snapshots of {user} failed: {done.words}")


def _forget_incoming(cache: Path, now: float) -> None:
    """Pushes may be under way meanwhile: a ref or a lock that was there is perhaps gone. Names of refs are their
    owner's choice, and may have slashes in them."""
    files = (path for path in (cache / INCOMING).rglob("*") if path.suffix != ".lock" and not path.is_dir())
    refs = [(_changed_at(path), path) for path in files]
    for when, path in sorted(refs, reverse=True)[RECENT:]:
        if when < now - RECENT_S:
            path.unlink(missing_ok=True)
    for lock in (cache / "refs").rglob("*.lock"):  # of a push that was killed
        if _changed_at(lock) < now - RECENT_S:
            lock.unlink(missing_ok=True)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("-inf")


@contextlib.asynccontextmanager
async def _workplace(root: Path, user: str, confined: bool) -> AsyncIterator[Sandbox]:
    home = root / "cache" / user / f".home-{secrets.token_hex(6)}"
    home.mkdir(mode=0o700)
    try:
        write_private(home / "gitconfig", CONFIG)
        yield Sandbox(root, home, confined, lambda _line: None)
    finally:
        remove_tree(home)


def _ref(root: Path, user: str, job: int) -> Path:
    return repository(root, user) / "refs" / "pit" / str(int(job))


def _read(ref: Path) -> str:
    try:
        return ref.read_text("ascii").strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeDecodeError):
        return ""


def _listed(path: Path) -> list[str]:
    try:
        return [each.name for each in path.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
