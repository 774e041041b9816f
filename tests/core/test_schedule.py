import pytest

from snakepit.core.placement import Free, Who
from snakepit.core.schedule import Queue, holds, next_preparations, plan, why
from tests.core.cluster import cluster, node, placed, queue, waiting, where

ANN = Who("ann", frozenset({"alpha"}))


def started(line: Queue, free: Free, limit: int | None = None) -> list[int]:
    """One pass, written down: what started leaves the queue."""
    starts = plan(line, free, limit)
    for start in starts:
        line.remove(start.waiting.job, start.waiting.task)
    return [start.waiting.job for start in starts]


def test_first_come_first_served() -> None:
    assert started(queue("[gpu]", "[gpu]", "[gpu]"), cluster("gtx1070 gtx1070")) == [1, 2]


def test_nothing_overtakes_a_job_that_does_not_fit_yet() -> None:
    free = cluster("gtx1070 gtx1070 gtx1070")
    placed(free, "[2:gpu]")
    assert started(queue("[2:gpu]", "[gpu]", "[0.5:gtx1070]"), free) == []


def test_jobs_that_need_other_things_pass() -> None:
    free = cluster("gtx1070 gtx1070", "a100")
    placed(free, "[gtx1070]")
    assert started(queue("[2:gtx1070]", "[a100]", "[]", "[2:cpu]"), free) == [2, 3, 4]


def test_a_job_waits_only_for_nodes_that_could_hold_it() -> None:
    free = cluster("gtx1070 gtx1070", "gtx1070")
    placed(free, "[gpu]@n0")
    assert started(queue("[2:gpu]", "[gpu]"), free) == [2], "the single card of n1 is of no use to job 1"


def test_jobs_without_cards_are_never_blocked_by_waits_for_cards_and_block_nobody() -> None:
    free = Free([node("n0", "gtx1070", slots=2)])
    placed(free, "[gpu]")
    line = queue("[gpu]", "[]", "[]", "[gpu]")
    assert started(line, free) == [2]
    assert why(line, free, 3) == ("n0: 2 of 2 slots for processes taken",)


def test_cores_are_contended_only_by_those_who_ask_for_them() -> None:
    free = cluster("gtx1070")
    placed(free, "[6:cpu]")
    assert started(queue("[4:cpu]", "[1:cpu]", "[gpu]", "[1G:mem]"), free) == [3, 4]


def test_a_wait_for_a_whole_node_empties_just_as_many_as_needed() -> None:
    free = cluster("", "", "")
    for name in ("n0", "n0", "n1", "n2", "n2"):
        placed(free, f"[]@{name}")
    line = queue("[node]", "[]", "[]")
    starts = plan(line, free)
    assert [where(start.placement) for start in starts] == [["n0:"], ["n2:"]], (
        "n1 is the least busy: nothing starts there"
    )


def test_two_waits_for_whole_nodes_of_different_kinds_empty_different_nodes() -> None:
    free = cluster("", "", "")
    for name in ("n0", "n1", "n2"):
        placed(free, f"[]@{name}")
    line = queue("[node]", "[node,1:cpu]", "[]")
    assert [where(start.placement) for start in plan(line, free)] == [["n2:"]]


def test_a_whole_node_is_not_taken_where_an_earlier_job_waits_for_its_cards() -> None:
    free = cluster("gtx1070", "gtx1070")
    placed(free, "[gpu]@n0")
    assert started(queue("2:[gpu]", "[node]"), free) == []


def test_a_job_that_waits_for_a_closed_node_holds_up_nobody() -> None:
    free = Free([node("n0", "gtx1070"), node("n1", "gtx1070", online=False)])
    line = queue("2:[gpu]", "[gpu]")
    assert started(line, free) == [2]
    assert why(line, free, 1) == ("n0: 0 of 1 gpu free", "n1: offline")


def test_a_stream_of_small_jobs_does_not_keep_a_pit_from_its_slots() -> None:
    free = Free([node("n0", "gtx1070 gtx1070", slots=2)])
    first, second = placed(free, "[]"), placed(free, "[]")
    line = queue("2:[gpu]", "[]", "[]")
    free.give(first)
    assert started(line, free) == []
    assert why(line, free, 2) == ("n0: its slots are kept for job 1",)
    free.give(second)
    assert started(line, free) == [1]


def test_higher_priority_goes_first() -> None:
    line = queue("[gpu]")
    line.add(waiting(2, "[gpu]", priority=1))
    assert started(line, cluster("gtx1070")) == [2]


