"""Looking after jobs: status, log, wait, stop, remove, run again; one, several, or all of mine."""

import json
from pathlib import Path

import pytest

from tests.pitting import Pit
from tests.serving import Serving
from tests.waiting import wait_until


def state(pit: Pit, number: int) -> int:
    return int(pit.ok("get", f"job:{number}", "state"))


def running(pit: Pit, script: str = "sleep 300") -> int:
    number = pit.submit(script)
    wait_until(lambda: state(pit, number) == 4)
    return number


def test_the_status_groups_jobs(pit: Pit) -> None:
    done = pit.submit("true", "Already over")
    pit.ok("wait", str(done))
    runs = running(pit)
    lines = pit.ok("status").splitlines()
    assert lines[0].startswith("   JOB   S SINCE        UC% UM% USER       TITLE")
    assert lines[1] == "Running:"
    assert lines[2].startswith(f"{runs:>6} RUN 00d 00:00:")
    assert any(line.startswith(f"{done:>6} FIN") and "Already over" in line for line in lines[lines.index("Done:") :])
    failed = pit.submit("exit 3", "Gone wrong")
    assert pit.run("wait", str(failed)).returncode == 3
    for words in (("status",), ("show", "jobs")):
        assert f"{failed:>6} ERR" in pit.ok(*words)
    found = json.loads(pit.ok("ps", "--json"))
    assert next(job["outcome"] for job in found["done"] if job["id"] == failed) == "failed"
    assert [job["id"] for job in found["running"]] == [runs]
    pit.ok("cancel", str(runs))


def test_a_title_with_escapes_is_harmless(pit: Pit) -> None:
    pit.submit("true", "日本\u202e")
    assert "日本\\u202e" in pit.ok("status")


def test_watching_shows_changes_as_they_happen(pit: Pit) -> None:
    with pit.terminal("status", "-w") as terminal:
        terminal.expect("   JOB   S SINCE")
        number = pit.submit("sleep 300", "Watched")
        terminal.expect(f"{number:>6} RUN")
        pit.ok("stop", str(number))
        terminal.expect(f"{number:>6} CAN")
        terminal.interrupt()
        assert terminal.end() == 0


def test_several_jobs_are_stopped_and_removed_at_once(pit: Pit) -> None:
    first, second, third = running(pit), running(pit), running(pit)
    pit.ok("stop", f"{first}-{second}", f"job:{third}")
    assert pit.run("wait", f"{first},{second}", str(third)).returncode == 143
    assert "answer it with -y" in pit.fails("rm", f"{first}-{third}")
    with pit.terminal("rm", f"job:{first}") as terminal:
        terminal.expect(f"Remove job {first} and its data (yN)? ")
        terminal.type("n\n")
        assert terminal.end() == 1
    pit.ok("rm", "-y", f"{first}-{third}")
    assert "not" in pit.fails("show", f"job:{first}").lower()


def test_what_fails_for_one_job_does_not_keep_the_others(pit: Pit) -> None:
    number = running(pit)
    said = pit.fails("stop", "999999", str(number))
    assert said.startswith("Command failed: job 999999: ")
    assert pit.run("wait", str(number)).returncode == 143


def test_the_missing_jobs_of_a_range_are_one_line(pit: Pit) -> None:
    number = pit.submit("sleep 300")
    missing = f"Command failed: jobs {number + 1}-{number + 99}: Job not found\n"
    for command in ("stop", "wait", "why", "rerun", "log", "rm"):
        done = pit.run(command, f"{number}-{number + 99}", *(["-y"] if command == "rm" else []))
        assert (done.returncode, done.stderr.count("Job not found")) == (1, 1), command
        assert missing.strip() in done.stderr.splitlines(), command
        if command == "rerun":
            assert done.stdout == f"=> job number: {number + 1}\n"
            pit.ok("stop", str(number + 1))
            pit.run("wait", str(number + 1))
            missing = missing.replace(f"{number + 1}-", f"{number + 2}-")


def test_mine_are_mine_alone(pit: Pit, other: Pit) -> None:
    theirs, mine = running(other), running(pit)
    pit.ok("stop", "--mine")
    assert pit.run("wait", str(mine)).returncode == 143
    assert state(other, theirs) == 4
    other.ok("stop", "--mine")
    other.run("wait", str(theirs))
    other.ok("rm", "--mine", "-y")
    other.fails("show", f"job:{theirs}")
    assert state(pit, mine) == 7
    pit.ok("wait", "--mine")


def test_others_jobs_are_not_mine_to_stop(pit: Pit, other: Pit) -> None:
    number = running(pit)
    other.fails("stop", str(number))
    other.fails("log", str(number))
    pit.ok("stop", str(number))


