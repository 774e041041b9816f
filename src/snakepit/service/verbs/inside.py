"""Going inside a running job: a command there, a connection to one of its ports; who did."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from snakepit.core import access
from snakepit.errors import BadRequest, NotFound, SnakepitError
from snakepit.service.auth import digest
from snakepit.service.call import Call, token_of
from snakepit.service.dates import iso
from snakepit.service.inside.order import read_order
from snakepit.service.inside.visits import Visit, Visitor
from snakepit.service.pipes.upgrade import handover_of
from snakepit.service.verbs.pipes import Switched
from snakepit.store import audit as trail
from snakepit.wire import shapes
from snakepit.wire.fields import Field, table

EXEC = table(Field("context", longest=2_000_000, words="JSON: command, environment, interactive, width, height"))
CONNECT = table(
    Field("port", "whole", low=0, high=65535),
    Field("spare", "flag", words="made ready now, connected by its first byte"),
    Field("visit", longest=64, words="connections with the same text are one entry of the audit trail"),
)
AUDIT = table(
    Field("user", longest=64),
    Field("job", "whole", high=2**31 - 1),
    Field("before", "whole", high=2**53, words="the number of an entry: those before it"),
    Field("limit", "whole", low=1, high=1000),
)


async def exec(call: Call) -> Response:
    """A command inside a worker; by `Upgrade: pit-pipe` with frames, or as a web-socket as in the original."""
    handover = _handover(call)
    command = read_order(call.query.get("context", ""))
    visit = await call.service.visits.exec(visitor(call), command)
    return await _switch(call, handover, visit)


async def connect(call: Call) -> Response:
    """A connection to a port on which a process of the worker listens; the bytes follow as they are."""
    handover = _handover(call)
    if not call.query.get("port"):
        raise BadRequest("Which port? (1 to 65535)")
    query = call.query
    visit = await call.service.visits.connect(
        visitor(call), query["port"], query.get("visit", ""), query.get("spare", False)
    )
    return await _switch(call, handover, visit)


async def forward(call: Call) -> Response:
    """The original's multiplexed connections to the ports of a worker, as a web-socket."""
    await call.service.visits.enter(visitor(call))
    raise NotFound("Only web-socket upgrades")


async def audit(call: Call) -> list[shapes.AuditEntry]:
    """Who went inside which job, the newest first."""
    access.administer(call.person)
    query: dict[str, Any] = {name: call.query[name] for name in AUDIT if name in call.query}
    rows = await call.service.store.read(trail.listing, **query)
    return [
        {
            "id": row.id,
            "date": iso(row.at),
            "user": row.user,
            "kind": row.kind,
            "job": row.job,
            "worker": row.worker,
            "node": row.node,
            "detail": row.detail,
            "address": row.address,
        }
        for row in rows
    ]


def visitor(call: Call) -> Visitor:
    key = digest(token_of(call.request))
    return Visitor(call.person, key, call.address, call.job, int(call.path["index"]))


def _handover(call: Call) -> Any:
    try:
        return handover_of(call.request)
    except SnakepitError:
        raise NotFound("Only web-socket upgrades") from None


async def _switch(call: Call, handover: Any, visit: Visit) -> Response:
    try:
        end = await handover.take()
    except BaseException:
        visit.end("the caller is gone")
        raise
    await call.service.visits.attach(visit, end)
    return Switched(status_code=101)
