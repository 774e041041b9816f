"""Bringing a database to the newest schema, by Alembic's revisions in `migrations/versions`, in one transaction.

Alembic is imported only where there is something to do: the small commands open a store every time they start.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from snakepit import errors
from snakepit.store.schema import HEAD

HERE = Path(__file__).parent / "migrations"
POSTGRES_LOCK = 0x736E616B  # of two services that start at once, one waits for the other


def to_head(engine: Engine, head: str = HEAD) -> None:
    """Nothing happens where the database is up to date already."""
    with engine.connect() as connection:
        sqlite = connection.dialect.name == "sqlite"
        if sqlite:
            # Changing a table means replacing it there, which must not cascade. No pragma inside a transaction.
            _pragma(connection, "foreign_keys = OFF")
        try:
            with connection.begin():
                if not sqlite:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": POSTGRES_LOCK})
                if revision_of(connection) != head:
                    _upgrade(connection, head)
        finally:
            if sqlite:
                _pragma(connection, "foreign_keys = ON")


def revision_of(connection: Connection) -> str | None:
    """Which revision the database has; None where it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _upgrade(connection: Connection, head: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    present = revision_of(connection)
    if present is not None and present not in known:
        raise errors.ConfigError(
            f"the database has revision {present}, which this Snakepit does not know: it is too old"
        )
    command.upgrade(config, head)
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise errors.ConfigError(
                f"the database has {len(broken)} rows that belong to nothing; it was left as it is"
            )


def _pragma(connection: Connection, words: str) -> None:
    raw = connection.connection.driver_connection
    assert raw is not None
    raw.execute(f"PRAGMA {words}")
