"""The life of a task: one table, read by one function. What is not in the table cannot happen.

NEW → PREPARING → WAITING → STARTING → RUNNING → STOPPING → CLEANING → DONE; every state but DONE has a way out.
How an attempt ended is decided here too, from what its processes said.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from snakepit.core.job import Cause, Ended, Outcome, State, Until
from snakepit.errors import WrongState


class Event(enum.StrEnum):
    """What can happen to a task."""

    PREPARE = "prepare"
    PREPARED = "prepared"
    READY = "ready"  # there is nothing to prepare beforehand
    PLACE = "place"
    STARTED = "started"
    PUT_BACK = "put back"  # a create failed: wait again
    ENDED = "ended"  # the attempt (or preparation) is over
    STOP = "stop"
    CLEANED = "cleaned"
    RETRY = "retry"  # cleaned, and another attempt is due


TABLE: dict[tuple[State, Event], State] = {
    (State.NEW, Event.PREPARE): State.PREPARING,
    (State.NEW, Event.READY): State.WAITING,
    (State.NEW, Event.STOP): State.DONE,
    (State.PREPARING, Event.PREPARED): State.WAITING,
    (State.PREPARING, Event.ENDED): State.CLEANING,
    (State.PREPARING, Event.STOP): State.STOPPING,
    (State.WAITING, Event.PLACE): State.STARTING,
    (State.WAITING, Event.STOP): State.CLEANING,
    (State.STARTING, Event.STARTED): State.RUNNING,
    (State.STARTING, Event.PUT_BACK): State.WAITING,
    (State.STARTING, Event.ENDED): State.CLEANING,
    (State.STARTING, Event.STOP): State.STOPPING,
    (State.RUNNING, Event.ENDED): State.CLEANING,
    (State.RUNNING, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.ENDED): State.CLEANING,
    (State.CLEANING, Event.CLEANED): State.DONE,
    (State.CLEANING, Event.RETRY): State.PREPARING,
    (State.CLEANING, Event.READY): State.WAITING,
}

STOPPABLE = frozenset(state for state, event in TABLE if event is Event.STOP)


def follow(state: State, event: Event) -> State:
    """Where `event` leads from `state`."""
    try:
        return TABLE[state, event]
    except KeyError:
        if event is Event.STOP:
            raise WrongState("Only jobs before or in running state can be stopped") from None
        raise WrongState(f"nothing that is {state.name} can be {event.value}") from None


def attempt_over(ended: Sequence[Ended | None], until: Until) -> bool:
    """Whether the attempt is over: all processes ended, or one failed, or (until any) one ended."""
    if until is Until.ANY:
        return any(end is not None for end in ended)
    return all(end is not None for end in ended) or any(end is not None and not end.succeeded for end in ended)


def outcome_of(ended: Sequence[Ended], until: Until, wished: Outcome | None = None) -> tuple[Outcome, str]:
    """The outcome of an attempt and its reason in words. `wished` is what we ended it for (a stop, a time limit).

    Processes that we stopped because a sibling failed do not decide; the one that failed first does.
    """
    by_time = sorted(enumerate(ended), key=lambda pair: pair[1].at)
    if any(end.cause is Cause.TIME_LIMIT for end in ended):
        return Outcome.TIMED_OUT, "time limit reached"
    if wished is not None:
        return wished, ""
    for index, end in by_time:
        if end.cause is Cause.LOST:
            return Outcome.LOST, f"worker {index} was lost: {end.note}" if end.note else f"worker {index} was lost"
    if until is Until.ANY and by_time and by_time[0][1].succeeded:
        return Outcome.SUCCEEDED, ""
    for index, end in by_time:
        if not end.succeeded and end.cause is not Cause.STOPPED:
            return Outcome.FAILED, failure_words(index, end)
    for _index, end in by_time:
        if not end.succeeded:
            return Outcome.STOPPED, end.note
    return Outcome.SUCCEEDED, ""


def failure_words(worker: int, end: Ended) -> str:
    """`worker 1 ended with exit code 3`, or with the cause where it was not a plain exit."""
    if end.cause is Cause.EXIT and not end.note:
        return f"worker {worker} ended with exit code {end.code}"
    return f"worker {worker}: {end.note or end.cause.value}"


def exit_code_of(ended: Sequence[Ended]) -> int | None:
    """The code of the first process that failed, 0 when none did, None when nobody knows."""
    failed = sorted(
        (end for end in ended if not end.succeeded and end.cause is not Cause.STOPPED), key=lambda end: end.at
    )
    failed = failed or [end for end in ended if not end.succeeded]
    return failed[0].code if failed else 0


def diagram() -> str:
    """The table as text, for the docs."""
    return "\n".join(f"{state.name:<10} --{event.value:>9} → {to.name}" for (state, event), to in TABLE.items())
