"""How ids look on the wire, the same for service and client."""

from __future__ import annotations

import re

USER = r"[a-z][a-z0-9]{0,31}"
NODE = r"[a-z][a-z0-9]{0,31}"
ALIAS = r"[a-z][a-z0-9]{0,31}"
GROUP = r"[a-z]{1,32}"
JOB = r"[0-9]+"
LARGEST_JOB = 2**31 - 1
TITLE_LENGTH = 40
SHORTEST_PASSWORD = 8
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
# What tells a process who and where it is. The rest of its environment are defaults, which a user may replace.
RESERVED = (
    "JOB_NUMBER|TASK_INDEX|ATTEMPT|GROUP_INDEX|PROCESS_INDEX|WORKER_INDEX|RESULT_FILE|DAEMON|DATA_ROOT"
    "|(JOB|SRC|WORK|KEEP|SHARED|USER|[A-Z]+_GROUP)_DIR|NUM_GROUPS|NUM_PROCESSES_GROUP[0-9]+|HOST_GROUP[0-9]+_PROCESS[0-9]+"
)
# What runs when a job brings no command of its own; a missing file is a success, as in the original.
COMPUTE = "if [ -f .compute ]; then bash .compute; fi\n"

_SHAPES = {
    "user": (USER, "lower-case letters and digits, a letter first, at most 32"),
    "node": (NODE, "lower-case letters and digits, a letter first, at most 32"),
    "alias": (ALIAS, "lower-case letters and digits, a letter first, at most 32"),
    "group": (GROUP, "lower-case letters only, at most 32"),
    "job": (JOB, "digits only"),
}


def problem_with(kind: str, id: str) -> str:
    """Why `id` cannot name a user, node, alias, group or job; empty when it can."""
    shape, words = _SHAPES[kind]
    if re.fullmatch(shape, id):
        return ""
    return f"Wrong {kind} id format: {id[:40]!r} ({words})"


def is_reserved(variable: str) -> bool:
    """Whether the scheduler alone sets this variable of a job's processes."""
    return re.fullmatch(RESERVED, variable) is not None


def may_be_job(id: str) -> bool:
    """Whether a number written in digits is one that the database could be asked for; no job has any other."""
    return len(id) <= len(str(LARGEST_JOB)) and int(id) <= LARGEST_JOB


def pattern_of(kind: str) -> str:
    return f"^{_SHAPES[kind][0]}$"
