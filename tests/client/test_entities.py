"""Names of things as people write them."""

import pytest

from snakepit.client.entities import ISOLATIONS, Entity, Unreadable, converted, job_numbers, parse, properties
from snakepit.errors import BadRequest
from snakepit.service.verbs.nodes import CHANGED_NODE


def test_entities_have_a_type_an_id_and_sometimes_an_index() -> None:
    assert parse("user:anna") == Entity("user", "anna")
    assert parse("node:n0:1", index_for=("node",)) == Entity("node", "n0", 1)
    assert parse("190") == parse("job:190") == Entity("job", "190")
    assert parse("me") == Entity("user", "~")
    assert (parse("alias:a").path, parse("me").path) == ("/aliases/a", "/users/~")


def test_an_id_cannot_leave_its_place_in_the_path() -> None:
    assert parse("user:../nodes").path == "/users/..%2Fnodes"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cat:x", 'Unknown entity type "cat"'),
        ("user", "names no user"),
        ("user:", "names no user"),
        ("user:a:1", "Indices not allowed for user entities"),
        ("node:n0:x", "expected a number"),
        ("node:n0:1:2", "expected a number"),
        ("", "Unknown entity type"),
    ],
)
def test_wrong_entities_are_refused(text: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        parse(text, index_for=("node",))


def test_a_value_is_everything_after_the_first_equals_sign() -> None:
    assert properties(["a=b=c", "d="]) == {"a": "b=c", "d": ""}


@pytest.mark.parametrize("word", ["a", "=b", ""])
def test_wrong_properties_are_refused(word: str) -> None:
    with pytest.raises(BadRequest, match="no assignment"):
        properties([word])


def test_a_property_is_given_once() -> None:
    with pytest.raises(BadRequest, match="given twice"):
        properties(["a=1", "a=2"])


def test_some_properties_are_no_texts() -> None:
    given = {"autoshare": "a,,b", "admin": "yes", "fullname": "yes"}
    assert converted("user", given) == {"autoshare": ["a", "b"], "admin": True, "fullname": "yes"}
    assert converted("user", {"autoshare": "", "admin": "no"}) == {"autoshare": [], "admin": False}
    assert converted("node", {"slots": "8"}) == {"slots": 8}
    with pytest.raises(BadRequest, match="admin=perhaps"):
        converted("user", {"admin": "perhaps"})
    assert CHANGED_NODE["isolation"].choices == ISOLATIONS
    assert converted("node", {"isolation": "none"}) == {"isolation": "none"}
    with pytest.raises(Unreadable, match="isolation=maybe: expected one of auto, sandbox, none"):
        converted("node", {"isolation": "maybe"})


def test_job_numbers_come_alone_in_ranges_and_in_lists() -> None:
    assert job_numbers(["190-192", "job:195", "190,200", "job:7-job:8"]) == [190, 191, 192, 195, 200, 7, 8]


@pytest.mark.parametrize("word", ["x", "1-", "-1", "5-3", "1-999999999", "job:", "1,,2", "²", "9" * 5000, "user:1"])
def test_wrong_job_numbers_are_refused(word: str) -> None:
    with pytest.raises(BadRequest):
        job_numbers([word])
