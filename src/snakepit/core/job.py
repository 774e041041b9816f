"""The nouns of a job: identity, state, outcome, cause. Values only; what may follow what is `lifecycle`."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.IntEnum):
    NEW = 0
    PREPARING = 1
    WAITING = 2
    STARTING = 3
    RUNNING = 4
    STOPPING = 5
    CLEANING = 6
    DONE = 7

    @property
    def letters(self) -> str:
        return ("NEW", "PRE", "WAI", "STA", "RUN", "STO", "CLN", "FIN")[self]


class Outcome(enum.StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    TIMED_OUT = "timed out"
    LOST = "lost"


class Until(enum.StrEnum):
    """When an attempt ends: with all its processes (or the first that fails), or with the first, whatever its code."""

    ALL = "all"
    ANY = "any"


class Cause(enum.StrEnum):
    """Why a process ended."""

    EXIT = "exit"  # by itself, with a code
    SIGNAL = "signal"  # by a signal nobody here sent
    STOPPED = "stopped"  # we sent the signal: a user's stop, a sibling's failure
    OUT_OF_MEMORY = "out of memory"
    TIME_LIMIT = "time limit"
    LOST = "lost"  # the node, the agent or the boot is gone; nobody knows the code


@dataclass(frozen=True, slots=True, order=True)
class AttemptId:
    """One run of a task of a job."""

    job: int
    task: int = 0
    attempt: int = 0

    def __str__(self) -> str:
        return f"{self.job}.{self.task}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        job, task, attempt = text.split(".")
        return cls(int(job), int(task), int(attempt))


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """One worker process of an attempt; `process` counts over all groups (the seed's worker index)."""

    attempt: AttemptId
    process: int

    def __str__(self) -> str:
        return f"{self.attempt}.{self.process}"

    @classmethod
    def parse(cls, text: str) -> ProcessId:
        attempt, _, process = text.rpartition(".")
        return cls(AttemptId.parse(attempt), int(process))

    def name(self, node: str) -> str:
        """The seed's `sp-n0-191-0` for first attempts of plain jobs, a suffix for the others."""
        suffix = (
            ""
            if self.attempt.task == 0 and self.attempt.attempt == 0
            else f"-t{self.attempt.task}a{self.attempt.attempt}"
        )
        return f"sp-{node}-{self.attempt.job}-{self.process}{suffix}"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: `code` as a shell would say it (128 + signal), None when nobody knows."""

    cause: Cause
    code: int | None = None
    note: str = ""  # words for people: "killed by signal 9 (KILL)", "out of memory (limit 2 GiB)"
    result: str = ""  # what it left in $RESULT_FILE
    at: float = 0.0  # unix seconds

    @property
    def succeeded(self) -> bool:
        return self.cause is Cause.EXIT and self.code == 0
