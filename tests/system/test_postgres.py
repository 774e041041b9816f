"""A cluster whose database is a real PostgreSQL; it belongs to one data root."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from tests.cluster import Cluster, running_cluster
from tests.conftest import pick_free_port
from tests.postgres import Postgres
from tests.serving import PROGRAMS


def test_databases_on_the_test_server_are_apart(postgres: Postgres) -> None:
    one, two = postgres.fresh_database("apart_one"), postgres.fresh_database("apart_two")
    with sqlalchemy.create_engine(one, poolclass=sqlalchemy.NullPool).begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE only_here (n int)"))
    with sqlalchemy.create_engine(two, poolclass=sqlalchemy.NullPool).begin() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT to_regclass('only_here')")) is None


@pytest.fixture(scope="module")
def cluster(postgres: Postgres) -> Iterator[Cluster]:
    with running_cluster(config=f"database: {postgres.fresh_database('cluster')}\n") as found:
        yield found


def refusal(cluster: Cluster, data: Path, config: str) -> str:
    """What a service with this configuration says, which does not start."""
    path = cluster.serving.home / "other.conf"
    path.write_text(config)
    words = ["serve", "--config", str(path), "--data", str(data), "--interface", "127.0.0.1"]
    done = subprocess.run(
        [PROGRAMS / "snakepit", *words, "--port", str(pick_free_port())], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, done
    return done.stderr


def test_a_service_on_it_that_is_killed_goes_on(cluster: Cluster) -> None:
    me = cluster.admin
    number = me.submit("echo up; until [ -e $KEEP_DIR/go ]; do sleep 0.05; done; exit 4")
    me.says(number, "up")
    cluster.serving.kill()
    (cluster.pit(number) / "keep" / "go").touch()
    cluster.serving.start_again()
    assert me.done(number)["exitCode"] == 4


def test_another_data_root_is_refused_and_what_runs_is_not_lost(cluster: Cluster) -> None:
    me = cluster.admin
    number = me.submit("echo up; until [ -e $KEEP_DIR/go ]; do sleep 0.05; done")
    me.says(number, "up")
    config = (cluster.serving.home / "snakepit.conf").read_text()
    said = refusal(cluster, cluster.serving.home / "data2", config)
    assert said.startswith("snakepit: the database is that of another data root (cluster ")
    (cluster.pit(number) / "keep" / "go").touch()
    assert me.done(number)["outcome"] == "succeeded"


def test_another_database_is_refused_and_no_directory_is_thrown_away(cluster: Cluster, postgres: Postgres) -> None:
    me = cluster.admin
    number = me.submit("echo kept > $KEEP_DIR/kept")
    assert me.done(number)["outcome"] == "succeeded"
    cluster.serving.process.terminate()
    cluster.serving.process.wait(60)
    for config in ("", f"database: {postgres.fresh_database('empty')}\n"):
        said = refusal(cluster, cluster.root, config)
        assert said.startswith(f"snakepit: the data root {cluster.root} has jobs (pits/")
    cluster.serving.start_again()
    assert (cluster.pit(number) / "keep" / "kept").read_text() == "kept\n"
    assert me.done(number)["outcome"] == "succeeded"
