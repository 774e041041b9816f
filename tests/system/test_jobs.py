"""What a job does and how it ends: exit codes and causes, results, stops, retries, continuing, limits, environment."""

from pathlib import Path

import pytest

from snakepit.errors import WrongState
from tests.cluster import DONE, RUNNING, Cluster, User
from tests.pitting import Pit


@pytest.mark.parametrize("code", [0, 1, 3, 125, 255])
def test_the_exit_code_of_a_script_is_that_of_its_job(me: User, code: int) -> None:
    job = me.run(f"echo hello; exit {code}")
    assert (job["exitCode"], job["outcome"]) == (code, "failed" if code else "succeeded")
    assert job["processes"][0]["cause"] == "exit"
    assert job["reason"] == (f"worker 0 ended with exit code {code}" if code else "")
    assert "[worker 0] hello\n" in me.log(job["id"])


def test_a_signal_is_told_as_the_cause(me: User) -> None:
    job = me.run("kill -SEGV $$")
    assert (job["outcome"], job["exitCode"], job["processes"][0]["cause"]) == ("failed", 139, "signal")
    assert job["reason"] == "worker 0: killed by signal 11 (SEGV)"


def test_who_takes_more_memory_than_asked_for_is_ended_and_told_so(cluster: Cluster, me: User) -> None:
    if "mem" not in cluster.node()["limits"]:
        pytest.skip("no control group for memory was prepared here (the service was not started as root)")
    job = me.run("python3 -c 'x = bytearray(400 << 20); print(len(x))'", "[100M:mem]")
    assert (job["outcome"], job["processes"][0]["cause"]) == ("failed", "out of memory")
    assert "out of memory (limit 95.37 MiB)" in job["reason"]
    assert me.run("python3 -c 'x = bytearray(30 << 20)'", "[100M:mem]")["outcome"] == "succeeded"


def test_a_time_limit_ends_a_job_that_goes_on(me: User) -> None:
    job = me.run("trap 'echo told; exit 0' TERM; while :; do sleep 0.05; done", timeLimit=3)
    assert (job["outcome"], job["processes"][0]["cause"]) == ("timed out", "time limit")
    assert job["reason"] == "time limit reached"
    assert "told" in me.log(job["id"])
    assert me.run("exit 4", timeLimit="1h")["exitCode"] == 4


def test_what_a_process_leaves_in_its_result_file_is_shown(me: User) -> None:
    job = me.run("echo loss $WORKER_INDEX > $RESULT_FILE", "2:[]")
    assert [process["result"] for process in job["processes"]] == ["loss 0", "loss 1"]


def test_a_result_that_leads_elsewhere_is_not_followed(cluster: Cluster, me: User) -> None:
    job = me.run(
        f"ln -s {cluster.root}/snakepit.db $RESULT_FILE; mv $JOB_DIR/workers{{,.old}} && ln -s / $JOB_DIR/workers"
    )
    assert (job["outcome"], job["processes"][0]["result"]) == ("succeeded", "")


def test_stopping_sends_term_and_keeps_the_code_of_the_trap(me: User) -> None:
    number = me.submit("trap 'echo cleaning; exit 3' TERM; echo up; while :; do sleep 0.05; done")
    me.says(number, "up")
    me.client.stop(number)
    job = me.done(number)
    assert (job["outcome"], job["reason"], me.codes(number)) == ("stopped", "Stopped by user tilman", [[3]])
    assert "cleaning" in me.log(number)
    with pytest.raises(WrongState, match="Only jobs before or in running state can be stopped"):
        me.client.stop(number)


def test_who_ignores_term_is_killed_after_the_grace(me: User) -> None:
    number = me.submit("trap '' TERM; echo up; while :; do sleep 0.05; done")
    me.says(number, "up")
    me.client.stop(number)
    job = me.done(number)
    assert (job["outcome"], me.codes(number)) == ("stopped", [[137]])


def test_one_process_that_fails_stops_the_others_and_is_named(me: User) -> None:
    script = 'if [ $WORKER_INDEX = 1 ]; then exit 7; fi; trap "exit 0" TERM; while :; do sleep 0.05; done'
    job = me.run(script, "3:[]")
    assert (job["outcome"], job["exitCode"]) == ("failed", 7)
    assert job["reason"] == "worker 1 ended with exit code 7"
    assert [process["cause"] for process in job["processes"]] == ["stopped", "exit", "stopped"]


