"""The cluster's nodes as the loop holds them: added, removed, drained, watched, probed."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from snakepit.core.job import ProcessId
from snakepit.engines.base import Engine, Inventory, Offline, Online
from snakepit.errors import BadRequest, ConfigError, EngineError, NotFound, Unavailable, WrongState
from snakepit.loop.live import Changes, Live, LiveNode
from snakepit.store import nodes
from snakepit.store.database import Store
from snakepit.store.rows import NodeRow

if TYPE_CHECKING:
    from snakepit.loop.loop import Loop

log = logging.getLogger(__name__)
SLOTS_PER_CORE = 8
OFFLINE_AFTER_S = 5.0
EngineFor = Callable[[str, str, dict[str, Any]], Engine]


class Nodes:
    def __init__(
        self, loop: Loop, store: Store, live: Live, engine_for: EngineFor, clock: Callable[[], dt.datetime]
    ) -> None:
        self._loop, self._store, self._live, self._engine_for, self._clock = loop, store, live, engine_for, clock

    async def add(self, id: str, endpoint: str, properties: dict[str, Any]) -> None:
        """Probe first; what cannot be reached is not added."""
        if id in self._live.nodes:
            raise BadRequest("Node with same id already registered")
        engine = self._engine(id, endpoint, properties)
        try:
            self._refuse_known_endpoint(endpoint)
            found = await engine.probe()
            self._refuse_known_cards(id, found)
            await self._store.write(_insert, id, endpoint, properties, found, self._clock())
        except EngineError as error:
            await engine.leave()
            raise BadRequest(f"Problem adding node: {error.message}") from error
        except BaseException:
            await engine.leave()
            raise
        row = await self._store.read(nodes.get, id)
        await self._loop.in_turn(lambda changes: self._join(changes, row, engine))

    async def change(self, id: str, properties: dict[str, Any]) -> None:
        """New properties (declared resources, slots, …); what runs there runs on."""
        async with self._at_rest(id, "change") as node:
            merged = {
                name: value for name, value in {**node.row.properties, **properties}.items() if value not in (None, "")
            }
            engine = self._engine(id, node.row.endpoint, merged)
            try:
                found = await engine.probe()
                self._refuse_known_cards(id, found)
                row = await self._store.write(_change, id, merged, found)
            except BaseException:  # the one before goes on
                await engine.close()
                raise
            await self._let_go(node)
            await self._loop.in_turn(lambda changes: self._join(changes, row, engine))
        await self._loop.reload_access()

    async def remove(self, id: str) -> None:
        async with self._at_rest(id, "remove") as node:
            await self._store.write(nodes.delete, id)
            await self._loop.in_turn(lambda changes: self._leave(changes, id))
            await self._let_go(node, for_good=True)
        await self._loop.reload_access()

    @contextlib.asynccontextmanager
    async def _at_rest(self, id: str, deed: str) -> AsyncIterator[LiveNode]:
        """A node on which nothing runs, and nothing is begun meanwhile."""
        node = self._get(id)
        if node.held:
            raise WrongState(f"somebody else changes or removes {id} at this moment: try again")
        node.held = True
        try:
            self._loop.tell("node_changed", id)
            await self._loop.in_turn(lambda _: None)  # what was decided before is known, and nothing more will be
            if busy := sorted(job.id for job, _ in self._live.attempts_on(id)):
                raise WrongState(f"{_jobs(busy)} on {id}: drain the node and wait, or stop them, then {deed} it")
            yield node
        finally:
            node.held = False
            self._loop.tell("node_changed", id)

    async def set_drained(self, id: str, drained: bool, reason: str = "") -> None:
        self._get(id)
        await self._store.write(nodes.set_drained, id, drained, reason)

        def apply(changes: Changes) -> None:
            node = self._live.nodes[id]
            node.row = replace(node.row, drained=drained, drain_reason=reason if drained else "")
            self._loop.tell("node_changed", id)

        await self._loop.in_turn(apply)

    def adopt(self, row: NodeRow) -> None:
        """A node that is in the database, at the start of the service."""
        self._live.nodes[row.id] = LiveNode(row, self._engine_for(row.id, row.endpoint, row.properties))
        self._live.free.set_node(self._live.nodes[row.id].core())

    def watch_all(self) -> None:
        for node in self._live.nodes.values():
            self._watch(node)

    async def close(self) -> None:
        for node in list(self._live.nodes.values()):
            await self._let_go(node)

    def _watch(self, node: LiveNode) -> None:
        node.watching = asyncio.create_task(self._watching(node))

    async def _watching(self, node: LiveNode) -> None:
        """One task per node: a slow or dead one holds up nobody else."""
        id = node.row.id
        async for event in node.engine.watch(self._offsets(id)):
            if isinstance(event, Offline):
                self._soon_offline(node, event.reason)
            if isinstance(event, Online):
                await self._probe(node)
            await self._loop.heard(id, event)

    async def _probe(self, node: LiveNode) -> None:
        """Hardware changes while a node is away. What cannot be written down now is found again the next time."""
        with contextlib.suppress(EngineError, Unavailable):
            found = await node.engine.probe()
            # Whether it began a new life is for the decision on Online: keep what was known of that.
            found = replace(found, boot_id=node.row.boot_id, state_id=node.row.state_id)
            slots = _slots(node.row.properties, found)
            await self._store.write(nodes.set_inventory, node.row.id, found, slots)
            fresh = await self._store.read(nodes.find, node.row.id)
            if fresh is not None:
                node.row = fresh
                self._loop.forget_fits()

    def _soon_offline(self, node: LiveNode, reason: str) -> None:
        """Said to everybody only when it lasts: an agent that is started anew answers in a moment."""

        def say() -> None:
            node.going_offline = None
            if not node.online:
                self._loop.spawn(self._say_offline(node, reason))

        if node.going_offline is None:
            node.going_offline = asyncio.get_running_loop().call_later(OFFLINE_AFTER_S, say)

    async def _say_offline(self, node: LiveNode, reason: str) -> None:
        if not node.online and await self._store.write(nodes.set_online, node.row.id, False, self._clock()):
            log.warning("node %s is offline: %s", node.row.id, reason)

    def _join(self, changes: Changes, row: NodeRow, engine: Engine) -> None:
        node = self._live.nodes[row.id] = LiveNode(row, engine)
        self._loop.forget_fits()
        self._loop.tell("node_changed", row.id)
        changes.after.append(lambda: self._watch(node))

    def _leave(self, changes: Changes, id: str) -> None:
        self._live.nodes.pop(id, None)
        self._loop.forget_fits()
        self._loop.tell("node_changed", id)

    async def _let_go(self, node: LiveNode, for_good: bool = False) -> None:
        if node.going_offline is not None:
            node.going_offline.cancel()
        if node.watching is not None:
            node.watching.cancel()
            await asyncio.wait([node.watching])
        await (node.engine.leave() if for_good else node.engine.close())

    def _offsets(self, node: str) -> dict[ProcessId, int]:
        return {
            process.id: self._loop.log.open(job.id).length(process.id)
            for job, attempt in self._live.attempts_on(node)
            for process in attempt.on(node)
        }

    def _refuse_known_endpoint(self, endpoint: str) -> None:
        for other in self._live.nodes.values():
            if other.row.endpoint.rstrip(":/") == endpoint.rstrip(":/"):
                raise BadRequest(
                    f"{endpoint} is node {other.row.id} already: a machine that is added twice would count its cores "
                    f"twice. Change that node (pit set node:{other.row.id} …), or remove it first"
                )

    def _refuse_known_cards(self, id: str, found: Inventory) -> None:
        """A physical card is given out by one node only, whatever names its machine was added under."""
        for other in self._live.nodes.values():
            theirs = {card.uuid for card in other.row.resources if card.uuid}
            for card in found.resources:
                if other.row.id != id and card.uuid in theirs:
                    raise BadRequest(f"GPU {card.uuid} belongs to node {other.row.id} already: is it the same machine?")

    def _engine(self, id: str, endpoint: str, properties: dict[str, Any]) -> Engine:
        """For properties that somebody just sent."""
        try:
            return self._engine_for(id, endpoint, properties)
        except ConfigError as error:
            raise BadRequest(error.message) from error

    def _get(self, id: str) -> LiveNode:
        if id not in self._live.nodes:
            raise NotFound(f'There is no node "{id}"')
        return self._live.nodes[id]


def _insert(c: Any, id: str, endpoint: str, properties: dict[str, Any], found: Inventory, now: dt.datetime) -> None:
    nodes.insert(c, id, endpoint, properties, now, online=True)
    nodes.set_inventory(c, id, found, _slots(properties, found))


def _change(c: Any, id: str, properties: dict[str, Any], found: Inventory) -> NodeRow:
    nodes.set_properties(c, id, properties)
    nodes.set_inventory(c, id, found, _slots(properties, found))
    return nodes.get(c, id)


def _slots(properties: dict[str, Any], found: Inventory) -> int:
    return int(properties.get("slots") or SLOTS_PER_CORE * max(1, found.cpus))


def _jobs(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10])) + (", …" if len(numbers) > 10 else "")
    return f"job {shown} runs" if len(numbers) == 1 else f"jobs {shown} run"
