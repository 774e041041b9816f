"""A directory of the cluster as one of this machine: sshfs, whose ssh is `pit pipe`.

sshfs runs as a child of its own session, so that Ctrl-C reaches us and not it: what is written is flushed by a proper
unmount. When the service or the connection goes, sshfs connects anew; handles from before give errors, no wrong data.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from snakepit.client.client import Client
from snakepit.client.places import Place
from snakepit.errors import BadRequest, NotFound, SnakepitError
from snakepit.pit import own, render

INSTALL = (
    "sshfs is not installed here (Debian and Ubuntu: apt-get install sshfs; Fedora: dnf install fuse-sshfs; "
    "macOS: macFUSE and sshfs)"
)
NO_FUSE = (
    "there is no /dev/fuse here that you may use: load the kernel module (modprobe fuse), or ask your administrator"
)
SOURCE = "pit:"  # how our mounts are known in the table of mounts
TEMPORARY = "pit-mount-"
FAILED = "Command failed: "  # how `pit pipe` begins
MOUNT_LIMIT_S = 30
TRIES = 10
PAUSE_S = 0.1


def check() -> None:
    """That this machine can mount at all."""
    if shutil.which("sshfs") is None:
        raise SnakepitError(INSTALL)
    if sys.platform == "linux" and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise SnakepitError(NO_FUSE)


def free(path: str) -> None:
    """That nothing is in the way at a mountpoint."""
    if in_use(path):
        raise BadRequest(f"{path} is a mountpoint in use (pit umount {path})")
    if not os.path.isdir(path):
        what = "is no directory" if os.path.lexists(path) else "does not exist"
        raise NotFound(f"{path} {what}: a mountpoint has to be an empty directory")
    if os.listdir(path):
        raise BadRequest(f"{path} is not empty")


def in_use(path: str) -> bool:
    point = _point(path)
    return any(mount.point == point for mount in mounts()) or os.path.ismount(point)


def _point(path: str) -> str:
    """Its real path, of a mount of ours without a look at what is mounted: that may have to wait for the cluster."""
    folder, name = os.path.split(os.path.abspath(path))
    beside = os.path.join(os.path.realpath(folder), name)
    return beside if any(mount.point == beside for mount in mounts()) else os.path.realpath(path)


def start(client: Client, place: Place, mountpoint: str) -> subprocess.Popen[bytes]:
    """A running sshfs, once the mountpoint shows what is there."""
    options = {
        "ssh_command": ssh_command(own.pipe("sftp", place.entity)),
        "fsname": f"{SOURCE}{place.entity}@{client.address.url}",
        "idmap": "user",
        # Jobs write at the same time: what is there shall be seen, after two seconds at most.
        "dcache_timeout": "2",
    }
    switches = ["reconnect", *([] if place.writable else ["ro"])]
    words = [f"{name}={option(value)}" for name, value in options.items()] + switches
    command = ["sshfs", "-f", "pit:", os.path.realpath(mountpoint), "-o", ",".join(words)]
    process = subprocess.Popen(
        command,
        env=own.environment(client),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _wait(process, mountpoint)
    except BaseException:  # Ctrl-C too: nothing stays mounted that nobody was told of
        process.terminate()
        process.wait(timeout=60)
        raise
    threading.Thread(target=_listen, args=(process, mountpoint), daemon=True).start()
    return process


def _listen(process: subprocess.Popen[bytes], mountpoint: str) -> None:
    """Every failed connection leaves words on stderr. Unread they would fill it, and whoever looks into the mountpoint
    would hang; and what `pit pipe` says there is why there are errors: told, as long as it is news."""
    assert process.stderr is not None
    told = ""
    for line in process.stderr:
        words = line.decode(errors="replace").strip()
        if words.startswith(FAILED) and words != told:
            told = words
            render.talk(f"{mountpoint}: {render.clean(words.removeprefix(FAILED))}")


def _wait(process: subprocess.Popen[bytes], mountpoint: str) -> None:
    end = time.monotonic() + MOUNT_LIMIT_S
    while not in_use(mountpoint):
        if process.poll() is not None:
            assert process.stderr is not None
            said = [line for line in process.stderr.read().decode(errors="replace").splitlines() if line.strip()]
            raise SnakepitError(said[0].removeprefix(FAILED) if said else "sshfs ended without a word")
        if time.monotonic() > end:
            raise SnakepitError(f"not mounted within {MOUNT_LIMIT_S} s")
        time.sleep(0.02)


def ssh_command(words: list[str]) -> str:
    """sshfs splits at blanks; a backslash keeps what follows it."""
    return " ".join("".join(f"\\{char}" if char in " \t\n\\" else char for char in word) for word in words)


def option(value: str) -> str:
    """In a list of options: commas part them, backslashes protect."""
    return value.replace("\\", "\\\\").replace(",", "\\,")


def unmount(mountpoint: str) -> None:
    """Tried for a second, as something may still look at it; then it is said what helps."""
    said = ""
    for turn in range(TRIES):
        if not in_use(mountpoint):
            return
        if turn:
            time.sleep(PAUSE_S)
        done = subprocess.run(_unmounting(_point(mountpoint)), capture_output=True, stdin=subprocess.DEVNULL)
        said = done.stderr.decode(errors="replace").strip()
    if in_use(mountpoint):
        raise SnakepitError(
            f"unable to unmount {mountpoint}: {said.splitlines()[-1] if said else 'it stays'}\n"
            f"Leave it with every shell and program, then: fusermount -u {mountpoint}\n"
            f"If that does not help: umount --lazy {mountpoint}"
        )


def _unmounting(path: str) -> list[str]:
    for program in ("fusermount3", "fusermount"):
        if shutil.which(program):
            return [program, "-u", path]
    return ["umount", path]


def tidy(mountpoint: str) -> None:
    """A temporary mountpoint goes, once nothing is in it."""
    with contextlib.suppress(OSError):
        os.rmdir(mountpoint)


def temporary(mountpoint: str) -> bool:
    return os.path.basename(mountpoint).startswith(TEMPORARY)


class Mount(NamedTuple):
    entity: str
    url: str  # of the service
    point: str


def mounts() -> list[Mount]:
    """What this account mounted with pit on this machine."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        fields, _, more = line.partition(b" - ")
        kind, source, options = (*more.split(), b"", b"", b"")[:3]
        own = f"user_id={os.getuid()}".encode() in options.split(b",")
        if own and source.startswith(SOURCE.encode()) and kind.startswith(b"fuse"):
            entity, _, url = os.fsdecode(_plain(source))[len(SOURCE) :].rpartition("@")
            found.append(Mount(entity, url, os.fsdecode(_plain(fields.split()[4]))))
    return found


def _plain(field: bytes) -> bytes:
    """The table writes blanks and the like as `\\040`."""
    import re

    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field)
