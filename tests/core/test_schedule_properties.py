"""What holds for every queue and every cluster, checked by means of its own."""

import random as randoms
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.core.placement import Free, Placement, Who, place
from snakepit.core.request import Group, Request, Shape, parse
from snakepit.core.resources import Node, named
from snakepit.core.schedule import Queue, Start, Waiting, plan, why
from tests.core.cluster import audit, node, nodes, people, request_texts, waiting

jobs = st.lists(
    st.builds(lambda text, who, priority: (text, who, priority), request_texts, people, st.integers(0, 1)), max_size=14
)


def in_line(asked: Sequence[tuple[str, Who, int]]) -> list[Waiting]:
    return [waiting(job, text, who, priority) for job, (text, who, priority) in enumerate(asked, 1)]


def queue_of(line: Sequence[Waiting]) -> Queue:
    queue = Queue()
    for one in line:
        queue.add(one)
    return queue


@settings(max_examples=150, deadline=None)
@given(nodes(), jobs, st.integers(0, 2**32))
def test_no_plan_overbooks_as_jobs_come_and_go(there: list[Node], asked: list[tuple[str, Who, int]], seed: int) -> None:
    free, queue, chance = Free(there), queue_of(in_line(asked)), randoms.Random(seed)
    running: list[Start] = []
    for _ in range(6):
        starts = plan(queue, free)
        for start in starts:
            queue.remove(start.waiting.job)
        running.extend(starts)
        audit(there, [(start.waiting.who, start.placement) for start in running])
        chance.shuffle(running)
        for start in running[len(running) // 2 :]:
            free.give(start.placement)
        del running[len(running) // 2 :]


@settings(max_examples=100, deadline=None)
@given(nodes(), jobs, st.randoms())
def test_the_same_snapshot_gives_the_same_plan(
    there: list[Node], asked: list[tuple[str, Who, int]], chance: randoms.Random
) -> None:
    line = in_line(asked)
    first = plan(queue_of(line), Free(there))
    shuffled = list(line)
    chance.shuffle(shuffled)
    # A queue and a cluster with a past: other nodes' states, other jobs, all of it gone again.
    free, queue = Free(Node(one.name) for one in there), queue_of(shuffled)
    for one in there:
        free.set_node(one)
    past = plan(queue, free)
    for start in past:
        free.give(start.placement)
    assert past == first == plan(queue, free)


# Little to choose from and much that is asked: here jobs stand in each other's way.
scarce = st.lists(
    st.tuples(st.sampled_from(["gtx1070 gtx1070", "gtx1070 gtx1070 a100", "a100 gtx1070:alpha"]), st.integers(2, 6)),
    min_size=1,
    max_size=3,
).map(lambda drawn: [node(f"n{at}", text, cpus=4, mem=4, slots=slots) for at, (text, slots) in enumerate(drawn)])
small = st.sampled_from(["[]", "[gpu]", "[gtx1070]", "[0.5:gpu]", "[cpu]", "[2G:mem]", "[gpu,cpu]", "[a100]"])
large = st.sampled_from(
    ["[2:gpu]", "[2:gtx1070,2:cpu]", "2:[gpu]", "[node]", "[3:gpu]", "[4:cpu]", "[4G:mem,gpu]", "2:[gtx1070]", "5:[]",
     "[gpu],[node]", "[a100],[gtx1070]", "2:[node]", "[0.5:a100,gpu]", "3:[gpu]"]
)  # fmt: skip
contended = st.lists(st.tuples(small | large, people, st.integers(0, 1)), min_size=5, max_size=10)


@settings(max_examples=200, deadline=None)
@given(scarce, st.lists(small, min_size=2, max_size=5), contended)
def test_nothing_overtakes_for_what_an_earlier_job_waits_for(
    there: list[Node], before: list[str], asked: list[tuple[str, Who, int]]
) -> None:
    free = Free(there)
    for text in before:
        placement = place(parse(text), free, Who("crowd"))
        if isinstance(placement, Placement):
            free.take(placement)
    line = sorted(in_line(asked), key=lambda one: (-one.priority, one.rank))
    starts = {start.waiting.job: start for start in plan(queue_of(line), free)}
    for at, held in enumerate(line):
        if held.job in starts or not isinstance(place(held.request, Free(there), held.who), Placement):
            continue
        for later in line[at + 1 :]:
            if later.job in starts:
                assert not takes_from(starts[later.job].placement, held, there)


def takes_from(placement: Placement, held: Waiting, there: list[Node]) -> bool:
    """Whether one of these processes has a card, cores or memory that a process of `held` could have had."""
    known = {one.name: one for one in there}
    for process in placement.processes:
        one = known[process.node]
        for group in held.request.groups:
            if group.shape.whole_node or (group.nodes and one.name not in group.nodes):
                continue
            if not large_enough(one, group.shape, held.who):
                continue
            useful = useful_cards(one, group.shape, held.who)
            if any(grant.index in useful for grant in process.grants):
                return True
            if (group.shape.cpus and process.cpus) or (group.shape.mem_bytes and process.mem_bytes):
                return True
    return False


def useful_cards(one: Node, shape: Shape, who: Who) -> set[int]:
    return {
        resource.index
        for term in shape.terms
        for resource in one.resources
        if any(named(resource, name, {}) for name in term.names)
        and resource.memory_bytes >= (term.size_bytes or 0)
        and (not resource.groups or resource.groups & who.groups)
    }


def large_enough(one: Node, shape: Shape, who: Who) -> bool:
    return isinstance(place(Request((Group(1, shape),)), Free([one]), who), Placement)


@settings(max_examples=60, deadline=None)
@given(scarce, large | request_texts, people, st.lists(small, min_size=1, max_size=5))
def test_no_stream_of_later_jobs_starves_a_job_that_fits_the_idle_cluster(
    there: list[Node], target: str, who: Who, stream: list[str]
) -> None:
    free, queue, number = Free(there), Queue(), 1000
    running: list[Start] = []
    if not isinstance(place(parse(target), free, who), Placement):
        return
    crowd = Who("crowd", frozenset({"alpha", "beta"}))
    for turn in range(150):
        while len(queue) < 12:  # there is always more that would like to start
            number += 1
            queue.add(waiting(number, stream[number % len(stream)], crowd))
        if turn == 1:
            queue.add(waiting(1, target, who))
        starts = plan(queue, free)
        for start in starts:
            queue.remove(start.waiting.job)
        running.extend(starts)
        if any(start.waiting.job == 1 for start in starts):
            return
        if running:  # jobs end, one at a time, the oldest first
            free.give(running.pop(0).placement)
    raise AssertionError(f"{target} starved: {why(queue, free, 1)}")


@settings(max_examples=60, deadline=None)
@given(nodes(), jobs)
def test_everyone_who_waits_has_a_reason(there: list[Node], asked: list[tuple[str, Who, int]]) -> None:
    free, line = Free(there), in_line(asked)
    queue = queue_of(line)
    for start in plan(queue, free):
        queue.remove(start.waiting.job)
    for one in queue.waiting():
        reasons = why(queue, free, one.job)
        assert reasons
        assert reasons != ("it is about to start",)
        assert all(not reason.endswith(": ") for reason in reasons)
    assert plan(queue, free) == [], "what fits started in the first pass"
