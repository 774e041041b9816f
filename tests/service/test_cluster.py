"""Nodes, their resources' groups, aliases."""

import asyncio
from pathlib import Path

import httpx
import pytest

from snakepit.core.job import State
from snakepit.errors import Unavailable
from snakepit.store import jobs, nodes
from snakepit.store.rows import JobInput, NewJob, new_row
from tests.service.house import House, done, open_house, submit
from tests.waiting import wait_until


def message(answer: httpx.Response) -> str:
    text: str = answer.json()["message"]
    return text


def test_a_node_is_shown_with_its_resources(anna: httpx.Client) -> None:
    assert anna.get("/nodes").json() == ["n0"]
    node = anna.get("/nodes/n0").json()
    assert (node["id"], node["endpoint"], node["drained"]) == ("n0", "local:", False)
    assert wait_until(lambda: anna.get("/nodes/n0").json()["online"])
    assert [(r["type"], r["name"], r["index"]) for r in node["resources"]] == [
        ("cuda", "GeForce GTX 1070", 0),
        ("cuda", "GeForce GTX 1070", 1),
    ]
    assert anna.get("/nodes/n9").status_code == 404
    assert anna.get("/nodes/N9").status_code == 400


def test_only_admins_change_nodes(anna: httpx.Client) -> None:
    for method, path, body in (
        ("PUT", "/nodes/n1", {"endpoint": "local:"}),
        ("POST", "/nodes/n0", {"slots": 3}),
        ("DELETE", "/nodes/n0", None),
        ("POST", "/nodes/n0/drain", {}),
        ("POST", "/nodes/n0/resume", None),
        ("PUT", "/nodes/n0/groups/x", None),
    ):
        assert anna.request(method, path, json=body).status_code == 403, path


def test_a_node_is_not_added_twice_and_never_as_head(admin: httpx.Client) -> None:
    twice = admin.put("/nodes/n0", json={"endpoint": "local:"})
    assert (twice.status_code, message(twice)) == (400, "Node with same id already registered")
    same_machine = admin.put("/nodes/n1", json={"endpoint": "local:/"})
    assert (same_machine.status_code, "local:/ is node n0 already" in message(same_machine)) == (400, True)
    assert admin.put("/nodes/head", json={"endpoint": "local:"}).status_code == 400
    assert admin.put("/nodes/n1", json={}).status_code == 400
    assert admin.put("/nodes/n1", json={"endpoint": "local:", "isolation": "some"}).status_code == 400


def test_a_drained_node_starts_nothing_until_it_resumes(admin: httpx.Client, anna: httpx.Client) -> None:
    assert admin.post("/nodes/n0/drain", json={"reason": "new cooling"}).status_code == 200
    assert anna.get("/nodes/n0").json()["drainReason"] == "new cooling"
    job = submit(anna)
    wait_until(lambda: anna.get(f"/jobs/{job}").json()["state"] == 2)
    assert any("n0" in reason for reason in anna.get(f"/jobs/{job}/why").json()["reasons"])
    assert admin.post("/nodes/n0/resume").status_code == 200
    assert done(anna, job)["outcome"] == "succeeded"
    assert admin.post("/nodes/n9/drain", json={}).status_code == 404


def test_properties_of_a_node_can_be_set(admin: httpx.Client) -> None:
    assert admin.post("/nodes/n0", json={"slots": 3}).status_code == 200
    assert admin.get("/nodes/n0").json()["slots"] == 3
    assert "mounts" not in admin.get("/nodes/n0").json()
    assert admin.post("/nodes/n0", json={"mounts": "/usr:ro"}).status_code == 200
    assert admin.get("/nodes/n0").json()["mounts"] == "/usr:ro"
    assert admin.post("/nodes/n0", json={"colour": "red"}).status_code == 400
    assert admin.post("/nodes/n9", json={"slots": 3}).status_code == 404


def test_the_configured_slots_count_for_nodes_that_say_nothing(tmp_path: Path) -> None:
    with open_house(tmp_path, node=False, slots=3) as house:
        admin = house.user("root")
        admin.put("/nodes/a", json={"endpoint": "local:"})
        admin.put("/nodes/b", json={"endpoint": "another:", "slots": 5})
        assert [admin.get(f"/nodes/{node}").json()["slots"] for node in "ab"] == [3, 5]


