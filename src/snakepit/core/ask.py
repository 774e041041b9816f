"""What one process asks of one node: could it ever hold it (`Row`), and which cards would it get now (`choose`).

An `Ask` is a shape as one kind of user sees the cluster. It lives as long as the layout of the cluster and remembers
its answer per node until that node, or the claims on it, change: most nodes do not change between two questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from snakepit.core.grammar import Shape, Term
from snakepit.core.placed import Grant
from snakepit.core.space import (
    CARD_SHIFT,
    CLAIMED_CPUS,
    CLAIMED_MEM,
    CLAIMED_NODE,
    CLAIMED_SLOTS,
    SLOTS_UNLIMITED,
    Space,
)

# Lower is better: cards for everyone used, shared cards broken into, memory of the cards, whether an idle node is
# broken into, whole cards left over, cores left over (or load).
Score = tuple[int, int, int, bool, int, int]
_WORST: Score = (1 << 62, 0, 0, False, 0, 0)


@dataclass(frozen=True, slots=True)
class Choice:
    grants: tuple[Grant, ...]
    score: Score


WHOLE_CARD = Term(1, ("gpu",))
_Picked = list[tuple[int, Term]]  # position of a card, and the term it is for


class Ask:
    """A shape as members of `groups` see it, over those open nodes (of `nodes`, if named) that could hold it empty."""

    __slots__ = ("_avoid", "_groups", "_known", "_nodes", "layout", "rows", "shape")

    def __init__(self, shape: Shape, groups: frozenset[str], nodes: Iterable[str], avoid: frozenset[str]) -> None:
        self.shape, self._groups, self._nodes, self._avoid = shape, groups, frozenset(nodes), avoid
        self.layout = -1
        self.rows: list[Row] = []
        self._known: dict[Space, Row | None] = {}

    def survey(self, spaces: Iterable[Space], layout: int) -> None:
        """The nodes changed; those that did not keep their rows."""
        known = {space: self._known[space] if space in self._known else self._row(space) for space in spaces}
        self._known, self.layout = known, layout
        self.rows = [row for row in known.values() if row is not None]

    def _row(self, space: Space) -> Row | None:
        if not space.open or space.name in self._avoid or (self._nodes and space.name not in self._nodes):
            return None
        row = Row(space, self.shape, self._groups)
        return row if row.holds_when_empty(self.shape) else None

    def best(self, claims: Mapping[str, int]) -> tuple[Row, Choice] | None:
        """Where one process goes: the lowest score, the first node among equals."""
        shape, found, lowest = self.shape, None, _WORST
        for row in self.rows:
            space = row.space
            claim = claims.get(space.name, 0) & row.care
            # The same as row.look(), written out: this line runs more often than any other.
            fresh = row.seen_version == space.version and row.seen_claim == claim
            choice = row.choice if fresh else row.look(shape, claim)
            if choice is not None and choice.score < lowest:
                found, lowest = (row, choice), choice.score
        return found

    def all(self, claims: Mapping[str, int]) -> list[tuple[Row, Choice]]:
        """Every node where one would fit, best first."""
        looked = ((row, row.look(self.shape, claims.get(row.space.name, 0))) for row in self.rows)
        fitting = [(row, choice) for row, choice in looked if choice is not None]
        return sorted(fitting, key=lambda pair: pair[1].score)


class Row:
    """One node, the cards each term could get there, and the last answer."""

    __slots__ = ("cards", "care", "choice", "masks", "own_claim", "seen_claim", "seen_version", "space")

    def __init__(self, space: Space, shape: Shape, groups: frozenset[str]) -> None:
        self.space = space
        self.cards = space.cards_for(groups)
        self.masks = tuple(term_cards(space, term) & self.cards for term in shape.terms)
        self.own_claim = _claim(shape, self.masks)
        self.care = -1 if shape.whole_node else self.own_claim | CLAIMED_NODE | CLAIMED_SLOTS | SLOTS_UNLIMITED
        self.seen_version, self.seen_claim = -1, -1
        self.choice: Choice | None = None

    def holds_when_empty(self, shape: Shape) -> bool:
        node = self.space.node
        if shape.cpus > node.cpus or shape.mem_bytes > node.mem_bytes or node.slots < 1:
            return False
        return _pick(self.space.blank(), self.masks, shape.terms, -1) is not None

    def look(self, shape: Shape, claim: int) -> Choice | None:
        claim &= self.care
        if self.seen_version != self.space.version or self.seen_claim != claim:
            self.choice = choose(self, shape, claim)
            self.seen_version, self.seen_claim = self.space.version, claim
        return self.choice

    def capacity(self, shape: Shape, claims: Mapping[str, int]) -> int:
        """At most so many of them here now (never too few: it only serves to say no quickly)."""
        space, node = self.space, self.space.node
        if shape.whole_node:
            return 1
        unlimited = claims.get(space.name, 0) & SLOTS_UNLIMITED
        bounds = [1 << 30 if unlimited else node.slots - space.processes]
        if shape.cpus:
            bounds.append((node.cpus - space.cpus_used) // shape.cpus)
        if shape.mem_bytes:
            bounds.append((node.mem_bytes - space.mem_used) // shape.mem_bytes)
        for term, mask in zip(shape.terms, self.masks, strict=True):
            if not isinstance(term.amount, int):
                bounds.append(mask.bit_count() * int(1 / term.amount))
            else:
                bounds.append((mask & space.untouched).bit_count() // term.amount)
        return min(bounds)


def term_cards(space: Space, term: Term) -> int:
    """The cards a term means, by name and size, whoever may use them."""
    mask = 0
    for name in term.names:
        mask |= space.cards_named(name)
    if term.size_bytes is not None:
        for position, resource in enumerate(space.node.resources):
            if resource.memory_bytes < term.size_bytes:
                mask &= ~(1 << position)
    return mask


def _claim(shape: Shape, masks: tuple[int, ...]) -> int:
    if shape.whole_node:
        return CLAIMED_NODE
    claim = (CLAIMED_CPUS if shape.cpus else 0) | (CLAIMED_MEM if shape.mem_bytes else 0)
    for mask in masks:
        claim |= mask << CARD_SHIFT
    return claim


def choose(row: Row, shape: Shape, claim: int) -> Choice | None:
    """The cards that a process of this shape would get here now; None where it does not fit."""
    space = row.space
    if not _admits(space, shape, claim):
        return None
    if not shape.whole_node or shape.terms:
        picked = _pick(space, row.masks, shape.terms, ~(claim >> CARD_SHIFT))
    else:  # a machine of one's own comes with all the cards one may use
        picked = [(position, WHOLE_CARD) for position in _positions(row.cards)]
    return None if picked is None else _chosen(space, shape, picked)


def available(space: Space, shape: Shape, grants: Iterable[Grant], claim: int) -> bool:
    """Whether exactly these cards could be had here now."""
    if not _admits(space, shape, claim):
        return False
    for grant in grants:
        bit = 1 << space.positions[grant.index]
        left = space.untouched & bit if grant.share == 1 else space.shareable(bit, grant.share, grant.mem_bytes)
        if not left or claim >> CARD_SHIFT & bit:
            return False
    return True


def _admits(space: Space, shape: Shape, claim: int) -> bool:
    """Everything but the cards."""
    node = space.node
    if not space.open or space.exclusive or claim & (CLAIMED_NODE | CLAIMED_SLOTS):
        return False
    if space.processes >= node.slots and not claim & SLOTS_UNLIMITED:
        return False
    if shape.whole_node and (space.processes or claim & ~SLOTS_UNLIMITED):
        return False
    if shape.cpus and (claim & CLAIMED_CPUS or node.cpus - space.cpus_used < shape.cpus):
        return False
    return not (shape.mem_bytes and (claim & CLAIMED_MEM or node.mem_bytes - space.mem_used < shape.mem_bytes))


def _chosen(space: Space, shape: Shape, picked: _Picked) -> Choice:
    resources = space.node.resources
    common = broken = memory_bytes = 0
    left, grants = space.untouched, []
    for position, term in picked:
        resource = resources[position]
        whole = isinstance(term.amount, int)
        common += not resource.groups
        broken += not whole and not space.holders[position]
        memory_bytes += resource.memory_bytes
        left &= ~(1 << position)
        if not isinstance(term.amount, int):
            grants.append(Grant(resource.index, term.amount, term.size_bytes or 0))
        else:
            grants.append(Grant(resource.index))
    if shape.cpus:
        rest = space.node.cpus - space.cpus_used - shape.cpus
    else:
        rest = space.processes * 1000 // max(1, space.node.slots)
    idle = not space.processes
    return Choice(tuple(grants), (common, broken, memory_bytes, idle, left.bit_count(), rest))


def _pick(space: Space, masks: tuple[int, ...], terms: tuple[Term, ...], unclaimed: int) -> _Picked | None:
    """A card of its own for every unit of every term, the least capable that will do."""
    seen, overlap = 0, False
    candidates = []
    for term, mask in zip(terms, masks, strict=True):
        if not isinstance(term.amount, int):
            possible = space.shareable(mask & unclaimed, term.amount, term.size_bytes or 0)
            needed = 1
        else:
            possible = mask & unclaimed & space.untouched
            needed = term.amount
        if possible.bit_count() < needed:
            return None
        overlap = overlap or bool(possible & seen)
        seen |= possible
        candidates.append((term, needed, _ranked(space, possible, not isinstance(term.amount, int))))
    if overlap:
        return _match(candidates)
    return [(position, term) for term, needed, order in candidates for position in order[:needed]]


def _match(candidates: list[tuple[Term, int, list[int]]]) -> _Picked | None:
    """Terms that compete for the same cards: a bipartite matching, most constrained first, by augmenting paths.
    Cards that fewer terms could use go first: an equal process may need the others."""
    candidates = sorted(candidates, key=lambda candidate: len(candidate[2]) - candidate[1])
    wanted = Counter(position for _, _, order in candidates for position in order)
    orders = [(term, needed, sorted(order, key=wanted.__getitem__)) for term, needed, order in candidates]
    units = [(term, order) for term, needed, order in orders for _ in range(needed)]
    owner: dict[int, int] = {}

    def settle(unit: int, tried: set[int]) -> bool:
        for position in units[unit][1]:
            if position not in tried:
                tried.add(position)
                if position not in owner or settle(owner[position], tried):
                    owner[position] = unit
                    return True
        return False

    for unit in range(len(units)):
        if not settle(unit, set()):
            return None
    return sorted(((position, units[unit][0]) for position, unit in owner.items()), key=lambda pair: pair[0])


def _ranked(space: Space, mask: int, sharing: bool) -> list[int]:
    """Cards of one's own group first, then the least capable; shares go first where the least is left over."""
    if not sharing:
        return sorted(_positions(mask), key=space.ranks.__getitem__)
    resources, shares, ranks = space.node.resources, space.shares, space.ranks
    return sorted(_positions(mask), key=lambda at: (not resources[at].groups, -shares[at], ranks[at]))


def _positions(mask: int) -> list[int]:
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return positions
