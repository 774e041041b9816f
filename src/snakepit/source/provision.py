"""Preparing a job's directory: code from git, from an archive or none, the data it continues with, its script.

Everything is built aside in `<root>/pits/.prep-<job>` and then moved in; every program that touches what a user sent
runs confined. A job that is only a script costs some mkdirs and no program at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from snakepit.core.origin import Origin, read_origin
from snakepit.core.sizes import rough_size
from snakepit.errors import BadRequest, SnakepitError
from snakepit.source import archive, git, snapshots, spare
from snakepit.source.layout import FRESH, LASTING, MARK, mark, pit_dir, prep_dir, prepared, preparing
from snakepit.source.sandbox import Sandbox
from snakepit.source.sweep import remove_tree, to_trash

__all__ = ["COMPUTE", "Work", "prepared", "provision"]

log = logging.getLogger(__name__)

PROGRESS_S = 5.0
COMPUTE = "if [ -f .compute ]; then bash .compute; fi\n"


@dataclass(frozen=True, slots=True)
class Work:
    """What to prepare. `source` is "git", "snapshot", "archive" or "script"; `origin` may hold credentials."""

    root: Path
    job: int
    user: str
    source: str
    origin: str = field(default="", repr=False)
    hash: str = ""
    snapshot: str = ""
    diff: bytes = field(default=b"", repr=False)
    archive: Path | None = None
    script: str = ""  # the direct commands; empty: the checkout's .compute
    continues: int | None = None
    time_limit_s: float | None = None
    confined: bool = True
    attempt: int = 0
    allow_file: bool = False  # origins on the head's own disk, for tests and single users
    environment: tuple[tuple[str, str], ...] = ()  # for git, curl and ssh: a proxy's address, say


async def provision(work: Work, say: Callable[[str], None]) -> None:
    """Raises SnakepitError with the reason for people. Cancelled, it kills what it started and leaves nothing behind;
    called again for the same job it builds a fresh `src/` and `tmp/` and keeps the rest."""
    if work.source == "script" and work.continues is None and not work.diff and _made_in_place(work):
        return
    prep = prep_dir(work.root, work.job)
    async with preparing(prep):
        await _prepare(work, prep, say)


async def _prepare(work: Work, prep: Path, say: Callable[[str], None]) -> None:
    try:
        async with asyncio.timeout(work.time_limit_s):
            _start(work, prep)
            await _fill(work, prep, say)
            _move_in(work, prep / "pit")
    except TimeoutError:
        raise SnakepitError(f"Preparation took longer than the {work.time_limit_s:g} s it may take") from None
    except OSError as problem:
        raise _told(problem) from problem
    finally:
        await _tidy(work.root, prep)


def _made_in_place(work: Work) -> bool:
    """The quick way of a first attempt that is only a script; False where an earlier one left something."""
    if prep_dir(work.root, work.job).exists():
        return False
    place = str(pit_dir(work.root, work.job))  # plain text: paths as objects take longer than making what they name
    try:
        if not spare.take(work.root, work.job):
            os.makedirs(f"{place}/log", exist_ok=True)  # noqa: PTH103
            for name in ("src", "tmp", "keep", "workers"):
                os.mkdir(f"{place}/{name}")  # noqa: PTH102
        for name, text in (("script.sh", _script(work)), (MARK, mark(work.attempt))):  # the mark last
            with open(f"{place}/{name}", "wb", buffering=0) as file:  # noqa: PTH123
                _write_whole(file, text.encode("utf-8", "surrogateescape"))
    except FileExistsError:
        return False
    except OSError as problem:
        raise _told(problem) from problem
    return True


def _write_whole(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


async def _tidy(root: Path, prep: Path) -> None:
    """A half-made checkout may be large: it is out of the way at once and removed beside the loop. What cannot be
    removed now is swept later; it is no reason to call a job that is well prepared a failure."""
    try:
        if not (prep / "pit").exists():
            remove_tree(prep)
        elif (trashed := to_trash(root, prep, keep=False)) is not None:
            await asyncio.shield(asyncio.to_thread(remove_tree, trashed))
    except OSError as problem:
        log.warning("%s stays until it is swept: %s", prep, problem)


def _start(work: Work, prep: Path) -> None:
    to_trash(work.root, prep, keep=False)  # what a crash left
    (pit_dir(work.root, work.job) / MARK).unlink(missing_ok=True)
    pit = prep / "pit"
    pit.mkdir(parents=True)
    for name in (*FRESH, *LASTING):
        (pit / name).mkdir()
    (pit / "script.sh").write_bytes(_script(work).encode("utf-8", "surrogateescape"))
    (pit / MARK).write_text(mark(work.attempt))


def _script(work: Work) -> str:
    script = work.script if work.script.strip() else COMPUTE
    return script if script.endswith("\n") else script + "\n"


async def _fill(work: Work, prep: Path, say: Callable[[str], None]) -> None:
    continues = work.continues if not _is_directory(pit_dir(work.root, work.job) / "keep") else None
    if work.source == "script" and continues is None and not work.diff:
        return
    if not work.user or "/" in work.user or work.user in (".", "..") or "\0" in work.user:
        raise BadRequest(f"Not a user id: {work.user!r}")
    home = prep / "home"
    home.mkdir(mode=0o700)
    origin = read_origin(work.origin) if work.source == "git" else None
    scrub = origin.scrub if origin else str
    box = Sandbox(work.root, home, work.confined, say, scrub, dict(work.environment))
    if continues is not None:
        await _copy_keep(box, pit_dir(work.root, continues), prep / "pit")
    await _bring_source(work, box, origin, prep / "pit" / "src")


async def _bring_source(work: Work, box: Sandbox, origin: Origin | None, src: Path) -> None:
    match work.source:
        case "git":
            assert origin is not None
            if origin.scheme == "file":
                _check_file_origin(work, origin)
            wanted = git.Wanted(origin, work.hash, work.diff, git.cache_dir(work.root, work.user, origin))
            await git.check_out(wanted, src, box)
        case "snapshot":
            await snapshots.check_out(work.root, work.user, work.job, work.snapshot, work.origin, src, box)
        case "archive":
            if work.archive is None:
                raise BadRequest("There is no archive")
            await archive.unpack(work.root, work.archive, src, box)
        case "script":
            pass
        case other:
            raise BadRequest(f"Unknown kind of source: {other!r}")
    if work.diff and work.source != "git":
        await git.apply(box, src, work.diff, "the sent files", tracked=False)


def _check_file_origin(work: Work, origin: Origin) -> None:
    """Other people's caches and homes lie below the data root: never by a file origin."""
    if not work.allow_file:
        raise BadRequest("Repositories on the head's own disk are not allowed here: use https, ssh or git")
    path, root = Path(origin.path).resolve(), work.root.resolve()
    if path.is_relative_to(root) or root.is_relative_to(path):
        raise BadRequest(f"{origin.shown} lies in the data of the service")
    if not path.is_dir():
        raise SnakepitError(f"There is no repository at {origin.shown}")


