"""Placement: all processes of a pit find their nodes and cards, or none does, and the refusal says why per node.

A group of equal processes is placed one by one on the best node (see `ask.Score`), which is exact for one group.
Several groups are tried largest first with backtracking; if that fails, the group that found no room goes first.
The effort is limited, so a puzzle may be refused that a longer search would solve; what obviously fits is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from snakepit.core.ask import Ask, Choice, Row
from snakepit.core.free import Free
from snakepit.core.grammar import Request
from snakepit.core.placed import Grant, Placed, Placement, Refusal, Who, summary
from snakepit.core.reasons import reasons
from snakepit.core.resources import Node

__all__ = ["Free", "Grant", "Placed", "Placement", "Refusal", "Who", "find", "never_fits", "place", "summary", "unfit"]

NO_CLAIMS: Mapping[str, int] = {}
NOWHERE: frozenset[str] = frozenset()
ROUNDS = 3
TRIALS = 200  # steps of backtracking in a round, beside the one step each process needs


def place(
    request: Request,
    free: Free,
    who: Who,
    claims: Mapping[str, int] = NO_CLAIMS,
    avoid: frozenset[str] = NOWHERE,
) -> Placement | Refusal:
    """Where the pit would run now. Nothing is taken: that is `free.take(placement)`."""
    placement = find(request, free, free.asks(request, free.relevant(who), avoid), claims)
    return placement or Refusal(reasons(request, free, who, claims, avoid))


def never_fits(request: Request, nodes: Iterable[Node], aliases: Mapping[str, str], who: Who) -> Refusal | None:
    """Why no set of the known nodes (offline and drained ones too) could ever hold it; None where one could."""
    return unfit(request, Free(nodes, aliases), who)


def unfit(request: Request, free: Free, who: Who) -> Refusal | None:
    """`never_fits` for who has a Free at hand; answers are remembered until the nodes change."""
    known, key = free.known(), (request, free.relevant(who))
    if key not in free.refused_ever:
        if len(free.refused_ever) > 10_000:
            free.refused_ever.clear()
        answer = place(request, known, who)
        free.refused_ever[key] = answer if isinstance(answer, Refusal) else None
    return free.refused_ever[key]


def find(request: Request, free: Free, asks: Sequence[Ask], claims: Mapping[str, int]) -> Placement | None:
    """`place` without words, for who asks thousands of times; `asks` come from `free.asks`."""
    if not all(_plausible(ask, group.count, claims) for ask, group in zip(asks, request.groups, strict=True)):
        return None
    order = sorted(range(len(asks)), key=lambda at: (_size(asks[at]), at))
    for _ in range(ROUNDS if len(asks) > 1 else 1):
        search = _Search(
            free, claims, [(at, index, asks[at]) for at in order for index in range(request.groups[at].count)]
        )
        if search.run():
            return Placement(tuple(sorted(search.found, key=lambda one: (one.group_index, one.process_index))))
        order.remove(search.stuck)
        order.insert(0, search.stuck)
    return None


def _plausible(ask: Ask, count: int, claims: Mapping[str, int]) -> bool:
    if ask.best(claims) is None:
        return False
    return count == 1 or sum(row.capacity(ask.shape, claims) for row, _ in ask.all(claims)) >= count


def _size(ask: Ask) -> tuple[int, ...]:
    """Largest first: a node of one's own, few places to go, many cards, much memory, many cores."""
    shape = ask.shape
    cards = sum(term.amount if isinstance(term.amount, int) else 1 for term in shape.terms)
    return (-shape.whole_node, len(ask.rows), -cards, -shape.cpus, -shape.mem_bytes)


@dataclass(frozen=True, slots=True)
class _Step:
    """A process that has a place for now."""

    process: Placed
    version: int  # of the node before
    tried: frozenset[str]  # nodes that led nowhere before this one


class _Search:
    """Depth first over the processes, by hand: a request may have thousands of them."""

    def __init__(self, free: Free, claims: Mapping[str, int], processes: list[tuple[int, int, Ask]]) -> None:
        self._free, self._claims, self._processes = free, claims, processes
        self._steps: list[_Step] = []
        self.found: list[Placed] = []
        self.stuck = processes[0][0]  # the group that found no room, where one did not

    def run(self) -> bool:
        """Fills `found`; leaves everything free as it was, whatever came of it."""
        if self._descend():
            self.found = [step.process for step in self._steps]
        while self._steps:
            self._undo()
        return bool(self.found)

    def _descend(self) -> bool:
        several = self._processes[0][0] != self._processes[-1][0]
        deepest, trials = -1, 0
        tried = NOWHERE
        while (at := len(self._steps)) < len(self._processes):
            group, index, ask = self._processes[at]
            best = self._best(ask, tried)
            if best is not None:
                self._take(group, index, ask, best, tried)
                # An equal process need not try what its elder twin has tried in vain.
                tried = tried if at + 1 < len(self._processes) and self._processes[at + 1][0] == group else NOWHERE
                continue
            if at > deepest:
                deepest, self.stuck = at, group
            trials += 1
            if trials > TRIALS or not self._steps or not several:
                return False
            last = self._undo()
            tried = last.tried | {last.process.node}
        return True

    def _best(self, ask: Ask, tried: frozenset[str]) -> tuple[Row, Choice] | None:
        if not tried:
            return ask.best(self._claims)
        return next(((row, choice) for row, choice in ask.all(self._claims) if row.space.name not in tried), None)

    def _take(self, group: int, index: int, ask: Ask, best: tuple[Row, Choice], tried: frozenset[str]) -> None:
        (row, choice), shape = best, ask.shape
        name, version = row.space.name, row.space.version
        process = Placed(group, index, name, choice.grants, shape.cpus, shape.mem_bytes, shape.whole_node)
        self._free.take_one(process)
        self._steps.append(_Step(process, version, tried))

    def _undo(self) -> _Step:
        step = self._steps.pop()
        self._free.give_one(step.process, step.version)
        return step
