"""Cores and memory kept by the kernel: a control group per process, below a base that was handed to our account.

Version 1 has one tree per controller, version 2 one for all. `find` looks for the base that the service made (as root,
before privileges are dropped) or, on version 2, for a group of our own that systemd delegated. Where there is none,
`enforced` is empty and the node says so.
"""

import os
from typing import Dict, List, Optional, Set, Tuple

from snakepit.engines.agent.records import read_text

CONTROLLERS = ("cpu", "memory", "pids")
NAMES = {"cpu": "cpu", "memory": "mem", "pids": "pids"}  # as a node says them
PERIOD_US = 100000
MOST_TASKS = 32768


class Limits:
    """`bases` maps a controller to the directory below which our groups live; on version 2 all are the same one."""

    def __init__(self, bases: Dict[str, str], version: int) -> None:
        self.bases, self.version = bases, version

    @property
    def enforced(self) -> List[str]:
        return [NAMES[controller] for controller in CONTROLLERS if controller in self.bases]

    def make(self, name: str, cpus: int, weight: int, mem_bytes: int) -> List[str]:
        """The group of one process; the files by which it joins."""
        joins = []
        for directory in self._directories(name):
            os.makedirs(directory, exist_ok=True)
            joins.append(os.path.join(directory, self._door()))
        for file, value in self._settings(cpus, weight, mem_bytes):
            controller = "memory" if file.startswith("memory") else file.split(".")[0]
            if controller in self.bases:
                _write(os.path.join(self.bases[controller], name, file), value)
        return joins

    def _settings(self, cpus: int, weight: int, mem_bytes: int) -> List[Tuple[str, str]]:
        quota = cpus * PERIOD_US if cpus else 0
        if self.version == 1:
            return [
                ("cpu.cfs_period_us", str(PERIOD_US)),
                ("cpu.cfs_quota_us", str(quota or -1)),
                ("cpu.shares", str(max(2, weight * 1024 // 100))),
                ("memory.limit_in_bytes", str(mem_bytes or -1)),
                ("memory.memsw.limit_in_bytes", str(mem_bytes or -1)),
                ("pids.max", str(most_tasks())),
            ]
        return [
            ("cpu.max", "{} {}".format(quota or "max", PERIOD_US)),
            ("cpu.weight", str(min(10000, max(1, weight)))),
            ("memory.max", str(mem_bytes or "max")),
            ("memory.swap.max", "0" if mem_bytes else "max"),
            ("memory.oom.group", "1"),
            ("pids.max", str(most_tasks())),
        ]

    def out_of_memory(self, name: str) -> bool:
        """Whether the kernel ended something of this group for want of memory."""
        if "memory" not in self.bases:
            return False
        file = "memory.oom_control" if self.version == 1 else "memory.events"
        words = read_text(os.path.join(self.bases["memory"], name, file)).split()
        return "oom_kill" in words[:-1] and words[words.index("oom_kill") + 1] != "0"

    def members(self, name: str) -> List[int]:
        found: Set[int] = set()
        for directory in self._directories(name):
            found.update(
                int(pid) for pid in read_text(os.path.join(directory, "cgroup.procs")).split() if pid.isdigit()
            )
        return sorted(found)

    def joins(self, name: str) -> List[str]:
        """The files by which one more process joins a group that is there."""
        files = [os.path.join(directory, self._door()) for directory in self._directories(name)]
        return [file for file in files if os.path.exists(file)]

    def _door(self) -> str:
        """Where a process with one thread writes "0" to join. In version 1 a thread that moves itself takes no lock
        that waits for all processors: 10 ms less for every start."""
        return "tasks" if self.version == 1 else "cgroup.procs"

    def remove(self, name: str) -> None:
        for directory in self._directories(name):
            try:
                os.rmdir(directory)
            except OSError:
                continue  # never made, or a dying process is still in it: `sweep` comes by at the next start

    def sweep(self, living: List[str]) -> None:
        for base in sorted(set(self.bases.values())):
            for name in os.listdir(base):
                if os.path.isdir(os.path.join(base, name)) and name not in living and name != "service":
                    self.remove(name)

    def _directories(self, name: str) -> List[str]:
        return [os.path.join(base, name) for base in sorted(set(self.bases.values()))]


def find(cluster: str) -> Limits:
    """The groups we may use here."""
    mounts = mounted(read_text("/proc/self/mounts"))
    bases: Dict[str, str] = {}
    for controller in CONTROLLERS:
        base = os.path.join(mounts.get(controller, ""), base_name(cluster))
        if controller in mounts and _usable(base):
            bases[controller] = base
    if bases or "cgroup2" not in mounts:
        return Limits(bases, 1)
    own = _own(mounts["cgroup2"]) or ""
    for base in (os.path.join(mounts["cgroup2"], base_name(cluster)), own):
        if _usable(base):
            offered = read_text(os.path.join(base, "cgroup.subtree_control")).split()
            return Limits({name: base for name in CONTROLLERS if name in offered}, 2)
    return Limits({}, 2)


def most_tasks() -> int:
    """For one process of a job: where the kernel counts pids up to 32768, that many would be the machine's last."""
    most = read_text("/proc/sys/kernel/pid_max").strip()
    return min(MOST_TASKS, int(most) // 4) if most.isdigit() else MOST_TASKS


def base_name(cluster: str) -> str:
    return "snakepit-" + cluster


def mounted(text: str) -> Dict[str, str]:
    """Where each controller of version 1, and `cgroup2`, is mounted, from the text of /proc/self/mounts."""
    found: Dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        if fields[2] == "cgroup2":
            found.setdefault("cgroup2", fields[1])
        elif fields[2] == "cgroup":
            for controller in set(fields[3].split(",")) & set(CONTROLLERS):
                found.setdefault(controller, fields[1])
    return found


def _own(mount: str) -> Optional[str]:
    """A group that systemd delegated to us: its members move one down, then its controllers can be handed on."""
    for line in read_text("/proc/self/cgroup").splitlines():
        if line.startswith("0::/") and line != "0::/":
            own = os.path.join(mount, line[4:])
            if os.path.basename(own) == "service":
                return os.path.dirname(own)
            if _usable(own):
                return own if divide(own) else None
    return None


def divide(base: str) -> bool:
    """Moves the members of `base` into `base/service` and hands the controllers on to the groups below."""
    try:
        os.makedirs(os.path.join(base, "service"), exist_ok=True)
        for pid in read_text(os.path.join(base, "cgroup.procs")).split():
            _write(os.path.join(base, "service", "cgroup.procs"), pid)
    except OSError:
        return False
    for controller in CONTROLLERS:
        _write(os.path.join(base, "cgroup.subtree_control"), "+" + controller)
    return True


def _usable(base: str) -> bool:
    return os.access(base, os.W_OK) and os.access(os.path.join(base, "cgroup.procs"), os.W_OK)


def _write(path: str, value: str) -> bool:
    try:
        with open(path, "w") as file:
            file.write(value)
        return True
    except OSError:
        return False  # this kernel has no such setting, or does not allow it (swap accounting, for one)
