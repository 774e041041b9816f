"""A node that goes and comes: offline in time, jobs survive, and what is lost is called lost, never anything else."""

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from snakepit.engines import agent_client
from snakepit.errors import BadRequest
from snakepit.loop import nodes
from tests.cluster import RUNNING, WAITING, Cluster, User, running_cluster
from tests.processes import family
from tests.waiting import wait_until

UNTIL_GO = "echo up; until [ -e $KEEP_DIR/go ]; do sleep 0.05; done; echo over; exit {code}"


def state_dir(cluster: Cluster) -> Path:
    return cluster.root / "nodes" / "n0"


def records(cluster: Cluster) -> dict[Path, dict[str, Any]]:
    return {path: json.loads(path.read_text()) for path in state_dir(cluster).glob("procs/*/record")}


def power_cut(cluster: Cluster) -> None:
    """Everything that runs for this cluster ends at once: the service, the agent, the holders, the jobs."""
    cluster.serving.kill()
    for pid in cluster.serving.agents():
        os.kill(pid, signal.SIGKILL)
    for record in records(cluster).values():
        if record["phase"] == "running":
            for pid in reversed(family(record["pid"])):
                with contextlib.suppress(ProcessLookupError):  # it went with one before it
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda record=record: gone(record["pid"]))  # type: ignore[misc]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def unblock(cluster: Cluster, number: int) -> None:
    (cluster.pit(number) / "keep" / "go").touch()


def test_an_agent_out_of_reach_makes_the_node_offline_and_its_jobs_survive(cluster: Cluster, me: User) -> None:
    number = me.submit(UNTIL_GO.format(code=3), "[gtx1070]")
    me.says(number, "up")
    [agent] = cluster.serving.agents()
    state_dir(cluster).chmod(0)
    try:
        os.kill(agent, signal.SIGKILL)
        cluster.is_online(False, 60)
        assert me.state(number) == RUNNING
        waiting = me.submit("true", "[gtx1070]")
        me.reaches(waiting, WAITING)
        wait_until(lambda: any("offline" in reason.lower() for reason in me.client.why(waiting)))
    finally:
        state_dir(cluster).chmod(0o700)
    cluster.is_online(True, 60)
    assert me.done(waiting)["outcome"] == "succeeded"
    assert me.state(number) == RUNNING
    unblock(cluster, number)
    assert me.done(number)["exitCode"] == 3
    assert me.log(number).count("[worker 0] over") == 1
    assert len(me.codes(number)) == 1


def test_what_a_silent_agent_is_given_is_less_than_the_time_in_which_states_are_true() -> None:
    assert agent_client.QUIET_S + agent_client.PATIENCE_S + nodes.OFFLINE_AFTER_S < 15


def test_an_agent_that_hangs_makes_the_node_offline(cluster: Cluster, me: User) -> None:
    number = me.submit(UNTIL_GO.format(code=0), "[gtx1070]")
    me.says(number, "up")
    [agent] = cluster.serving.agents()
    os.kill(agent, signal.SIGSTOP)
    try:
        cluster.is_online(False, 60)
        assert me.state(number) == RUNNING
    finally:
        os.kill(agent, signal.SIGCONT)
    cluster.is_online(True, 60)
    unblock(cluster, number)
    assert me.done(number)["outcome"] == "succeeded"


def test_a_reboot_loses_what_ran_and_says_so(cluster: Cluster, me: User) -> None:
    lost = me.submit(UNTIL_GO.format(code=0), "[gtx1070]")
    again = me.submit("echo $ATTEMPT >> $KEEP_DIR/runs; echo up; [ $ATTEMPT = 1 ] || sleep 1000", onNodeLoss="rerun")
    kept = me.submit("true", "[4:gtx1070]")
    for number in (lost, again):
        me.says(number, "[worker 0] up")
        me.reaches(number, RUNNING)
    me.reaches(kept, WAITING)
    power_cut(cluster)
    for path, record in records(cluster).items():
        path.write_text(json.dumps({**record, "boot": "before"}))
    cluster.serving.start_again()
    job = me.done(lost)
    assert (job["outcome"], job["processes"][0]["cause"], job["processes"][0]["status"]) == ("lost", "lost", "?")
    assert job["reason"] == "worker 0 was lost: the node was restarted while it ran"
    assert me.done(kept)["outcome"] == "succeeded"
    assert me.done(again)["outcome"] == "succeeded"
    assert (cluster.pit(again) / "keep" / "runs").read_text() == "0\n1\n"
    assert [attempt["outcome"] for attempt in me.job(again)["attempts"]] == ["lost", "succeeded"]


