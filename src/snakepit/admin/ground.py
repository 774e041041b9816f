"""The ground a service stands on: its data root, the account that owns it, the lock, the port.

As root we prepare all of that and then become the owner for good: nothing of a user, and not even the database, is
touched as root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

from snakepit.config import Settings
from snakepit.engines.cgroups import prepare_cgroups
from snakepit.engines.ping import allow_ping
from snakepit.errors import ConfigError, SnakepitError

ACCOUNT = "snakepit"
OURS = frozenset({"lost+found", ".pitconnect.txt", "cluster-id"})


class CannotServe(SnakepitError):
    """Not a matter of the configuration: trying again later may help."""


def settle(settings: Settings) -> tuple[str, ...]:
    """The data root made and writable, and we its owner; which of cpu, mem can be limited."""
    root = settings.data_root
    limits: tuple[str, ...] = ()
    if os.geteuid() == 0:
        limits = _settle_as_root(root)
    else:
        try:
            root.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as problem:
            raise ConfigError(f"data root {root} cannot be made: {problem.strerror}") from problem
    os.umask(0o022)
    _try_out(root)
    return limits


def _settle_as_root(root: Path) -> tuple[str, ...]:
    missing = [place for place in (root, *root.parents) if not place.exists()]
    try:
        root.mkdir(mode=0o750, parents=True, exist_ok=True)
        uid, gid = root.stat().st_uid, root.stat().st_gid
        if uid == 0:
            uid, gid = _take_over(root)
    except OSError as problem:
        raise ConfigError(f"data root {root} cannot be made: {problem.strerror}") from problem
    if not _reachable(root, uid, gid):
        for place in missing:
            place.rmdir()
        raise ConfigError(
            f"data root {root} cannot be reached by {_name(uid)}, as whom the service runs: it is private"
        )
    limits = prepare_cgroups(cluster_id(root, uid, gid), uid, gid)
    allow_ping(gid)
    _become(uid, gid, root)
    return limits


def _reachable(root: Path, uid: int, gid: int) -> bool:
    """Asked of the kernel, as the account itself; modes alone do not tell."""
    program = shutil.which("test") or "/usr/bin/test"
    asked = subprocess.run([program, "-w", str(root), "-a", "-x", str(root)], user=uid, group=gid, extra_groups=[])
    return asked.returncode == 0


def _take_over(root: Path) -> tuple[int, int]:
    """Gives a new or empty directory to the account of the service."""
    strangers = sorted({path.name for path in root.iterdir()} - OURS)
    if strangers:
        raise ConfigError(
            f"data root {root} belongs to root and is not empty ({strangers[0]} …): "
            f"choose an empty one, or give it away with chown -R {ACCOUNT}"
        )
    account = _account()
    os.chown(root, account.pw_uid, account.pw_gid)
    root.chmod(0o750)
    return account.pw_uid, account.pw_gid


def _account() -> pwd.struct_passwd:
    """The system user `snakepit`, made where it is missing."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(ACCOUNT)
    program = shutil.which("useradd") or "/usr/sbin/useradd"
    shell = next((shell for shell in ("/usr/sbin/nologin", "/sbin/nologin") if Path(shell).exists()), "/bin/false")
    argv = [program, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    try:
        done = subprocess.run([*argv, "--shell", shell, ACCOUNT], capture_output=True, text=True)
        words = done.stderr.strip()
    except OSError as problem:
        words = str(problem.strerror)
    try:
        return pwd.getpwnam(ACCOUNT)  # made by us, or by another start in the same moment
    except KeyError as problem:
        raise ConfigError(
            f"the account {ACCOUNT!r} cannot be made ({words}): make it, or chown the data root"
        ) from problem


def _become(uid: int, gid: int, root: Path) -> None:
    try:
        name = pwd.getpwuid(uid).pw_name
        os.initgroups(name, gid)  # with its groups: video and render let it use AMD cards
    except KeyError:
        os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if os.geteuid() == 0 or os.getuid() == 0:
        raise ConfigError("could not stop being root")
    os.environ["HOME"] = str(root)
    with contextlib.suppress(OSError):
        os.chdir("/")


def cluster_id(root: Path, uid: int = -1, gid: int = -1) -> str:
    """The cluster's id, needed (for the control groups) before the database may be opened; the database has it too."""
    path = root / "cluster-id"
    with contextlib.suppress(OSError):
        known = path.read_text().strip()
        if re.fullmatch(r"[0-9a-f]{8,64}", known):
            return known
    fresh = secrets.token_hex(8)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    with os.fdopen(handle, "w") as file:
        file.write(fresh + "\n")
        if uid >= 0:
            os.fchown(file.fileno(), uid, gid)
    return fresh


def _try_out(root: Path) -> None:
    probe = root / f".probe-{secrets.token_hex(4)}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise ConfigError(
            f"data root {root} is not writable for {_name(os.geteuid())}: {problem.strerror}"
        ) from problem


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def lock(root: Path) -> int:
    """One service per data root; held until the process ends."""
    handle = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        pid = os.pread(handle, 20, 0).decode(errors="replace").strip() or "?"
        os.close(handle)
        raise CannotServe(f"another service (process {pid}) uses the data root {root}") from problem
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def bind(interface: str, port: int) -> socket.socket:
    """The port, taken while we may."""
    try:
        found = socket.getaddrinfo(interface or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as problem:
        raise ConfigError(f"interface {interface!r} is no address of this machine: {problem.strerror}") from problem
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(2048)
    except OSError as problem:
        bound.close()
        hint = " (ports below 1024 need root)" if isinstance(problem, PermissionError) else ""
        raise CannotServe(f"cannot listen on {interface}:{port}: {problem.strerror}{hint}") from problem
    return bound
