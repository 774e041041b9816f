"""Statements that the two databases spell differently, or that every file here needs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

Insert = sqlite.Insert | postgresql.Insert


def insert_into(c: Connection, table: Table) -> Insert:
    """An INSERT that can say what to do on a conflict."""
    return insert_by(c.dialect.name, table)


def insert_new(c: Connection, table: Table, **values: Any) -> bool:
    """Inserts the row unless one with the same key is there; whether it did."""
    return c.execute(_insert_unless_there(c.dialect.name, table), values).rowcount == 1


def insert_all(c: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    """Inserts the rows; those that are there already stay as they are."""
    listed = list(rows)
    if listed:
        c.execute(_insert_unless_there(c.dialect.name, table), listed)


def link(c: Connection, table: Table, on: bool, **key: Any) -> None:
    """Makes the pair `key` be there, or not; asking twice changes nothing."""
    if on:
        insert_new(c, table, **key)
    else:
        c.execute(table.delete().where(*(table.c[name] == value for name, value in key.items())))


@cache
def insert_by(dialect: str, table: Table) -> Insert:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


@cache
def _insert_unless_there(dialect: str, table: Table) -> Insert:
    # Without the option an INSERT forgets how many rows it made.
    return insert_by(dialect, table).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
