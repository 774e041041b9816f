"""`pit run --interactive`: waits with its reason, is a shell, and ends however the shell ends."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from snakepit.pit.interactive import LOOK_S, SCRIPT
from tests.cluster import DONE, GPUS, RUNNING, WAITING, Cluster, User, running_cluster
from tests.forwarding import pit_of, stop_all
from tests.pitting import Pit


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(gpus=GPUS) as found:
        yield found
        stop_all(found)


@pytest.fixture
def pit(me: User, tmp_path: Path) -> Pit:
    return pit_of(me, tmp_path)


def newest(me: User) -> int:
    return int(me.client.jobs(limit=1, desc="date")[0]["id"])


def test_a_shell_opens_in_the_job_and_ends_it(pit: Pit, me: User) -> None:
    with pit.terminal("run", "--interactive", "--script-only", "[2:gtx1070]") as terminal:
        terminal.expect("Job number: ")
        job = int(terminal.expect("\n"))
        assert terminal.expect("$ ").count("Waiting: it is being started\n") <= 1
        assert "Waiting: is" not in terminal.shown
        terminal.type("echo GPUs: $CUDA_VISIBLE_DEVICES. in $JOB_NUMBER.; tty; echo $0\n")
        assert len(terminal.expect(f". in {job}.").rpartition("GPUs: ")[2].split(",")) == 2
        terminal.expect("/dev/pts/")
        terminal.expect("bash")
        assert me.state(job) == RUNNING
        assert me.job(job)["description"] == "Interactive"
        terminal.type("exit 3\n")
        terminal.expect(f"Job {job} has ended.")
        assert terminal.end() == 3
    assert me.job(job)["state"] == DONE
    assert me.job(job)["outcome"] == "succeeded"


def test_the_reason_is_shown_while_it_waits_and_ctrl_c_takes_it_back(pit: Pit, me: User) -> None:
    other = me.submit("sleep 1000", "[4:gtx1070]")
    me.reaches(other, RUNNING)
    with pit.terminal("run", "-i", "-s", "Look", "[gtx1070]") as terminal:
        terminal.expect("Job number: ")
        job = int(terminal.expect("\n"))
        terminal.expect("Waiting: ")
        terminal.expect("gtx1070")
        assert me.state(job) == WAITING
        terminal.interrupt()
        terminal.expect(f"Stopped job {job}.")
        assert terminal.end() == 130
    me.done(job)
    assert me.job(job)["outcome"] == "stopped"
    me.client.stop(other)
    me.done(other)


def test_ctrl_c_in_the_queue_ends_it_at_once(pit: Pit, me: User) -> None:
    other = me.submit("sleep 1000", "[4:gtx1070]")
    me.reaches(other, RUNNING)
    with pit.terminal("run", "-i", "-s", "[gtx1070]") as terminal:
        terminal.expect("Job number: ")
        job = int(terminal.expect("\n"))
        terminal.expect("Waiting: ")
        terminal.interrupt()
        terminal.expect(f"Stopped job {job}.", timeout_s=LOOK_S * 0.8)
        assert terminal.end() == 130
    assert me.done(job)["outcome"] == "stopped"
    me.client.stop(other)
    me.done(other)


def test_it_starts_when_its_turn_comes(pit: Pit, me: User) -> None:
    other = me.submit("sleep 1000", "[4:gtx1070]")
    me.reaches(other, RUNNING)
    with pit.terminal("run", "-i", "-s", "[gtx1070]") as terminal:
        terminal.expect("Waiting: ")
        me.client.stop(other)
        terminal.expect("$ ")
        terminal.type("exit\n")
        assert terminal.end() == 0


def test_a_command_takes_the_place_of_the_shell(pit: Pit, me: User) -> None:
    done = pit.run("run", "-i", "-s", "2:[]", "--", "bash", "-c", "echo out $WORKER_INDEX; exit 4")
    assert done.returncode == 4, done
    assert "out 0\n" in done.stdout
    assert me.done(newest(me))["outcome"] == "succeeded"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_the_job_ends_when_its_client_is_killed(pit: Pit, me: User, number: signal.Signals) -> None:
    with pit.terminal("run", "-i", "-s", "[]") as terminal:
        terminal.expect("Job number: ")
        job = int(terminal.expect("\n"))
        terminal.expect("$ ")
        children = Path(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children").read_text().split()
        os.kill(int(children[0]) if children else terminal.process.pid, number)
        me.done(job)


def test_a_shell_that_nobody_opens_gives_its_place_back(me: User) -> None:
    job = me.run(SCRIPT.replace("-t 120", "-t 1"), until="any")
    assert (job["outcome"], job["exitCode"]) == ("failed", 1)
    assert "Nobody came" in me.log(job["id"])


def test_what_cannot_go_together_is_said(pit: Pit) -> None:
    for words in (("-d", "true"), ("-l",), ("--retries", "2"), ("--json",)):
        assert "--interactive and --" in pit.fails("run", "-i", "T", "[]", *words, code=2)
