"""Submitting, seeing, stopping, sharing, removing jobs."""

import json
import tarfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.house import House, done, open_house, submit
from tests.waiting import wait_until

DESC = {
    "id", "description", "user", "resources", "state", "date", "since", "schedulePosition", "utilComp", "utilMem",
    "outcome",
}  # fmt: skip


def message(answer: httpx.Response) -> str:
    text: str = answer.json()["message"]
    return text


def post(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/jobs", json={"clusterRequest": "[]", "description": "a job", **body})


def state(client: httpx.Client, job: int) -> int:
    number: int = client.get(f"/jobs/{job}").json()["state"]
    return number


# ----------------------------------------------------------------------------------------------------------- submitting


def test_a_job_runs_and_is_shown_in_the_original_shape(anna: httpx.Client) -> None:
    job = submit(anna, "exit 3", description="First light")
    shown = done(anna, job)
    assert set(shown) >= DESC | {"allocation", "provisioning", "groups", "stateChanges", "processes", "request"}
    assert (shown["description"], shown["user"], shown["resources"]) == ("First light", "anna", "n0[]")
    assert (shown["outcome"], shown["exitCode"], shown["provisioning"]) == ("failed", 3, "Script")
    assert set(shown["since"]) == {"days", "hours", "minutes", "seconds"}
    assert shown["groups"] is False
    assert [change["state"] for change in shown["stateChanges"]] == [0, 2, 3, 4, 6, 7]
    assert [(p["groupIndex"], p["processIndex"], p["status"]) for p in shown["processes"]] == [(0, 0, 3)]
    assert [attempt["number"] for attempt in shown["attempts"]] == [0]
    assert datetime.fromisoformat(shown["date"]).tzinfo is not None
    assert shown["date"].endswith("Z")


def test_a_job_that_succeeds_has_exit_code_0_and_its_result(anna: httpx.Client) -> None:
    shown = done(anna, submit(anna))
    assert (shown["outcome"], shown["exitCode"], shown["processes"][0]["result"]) == ("succeeded", 0, "42")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"clusterRequest": "2[gpu]"}, "2[gpu]\n"),
        ({"clusterRequest": "[0:gpu]"}, "[0:gpu]"),
        ({"clusterRequest": 5}, '"clusterRequest" must be a text'),
        ({"clusterRequest": None}, 'Missing property "clusterRequest"'),
        ({"description": "x" * 41}, "Job title too long (40 characters max)"),
        ({"description": " "}, "The job needs a title"),
        ({"description": "a\x07b"}, '"description" contains a control character'),
        ({"description": "\ud800"}, "surrogate"),
        ({"private": "yes"}, '"private" must be true or false'),
        ({"color": "red"}, 'Unknown property "color"'),
        ({"retries": 1.5}, '"retries" must be a whole number'),
        ({"retries": 10**20}, '"retries" must be from'),
        ({"env": {"A-B": "x"}}, "'A-B' is no name of an environment variable"),
        ({"env": {"JOB_NUMBER": "3"}}, "JOB_NUMBER is set by the scheduler"),
        ({"env": {"A": 5}}, '"env" must be a text'),
        ({"env": []}, '"env" must be an object'),
        ({"timeLimit": "soon"}, '"timeLimit"'),
        ({"until": "some"}, '"until" must be one of all, any'),
        ({"continueJob": "x"}, '"continueJob" must be a job number'),
        ({"origin": "--upload-pack=x"}, "Not an address of a repository"),
        ({"origin": "https://example.org/x", "hash": "; rm"}, '"hash" must be the hash of a commit'),
        ({"origin": "https://example.org/x", "archive": "x"}, "not both"),
        ({"diffBase64": "!"}, "base64"),
    ],
)
def test_bad_input_is_400_and_names_what_is_wrong(anna: httpx.Client, body: dict[str, Any], words: str) -> None:
    whole = {"clusterRequest": "[]", "description": "a job", **body}
    answer = anna.post("/jobs", content=json.dumps(whole))
    assert answer.status_code == 400, answer.text
    assert words in message(answer)


