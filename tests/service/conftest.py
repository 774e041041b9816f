"""One house per module: tests use users and jobs of their own."""

from collections.abc import Iterator

import httpx
import pytest

from tests.service.house import House, open_house


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house whose first user is the admin `root`."""
    with open_house(tmp_path_factory.mktemp("house")) as opened:
        opened.user("root")
        yield opened


@pytest.fixture(scope="module")
def admin(house: House) -> httpx.Client:
    return house.user("root")


@pytest.fixture(scope="module")
def anna(house: House) -> httpx.Client:
    return house.user("anna")


@pytest.fixture(scope="module")
def bob(house: House) -> httpx.Client:
    return house.user("bob")
