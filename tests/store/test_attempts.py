"""Attempts, their processes and the cards they were given."""

from dataclasses import replace

from snakepit.core.job import AttemptId, Cause, Ended, Outcome, ProcessId
from snakepit.store import attempts
from snakepit.store.database import Store
from snakepit.store.rows import AttemptRow, ProcessRow
from tests.store.building import NOW, after, begin, submit, two_processes


def test_an_attempt_is_found_as_it_was_placed(store: Store) -> None:
    id = begin(store, submit(store))
    placed = two_processes().processes
    assert store.read_now(attempts.find, id) == AttemptRow(id, NOW, None, None, "")
    assert store.read_now(attempts.processes, id) == [
        ProcessRow(ProcessId(id, 0), 0, 0, "n0", placed[0].grants, 0, 0, False, "starting"),
        ProcessRow(ProcessId(id, 1), 1, 0, "n1", placed[1].grants, 4, 8 * 10**9, True, "starting"),
    ]


def test_beginning_twice_is_beginning_once(store: Store) -> None:
    job = submit(store)
    before = store.read_now(attempts.of_job, begin(store, job).job)
    begin(store, job)
    assert store.read_now(attempts.of_job, job) == before


def test_a_process_runs_and_ends_and_the_first_word_wins(store: Store) -> None:
    id = begin(store, submit(store))
    process = ProcessId(id, 1)
    store.write_now(attempts.process_created, process, "127.0.0.2", [20000, 20001])
    assert store.write_now(attempts.process_running, process)
    assert not store.write_now(attempts.process_running, process)
    ended = Ended(Cause.EXIT, 3, "exit code 3", "accuracy 0.9", NOW.timestamp())
    assert store.write_now(attempts.process_ended, process, ended, 12345)
    assert not store.write_now(attempts.process_ended, process, replace(ended, cause=Cause.LOST, code=None), 0)
    assert not store.write_now(attempts.process_running, process)
    found = store.read_now(attempts.processes, id)[1]
    assert (found.phase, found.code, found.cause, found.note) == ("ended", 3, Cause.EXIT, "exit code 3")
    assert (found.result, found.log_bytes, found.address, found.ports) == (
        "accuracy 0.9",
        12345,
        "127.0.0.2",
        (20000, 20001),
    )
    assert found.ended_at is not None
    assert abs((found.ended_at - NOW).total_seconds()) < 1e-5
    assert store.read_now(attempts.processes, id)[0].phase == "starting"


def test_a_result_of_any_size_and_any_bytes_does_not_keep_a_job_from_ending(store: Store) -> None:
    id = begin(store, submit(store))
    wild = b"\x00\xff\xfe result ".decode("utf-8", "surrogateescape") * 50_000
    assert store.write_now(attempts.process_ended, ProcessId(id, 0), Ended(Cause.EXIT, 0, result=wild), 0)
    assert len(store.read_now(attempts.processes, id)[0].result) == len(wild)


def test_an_attempt_ends_once(store: Store) -> None:
    id = begin(store, submit(store))
    assert store.write_now(attempts.end, id, Outcome.FAILED, "exit code 3", after(5))
    assert not store.write_now(attempts.end, id, Outcome.LOST, "later", after(6))
    assert store.read_now(attempts.find, id) == AttemptRow(id, NOW, after(5), Outcome.FAILED, "exit code 3")
    assert not store.write_now(attempts.end, AttemptId(99), Outcome.LOST, "", NOW)


def test_an_attempt_that_never_ran_ends_without_an_outcome(store: Store) -> None:
    id = begin(store, submit(store))
    assert store.write_now(attempts.end, id, None, "could not be started", after(5))
    assert store.read_now(attempts.live) == []


def test_only_attempts_that_did_not_end_are_live(store: Store) -> None:
    first, second = submit(store), submit(store)
    over = begin(store, first, attempt=0)
    store.write_now(attempts.end, over, Outcome.FAILED, "", NOW)
    again = begin(store, first, attempt=1)
    other = begin(store, second)
    live = store.read_now(attempts.live)
    assert [attempt.id for attempt, _ in live] == [again, other]
    assert [[process.id for process in processes] for _, processes in live] == [
        [ProcessId(again, 0), ProcessId(again, 1)],
        [ProcessId(other, 0), ProcessId(other, 1)],
    ]
    assert [attempt.id for attempt, _ in store.read_now(attempts.of_job, first)] == [over, again]


def test_tasks_of_an_array_have_attempts_of_their_own(store: Store) -> None:
    job = submit(store)
    begin(store, job, task=0)
    late = begin(store, job, task=5)
    store.write_now(attempts.end, late, Outcome.SUCCEEDED, "", NOW)
    assert [attempt.id.task for attempt, _ in store.read_now(attempts.live)] == [0]
