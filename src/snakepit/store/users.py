"""Users: accounts, memberships, what they share by default. There is always an admin once there is a user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Select, exists, func, select, type_coerce

from snakepit import errors
from snakepit.store import groups as group_table
from snakepit.store.columns import Names
from snakepit.store.rows import UserRow
from snakepit.store.schema import autoshares, jobs, user_groups, users
from snakepit.store.statements import insert_all, insert_new, link

FIELDS = frozenset({"fullname", "email", "password_hash", "admin", "autoshare"})


def insert(
    c: Connection,
    id: str,
    fullname: str = "",
    email: str = "",
    password_hash: bytes = b"",
    admin: bool | None = None,
    autoshare: Iterable[str] = (),
) -> UserRow:
    """`admin` None: admin if and only if this is the first user."""
    _hold_still(c)
    if admin is None:
        admin = c.execute(select(users.c.id).limit(1)).first() is None
    if not insert_new(c, users, id=id, fullname=fullname, email=email, password_hash=password_hash, admin=admin):
        raise errors.Conflict("User already existing")
    _set_autoshare(c, id, autoshare)
    return get(c, id)


def find(c: Connection, id: str) -> UserRow | None:
    row = c.execute(_USERS.where(users.c.id == id)).first()
    return _row(row) if row else None


def get(c: Connection, id: str) -> UserRow:
    found = find(c, id)
    if found is None:
        raise errors.NotFound("User not found")
    return found


def ids(c: Connection) -> list[str]:
    return list(c.scalars(select(users.c.id).order_by(users.c.id)))


def all(c: Connection) -> list[UserRow]:
    return [_row(row) for row in c.execute(_USERS.order_by(users.c.id))]


def count(c: Connection) -> int:
    return c.execute(select(func.count()).select_from(users)).scalar_one()


def admins(c: Connection) -> int:
    """How many there are."""
    return c.execute(select(func.count()).select_from(users).where(users.c.admin)).scalar_one()


def update(c: Connection, id: str, /, **fields: Any) -> None:
    """Any of fullname, email, password_hash, admin, autoshare."""
    unknown = fields.keys() - FIELDS
    if unknown:
        raise errors.BadRequest(f"Unknown property {min(unknown)}")
    _hold_still(c)
    before = get(c, id)
    if before.admin and fields.get("admin") is False:
        _another_admin_than(c, id)
    own: Mapping[str, Any] = {name: value for name, value in fields.items() if name != "autoshare"}
    if own:
        c.execute(users.update().where(users.c.id == id).values(**own))
    if "autoshare" in fields:
        c.execute(autoshares.delete().where(autoshares.c.user == id))
        _set_autoshare(c, id, fields["autoshare"])


def delete(c: Connection, id: str) -> None:
    """Memberships and tokens go too; jobs stay."""
    _hold_still(c)
    if get(c, id).admin:
        _another_admin_than(c, id)
    c.execute(users.delete().where(users.c.id == id))


def set_member(c: Connection, user: str, group: str, on: bool) -> None:
    get(c, user)
    group_table.require(c, [group])
    link(c, user_groups, on, user=user, group=group)


def has_jobs(c: Connection, user: str) -> bool:
    """Also for a user that is gone."""
    return bool(c.execute(select(exists().where(jobs.c.user == user))).scalar())


def _hold_still(c: Connection) -> None:
    """Counting admins and then changing them is one step, also for another program on the same PostgreSQL."""
    if c.dialect.name == "postgresql":
        c.exec_driver_sql("LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE")


def _another_admin_than(c: Connection, id: str) -> None:
    if c.execute(select(users.c.id).where(users.c.admin, users.c.id != id).limit(1)).first() is None:
        raise errors.WrongState("This is the last admin: make another user admin first")


def _set_autoshare(c: Connection, id: str, wanted: Iterable[str]) -> None:
    names = list(dict.fromkeys(wanted))
    group_table.require(c, names)
    insert_all(c, autoshares, ({"user": id, "group": name} for name in names))


def _users() -> Select[Any]:
    def linked(table: Any) -> Any:
        joined = select(func.aggregate_strings(table.c.group, ",")).where(table.c.user == users.c.id)
        return type_coerce(joined.scalar_subquery(), Names)

    return select(users, linked(user_groups), linked(autoshares))


_USERS = _users()


def _row(row: Any) -> UserRow:
    *own, groups, autoshare = row
    return UserRow(*(*own, frozenset(groups), autoshare))
