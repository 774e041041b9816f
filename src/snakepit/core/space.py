"""One node and what is taken on it. Cards are bits of an int (position in `node.resources`), so that "which of these
are free and not claimed" is one expression; that is what makes a pass over thousands of jobs cheap.

A claim is one int too: who waits for what on this node, so that nobody who came later takes it (see `claims`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from snakepit.core.placed import Placed
from snakepit.core.resources import Node, named

CLAIMED_NODE, CLAIMED_SLOTS, CLAIMED_CPUS, CLAIMED_MEM = 1, 2, 4, 8
SLOTS_UNLIMITED = 16  # no claim: asks "and if only slots were no matter?"
CARD_SHIFT = 5


class Space:
    """Mutable bookkeeping of a node. `version` names the present state: equal versions, equal state."""

    __slots__ = (
        "_blank",
        "_names",
        "aliases",
        "cpus_used",
        "exclusive",
        "holders",
        "mem_used",
        "name",
        "node",
        "open",
        "positions",
        "processes",
        "ranks",
        "reserved_bytes",
        "shares",
        "untouched",
        "version",
        "wholes",
    )

    def __init__(self, node: Node, aliases: Mapping[str, str], version: int) -> None:
        count = len(node.resources)
        self.node, self.name, self.aliases, self.version = node, node.name, aliases, version
        self.open = node.online and not node.drained
        self.positions = {resource.index: position for position, resource in enumerate(node.resources)}
        self.untouched = (1 << count) - 1
        self.holders, self.wholes, self.reserved_bytes = [0] * count, [0] * count, [0] * count
        self.shares = [Fraction(0)] * count
        self.cpus_used = self.mem_used = self.processes = self.exclusive = 0
        capable = sorted(
            range(count), key=lambda at: (not node.resources[at].groups, node.resources[at].memory_bytes, at)
        )
        self.ranks = {position: rank for rank, position in enumerate(capable)}
        self._names: dict[str, int] = {}
        self._blank: Space | None = None

    def blank(self) -> Space:
        """The same node with nothing taken; for questions only."""
        if self._blank is None:
            self._blank = Space(self.node, self.aliases, 0)
        return self._blank

    def cards_named(self, name: str) -> int:
        """The cards that `name` means, whoever may use them."""
        mask = self._names.get(name)
        if mask is None:
            mask = 0
            for position, resource in enumerate(self.node.resources):
                if named(resource, name, self.aliases):
                    mask |= 1 << position
            self._names[name] = mask
        return mask

    def cards_for(self, groups: frozenset[str]) -> int:
        """The cards that a member of `groups` may use."""
        mask = 0
        for position, resource in enumerate(self.node.resources):
            if not resource.groups or resource.groups & groups:
                mask |= 1 << position
        return mask

    def take(self, process: Placed, version: int) -> None:
        self._count(process, 1)
        for grant in process.grants:
            position = self.positions.get(grant.index)
            if position is None:  # the card is gone; the process that had it may still live
                continue
            self.holders[position] += 1
            self.untouched &= ~(1 << position)
            if grant.share == 1:
                self.wholes[position] += 1
            else:
                self.shares[position] += grant.share
                self.reserved_bytes[position] += grant.mem_bytes
        self.version = version

    def give(self, process: Placed, version: int) -> None:
        self._count(process, -1)
        for grant in process.grants:
            position = self.positions.get(grant.index)
            if position is None:
                continue
            self.holders[position] -= 1
            if not self.holders[position]:
                self.untouched |= 1 << position
            if grant.share == 1:
                self.wholes[position] -= 1
            else:
                self.shares[position] -= grant.share
                self.reserved_bytes[position] -= grant.mem_bytes
        self.version = version

    def shareable(self, mask: int, share: Fraction, mem_bytes: int) -> int:
        """Those cards of `mask` where so much is left."""
        result = 0
        for position, resource in enumerate(self.node.resources):
            bit = 1 << position
            if not mask & bit or self.wholes[position]:
                continue
            if self.holders[position] and self.shares[position] + share > 1:
                continue
            if mem_bytes and self.reserved_bytes[position] + mem_bytes > resource.memory_bytes:
                continue
            result |= bit
        return result

    def _count(self, process: Placed, sign: int) -> None:
        self.processes += sign
        self.exclusive += sign * process.whole_node
        self.cpus_used += sign * process.cpus
        self.mem_used += sign * process.mem_bytes
