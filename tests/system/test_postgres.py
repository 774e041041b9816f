"""The PostgreSQL that the tests start is a real one."""

import psycopg

from tests.postgres import Postgres


def test_databases_on_the_test_server_are_apart(postgres: Postgres) -> None:
    one, two = postgres.fresh_database("apart_one"), postgres.fresh_database("apart_two")
    with psycopg.connect(one) as connection:
        connection.execute("CREATE TABLE only_here (n int)")
    with psycopg.connect(two) as connection:
        assert connection.execute("SELECT to_regclass('only_here')").fetchone() == (None,)