def test_a_job_runs_again(pit: Pit) -> None:
    number = pit.submit("echo once more; exit 4")
    assert pit.run("wait", str(number)).returncode == 4
    again = int(pit.ok("rerun", str(number)).rpartition(": ")[2])
    assert again > number
    assert pit.run("wait", str(again)).returncode == 4
    assert "once more" in pit.ok("log", str(again))


def test_the_log_can_be_cut_to_its_last_lines(pit: Pit) -> None:
    number = pit.submit("seq 1 100")
    pit.ok("wait", str(number))
    whole = pit.ok("logs", str(number))
    assert sum("[worker 0] " in line for line in whole.splitlines()) == 102
    assert pit.ok("log", "-n", "3", str(number)) == "".join(whole.splitlines(keepends=True)[-3:])
    assert pit.ok("log", "-n0", "--no-follow", str(number)) == ""


def test_a_log_is_printed_without_waiting_when_told_so(pit: Pit) -> None:
    number = running(pit, "echo begun; sleep 300")
    wait_until(lambda: "begun" in pit.ok("log", "--no-follow", str(number)))
    pit.ok("stop", str(number))


def test_why_says_why(pit: Pit) -> None:
    pit.ok("drain", "node:n0", "new", "disk")
    assert "State:     ONLINE (drained: new disk)\n" in pit.ok("show", "node:n0")
    number = pit.submit("true")
    wait_until(lambda: state(pit, number) == 2)
    wait_until(lambda: "n0: drained: new disk\n" in pit.ok("why", str(number)))
    assert json.loads(pit.ok("why", str(number), "--json"))[str(number)]
    assert "State:         WAI (position 1)\n" in pit.ok("show", f"job:{number}")
    pit.ok("resume", "n0")
    pit.ok("wait", str(number))
    assert "its state is FIN" in pit.ok("why", str(number))


def test_old_jobs_are_found_by_what_they_were(pit: Pit, other: Pit) -> None:
    number = other.submit("true", "Needle 1")
    other.ok("wait", str(number))
    found = pit.ok("show", "jobs", "user=anna", "title=Needle%", "since=2020-01-01", "desc=date", "limit=5")
    assert found.splitlines()[0].startswith("   JOB   S DATE                     UC%")
    assert [int(line[:6]) for line in found.splitlines()[1:]] == [number]
    assert "unknown filter" in pit.fails("show", "jobs", "colour=red", code=2)
    assert "Cannot parse" in pit.fails("show", "jobs", "since=yesterdayish", code=2)


def test_a_result_is_shown(pit: Pit) -> None:
    number = pit.submit("echo 'loss 0.1' > $RESULT_FILE; exit 2")
    pit.run("wait", str(number))
    shown = pit.ok("show", f"job:{number}")
    assert "  [0, 0]: Status code: 2 - loss 0.1\n" in shown
    assert "\nOutcome:       failed - " in shown


def test_following_a_log_survives_a_restart_of_the_service(pit: Pit, serving: Serving) -> None:
    number = pit.submit("for i in $(seq 1 40); do echo line $i; sleep 0.2; done")
    with pit.terminal("log", str(number)) as terminal:
        terminal.expect("line 3\n")
        serving.kill()
        serving.start_again()
        assert terminal.end(timeout_s=90) == 0
        seen = [line.rpartition(" ")[2] for line in terminal.shown.splitlines() if "] line " in line]
    assert seen == [str(i) for i in range(1, 41)]


def test_waiting_survives_a_restart_of_the_service(pit: Pit, serving: Serving, tmp_path: Path) -> None:
    number = pit.submit("sleep 3; exit 6")
    with pit.terminal("wait", str(number)) as terminal:
        serving.process.terminate()
        serving.process.wait(timeout=30)
        serving.start_again()
        terminal.expect(f"Job {number}: failed (exit code 6)", timeout_s=60)
        assert terminal.end() == 6


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["stop"], 2, "missing job number"),
        (["stop", "x"], 2, "no job number"),
        (["log", "999999"], 1, "Command failed: "),
        (["log", "9" * 30], 1, "Job not found"),
        (["stop", "9" * 30 + "-" + "9" * 30], 1, "Job not found"),
        (["show", "job:" + "9" * 30], 1, "Job not found"),
        (["ls", "9" * 30 + ":keep"], 1, "Job not found"),
        (["show", "cat:1"], 2, 'Unknown entity type "cat"'),
        (["wait", "1", "--mine"], 2, "either job numbers or --mine"),
        (["log", "1", "-f", "--no-follow"], 2, "exclude each other"),
        (["frobnicate"], 2, 'unknown command "frobnicate"'),
        (["statsu"], 2, 'did you mean "status"'),
        (["status", "extra"], 2, 'unexpected argument "extra"'),
    ],
)
def test_bad_input_is_a_clear_error(pit: Pit, words: list[str], code: int, says: str) -> None:
    assert says in pit.fails(*words, code=code)
