"""Nodes: where processes run, what was found there, which groups its resources are for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, select, true

from snakepit import errors
from snakepit.core.resources import Resource
from snakepit.store import groups as group_table
from snakepit.store.rows import NodeRow
from snakepit.store.schema import nodes, resource_groups, resources
from snakepit.store.statements import insert_all, insert_new, link


class Found(Protocol):
    """What a probe found; an engine's Inventory is one."""

    @property
    def cpus(self) -> int: ...
    @property
    def mem_bytes(self) -> int: ...
    @property
    def resources(self) -> tuple[Resource, ...]: ...
    @property
    def isolation(self) -> str: ...
    @property
    def isolation_problem(self) -> str: ...
    @property
    def limits(self) -> tuple[str, ...]: ...
    @property
    def hostname(self) -> str: ...
    @property
    def boot_id(self) -> str: ...
    @property
    def state_id(self) -> str: ...


def insert(
    c: Connection, id: str, endpoint: str, properties: dict[str, Any], now: datetime, online: bool = False
) -> None:
    """A node nobody has looked at yet; `set_inventory` says what is there."""
    fresh = NodeRow(id, endpoint, properties, online, now)
    values = {column.name: getattr(fresh, column.name) for column in nodes.c}
    if not insert_new(c, nodes, **values):
        raise errors.Conflict("Node with same id already registered")


def find(c: Connection, id: str) -> NodeRow | None:
    found = _select(c, nodes.c.id == id, resources.c.node == id, resource_groups.c.node == id)
    return found[0] if found else None


def get(c: Connection, id: str) -> NodeRow:
    found = find(c, id)
    if found is None:
        raise errors.NotFound("Node not found")
    return found


def ids(c: Connection) -> list[str]:
    return list(c.scalars(select(nodes.c.id).order_by(nodes.c.id)))


def all(c: Connection) -> list[NodeRow]:
    return _select(c, true(), true(), true())


def delete(c: Connection, id: str) -> None:
    if c.execute(nodes.delete().where(nodes.c.id == id)).rowcount == 0:
        raise errors.NotFound("Node not found")


def set_online(c: Connection, id: str, online: bool, now: datetime) -> bool:
    """Whether that is news; only then `since` changes."""
    news = nodes.update().where(nodes.c.id == id, nodes.c.online != online).values(online=online, since=now)
    return c.execute(news).rowcount == 1


def set_life(c: Connection, id: str, boot_id: str, state_id: str) -> None:
    """Which boot of the machine and which memory of the agent was met last; of a node just removed, nothing."""
    c.execute(nodes.update().where(nodes.c.id == id).values(boot_id=boot_id, state_id=state_id))


def set_drained(c: Connection, id: str, drained: bool, reason: str = "") -> None:
    _update(c, id, drained=drained, drain_reason=reason if drained else "")


def set_properties(c: Connection, id: str, properties: dict[str, Any], endpoint: str | None = None) -> None:
    _update(c, id, properties=properties, **({} if endpoint is None else {"endpoint": endpoint}))


def set_inventory(c: Connection, id: str, found: Found, slots: int | None = None) -> None:
    """What a probe found. A resource that stays (by its UUID, else by index and name) keeps its groups."""
    before = get(c, id)
    _update(
        c,
        id,
        cpus=found.cpus,
        mem_bytes=found.mem_bytes,
        slots=before.slots if slots is None else slots,
        isolation=found.isolation,
        isolation_problem=found.isolation_problem,
        limits=found.limits,
        hostname=found.hostname,
        boot_id=found.boot_id,
        state_id=found.state_id,
    )
    kept = {_same(resource): resource.groups for resource in before.resources}
    c.execute(resources.delete().where(resources.c.node == id))
    insert_all(c, resources, (_values(id, resource) for resource in found.resources))
    insert_all(
        c,
        resource_groups,
        (
            {"node": id, "index": resource.index, "group": group}
            for resource in found.resources
            for group in kept.get(_same(resource), resource.groups)
        ),
    )


def set_resource_group(c: Connection, node: str, index: int | None, group: str, on: bool) -> None:
    """One resource, or with `index` None all the node has now."""
    present = [resource.index for resource in get(c, node).resources]
    group_table.require(c, [group])
    if index is not None and index not in present:
        raise errors.NotFound("Resource not found")
    for each in present if index is None else [index]:
        link(c, resource_groups, on, node=node, index=each, group=group)


def _update(c: Connection, id: str, **values: Any) -> None:
    if c.execute(nodes.update().where(nodes.c.id == id).values(**values)).rowcount == 0:
        raise errors.NotFound("Node not found")


def _same(resource: Resource) -> tuple[object, ...]:
    return (resource.uuid,) if resource.uuid else (resource.index, resource.name)


def _values(node: str, resource: Resource) -> dict[str, Any]:
    own = {column.name: getattr(resource, column.name) for column in resources.c if column.name != "node"}
    return {"node": node, **own}


def _select(
    c: Connection, which: ColumnElement[bool], cards: ColumnElement[bool], restrictions: ColumnElement[bool]
) -> list[NodeRow]:
    of_card: dict[tuple[str, int], set[str]] = defaultdict(set)
    for node, index, group in c.execute(select(resource_groups).where(restrictions)):
        of_card[node, index].add(group)
    of_node: dict[str, list[Resource]] = defaultdict(list)
    for node, *own in c.execute(select(resources).where(cards).order_by(resources.c.node, resources.c.index)):
        of_node[node].append(Resource(*(*own, frozenset(of_card[node, own[0]]))))
    rows: Iterable[Any] = c.execute(select(nodes).where(which).order_by(nodes.c.id))
    return [NodeRow(*(*row, tuple(of_node[row[0]]))) for row in rows]
