"""The JSON shapes of answers, as the original service gives them (with additions). Shared with the client.

Plain TypedDicts: nothing is checked at run time, and OpenAPI is drawn from them.
"""

from typing import NotRequired, TypedDict


class Message(TypedDict):
    message: str


class Token(TypedDict):
    token: str


class NamedToken(TypedDict):
    id: int
    token: str


class TokenInfo(TypedDict):
    id: int
    name: str
    created: str
    used: str
    expires: str


class User(TypedDict):
    id: str
    fullname: str
    email: str
    groups: NotRequired[list[str]]
    autoshare: NotRequired[list[str]]
    admin: bool


class Group(TypedDict):
    id: str
    title: str


class Alias(TypedDict):
    id: str
    name: str


class Resource(TypedDict):
    type: str
    name: str
    index: int
    groups: NotRequired[list[str]]
    alias: NotRequired[str]
    declared: NotRequired[bool]
    memory: NotRequired[int]


class Node(TypedDict):
    id: str
    endpoint: str
    online: bool
    since: str
    resources: NotRequired[list[Resource]]
    cpus: int
    memory: int
    slots: int
    mounts: NotRequired[str]
    isolation: str
    isolationProblem: NotRequired[str]
    limits: list[str]
    drained: bool
    drainReason: NotRequired[str]


class Since(TypedDict):
    days: int
    hours: int
    minutes: int
    seconds: int


class JobId(TypedDict):
    id: int


class Job(TypedDict):
    """`desc` of the original: a line of the job table."""

    id: int
    description: str
    user: str
    resources: str
    state: int
    date: str
    since: Since
    schedulePosition: int
    utilComp: float
    utilMem: float
    outcome: str | None


class StateChange(TypedDict):
    state: int
    since: str
    reason: str


class Process(TypedDict):
    groupIndex: int
    processIndex: int
    status: int | str
    result: str
    node: str
    cause: str | None
    note: str


class Attempt(TypedDict):
    number: int
    outcome: str | None
    reason: str
    started: str | None
    ended: str | None
    processes: list[Process]


class JobDetails(Job):
    allocation: str
    request: str
    reason: str
    exitCode: int | None
    continueJob: NotRequired[int]
    provisioning: NotRequired[str]
    snapshot: NotRequired[str]
    groups: NotRequired[list[str] | bool]
    execGroups: NotRequired[list[str]]
    stateChanges: NotRequired[list[StateChange]]
    processes: NotRequired[list[Process]]
    attempts: NotRequired[list[Attempt]]
    keepsSrcUntil: NotRequired[str]


class Status(TypedDict):
    running: list[Job]
    waiting: list[Job]
    done: list[Job]


class Reasons(TypedDict):
    reasons: list[str]


class FileStats(TypedDict):
    isFile: bool
    size: int
    mtime: str
    atime: str
    ctime: str
    overLimit: NotRequired[str]


class Listing(TypedDict):
    dirs: list[str]
    files: list[str]


class AuditEntry(TypedDict):
    """Somebody went inside a job: `kind` is exec, connect or forward, `detail` the command or the port."""

    id: int
    date: str
    user: str
    kind: str
    job: int
    worker: int
    node: str
    detail: str
    address: str
