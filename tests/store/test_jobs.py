"""Jobs: inserted, moved, shared, removed."""

import dataclasses

import pytest
from sqlalchemy import Connection, Table, func, select

from snakepit import errors
from snakepit.core.job import Outcome, State, Until
from snakepit.store import attempts, groups, jobs, schema
from snakepit.store.database import Store
from snakepit.store.jobs import Step
from snakepit.store.rows import JobInput, JobRow, StateChange, new_row
from tests.store.building import NOW, after, begin, bring, new_job, submit, together

ALL_THE_WAY = (State.PREPARING, State.WAITING, State.STARTING, State.RUNNING, State.CLEANING, State.DONE)


def test_a_job_is_found_as_it_was_submitted(store: Store) -> None:
    store.write_now(groups.insert, "vision", "Vision")
    store.write_now(groups.insert, "audio", "Audio")
    new = new_job(
        source="git",
        provisioning="Git commit",
        origin_shown="https://host/repo",
        hash="abc",
        diff_loc=3,
        private=True,
        continues=7,
        until=Until.ANY,
        on_node_loss="rerun",
        retries=2,
        environment={"A": "1", "Ü": "'\"\n"},
        time_limit_s=60,
        priority=-1,
        groups=("vision", "audio"),
        script="echo \0 \udcff",
        origin="https://user:secret@host/repo",
        diff=b"\x00\xff",
        archive="/a b/c",
    )
    id, created = store.write_now(jobs.insert, new, NOW)
    assert created
    job = store.read_now(jobs.get, id)
    shared = {field.name for field in dataclasses.fields(new)} & {field.name for field in dataclasses.fields(JobRow)}
    assert {name: getattr(job, name) for name in shared - {"groups"}} == {
        name: getattr(new, name) for name in shared - {"groups"}
    }
    assert job.groups == ("audio", "vision")
    assert (job.state, job.since, job.created_at, job.ended_at) == (State.NEW, NOW, NOW, None)
    given = store.read_now(jobs.input_of, id)
    assert given == JobInput(new.script, new.origin, "abc", b"\x00\xff", "/a b/c")
    assert store.read_now(jobs.state_changes, id) == [StateChange(State.NEW, NOW, "")]


def test_the_credentials_of_an_origin_can_be_forgotten(store: Store) -> None:
    job = submit(store, origin="https://user:secret@host/repo", origin_shown="https://host/repo", script="echo")
    store.write_now(jobs.forget_origin, job)
    assert store.read_now(jobs.input_of, job) == JobInput("echo", "https://host/repo", "", b"", "")


def test_what_is_not_there_is_none_or_not_found(store: Store) -> None:
    for number in (1, 0, -1, 2**63, 10**40):
        assert store.read_now(jobs.find, number) is None
    for ask in (jobs.get, jobs.input_of):
        with pytest.raises(errors.NotFound):
            store.read_now(ask, 1)


def test_job_numbers_count_from_one_and_are_never_given_again(store: Store, url: str) -> None:
    assert [submit(store) for _ in range(3)] == [1, 2, 3]
    bring(store, 3, *ALL_THE_WAY)
    store.write_now(jobs.delete, 3)
    store.close()
    again = Store.open(url)
    try:
        assert submit(again) == 4
    finally:
        again.close()


def test_the_same_key_of_the_same_user_gives_the_same_job(store: Store) -> None:
    first = store.write_now(jobs.insert, new_job(), NOW, "key")
    assert store.write_now(jobs.insert, new_job(provisioning="said otherwise"), after(1), "key") == (first[0], False)
    assert store.write_now(jobs.insert, new_job("bert"), NOW, "key")[1]
    assert store.write_now(jobs.insert, new_job(), NOW, "other")[1]
    assert store.write_now(jobs.insert, new_job(), NOW)[1]
    assert store.write_now(jobs.insert, new_job(), NOW)[1]


