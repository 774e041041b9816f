"""Placement against an exhaustive search without any cleverness: on small clusters it must not miss a solution."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.core.placement import Free, Placement, Who, place
from snakepit.core.request import Request, Shape, Term, parse
from snakepit.core.resources import Node, named
from tests.core.cluster import nodes, people

terms = st.sampled_from(
    ["gpu", "2:gpu", "a100", "gtx1070", "a100|rtx3090", "rtx3090|gtx1070", "gpu/24G", "fpga", "2:cpu", "node"]
)
groups = st.builds(
    lambda count, parts, at: f"{count}:[{','.join(parts)}]{at}",
    st.integers(1, 2),
    st.lists(terms, max_size=2),
    st.sampled_from(["", "", "@n0", "@n1+n2"]),
)
requests = st.lists(groups, min_size=1, max_size=3).map(",".join)


def possible(request: Request, there: list[Node], who: Who) -> bool:
    """Tries every node for every process and every card for every term."""
    shapes = [(group.shape, group.nodes) for group in request.groups for _ in range(group.count)]
    left = {one.name: [one.cpus, one.slots, 0] for one in there}
    used: set[tuple[str, int]] = set()

    def go(at: int) -> bool:
        if at == len(shapes):
            return True
        shape, chosen = shapes[at]
        return any(put(one, shape, at) for one in there if not chosen or one.name in chosen)

    def put(one: Node, shape: Shape, at: int) -> bool:
        cpus, slots, exclusive = left[one.name]
        alone = slots == one.slots
        if cpus < shape.cpus or slots < 1 or exclusive or (shape.whole_node and not alone):
            return False
        left[one.name] = [cpus - shape.cpus, slots - 1, int(shape.whole_node)]
        units = [term for term in shape.terms for _ in range(int(term.amount))]
        if hand_out(one, units, lambda: go(at + 1)):
            return True
        left[one.name] = [cpus, slots, exclusive]
        return False

    def hand_out(one: Node, units: list[Term], then: Callable[[], bool]) -> bool:
        if not units:
            return then()
        for resource in one.resources:
            key = (one.name, resource.index)
            fits = any(named(resource, name, {}) for name in units[0].names)
            large = resource.memory_bytes >= (units[0].size_bytes or 0)
            mine = not resource.groups or bool(resource.groups & who.groups)
            if key in used or not (fits and large and mine):
                continue
            used.add(key)
            if hand_out(one, units[1:], then):
                return True
            used.discard(key)
        return False

    return go(0)


@settings(max_examples=300, deadline=None)
@given(nodes(max_nodes=3, always_open=True), requests, people)
def test_what_can_be_placed_is_placed(there: list[Node], text: str, who: Who) -> None:
    request = parse(text)
    assert isinstance(place(request, Free(there), who), Placement) == possible(request, there, who)
