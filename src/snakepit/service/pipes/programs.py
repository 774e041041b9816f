"""The programs at the other end of a pipe, and the bare world each of them gets: its one directory at /data, the
system's libraries, nothing else; no network, an environment made from scratch, limits. Argv in full, no shell."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from snakepit.core.confine import Bind, World, bubblewrap
from snakepit.errors import Unavailable
from snakepit.service.pipes.entity import Place

DATA = "/data"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": DATA,
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
# Generous: they stop a program that ran away, not one that works.
MEMORY_BYTES = 4 << 30
CPU_S = 86_400
PROCESSES = 64
OPEN_FILES = 4096


@dataclass(frozen=True, slots=True)
class Program:
    """`argv` with `place` at /data, or in a `world` of its own. `idle_s`: it is ended after so long without a byte;
    None: while its token lives."""

    name: str
    argv: tuple[str, ...]
    place: Place
    idle_s: float | None = 3600.0
    world: World | None = None


def sftp(place: Place) -> Program:
    """OpenSSH's own server, told to be read-only where its mount is, so that it refuses with the right words."""
    server = next((path for path in SFTP_SERVERS if Path(path).exists()), None)
    if server is None:
        raise Unavailable("sftp-server is not installed on the head (Debian, Ubuntu: apt install openssh-sftp-server)")
    return Program("sftp", (server, *(() if place.writable else ("-R",))), place, idle_s=None)


def installed(name: str) -> str:
    found = shutil.which(name, path=ENVIRONMENT["PATH"])
    if found is None:
        raise Unavailable(f"{name} is not installed on the head (Debian, Ubuntu: apt install {name})")
    return found


def command(program: Program, root: Path) -> list[str]:
    """The whole command that runs a program in its world."""
    if shutil.which("bwrap") is None:
        raise Unavailable("bubblewrap is not installed on the head (Debian, Ubuntu: apt install bubblewrap)")
    if program.world is not None:
        return bubblewrap(program.world, [*_limits(), *program.argv])
    place = program.place
    world = World(
        binds=(Bind(str(place.directory), DATA, writable=place.writable),),
        hidden=(str(root),),
        cwd=DATA,
        hostname="pit",
        etc=world_etc(root),
        die_with_parent=True,
        bare=True,
    )
    return bubblewrap(world, [*_limits(), *program.argv])


def _limits() -> Sequence[str]:
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        return ()
    words = [f"--as={MEMORY_BYTES}", f"--cpu={CPU_S}", f"--nofile={OPEN_FILES}", "--core=0"]
    if _processes_are_counted_inside():
        words.append(f"--nproc={PROCESSES}")
    return [prlimit, *words, "--"]


def _processes_are_counted_inside() -> bool:
    """Before Linux 5.14 all processes of the same user counted together, jobs too: a limit would hit the wrong ones."""
    release = os.uname().release.split(".")
    return tuple(int(part) if part.isdigit() else 0 for part in release[:2]) >= (5, 14)


def world_etc(root: Path) -> str:
    """/etc of every pipe: who we are (sftp-server asks), where libraries lie. Nothing of the real one shows."""
    etc = root / "pipes" / "etc"
    passwd = f"pit:x:{os.getuid()}:{os.getgid()}::{DATA}:/usr/sbin/nologin\n"
    written = etc / "passwd"
    if written.exists() and written.read_text() == passwd:
        return str(etc)
    etc.mkdir(mode=0o755, parents=True, exist_ok=True)
    (etc / "group").write_text(f"pit:x:{os.getgid()}:\n")
    (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\n")
    cache = Path("/etc/ld.so.cache")
    if cache.exists():
        shutil.copyfile(cache, etc / "ld.so.cache")
    written.write_text(passwd)  # last: it says that the rest is there
    return str(etc)
