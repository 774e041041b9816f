"""What the cluster knows of itself: its id, how often its service started, small values by name."""

from __future__ import annotations

import secrets
from functools import cache

from sqlalchemy import Connection, Executable, select

from snakepit.store.schema import counters, meta
from snakepit.store.statements import insert_by, insert_into, insert_new


def cluster_id(c: Connection) -> str:
    """Made once, at random; marks everything that belongs to this cluster. Needs `write`."""
    insert_new(c, meta, key="cluster_id", value=secrets.token_hex(8))
    found = get(c, "cluster_id")
    assert found is not None
    return found


def next_epoch(c: Connection) -> int:
    """One more at every start of the service; agents refuse commands of a lower one."""
    return next_number(c, "epoch")


def next_number(c: Connection, name: str) -> int:
    """The next number of a sequence that lives in the database: 1, 2, …; undone with the transaction."""
    value: int = c.execute(_count_up(c.dialect.name), {"name": name, "value": 1}).scalar_one()
    return value


def get(c: Connection, key: str) -> str | None:
    found: str | None = c.execute(select(meta.c.value).where(meta.c.key == key)).scalar()
    return found


def put(c: Connection, key: str, value: str) -> None:
    fresh = insert_into(c, meta).values(key=key, value=value)
    c.execute(fresh.on_conflict_do_update(index_elements=[meta.c.key], set_={"value": value}))


@cache
def _count_up(dialect: str) -> Executable:
    one_more = {"value": counters.c.value + 1}
    fresh = insert_by(dialect, counters).on_conflict_do_update(index_elements=[counters.c.name], set_=one_more)
    return fresh.returning(counters.c.value)
