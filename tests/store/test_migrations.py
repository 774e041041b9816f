"""Old databases become new ones, and lose nothing on the way."""

import re
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

from snakepit import errors
from snakepit.store import groups, jobs, migrate
from snakepit.store.connect import make_file, parse_url, writing
from snakepit.store.database import Store
from snakepit.store.schema import HEAD, metadata
from tests.store.building import submit


def scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(migrate.HERE))
    return ScriptDirectory.from_config(config)


def revisions() -> list[str]:
    """The oldest first."""
    return [script.revision for script in scripts().walk_revisions()][::-1]


def bring_to(url: str, revision: str) -> None:
    parsed = parse_url(url)
    make_file(parsed)
    engine = writing(parsed)
    migrate.to_head(engine, revision)
    engine.dispose()


def test_there_is_one_newest_revision_and_the_program_knows_it() -> None:
    assert scripts().get_heads() == [HEAD]


@pytest.mark.parametrize("start", revisions())
def test_from_every_revision_the_newest_is_reached_and_data_stay(empty_url: str, start: str) -> None:
    bring_to(empty_url, start)
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO groups (id, title) VALUES ('vision', 'Vision')"))
    engine.dispose()
    Store.open(empty_url).close()
    store = Store.open(empty_url)
    try:
        assert store.read_now(groups.get, "vision").title == "Vision"
        assert store.read_now(migrate.revision_of) == HEAD
        job = submit(store, groups=("vision",))
        assert store.read_now(jobs.get, job).groups == ("vision",)
    finally:
        store.close()


def test_the_migrated_schema_is_the_one_in_the_code(empty_url: str) -> None:
    Store.open(empty_url).close()
    engine = create_engine(empty_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "target_metadata": metadata})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_the_migrated_sqlite_has_the_very_words_the_code_would_write(tmp_path: Path) -> None:
    """What comparing does not see: AUTOINCREMENT, conditions of indexes, ON DELETE."""
    Store.open(f"sqlite:///{tmp_path}/migrated.db").close()
    made = create_engine(f"sqlite:///{tmp_path}/made.db")
    metadata.create_all(made)
    migrated = create_engine(f"sqlite:///{tmp_path}/migrated.db")
    words = []
    for engine in (made, migrated):
        with engine.connect() as connection:
            rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE name != 'alembic_version'"))
            words.append({name: sorted(re.split(r"[\s,()]+", sql or "")) for name, sql in rows})
        engine.dispose()
    words[1].pop("sqlite_autoindex_alembic_version_1", None)
    assert words[0] == words[1]


def test_a_database_of_a_later_snakepit_is_refused_and_left_as_it_is(empty_url: str) -> None:
    Store.open(empty_url).close()
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(errors.ConfigError, match="revision 9999, which this Snakepit does not know"):
        Store.open(empty_url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"
    engine.dispose()


def test_a_migration_that_fails_leaves_the_database_as_it_was(empty_url: str) -> None:
    bring_to(empty_url, revisions()[0])
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(text(f'DROP TABLE IF EXISTS "{table.name}"'))
        connection.execute(text("DELETE FROM alembic_version"))
        connection.execute(text("CREATE TABLE grants (mine INTEGER)"))  # in the way of the last table
    with pytest.raises(errors.SnakepitError, match="grants"):
        Store.open(empty_url)
    with engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) == {"alembic_version", "grants"}
    engine.dispose()
