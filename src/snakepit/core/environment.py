"""The environment of every process, complete: the seeds' variables, torch's and torchrun's, the user's own.

Pure: values in, a dict out. Every process knows every other one, whatever its place in the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from snakepit.core.job import AttemptId

NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


@dataclass(frozen=True, slots=True)
class Peer:
    """One process of a pit as the others see it; `worker` counts over all groups."""

    worker: int
    group_index: int
    process_index: int
    host: str  # a name that resolves in every process of the pit
    gpus: int


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a process finds its directories."""

    data_root: str
    job: str
    shared: str
    home: str
    groups: Mapping[str, str]  # group -> directory

    @property
    def src(self) -> str:
        return f"{self.job}/src"

    def result(self, worker: int) -> str:
        return f"{self.job}/workers/{worker}/result"


def pit_environment(
    attempt: AttemptId, peers: Sequence[Peer], paths: Paths, master_port: int, extra: Iterable[Mapping[str, str]] = ()
) -> list[dict[str, str]]:
    """One environment per peer, in their order. `extra` (the config's workerEnv, then the user's) comes last."""
    common = {
        "JOB_NUMBER": str(attempt.job),
        "TASK_INDEX": str(attempt.task),
        "ATTEMPT": str(attempt.attempt),
        **_directories(paths),
        **_everybody(peers),
        "DAEMON": peers[0].host,
        "DEBIAN_FRONTEND": "noninteractive",
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MASTER_ADDR": peers[0].host,
        "MASTER_PORT": str(master_port),
        "NNODES": str(len(peers)),
        "PET_NNODES": str(len(peers)),
        "PET_MASTER_ADDR": peers[0].host,
        "PET_MASTER_PORT": str(master_port),
    }
    one_gpu_each = all(peer.gpus <= 1 for peer in peers)
    environments = []
    for peer in peers:
        own = common | _own(peer, paths, len(peers), one_gpu_each)
        for more in extra:
            own |= dict(more)
        environments.append(own)
    return environments


def group_variable(group: str) -> str:
    """`students` gives STUDENTS_GROUP_DIR."""
    return f"{group.upper()}_GROUP_DIR"


def _directories(paths: Paths) -> dict[str, str]:
    return {
        "DATA_ROOT": paths.data_root,
        "JOB_DIR": paths.job,
        "SRC_DIR": paths.src,
        "WORK_DIR": paths.src,
        "KEEP_DIR": f"{paths.job}/keep",
        "SHARED_DIR": paths.shared,
        "USER_DIR": paths.home,
        **{group_variable(group): path for group, path in paths.groups.items()},
    }


def _everybody(peers: Sequence[Peer]) -> dict[str, str]:
    sizes: dict[int, int] = {}
    for peer in peers:
        sizes[peer.group_index] = sizes.get(peer.group_index, 0) + 1
    return {
        "NUM_GROUPS": str(len(sizes)),
        **{f"NUM_PROCESSES_GROUP{group}": str(size) for group, size in sizes.items()},
        **{f"HOST_GROUP{peer.group_index}_PROCESS{peer.process_index}": peer.host for peer in peers},
    }


def _own(peer: Peer, paths: Paths, count: int, one_gpu_each: bool) -> dict[str, str]:
    own = {
        "GROUP_INDEX": str(peer.group_index),
        "PROCESS_INDEX": str(peer.process_index),
        "WORKER_INDEX": str(peer.worker),
        "RESULT_FILE": paths.result(peer.worker),
        "NODE_RANK": str(peer.worker),
        "PET_NODE_RANK": str(peer.worker),
        "PET_NPROC_PER_NODE": str(max(1, peer.gpus)),
    }
    if one_gpu_each:
        # A process sees its one card as device 0, hence LOCAL_RANK 0 in each.
        own |= {"RANK": str(peer.worker), "WORLD_SIZE": str(count), "LOCAL_RANK": "0"}
    return own
