"""The values of placement: who asks, what he was given, or why not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from snakepit.core.resources import Node

WHOLE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Who:
    user: str
    groups: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Grant:
    """The card `index` of the process's node: whole, or a share with so much of its memory reserved."""

    index: int
    share: Fraction = WHOLE
    mem_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """One process and its place; `process_index` counts within the group."""

    group_index: int
    process_index: int
    node: str
    grants: tuple[Grant, ...] = ()
    cpus: int = 0
    mem_bytes: int = 0
    whole_node: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """All processes of a pit, in the order of the request."""

    processes: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    reasons: tuple[str, ...]


def summary(placement: Placement, nodes: Iterable[Node]) -> str:
    """`n0[cuda 0-2,5] + n1[] + n2[cuda 1 + other 0]`, as the original wrote it."""
    kinds = {node.name: {resource.index: resource.kind for resource in node.resources} for node in nodes}
    used: dict[str, dict[str, set[int]]] = {}
    for process in placement.processes:
        cards = used.setdefault(process.node, {})
        for grant in process.grants:
            kind = kinds.get(process.node, {}).get(grant.index, "cuda")
            cards.setdefault(kind, set()).add(grant.index)
    order = {name: position for position, name in enumerate(kinds)}
    names = sorted(used, key=lambda name: (order.get(name, len(order)), name))
    return " + ".join(f"{name}[{_cards(used[name])}]" for name in names)


def _cards(by_kind: dict[str, set[int]]) -> str:
    return " + ".join(f"{kind} {_ranges(sorted(indices))}" for kind, indices in sorted(by_kind.items()))


def _ranges(indices: list[int]) -> str:
    parts: list[list[int]] = []
    for index in indices:
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