async def _copy_keep(box: Sandbox, continued: Path, pit: Path) -> None:
    """The whole directory of the continued job is shown to cp, so that a `keep` that is a link leads nowhere outside.
    A copy, never hard links: the jobs must not change each other's files."""
    if not _is_directory(continued / "keep"):
        box.say(f"Job {continued.name} has no data to continue with")
        return
    copy = ["cp", "-a", "--reflink=auto", "--", f"{continued}/keep/.", f"{pit}/keep/"]
    watching = asyncio.create_task(_say_progress(box, continued, pit))
    try:
        done = await box.run(copy, cwd=pit, readable=[continued], writable=[pit / "keep"])
    finally:
        watching.cancel()
    if done.code != 0:
        raise SnakepitError(f"Cannot copy the data of job {continued.name}: {done.words}")


async def _say_progress(box: Sandbox, continued: Path, pit: Path) -> None:
    """Only of a copy that takes its time."""
    await asyncio.sleep(PROGRESS_S)
    whole = await asyncio.to_thread(_size_of, continued / "keep")
    while True:
        copied = await asyncio.to_thread(_size_of, pit / "keep")
        box.say(f"Copying keep/ of job {continued.name}: {rough_size(copied)} of {rough_size(whole)}")
        await asyncio.sleep(PROGRESS_S)


def _size_of(directory: Path) -> int:
    """Of all regular files below; no link is followed."""
    total = 0
    for here, _below, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(here, name)).st_size  # noqa: PTH118  (many of them)
    return total


def _move_in(work: Work, pit: Path) -> None:
    place = pit_dir(work.root, work.job)
    try:
        pit.rename(place)  # nothing, or an empty directory, is there
        return
    except OSError as problem:
        if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
    for name in FRESH:
        to_trash(work.root, place / name)
        (pit / name).rename(place / name)
    for name in LASTING:
        if not _is_directory(place / name):
            to_trash(work.root, place / name)  # a file or a link that the job put there
            (pit / name).rename(place / name)
    for name in ("script.sh", MARK):  # the mark last
        if _is_directory(place / name):
            to_trash(work.root, place / name)
        (pit / name).replace(place / name)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _told(problem: OSError) -> SnakepitError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return SnakepitError("The disk of the head is full: nothing could be prepared")
    return SnakepitError(f"Cannot prepare the job: {os.strerror(problem.errno or 0)} ({problem.filename or 'no file'})")
