"""`pit run`: what is sent, what is printed, what it exits with."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from snakepit import Client
from snakepit.client.archive import make_archive
from tests.conftest import pick_free_port
from tests.pitting import Pit
from tests.serving import PROGRAMS, Serving
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def user(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Pit:
    pit = Pit.of(serving, tmp_path_factory.mktemp("user")).registered("tilman")
    pit.ok("set", "node:n0", "resources=2:GeForce GTX 1070")
    return pit


@pytest.fixture
def pit(user: Pit, tmp_path: Path) -> Pit:
    """The same user in a fresh project."""
    (tmp_path / "project").mkdir()
    return Pit(user.serving, user.home, tmp_path / "project")


def git(place: Path, *words: str) -> str:
    author = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    return subprocess.run(["git", *author, *words], cwd=place, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[str]:
    """A repository served by git's own daemon."""
    base, port = tmp_path / "served", pick_free_port()
    base.mkdir()
    git(base, "init", "-q", "--bare", "-b", "main", "code.git")
    core = git(base, "--exec-path").strip()
    words = [
        "--export-all",
        "--enable=receive-pack",
        f"--base-path={base}",
        "--listen=127.0.0.1",
        f"--port={port}",
        "--reuseaddr",
    ]
    daemon = subprocess.Popen([f"{core}/git-daemon", *words, str(base)], stderr=subprocess.DEVNULL)
    url = f"git://127.0.0.1:{port}/code.git"
    try:
        wait_until(lambda: subprocess.run(["git", "ls-remote", url], capture_output=True).returncode == 0)
        yield url
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)


def test_on_a_terminal_the_lines_are_the_seeds(pit: Pit, origin: str) -> None:
    git(pit.project, "clone", "-q", origin, ".")
    (pit.project / ".compute").write_text("cat data\n")
    (pit.project / "data").write_text("committed\n")
    git(pit.project, "checkout", "-q", "-b", "main")
    git(pit.project, "add", ".")
    git(pit.project, "commit", "-q", "-m", "first")
    git(pit.project, "push", "-q", "-u", "origin", "main")
    commit = git(pit.project, "rev-parse", "HEAD").strip()
    (pit.project / "data").write_text("changed here\n")
    with pit.terminal("run", "First light", "[2:gtx1070]", "-l") as terminal:
        terminal.expect("Job number: ")
        number = terminal.expect("\n")
        terminal.expect(
            f'Remote:     origin <{origin}>\nHash:       {commit}\nDiff LoC:   2\nResources:  "[2:gtx1070]"\n\n['
        )
        assert terminal.end() == 0
        assert "=> job number" not in terminal.shown
        assert "[worker 0] changed here\n" in terminal.shown
    assert f"Git commit {commit} from {origin}" in pit.ok("show", f"job:{number}")


