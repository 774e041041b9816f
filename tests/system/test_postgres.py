"""The PostgreSQL that the tests start is a real one."""

import sqlalchemy

from tests.postgres import Postgres


def test_databases_on_the_test_server_are_apart(postgres: Postgres) -> None:
    one, two = postgres.fresh_database("apart_one"), postgres.fresh_database("apart_two")
    with sqlalchemy.create_engine(one, poolclass=sqlalchemy.NullPool).begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE only_here (n int)"))
    with sqlalchemy.create_engine(two, poolclass=sqlalchemy.NullPool).begin() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT to_regclass('only_here')")) is None
