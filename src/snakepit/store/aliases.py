"""Short names for models of resources."""

from __future__ import annotations

from sqlalchemy import Connection, select

from snakepit import errors
from snakepit.store.schema import aliases
from snakepit.store.statements import insert_new


def all(c: Connection) -> dict[str, str]:
    """Alias id to exact resource name, in the order of the ids."""
    return {row.id: row.name for row in c.execute(select(aliases).order_by(aliases.c.id))}


def ids(c: Connection) -> list[str]:
    return list(all(c))


def find(c: Connection, id: str) -> str | None:
    found: str | None = c.execute(select(aliases.c.name).where(aliases.c.id == id)).scalar()
    return found


def insert(c: Connection, id: str, name: str) -> None:
    if not insert_new(c, aliases, id=id, name=name):
        raise errors.Conflict("Alias already existing")


def update(c: Connection, id: str, name: str) -> None:
    if c.execute(aliases.update().where(aliases.c.id == id).values(name=name)).rowcount == 0:
        raise errors.NotFound("Alias not found")


def delete(c: Connection, id: str) -> None:
    if c.execute(aliases.delete().where(aliases.c.id == id)).rowcount == 0:
        raise errors.NotFound("Alias not found")
