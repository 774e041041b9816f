"""What most system tests stand on, one per module: a service and its users as `pit` has them (the first is the admin),
or a cluster of one node and its admin, spoken to by the client library."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, User, running_cluster
from tests.conftest import pick_free_port
from tests.pitting import Pit
from tests.serving import Serving


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    service = Serving.start(pick_free_port())
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="module")
def pit(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Pit:
    return Pit.of(serving, tmp_path_factory.mktemp("user")).registered("tilman")


@pytest.fixture(scope="module")
def other(serving: Serving, pit: Pit, tmp_path_factory: pytest.TempPathFactory) -> Pit:
    assert pit is not None  # the first user is the admin
    return Pit.of(serving, tmp_path_factory.mktemp("other")).registered("anna")


@pytest.fixture(scope="module")
def home(serving: Serving, pit: Pit) -> Path:
    """The admin's home on the head."""
    pit.ok("ls", "home")
    return serving.home / "data" / "home" / "tilman"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as found:
        yield found


@pytest.fixture
def me(cluster: Cluster) -> User:
    return cluster.admin
