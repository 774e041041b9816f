"""Groups: admins make and end them, everybody may see them."""

from __future__ import annotations

import asyncio

from snakepit.core import access
from snakepit.errors import BadRequest, Conflict, Forbidden
from snakepit.service.beneath import make_directory
from snakepit.service.call import Call
from snakepit.source.sweep import to_trash
from snakepit.store import groups
from snakepit.wire import shapes
from snakepit.wire.fields import Field, table

GROUP = table(Field("title", required=True))


async def ids(call: Call) -> list[str]:
    """All groups."""
    return await call.service.store.read(groups.ids)


async def show(call: Call) -> shapes.Group:
    """A group."""
    row = await call.service.store.read(groups.get, call.path["group"])
    return {"id": row.id, "title": row.title}


async def add(call: Call) -> None:
    """Make a group."""
    access.administer(call.person)
    try:
        await call.service.store.write(groups.insert, call.path["group"], _title(call))
    except Conflict as problem:
        raise Forbidden(problem.message) from problem
    directory = call.service.settings.data_root / "groups" / call.path["group"]
    await asyncio.to_thread(make_directory, directory)
    await call.service.access_changed()


async def change(call: Call) -> None:
    """Give a group another title."""
    access.administer(call.person)
    await call.service.store.write(groups.update, call.path["group"], _title(call))


async def remove(call: Call) -> None:
    """End a group: memberships and shares go with it, its directory goes to the trash."""
    access.administer(call.person)
    group = call.path["group"]
    await call.service.store.write(groups.delete, group)
    await call.service.access_changed()
    root = call.service.settings.data_root
    await asyncio.to_thread(to_trash, root, root / "groups" / group)


def _title(call: Call) -> str:
    title: str = call.body["title"].strip()
    if not title:
        raise BadRequest('"title" must not be empty')
    return title
