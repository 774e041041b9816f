"""Claims: what a job that does not fit yet waits for, so that nobody who came later takes it.

It claims the matching cards (and cores and memory, where it asks for them) on every open node that could hold one of
its processes when empty. Whatever is there runs out in time, so it starts at last. A job that could not run even if all
open nodes were empty waits for a node, not for others to end: it claims nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snakepit.core.ask import Ask, available
from snakepit.core.free import Free
from snakepit.core.grammar import Request
from snakepit.core.placed import Placed, Placement
from snakepit.core.placement import NO_CLAIMS, find
from snakepit.core.space import CLAIMED_NODE, CLAIMED_SLOTS, SLOTS_UNLIMITED


class Want:
    """A request as one kind of user sees the cluster, with what holds as long as the nodes stay what they are."""

    __slots__ = ("_free", "_layout", "asks", "avoid", "groups", "request", "static", "when_empty")

    def __init__(self, request: Request, groups: frozenset[str], avoid: frozenset[str]) -> None:
        self.request, self.groups, self.avoid = request, groups, avoid
        self.asks: Sequence[Ask] = ()
        self.when_empty: Placement | None = None  # where it would run if all open nodes were empty
        self.static: dict[str, int] = {}  # its claim per node, but for whole nodes and slots
        self._free: Free | None = None
        self._layout = -1

    def find(self, free: Free, claims: Mapping[str, int]) -> Placement | None:
        self._refresh(free)
        found = find(self.request, free, self.asks, claims)
        if found is None and len(self.asks) > 1 and self.when_empty is not None:
            # The search gives up early on puzzles; the solution for the empty cluster is one that becomes true in time.
            return self.when_empty if self._available(self.when_empty, free, claims) else None
        return found

    def _available(self, placement: Placement, free: Free, claims: Mapping[str, int]) -> bool:
        taken: list[tuple[Placed, int]] = []
        for process in placement.processes:
            space, shape = free.spaces[process.node], self.request.groups[process.group_index].shape
            if not available(space, shape, process.grants, claims.get(process.node, 0)):
                break
            taken.append((process, space.version))
            free.take_one(process)
        for process, version in reversed(taken):
            free.give_one(process, version)
        return len(taken) == len(placement.processes)

    def _refresh(self, free: Free) -> None:
        if self._free is free and self._layout == free.layout:
            return
        self._free, self._layout = free, free.layout
        self.asks = free.asks(self.request, self.groups, self.avoid)
        empty = free.emptied()
        self.when_empty = find(self.request, empty, empty.asks(self.request, self.groups, self.avoid), NO_CLAIMS)
        self.static = {}
        for ask in self.asks:
            for row in ask.rows:
                if not ask.shape.whole_node:
                    self.static[row.space.name] = self.static.get(row.space.name, 0) | row.own_claim


class Claims:
    """Grows during one pass. `by_node` is what placement asks; the log only serves to name the job."""

    def __init__(self) -> None:
        self.by_node: dict[str, int] = {}
        self._log: list[tuple[str, Mapping[str, int]]] = []

    def add(self, label: str, want: Want, free: Free) -> None:
        """`want` was just refused."""
        if want.when_empty is None:
            return
        own: Mapping[str, int] = want.static
        slots = CLAIMED_SLOTS if self._only_slots_are_short(want, free) else 0
        if slots or any(ask.shape.whole_node for ask in want.asks):
            emptied = self._nodes_to_empty(want, want.when_empty)
            own = {name: claim | slots for name, claim in want.static.items()}
            own |= {name: own.get(name, 0) | CLAIMED_NODE for name in emptied}
        by_node = self.by_node
        for name, claim in own.items():
            if claim:
                by_node[name] = by_node.get(name, 0) | claim
        self._log.append((label, own))

    def kept_for(self, node: str, claim: int) -> str:
        """Whose claim it was first."""
        return next((label for label, own in self._log if own.get(node, 0) & claim), "an earlier job")

    def _nodes_to_empty(self, want: Want, when_empty: Placement) -> list[str]:
        """As many nodes as needed, not all that would do: waiting for one must not stop the whole cluster.

        The least busy, the first of equals. Since nothing starts there any more, the choice only gets better.
        """
        if len(want.asks) > 1:  # which nodes the other groups need is a puzzle; the empty cluster solved it
            return [process.node for process in when_empty.processes if process.whole_node]
        if not want.asks[0].shape.whole_node:
            return []
        rows = sorted(want.asks[0].rows, key=lambda row: (self._promised(row.space.name), row.space.processes))
        return [row.space.name for row in rows[: want.request.groups[0].count]]

    def _promised(self, name: str) -> bool:
        return bool(self.by_node.get(name, 0) & CLAIMED_NODE)

    def _only_slots_are_short(self, want: Want, free: Free) -> bool:
        """Then slots must be kept too, or a stream of `[]` jobs takes each one that gets free.

        One process alone needs no claim: it is the first to be asked when a slot gets free.
        """
        count = want.request.process_count
        if count == 1:
            return False
        spaces = {row.space.name: row.space for ask in want.asks for row in ask.rows}
        if all(space.node.slots - space.processes >= count for space in spaces.values()):
            return False
        unlimited = {name: self.by_node.get(name, 0) & ~CLAIMED_SLOTS | SLOTS_UNLIMITED for name in spaces}
        return find(want.request, free, want.asks, unlimited) is not None