def test_an_alias_names_a_model(admin: httpx.Client, anna: httpx.Client) -> None:
    assert anna.put("/aliases/gtx", json={"name": "GeForce GTX 1070"}).status_code == 403
    assert admin.put("/aliases/gtx", json={"name": "GeForce GTX 1070"}).status_code == 200
    again = admin.put("/aliases/gtx", json={"name": "GeForce GTX 1070"})
    assert (again.status_code, message(again)) == (400, "Alias already existing")
    other = admin.put("/aliases/other", json={"name": "GeForce GTX 1070"})
    assert (other.status_code, "already has the alias" in message(other)) == (400, True)
    assert admin.put("/aliases/gpu", json={"name": "x"}).status_code == 400
    assert admin.put("/aliases/empty", json={}).status_code == 400
    assert anna.get("/aliases").json() == ["gtx"]
    assert anna.get("/aliases/gtx").json() == {"id": "gtx", "name": "GeForce GTX 1070"}
    assert anna.get("/nodes/n0").json()["resources"][0]["alias"] == "gtx"
    assert done(anna, submit(anna, clusterRequest="[2:gtx]"))["resources"] == "n0[cuda 0-1]"
    assert admin.post("/aliases/gtx", json={"name": "RTX 9"}).status_code == 200
    assert anna.post("/jobs", json={"clusterRequest": "[gtx]", "description": "x"}).status_code == 406
    assert admin.delete("/aliases/gtx").status_code == 200
    for method in ("GET", "DELETE"):
        assert admin.request(method, "/aliases/gtx").status_code == 404
    assert admin.post("/aliases/gtx", json={"name": "x"}).status_code == 404


def test_restricted_resources_are_for_members_only(house: House, admin: httpx.Client, anna: httpx.Client) -> None:
    admin.put("/groups/lab", json={"title": "Lab"})
    both, one = {"clusterRequest": "[2:gpu]", "description": "x"}, {"clusterRequest": "[gpu]", "description": "x"}
    assert admin.put("/nodes/n0/resources/1/groups/lab").status_code == 200
    assert [r.get("groups") for r in anna.get("/nodes/n0").json()["resources"]] == [None, ["lab"]]
    assert anna.post("/jobs", json=both).status_code == 406
    assert anna.post("/jobs", json=one).status_code == 200
    admin.put("/users/anna/groups/lab")
    assert anna.post("/jobs", json=both).status_code == 200
    assert admin.put("/nodes/n0/groups/lab").status_code == 200
    assert all(r["groups"] == ["lab"] for r in anna.get("/nodes/n0").json()["resources"])
    assert admin.delete("/nodes/n0/groups/lab").status_code == 200
    assert admin.delete("/nodes/n0/resources/1/groups/lab").status_code == 200
    missing = admin.put("/nodes/n0/resources/9/groups/lab")
    assert (missing.status_code, message(missing)) == (404, "Resource not found")
    assert admin.put("/nodes/n0/resources/x/groups/lab").status_code == 400
    assert admin.put("/nodes/n0/groups/unknown").status_code == 404


def test_a_removed_node_is_gone(admin: httpx.Client, anna: httpx.Client) -> None:
    def at_rest() -> bool:
        status = anna.get("/jobs/status").json()
        return not status["running"] + status["waiting"]

    wait_until(at_rest)
    assert admin.delete("/nodes/n0").status_code == 200
    assert anna.get("/nodes").json() == []
    assert admin.delete("/nodes/n0").status_code == 404
    assert anna.post("/jobs", json={"clusterRequest": "[]", "description": "x"}).status_code == 406


def test_a_job_that_comes_while_its_node_goes_is_not_begun_there(tmp_path: Path) -> None:
    async def come_and_go() -> int:
        service, now, new = house.service, house.now(), NewJob("root", "a job", "[]", script="sleep")
        job, _ = await service.store.write(jobs.insert, new, now, "", State.WAITING)
        going = asyncio.ensure_future(service.loop.remove_node("n0"))
        await asyncio.sleep(0)
        service.loop.submitted(new_row(job, new, State.WAITING, now), JobInput("sleep", "", "", b"", ""))
        await going
        return job

    with open_house(tmp_path) as house:
        admin = house.user("root")
        job = asyncio.run_coroutine_threadsafe(come_and_go(), house.events).result(60)
        assert admin.get("/nodes").json() == []
        shown = admin.get(f"/jobs/{job}").json()
        assert (shown["attempts"], shown["state"] in (State.WAITING, State.DONE)) == ([], True)


def test_a_change_that_cannot_be_written_down_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise Unavailable("The disk is full")

    with open_house(tmp_path) as house:
        admin = house.user("root")
        wait_until(lambda: admin.get("/nodes/n0").json()["online"])
        with monkeypatch.context() as broken:
            broken.setattr(nodes, "set_inventory", full)
            assert admin.post("/nodes/n0", json={"slots": 3}).status_code == 503
        assert admin.get("/nodes/n0").json()["slots"] != 3
        job = submit(admin)
        wait_until(lambda: admin.get(f"/jobs/{job}").json()["state"] == State.DONE)
        assert admin.get(f"/jobs/{job}").json()["outcome"] == "succeeded"
