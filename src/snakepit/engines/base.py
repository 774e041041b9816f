"""The seam between deciding and doing: few verbs, each over many items, each idempotent by identity.

One Engine is the way to one node. It knows nothing of the store, of users or of the schedule.
Three failures only: Unreachable, NotNow, Rejected (see errors).
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from snakepit.core.domains import Mount
from snakepit.core.job import AttemptId, Ended, ProcessId
from snakepit.core.resources import Resource


@dataclass(frozen=True, slots=True)
class Inventory:
    """What `probe` found on the node."""

    cpus: int
    mem_bytes: int
    resources: tuple[Resource, ...]
    isolation: str  # "sandbox" or "none"
    isolation_problem: str = ""  # why there is no sandbox, with the exact fix
    limits: tuple[str, ...] = ()  # which of "cpu", "mem", "pids" are enforced there
    hostname: str = ""
    boot_id: str = ""
    state_id: str = ""  # changes when the agent's memory was lost


@dataclass(frozen=True, slots=True)
class Granted:
    """A card handed to a process, whole (share 1) or in part."""

    resource: Resource
    share: Fraction = Fraction(1)
    mem_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to be made. `argv` is run in `cwd`; paths are those inside the sandbox (`Mount.path`)."""

    id: ProcessId
    name: str  # sp-n0-191-0
    argv: tuple[str, ...]
    cwd: str
    mounts: tuple[Mount, ...]
    granted: tuple[Granted, ...] = ()
    cpus: int = 0  # 0: not limited, a weight only
    mem_bytes: int = 0  # 0: a ceiling in proportion is chosen by the engine
    cpu_weight: int = 100
    result_file: str = ""  # on the head: where the process leaves its result
    ports: int = 4  # how many ports to reserve for it
    log_limit_bytes: int = 1 << 30
    user: str = ""  # the owner: his home on the node's own disk is named after him


@dataclass(frozen=True, slots=True)
class Created:
    """A process that stands ready: where others reach it, and its block of ports."""

    id: ProcessId
    address: str  # an address every other process of the pit can reach
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Go:
    """The complete environment of a process, and the names it resolves."""

    id: ProcessId
    environment: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)  # name -> address
    time_limit_s: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What `look` sees of one process. `ended` is None while it lives; `phase` is created, running or ended."""

    id: ProcessId
    phase: str
    ended: Ended | None = None
    log_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Online:
    """The node answers. When `boot_id` or `state_id` differ from what was known, what ran there is lost."""

    boot_id: str
    state_id: str
    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class Offline:
    reason: str


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes of a process's log from `offset` on. The engine waits for `ack_output` before it sends more of it."""

    id: ProcessId
    offset: int
    data: bytes
    at: float
    dropped_bytes: int = 0  # > 0 once the size cap was reached: how much was thrown away so far


@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended and all of its output was sent."""

    id: ProcessId
    ended: Ended
    log_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Samples of the processes' own use, and of the node's cards (strangers' use included)."""

    cards: Mapping[int, tuple[float, float]]  # index -> (compute 0..1, memory 0..1)
    processes: Mapping[ProcessId, tuple[float, int]]  # cpu cores in use, resident bytes


@dataclass(frozen=True, slots=True)
class Command:
    """What is to be run beside a process, in its world. No argv: a login shell."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)  # added to that of the process
    size: tuple[int, int] | None = None  # columns and rows, where it wants a terminal


class Session(Protocol):
    """A way into a process that stands ready, but has nobody at its outer end yet."""

    async def attach(self, end: socket.socket) -> None:
        """Gives away a connected stream socket, which is then the outer end; Unreachable when it is too late."""
        ...

    async def ended(self) -> None:
        """Once it is over, whoever ended it."""
        ...

    def close(self) -> None:
        """Ends it: a command is hung up, a connection cut. Twice is as good as once."""
        ...


Event = Online | Offline | Output | Exited | Usage


class Engine(Protocol):
    """The way to one node."""

    async def probe(self) -> Inventory: ...

    async def create(self, launches: Sequence[Launch]) -> Sequence[Created]:
        """Make all of them ready or none; creating what exists already gives the same answer again."""
        ...

    async def go(self, goes: Sequence[Go]) -> None:
        """Let them run; for one that runs or ran already nothing happens."""
        ...

    async def look(self) -> Sequence[Seen]: ...

    async def stop(self, attempts: Sequence[AttemptId], grace_s: float, cause: str, note: str) -> None:
        """TERM, after `grace_s` KILL. `cause` is a core.job.Cause, kept in Ended. Unknown ones leave a tombstone."""
        ...

    async def clean(self, attempts: Sequence[AttemptId]) -> None:
        """Forget them (ended ones; living ones are killed first) and leave a tombstone."""
        ...

    async def forget(self, user: str) -> None:
        """Throw away what the node keeps for this user (a home of its own there, with caches)."""
        ...

    def watch(self, offsets: Mapping[ProcessId, int]) -> AsyncIterator[Event]:
        """What happens there, for ever: first Online (or Offline), then events; reconnects by itself.

        `offsets` say how many log bytes the head already has. Processes not named start at 0.
        """
        ...

    async def ack_output(self, id: ProcessId, offset: int) -> None:
        """All bytes below `offset` are kept by the head."""
        ...

    async def exec(self, id: ProcessId, command: Command) -> Session:
        """A command in the world of a running process: its sandbox, environment, directory, limits. It ends with it.

        On the attached end frames travel (agent/keeper). Rejected where the process does not run.
        """
        ...

    async def connect(self, id: ProcessId, port: int, spare: bool = False) -> Session:
        """A connection to a port on which a process of this job listens; Rejected where none does.

        A spare one is made in advance: the first byte on the attached end lets it connect, and one byte comes back
        (0: connected, 1: nobody listens); then frames travel on it (agent/switchboard).
        """
        ...

    async def close(self) -> None:
        """Let go of the node; what runs there runs on."""
        ...

    async def leave(self) -> None:
        """Close it for good, where nothing of ours runs: what was started there for us ends, if it can be reached."""
        ...