def test_in_a_pipe_old_scripts_find_the_number(pit: Pit) -> None:
    script = "pit run T '[]' --script-only -d 'true' | grep 'job number:' | cut -d' ' -f4"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=pit.project,
        env=pit.environment(PATH=f"{PROGRAMS}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip().isdigit()


def test_a_directory_without_git_is_sent_as_an_archive(pit: Pit) -> None:
    (pit.project / ".compute").write_text("cat sub/file; ls -A\n")
    (pit.project / "sub").mkdir()
    (pit.project / "sub" / "file").write_text("in the archive\n")
    (pit.project / "secret.log").write_text("not sent\n")
    (pit.project / ".pitignore").write_text("*.log\n")
    (pit.project / ".pituser.txt").write_text((pit.home / ".pituser.txt").read_text())
    done = pit.run("run", "Archive", "[]", "-l")
    assert done.returncode == 0
    assert re.search(r"^Archive:    \d+ B$", done.stdout, re.MULTILINE)
    assert "[worker 0] in the archive\n" in done.stdout
    assert "secret.log" not in done.stdout
    assert ".pituser.txt" not in done.stdout
    left = {path.name for path in pit.project.iterdir()}
    assert left == {".compute", ".pitignore", ".pituser.txt", "secret.log", "sub"}


def test_an_unfinished_upload_is_resumed_or_forgotten_as_told(pit: Pit) -> None:
    for contents in ("old", "new"):
        (pit.project / "data").write_text(f"{contents}\n")
        if contents == "old":
            leave_unfinished(pit)
    assert "--upload resume" in pit.fails("run", "T", "[]", "-d", "cat data", "-l")
    with pit.terminal("run", "T", "[]", "-d", "cat data", "-l") as terminal:
        terminal.expect("Continue incomplete upload (y) or delete it and proceed scheduling a new job (N)? ")
        terminal.type("y\n")
        terminal.expect("[worker 0] old\n")
        assert terminal.end() == 0
    assert [path.name for path in pit.project.iterdir()] == ["data"]
    leave_unfinished(pit)
    (pit.project / "data").write_text("newer\n")
    assert "[worker 0] newer\n" in pit.ok("run", "T", "[]", "-d", "cat data", "-l", "--upload", "restart")


def leave_unfinished(pit: Pit) -> None:
    """As an upload leaves it that broke off after its first bytes."""
    make_archive(pit.project, pit.project / ".job-upload.tar.gz")
    remote = f".upload-{os.urandom(16).hex()}.tar.gz"
    (pit.project / ".job-upload.json").write_text(json.dumps({"remote": remote}))
    user, token = (pit.home / ".pituser.txt").read_text().split()
    with Client(pit.serving.url, user, token) as client:
        client.create_file(remote)
        client.append_file(remote, 0, [(pit.project / ".job-upload.tar.gz").read_bytes()[:10]], 10)


def test_secrets_and_large_files_in_an_archive_are_asked_about_like_those_of_a_snapshot(pit: Pit) -> None:
    (pit.project / ".env").write_text("TOKEN=1\n")
    (pit.project / "data").write_bytes(bytes(3_000_000))
    words = ("run", "T", "[]", "-d", "true")
    assert "look like secrets: .env" in pit.fails(*words)
    assert "are large: data (3.0 MB)" in pit.fails(*words, "--allow-secrets", PIT_MAX_FILE="1M")
    assert "3.0 MB in all" in pit.fails(*words, "--allow-secrets", PIT_MAX_SNAPSHOT="2M")
    with pit.terminal(*words) as terminal:
        terminal.expect("These files look like secrets:")
        terminal.expect("(y/N)?")
        terminal.type("n\n")
        terminal.expect("Nothing was sent")
        assert terminal.end() == 1
    assert not list(pit.project.glob(".job-upload*"))
    pit.ok(*words, "--allow-secrets", "--allow-large", PIT_MAX_FILE="1M")
    (pit.project / ".pitignore").write_text(".env\n")
    pit.ok(*words)


def test_a_refused_job_leaves_nothing_behind(pit: Pit) -> None:
    (pit.project / "data").write_text("x\n")
    pit.fails("run", "T", "[999:gtx1070]", "-d", "cat data")
    assert [path.name for path in pit.project.iterdir()] == ["data"]
    assert [path.name for path in (pit.serving.home / "data" / "home" / "tilman").glob(".upload-*")] == []


def test_a_large_archive_arrives_whole(pit: Pit) -> None:
    data = os.urandom(17_000_000)  # two pieces
    (pit.project / "data").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    assert f"[worker 0] {digest}" in pit.ok("run", "T", "[]", "-d", "sha256sum data", "-l")


def test_a_job_starts_in_the_subdirectory_it_was_called_in(pit: Pit, origin: str) -> None:
    git(pit.project, "clone", "-q", origin, ".")
    git(pit.project, "checkout", "-q", "-b", "main")
    inside = pit.project / "a dir"
    inside.mkdir()
    (inside / "latin1").write_bytes(b"gr\xfc\xdfe\n")
    git(pit.project, "add", ".")
    git(pit.project, "commit", "-q", "-m", "first")
    git(pit.project, "push", "-q", "-u", "origin", "main")
    (inside / "latin1").write_bytes(b"sch\xf6ne gr\xfc\xdfe\n")  # a diff that is not UTF-8
    (inside / "binary").write_bytes(bytes(range(256)))
    there = Pit(pit.serving, pit.home, inside)
    out = there.ok("run", "T", "[]", "-l", "-d", 'basename "$PWD"; od -An -tx1 latin1; sha256sum binary')
    assert "[worker 0] a dir\n" in out
    assert "[worker 0]  73 63 68 f6 6e 65" in out
    assert hashlib.sha256(bytes(range(256))).hexdigest() in out
    (inside / ".compute").write_text('echo computed in $(basename "$PWD")\n')
    assert "[worker 0] computed in a dir\n" in there.ok("run", "T", "[]", "-l")


def test_a_reader_that_has_seen_enough_gets_no_traceback(pit: Pit) -> None:
    for script in (
        "pit --help | head -1",
        "pit run T [] -s -l -d 'yes | head -100000' | head -3",
        "pit status > /dev/full",
    ):
        environment = pit.environment(PATH=f"{PROGRAMS}:{os.environ['PATH']}")
        done = subprocess.run(["bash", "-c", script], cwd=pit.project, env=environment, capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr


def test_a_whole_home_is_not_sent_by_accident(pit: Pit) -> None:
    at_home = Pit(pit.serving, pit.home, pit.home)
    assert "Archive" not in at_home.ok("run", "T", "[]", "-d", "true")
    assert "no project directory" in at_home.fails("run", "T", "[]")


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137)])
def test_following_exits_with_the_jobs_outcome(pit: Pit, script: str, code: int) -> None:
    assert pit.run("run", "T", "[]", "-s", "-l", "-d", script).returncode == code