@pytest.mark.parametrize("change", [{"script": "x"}, {"diff": b"x"}, {"environment": {"A": "1"}}, {"request": "[gpu]"}])
def test_a_key_used_again_for_something_else_is_a_conflict(store: Store, change: dict[str, object]) -> None:
    id, _ = store.write_now(jobs.insert, new_job(), NOW, "key")
    with pytest.raises(errors.Conflict, match=f"job {id}"):
        store.write_now(jobs.insert, dataclasses.replace(new_job(), **change), NOW, "key")  # type: ignore[arg-type]
    assert len(store.read_now(jobs.live)) == 1


def test_one_submission_sent_twice_at_once_is_one_job(store: Store) -> None:
    answers = together(store, *[lambda s: s.write(jobs.insert, new_job(), NOW, "key")] * 3)
    assert sorted(answers) == [(1, False), (1, False), (1, True)]


def test_a_move_counts_only_from_the_states_it_names(store: Store) -> None:
    job = submit(store)
    assert not store.write_now(jobs.move, job, State.WAITING, [Step(State.STARTING)], after(1))
    assert store.write_now(jobs.move, job, {State.NEW, State.WAITING}, [Step(State.PREPARING, "because")], after(1))
    assert not store.write_now(jobs.move, 99, State.NEW, [Step(State.PREPARING)], after(1))
    found = store.read_now(jobs.get, job)
    assert (found.state, found.since, found.reason) == (State.PREPARING, after(1), "because")
    changes = [StateChange(State.NEW, NOW, ""), StateChange(State.PREPARING, after(1), "because")]
    assert store.read_now(jobs.state_changes, job) == changes


def test_the_same_state_twice_changes_nothing(store: Store) -> None:
    job = submit(store)
    bring(store, job, State.PREPARING)
    assert not store.write_now(jobs.move, job, {State.NEW, State.PREPARING}, [Step(State.PREPARING, "again")], after(9))
    assert not store.write_now(jobs.move, job, State.PREPARING, [Step(State.PREPARING, "again")], after(9))
    assert store.read_now(jobs.get, job).since == NOW
    assert len(store.read_now(jobs.state_changes, job)) == 2


def test_of_two_moves_at_once_one_wins(store: Store) -> None:
    job = submit(store)
    won = together(store, *[lambda s: s.write(jobs.move, job, State.NEW, [Step(State.PREPARING)], NOW)] * 4)
    assert sorted(won) == [False, False, False, True]


def test_a_failed_start_gives_back_what_it_was_given(store: Store) -> None:
    job = submit(store)
    bring(store, job, State.PREPARING, State.WAITING)
    assert store.write_now(jobs.move, job, State.WAITING, [Step(State.STARTING, allocation="n0[cuda 0]")], NOW)
    assert store.write_now(jobs.move, job, State.STARTING, [Step(State.WAITING, "disk full on n0", attempt=1)], NOW)
    again = store.read_now(jobs.get, job)
    assert (again.allocation, again.reason, again.attempt) == ("", "disk full on n0", 1)


def test_several_steps_at_once_leave_a_trace_each(store: Store) -> None:
    job = submit(store)
    bring(store, job, State.PREPARING, State.WAITING, State.STARTING)
    steps = [Step(State.RUNNING), Step(State.CLEANING, "exit code 3", Outcome.FAILED), Step(State.DONE)]
    assert not store.write_now(jobs.move, job, State.WAITING, steps, after(1))
    assert store.write_now(jobs.move, job, State.STARTING, steps, after(1))
    row = store.read_now(jobs.get, job)
    assert (row.state, row.outcome, row.reason, row.ended_at) == (State.DONE, Outcome.FAILED, "exit code 3", after(1))
    assert [change.state for change in store.read_now(jobs.state_changes, job)][-3:] == [step.to for step in steps]


def test_a_job_that_needs_no_preparation_waits_from_the_start(store: Store) -> None:
    job, _ = store.write_now(jobs.insert, new_job(), NOW, "", State.WAITING)
    assert store.read_now(jobs.get, job) == new_row(job, new_job(), State.WAITING, NOW)
    assert [change.state for change in store.read_now(jobs.state_changes, job)] == [State.NEW, State.WAITING]


