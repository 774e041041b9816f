"""What is free on every node: the one mutable thing of the core, held by the loop, changed by what starts and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from snakepit.core.ask import Ask
from snakepit.core.grammar import Group, Request, Shape
from snakepit.core.placed import Placed, Placement, Refusal, Who
from snakepit.core.resources import Node
from snakepit.core.space import Space

MAX_ASKS = 20_000  # remembered questions; more kinds than that wait nowhere, so forgetting all of them is cheap enough
_AskKey = tuple[Shape, tuple[str, ...], frozenset[str], frozenset[str]]


class Free:
    """Bookkeeping of all nodes. What runs on a node that is removed or changed is kept in mind by the node's name."""

    def __init__(self, nodes: Iterable[Node] = (), aliases: Mapping[str, str] | None = None) -> None:
        self.aliases: dict[str, str] = dict(aliases or {})
        self.spaces: dict[str, Space] = {}
        self.layout = 0  # changes with the nodes themselves, not with what runs on them
        self.restricting: frozenset[str] = frozenset()  # the groups that make a difference on some resource
        self._held: dict[str, list[Placed]] = {}
        self._version = 0
        self._asks: dict[_AskKey, Ask] = {}
        self._emptied: Free | None = None
        self._known: Free | None = None
        self.refused_ever: dict[tuple[Request, frozenset[str]], Refusal | None] = {}  # see placement.unfit
        for node in nodes:
            self._put(node)
        self._changed()

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(space.node for space in self.spaces.values())

    def set_node(self, node: Node) -> None:
        """A node is added, or it is not what it was (online, drained, its resources)."""
        if node.name not in self.spaces or self.spaces[node.name].node != node:
            self._put(node)
            self._changed()

    def remove_node(self, name: str) -> None:
        if self.spaces.pop(name, None) is not None:
            self._changed()

    def set_aliases(self, aliases: Mapping[str, str]) -> None:
        if self.aliases != aliases:
            self.aliases = dict(aliases)
            for node in self.nodes:
                self._put(node)
            self._changed()

    def take(self, placement: Placement) -> None:
        for process in placement.processes:
            self.take_one(process)

    def give(self, placement: Placement) -> None:
        """The opposite of take; what was never taken is not given."""
        for process in placement.processes:
            self.give_one(process)

    def take_one(self, process: Placed) -> None:
        self._held.setdefault(process.node, []).append(process)
        if (space := self.spaces.get(process.node)) is not None:
            space.take(process, self._next_version())

    def give_one(self, process: Placed, version: int | None = None) -> None:
        """`version` is what the node had before the take that this undoes: its answers are true again."""
        held = self._held.get(process.node, [])
        # From the end, because the search undoes what it took last.
        at = next((at for at in range(len(held) - 1, -1, -1) if held[at] == process), None)
        if at is None:
            return
        del held[at]
        if (space := self.spaces.get(process.node)) is not None:
            space.give(process, self._next_version() if version is None else version)

    def relevant(self, who: Who) -> frozenset[str]:
        return who.groups & self.restricting

    def asks(self, request: Request, groups: frozenset[str], avoid: frozenset[str]) -> list[Ask]:
        """One per group of the request, `groups` being the relevant ones."""
        return [self._ask(group, groups, avoid) for group in request.groups]

    def emptied(self) -> Free:
        """The same nodes with nothing on them, for questions only."""
        if self._emptied is None:
            self._emptied = Free(self.nodes, self.aliases)
        return self._emptied

    def known(self) -> Free:
        """All nodes as if they were open and empty, for questions only."""
        if self._known is None:
            self._known = Free((replace(node, online=True, drained=False) for node in self.nodes), self.aliases)
        return self._known

    def _ask(self, group: Group, groups: frozenset[str], avoid: frozenset[str]) -> Ask:
        key = (group.shape, group.nodes, groups, avoid)
        ask = self._asks.get(key)
        if ask is None:
            if len(self._asks) >= MAX_ASKS:
                self._asks.clear()
            ask = self._asks[key] = Ask(group.shape, groups, group.nodes, avoid)
        if ask.layout != self.layout:
            ask.survey(self.spaces.values(), self.layout)
        return ask

    def _put(self, node: Node) -> None:
        space = Space(node, self.aliases, self._next_version())
        for process in self._held.get(node.name, ()):
            space.take(process, self._next_version())
        self.spaces[node.name] = space

    def _changed(self) -> None:
        self.layout += 1
        resources = (resource for space in self.spaces.values() for resource in space.node.resources)
        self.restricting = frozenset(group for resource in resources for group in resource.groups)
        self.refused_ever.clear()
        for mirror in (self._emptied, self._known):
            if mirror is not None:
                self._reflect(mirror)

    def _reflect(self, mirror: Free) -> None:
        """Brings a mirror up to date; nodes that did not change keep their spaces, and so what is known about them."""
        for name in mirror.spaces.keys() - self.spaces.keys():
            mirror.remove_node(name)
        mirror.set_aliases(self.aliases)
        for node in self.nodes:
            mirror.set_node(node if mirror is self._emptied else replace(node, online=True, drained=False))

    def _next_version(self) -> int:
        self._version += 1
        return self._version
