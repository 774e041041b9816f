from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.core.placement import Free, Grant, Placed, Placement, Refusal, Who, never_fits, place, summary, unfit
from snakepit.core.request import parse
from snakepit.core.resources import Node
from tests.core.cluster import (
    GB,
    ME,
    audit,
    cards,
    cluster,
    node,
    nodes,
    people,
    placed,
    refused,
    request_texts,
    where,
)

ANN = Who("ann", frozenset({"alpha"}))


def test_a_process_never_spans_nodes() -> None:
    free = cluster("gtx1070 gtx1070", "gtx1070 gtx1070")
    assert refused(free, "[3:gpu]") == ("n0: only 2 gpu, 3 asked", "n1: only 2 gpu, 3 asked")
    assert where(placed(free, "2:[2:gpu]")) == ["n0:0,1", "n1:0,1"]


def test_all_processes_are_placed_or_none() -> None:
    free = cluster("gtx1070 gtx1070", "gtx1070")
    assert refused(free, "2:[],4:[gpu,2:gtx1060]")[0] == "n0: room for 2 of 6 processes; no gtx1060"
    assert refused(free, "2:[2:gpu]") == ("n0: room for 1 of 2 processes", "n1: only 1 gpu, 2 asked")
    assert where(placed(free, "3:[gpu]")) == ["n1:0", "n0:0", "n0:1"]


def test_a_taken_card_is_not_given_twice() -> None:
    free = cluster("gtx1070 gtx1070 gtx1070")
    placed(free, "[2:gtx1070]")
    assert refused(free, "[2:gtx1070]") == ("n0: 1 of 3 gtx1070 free",)
    assert where(placed(free, "[gtx1070]")) == ["n0:2"]


def test_the_repeated_name_asks_for_two_cards() -> None:
    free = cluster("a100 gtx1070")
    assert refused(free, "[a100,a100]") == ("n0: not all that one process asks is free at once",)
    assert where(placed(cluster("a100 a100"), "[a100,a100]")) == ["n0:0,1"]


def test_terms_that_compete_for_a_card_are_matched() -> None:
    assert where(placed(cluster("a100 gtx1070"), "[gpu,a100]")) == ["n0:0,1"]
    assert where(placed(cluster("a100 rtx3090 gtx1070"), "[gpu/24G,gpu,a100|rtx3090]")) == ["n0:0,1,2"]
    assert where(placed(cluster("a100 gtx1070"), "[0.5:gpu/70G,gpu]")) == ["n0:0,1"]


def test_the_least_capable_card_that_fits_is_taken_first() -> None:
    free = cluster("a100", "rtx3090 gtx1070")
    assert where(placed(free, "[gpu]")) == ["n1:1"]
    assert where(placed(free, "[gpu/20G]")) == ["n1:0"]
    assert where(placed(free, "[gpu]")) == ["n0:0"]


def test_small_remainders_are_packed_so_that_big_requests_find_room() -> None:
    free = cluster("gtx1070 gtx1070 gtx1070 gtx1070", "gtx1070 gtx1070 gtx1070 gtx1070")
    placed(free, "[gpu]@n1")
    assert [where(placed(free, "[gpu]")) for _ in range(3)] == [["n1:1"], ["n1:2"], ["n1:3"]]
    assert where(placed(free, "[4:gpu]")) == ["n0:0,1,2,3"]


def test_restricted_cards_are_used_first_by_members_and_never_by_others() -> None:
    free = cluster("gtx1070", "a100:alpha")
    assert where(placed(free, "[gpu]", ANN)) == ["n1:0"]
    assert where(placed(free, "[gpu]", ANN)) == ["n0:0"]
    free = cluster("gtx1070", "a100:alpha+beta")
    assert refused(free, "[a100]") == ("n0: no a100", "n1: a100 only for groups alpha, beta")
    assert refused(free, "[a100]", Who("root", frozenset({"admins"})))[1] == "n1: a100 only for groups alpha, beta"


def test_shares_are_packed_on_shared_cards_until_they_are_full() -> None:
    free = cluster("gtx1070 gtx1070")
    assert [where(placed(free, "[0.5:gpu]"))[0] for _ in range(3)] == ["n0:0", "n0:0", "n0:1"]
    assert refused(free, "[gpu]") == ("n0: 0 of 2 gpu free",)
    assert where(placed(free, "[0.5:gpu]")) == ["n0:1"]
    assert refused(free, "[0.1:gpu]") == ("n0: no gpu with 0.1 of it free",)


