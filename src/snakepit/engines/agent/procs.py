"""Looking at processes through /proc: who is whose child, since when, with which mark in the environment.

A process is known by its boot, its pid and its start time, because a pid alone is given again to strangers.
"""

import ctypes
import os
import platform
import signal
import time
from typing import Dict, Iterable, List, Optional, Set

MARK = "SNAKEPIT_MARK"
DYING_S = 0.01
PIDFD_OPEN = 434  # the same number on every architecture
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Stat:
    """The fields of /proc/<pid>/stat that matter here."""

    __slots__ = ("cpu_s", "parent", "pid", "rss_bytes", "session", "started", "state")

    def __init__(self, text: str) -> None:
        # The name stands in brackets and may hold blanks and brackets itself.
        head, _, tail = text.rpartition(")")
        fields = tail.split()
        self.pid = int(head.split(" ", 1)[0])
        self.state = fields[0]
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.cpu_s = (int(fields[11]) + int(fields[12])) / TICKS
        self.started = int(fields[19])
        self.rss_bytes = int(fields[21]) * PAGE


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def stat(pid: int) -> Optional[Stat]:
    try:
        with open("/proc/{}/stat".format(pid), errors="replace") as file:
            return Stat(file.read())
    except (OSError, ValueError, IndexError):
        return None


def alive(pid: int, started: int) -> bool:
    seen = stat(pid)
    return seen is not None and seen.started == started and seen.state not in "ZX"


def everyone() -> Dict[int, Stat]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            seen = stat(int(name))
            if seen is not None:
                found[seen.pid] = seen
    return found


def children(pid: int) -> List[int]:
    try:
        with open("/proc/{0}/task/{0}/children".format(pid)) as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # gone, or a kernel that was built without this list
        return [seen.pid for seen in everyone().values() if seen.parent == pid]
    except OSError:
        return []


def below(root: int, table: Dict[int, Stat]) -> List[int]:
    """All descendants of `root`, parents before children; zombies left out."""
    children: Dict[int, List[int]] = {}
    for seen in table.values():
        children.setdefault(seen.parent, []).append(seen.pid)
    found, todo = [], list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        if table[pid].state not in "ZX":
            found.append(pid)
        todo.extend(children.get(pid, ()))
    return found


def marked(mark: str) -> Set[int]:
    """Processes that carry this mark in the environment they were started with."""
    wanted = (MARK + "=" + mark).encode()
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/{}/environ".format(name), "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        found.add(int(name))
            except OSError:
                continue
    return found


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def kill_marked(mark: str) -> int:
    """Ends every process with the mark, also those born meanwhile; how many were found."""
    ended = 0
    for _ in range(50):
        found = {pid for pid in marked(mark) if (stat(pid) or _GONE).state not in "ZX"}
        if not found:
            break
        ended += len(found)
        send(found, signal.SIGKILL)
        time.sleep(DYING_S)  # where the machine is busy, they need the processor to die
    return ended


def pidfd(pid: int) -> Optional[int]:
    """A descriptor that becomes readable when the process ends; None where the kernel (before 5.3) has none."""
    if hasattr(os, "pidfd_open"):
        try:
            return os.pidfd_open(pid)
        except OSError:
            return None
    if platform.system() != "Linux":
        return None
    number = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_OPEN, pid, 0)
    return number if number >= 0 else None


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return "RT{}".format(number)


class _Gone:
    state = "X"


_GONE = _Gone()
