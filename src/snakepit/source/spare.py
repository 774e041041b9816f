"""Directories of jobs that stand ready, empty: making one takes longer than all else that a script needs of the head
before it starts. They lie in `<root>/pits/.ready-…`; what a stop of the service leaves of them goes at its next start.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections import defaultdict
from pathlib import Path

READY = ".ready-"
MOST = 4
REFILL_AFTER_S = 0.1  # the job that took one comes first
DIRECTORIES = ("src", "tmp", "keep", "workers", "workers/0", "log")
FILES = ("script.sh", "log/pit.log", "log/merged.state")

_ready: dict[Path, list[str]] = defaultdict(list)
_refilling: set[Path] = set()
_lock = threading.Lock()


def take(root: Path, job: int) -> bool:
    """Whether one of them is the directory of `job` now. Where something is there already, it is not."""
    with _lock:
        name = _ready[root].pop() if _ready[root] else ""
    _order(root)
    if not name:
        return False
    try:
        os.rename(f"{root}/pits/{name}", f"{root}/pits/{job}")  # noqa: PTH104
    except FileNotFoundError:
        return False
    except OSError:
        with _lock:
            _ready[root].append(name)
        return False
    return True


def known(root: Path) -> frozenset[str]:
    """The names of those that this process will use."""
    with _lock:
        return frozenset(_ready[root])


def _order(root: Path) -> None:
    """More of them, beside the loop."""
    if root in _refilling:
        return
    _refilling.add(root)
    loop = asyncio.get_running_loop()
    loop.call_later(REFILL_AFTER_S, lambda: loop.run_in_executor(None, _refill, root))


def _refill(root: Path) -> None:
    try:
        while len(known(root)) < MOST:
            name = f"{READY}{secrets.token_hex(8)}"
            _make(f"{root}/pits/{name}")
            with _lock:
                _ready[root].append(name)
    except OSError:
        pass  # a full disk, say: whoever needs one makes it himself, and is told
    finally:
        _refilling.discard(root)


def _make(place: str) -> None:
    os.mkdir(place)  # noqa: PTH102
    for name in DIRECTORIES:
        os.mkdir(f"{place}/{name}")  # noqa: PTH102
    for name in FILES:
        os.close(os.open(f"{place}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))