@pytest.mark.parametrize("content", ["{", "[]", '"x"', "[" * 100_000, '{"a": NaN}', "1" * 5000, b"\xff\xfe"])
def test_what_is_no_json_object_is_400(anna: httpx.Client, content: str | bytes) -> None:
    answer = anna.post("/jobs", content=content)
    assert answer.status_code == 400
    assert message(answer)


def test_the_error_of_a_request_points_at_the_character(anna: httpx.Client) -> None:
    assert message(post(anna, clusterRequest="2[gpu]")).splitlines()[-1].strip() == "^"


def test_a_body_over_50_mb_is_refused_before_it_was_sent(house: House, anna: httpx.Client) -> None:
    import socket

    host, port = house.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = f"POST /jobs HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {anna.headers['X-Auth-Token']}\r\n"
        connection.sendall(f"{head}Content-Length: 60000000\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_what_no_node_could_hold_is_406_with_the_reason(anna: httpx.Client) -> None:
    answer = post(anna, clusterRequest="[3:gpu]")
    assert answer.status_code == 406
    assert message(answer).startswith("Cluster cannot fulfill resource request")
    assert "n0" in message(answer)


def test_only_an_own_or_shared_job_can_be_continued(anna: httpx.Client, bob: httpx.Client) -> None:
    job = submit(anna)
    done(anna, job)
    unknown = post(anna, continueJob=999999)
    assert (unknown.status_code, message(unknown)) == (404, "The job to continue is not existing")
    foreign = post(bob, continueJob=job)
    assert (foreign.status_code, message(foreign)) == (403, "Continuing provided job not allowed for current user")
    assert done(anna, submit(anna, continueJob=str(job)))["continueJob"] == job


def test_the_same_idempotency_key_gives_the_same_job(anna: httpx.Client, bob: httpx.Client) -> None:
    key = {"Idempotency-Key": "one-key"}
    body = {"clusterRequest": "[]", "description": "once"}
    first, second = (anna.post("/jobs", json=body, headers=key).json()["id"] for _ in range(2))
    assert first == second
    assert anna.post("/jobs", json={**body, "description": "twice"}, headers=key).status_code == 409
    assert bob.post("/jobs", json=body, headers=key).json()["id"] != first
    assert anna.post("/jobs", json=body, headers={"Idempotency-Key": "a b"}).status_code == 400


def test_credentials_of_an_origin_are_shown_to_nobody(anna: httpx.Client) -> None:
    job = submit(anna, origin="https://me:s3cret@127.0.0.1:1/x.git", hash="abcdef", diff="+a\n-b\n c")
    shown = anna.get(f"/jobs/{job}")
    assert "s3cret" not in shown.text
    expected = "Git commit abcdef from https://127.0.0.1:1/x.git with 2 LoC diff"
    assert shown.json()["provisioning"] == expected
    assert done(anna, job)["outcome"] == "failed"


def test_an_archive_is_taken_from_the_home_at_submit(house: House, anna: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "train.py", "train.py")
    content = (tmp_path / "a.tar.gz").read_bytes()
    assert anna.put("/users/~/simplefs/stats/.upload-x.tar.gz", json={"type": "file"}).status_code == 200
    assert anna.put("/users/~/simplefs/content/.upload-x.tar.gz", content=content).status_code == 200
    key = {"Idempotency-Key": "archive-key"}
    body = {"clusterRequest": "[]", "description": "archive", "archive": ".upload-x.tar.gz"}
    job = anna.post("/jobs", json=body, headers=key).json()["id"]
    assert anna.post("/jobs", json=body, headers=key).json()["id"] == job
    assert anna.delete("/users/~/simplefs/stats/.upload-x.tar.gz").status_code == 200
    shown = done(anna, job)
    assert (shown["outcome"], shown["provisioning"]) == ("succeeded", f"Archive ({len(content)} bytes)")
    assert (house.root / "pits" / str(job) / "src" / "train.py").read_text() == "print(1)"


def test_an_archive_outside_of_the_home_is_403_and_a_missing_one_404(house: House, anna: httpx.Client) -> None:
    home = house.root / "home" / "anna"
    (home / "link").symlink_to("/etc/passwd")
    (home / "out").symlink_to("/etc")
    for name in ("../bob/x", "link", "out/passwd"):
        answer = post(anna, archive=name)
        assert (answer.status_code, message(answer)) == (403, "Archive outside user home"), name
    answer = post(anna, archive="missing.tar.gz")
    assert (answer.status_code, message(answer)) == (404, "Archive not found")
    assert not list((house.root / "inputs").glob(".*"))


def test_rerun_submits_the_same_again(anna: httpx.Client, bob: httpx.Client) -> None:
    job = submit(anna, "exit 5", description="again", env={"A": "b"})
    done(anna, job)
    again = anna.post(f"/jobs/{job}/rerun").json()["id"]
    shown = done(anna, again)
    assert again != job
    assert (shown["description"], shown["exitCode"]) == ("again", 5)
    assert bob.post(f"/jobs/{job}/rerun").status_code == 403
    assert anna.post("/jobs/999999/rerun").status_code == 404


# --------------------------------------------------------------------------------------------------------------- seeing


def test_status_has_what_runs_what_waits_and_what_ended(anna: httpx.Client) -> None:
    wait_until(lambda: not anna.get("/jobs/status").json()["waiting"], message="the jobs of other tests began")
    running = submit(anna, "sleep", clusterRequest="[2:gpu]")
    wait_until(lambda: state(anna, running) == 4)
    waiting = [submit(anna, clusterRequest="[gpu]") for _ in range(2)]
    wait_until(lambda: all(state(anna, job) == 2 for job in waiting))
    status = anna.get("/jobs/status").json()
    assert running in [job["id"] for job in status["running"]]
    assert [(job["id"], job["schedulePosition"]) for job in status["waiting"]] == [(waiting[0], 1), (waiting[1], 2)]
    assert len(status["done"]) <= 20
    assert all(set(job) == DESC for group in status.values() for job in group)
    assert anna.get(f"/jobs/{waiting[1]}/why").json()["reasons"]
    anna.post(f"/jobs/{running}/stop")
    assert [done(anna, job)["outcome"] for job in waiting] == ["succeeded", "succeeded"]


def test_status_waits_for_news_when_asked_to(house: House, anna: httpx.Client) -> None:
    version = anna.get("/jobs/status").headers["x-version"]
    later: list[str] = []

    def poll() -> None:
        answer = httpx.get(
            f"{house.url}/jobs/status?version={version}&timeout=20",
            headers={"X-Auth-Token": anna.headers["X-Auth-Token"]},
            timeout=30,
        )
        later.append(answer.headers["x-version"])

    waiter = threading.Thread(target=poll)
    waiter.start()
    submit(anna)
    waiter.join(60)
    assert later[0] != version
    same = anna.get("/jobs/status").headers["x-version"]
    assert anna.get(f"/jobs/status?version={same}&timeout=0").status_code == 200


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three jobs, ended an hour apart."""
    with open_house(tmp_path_factory.mktemp("listed"), queryLimit=2) as house:
        admin, anna = house.user("root"), house.user("anna")
        for hours, (client, title) in enumerate([(admin, "beta"), (anna, "alpha_1"), (anna, "Alpha 2")]):
            house.later = timedelta(hours=hours)
            done(client, submit(client, description=title))
        yield anna


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [3, 2]),
        ("?limit=1", [3]),
        ("?limit=50", [3, 2]),
        ("?limit=0", []),
        ("?offset=1", [2, 1]),
        ("?asc=date", [1, 2]),
        ("?desc=date", [3, 2]),
        ("?asc=title", [3, 2]),
        ("?desc=title", [1, 2]),
        ("?asc=user&desc=date", [3, 2]),
        ("?desc=user&asc=date", [1, 2]),
        ("?asc=state&asc=date", [1, 2]),
        ("?asc=user,date", [2, 3]),
        ("?user=root", [1]),
        ("?user=nobody", []),
        ("?title=alpha%25", [2]),
        ("?title=alpha_1", [2]),
        ("?title=%25a%25&user=anna", [3, 2]),
    ],
)
def test_lists_can_be_filtered_ordered_and_cut(listed: httpx.Client, query: str, expected: list[int]) -> None:
    assert [job["id"] for job in listed.get(f"/jobs{query}").json()] == expected


def test_since_and_till_work_together(listed: httpx.Client) -> None:
    now = datetime.now(UTC)
    early, middle, late = ((now + timedelta(minutes=m)).isoformat().replace("+", "%2B") for m in (30, 90, 150))

    def ids(query: str) -> list[int]:
        return [job["id"] for job in listed.get(f"/jobs?{query}").json()]

    assert ids(f"since={early}&till={middle}") == [2]
    assert ids(f"since={middle}&till={late}") == [3]
    assert ids(f"till={early}") == [1]
    assert ids("till=2001-02-03") == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("since=yesterday", "Cannot parse query parameter since"),
        ("till=0001-01-01T00:00:00%2B14:00", "Cannot parse query parameter till"),
        ("asc=color", "Cannot parse query parameter asc"),
        ("limit=-1", "Cannot parse query parameter limit"),
        ("offset=x", "Cannot parse query parameter offset"),
        ("color=red", "Unknown query parameter color"),
        ("title=%00", "Cannot parse query parameter title"),
    ],
)
def test_bad_filters_are_400(anna: httpx.Client, query: str, words: str) -> None:
    answer = anna.get(f"/jobs?{query}")
    assert (answer.status_code, message(answer).startswith(words)) == (400, True), answer.text


def test_others_see_that_a_job_is_there_but_no_details(anna: httpx.Client, bob: httpx.Client) -> None:
    job = submit(anna)
    done(anna, job)
    seen = bob.get(f"/jobs/{job}").json()
    assert seen["user"] == "anna"
    assert not {"provisioning", "groups", "stateChanges", "processes", "attempts"} & set(seen)
    assert bob.get(f"/jobs/{job}/log").status_code == 403
    assert bob.post(f"/jobs/{job}/stop").status_code == 403
    assert bob.delete(f"/jobs/{job}").status_code == 403
    assert bob.get(f"/jobs/{job}/simplefs/content/").status_code == 403


@pytest.mark.parametrize("path", ["", "/log", "/why", "/wait", "/simplefs/stats/x"])
def test_unknown_jobs_are_404_and_malformed_numbers_400(anna: httpx.Client, path: str) -> None:
    assert anna.get(f"/jobs/999999{path}").status_code == 404
    for beyond in ("2147483648", "9" * 10, "9" * 30, "9" * 5000):
        answer = anna.get(f"/jobs/{beyond}{path}")
        assert (answer.status_code, answer.json()) == (404, {"message": "Job not found"})
    assert anna.get(f"/jobs/x{path}").status_code == 400


# ------------------------------------------------------------------------------------------ stopping, sharing, removing


def test_a_running_job_can_be_stopped_once_and_then_removed(house: House, anna: httpx.Client) -> None:
    job = submit(anna, "sleep")
    wait_until(lambda: state(anna, job) == 4)
    early = anna.delete(f"/jobs/{job}")
    assert (early.status_code, message(early)) == (412, "Only stopped jobs can be deleted")
    assert anna.post(f"/jobs/{job}/stop").status_code == 200
    shown = done(anna, job)
    assert (shown["outcome"], shown["reason"]) == ("stopped", "Stopped by user anna")
    late = anna.post(f"/jobs/{job}/stop")
    assert (late.status_code, message(late)) == (412, "Only jobs before or in running state can be stopped")
    assert anna.delete(f"/jobs/{job}").status_code == 200
    assert anna.get(f"/jobs/{job}").status_code == 404
    assert not (house.root / "pits" / str(job)).exists()


def test_a_shared_job_can_be_read_by_the_group_but_not_removed(
    admin: httpx.Client, anna: httpx.Client, bob: httpx.Client
) -> None:
    admin.put("/groups/team", json={"title": "Team"})
    job = submit(anna)
    done(anna, job)
    assert anna.put(f"/jobs/{job}/groups/unknown").status_code == 404
    assert anna.put(f"/jobs/{job}/groups/team").status_code == 403  # not hers
    for user in ("anna", "bob"):
        admin.put(f"/users/{user}/groups/team")
    assert anna.put(f"/jobs/{job}/groups/team").status_code == 200
    assert anna.get(f"/jobs/{job}").json()["groups"] == ["team"]
    assert bob.get(f"/jobs/{job}/log").status_code == 200
    assert bob.delete(f"/jobs/{job}").status_code == 403
    assert bob.put(f"/jobs/{job}/groups/team").status_code == 403
    assert anna.delete(f"/jobs/{job}/groups/team").status_code == 200
    assert bob.get(f"/jobs/{job}/log").status_code == 403


def test_autoshare_shares_every_new_job_that_is_not_private(admin: httpx.Client, anna: httpx.Client) -> None:
    from tests.service.house import PASSWORD

    admin.put("/groups/auto", json={"title": "Auto"})
    admin.put("/users/anna/groups/auto")
    wrong = anna.post("/users/~", json={"verification": PASSWORD, "autoshare": ["nowhere"]})
    assert wrong.status_code == 404
    assert anna.post("/users/~", json={"verification": PASSWORD, "autoshare": ["auto"]}).status_code == 200
    assert anna.get(f"/jobs/{submit(anna)}").json()["groups"] == ["auto"]
    assert anna.get(f"/jobs/{submit(anna, private=True)}").json()["groups"] is False
    assert anna.post("/users/~", json={"verification": PASSWORD, "autoshare": []}).status_code == 200
    assert anna.get(f"/jobs/{submit(anna)}").json()["groups"] is False


# ------------------------------------------------------------------------------------------------------------------ log


def test_a_follower_sees_every_line_once_and_ends_with_the_job(house: House, anna: httpx.Client) -> None:
    job = submit(anna, "say 5000")
    with anna.stream("GET", f"/jobs/{job}/log") as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        text = "".join(answer.iter_text())
    numbers = [int(line.rsplit(" ", 1)[1]) for line in text.splitlines() if "] line " in line]
    assert numbers == list(range(5000))
    assert anna.get(f"/jobs/{job}/log").text == text
    assert anna.get(f"/jobs/{job}/log?lines=2").text.splitlines() == text.splitlines()[-2:]
    assert anna.get(f"/jobs/{job}/log?offset=100").content == text.encode()[100:]
    assert anna.get(f"/jobs/{job}/log?lines=0").text == ""
    assert anna.get(f"/jobs/{job}/log?follow=perhaps").status_code == 400


def test_without_follow_the_log_of_a_running_job_ends_at_once(anna: httpx.Client) -> None:
    job = submit(anna, "sleep")
    wait_until(lambda: "started" in anna.get(f"/jobs/{job}/log?follow=0").text)
    assert anna.head(f"/jobs/{job}/log").status_code == 200
    anna.post(f"/jobs/{job}/stop")


def test_a_follower_that_does_not_read_holds_up_nobody(house: House, anna: httpx.Client) -> None:
    job = submit(anna, "sleep")
    wait_until(lambda: state(anna, job) == 4)
    with house.user("anna").stream("GET", f"/jobs/{job}/log"):  # opened, never read
        assert anna.get("/hello").status_code == 200
        other = submit(anna, "say 20000")
        assert done(anna, other)["outcome"] == "succeeded"
        assert len(anna.get(f"/jobs/{other}/log").content) > 500_000
    anna.post(f"/jobs/{job}/stop")
    done(anna, job)


def test_stopping_the_service_cuts_streams_and_long_polls_at_once(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        admin = house.user("root")
        job = submit(admin, "sleep")
        wait_until(lambda: state(admin, job) == 4)
        with admin.stream("GET", f"/jobs/{job}/log") as answer:
            house.events.call_soon_threadsafe(house.stop)
            with pytest.raises(httpx.RemoteProtocolError):  # cut, not ended: nobody takes it for the end of the job
                answer.read()
