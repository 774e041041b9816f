"""Nodes: adding, seeing, changing, draining, and which groups their resources are for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

from snakepit.core import access
from snakepit.errors import BadRequest, Conflict, EngineError
from snakepit.service.call import Call
from snakepit.service.dates import iso
from snakepit.service.service import Service
from snakepit.store import aliases, nodes
from snakepit.store.rows import NodeRow
from snakepit.wire import shapes
from snakepit.wire.fields import Field, table

PROPERTIES = (
    Field("resources", longest=2000, words='declared ones, such as "2:GeForce GTX 1070"'),
    Field("isolation", choices=("auto", "sandbox", "none")),
    Field("slots", "whole", low=1, high=100_000),
    Field("mounts", longest=2000, words="such as /scratch:rw,/datasets:ro"),
)
NEW_NODE = table(
    Field("endpoint", required=True, longest=1000),
    Field("password", longest=1000, words="of an LXD endpoint"),
    *PROPERTIES,
)
CHANGED_NODE = table(*PROPERTIES)
DRAIN = table(Field("reason"))


async def ids(call: Call) -> list[str]:
    """All nodes."""
    return await call.service.store.read(nodes.ids)


async def show(call: Call) -> shapes.Node:
    """A node and its resources."""
    row, names = await call.service.store.read(_node_and_aliases, call.path["node"])
    shown: shapes.Node = {
        "id": row.id,
        "endpoint": row.endpoint,
        "online": row.online,
        "since": iso(row.since),
        "cpus": row.cpus,
        "memory": row.mem_bytes,
        "slots": row.slots,
        "isolation": row.isolation,
        "limits": list(row.limits),
        "drained": row.drained,
    }
    if row.properties.get("mounts"):
        shown["mounts"] = row.properties["mounts"]
    if row.isolation_problem:
        shown["isolationProblem"] = row.isolation_problem
    if row.drain_reason:
        shown["drainReason"] = row.drain_reason
    if row.resources:
        shown["resources"] = _resources(row, names)
    return shown


def _resources(row: NodeRow, names: dict[str, str]) -> list[shapes.Resource]:
    short = {name: alias for alias, name in names.items()}
    shown = []
    for resource in row.resources:
        one: shapes.Resource = {"type": resource.kind, "name": resource.name, "index": resource.index}
        if resource.groups:
            one["groups"] = sorted(resource.groups)
        if resource.name in short:
            one["alias"] = short[resource.name]
        if resource.declared:
            one["declared"] = True
        if resource.memory_bytes:
            one["memory"] = resource.memory_bytes
        shown.append(one)
    return shown


def _node_and_aliases(c: Connection, node: str) -> tuple[NodeRow, dict[str, str]]:
    return nodes.get(c, node), aliases.all(c)


async def add(call: Call) -> None:
    """Add a node: it is looked at before it counts."""
    access.administer(call.person)
    node = call.path["node"]
    if node == "head":
        raise BadRequest('"head" names the machine of the service: choose another id')
    if await call.service.store.read(nodes.find, node) is not None:
        raise BadRequest("Node with same id already registered")
    properties = dict(call.body)
    endpoint = properties.pop("endpoint")
    properties.pop("password", None)  # for adding only: properties are kept, and shown to engines at every start
    with _in_original_words("Problem adding node"):
        await add_node(call.service, node, endpoint, properties)


async def add_node(service: Service, node: str, endpoint: str, properties: dict[str, Any]) -> None:
    """With the configured number of slots, where none was given."""
    default = {"slots": service.settings.slots} if service.settings.slots else {}
    await service.loop.add_node(node, endpoint, {**default, **properties})


async def change(call: Call) -> None:
    """Set properties of a node: resources, isolation, slots, mounts."""
    access.administer(call.person)
    await call.service.store.read(nodes.get, call.path["node"])
    with _in_original_words("Problem changing node"):
        await call.service.loop.change_node(call.path["node"], call.body)


@contextmanager
def _in_original_words(words: str) -> Iterator[None]:
    try:
        yield
    except Conflict as problem:
        raise BadRequest(problem.message) from problem
    except EngineError as problem:
        raise BadRequest(f"{words}: {problem.message}") from problem


async def remove(call: Call) -> None:
    """Remove a node."""
    access.administer(call.person)
    await call.service.store.read(nodes.get, call.path["node"])
    await call.service.loop.remove_node(call.path["node"])


async def drain(call: Call) -> None:
    """No new processes on this node; what runs there runs on."""
    await _drain(call, True, call.body.get("reason", ""))


async def resume(call: Call) -> None:
    """Let a drained node work again."""
    await _drain(call, False, "")


async def _drain(call: Call, on: bool, reason: str) -> None:
    access.administer(call.person)
    await call.service.store.read(nodes.get, call.path["node"])
    await call.service.loop.set_drained(call.path["node"], on, reason)


async def restrict(call: Call) -> None:
    """Keep resources of a node for a group."""
    await _restrict(call, True)


async def unrestrict(call: Call) -> None:
    """Take a group from resources of a node."""
    await _restrict(call, False)


async def _restrict(call: Call, on: bool) -> None:
    access.administer(call.person)
    index = int(call.path["index"]) if "index" in call.path else None
    await call.service.store.write(nodes.set_resource_group, call.path["node"], index, call.path["group"], on)
    await call.service.access_changed()
