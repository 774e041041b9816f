"""Nodes, what was found on them, whom their resources are for."""

from dataclasses import dataclass, replace

import pytest

from snakepit import errors
from snakepit.core.resources import Resource
from snakepit.store import groups, nodes
from snakepit.store.database import Store
from snakepit.store.rows import NodeRow
from tests.store.building import NOW, after


@dataclass(frozen=True)
class Found:
    cpus: int = 4
    mem_bytes: int = 10**11
    resources: tuple[Resource, ...] = ()
    isolation: str = "sandbox"
    isolation_problem: str = ""
    limits: tuple[str, ...] = ("cpu", "mem")
    hostname: str = "host"
    boot_id: str = "boot"
    state_id: str = "state"


CARDS = (
    Resource(0, "NVIDIA A100", uuid="GPU-a", memory_bytes=80 * 10**9),
    Resource(1, "NVIDIA A100", uuid="GPU-b", memory_bytes=80 * 10**9),
    Resource(2, "Coffee machine", "coffee", declared=True),
)


@pytest.fixture
def lab(store: Store) -> Store:
    store.write_now(groups.insert, "vision", "Vision")
    store.write_now(groups.insert, "audio", "Audio")
    store.write_now(nodes.insert, "n0", "local:", {"slots": 4}, NOW)
    store.write_now(nodes.set_inventory, "n0", Found(resources=CARDS), 16)
    return store


def restrictions(store: Store) -> dict[int, set[str]]:
    return {resource.index: set(resource.groups) for resource in store.read_now(nodes.get, "n0").resources}


def test_a_node_is_found_with_all_that_was_found_on_it(lab: Store) -> None:
    expected = NodeRow(
        "n0",
        "local:",
        {"slots": 4},
        False,
        NOW,
        cpus=4,
        mem_bytes=10**11,
        slots=16,
        isolation="sandbox",
        limits=("cpu", "mem"),
        hostname="host",
        boot_id="boot",
        state_id="state",
        resources=CARDS,
    )
    assert lab.read_now(nodes.find, "n0") == expected
    assert lab.read_now(nodes.all) == [expected]
    assert lab.read_now(nodes.find, "n") is None


def test_a_node_is_registered_once(lab: Store) -> None:
    with pytest.raises(errors.Conflict, match="already registered"):
        lab.write_now(nodes.insert, "n0", "local:", {}, NOW)
    lab.write_now(nodes.insert, "n1", "local:", {}, NOW)
    assert lab.read_now(nodes.ids) == ["n0", "n1"]
    lab.write_now(nodes.delete, "n0")
    assert lab.read_now(nodes.ids) == ["n1"]
    for gone in (nodes.delete, nodes.get):
        with pytest.raises(errors.NotFound):
            lab.write_now(gone, "n0")


def test_since_changes_only_when_online_does(lab: Store) -> None:
    assert lab.write_now(nodes.set_online, "n0", True, after(1))
    assert not lab.write_now(nodes.set_online, "n0", True, after(2))
    assert lab.read_now(nodes.get, "n0").since == after(1)
    assert lab.write_now(nodes.set_online, "n0", False, after(3))
    assert lab.read_now(nodes.get, "n0").since == after(3)


def test_a_drained_node_says_why_until_it_resumes(lab: Store) -> None:
    lab.write_now(nodes.set_drained, "n0", True, "new fans")
    node = lab.read_now(nodes.get, "n0")
    assert (node.drained, node.drain_reason) == (True, "new fans")
    lab.write_now(nodes.set_drained, "n0", False)
    node = lab.read_now(nodes.get, "n0")
    assert (node.drained, node.drain_reason) == (False, "")
    with pytest.raises(errors.NotFound):
        lab.write_now(nodes.set_drained, "n9", True)


def test_properties_are_replaced(lab: Store) -> None:
    lab.write_now(nodes.set_properties, "n0", {"isolation": "none"}, "ssh://x")
    node = lab.read_now(nodes.get, "n0")
    assert (node.properties, node.endpoint) == ({"isolation": "none"}, "ssh://x")


def test_restrictions_are_for_one_resource_or_for_all(lab: Store) -> None:
    for _ in range(2):
        lab.write_now(nodes.set_resource_group, "n0", 1, "vision", True)
    assert restrictions(lab) == {0: set(), 1: {"vision"}, 2: set()}
    lab.write_now(nodes.set_resource_group, "n0", None, "audio", True)
    assert restrictions(lab) == {0: {"audio"}, 1: {"audio", "vision"}, 2: {"audio"}}
    lab.write_now(nodes.set_resource_group, "n0", None, "audio", False)
    assert restrictions(lab) == {0: set(), 1: {"vision"}, 2: set()}
    lab.write_now(groups.delete, "vision")
    assert restrictions(lab) == {0: set(), 1: set(), 2: set()}


def test_a_restriction_names_what_exists(lab: Store) -> None:
    for node, index, group in (("n9", 0, "vision"), ("n0", 9, "vision"), ("n0", 0, "taste")):
        with pytest.raises(errors.NotFound):
            lab.write_now(nodes.set_resource_group, node, index, group, True)


def test_a_card_that_stays_keeps_its_groups_wherever_it_moved(lab: Store) -> None:
    lab.write_now(nodes.set_resource_group, "n0", 1, "vision", True)
    lab.write_now(nodes.set_resource_group, "n0", 2, "audio", True)
    moved = (replace(CARDS[1], index=0), replace(CARDS[0], uuid="GPU-new", index=1), CARDS[2])
    lab.write_now(nodes.set_inventory, "n0", Found(resources=moved))
    assert restrictions(lab) == {0: {"vision"}, 1: set(), 2: {"audio"}}
    assert lab.read_now(nodes.get, "n0").slots == 16
    lab.write_now(nodes.set_inventory, "n0", Found(resources=(replace(CARDS[2], name="Tea machine"),)))
    assert restrictions(lab) == {2: set()}
