"""The directory of a job, `<root>/pits/<n>`: what is in it, and how a finished preparation takes its place there.

The log may be there before anything else, and a retry finds everything there: so pieces are moved in one by one, each
by a rename, and a mark written last says that they are all there, for which attempt, and since which boot (what was
written before a power cut may be missing after it; it is cheaper to prepare again than to sync every file).
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

PREPARATION = ".prep-"
MARK = ".prepared"
FRESH = ("src", "tmp")  # new for every attempt
LASTING = ("keep", "workers", "log")  # what earlier attempts left stays
PAUSE_S = 0.01


_under_way: set[Path] = set()
_lock = threading.Lock()


@asynccontextmanager
async def preparing(prep: Path) -> AsyncIterator[None]:
    """While this lasts nobody takes the directory for a leftover of a crash; and nobody else is at it: a preparation
    that was broken off needs a moment to end its programs, and would then tidy away what the next one made."""
    while True:
        if _begun(prep):
            break
        await asyncio.sleep(PAUSE_S)
    try:
        yield
    finally:
        with _lock:
            _under_way.discard(prep)


def _begun(prep: Path) -> bool:
    with _lock:
        if prep in _under_way:
            return False
        _under_way.add(prep)
        return True


@contextmanager
def left_over(prep: Path) -> Iterator[bool]:
    """Whether no preparation of this process is at it; none begins meanwhile."""
    with _lock:
        yield prep not in _under_way


@contextmanager
def held(lock: Path) -> Iterator[bool]:
    """Whether the lock file could be had at once, and is then ours; its time says when it last was. It may have been
    removed between opening and locking: then it is a lock no more."""
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _locked(handle) and _is_at(lock, handle)
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def pits_dir(root: Path) -> Path:
    return root / "pits"


def pit_dir(root: Path, job: int) -> Path:
    return root / "pits" / str(job)


def prep_dir(root: Path, job: int) -> Path:
    return root / "pits" / f"{PREPARATION}{job}"


def prepared(root: Path, job: int, attempt: int = 0) -> bool:
    """Whether everything that this attempt needs is in its place."""
    try:
        return (pit_dir(root, job) / MARK).read_text() == mark(attempt)
    except (OSError, UnicodeDecodeError):
        return False


def intact(root: Path, job: int) -> bool:
    """Whether it was prepared since this machine was started: nothing is synced, a power cut may have left halves."""
    try:
        return (pit_dir(root, job) / MARK).read_text().endswith(f"boot {_boot_id()}\n")
    except (OSError, UnicodeDecodeError):
        return False


def mark(attempt: int) -> str:
    return f"attempt {attempt} boot {_boot_id()}\n"


@functools.cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
