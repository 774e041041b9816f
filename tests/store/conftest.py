"""Every test that takes `store` (or `url`) runs twice: on an SQLite file and on a real PostgreSQL, both empty."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from snakepit.store.database import Store
from snakepit.store.schema import metadata
from tests.postgres import Postgres


@pytest.fixture(scope="session")
def migrated_postgres_url(postgres: Postgres) -> str:
    url = postgres.fresh_database("store_tests")
    Store.open(url).close()
    return url


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    Store.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Migrated already; `empty_url` is not."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_sqlite"), tmp_path / "snakepit.db")
        return f"sqlite:///{tmp_path}/snakepit.db"
    address: str = request.getfixturevalue("migrated_postgres_url")
    engine = create_engine(address)
    with engine.begin() as connection:
        names = ", ".join(f'"{table.name}"' for table in metadata.sorted_tables)
        connection.exec_driver_sql(f"TRUNCATE {names} RESTART IDENTITY CASCADE")
    engine.dispose()
    return address


@pytest.fixture(params=["sqlite", "postgresql"])
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
