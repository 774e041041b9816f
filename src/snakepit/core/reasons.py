"""Why a request does not fit now, in words, one line per node: "n0: 1 of 3 gtx1070 free"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from snakepit.core.ask import Row, choose, term_cards
from snakepit.core.free import Free
from snakepit.core.grammar import Group, Request, Shape, Term, render_amount
from snakepit.core.placed import Placed, Who
from snakepit.core.sizes import rough_size
from snakepit.core.space import CARD_SHIFT, CLAIMED_CPUS, CLAIMED_MEM, CLAIMED_NODE, CLAIMED_SLOTS, Space

KeptFor = Callable[[str, int], str]  # node, what is claimed there -> "job 17"


def reasons(
    request: Request,
    free: Free,
    who: Who,
    claims: Mapping[str, int],
    avoid: frozenset[str],
    kept_for: KeptFor = lambda node, claim: "an earlier job",
) -> tuple[str, ...]:
    """A line for every node that could matter; `kept_for` names the job that a claim belongs to."""
    if not free.spaces:
        return ("there is no node yet",)
    wanted = {name for group in request.groups for name in group.nodes}
    anywhere = not all(group.nodes for group in request.groups)
    lines = [
        f"{space.name}: {_line(request, free, space, who, claims.get(space.name, 0), avoid, kept_for)}"
        for space in free.spaces.values()
        if anywhere or space.name in wanted
    ]
    return (*lines, *(f"{name}: no such node" for name in sorted(wanted - free.spaces.keys())))


def _line(
    request: Request, free: Free, space: Space, who: Who, claim: int, avoid: frozenset[str], kept_for: KeptFor
) -> str:
    if not space.node.online:
        return "offline"
    if space.node.drained:
        return f"drained: {space.node.drain_reason}" if space.node.drain_reason else "drained"
    if space.name in avoid:
        return "avoided, because a start failed there"
    groups = [group for group in request.groups if not group.nodes or space.name in group.nodes]
    room = _room(groups, free, space, who, claim)
    if room:
        relevant = free.relevant(who)
        lacks = [_lacking(term, space, relevant) for group in groups for term in group.shape.terms]
        return "; ".join((f"room for {room} of {request.process_count} processes", *dict.fromkeys(filter(None, lacks))))
    keeper = lambda bits: kept_for(space.name, bits)  # noqa: E731
    words = [_obstacle(group.shape, space, free.relevant(who), claim, keeper) for group in groups]
    return "; ".join(dict.fromkeys(word for word in words if word))


def _room(groups: list[Group], free: Free, space: Space, who: Who, claim: int) -> int:
    """How many of the processes would find room on this node alone."""
    taken: list[Placed] = []
    version = space.version
    for group in groups:
        shape, row = group.shape, Row(space, group.shape, free.relevant(who))
        for index in range(group.count):
            choice = choose(row, shape, claim)
            if choice is None:
                break
            process = Placed(0, index, space.name, choice.grants, shape.cpus, shape.mem_bytes, shape.whole_node)
            space.take(process, -2)
            taken.append(process)
    for process in reversed(taken):
        space.give(process, version)
    return len(taken)


def _obstacle(shape: Shape, space: Space, groups: frozenset[str], claim: int, kept: Callable[[int], str]) -> str:
    """The first thing that is in the way, from the most lasting to the most passing."""
    node = space.node
    for term in shape.terms:
        if lacking := _lacking(term, space, groups):
            return lacking
    if shape.cpus > node.cpus:
        return f"{node.cpus - space.cpus_used} of {node.cpus} cores free, {shape.cpus} asked"
    if shape.mem_bytes > node.mem_bytes:
        return _memory(shape, space)
    if claim & CLAIMED_NODE:
        return f"the whole node is kept for {kept(CLAIMED_NODE)}"
    if space.exclusive:
        return "used as a whole by another job"
    if shape.whole_node and space.processes:
        return f"not idle, {space.processes} {'process' if space.processes == 1 else 'processes'} on it"
    for term in shape.terms:
        if taken := _taken(term, space, groups, claim, kept):
            return taken
    return _short(shape, space, claim, kept)


def _short(shape: Shape, space: Space, claim: int, kept: Callable[[int], str]) -> str:
    node = space.node
    if shape.cpus and node.cpus - space.cpus_used < shape.cpus:
        return f"{node.cpus - space.cpus_used} of {node.cpus} cores free, {shape.cpus} asked"
    if shape.mem_bytes and node.mem_bytes - space.mem_used < shape.mem_bytes:
        return _memory(shape, space)
    if space.processes >= node.slots:
        return f"{space.processes} of {node.slots} slots for processes taken"
    if shape.cpus and claim & CLAIMED_CPUS:
        return f"its cores are kept for {kept(CLAIMED_CPUS)}"
    if shape.mem_bytes and claim & CLAIMED_MEM:
        return f"its memory is kept for {kept(CLAIMED_MEM)}"
    if claim & CLAIMED_SLOTS:
        return f"its slots are kept for {kept(CLAIMED_SLOTS)}"
    if shape.whole_node and claim:
        return f"kept for {kept(claim)}"
    return "not all that one process asks is free at once"


def _lacking(term: Term, space: Space, groups: frozenset[str]) -> str:
    """What the node would not have even when empty."""
    name = "|".join(term.names)
    needed = term.amount if isinstance(term.amount, int) else 1
    by_name = term_cards(space, Term(1, term.names))
    fitting = term_cards(space, term)
    mine = fitting & space.cards_for(groups)
    if mine.bit_count() >= needed:
        return ""
    if not by_name:
        return f"no {name}"
    if term.size_bytes is not None and not fitting:
        return f"no {name} with {rough_size(term.size_bytes)} of memory"
    if fitting.bit_count() >= needed:
        resources = enumerate(space.node.resources)
        owners = sorted({group for at, one in resources if fitting >> at & 1 for group in one.groups})
        return f"{name} only for {'group' if len(owners) == 1 else 'groups'} {', '.join(owners)}"
    return f"only {mine.bit_count()} {name}{_with(term)}, {needed} asked"


def _taken(term: Term, space: Space, groups: frozenset[str], claim: int, kept: Callable[[int], str]) -> str:
    """What the node has, but not now."""
    name = "|".join(term.names)
    mine = term_cards(space, term) & space.cards_for(groups)
    if not isinstance(term.amount, int):
        needed, free = 1, space.shareable(mine, term.amount, term.size_bytes or 0)
        lack = f"no {name} with {render_amount(term.amount)} of it{_with(term)} free"
    else:
        needed, free = term.amount, mine & space.untouched
        lack = f"{free.bit_count()} of {mine.bit_count()} {name}{_with(term)} free"
    if free.bit_count() < needed:
        return lack
    claimed = free & (claim >> CARD_SHIFT)
    if (free & ~claimed).bit_count() < needed:
        return f"{free.bit_count()} of {mine.bit_count()} {name} free, but kept for {kept(claimed << CARD_SHIFT)}"
    return ""


def _with(term: Term) -> str:
    if term.size_bytes is None:
        return ""
    return f"{' and' if not isinstance(term.amount, int) else ' with'} {rough_size(term.size_bytes)}"


def _memory(shape: Shape, space: Space) -> str:
    if not space.node.mem_bytes:
        return "its memory is not known"
    free_bytes = max(0, space.node.mem_bytes - space.mem_used)
    return (
        f"{rough_size(free_bytes)} of {rough_size(space.node.mem_bytes)} memory free, "
        f"{rough_size(shape.mem_bytes)} asked"
    )
