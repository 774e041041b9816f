"""The data plan: who sees which directory where. Pure: names in, mounts out; engines turn a mount into a bind, a
device or an sshfs. The rights are kept by the mounts themselves, never by convention.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from snakepit.errors import BadRequest

DATA_ROOT = "/data"


@dataclass(frozen=True, slots=True)
class Mount:
    """`source` on the head (or node), seen as `path` by the process."""

    source: str
    path: str
    writable: bool


def job_mounts(root: str, job: int, user: str, groups: Iterable[str], task: int = 0) -> tuple[Mount, ...]:
    """What a job of `user` sees: its own directory, shared, home, the groups; its log read-only even to itself."""
    top = PurePosixPath(root)
    pit = top / "pits" / str(job)
    return (
        Mount(str(pit), "/data/rw/pit", True),
        Mount(str(pit / "log"), "/data/rw/pit/log", False),
        Mount(str(top / "shared"), "/data/ro/shared", False),
        Mount(str(top / "home" / user), "/data/rw/home", True),
        *(Mount(str(top / "groups" / group), f"/data/rw/group-{group}", True) for group in sorted(groups)),
    )


def node_mounts(text: str) -> tuple[Mount, ...]:
    """A node's own mounts, seen by every process there: `/scratch:rw,/datasets:ro` (ro where nothing is said)."""
    found = []
    for part in (piece.strip() for piece in text.split(",")):
        path, _, mode = part.partition(":")
        if not part:
            continue
        if not path.startswith("/") or ".." in PurePosixPath(path).parts or mode not in ("", "ro", "rw"):
            raise BadRequest(f'a mount is written /path:ro or /path:rw, not "{part}"')
        found.append(Mount(path, path, mode == "rw"))
    return tuple(found)