def test_the_memory_reserved_on_a_shared_card_is_kept() -> None:
    free = cluster("rtx3090")
    placed(free, "[0.3:gpu/14G]")
    assert refused(free, "[0.3:gpu/12G]") == ("n0: no gpu with 0.3 of it and 12G free",)
    placed(free, "[0.3:gpu/10G]")
    assert refused(free, "[0.3:gpu/1G]") == ("n0: no gpu with 0.3 of it and 1G free",)


def test_two_terms_never_share_a_card_but_two_processes_may() -> None:
    assert refused(cluster("rtx3090"), "[0.5:gpu,0.5:gpu]") == ("n0: not all that one process asks is free at once",)
    assert where(placed(cluster("rtx3090"), "2:[0.5:gpu]")) == ["n0:0", "n0:0"]


def test_whole_cards_are_given_only_when_untouched() -> None:
    free = cluster("gtx1070 gtx1070")
    placed(free, "[0.1:gpu]")
    assert where(placed(free, "[gpu]")) == ["n0:1"]
    assert refused(free, "[gpu]") == ("n0: 0 of 2 gpu free",)


def test_three_thirds_are_not_more_than_one() -> None:
    free = cluster("gtx1070")
    for _ in range(10):
        placed(free, "[0.1:gpu]")  # ten floats of 0.1 would be a little less than one
    refused(free, "[0.0001:gpu]")


def test_cores_and_memory_are_reserved_only_when_asked() -> None:
    free = Free([node("n0", cpus=8, mem=64)])
    placed(free, "5:[]")
    placed(free, "[6:cpu,60G:mem]")
    placed(free, "[]")
    assert refused(free, "[3:cpu]") == ("n0: 2 of 8 cores free, 3 asked",)
    assert refused(free, "[12:cpu]") == ("n0: 2 of 8 cores free, 12 asked",)
    assert refused(free, "[5G:mem]") == ("n0: 4G of 64G memory free, 5G asked",)


def test_a_node_runs_at_most_its_slots() -> None:
    free = Free([node("n0", "gtx1070", slots=2), node("n1", slots=1)])
    placed(free, "3:[]")
    assert refused(free, "[]") == ("n0: 2 of 2 slots for processes taken", "n1: 1 of 1 slots for processes taken")


def test_a_node_of_ones_own_is_idle_and_stays_alone() -> None:
    free = cluster("gtx1070 gtx1070", "gtx1070")
    placed(free, "[]@n1")
    own = placed(free, "[node]")
    assert where(own) == ["n0:0,1"], "it comes with all the cards of the node"
    assert refused(free, "[]@n0") == ("n0: used as a whole by another job",)
    assert refused(free, "[node]") == ("n0: used as a whole by another job", "n1: not idle, 1 process on it")
    free.give(own)
    assert where(placed(free, "[gpu,node]")) == ["n0:0"], "asked for by number, no more than these"


def test_processes_with_a_node_of_their_own_are_on_different_nodes() -> None:
    free = cluster("gtx1070", "gtx1070", "gtx1070")
    assert where(placed(free, "2:[node],[]")) == ["n0:0", "n1:0", "n2:"]


def test_closed_nodes_get_nothing_and_say_so() -> None:
    free = Free([node("n0", "gtx1070", online=False), node("n1", "gtx1070", drained=True), node("n2")])
    assert refused(free, "[gpu]") == ("n0: offline", "n1: drained", "n2: no gpu")
    free.set_node(replace(node("n1", "gtx1070", drained=True), drain_reason="new power supply"))
    assert refused(free, "[gpu]")[1] == "n1: drained: new power supply"
    assert where(placed(free, "[]")) == ["n2:"]


def test_nodes_can_be_chosen() -> None:
    free = cluster("gtx1070", "gtx1070", "gtx1070")
    assert where(placed(free, "2:[gpu]@n1+n2")) == ["n1:0", "n2:0"]
    assert refused(free, "[gpu]@n1+n2") == ("n1: 0 of 1 gpu free", "n2: 0 of 1 gpu free")
    assert refused(free, "[gpu]@n7") == ("n7: no such node",)


