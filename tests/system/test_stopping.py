"""Stopping a job in every state; preparations that hang, last too long, or stand in each other's way."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from snakepit.errors import WrongState
from tests.cluster import NEW, PREPARING, RUNNING, STARTING, STOPPING, WAITING, Cluster, User, running_cluster
from tests.waiting import wait_until


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listening:
        yield listening


@pytest.fixture
def hanging(server: socket.socket) -> str:
    """An origin that takes calls and never says a word."""
    return f"git://127.0.0.1:{server.getsockname()[1]}/repository"


def stops(user: User, number: int, cluster: Cluster) -> None:
    user.client.stop(number)
    job = user.done(number)
    assert (job["outcome"], job["reason"]) == ("stopped", f"Stopped by user {user.name}")
    with pytest.raises(WrongState, match="Only jobs before or in running state can be stopped"):
        user.client.stop(number)
    assert not list((cluster.root / "pits").glob(f".prep-{number}*"))


def test_while_it_is_prepared(cluster: Cluster, me: User, hanging: str) -> None:
    number = me.submit("true", origin=hanging)
    me.reaches(number, PREPARING)
    assert me.client.why(number) == ["its code is being prepared"]
    stops(me, number, cluster)


def test_before_it_is_prepared(cluster: Cluster, me: User, hanging: str) -> None:
    first = [me.submit("true", origin=hanging) for _ in range(2)]
    for number in first:
        me.reaches(number, PREPARING)
    last = me.submit("true", origin=hanging)
    wait_until(lambda: me.client.why(last) == ["waits for its preparation: 2 can run at a time"])
    assert me.state(last) == NEW
    for number in (last, *first):
        stops(me, number, cluster)


def test_at_any_moment_of_its_preparation(cluster: Cluster, me: User, hanging: str) -> None:
    """While the sandbox is being made, too: no program stays behind."""
    for _ in range(15):
        number = me.submit("true", origin=hanging)
        wait_until(lambda number=number: me.state(number) == PREPARING)  # type: ignore[misc]
        stops(me, number, cluster)
    wait_until(lambda: not programs_about(hanging), message="git is stopped")


def test_while_it_waits(cluster: Cluster, me: User) -> None:
    me.call("POST", "/nodes/n0/drain", {})
    try:
        number = me.submit("true", "[gtx1070]")
        me.reaches(number, WAITING)
        stops(me, number, cluster)
    finally:
        me.call("POST", "/nodes/n0/resume", {})


def test_while_it_starts(cluster: Cluster, me: User) -> None:
    """The agent takes its time: it is held."""
    [agent] = cluster.serving.agents()
    os.kill(agent, signal.SIGSTOP)
    try:
        number = me.submit("echo never", "[gtx1070]")
        me.reaches(number, STARTING)
        me.client.stop(number)
        assert me.state(number) == STOPPING
    finally:
        os.kill(agent, signal.SIGCONT)
    job = me.done(number)
    assert (job["outcome"], job["reason"]) == ("stopped", "Stopped by user tilman")
    assert "[worker 0] never" not in me.log(number)
    assert me.run("true", "[4:gtx1070]")["outcome"] == "succeeded"


def test_while_it_runs(cluster: Cluster, me: User) -> None:
    number = me.submit("echo up; sleep 1000", "2:[2:gtx1070]")
    me.says(number, "up")
    me.reaches(number, RUNNING)
    stops(me, number, cluster)
    assert me.run("true", "[4:gtx1070]")["outcome"] == "succeeded"


def test_at_once_after_it_was_submitted(cluster: Cluster, me: User) -> None:
    for request in ("[]", "[gtx1070]", "2:[2:gtx1070]") * 5:
        number = me.submit("sleep 1000", request)
        stops(me, number, cluster)
    assert me.run("true", "[4:gtx1070]")["outcome"] == "succeeded"


def test_twice_at_once_is_said_to_be_too_late(cluster: Cluster, me: User) -> None:
    number = me.submit("trap '' TERM; echo up; until [ -e $KEEP_DIR/go ]; do sleep 0.05; done; exit 0")
    me.says(number, "up")
    me.client.stop(number)
    with pytest.raises(WrongState):
        me.client.stop(number)
    (cluster.pit(number) / "keep" / "go").touch()
    assert me.done(number)["outcome"] == "stopped"


def test_one_user_does_not_take_every_preparation_from_others(cluster: Cluster, me: User, hanging: str) -> None:
    greedy = [me.submit("true", origin=hanging) for _ in range(4)]
    for number in greedy[:2]:
        me.reaches(number, PREPARING)
    other = cluster.user("other")
    theirs = other.submit("true", origin=hanging)
    assert me.run("true")["outcome"] == "succeeded"  # nothing to fetch: takes nobody's place
    stops(me, greedy[0], cluster)
    other.reaches(theirs, PREPARING)
    assert me.state(greedy[2]) == NEW
    for number in greedy[1:]:
        stops(me, number, cluster)
    stops(other, theirs, cluster)


def test_a_preparation_that_takes_too_long_fails_the_job(hanging: str) -> None:
    with running_cluster(config="maxPrepDuration: 1s\n", gpus="") as cluster:
        job = cluster.admin.run("true", origin=hanging)
        assert (job["outcome"], job["reason"]) == ("failed", "Preparation took longer than the 1 s it may take")
        assert not list((cluster.root / "pits").glob(".prep-*"))


def test_what_cannot_be_cloned_fails_the_job_and_says_why(me: User) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        job = me.run("true", origin=f"git://127.0.0.1:{nobody.getsockname()[1]}/x")
    assert (job["outcome"], job["exitCode"]) == ("failed", 1)
    assert "refused" in job["reason"]
    assert "[prepare]" in me.log(job["id"])


def test_a_service_killed_while_it_prepares_leaves_no_program_and_begins_again(
    cluster: Cluster, me: User, server: socket.socket, hanging: str
) -> None:
    server.settimeout(30)
    number = me.submit("true", origin=hanging)
    call, _ = server.accept()
    cluster.serving.kill()
    wait_until(lambda: not programs_about(hanging), message="git went with its service")
    cluster.serving.start_again()
    call.close()
    call, _ = server.accept()
    assert me.state(number) == PREPARING
    stops(me, number, cluster)
    wait_until(lambda: not programs_about(hanging), message="git is stopped")
    call.close()


def programs_about(text: str) -> list[Path]:
    """Processes that have this in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(path)
    return found
