"""Groups of users, and who is in them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from snakepit import errors
from snakepit.store.rows import GroupRow
from snakepit.store.schema import groups, user_groups
from snakepit.store.statements import insert_new


def insert(c: Connection, id: str, title: str) -> None:
    if not insert_new(c, groups, id=id, title=title):
        raise errors.Conflict("Group already existing")


def find(c: Connection, id: str) -> GroupRow | None:
    row = c.execute(select(groups).where(groups.c.id == id)).first()
    return GroupRow(*row) if row else None


def get(c: Connection, id: str) -> GroupRow:
    found = find(c, id)
    if found is None:
        raise errors.NotFound("Group not found")
    return found


def ids(c: Connection) -> list[str]:
    return list(c.scalars(select(groups.c.id).order_by(groups.c.id)))


def members(c: Connection, id: str) -> list[str]:
    return list(c.scalars(select(user_groups.c.user).where(user_groups.c.group == id).order_by(user_groups.c.user)))


def update(c: Connection, id: str, title: str) -> None:
    if c.execute(groups.update().where(groups.c.id == id).values(title=title)).rowcount == 0:
        raise errors.NotFound("Group not found")


def delete(c: Connection, id: str) -> None:
    """Memberships, shares and restrictions go with it."""
    if c.execute(groups.delete().where(groups.c.id == id)).rowcount == 0:
        raise errors.NotFound("Group not found")


def require(c: Connection, wanted: Iterable[str]) -> None:
    """Raises NotFound for the first of `wanted` that is no group."""
    names = set(wanted)
    known = set(c.scalars(select(groups.c.id).where(groups.c.id.in_(names)))) if names else set()
    if names - known:
        raise errors.NotFound(f"Group not found: {min(names - known)}")
