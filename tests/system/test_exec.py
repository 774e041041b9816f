"""`pit exec` and `pit shell` as people use them, and what is refused, revoked, cut off."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from snakepit.client import http
from snakepit.client.execution import Execution, start
from snakepit.client.http import LostAnswer
from snakepit.errors import Forbidden, NotFound, Unauthorized
from snakepit.wire.carried import VARIABLE, command_of
from tests.cluster import RUNNING, Cluster, User, running_cluster
from tests.pitting import Pit
from tests.processes import alive
from tests.serving import PROGRAMS
from tests.terminal import Terminal
from tests.waiting import wait_until


@dataclass(slots=True)
class Scene:
    """A cluster with a job of two workers that runs, its owner anna, and pit on her machine."""

    cluster: Cluster
    anna: User
    pit: Pit
    job: int

    @contextlib.contextmanager
    def command(self, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
        with subprocess.Popen(
            [str(PROGRAMS / "pit"), *arguments],
            cwd=self.pit.project,
            env=self.pit.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()  # where a test failed, it would be waited for

    def exec(self, script: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        with self.command("exec", str(self.job), "--", "bash", "-c", script) as process:
            out, err = process.communicate(stdin, timeout=60)
            return process.returncode, out, err

    def starts(self, script: str, user: User | None = None) -> Execution:
        return start((user or self.anna).client, self.job, 0, ["bash", "-c", script])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with running_cluster() as cluster:
        anna = cluster.user("anna")
        job = anna.submit("echo here > seen.$WORKER_INDEX; echo up $WORKER_INDEX; sleep 1000", "2:[]")
        for worker in range(2):
            anna.says(job, f"up {worker}")
        anna.reaches(job, RUNNING)
        pit = Pit.of(cluster.serving, tmp_path_factory.mktemp("anna"))
        pit.answers = {"PIT_TOKEN": anna.token}
        try:
            yield Scene(cluster, anna, pit, job)
        finally:
            anna.call("POST", f"/jobs/{job}/stop")
            anna.done(job)


def until_said(execution: Execution, text: bytes) -> bytes:
    said = b""

    def hears() -> bool:
        nonlocal said
        said += b"".join(content for _, content in execution.receive())
        return text in said

    wait_until(hears, message=f"{text!r} is said")
    return said


def until_lost(execution: Execution) -> None:
    def lost() -> bool:
        try:
            execution.receive()
        except LostAnswer:
            return True
        assert execution.code is None
        return False

    wait_until(lost, message="the session is cut")
    execution.close()


# ------------------------------------------------------------------------------------------------------ as it should be


def test_streams_end_of_input_and_the_code_are_as_if_it_ran_here(scene: Scene) -> None:
    assert scene.exec("cat; echo aside >&2; exit 41", b"in\0\xff") == (41, b"in\0\xff", b"aside\n")
    assert scene.exec("kill -KILL $$")[0] == 137


def test_it_is_the_jobs_directory_environment_and_worker(scene: Scene) -> None:
    code, out, _ = scene.exec("pwd; cat seen.0; echo $JOB_NUMBER")
    assert (code, out.decode().split()) == (0, ["/data/rw/pit/src", "here", str(scene.job)])
    second = scene.pit.ok("exec", "-w", "1", str(scene.job), "--", "sh", "-c", "hostname").strip()
    assert second == f"sp-n0-{scene.job}-1"


def test_binary_goes_through_unchanged_in_both_directions(scene: Scene) -> None:
    data = os.urandom(20 << 20)
    code, out, err = scene.exec("cat", data)
    assert (code, len(out), err) == (0, len(data), b"")
    assert out == data


def test_a_terminal_is_one_with_ctrl_c_and_is_as_before_afterwards(scene: Scene) -> None:
    with scene.pit.terminal("shell", str(scene.job), columns=101) as terminal:
        terminal.type("stty size; tty; PS1='ready> '\n")
        terminal.expect("40 101")
        terminal.expect("/dev/pts/")
        terminal.expect("ready> ")
        terminal.type("sleep 7650\n")
        wait_until(lambda: alive("sleep\x007650"), message="it sleeps")
        terminal.interrupt()
        terminal.expect("ready> ")
        terminal.type("echo inter$((1+1))rupted; exit 9\n")
        terminal.expect("inter2rupted")
        assert terminal.end() == 9


@contextlib.contextmanager
def lent_terminal(scene: Scene) -> Iterator[Terminal]:
    """One that pit lends to a command; when pit is gone, the terminal has to be as it was."""
    after = "stty -a | tr ' ' '\\n' | grep -x icanon"
    script = f"{PROGRAMS}/pit exec {scene.job} -- sh -c 'echo inside; exec sleep 999'; {after}"
    with Terminal("bash", "-c", script, cwd=scene.pit.project, env=scene.pit.environment()) as terminal:
        terminal.expect("inside")
        yield terminal
        terminal.expect("icanon")
        assert terminal.end() == 0


def test_the_terminal_is_restored_whatever_happens(scene: Scene) -> None:
    with lent_terminal(scene) as terminal:
        terminal.type("\r~.")
        terminal.expect("let go")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_the_terminal_is_restored_when_pit_is_told_to_end(scene: Scene, number: signal.Signals) -> None:
    with lent_terminal(scene) as terminal:
        shell = terminal.process.pid
        (pit,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        os.kill(int(pit), number)


# ------------------------------------------------------------------------------------------------------------ refusals


def test_what_is_not_there_is_said(scene: Scene) -> None:
    assert "the job has 2 (0, 1)" in scene.pit.fails("exec", "-w", "7", str(scene.job), "--", "true", code=255)
    done = scene.anna.run("true")["id"]
    assert "Worker not active" in scene.pit.fails("exec", str(done), "--", "true", code=255)
    assert "Job not found" in scene.pit.fails("exec", "99999", "--", "true", code=255)
    assert "by stdin" in scene.pit.fails("exec", str(scene.job), "--", "echo", "%" * 30_000, code=255)
    assert "missing command" in scene.pit.fails("exec", str(scene.job), code=2)
    assert scene.pit.fails("exec", str(scene.job), "--", "no-such-program", code=127).startswith("no-such-program: ")


def test_sharers_read_but_do_not_enter_unless_they_are_let_in(scene: Scene) -> None:
    berta = scene.cluster.user("berta", "lab")
    scene.cluster.user("anna", "lab")
    job = f"/jobs/{scene.job}/groups/lab"
    with pytest.raises(Forbidden, match="those he lets in"):
        scene.starts("true", berta)
    scene.pit.ok("add-group", f"job:{scene.job}", "lab")
    assert berta.log(scene.job)
    with pytest.raises(Forbidden):
        scene.starts("true", berta)
    scene.pit.ok("add-group", f"job:{scene.job}", "lab", "--exec")
    inside = scene.starts("echo in; sleep 7654", berta)
    until_said(inside, b"in\n")
    scene.anna.call("DELETE", job)  # revoked in the middle
    until_lost(inside)
    with pytest.raises(Forbidden):
        scene.starts("true", berta)


def test_the_end_of_a_token_or_a_membership_ends_what_stands_on_it(scene: Scene) -> None:
    carl = scene.cluster.user("carl", "insiders")
    scene.cluster.user("anna", "insiders")
    scene.anna.call("PUT", f"/jobs/{scene.job}/groups/insiders?exec=1")
    first = scene.starts("echo in; sleep 7655", carl)
    until_said(first, b"in\n")
    scene.cluster.admin.call("DELETE", "/users/carl/groups/insiders")
    until_lost(first)
    scene.cluster.admin.call("PUT", "/users/carl/groups/insiders")
    second = scene.starts("echo in; sleep 7656", carl)
    until_said(second, b"in\n")
    carl.client.call("POST", "/users/~/logout")
    until_lost(second)
    with pytest.raises(Unauthorized):
        scene.starts("true", carl)
    scene.anna.call("DELETE", f"/jobs/{scene.job}/groups/insiders")


def test_the_trail_knows_who_was_inside_and_only_admins_read_it(scene: Scene) -> None:
    scene.pit.ok("exec", "-w", "1", str(scene.job), "--", "echo", "a word", "$HOME")
    newest = scene.cluster.admin.call("GET", "/audit?limit=1")[0]
    assert (newest["user"], newest["job"], newest["worker"], newest["node"]) == ("anna", scene.job, 1, "n0")
    assert (newest["kind"], newest["detail"]) == ("exec", 'echo "a word" "$HOME"')
    assert "Only administrators" in scene.pit.fails("show", "audit")
    admin = {"PIT_TOKEN": scene.cluster.admin.token}
    shown = scene.pit.ok("show", "audit", f"job={scene.job}", "limit=1", **admin)
    assert shown.splitlines()[0].split() == ["ENTRY", "DATE", "USER", "JOB", "W", "NODE", "WHAT", "DETAIL"]
    assert shown.splitlines()[1].endswith('exec        echo "a word" "$HOME"')


def test_the_trail_says_what_people_did(scene: Scene) -> None:
    """A login shell, and the scripts that `pit` carries along."""
    with scene.pit.terminal("shell", str(scene.job)) as terminal:
        terminal.type("exit\n")
        terminal.end()
    for name, words in (("ssh", ["ssh-ed25519 AAAA"]), ("tensorboard", ["keep/logs"]), ("jupyter", []), ("other", [])):
        execution = start(scene.anna.client, scene.job, 0, command_of(name, *words), {VARIABLE: "true"})
        execution.close()
    entries = scene.cluster.admin.call("GET", f"/audit?job={scene.job}&limit=5")[::-1]
    assert [(each["kind"], each["detail"]) for each in entries] == [
        ("shell", ""),
        ("ssh", ""),
        ("tensorboard", "keep/logs"),
        ("jupyter", ""),
        ("exec", '/bin/bash -c "eval \\"$SNAKEPIT_SCRIPT\\"" pit-other'),
    ]


def test_sharing_again_leaves_who_may_go_inside_and_it_is_shown(scene: Scene) -> None:
    berta, job = scene.cluster.user("berta", "team"), f"job:{scene.job}"
    scene.cluster.user("anna", "team")
    scene.pit.ok("add-group", job, "team", "--exec")
    scene.pit.ok("add-group", job, "team")
    scene.starts("true", berta).close()
    assert "May go inside:" in scene.pit.ok("show", job)
    assert json.loads(scene.pit.ok("show", job, "--json"))["execGroups"] == ["team"]
    assert "exclude each other" in scene.pit.fails("add-group", job, "team", "--exec", "--no-exec", code=2)
    scene.pit.ok("add-group", job, "team", "--no-exec")
    with pytest.raises(Forbidden):
        scene.starts("true", berta)
    assert berta.log(scene.job)
    assert "May go inside:" not in scene.pit.ok("show", job)
    assert "--no-exec is for jobs" in scene.pit.fails("add-group", "user:berta", "team", "--no-exec", code=2)
    scene.pit.ok("remove-group", job, "team")


def test_what_exec_sees_of_the_gpus_is_what_the_job_sees(scene: Scene) -> None:
    look = 'for name in $(compgen -e | grep -E "CUDA|GPU|NVIDIA|ROCR|HIP"); do echo "$name=${!name}"; done'
    job = scene.anna.submit(f"{look}; echo up; sleep 1000", "[2:gtx1070]")
    scene.anna.says(job, "up")
    told = [line.partition("[worker 0] ")[2] for line in scene.anna.log(job).splitlines()]
    seen = scene.pit.ok("exec", str(job), "--", "bash", "-c", look).splitlines()
    assert any(line.startswith("CUDA_VISIBLE_DEVICES=") for line in seen)
    assert sorted(seen) == sorted(line for line in told if re.match("[A-Z_0-9]+=", line))
    scene.anna.call("POST", f"/jobs/{job}/stop")


# --------------------------------------------------------------------------------------------------------------- faults


def test_a_client_that_is_killed_hangs_up(scene: Scene) -> None:
    with scene.command("exec", str(scene.job), "--", "bash", "-c", "echo in; sleep 7657; true") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        wait_until(lambda: alive("sleep\x007657"), message="it sleeps")
        process.send_signal(signal.SIGKILL)
        process.communicate()
    wait_until(lambda: not alive("sleep\x007657"), message="the command is gone")


def test_a_client_that_is_killed_hangs_up_although_nobody_reads_what_it_sent(scene: Scene) -> None:
    with scene.command("exec", str(scene.job), "--", "sleep", "7658") as process:
        assert process.stdin is not None
        wait_until(lambda: alive("sleep\x007658"), message="it sleeps")
        handle = process.stdin.fileno()
        os.set_blocking(handle, False)
        while select.select((), (handle,), (), 2)[1]:
            os.write(handle, bytes(65536))
        assert alive("sleep\x007658")
        process.kill()
        wait_until(lambda: not alive("sleep\x007658"), message="it is hung up")


def test_a_command_may_take_its_time_to_read(scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE", (("TCP_USER_TIMEOUT", 300),))
    flood, said = tmp_path / "flood", tmp_path / "said"
    flood.write_bytes(bytes(30_000_000))
    execution = scene.starts("sleep 2; wc -c")
    with flood.open("rb") as stdin, said.open("wb") as out, contextlib.closing(execution):
        assert execution.run(stdin.fileno(), out.fileno(), out.fileno()) == 0
    assert said.read_text() == "30000000\n"


def test_two_hundred_at_once(scene: Scene) -> None:
    def one(number: int) -> int | None:
        execution = scene.starts("read word; exit $((word % 100))")
        execution.send(f"{number}\n".encode())
        with Path(os.devnull).open("wb") as null:
            code = execution.run(-1, null.fileno(), null.fileno())
        execution.close()
        return code

    with ThreadPoolExecutor(200) as pool:
        assert list(pool.map(one, range(200))) == [number % 100 for number in range(200)]


def test_a_reader_that_goes_ends_the_flood(scene: Scene) -> None:
    with scene.command("exec", str(scene.job), "--", "yes", "flooding7658") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"flooding7658\n"
        process.stdout.close()
        process.wait(timeout=30)
    wait_until(lambda: not alive("flooding7658"), message="the command is gone")


def test_a_job_that_ends_takes_its_visitors_along(scene: Scene) -> None:
    job = scene.anna.submit("sleep 1000")
    scene.anna.reaches(job, RUNNING)
    codes: list[int] = []
    with scene.command("exec", str(job), "--", "sh", "-c", "echo in; exec sleep 7659") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        waiting = threading.Thread(target=lambda: codes.append(process.wait(timeout=60)))
        waiting.start()
        scene.anna.call("POST", f"/jobs/{job}/stop")
        waiting.join()
    assert codes == [137]
    scene.anna.done(job)
    with pytest.raises(NotFound, match="Worker not active"):
        start(scene.anna.client, job, 0, ["true"])


def test_a_shell_whose_job_is_stopped_says_so(scene: Scene) -> None:
    job = scene.anna.submit("sleep 1000")
    scene.anna.reaches(job, RUNNING)
    with scene.pit.terminal("shell", str(job)) as terminal:
        terminal.type("echo here$((1+1))\n")
        terminal.expect("here2")
        scene.anna.call("POST", f"/jobs/{job}/stop")
        terminal.expect(f"\nJob {job} ")
        terminal.expect("stopped")
        assert terminal.end() > 128
    assert scene.exec("kill -KILL $$") == (137, b"", b"")  # of a job that goes on, nothing is said


def test_a_service_that_restarts_cuts_it_off_with_a_word(scene: Scene) -> None:
    """The last test of this file: the service is another one afterwards."""
    with scene.command("exec", str(scene.job), "--", "sh", "-c", "echo in; exec sleep 7660") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        scene.cluster.serving.kill()
        scene.cluster.serving.start_again()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 255
        assert b"Lost connection to pit" in err
    wait_until(lambda: not alive("sleep\x007660"), message="the command is gone")
    scene.cluster.is_online()
    assert scene.exec("echo again") == (0, b"again\n", b"")
