"""What holds for every route: errors have words, methods are known, OpenAPI is true, fuzzers see no server error."""

import logging
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS
from schemathesis.core.result import Ok

from snakepit.service.api.openapi import document
from snakepit.service.api.routes import ROUTES
from tests.service.house import House


def test_unknown_addresses_and_methods_have_words(house: House) -> None:
    unknown = house.client.get("/nowhere")
    assert (unknown.status_code, unknown.json()["message"]) == (404, "There is nothing at this address")
    wrong = house.client.patch("/jobs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    assert wrong.json()["message"]
    assert house.client.get("/jobs/").status_code == 404


def test_options_tell_the_methods_and_head_has_no_body(house: House, anna: httpx.Client) -> None:
    options = house.client.options("/users/anna")
    assert (options.status_code, options.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, POST, PUT")
    head = anna.head("/jobs")
    assert (head.status_code, head.content) == (200, b"")


def test_an_error_of_ours_is_a_500_with_an_id_and_without_a_traceback(
    house: House, anna: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    original = house.service.loop.why
    house.service.loop.why = lambda job: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    try:
        job = anna.post("/jobs", json={"clusterRequest": "[]", "description": "x"}).json()["id"]
        with caplog.at_level(logging.ERROR, "snakepit.http"):
            answer = anna.get(f"/jobs/{job}/why")
    finally:
        house.service.loop.why = original  # type: ignore[method-assign]
    assert answer.status_code == 500
    assert "ZeroDivisionError" not in answer.text
    id = answer.json()["message"].split()[2].rstrip(":")
    assert f"error {id}" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_openapi_describes_every_route_once(house: House) -> None:
    served = house.client.get("/openapi.json").json()
    assert served["openapi"].startswith("3.")
    assert sum(len(methods) for methods in served["paths"].values()) == len(ROUTES)
    names = [one["operationId"] for methods in served["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names)


def test_the_docs_page_names_every_route_and_fetches_nothing_from_elsewhere(house: House) -> None:
    page = house.client.get("/docs")
    assert page.status_code == 200
    assert page.text.count("<tr>") == len(ROUTES)
    assert "http" not in page.text.replace("HTTP", "")


SCHEMA = schemathesis.openapi.from_dict(document(ROUTES))
EXAMPLES = 10


def operations() -> list[Any]:
    """All but those that would sign the fuzzer out: their own tests know them."""
    found = [result.ok() for result in SCHEMA.get_all_operations() if isinstance(result, Ok)]
    return [
        operation
        for operation in found
        if not operation.path.endswith("/logout")
        and not (operation.label.startswith("DELETE") and operation.path.startswith("/users/{user}"))
    ]


@pytest.mark.system  # it searches for long
@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_nothing_a_fuzzer_sends_is_a_server_error(house: House, admin: httpx.Client, operation: Any) -> None:
    server_error = CHECKS.get_one("not_a_server_error")

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def fuzz(case: Any) -> None:
        case.headers = {**(case.headers or {}), "X-Auth-Token": admin.headers["X-Auth-Token"]}
        if "timeout" in (case.query or {}):
            case.query["timeout"] = 0
        if case.path.endswith("/log"):
            case.query = {**(case.query or {}), "follow": 0}
        answer = case.call(base_url=house.url)
        case.validate_response(answer, checks=[server_error])

    given(case=operation.as_strategy())(fuzz)()
