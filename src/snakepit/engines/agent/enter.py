"""Going into a sandbox that runs already, and being nobody there: namespaces joined, every capability dropped.

Bubblewrap makes two user namespaces: the outer one owns the mounts and the process numbers, the inner one is the
payload's. Joining either gives all capabilities in it, so they are dropped, and that is looked at, before any program
is started or a process number of the sandbox is taken.
"""

import ctypes
import fcntl
import os
from typing import Dict, List, Tuple

from snakepit.engines.agent import procs

NEW_USER = 0x10000000
# Mounts last: with them /proc becomes another one.
KINDS: List[Tuple[str, int]] = [
    ("ipc", 0x08000000),
    ("uts", 0x04000000),
    ("cgroup", 0x02000000),
    ("net", 0x40000000),
    ("pid", 0x20000000),
    ("mnt", 0x00020000),
]
GET_USERNS = 0xB701
PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 23, 24, 38, 47
AMBIENT_CLEAR_ALL = 4
CAP_VERSION_3 = 0x20080522
LIBC = ctypes.CDLL(None, use_errno=True)


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def open_namespaces(pid: int, holder: int) -> Dict[str, int]:
    """Handles on the namespaces of `pid` that are not ours, once it is sure to be the sandbox of this holder."""
    found: Dict[str, int] = {}
    for kind in [kind for kind, _ in KINDS] + ["user"]:
        try:
            handle = os.open("/proc/{}/ns/{}".format(pid, kind), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if kind in ("cgroup", "net"):
                continue  # a kernel without them
            raise
        if _same(handle, "/proc/self/ns/" + kind):
            os.close(handle)
        else:
            found[kind] = handle
    if not _belongs(pid, holder) or not procs.children(pid) or not {"user", "mnt", "pid"} <= set(found):
        raise OSError("the sandbox is gone")
    return found


def _belongs(pid: int, holder: int) -> bool:
    """A number may have gone to a stranger meanwhile: bubblewrap's inner process is its outer one's child."""
    inner = procs.stat(pid)
    outer = procs.stat(inner.parent) if inner is not None else None
    return outer is not None and outer.parent == holder


def _same(handle: int, path: str) -> bool:
    ours, theirs = os.stat(path), os.fstat(handle)
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


def join(namespaces: Dict[str, int]) -> None:
    """Into all of them; what is started from here on has a process number in there."""
    LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # the agent's memory is nothing for the sandbox to look at
    outer = fcntl.ioctl(namespaces["mnt"], GET_USERNS)
    _setns(outer, NEW_USER)
    for kind, flag in KINDS:
        if kind in namespaces:
            _setns(namespaces[kind], flag)
    if os.fstat(outer).st_ino != os.fstat(namespaces["user"]).st_ino:
        _setns(namespaces["user"], NEW_USER)
    os.close(outer)
    for handle in namespaces.values():
        os.close(handle)


def _setns(handle: int, flag: int) -> None:
    if LIBC.setns(handle, flag) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "cannot enter the sandbox: " + os.strerror(number))


def drop_capabilities() -> None:
    """All of them, for ever. What is not gone afterwards is an error: nothing may be started then."""
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("cannot give up gaining privileges")
    number = 0
    while LIBC.prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0:
        LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
        if LIBC.prctl(PR_CAPBSET_READ, number, 0, 0, 0) != 0:
            raise OSError("capability {} cannot be dropped".format(number))
        number += 1
    LIBC.prctl(PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, data = _CapHeader(CAP_VERSION_3, 0), (_CapData * 2)()
    LIBC.capset(ctypes.byref(header), ctypes.byref(data))
    kept = (_CapData * 2)()
    if LIBC.capget(ctypes.byref(header), ctypes.byref(kept)) != 0 or any(
        part.effective or part.permitted or part.inheritable for part in kept
    ):
        raise OSError("capabilities cannot be dropped")
