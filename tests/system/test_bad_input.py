"""What makes no sense gets a clear answer with the right status or exit code, and nothing is half done."""

import http.client
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, User
from tests.conftest import pick_free_port
from tests.serving import PASSWORD, PROGRAMS, Serving


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a service that gave up being root can go."""
    made = Path(tempfile.mkdtemp(prefix="snakepit-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def serve(data: Path, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    """A service that cannot start: what it says, in one line."""
    where = ["--config", os.devnull, "--data", str(data), "--interface", "127.0.0.1", "--port", str(port)]
    done = subprocess.run(
        [str(PROGRAMS / "snakepit"), "serve", *where, *options], capture_output=True, text=True, timeout=120, cwd="/"
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done


def test_a_port_in_use_is_said_and_nothing_is_made(cluster: Cluster, folder: Path) -> None:
    done = serve(folder / "data", cluster.serving.port)
    assert f"cannot listen on 127.0.0.1:{cluster.serving.port}: Address already in use" in done.stderr
    assert not (folder / "data").exists()


def test_a_second_service_on_one_data_root_is_refused(cluster: Cluster, me: User) -> None:
    done = serve(cluster.root, pick_free_port())
    assert f"another service (process {cluster.serving.process.pid}) uses the data root" in done.stderr
    assert me.run("true")["outcome"] == "succeeded"


def test_a_data_root_that_cannot_be_written_is_said(folder: Path) -> None:
    (folder / "file").touch()
    assert "data root" in serve(folder / "file" / "data", pick_free_port()).stderr
    (folder / "private").mkdir(mode=0o700)
    if os.geteuid() == 0:
        done = serve(folder / "private" / "data", pick_free_port())
        assert "cannot be reached by snakepit" in done.stderr
        assert not (folder / "private" / "data").exists()


def test_a_data_root_that_belongs_to_something_else_is_left_alone(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "thesis.tex").write_text("precious")
    if os.geteuid() == 0:
        assert "is not empty" in serve(folder / "data", pick_free_port()).stderr
        assert [path.name for path in (folder / "data").iterdir()] == ["thesis.tex"]


def test_of_two_users_with_one_name_at_once_one_is_registered(cluster: Cluster) -> None:
    def register(index: int) -> int:
        body = {"fullname": f"N {index}", "email": "n@example.org", "password": PASSWORD}
        return raw(cluster, "PUT", "/users/twin", body)[0]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(register, range(8)))
    assert answers.count(200) == 1, answers
    assert all(400 <= status < 500 for status in answers if status != 200), answers


def raw(
    cluster: Cluster, method: str, path: str, body: object = None, token: str = "", **headers: str
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", cluster.serving.port, timeout=120)
    try:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"X-Auth-Token": token, "Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
    finally:
        connection.close()


@pytest.mark.parametrize("token", ["", "x", "A" * 43, "%00", "ä".encode().decode("latin-1"), "x" * 10_000])
def test_a_wrong_token_is_always_401(cluster: Cluster, token: str) -> None:
    for method, path in (("GET", "/jobs"), ("POST", "/jobs"), ("GET", "/users"), ("GET", "/jobs/1/log")):
        status, answer = raw(cluster, method, path, {} if method == "POST" else None, token)
        assert status == 401, (path, answer)
        assert isinstance(answer["message"], str)


def test_huge_bodies_are_refused_while_they_come(cluster: Cluster, me: User) -> None:
    status, answer = raw(cluster, "POST", "/jobs", b'{"description": "' + b"x" * (200 << 20), me.token)
    assert status == 413, answer
    assert me.run("true")["outcome"] == "succeeded"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"description": "T"}',
        b'{"clusterRequest": "[]"}',
        {"description": "", "clusterRequest": "[]"},
        {"description": "x" * 41, "clusterRequest": "[]"},
        {"description": "T", "clusterRequest": 7},
        {"description": "T", "clusterRequest": "[]", "script": ["rm"]},
        {"description": "T", "clusterRequest": "[]", "script": "a\0b"},
        {"description": "T", "clusterRequest": "[]", "colour": "green"},
        {"description": "T", "clusterRequest": "[]", "env": {"A B": "c"}},
        {"description": "T", "clusterRequest": "[]", "env": {"A": 1}},
        {"description": "T", "clusterRequest": "[]", "retries": -1},
        {"description": "T", "clusterRequest": "[]", "timeLimit": "soon"},
        {"description": "T", "clusterRequest": "[]", "until": "sometimes"},
        {"description": "T", "clusterRequest": "[]", "origin": "ext::sh -c whoami"},
        {"description": "T", "clusterRequest": "[]", "origin": "-oProxyCommand=x"},
        {"description": "T", "clusterRequest": "[]", "origin": "https://x/y", "hash": "--upload-pack=x"},
    ],
)
def test_a_submission_that_makes_no_sense_is_a_400_with_words(cluster: Cluster, me: User, body: object) -> None:
    before = len(me.client.jobs())
    status, answer = raw(cluster, "POST", "/jobs", body, me.token)
    assert status == 400, answer
    assert len(answer["message"]) > 5
    assert len(me.client.jobs()) == before


ASKED = (("GET", ""), ("GET", "/log"), ("POST", "/stop"), ("DELETE", ""), ("GET", "/why"))


@pytest.mark.parametrize("job", ["0", "999999", "9" * 30])
def test_a_job_that_is_not_there_is_a_404(cluster: Cluster, me: User, job: str) -> None:
    for method, path in ASKED:
        status, answer = raw(cluster, method, f"/jobs/{job}{path}", None, me.token)
        assert status == 404, (method, path, answer)


@pytest.mark.parametrize("job", ["-1", "x", "1.5", "%2e%2e"])
def test_what_is_no_number_of_a_job_is_a_400(cluster: Cluster, me: User, job: str) -> None:
    for method, path in ASKED:
        status, answer = raw(cluster, method, f"/jobs/{job}{path}", None, me.token)
        assert (status, "Wrong job id format" in answer["message"]) == (400, True), (method, path, answer)


def test_what_continues_nothing_is_refused(cluster: Cluster, me: User) -> None:
    for job in (424242, 2**31, 10**30):
        body = {"description": "T", "clusterRequest": "[]", "continueJob": job}
        assert raw(cluster, "POST", "/jobs", body, me.token)[0] == 404


def test_a_service_whose_database_is_garbage_says_so(folder: Path) -> None:
    serving = Serving.start(pick_free_port())
    try:
        serving.kill()
        database = serving.home / "data" / "snakepit.db"
        for path in serving.home.glob("data/snakepit.db*"):
            path.unlink() if path != database else path.write_bytes(b"garbage" * 10_000)
        done = serve(serving.home / "data", serving.port)
        assert "snakepit.db" in done.stderr
    finally:
        serving.stop()
