"""Finding jobs: filters, orders, the status, retention."""

import pytest

from snakepit import errors
from snakepit.core.job import State
from snakepit.store import jobs
from snakepit.store.database import Store
from tests.store.building import NOW, after, bring, submit

TITLES = ("100% sure", "100 sure", "a_b", "aXb", "Alpha", "alpha", "[x]*?", "back\\slash")


def found(store: Store, **filters: object) -> list[int]:
    return [job.id for job in store.read_now(jobs.listing, **filters)]  # type: ignore[arg-type]


def titled(store: Store, pattern: str) -> set[str]:
    return {job.description for job in store.read_now(jobs.listing, title=pattern)}


def test_since_and_till_hold_together_and_include_their_ends(store: Store) -> None:
    for second in range(5):
        submit(store, at=after(second))
    assert found(store, since=after(1), till=after(3)) == [4, 3, 2]
    assert found(store, since=after(3)) == [5, 4]
    assert found(store, till=after(0)) == [1]
    assert found(store, since=after(3), till=after(1)) == []


def test_all_filters_hold_together(store: Store) -> None:
    submit(store, "anna", "train")
    submit(store, "bert", "train")
    submit(store, "anna", "test")
    bring(store, 1, State.PREPARING)
    assert found(store, user="anna") == [3, 1]
    assert found(store, user="anna", title="train") == [1]
    assert found(store, user="anna", state=State.NEW) == [3]
    assert found(store, user="ann") == []


@pytest.mark.parametrize(
    ("pattern", "titles"),
    [
        ("100%", {"100% sure", "100 sure"}),
        ("a_b", {"a_b", "aXb"}),
        ("alph_", {"alpha"}),
        ("%pha", {"Alpha", "alpha"}),
        ("A%", {"Alpha"}),
        ("[x]*?", {"[x]*?"}),
        ("[x]__", {"[x]*?"}),
        ("*", set()),
        ("back\\slash", {"back\\slash"}),
        ("%\\", set()),
        ("", set()),
        ("%", set(TITLES)),
    ],
)
def test_a_title_is_a_pattern_of_percent_and_underscore_only(store: Store, pattern: str, titles: set[str]) -> None:
    for title in TITLES:
        submit(store, description=title)
    assert titled(store, pattern) == titles


def test_wild_filters_find_nothing_or_are_refused(store: Store) -> None:
    submit(store)
    for wild in ("\0", "\udcff", "%'; DROP TABLE jobs; --"):
        assert found(store, title=wild) == found(store, user=wild) == []
    with pytest.raises(errors.BadRequest, match="does not take this value"):
        found(store, offset=2**80)


def test_lists_are_ordered_as_asked_and_newest_first_otherwise(store: Store) -> None:
    submit(store, "bert", "b", after(2))
    submit(store, "anna", "B", after(3))
    submit(store, "bert", "a", after(1))
    bring(store, 2, State.PREPARING, at=after(3))
    assert found(store) == [2, 1, 3]
    assert found(store, order=[("date", "asc")]) == [3, 1, 2]
    assert found(store, order=[("user", "asc"), ("title", "asc")]) == [2, 3, 1]
    assert found(store, order=[("user", "desc"), ("date", "asc")]) == [3, 1, 2]
    assert found(store, order=[("title", "asc")]) == [2, 3, 1]
    assert found(store, order=[("state", "desc")]) == [2, 1, 3]
    assert found(store, order=[("id", "asc")]) == [1, 2, 3]
    assert found(store, order=[("id", "asc")], limit=1, offset=1) == [2]


@pytest.mark.parametrize("order", [("colour", "asc"), ("date", "sideways"), ("id; DROP TABLE jobs", "asc")])
def test_an_order_nobody_knows_is_refused(store: Store, order: tuple[str, str]) -> None:
    with pytest.raises(errors.BadRequest, match="Cannot order"):
        found(store, order=[order])


def test_the_status_has_three_parts_in_their_orders(store: Store) -> None:
    for _ in range(8):
        submit(store)
    way = (State.PREPARING, State.WAITING, State.STARTING, State.RUNNING, State.STOPPING, State.CLEANING, State.DONE)
    for job, steps in ((8, 3), (2, 4), (3, 5), (5, 2), (4, 2), (6, 1)):
        bring(store, job, *way[:steps])
    bring(store, 7, *way[:6], at=after(1))
    for number in range(3):
        bring(store, submit(store), *way, at=after(2 + number))
    status = store.read_now(jobs.status, 3)
    assert [job.id for job in status.running] == [2, 3, 8]
    assert [job.id for job in status.waiting] == [4, 5, 6, 1]
    assert [job.id for job in status.done] == [11, 10, 9]
    assert [job.id for job in store.read_now(jobs.status).done] == [11, 10, 9, 7]
    assert [job.id for job in store.read_now(jobs.live)] == list(range(1, 9))


def test_the_status_shows_twenty_that_are_done(store: Store) -> None:
    for number in range(23):
        bring(store, submit(store), State.DONE, at=after(number))
    assert [job.id for job in store.read_now(jobs.status).done] == list(range(23, 3, -1))


def test_what_ended_long_ago_is_found_oldest_first(store: Store) -> None:
    for number in range(4):
        bring(store, submit(store), State.DONE, at=after(10 - number))
    submit(store, at=NOW)
    assert store.read_now(jobs.done_before, after(10), 10) == [4, 3, 2]
    assert store.read_now(jobs.done_before, after(10), 2) == [4, 3]


def test_src_is_due_when_its_time_has_come(store: Store) -> None:
    for number in range(3):
        job = submit(store)
        store.write_now(jobs.set_src_until, job, after(10 - number))
    submit(store)
    assert store.read_now(jobs.src_due, after(9), 10) == [3, 2]
    store.write_now(jobs.set_src_until, 3, None)
    assert store.read_now(jobs.src_due, after(9), 10) == [2]
