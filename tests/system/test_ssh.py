"""The real ssh, scp, sftp and rsync into running jobs, by what `pit ssh-config` writes."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster import RUNNING, Cluster, User
from tests.forwarding import pit_of, quiet_cluster
from tests.pitting import Pit
from tests.serving import PASSWORD
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with quiet_cluster() as found:
        yield found


@pytest.fixture
def me(cluster: Cluster) -> User:
    return cluster.user("anna")


@pytest.fixture
def pit(cluster: Cluster, me: User, tmp_path: Path) -> Pit:
    return logged_in(cluster, tmp_path)


def logged_in(cluster: Cluster, folder: Path) -> Pit:
    """By the file, as a ProxyCommand finds it; ssh knows only this home."""
    pit = Pit.of(cluster.serving, folder)
    pit.ok("login", PIT_USER="anna", PIT_PASSWORD=PASSWORD)
    pit.ok("ssh-config")
    return pit


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> int:
    number = cluster.user("anna").submit("sleep 10000", "2:[]")
    cluster.users["anna"].reaches(number, RUNNING)
    return number


def program(pit: Pit, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """ssh takes the home directory from the account, not from HOME, so its configuration is named."""
    name, *rest = argv
    options = ["-F", str(pit.home / ".ssh" / "pit" / "config")]
    command = [name, *options, *rest] if name != "rsync" else [name, "-e", f"ssh -F {options[1]}", *rest]
    return subprocess.run(command, input=stdin, capture_output=True, env=pit.environment(), timeout=60)


def ssh(pit: Pit, *argv: str, stdin: bytes = b"") -> bytes:
    done = program(pit, "ssh", *argv, stdin=stdin)
    assert done.returncode == 0, done
    return done.stdout


def test_a_command_runs_as_the_jobs_user_with_the_jobs_environment(pit: Pit, job: int) -> None:
    said = ssh(pit, f"pit-{job}", "whoami; echo $JOB_NUMBER $WORKER_INDEX $WORK_DIR $HOME; hostname; pwd").decode()
    assert said.split() == ["anna", str(job), "0", "/data/rw/pit/src", "/home/anna", f"sp-n0-{job}-0", "/home/anna"]
    assert ssh(pit, f"pit-{job}-1", "echo $WORKER_INDEX") == b"1\n"


def test_streams_codes_and_bytes_pass_as_with_any_ssh(pit: Pit, job: int) -> None:
    data = os.urandom(3_000_000)
    assert ssh(pit, f"pit-{job}", "cat", stdin=data) == data
    done = program(pit, "ssh", f"pit-{job}", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")


def test_scp_sftp_and_rsync_carry_files(pit: Pit, job: int, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    (there / "deep").mkdir(parents=True)
    back.mkdir()
    (there / "deep" / "weights.bin").write_bytes(os.urandom(2_000_000))
    (there / "a b.txt").write_text("with a blank")
    done = program(pit, "scp", "-q", "-r", str(there), f"pit-{job}:/data/rw/pit/keep/")
    assert done.returncode == 0, done
    done = program(pit, "rsync", "-a", f"pit-{job}:/data/rw/pit/keep/there/", str(back))
    assert done.returncode == 0, done
    for name in ("deep/weights.bin", "a b.txt"):
        assert (back / name).read_bytes() == (there / name).read_bytes()
    done = program(pit, "sftp", "-q", "-b", "-", f"pit-{job}", stdin=b"cd /data/rw/pit/keep/there\nls\n")
    assert b"a b.txt" in done.stdout, done


def test_the_examples_of_the_help_carry_a_file(pit: Pit, job: int, tmp_path: Path) -> None:
    """scp by sftp, as new ones do it, and of old; sftp itself; nothing of the system's sftp-server is needed."""
    ssh(pit, f"pit-{job}", "cd $KEEP_DIR && echo weights > model.pt")
    for name, words in (
        ("scp", [f"pit-{job}:/data/rw/pit/keep/model.pt", "scp.pt"]),
        ("scp", ["-O", f"pit-{job}:$KEEP_DIR/model.pt", "old-scp.pt"]),
        ("sftp", ["-q", f"pit-{job}:/data/rw/pit/keep/model.pt", "sftp.pt"]),
        ("rsync", ["-a", f"pit-{job}:/data/rw/pit/keep/model.pt", "rsync.pt"]),
    ):
        target = tmp_path / words[-1]
        done = program(pit, name, *words[:-1], str(target))
        assert (done.returncode, target.exists() and target.read_text()) == (0, "weights\n"), done
    done = program(pit, "scp", str(tmp_path / "scp.pt"), f"pit-{job}:/data/rw/pit/keep/back.pt")
    assert done.returncode == 0, done


def test_files_made_by_it_are_as_open_as_those_of_the_job(pit: Pit, job: int, tmp_path: Path) -> None:
    assert ssh(pit, f"pit-{job}", "umask") == pit.run("exec", str(job), "--", "bash", "-c", "umask").stdout.encode()


