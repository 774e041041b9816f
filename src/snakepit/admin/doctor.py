"""`snakepit doctor`: what works on this machine, tried out where it can be, with the fix for what does not."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from snakepit.config import Settings
from snakepit.core.confine import World, bubblewrap
from snakepit.core.sizes import rough_size
from snakepit.engines.agent import gpus, inventory, limits
from snakepit.service.pipes.programs import SFTP_SERVERS

NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    good: bool
    words: str
    needed: bool = False  # without it nothing works


def examine(settings: Settings) -> list[Finding]:
    return [
        Finding("python", sys.version_info >= (3, 11), sys.version.split()[0], needed=True),
        _program("git", "--version", needed=True),
        _program("git-lfs", "version", missing="not installed: large files of Git LFS stay pointers"),
        _program("rsync", "--version", missing="not installed: pit sync does not work"),
        _sftp_server(),
        _sandbox(),
        _cgroups(),
        _cards(),
        _data_root(settings.data_root),
        _port(settings.interface, settings.port),
    ]


def _program(name: str, argument: str, needed: bool = False, missing: str = "not installed") -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, False, missing, needed)
    done = subprocess.run([path, argument], capture_output=True, text=True, timeout=20)
    return Finding(name, done.returncode == 0, (done.stdout or done.stderr).strip().partition("\n")[0], needed)


def _sftp_server() -> Finding:
    found = next((path for path in SFTP_SERVERS if Path(path).exists()), None)
    return Finding("sftp-server", found is not None, found or "not installed: mounts do not work")


def _sandbox() -> Finding:
    if os.geteuid() != 0:
        problem = inventory.sandbox_problem()
        return Finding("sandbox", not problem, problem or "bubblewrap works")
    # What root can do says nothing: the service will not be root.
    program = shutil.which("bwrap")
    if program is None:
        return Finding("sandbox", False, inventory.sandbox_problem())
    trial = bubblewrap(World(), ["/bin/true"], program)
    done = subprocess.run(trial, capture_output=True, text=True, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    words = "bubblewrap works for ordinary accounts" if done.returncode == 0 else done.stderr.strip()
    return Finding("sandbox", done.returncode == 0, words)


def _cgroups() -> Finding:
    mounts: Mapping[str, str] = limits.mounted(Path("/proc/self/mounts").read_text())
    controllers = [name for name in limits.CONTROLLERS if name in mounts]
    if controllers:
        return Finding("cgroups", True, f"version 1 with {', '.join(controllers)}{_as_root_only()}")
    if "cgroup2" in mounts:
        offered = (Path(mounts["cgroup2"]) / "cgroup.controllers").read_text().split()
        usable = sorted(set(offered) & set(limits.CONTROLLERS))
        words = f"version 2 with {', '.join(usable)}{_as_root_only()}" if usable else "version 2 without cpu and memory"
        return Finding("cgroups", bool(usable), words)
    return Finding("cgroups", False, "none: limits of cores, memory and processes are not enforced")


def _as_root_only() -> str:
    return "" if os.geteuid() == 0 else " (enforced where the service is started as root or by systemd)"


def _cards() -> Finding:
    found = [str(card["name"]) for card in gpus.detect()]
    return Finding(
        "gpus", bool(found), ", ".join(found) or "none found; declare them with resources= where there are any"
    )


def _data_root(root: Path) -> Finding:
    above = next(place for place in (root, *root.parents) if place.exists())
    good = os.access(above, os.W_OK | os.X_OK)
    free = shutil.disk_usage(above).free
    words = f"{root} ({rough_size(free)} free)" if good else f"{root} is not writable for this account"
    return Finding("data root", good, words if above == root else f"{words}, made by serve", needed=True)


def _port(interface: str, port: int) -> Finding:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(interface, interface)
    try:
        with socket.create_connection((host, port), timeout=2):
            return Finding("port", True, f"{port}: something answers (the service?)")
    except OSError:
        return Finding("port", True, f"{port}: free")
