"""`pit tensorboard` and `pit jupyter` with the real programs: in jobs that have them, and confined on the head."""

import base64
import contextlib
import json
import re
import subprocess
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import RUNNING, Cluster, User
from tests.forwarding import Running, pit_of, quiet_cluster, running, stop_all
from tests.pitting import Pit
from tests.serving import PROGRAMS
from tests.waiting import wait_until

pytest.importorskip("tensorboard")
LIBRARIES = Path(sysconfig.get_paths()["purelib"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with quiet_cluster() as found:
        if subprocess.run(["test", "-r", str(LIBRARIES / "tensorboard")], user="nobody").returncode != 0:
            pytest.skip(f"{LIBRARIES} cannot be read by the service")
        yield found


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A script that writes real events of TensorBoard below $KEEP_DIR/logs."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = tmp_path_factory.mktemp("events")
    writer = EventFileWriter(str(folder))
    for step in range(3):
        value = Summary.Value(tag="loss", simple_value=1.0 / (step + 1))
        writer.add_event(Event(step=step, wall_time=1000.0 + step, summary=Summary(value=[value])))
    writer.close()
    (file,) = folder.iterdir()
    content = base64.b64encode(file.read_bytes()).decode()
    return f'mkdir -p "$KEEP_DIR/logs"; echo {content} | base64 -d > "$KEEP_DIR/logs/{file.name}"; echo written'


@pytest.fixture
def me(cluster: Cluster) -> User:
    return cluster.user("anna")


@pytest.fixture
def pit(me: User, tmp_path: Path) -> Pit:
    return pit_of(me, tmp_path)


@pytest.fixture
def with_programs(cluster: Cluster) -> Iterator[str]:
    """Jobs see the programs of this environment, but have to say so in their PATH."""
    stop_all(cluster)
    mounts = ",".join(f"{path}:ro" for path in {PROGRAMS.parent, LIBRARIES})
    cluster.admin.call("POST", "/nodes/n0", {"mounts": mounts})
    cluster.is_online()
    yield f"PATH={PROGRAMS}:$PATH; "
    stop_all(cluster)
    cluster.admin.call("POST", "/nodes/n0", {"mounts": ""})


def link(found: Running) -> str:
    text = found.said("Hit Ctrl-C to stop.", 120)
    match = re.search(r"http://localhost:\d+/\S*", text)
    assert match is not None
    return match[0]


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def runs(url: str) -> list[str]:
    """TensorBoard reads what it was given in the background."""
    return sorted(wait_until(lambda: get(url + "data/runs"), 30, "TensorBoard has read the events"))


def boards(folder: Path) -> list[int]:
    """Those that show this directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"tensorboard.main" in words and (path.parent / "root" / "data").samefile(folder):
                found.append(int(path.parent.name))
    return found


def test_a_job_that_ended_is_shown_by_a_tensorboard_on_the_head(pit: Pit, me: User, events: str) -> None:
    job = me.run(events)["id"]
    folder = me.serving.home / "data" / "pits" / str(job)
    with running(pit, "tensorboard", str(job)) as found:
        url = link(found)
        assert runs(url) == ["keep/logs"]
        points = get(f"{url}data/plugin/scalars/scalars?run=keep%2Flogs&tag=loss")
        assert [step for _, step, _ in points] == [0, 1, 2]
        (board,) = boards(folder)
        assert_confined(board, folder)
        assert found.interrupt() == 0
    wait_until(lambda: not boards(folder), 60, "the TensorBoard on the head has ended")


def assert_confined(pid: int, folder: Path) -> None:
    root = Path(f"/proc/{pid}/root")
    assert {path.name for path in (root / "data").iterdir()} == {path.name for path in folder.iterdir()}
    assert not (root / folder.relative_to("/")).exists()
    assert not (root / "home").exists()
    assert not (root / "etc" / "shadow").exists()
    assert Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    status = Path(f"/proc/{pid}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert re.search(r"Uid:\t(?!0\t)", status)


def test_the_browser_is_opened_with_the_link(pit: Pit, me: User, tmp_path: Path) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {seen}.part; mv {seen}.part {seen}\n')
    browser.chmod(0o755)
    job = me.run("true")["id"]
    with running(pit, "tensorboard", str(job), "--open", BROWSER=str(browser)) as found:
        url = link(found)
        wait_until(seen.exists, message="the browser was started")
        assert seen.read_text() == url


def test_several_jobs_are_compared(pit: Pit, me: User, events: str) -> None:
    jobs = [me.run(events)["id"] for _ in range(2)]
    with running(pit, "tensorboard", *map(str, jobs)) as found:
        assert runs(link(found)) == sorted(f"{job}/keep/logs" for job in jobs)
        assert found.interrupt() == 0
    with running(pit, "tensorboard", *map(str, jobs), "--logdir", "keep/logs") as found:
        assert runs(link(found)) == sorted(f"{job}/." for job in jobs)


def test_a_running_job_without_tensorboard_is_shown_by_the_head(pit: Pit, me: User, events: str) -> None:
    job = me.submit(f"{events}; sleep 1000")
    me.says(job, "written")
    with running(pit, "tensorboard", str(job), "--logdir", "keep") as found:
        assert runs(link(found)) == ["logs"]
    me.client.stop(job)


def test_it_runs_in_the_job_that_has_it_and_one_that_runs_there_is_found(
    cluster: Cluster, pit: Pit, me: User, events: str, with_programs: str
) -> None:
    job = me.submit(f"{with_programs}{events}; sleep 1000")
    me.says(job, "written")
    me.reaches(job, RUNNING)
    count = "pgrep -f 'bin/[t]ensorboard' | wc -l"  # not this line itself
    with running(pit, "tensorboard", str(job)) as found:
        url = link(found)
        assert runs(url) == ["keep/logs"]
        assert pit.ok("exec", str(job), "--", "bash", "-c", count).strip() == "1"
        answers_nobody_else(url, pit, job, cluster)
        with running(pit, "tensorboard", str(job)) as second:
            assert link(second).rpartition("/")[0].rpartition("/")[2] == url.rpartition("/")[0].rpartition("/")[2]
            assert runs(link(second)) == ["keep/logs"]
            assert pit.ok("exec", str(job), "--", "bash", "-c", count).strip() == "1"
        assert found.interrupt() == 0
    wait_until(
        lambda: pit.ok("exec", str(job), "--", "bash", "-c", count).strip() == "0", 60, "it ended with the command"
    )
    assert "no directory nowhere" in pit.fails("tensorboard", str(job), "--logdir", "nowhere")
    me.client.stop(job)


def answers_nobody_else(url: str, pit: Pit, job: int, cluster: Cluster) -> None:
    """Jobs share the network of their node: one of somebody else reaches the port, and sees nothing; nor the path."""
    port = pit.ok("exec", str(job), "--", "bash", "-c", "sed -n 's/.*\"port\": *\\([0-9]*\\).*/\\1/p' $TMPDIR/.tens*/*")
    eve = cluster.user("eve")
    ask = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port.strip()}/data/runs').status)"
    other = eve.run(f'python3 -c "{ask}"; cat /proc/[0-9]*/cmdline | tr "\\0" " "')
    assert "HTTP Error 404" in eve.log(other["id"]), eve.log(other["id"])
    secret = re.sub(r"http://localhost:\d+/", "", url).strip("/")
    assert len(secret) >= 32
    assert secret not in eve.log(other["id"])
    assert secret not in str(cluster.admin.call("GET", "/audit")) + cluster.serving.log()


def test_it_ends_with_the_job_it_runs_in(pit: Pit, me: User, with_programs: str) -> None:
    job = me.submit(f"{with_programs}sleep 1000")
    me.reaches(job, RUNNING)
    with running(pit, "tensorboard", str(job)) as found:
        link(found)
        me.client.stop(job)
        assert found.end() == 1
        assert "Command failed:" in found.err[-1]


def test_a_program_of_the_job_cannot_speak_to_the_terminal_of_who_looks(pit: Pit, me: User) -> None:
    program = """#!/usr/bin/python3
from http.server import HTTPServer, SimpleHTTPRequestHandler
server = HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
link = f"http://localhost:{server.server_port}/"
print(link + chr(27) + "]0;title" + chr(7), link + "good/", flush=True)
server.serve_forever()
"""
    where = ".venv/bin/tensorboard"
    job = me.submit(
        f"mkdir -p .venv/bin; cat > {where} <<'END'\n{program}END\nchmod +x {where}; echo there; sleep 1000"
    )
    me.says(job, "there")
    me.reaches(job, RUNNING)
    with running(pit, "tensorboard", str(job)) as found:
        assert link(found).endswith("/good/")
        assert "\x1b" not in "".join(found.out + found.err)
    me.client.stop(job)


def test_what_is_not_there_or_not_allowed_is_refused(cluster: Cluster, pit: Pit, me: User, tmp_path: Path) -> None:
    job = me.run("true")["id"]
    assert "Job not found" in pit.fails("tensorboard", "999")
    for directory in ("../2", "/etc", "a/../.."):
        assert "counts from that of the job" in pit.fails("tensorboard", str(job), "--logdir", directory)
    eve = pit_of(cluster.user("eve"), tmp_path / "eve")
    assert "not shared with you" in eve.fails("tensorboard", str(job))
    assert "Worker not active" in pit.fails("jupyter", str(job))


def test_a_directory_that_is_not_there_is_said_not_to_be(pit: Pit, me: User, events: str) -> None:
    over = me.run(f"{events}; mkdir $SRC_DIR/runs")["id"]
    assert f"There is no directory nope in job {over}" in pit.fails("tensorboard", str(over), "--logdir", "nope")
    runs_on = me.submit("until [ -e $KEEP_DIR/go ]; do sleep 0.05; done; " + events.replace("/logs", "/nope"))
    me.reaches(runs_on, RUNNING)
    with running(pit, "tensorboard", "--head", str(runs_on), "--logdir", "keep/nope") as found:
        url = link(found)
        assert f"There is no directory keep/nope in job {runs_on} yet" in "".join(found.err)
        pit.ok("exec", str(runs_on), "--", "bash", "-c", "touch $KEEP_DIR/go")
        assert runs(url) == ["."]
    for directory in ("keep/logs", "runs"):
        with running(pit, "tensorboard", str(over), "--logdir", directory) as found:
            link(found)
            assert "no directory" not in "".join(found.err)


def test_it_ends_with_the_token(me: User, tmp_path: Path, events: str) -> None:
    job = me.run(events)["id"]
    token = me.call("POST", "/users/~/tokens", {"name": "board"})
    pit = Pit.of(me.serving, tmp_path)
    with running(pit, "tensorboard", str(job), PIT_USER="anna", PIT_TOKEN=token["token"]) as found:
        link(found)
        me.call("DELETE", f"/users/~/tokens/{token['id']}")
        assert found.end() == 1


def test_jupyter_runs_in_the_job_and_its_token_is_no_secret_of_others(pit: Pit, me: User, with_programs: str) -> None:
    pytest.importorskip("jupyter_server")
    job = me.submit(f"{with_programs}touch here.txt; echo ready; sleep 1000")
    me.says(job, "ready")
    me.reaches(job, RUNNING)
    with running(pit, "jupyter", str(job)) as found:
        url, _, token = link(found).partition("?token=")
        assert len(token) >= 32
        names = [one["name"] for one in get(f"{url}api/contents?token={token}")["content"]]
        assert "here.txt" in names
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(f"{url}api/contents")
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                assert token.encode() not in path.read_bytes()
            except OSError:
                continue
        assert token not in me.serving.log()
        assert token not in me.log(job)
        assert found.interrupt() == 0
    look = "pgrep -f [j]upyter; true"
    wait_until(lambda: pit.ok("exec", str(job), "--", "bash", "-c", look) == "", 60, "it ended with the command")
    me.client.stop(job)


def test_a_job_without_jupyter_says_so(pit: Pit, me: User) -> None:
    job = me.submit("sleep 1000")
    me.reaches(job, RUNNING)
    assert "Jupyter is not installed in the job" in pit.fails("jupyter", str(job))
    me.client.stop(job)