def test_a_terminal_is_one(pit: Pit, job: int) -> None:
    done = program(pit, "ssh", "-tt", f"pit-{job}", "tty; stty size")
    assert done.returncode == 0, done
    assert done.stdout.startswith(b"/dev/pts/")


def test_nothing_of_it_stays_in_the_job(pit: Pit, me: User, job: int) -> None:
    """However it ends, and at whatever moment the other end goes."""
    ssh(pit, f"pit-{job}", "true")
    for step in range(12):
        with begun(pit, f"pit-{job}", "true") as process:
            time.sleep(0.2 + step * 0.03)  # from before its first line to after its last
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    look = "ls -d /tmp/pit-ssh.* 2> /dev/null; pgrep -x sshd; true"
    own = pit_of(me, pit.home / "own")
    wait_until(lambda: own.ok("exec", str(job), "--", "bash", "-c", look) == "", 60, "no key and no sshd is left")
    ignored = int(ssh(pit, f"pit-{job}", "grep SigIgn /proc/self/status").split()[1], 16)
    assert [one for one in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) if ignored >> (one - 1) & 1] == []


def begun(pit: Pit, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["ssh", "-F", str(pit.home / ".ssh/pit/config"), *words],
        env=pit.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def test_it_ends_with_the_job(pit: Pit, me: User) -> None:
    number = me.submit("sleep 10000")
    me.reaches(number, RUNNING)
    with begun(pit, f"pit-{number}", "echo in; sleep 10000") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        me.client.stop(number)
        assert process.wait(30) == 255


def test_only_those_who_may_go_inside_come_in(cluster: Cluster, job: int, tmp_path: Path) -> None:
    cluster.user("eve")
    pit = Pit.of(cluster.serving, tmp_path)
    pit.ok("login", PIT_USER="eve", PIT_PASSWORD=PASSWORD)
    assert "run pit ssh-config first" in pit.fails("pipe", "ssh", f"pit-{job}", "eve")
    pit.ok("ssh-config")
    done = program(pit, "ssh", f"pit-{job}", "true")
    assert done.returncode == 255
    assert b"may go inside the job" in done.stderr


@pytest.mark.parametrize("name", ["pit-", "pit-x", "pit-1-2-3", "pit-1-x", "pit--1"])
def test_a_name_that_is_no_job_is_refused(pit: Pit, name: str) -> None:
    assert "not the name of a job" in pit.fails("pipe", "ssh", name, "anna")


def test_a_job_that_ended_is_said_to_have(pit: Pit, me: User) -> None:
    number = me.run("true")["id"]
    assert b"Worker not active" in program(pit, "ssh", f"pit-{number}", "true").stderr


def test_the_users_own_configuration_is_kept_and_included_once(pit: Pit) -> None:
    main = pit.home / ".ssh" / "config"
    main.write_text("Host other\n    User somebody\n")
    pit.ok("ssh-config")
    first = main.read_text()
    assert first == "Include pit/config\n\nHost other\n    User somebody\n"
    pit.ok("ssh-config")
    assert main.read_text() == first
    assert (pit.home / ".ssh" / "pit" / "id_ed25519").stat().st_mode & 0o777 == 0o600
    assert "Host pit-*" in pit.ok("ssh-config", "--print")


def test_it_works_into_jobs_that_nothing_confines(tmp_path: Path) -> None:
    """There the job's user is an account of the node, whatever the name of the Snakepit user."""
    with quiet_cluster() as cluster:
        cluster.admin.call("POST", "/nodes/n0", {"isolation": "none"})
        cluster.is_online()
        me, pit = cluster.user("anna"), logged_in(cluster, tmp_path)
        number = me.submit("sleep 10000")
        me.reaches(number, RUNNING)
        who = pit.ok("exec", str(number), "--", "id", "-u").encode()
        assert ssh(pit, f"pit-{number}", "id -u; echo $JOB_NUMBER") == who + b"%d\n" % number
        keep = ssh(pit, f"pit-{number}", "echo weights > $KEEP_DIR/model.pt; echo $KEEP_DIR").decode().strip()
        for options in ([f"pit-{number}:{keep}/model.pt"], ["-O", f"pit-{number}:$KEEP_DIR/model.pt"]):
            done = program(pit, "scp", *options, str(tmp_path / "model.pt"))
            assert (done.returncode, (tmp_path / "model.pt").read_text()) == (0, "weights\n"), done


def test_what_it_makes_is_closed_to_others(cluster: Cluster, tmp_path: Path) -> None:
    cluster.user("anna")
    pit = Pit.of(cluster.serving, tmp_path)
    pit.ok("login", PIT_USER="anna", PIT_PASSWORD=PASSWORD)
    before = os.umask(0o022)
    try:
        pit.ok("ssh-config")
    finally:
        os.umask(before)
    modes = {name: (pit.home / ".ssh" / name).stat().st_mode & 0o777 for name in (".", "pit", "config", "pit/config")}
    assert modes == {".": 0o700, "pit": 0o700, "config": 0o600, "pit/config": 0o600}
