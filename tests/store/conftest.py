"""Every test that takes `store` (or `url`) runs twice: on an SQLite file and on a real PostgreSQL, both empty."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from snakepit.store.database import Store
from snakepit.store.schema import metadata
from tests.postgres import Postgres

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.system)]


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> Iterator[Engine]:
    url = postgres.fresh_database("store_tests")
    Store.open(url).close()
    engine = create_engine(url)
    yield engine
    engine.dispose()


# Much quicker than TRUNCATE, which makes new files for every table.
EMPTY = "; ".join(
    [f'DELETE FROM "{table.name}"' for table in reversed(metadata.sorted_tables)]
    + [f"ALTER SEQUENCE {name}_id_seq RESTART" for name in ("jobs", "state_changes", "tokens")]
)


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    Store.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Migrated already; `empty_url` is not."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_sqlite"), tmp_path / "snakepit.db")
        return f"sqlite:///{tmp_path}/snakepit.db"
    engine: Engine = request.getfixturevalue("migrated_postgres")
    with engine.begin() as connection:
        connection.exec_driver_sql(EMPTY)
    return engine.url.render_as_string(hide_password=False)


@pytest.fixture(params=BOTH)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database in which nothing was ever made."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.fresh_database("store_empty")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store.open(url)
    yield opened
    opened.close()
