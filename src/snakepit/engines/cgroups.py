"""Handing a control group to the account that will run jobs: done once, as root, before privileges are dropped."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from snakepit.engines.agent import limits


def prepare_cgroups(cluster: str, uid: int, gid: int = -1) -> tuple[str, ...]:
    """Makes `snakepit-<cluster>` in every tree and gives it to `uid`; which of cpu, mem, pids are then enforced.

    Call it in the process from which the agent will be started: on version 2 that process is moved inside, because a
    member may only be moved below a common parent that is ours.
    """
    mounts = limits.mounted(Path("/proc/self/mounts").read_text())
    made = set()
    for controller in limits.CONTROLLERS:
        if controller in mounts and _give(Path(mounts[controller]) / limits.base_name(cluster), uid, gid):
            made.add(controller)
    if not made and "cgroup2" in mounts:
        made = _prepare_version_2(Path(mounts["cgroup2"]), limits.base_name(cluster), uid, gid)
    return tuple(limits.NAMES[controller] for controller in limits.CONTROLLERS if controller in made)


def remove_cgroups(cluster: str) -> None:
    """Those of a cluster that is given up, as far as nothing lives in them."""
    mounts = limits.mounted(Path("/proc/self/mounts").read_text())
    for mount in sorted(set(mounts.values())):
        for directory, _, _ in os.walk(Path(mount) / limits.base_name(cluster), topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()


def _prepare_version_2(mount: Path, name: str, uid: int, gid: int) -> set[str]:
    offered = set((mount / "cgroup.controllers").read_text().split()) & set(limits.CONTROLLERS)
    base = mount / name
    if not offered:
        return set()
    _write(mount / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in offered))
    if not _give(base, uid, gid) or not limits.divide(str(base)):
        return set()
    if not _give(base / "service", uid, gid) or not _write(base / "service" / "cgroup.procs", str(os.getpid())):
        return set()
    return set((base / "cgroup.subtree_control").read_text().split()) & offered


def _give(directory: Path, uid: int, gid: int) -> bool:
    try:
        directory.mkdir(exist_ok=True)
        for path in (directory, directory / "cgroup.procs", directory / "cgroup.subtree_control", directory / "tasks"):
            if path.exists():
                os.chown(path, uid, gid)
    except OSError:
        return False
    return True


def _write(path: Path, value: str) -> bool:
    try:
        path.write_text(value)
    except OSError:
        return False
    return True