def test_the_end_carries_outcome_time_and_the_reason_that_led_there(store: Store) -> None:
    job = submit(store)
    bring(store, job, State.PREPARING, State.WAITING)
    begun = Step(State.STARTING, allocation="n0[cuda 0]", attempt=1)
    assert store.write_now(jobs.move, job, State.WAITING, [begun], NOW)
    bring(store, job, State.RUNNING)
    stop = Step(State.STOPPING, "Stopped by user bert", Outcome.STOPPED)
    assert store.write_now(jobs.move, job, State.RUNNING, [stop], after(1))
    bring(store, job, State.CLEANING, at=after(2))
    over = Step(State.DONE, src_until=after(9), util_comp=0.5)
    assert store.write_now(jobs.move, job, State.CLEANING, [over], after(3))
    found = store.read_now(jobs.get, job)
    assert (found.outcome, found.ended_at, found.reason) == (Outcome.STOPPED, after(3), "Stopped by user bert")
    assert (found.allocation, found.attempt, found.src_until, found.util_comp) == ("n0[cuda 0]", 1, after(9), 0.5)


def test_a_reason_of_any_length_and_any_characters_is_kept(store: Store) -> None:
    job = submit(store)
    long = "words " * 20_000 + "\0 \udcff Ω"
    assert store.write_now(jobs.move, job, State.NEW, [Step(State.PREPARING, long)], NOW)
    kept = store.read_now(jobs.get, job).reason
    assert kept.startswith("words words")
    assert kept.endswith("\N{REPLACEMENT CHARACTER} ? Ω")


def test_a_job_is_shared_with_groups_that_exist(store: Store) -> None:
    store.write_now(groups.insert, "vision", "Vision")
    job = submit(store)
    for on, shared in ((True, ("vision",)), (True, ("vision",)), (False, ()), (False, ())):
        store.write_now(jobs.set_group, job, "vision", on)
        assert store.read_now(jobs.get, job).groups == shared
    with pytest.raises(errors.NotFound):
        store.write_now(jobs.set_group, job, "audio", True)
    with pytest.raises(errors.NotFound):
        store.write_now(jobs.set_group, 99, "vision", True)
    with pytest.raises(errors.NotFound):
        store.write_now(jobs.insert, new_job(groups=("audio",)), NOW)
    assert len(store.read_now(jobs.live)) == 1


def test_only_an_ended_job_is_removed_and_then_wholly(store: Store) -> None:
    store.write_now(groups.insert, "vision", "Vision")
    job = submit(store, groups=("vision",))
    with pytest.raises(errors.WrongState, match="Only stopped jobs can be deleted"):
        store.write_now(jobs.delete, job)
    begin(store, job)
    bring(store, job, *ALL_THE_WAY)
    store.write_now(jobs.delete, job)
    with pytest.raises(errors.NotFound):
        store.write_now(jobs.delete, job)
    assert store.read_now(attempts.of_job, job) == []
    belonging = [table for table in schema.metadata.sorted_tables if "job" in table.c]
    assert len(belonging) == 9  # the audit trail among them, which is empty here
    assert {table.name: store.read_now(rows_in, table) for table in belonging if store.read_now(rows_in, table)} == {}


def test_the_date_of_src_is_set_on_the_side(store: Store) -> None:
    job = submit(store)
    store.write_now(jobs.set_src_until, job, after(5))
    assert store.read_now(jobs.get, job).src_until == after(5)


def test_a_number_too_large_to_store_is_a_bad_request(store: Store) -> None:
    with pytest.raises(errors.BadRequest, match="does not take this value"):
        store.write_now(jobs.insert, new_job(time_limit_s=2**80), NOW)


def rows_in(c: Connection, table: Table) -> int:
    return c.execute(select(func.count()).select_from(table)).scalar_one()