def test_a_time_limit_exits_as_timeout_does(pit: Pit) -> None:
    assert pit.run("run", "T", "[]", "-s", "-l", "-d", "sleep 60", "--time-limit", "1s").returncode == 124


def test_a_stopped_job_exits_as_a_terminated_one(pit: Pit) -> None:
    number = pit.submit("sleep 60")
    pit.ok("stop", str(number))
    assert pit.run("wait", str(number)).returncode == 143


def test_words_and_variables_reach_the_process_as_they_are(pit: Pit) -> None:
    (pit.project / "vars").write_text("FROM_FILE='x y'\n")
    out = pit.ok(
        "run", "--cpus", "1", "-s", "-l", "--env", "A=b=c", "--env", "HERE", "--env-file", "vars",
        "--", "bash", "-c", 'echo "$A|$HERE|$FROM_FILE|$1"', "x", "it's $HOME",
        HERE="from here",
    )  # fmt: skip
    assert "[worker 0] b=c|from here|x y|it's $HOME\n" in out


def test_control_c_detaches_and_the_job_goes_on(pit: Pit) -> None:
    with pit.terminal(
        "run", "T", "[]", "-s", "-l", "-d", "echo begun; until [ -e $KEEP_DIR/../end ]; do sleep 0.1; done"
    ) as terminal:
        terminal.expect("Job number: ")
        number = terminal.expect("\n")
        terminal.expect("] begun")
        terminal.interrupt()
        terminal.expect(
            f"Detached; job {number} goes on. To follow it: pit log {number}. To stop it: pit stop {number}\n"
        )
        assert terminal.end() == 130
    wait_until(lambda: pit.ok("get", f"job:{number}", "state") == "4\n")
    pit.ok("stop", number)


def test_what_was_sent_can_be_had_as_json(pit: Pit) -> None:
    answer = json.loads(pit.ok("run", "T", "[]", "-s", "-d", "true", "--json"))
    assert answer["request"] == "[]"
    assert isinstance(answer["id"], int)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["T", "2[gpu]"], 2, "\n  2[gpu]\n   ^"),
        (["T", "[9:gtx1070]", "-s", "-d", "x"], 1, "Cluster cannot fulfill resource request"),
        (["T"], 2, "No resources requested from cluster"),
        (["x" * 41, "[]"], 2, "40 characters max"),
        (["T", "[]", "-s"], 2, "needs something to run"),
        (["T", "[]", "-c", "99999", "-s", "-d", "x"], 1, "The job to continue is not existing"),
        (["T", "[]", "-c", "x"], 2, "no job number"),
        (["T", "[]", "--retries", "-1", "-s", "-d", "x"], 2, "whole number"),
        (["T", "[]", "--bogus"], 2, "unknown option --bogus"),
    ],
)
def test_bad_input_is_a_clear_error(pit: Pit, words: list[str], code: int, says: str) -> None:
    assert says in pit.fails("run", *words, code=code)


def test_continuing_keeps_what_was_kept(pit: Pit) -> None:
    first = pit.submit("echo checkpoint > $KEEP_DIR/state")
    pit.ok("wait", str(first))
    assert "[worker 0] checkpoint\n" in pit.ok(
        "run", "T", "[]", "-s", "-l", "-c", str(first), "-d", "cat $KEEP_DIR/state"
    )


def test_a_default_request_stands_in_the_project(pit: Pit) -> None:
    (pit.project / ".pitrequest.txt").write_text("2:[]\n")
    assert 'Resources:  "2:[]"\n' in pit.ok("put", "T", "-s", "-d", "true")


def test_a_failed_job_is_tried_again_and_shows_all_attempts(pit: Pit) -> None:
    number = pit.submit("exit $((ATTEMPT + 3))", "T", "[]", "--retries", "1")
    assert pit.run("wait", str(number)).returncode == 4
    shown = pit.ok("show", f"job:{number}")
    assert re.search(
        r"\nAttempts: +\n  0: failed - .* \(status codes: 3\)\n  1: failed - .* \(status codes: 4\)\n", shown
    )


def test_a_job_can_end_with_its_first_process(pit: Pit) -> None:
    script = "[ $PROCESS_INDEX = 0 ] || sleep 300"
    assert pit.run("run", "T", "2:[]", "-s", "-l", "--until", "any", "-d", script).returncode == 0