def test_nodes_can_be_avoided() -> None:
    free = cluster("gtx1070", "a100")
    assert place(parse("[gpu]"), free, ME, avoid=frozenset({"n0"})) == Placement((Placed(0, 0, "n1", (Grant(0),)),))
    refusal = place(parse("[gpu]@n0"), free, ME, avoid=frozenset({"n0"}))
    assert refusal == Refusal(("n0: avoided, because a start failed there",))


def test_sizes_are_looked_for_in_the_memory_of_the_card() -> None:
    assert refused(cluster("gtx1070 gtx1070"), "[gpu/24G]") == ("n0: no gpu with 24G of memory",)
    assert refused(cluster("gtx1070 rtx3090"), "[2:gpu/24G]") == ("n0: only 1 gpu with 24G, 2 asked",)
    assert where(placed(cluster("gtx1070 rtx3090"), "[gpu/24G]")) == ["n0:1"]


def test_aliases_name_models() -> None:
    free = Free([node("n0", "rtx3090")], {"big": "NVIDIA GeForce RTX 3090"})
    assert where(placed(free, "[big]")) == ["n0:0"]
    free.set_aliases({})
    assert refused(free, "[big]") == ("n0: no big",)


def test_without_nodes_the_refusal_says_so() -> None:
    assert refused(Free(), "[]") == ("there is no node yet",)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (("gtx1070 gtx1070", "gtx1070"), "[gpu],[2:gpu]"),  # the small one must not take the big one's node
        (("a100", "a100 gtx1070"), "[a100],[a100,gtx1070]"),
        (("rtx3090", "rtx3090"), "[gpu],[gpu]@n0"),
        (("rtx3090", "rtx3090", "rtx3090"), "[gpu]@n0+n1,[gpu]@n1+n2,[gpu]@n0"),
        (("gtx1070 gtx1070", "gtx1070 gtx1070", "gtx1070"), "3:[gpu],[2:gpu]"),
        (("gtx1070", ""), "[node],[gpu]"),
        (("gtx1070 a100",), "[a100|gtx1070],[gtx1070]"),  # the first must not take the only card of the second
        (("gtx1070", "gtx1070 fpga", "fpga"), "[gpu],[fpga],[gpu,fpga]"),
    ],
)
def test_what_obviously_fits_is_not_refused(layout: tuple[str, ...], text: str) -> None:
    placed(cluster(*layout), text)


def test_choices_that_look_best_at_first_are_taken_back() -> None:
    free = Free([node("n0", "gtx1070", cpus=16), node("n1", "gtx1070 gtx1070", cpus=4), node("n2", "a100", cpus=4)])
    placement = placed(free, "[gpu,4:cpu],[gpu,12:cpu],[2:gpu]")
    assert [one.node for one in placement.processes] == ["n2", "n0", "n1"]
    free = cluster("gtx1070", "rtx3090 gtx1070", "rtx3090 a100")  # no order of the groups helps here
    placed(free, "[gtx1070],[a100|rtx3090],[rtx3090],[gpu,rtx3090]")


def test_never_fits_counts_closed_nodes_and_ignores_what_runs() -> None:
    known = [node("n0", "gtx1070", online=False), node("n1", "a100:alpha", drained=True)]
    assert never_fits(parse("2:[gpu]"), known, {}, ANN) is None
    assert never_fits(parse("2:[gpu]"), known, {}, ME) == Refusal(
        ("n0: room for 1 of 2 processes", "n1: gpu only for group alpha")
    )
    free = Free(known)
    placed_elsewhere = Placement((Placed(0, 0, "n0", (Grant(0),), whole_node=True),))
    free.take(placed_elsewhere)
    assert unfit(parse("[gpu]"), free, ME) is None
    free.remove_node("n0")
    assert unfit(parse("[gpu]"), free, ME) == Refusal(("n1: gpu only for group alpha",))


def test_what_runs_is_remembered_when_its_node_changes() -> None:
    free = cluster("gtx1070 gtx1070")
    running = placed(free, "[0.5:gpu],[gpu]")
    free.set_node(node("n0", "gtx1070 gtx1070", online=False))
    free.set_node(node("n0", "gtx1070 gtx1070 gtx1070"))
    assert where(placed(free, "[gpu]")) == ["n0:2"]
    free.remove_node("n0")
    free.set_node(node("n0", "gtx1070"))
    assert refused(free, "[gpu]") == ("n0: 0 of 1 gpu free",)
    free.give(running)
    assert where(placed(free, "[gpu]")) == ["n0:0"]