def test_an_agent_without_its_memory_loses_what_ran(cluster: Cluster, me: User) -> None:
    lost = me.submit(UNTIL_GO.format(code=0), "2:[gtx1070]")
    again = me.submit("[ $ATTEMPT = 1 ] || { echo up; sleep 1000; }", onNodeLoss="rerun")
    me.says(lost, "[worker 1] up")
    me.says(again, "[worker 0] up")
    for number in (lost, again):
        me.reaches(number, RUNNING)
    power_cut(cluster)
    shutil.rmtree(state_dir(cluster))
    cluster.serving.start_again()
    job = me.done(lost)
    assert job["outcome"] == "lost"
    assert job["reason"] == "worker 0 was lost: n0: the node lost its memory of it"
    assert [process["status"] for process in job["processes"]] == ["?", "?"]
    assert me.done(again)["outcome"] == "succeeded"
    assert me.run("true", "[4:gtx1070]")["outcome"] == "succeeded"


def test_jobs_outlive_a_stop_of_the_service(cluster: Cluster, me: User) -> None:
    number = me.submit(UNTIL_GO.format(code=7))
    me.says(number, "up")
    cluster.serving.process.terminate()
    assert cluster.serving.process.wait(30) == 0
    unblock(cluster, number)
    cluster.serving.start_again()
    assert me.done(number)["exitCode"] == 7
    assert me.log(number).count("[worker 0] over") == 1


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"endpoint": "local:", "resources": "0:cards"}, "cannot read the resource"),
        ({"endpoint": "local:", "isolation": "perhaps"}, "isolation"),
        ({"endpoint": "local:", "mounts": "../etc:rw"}, "a mount is written /path:ro"),
        ({"endpoint": "local:"}, "local: is node n0 already"),
        ({"endpoint": "gopher://x"}, "no engine for the endpoint"),
        ({"endpoint": ""}, "no engine for the endpoint"),
        ({"resources": "1:X"}, "endpoint"),
        ({"endpoint": "local:", "colour": "green"}, "colour"),
    ],
)
def test_a_node_that_makes_no_sense_is_refused(
    cluster: Cluster, me: User, properties: dict[str, str], says: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        me.call("PUT", "/nodes/n9", properties)
    assert says in refused.value.message
    assert me.call("GET", "/nodes") == ["n0"]


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"resources": "two: cards"}, "two: cards"),
        ({"mounts": "etc"}, "a mount is written /path:ro"),
        ({"mounts": "/tmp:ro,/no/such/place"}, "mounts: /no/such/place is not there"),
        ({"isolation": "perhaps"}, "isolation"),
        ({"slots": -1}, "slots"),
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(
    cluster: Cluster, me: User, properties: dict[str, object], says: str
) -> None:
    before = cluster.node()["resources"]
    with pytest.raises(BadRequest) as refused:
        me.call("POST", "/nodes/n0", properties)
    assert says in refused.value.message
    assert cluster.node()["resources"] == before
    assert me.run("true", "[4:gtx1070]")["outcome"] == "succeeded"


def test_a_node_that_is_removed_keeps_no_agent_and_can_come_again() -> None:
    with running_cluster() as cluster:
        me = cluster.admin
        me.run("echo before")
        (agent,) = cluster.serving.agents()
        ready = family(agent)
        assert len(ready) > 1
        me.call("DELETE", "/nodes/n0")
        wait_until(lambda: all(gone(pid) for pid in ready), 60, "the agent and what stood ready are gone")
        me.call("PUT", "/nodes/n0", {"endpoint": "local:"})
        assert me.run("echo after")["exitCode"] == 0
