"""Bringing a database to the newest schema, by Alembic's revisions in `migrations/versions`, in one transaction.

Alembic is imported only where there is something to do: the small commands open a store every time they start.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, inspect, text

from snakepit import errors
from snakepit.store.schema import HEAD, metadata

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

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


@functools.cache
def scripts() -> ScriptDirectory:
    """The revisions, read once: a service that gave up being root may no longer reach the files."""
    from alembic.config import Config
    from alembic.runtime import environment  # noqa: F401  (the same for what only an upgrade imports)
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    found = ScriptDirectory.from_config(config)
    for revision in found.walk_revisions():
        assert revision.module
    return found


def _upgrade(connection: Connection, head: str) -> None:
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext

    directory = scripts()
    known = {script.revision for script in directory.walk_revisions()}
    present = revision_of(connection)
    if present is not None and present not in known:
        raise errors.ConfigError(
            f"the database has revision {present}, which this Snakepit does not know: it is too old"
        )

    def steps(revision: Any, context: Any) -> Any:
        return directory._upgrade_revs(head, revision)

    with EnvironmentContext(Config(), directory, fn=steps, destination_rev=head) as environment:
        environment.configure(
            connection=connection, target_metadata=metadata, render_as_batch=True, transactional_ddl=True
        )
        environment.run_migrations()
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