def test_giving_what_was_never_taken_changes_nothing() -> None:
    free = cluster("gtx1070")
    placement = placed(free, "[gpu]")
    free.give(placement)
    free.give(placement)
    placed(free, "[gpu]")
    refused(free, "[gpu]")


def test_the_summary_reads_as_in_the_original() -> None:
    there = [node("n0", "gtx1070 gtx1070 gtx1070 gtx1070 gtx1070 gtx1070"), node("n1"), node("n2", "fpga a100")]
    placement = Placement(
        (
            Placed(0, 0, "n2", (Grant(1), Grant(0))),
            Placed(0, 1, "n0", (Grant(0), Grant(1))),
            Placed(0, 2, "n0", (Grant(2), Grant(5, Fraction(1, 2)))),
            Placed(1, 0, "n1"),
        )
    )
    assert summary(placement, there) == "n0[cuda 0-2,5] + n1[] + n2[cuda 1 + fpga 0]"


@settings(max_examples=200, deadline=None)
@given(nodes(), st.lists(st.tuples(request_texts, people), max_size=12))
def test_no_placement_overbooks_and_each_has_all_that_was_asked(
    there: list[Node], asked: list[tuple[str, Who]]
) -> None:
    free = Free(there)
    running: list[tuple[Who, Placement]] = []
    open_nodes = {one.name for one in there if one.online and not one.drained}
    for text, who in asked:
        request = parse(text)
        placement = place(request, free, who)
        if isinstance(placement, Refusal):
            assert placement.reasons
            assert all(": " in reason and not reason.endswith(": ") for reason in placement.reasons)
            continue
        free.take(placement)
        running.append((who, placement))
        assert len(placement.processes) == request.process_count
        for process in placement.processes:
            group = request.groups[process.group_index]
            assert process.node in open_nodes
            assert not group.nodes or process.node in group.nodes
            wanted = sum(term.amount if isinstance(term.amount, int) else 1 for term in group.shape.terms)
            assert len(process.grants) == wanted or (process.whole_node and not group.shape.terms)
            assert (process.cpus, process.mem_bytes) == (group.shape.cpus, group.shape.mem_bytes)
    audit(there, running)


@settings(deadline=None)
@given(nodes(), st.lists(st.tuples(request_texts, people), min_size=1, max_size=8), st.randoms())
def test_give_after_take_restores(there: list[Node], asked: list[tuple[str, Who]], random: object) -> None:
    free = Free(there)
    taken = []
    for text, who in asked:
        placement = place(parse(text), free, who)
        if isinstance(placement, Placement):
            free.take(placement)
            taken.append(placement)
    random.shuffle(taken)  # type: ignore[attr-defined]
    for placement in taken:
        free.give(placement)
    fresh = Free(there)
    for text, who in asked:
        assert place(parse(text), free, who) == place(parse(text), fresh, who)


@settings(deadline=None)
@given(nodes(), request_texts, people)
def test_a_refusal_and_a_placement_leave_everything_as_it_was(there: list[Node], text: str, who: Who) -> None:
    free = Free(there)
    first = place(parse(text), free, who)
    assert place(parse(text), free, who) == first == place(parse(text), Free(there), who)


@settings(deadline=None)
@given(nodes(always_open=True), request_texts, people)
def test_on_open_nodes_never_fits_agrees_with_place(there: list[Node], text: str, who: Who) -> None:
    refusal = never_fits(parse(text), there, {}, who)
    answer = place(parse(text), Free(there), who)
    assert isinstance(answer, Refusal) == (refusal is not None)


def test_a_request_of_thousands_of_processes_is_placed() -> None:
    free = Free(node(f"n{at}", slots=512) for at in range(10))
    placement = placed(free, "4096:[]")
    assert len(placement.processes) == 4096


def test_a_card_without_known_memory_has_none_to_reserve() -> None:
    free = Free([Node("n0", 8, 64 * GB, 8, cards("fpga"))])
    assert refused(free, "[0.5:fpga/1G]") == ("n0: no fpga with 1G of memory",)
    placed(free, "[0.5:fpga]")


def test_equal_processes_leave_each_other_the_cards_that_they_name() -> None:
    free = Free([node("n0", "gtx1070 gtx1070 rtx3090 rtx3090")])
    assert len(placed(free, "2:[gpu,gtx1070]").processes) == 2
