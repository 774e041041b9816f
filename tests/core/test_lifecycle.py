"""The table of a task's life, and how an attempt's outcome is told."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.core.job import Cause, Ended, Outcome, State, Until
from snakepit.core.lifecycle import STOPPABLE, TABLE, Event, attempt_over, exit_code_of, follow, outcome_of
from snakepit.errors import WrongState

FINE = Ended(Cause.EXIT, 0, at=1.0)
ends = st.builds(
    Ended,
    cause=st.sampled_from(Cause),
    code=st.one_of(st.none(), st.integers(0, 255)),
    at=st.floats(0, 1e9, allow_nan=False),
)


def test_every_state_but_done_has_a_way_to_done() -> None:
    ways = {state: {to for (at, _), to in TABLE.items() if at is state} for state in State}
    assert ways[State.DONE] == set()
    for state in set(State) - {State.DONE}:
        reached = {state}
        while more := set().union(*(ways[at] for at in reached)) - reached:
            reached |= more
        assert State.DONE in reached


def test_what_is_not_in_the_table_cannot_happen() -> None:
    for state, event in itertools.product(State, Event):
        if (state, event) in TABLE:
            assert follow(state, event) is TABLE[state, event]
        else:
            with pytest.raises(WrongState):
                follow(state, event)


def test_a_job_that_is_over_or_ending_cannot_be_stopped() -> None:
    assert {State.NEW, State.PREPARING, State.WAITING, State.STARTING, State.RUNNING} == STOPPABLE
    with pytest.raises(WrongState, match="Only jobs before or in running state can be stopped"):
        follow(State.STOPPING, Event.STOP)


@settings(deadline=None)
@given(st.lists(ends, min_size=1), st.sampled_from(Until))
def test_success_is_told_only_when_somebody_succeeded_and_nobody_failed(found: list[Ended], until: Until) -> None:
    outcome, _reason = outcome_of(found, until)
    if outcome is Outcome.SUCCEEDED:
        first = min(found, key=lambda end: end.at)
        assert all(end.succeeded for end in found) or (until is Until.ANY and first.succeeded)
    if all(end.succeeded for end in found):
        assert outcome is Outcome.SUCCEEDED
        assert exit_code_of(found) == 0


def test_the_process_that_failed_first_gives_reason_and_code() -> None:
    found = [Ended(Cause.STOPPED, 143, at=3.0), Ended(Cause.EXIT, 7, at=2.0), Ended(Cause.EXIT, 9, at=4.0)]
    assert outcome_of(found, Until.ALL) == (Outcome.FAILED, "worker 1 ended with exit code 7")
    assert exit_code_of(found) == 7


def test_a_stop_a_time_limit_and_a_loss_are_told_as_such() -> None:
    stopped = Ended(Cause.STOPPED, 143, at=2.0)
    assert outcome_of([stopped], Until.ALL, Outcome.STOPPED)[0] is Outcome.STOPPED
    assert outcome_of([Ended(Cause.TIME_LIMIT, 143, at=1.0)], Until.ALL)[0] is Outcome.TIMED_OUT
    lost, reason = outcome_of([FINE, Ended(Cause.LOST, None, "n0: the node was restarted", at=2.0)], Until.ALL)
    assert (lost, reason) == (Outcome.LOST, "worker 1 was lost: n0: the node was restarted")


def test_an_attempt_is_over_when_all_ended_or_one_failed_or_any_where_asked() -> None:
    failed = Ended(Cause.EXIT, 1, at=1.0)
    assert not attempt_over([FINE, None], Until.ALL)
    assert attempt_over([FINE, FINE], Until.ALL)
    assert attempt_over([failed, None], Until.ALL)
    assert attempt_over([FINE, None], Until.ANY)
    assert not attempt_over([None, None], Until.ANY)
