"""Builders for the tests of the core: nodes, requests and waiting jobs in one line each, and an independent auditor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction

from hypothesis import strategies as st

from snakepit.core.placement import Free, Placed, Placement, Refusal, Who, place
from snakepit.core.request import parse
from snakepit.core.resources import Node, Resource
from snakepit.core.schedule import Queue, Waiting

GB = 10**9
MODELS = {
    "gtx1070": ("NVIDIA GeForce GTX 1070", 8 * GB),
    "rtx3090": ("NVIDIA GeForce RTX 3090", 24 * GB),
    "a100": ("NVIDIA A100-SXM4-80GB", 80 * GB),
    "fpga": ("Xilinx FPGA", 0),
}
ME = Who("me")


def cards(text: str) -> tuple[Resource, ...]:
    """`gtx1070 gtx1070 a100:alpha`: models by their short name, restricted to groups after the colon."""
    result = []
    for index, word in enumerate(text.split()):
        model, _, groups = word.partition(":")
        name, memory_bytes = MODELS[model]
        kind = "fpga" if model == "fpga" else "cuda"
        owners = frozenset(groups.split("+")) if groups else frozenset()
        result.append(Resource(index, name, kind, memory_bytes=memory_bytes, groups=owners))
    return tuple(result)


def node(
    name: str, text: str = "", cpus: int = 8, mem: int = 64, slots: int = 64, online: bool = True, drained: bool = False
) -> Node:
    return Node(name, cpus, mem * GB, slots, cards(text), online, drained)


def cluster(*texts: str) -> Free:
    """Nodes n0, n1, … with these cards."""
    return Free(node(f"n{at}", text) for at, text in enumerate(texts))


def placed(free: Free, text: str, who: Who = ME) -> Placement:
    """Placed and taken; a refusal fails the test with its reasons."""
    placement = place(parse(text), free, who)
    assert isinstance(placement, Placement), placement
    free.take(placement)
    return placement


def refused(free: Free, text: str, who: Who = ME) -> tuple[str, ...]:
    refusal = place(parse(text), free, who)
    assert isinstance(refusal, Refusal), refusal
    return refusal.reasons


def where(placement: Placement) -> list[str]:
    """`n0:0,1` for every process."""
    return [f"{one.node}:{','.join(str(grant.index) for grant in one.grants)}" for one in placement.processes]


def waiting(job: int, text: str, who: Who = ME, priority: int = 0, avoid: Iterable[str] = ()) -> Waiting:
    return Waiting(job, 0, who, parse(text), job, priority, frozenset(avoid))


def queue(*texts: str, who: Who = ME) -> Queue:
    """Jobs 1, 2, … in this order."""
    result = Queue()
    for job, text in enumerate(texts, 1):
        result.add(waiting(job, text, who))
    return result


def audit(nodes: Iterable[Node], running: Iterable[tuple[Who, Placement]]) -> None:
    """Counts everything anew, by other means than the code under test, and fails where a promise is broken."""
    known = {one.name: one for one in nodes}
    on: dict[str, list[tuple[Who, Placed]]] = defaultdict(list)
    for who, placement in running:
        for process in placement.processes:
            on[process.node].append((who, process))
    for name, processes in on.items():
        there = known[name]
        assert len(processes) <= there.slots
        assert sum(process.cpus for _, process in processes) <= there.cpus
        assert sum(process.mem_bytes for _, process in processes) <= there.mem_bytes
        if any(process.whole_node for _, process in processes):
            assert len(processes) == 1
        for resource in there.resources:
            grants = [
                (who, grant) for who, process in processes for grant in process.grants if grant.index == resource.index
            ]
            assert sum((grant.share for _, grant in grants), Fraction(0)) <= 1
            assert sum(grant.mem_bytes for _, grant in grants) <= max(resource.memory_bytes, 0)
            assert not resource.groups or all(resource.groups & who.groups for who, _ in grants)
        for _, process in processes:
            indices = [grant.index for grant in process.grants]
            assert len(set(indices)) == len(indices), "two terms share a card"
            assert set(indices) <= {resource.index for resource in there.resources}


# Small clusters and small requests collide often, which is where mistakes show.
card_words = st.sampled_from(["gtx1070", "rtx3090", "a100", "gtx1070:alpha", "a100:beta", "rtx3090:alpha+beta", "fpga"])


@st.composite
def nodes(draw: st.DrawFn, max_nodes: int = 4, always_open: bool = False) -> list[Node]:
    result = []
    for at in range(draw(st.integers(1, max_nodes))):
        text = " ".join(draw(st.lists(card_words, max_size=4)))
        online = always_open or draw(st.integers(0, 7)) > 0
        drained = not always_open and draw(st.integers(0, 7)) == 0
        sizes = {"cpus": draw(st.integers(1, 8)), "mem": draw(st.integers(1, 16)), "slots": draw(st.integers(1, 6))}
        result.append(node(f"n{at}", text, **sizes, online=online, drained=drained))
    return result


term_texts = st.sampled_from(
    ["gpu", "2:gpu", "3:gpu", "a100", "gtx1070", "2:gtx1070", "a100|rtx3090", "gpu/24G", "2:gpu/24G", "0.5:gpu",
     "0.5:gpu/10G", "0.3:a100/40G", "0.25:gpu/2G", "fpga", "cpu", "3:cpu", "4G:mem", "node"]
)  # fmt: skip
group_texts = st.builds(
    lambda count, terms, at: f"{count}:[{','.join(terms)}]{at}",
    st.integers(1, 3),
    st.lists(term_texts, max_size=3),
    st.sampled_from(["", "", "", "", "@n0", "@n0+n1", "@n2"]),
)
request_texts = st.lists(group_texts, min_size=1, max_size=2).map(",".join)
people = st.sampled_from([Who("ann"), Who("bob", frozenset({"alpha"})), Who("cyd", frozenset({"beta", "gamma"}))])
