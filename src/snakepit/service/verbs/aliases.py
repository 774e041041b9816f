"""Aliases: short names for models, so that `[gtx1070]` can be asked for."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from snakepit.core import access
from snakepit.core.resources import RESERVED
from snakepit.errors import BadRequest, Conflict, NotFound
from snakepit.service.call import Call
from snakepit.store import aliases
from snakepit.wire import shapes
from snakepit.wire.fields import Field, table

ALIAS = table(Field("name", required=True))


async def ids(call: Call) -> list[str]:
    """All aliases."""
    return await call.service.store.read(aliases.ids)


async def show(call: Call) -> shapes.Alias:
    """An alias."""
    name = await call.service.store.read(aliases.find, call.path["alias"])
    if name is None:
        raise NotFound("Alias not found")
    return {"id": call.path["alias"], "name": name}


async def add(call: Call) -> None:
    """Make an alias for the exact name of a resource."""
    access.administer(call.person)
    if call.path["alias"] in RESERVED:
        raise BadRequest(f"{call.path['alias']!r} is a word of requests and cannot be an alias")
    await _write(call, _insert)


async def change(call: Call) -> None:
    """Let an alias mean another resource."""
    access.administer(call.person)
    await _write(call, _update)


async def remove(call: Call) -> None:
    """Remove an alias."""
    access.administer(call.person)
    await call.service.store.write(aliases.delete, call.path["alias"])
    await call.service.access_changed()


async def _write(call: Call, write: Callable[[Connection, str, str], None]) -> None:
    name = call.body["name"].strip()
    if not name:
        raise BadRequest('"name" must not be empty')
    try:
        await call.service.store.write(write, call.path["alias"], name)
    except Conflict as problem:  # 400 as in the original
        raise BadRequest(problem.message) from problem
    await call.service.access_changed()


def _insert(c: Connection, id: str, name: str) -> None:
    if aliases.find(c, id) is None:
        _name_is_free(c, id, name)
    aliases.insert(c, id, name)


def _update(c: Connection, id: str, name: str) -> None:
    _name_is_free(c, id, name)
    aliases.update(c, id, name)


def _name_is_free(c: Connection, id: str, name: str) -> None:
    for other, taken in aliases.all(c).items():
        if taken == name and other != id:
            raise BadRequest(f'Resource "{name}" already has the alias "{other}"')