def test_until_all_waits_for_the_last_and_until_any_for_the_first(me: User, cluster: Cluster) -> None:
    script = "if [ $WORKER_INDEX = 0 ]; then exit 0; fi; until [ -e $KEEP_DIR/go ]; do sleep 0.05; done"
    number = me.submit(script, "2:[]")
    me.says(number, "Worker 0 ended with exit code 0")
    me.reaches(number, RUNNING)
    (cluster.pit(number) / "keep" / "go").touch()
    assert me.done(number)["outcome"] == "succeeded"
    first = me.run("if [ $WORKER_INDEX = 0 ]; then exit 0; fi; sleep 1000", "2:[]", until="any")
    assert (first["outcome"], first["exitCode"], first["processes"][1]["cause"]) == ("succeeded", 0, "stopped")
    failed = me.run("if [ $WORKER_INDEX = 1 ]; then exit 9; fi; sleep 1000", "2:[]", until="any")
    assert (failed["outcome"], failed["exitCode"]) == ("failed", 9)


def test_a_retry_has_a_fresh_src_and_the_same_keep(me: User, cluster: Cluster) -> None:
    script = "echo $ATTEMPT >> $KEEP_DIR/attempts; ls -A $SRC_DIR; touch $SRC_DIR/litter; exit $((ATTEMPT + 4))"
    job = me.run(script, retries=2)
    assert (job["outcome"], job["exitCode"], me.codes(job["id"])) == ("failed", 6, [[4], [5], [6]])
    assert (cluster.pit(job["id"]) / "keep" / "attempts").read_text() == "0\n1\n2\n"
    log = me.log(job["id"])
    assert "[worker 0] litter" not in log
    assert "Trying again: attempt 2 (ATTEMPT=1)\n" in log


def test_a_retry_that_succeeds_makes_the_job_succeed(me: User) -> None:
    job = me.run("exit $((2 - ATTEMPT))", "[gtx1070]", retries=5)
    assert (job["outcome"], job["exitCode"], me.codes(job["id"])) == ("succeeded", 0, [[2], [1], [0]])
    assert job["reason"] == ""


def test_a_stopped_job_is_not_tried_again(me: User) -> None:
    number = me.submit("echo up; sleep 1000", retries=3)
    me.says(number, "up")
    me.client.stop(number)
    assert me.done(number)["outcome"] == "stopped"
    assert len(me.codes(number)) == 1


def test_a_job_continues_with_a_copy_of_what_another_kept(me: User, cluster: Cluster) -> None:
    first = me.run("echo weights > $KEEP_DIR/model; echo no > $SRC_DIR/other")
    script = "cat $KEEP_DIR/model; ls -A $SRC_DIR; echo changed > $KEEP_DIR/model"
    second = me.run(script, continueJob=first["id"])
    assert second["outcome"] == "succeeded", me.log(second["id"])
    assert "[worker 0] weights" in me.log(second["id"])
    assert "[worker 0] other" not in me.log(second["id"])
    assert (cluster.pit(first["id"]) / "keep" / "model").read_text() == "weights\n"


def test_variables_come_from_options_and_files(cluster: Cluster, tmp_path: Path) -> None:
    pit = Pit.of(cluster.serving, tmp_path).registered("varied")
    (pit.project / "more.env").write_text("# a comment\nTWO=zwei und zwei\nTHREE='$HOME'\n")
    script = 'echo "$ONE|$TWO|$THREE"'
    number = pit.submit(script, "Variables", "[]", "--env", "ONE=a=b; exit 1", "--env-file", "more.env")
    pit.ok("wait", str(number))
    assert "[worker 0] a=b; exit 1|zwei und zwei|$HOME\n" in pit.ok("log", str(number))


def test_who_waits_for_a_job_hears_of_its_end_at_once(me: User, cluster: Cluster) -> None:
    number = me.submit("until [ -e $KEEP_DIR/go ]; do sleep 0.02; done; exit 3")
    me.reaches(number, RUNNING)
    (cluster.pit(number) / "keep" / "go").touch()
    assert me.client.call("GET", f"/jobs/{number}/wait?timeout=20")["state"] == DONE


def test_state_changes_tell_the_way_of_a_job(me: User) -> None:
    job = me.run("exit 0")
    assert [change["state"] for change in job["stateChanges"]] == [0, 2, 3, 4, 6, 7]


def test_what_a_job_leaves_running_ends_with_it(me: User, cluster: Cluster) -> None:
    stray = "while :; do date +%s%N > $USER_DIR/beat; sleep 0.02; done"
    me.run(f"setsid bash -c '{stray}' & until [ -e $USER_DIR/beat ]; do sleep 0.02; done")
    beat = cluster.root / "home" / "tilman" / "beat"
    before = beat.read_text()
    me.run("sleep 0.3")
    assert beat.read_text() == before