def test_a_user_in_a_group_does_not_wait_behind_those_who_may_not_have_its_cards() -> None:
    free = cluster("gtx1070", "gtx1070:alpha")
    placed(free, "[gpu]")
    line = queue("[gpu]")
    line.add(waiting(2, "[gpu]", ANN))
    assert started(line, free) == [2]


def test_equal_requests_of_people_with_equal_rights_stand_in_one_class() -> None:
    line, free = Queue(), cluster("gtx1070:alpha")
    for job in range(100):
        groups = frozenset({f"team{job}"} | ({"alpha"} if job % 2 else set()))
        line.add(waiting(job, "[gpu]", Who(f"user{job}", groups)))
    plan(line, free)
    assert len(line.classes) == 2


def test_a_node_that_is_avoided_is_not_claimed() -> None:
    free = cluster("gtx1070 gtx1070")
    line = Queue()
    line.add(waiting(1, "[2:gpu]", avoid=["n0"]))
    line.add(waiting(2, "[gpu]"))
    assert started(line, free) == [2]
    assert why(line, free, 1) == ("n0: avoided, because a start failed there",)


def test_what_could_not_be_written_is_given_back_and_waits_on() -> None:
    free, line = cluster("gtx1070"), queue("[gpu]")
    (start,) = plan(line, free)
    assert plan(line, free) == []
    free.give(start.placement)
    assert plan(line, free) == [start]


def test_a_pass_can_be_limited() -> None:
    free, line = cluster(""), queue("[]", "[]", "[]")
    assert [started(line, free, limit) for limit in (0, 2, 2)] == [[], [1, 2], [3]]


def test_every_wait_has_a_reason_that_names_who_is_first() -> None:
    free = cluster("gtx1070 gtx1070 gtx1070", "a100")
    placed(free, "[2:gtx1070]")
    line = queue("[2:gtx1070]", "[gtx1070]", "[2:gtx1070]", "[a100]")
    assert why(line, free, 1) == ("n0: 1 of 3 gtx1070 free", "n1: no gtx1070")
    assert why(line, free, 2) == ("n0: 1 of 3 gtx1070 free, but kept for job 1", "n1: no gtx1070")
    assert why(line, free, 3) == ("1 job before it asks for the same", "n0: 1 of 3 gtx1070 free", "n1: no gtx1070")
    assert why(line, free, 4) == ("it is about to start",)
    assert why(line, free, 99) == ()
    assert [hold.waiting.job for hold in holds(line, free)] == [1, 2]


def test_asking_why_takes_nothing() -> None:
    free, line = cluster("gtx1070"), queue("[gpu]", "[gpu]")
    assert why(line, free, 2) == ("1 job before it asks for the same", "n0: 0 of 1 gpu free")
    assert started(line, free) == [1]


def test_positions_follow_priority_and_rank() -> None:
    line = queue("[gpu]", "[]", "[a100]")
    line.add(waiting(4, "[gpu]", priority=5))
    assert [line.position(job) for job in (1, 2, 3, 4, 5)] == [2, 3, 4, 1, 0]
    line.remove(1)
    assert line.positions() == {(4, 0): 1, (2, 0): 2, (3, 0): 3}


def test_adding_again_replaces() -> None:
    line = queue("[gpu]", "[gpu]")
    line.add(waiting(1, "[]"))
    assert (len(line), line.position(1), (1, 0) in line) == (2, 1, True)
    assert started(line, cluster("")) == [1]


def test_removing_what_does_not_wait_is_no_matter() -> None:
    line = queue("[gpu]")
    assert line.remove(7) is None
    assert line.remove(1) is not None
    assert (len(line), line.classes, line.find(1)) == (0, {}, None)


@pytest.mark.parametrize(
    ("new", "running", "limit", "chosen"),
    [
        ([(1, "a"), (2, "a"), (3, "b")], [], 2, [1, 3]),  # one per user while others wait
        ([(1, "a"), (2, "a")], [], 2, [1, 2]),  # nobody else waits
        ([(1, "a"), (2, "b")], ["a"], 2, [2]),
        ([(1, "a"), (2, "a"), (3, "b"), (4, "c")], ["b"], 4, [1, 4, 2]),
        ([(1, "a")], ["b", "c"], 2, []),
        ([], [], 2, []),
    ],
)
def test_preparations_are_shared_among_users(
    new: list[tuple[int, str]], running: list[str], limit: int, chosen: list[int]
) -> None:
    assert next_preparations(new, running, limit) == chosen
