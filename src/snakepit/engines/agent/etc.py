"""The /etc that processes see: a copy of the short list, made once and again when something of it changed.

One directory instead of some thirty binds: bubblewrap reads the table of mounts for each bind, so that they took longer
than all the rest of a start.
"""

import os
import shutil
import time
from typing import List, Tuple

from snakepit.core.confine import ETC, SYSTEM

Stamp = List[Tuple[str, int, int]]
LOOK_AGAIN_S = 1.0


class Etc:
    def __init__(self, top: str) -> None:
        self._top = os.path.join(top, "etc")
        os.makedirs(self._top, exist_ok=True)
        self._number = max([int(name) for name in os.listdir(self._top) if name.isdigit()] or [0])
        self._stamp: Stamp = []
        self._looked_at = -LOOK_AGAIN_S  # a machine that was started just now counts from 0

    def tidy(self) -> None:
        """Nothing runs: nobody sees the copies of before any more."""
        for name in os.listdir(self._top):
            shutil.rmtree(os.path.join(self._top, name), ignore_errors=True)

    def directory(self) -> str:
        """A copy as of now. Older ones stay until a start of the agent at which nothing runs: they may be in use."""
        if time.monotonic() >= self._looked_at + LOOK_AGAIN_S:
            self._looked_at, stamp = time.monotonic(), _stamp()
            if stamp != self._stamp:
                self._number += 1
                _copy(self._current())
                self._stamp = stamp
        return self._current()

    def _current(self) -> str:
        return os.path.join(self._top, str(self._number))


def links() -> Tuple[Tuple[str, str], ...]:
    """The system's directories that are links (a merged /usr), as target and path."""
    return tuple((os.readlink(path), path) for path in SYSTEM if os.path.islink(path))


def _stamp() -> Stamp:
    found = []
    for name in ETC:
        try:
            facts = os.stat("/etc/" + name)
        except OSError:
            continue
        found.append((name, facts.st_mtime_ns, facts.st_ino))
    return found


def _copy(target: str) -> None:
    for name in ETC:
        source, copy = "/etc/" + name, os.path.join(target, name)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        try:
            if os.path.isdir(source):
                shutil.copytree(source, copy, symlinks=True)
            elif os.path.exists(source):
                shutil.copyfile(source, copy)
        except (OSError, shutil.Error):
            continue  # what we may not read, nobody in a sandbox would miss
    for name in ("hosts", "passwd"):
        open(os.path.join(target, name), "a").close()  # where each process's own is put
    _drop_tty(os.path.join(target, "group"))


def _drop_tty(path: str) -> None:
    """In there nothing can be given to this group, and sshd, which would give it its terminals, gives up."""
    if os.path.exists(path):
        with open(path, "rb") as file:
            lines = [line for line in file if not line.startswith(b"tty:")]
        with open(path, "wb") as file:
            file.writelines(lines)
