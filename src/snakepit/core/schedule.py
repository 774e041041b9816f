"""The plan: who starts now. First come first served per what is contended.

Waiting jobs that ask for the same with the same rights stand in one class; a pass looks at the head of each class, by
priority and rank. A head that fits starts, and the next of its class is looked at. One that does not fit claims what it
waits for, and its class is done for this pass: later jobs that need other things pass it, nothing overtakes it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from snakepit.core.claims import Claims, Want
from snakepit.core.grammar import Request
from snakepit.core.placed import Placement, Who
from snakepit.core.placement import Free
from snakepit.core.reasons import reasons


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that waits. `rank` is its place in the line; it keeps it when it comes back."""

    job: int
    task: int
    who: Who
    request: Request
    rank: int
    priority: int = 0  # higher goes first
    avoid: frozenset[str] = field(default_factory=frozenset)  # nodes where its start failed


@dataclass(frozen=True, slots=True)
class Start:
    waiting: Waiting
    placement: Placement


@dataclass(frozen=True, slots=True)
class Hold:
    waiting: Waiting
    reasons: tuple[str, ...]


class Queue:
    """All that wait, in classes. Adding and removing cost a search in a sorted list."""

    def __init__(self) -> None:
        self.classes: dict[_ClassKey, Class] = {}
        self._waiting: dict[tuple[int, int], tuple[Waiting, Class]] = {}
        self._restricting: frozenset[str] = frozenset()
        self._order: list[tuple[int, _Place]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key in self._waiting

    def add(self, waiting: Waiting) -> None:
        """Adds it; one that is already there is replaced (its user's groups changed, a node is to be avoided)."""
        self.remove(waiting.job, waiting.task)
        groups = waiting.who.groups & self._restricting
        key = (waiting.request, groups, waiting.priority, waiting.avoid)
        line = self.classes.get(key)
        if line is None:
            line = self.classes[key] = Class(key, Want(waiting.request, groups, waiting.avoid))
        insort(line.members, _place_in_line(waiting))
        insort(self._order, _turn(waiting))
        self._waiting[waiting.job, waiting.task] = (waiting, line)

    def remove(self, job: int, task: int = 0) -> Waiting | None:
        entry = self._waiting.pop((job, task), None)
        if entry is None:
            return None
        waiting, line = entry
        del line.members[bisect_left(line.members, _place_in_line(waiting))]
        del self._order[bisect_left(self._order, _turn(waiting))]
        if not line.members:
            del self.classes[line.key]
        return waiting

    def find(self, job: int, task: int = 0) -> Waiting | None:
        entry = self._waiting.get((job, task))
        return entry[0] if entry else None

    def at(self, place: _Place) -> Waiting:
        return self._waiting[place[1], place[2]][0]

    def waiting(self) -> list[Waiting]:
        """Everyone, in the order in which they are served."""
        return [self.at(place) for _, place in self._order]

    def position(self, job: int, task: int = 0) -> int:
        """Its place in the line, from 1; 0 when it does not wait."""
        entry = self._waiting.get((job, task))
        return bisect_left(self._order, _turn(entry[0])) + 1 if entry else 0

    def positions(self) -> dict[tuple[int, int], int]:
        """The place of everyone in the line, from 1."""
        return {(job, task): at for at, (_, (_, job, task)) in enumerate(self._order, 1)}

    def sort_by_rights(self, restricting: frozenset[str]) -> None:
        """Only groups that some resource is restricted to tell classes apart; when these change, sort again."""
        if restricting != self._restricting:
            everyone = self.waiting()
            self._restricting = restricting
            self.classes.clear()
            self._waiting.clear()
            self._order.clear()
            for waiting in everyone:
                self.add(waiting)

    def class_of(self, job: int, task: int) -> Class | None:
        entry = self._waiting.get((job, task))
        return entry[1] if entry else None


_ClassKey = tuple[Request, frozenset[str], int, frozenset[str]]
_Place = tuple[int, int, int]  # rank, job, task


def _place_in_line(waiting: Waiting) -> _Place:
    return (waiting.rank, waiting.job, waiting.task)


def _turn(waiting: Waiting) -> tuple[int, _Place]:
    return (-waiting.priority, _place_in_line(waiting))


@dataclass(slots=True)
class Class:
    """Those who ask for the same with the same rights and priority, in the order of their ranks."""

    key: _ClassKey
    want: Want
    members: list[_Place] = field(default_factory=list)


def plan(queue: Queue, free: Free, limit: int | None = None) -> list[Start]:
    """Who starts now, at most `limit` of them. What they get is taken from `free`.

    The queue stays as it is: whoever writes the starts down removes them from it, and gives back to `free` what could
    not be written.
    """
    starts: list[Start] = []
    if limit is not None and limit <= 0:
        return starts
    for step in _walk(queue, free):
        if isinstance(step, Start):
            starts.append(step)
            if len(starts) == limit:
                break
    return starts


def why(queue: Queue, free: Free, job: int, task: int = 0) -> tuple[str, ...]:
    """Why this one does not start now; empty when it does not wait at all."""
    return next((hold.reasons for hold in holds(queue, free, (job, task))), ())


def holds(queue: Queue, free: Free, only: tuple[int, int] | None = None) -> list[Hold]:
    """Everyone at the head of a class who has to wait, and why; with `only` just this one, wherever it stands."""
    target = queue.class_of(*only) if only else None
    if only and target is None:
        return []
    found: list[Hold] = []
    started: list[Start] = []
    for step in _walk(queue, free):
        if isinstance(step, Start):
            started.append(step)
            if only == (step.waiting.job, step.waiting.task):
                found.append(Hold(step.waiting, ("it is about to start",)))
                break
        elif target is None or step.line is target:
            found.append(_hold(queue, free, step, only))
            if target is not None:
                break
    for start in reversed(started):
        free.give(start.placement)
    return found


@dataclass(frozen=True, slots=True)
class _Refused:
    """The head of a class does not fit, with the claims of those before it."""

    waiting: Waiting
    line: Class
    claims: Claims


def _walk(queue: Queue, free: Free) -> Iterator[Start | _Refused]:
    """One pass. What starts is taken from `free` before the next is looked at."""
    queue.sort_by_rights(free.restricting)
    claims = Claims()
    heads = [(-line.key[2], line.members[0], 0, line) for line in queue.classes.values()]
    heapq.heapify(heads)
    while heads:
        priority, place, at, line = heads[0]
        waiting = queue.at(place)
        placement = line.want.find(free, claims.by_node)
        if placement is None:
            yield _Refused(waiting, line, claims)
            claims.add(f"job {waiting.job}", line.want, free)
            heapq.heappop(heads)
            continue
        free.take(placement)
        if at + 1 < len(line.members):
            heapq.heapreplace(heads, (priority, line.members[at + 1], at + 1, line))
        else:
            heapq.heappop(heads)
        yield Start(waiting, placement)


def _hold(queue: Queue, free: Free, refused: _Refused, only: tuple[int, int] | None) -> Hold:
    waiting = refused.waiting if only is None else queue.find(*only) or refused.waiting
    ahead = bisect_left(refused.line.members, _place_in_line(waiting))
    same = (f"{ahead} {'job before it asks' if ahead == 1 else 'jobs before it ask'} for the same",) if ahead else ()
    claims = refused.claims
    words = reasons(waiting.request, free, waiting.who, claims.by_node, waiting.avoid, claims.kept_for)
    return Hold(waiting, (*same, *words))


def next_preparations(new: Sequence[tuple[int, str]], running_users: Sequence[str], limit: int) -> list[int]:
    """Which of the `new` jobs (job, user), in the order they came, are prepared next.

    At most `limit` at a time, those already running included; one per user while others wait.
    """
    room = limit - len(running_users)
    if room <= 0:
        return []
    busy = Counter(running_users)
    turns = []
    for at, (job, user) in enumerate(new):
        turns.append((busy[user], at, job))  # everyone's first goes before anyone's second
        busy[user] += 1
    return [job for _, _, job in heapq.nsmallest(room, turns)]
