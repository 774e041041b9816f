"""What the store hands out and takes in: frozen values, one per table that others know."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from snakepit.core.job import AttemptId, Cause, Ended, Outcome, ProcessId, State, Until
from snakepit.core.placement import Grant
from snakepit.core.resources import Resource


@dataclass(frozen=True, slots=True)
class UserRow:
    id: str
    fullname: str
    email: str
    password_hash: bytes
    admin: bool
    groups: frozenset[str] = frozenset()
    autoshare: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRow:
    id: str
    title: str


@dataclass(frozen=True, slots=True)
class TokenRow:
    id: int
    user: str
    name: str
    created_at: datetime
    used_at: datetime
    expires_at: datetime
    dies_at: datetime  # never renewed beyond this


@dataclass(frozen=True, slots=True)
class NodeRow:
    id: str
    endpoint: str
    properties: dict[str, Any]  # as the admin gave them: resources, isolation, slots, mounts, …
    online: bool
    since: datetime
    drained: bool = False
    drain_reason: str = ""
    cpus: int = 0
    mem_bytes: int = 0
    slots: int = 0
    isolation: str = ""
    isolation_problem: str = ""
    limits: tuple[str, ...] = ()
    hostname: str = ""
    boot_id: str = ""
    state_id: str = ""
    resources: tuple[Resource, ...] = ()


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as it is submitted. `origin` may hold credentials and is kept apart; `origin_shown` has none."""

    user: str
    description: str
    request: str
    source: str = "script"  # git, snapshot, archive or script
    provisioning: str = ""
    origin_shown: str = ""
    hash: str = ""
    diff_loc: int = 0
    private: bool = False
    continues: int | None = None
    until: Until = Until.ALL
    on_node_loss: str = "wait"  # or rerun
    retries: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    time_limit_s: int = 0  # 0: none
    priority: int = 0
    groups: tuple[str, ...] = ()
    script: str = ""
    origin: str = ""
    diff: bytes = b""
    archive: str = ""  # a path on the head
    snapshot: str = ""  # a commit in the user's repository on the head

    @property
    def script_only(self) -> bool:
        """Nothing to fetch, to copy or to patch: it needs no preparation before its start."""
        return self.source == "script" and self.continues is None and not self.diff


@dataclass(frozen=True, slots=True)
class JobRow:
    id: int
    user: str
    description: str
    request: str
    source: str
    provisioning: str
    origin_shown: str
    hash: str
    diff_loc: int
    private: bool
    continues: int | None
    until: Until
    on_node_loss: str
    retries: int
    environment: dict[str, str]
    time_limit_s: int
    priority: int
    state: State
    since: datetime
    created_at: datetime
    ended_at: datetime | None
    outcome: Outcome | None
    reason: str
    allocation: str
    attempt: int  # the current one
    util_comp: float
    util_mem: float
    src_until: datetime | None  # when src/ is thrown away; None: it is not there, or the job is not over
    snapshot: str = ""
    groups: tuple[str, ...] = ()

    @property
    def script_only(self) -> bool:
        """The same of one that is kept, as far as is known without its diff."""
        return self.source == "script" and self.continues is None and not self.diff_loc


def new_row(id: int, new: NewJob, state: State, now: datetime) -> JobRow:
    """The row of a job that was inserted just now."""
    given = {name: getattr(new, name) for name in NewJob.__slots__ if name in JobRow.__slots__}
    return JobRow(
        id=id,
        **given,
        state=state,
        since=now,
        created_at=now,
        ended_at=None,
        outcome=None,
        reason="",
        allocation="",
        attempt=0,
        util_comp=0.0,
        util_mem=0.0,
        src_until=None,
    )


@dataclass(frozen=True, slots=True)
class JobInput:
    """What the preparation needs: large or secret, so never part of a listing."""

    script: str
    origin: str
    hash: str
    diff: bytes
    archive: str


@dataclass(frozen=True, slots=True)
class StateChange:
    state: State
    since: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    running: tuple[JobRow, ...]  # STARTING to STOPPING, by number
    waiting: tuple[JobRow, ...]  # WAITING in their order, then PREPARING, then NEW
    done: tuple[JobRow, ...]  # CLEANING and DONE, the newest change first


@dataclass(frozen=True, slots=True)
class AttemptRow:
    id: AttemptId
    started_at: datetime
    ended_at: datetime | None
    outcome: Outcome | None
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessRow:
    id: ProcessId
    group_index: int
    process_index: int
    node: str
    grants: tuple[Grant, ...]
    cpus: int
    mem_bytes: int
    whole_node: bool
    phase: str  # starting, running, ended
    code: int | None = None
    cause: Cause | None = None
    note: str = ""
    result: str = ""
    ended_at: datetime | None = None
    log_bytes: int = 0
    address: str = ""
    ports: tuple[int, ...] = ()

    @property
    def ended(self) -> Ended | None:
        """How it ended, as its engine told it; None while nobody said so."""
        if self.phase != "ended" or self.cause is None:
            return None
        at = self.ended_at.timestamp() if self.ended_at is not None else 0.0
        return Ended(self.cause, self.code, self.note, self.result, at)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Somebody went inside a job: `kind` is exec, connect or forward, `detail` the command or the port."""

    id: int
    at: datetime
    user: str
    kind: str
    job: int
    worker: int
    node: str
    detail: str
    address: str  # where the request came from
