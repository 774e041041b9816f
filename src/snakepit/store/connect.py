"""Connections: how a database is opened so that what it acknowledged is on disk, and readers never meet a writer.

SQLite: WAL with a real fsync per commit; the writer takes the lock when it begins, readers cannot write and see one
snapshot per read. PostgreSQL: the same by its own means; a dead network is noticed within a minute.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, OperationalError

from snakepit import errors

READERS = 4
BUSY_MS = 30_000  # only a stranger (an admin's sqlite3 shell) can hold the lock against our one writer

POSTGRES_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "snakepit",
}


def parse_url(text: str) -> URL:
    """The address of a database; `postgresql:` means our driver. Raises ConfigError with what is wrong."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise errors.ConfigError("the address of the database is none: expected sqlite:////path/to/file.db") from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database and url.database != ":memory:":
        return url
    if url.drivername == "postgresql+psycopg":
        return url
    raise errors.ConfigError(
        f"cannot use the database {url.render_as_string(hide_password=True)}: "
        "expected sqlite:////path/to/file.db or postgresql://user@host/name"
    )


def writing(url: URL) -> Engine:
    """For the one writer."""
    if url.drivername == "sqlite":
        return _sqlite(url, "BEGIN IMMEDIATE", pool_size=1, query_only=False)
    return create_engine(url, pool_size=1, max_overflow=0, connect_args=_postgres_arguments(url))


def reading(url: URL) -> Engine:
    """For everyone else; each read sees the database as it was at one moment."""
    if url.drivername == "sqlite":
        return _sqlite(url, "BEGIN", pool_size=READERS, query_only=True)
    return create_engine(
        url,
        pool_size=READERS,
        max_overflow=8,
        connect_args=_postgres_arguments(url),
        execution_options={"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
    )


def make_file(url: URL) -> None:
    """An SQLite file is made for its owner only, before anything is in it; -wal and -shm follow its mode."""
    if url.drivername != "sqlite" or url.database is None:
        return
    path = Path(url.database)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
    except OSError as error:
        raise errors.ConfigError(f"cannot open the database {path}: {error.strerror}") from error


def is_trouble(error: BaseException) -> bool:
    """Whether the database itself is in trouble (disk full, connection lost), not one statement."""
    if isinstance(error, OperationalError | InterfaceError):
        return True
    return isinstance(error, DBAPIError) and (
        error.connection_invalidated
        or (isinstance(error.orig, sqlite3.Error) and type(error.orig) is sqlite3.DatabaseError)
    )


def words_of(error: BaseException) -> str:
    """The first line of what the driver said, without the statement and its parameters."""
    inner = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(inner).strip().splitlines()
    return lines[0] if lines else type(inner).__name__


def for_the_caller(error: Exception) -> Exception:
    """What a single refused statement means in our own words."""
    if isinstance(error, IntegrityError):
        return errors.Conflict(f"this contradicts what is stored: {words_of(error)}")
    if isinstance(error, DBAPIError | OverflowError | UnicodeEncodeError):
        return errors.BadRequest(f"the database does not take this value: {words_of(error)}")
    return error


def _sqlite(url: URL, begin: str, pool_size: int, query_only: bool) -> Engine:
    engine = create_engine(
        url, pool_size=pool_size, max_overflow=8, connect_args={"check_same_thread": False, "timeout": BUSY_MS / 1000}
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself; `_begin` does
        for pragma in _pragmas(query_only):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _pragmas(query_only: bool) -> tuple[str, ...]:
    common = ("foreign_keys = ON", "temp_store = MEMORY", "cache_size = -16000")
    if query_only:
        return (*common, "query_only = ON")
    # FULL: every commit is fsynced. The size limit gives the disk back after a burst. What is deleted is overwritten.
    return (
        *common,
        "journal_mode = WAL",
        "synchronous = FULL",
        "journal_size_limit = 67108864",
        "secure_delete = FAST",
    )


def _postgres_arguments(url: URL) -> dict[str, str]:
    return {name: value for name, value in POSTGRES_DEFAULTS.items() if name not in url.query}
