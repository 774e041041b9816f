"""`pit pipe` under the real sftp, git and rsync; through nginx and TLS too. What confined programs can do."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from snakepit.service.pipes import programs
from snakepit.service.pipes.entity import Place
from snakepit.service.pipes.programs import ENVIRONMENT, Program, command
from snakepit.service.pipes.repository import snapshots_path
from tests.cluster import Cluster, running_cluster
from tests.sftp import Refused, Sftp
from tests.system.test_nginx import start_nginx
from tests.waiting import wait_until

SFTP_INIT = b"\0\0\0\5\1\0\0\0\3"
GIT_USER = {f"GIT_{role}_{what}": "anna@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(gpus="", config="maxSnapshotSize: 20M\n") as running:
        running.user("anna")
        running.user("bob")
        yield running


@pytest.fixture(scope="module")
def environment(cluster: Cluster) -> dict[str, str]:
    """Of anna, logged in; `pit` is found by name."""
    home = cluster.serving.home / "user"
    (home / ".pitconnect.txt").write_text(f"{cluster.serving.url}\n")
    (home / ".pituser.txt").write_text(f"anna\n{cluster.users['anna'].token}\n")
    return {**cluster.serving.environment("anna"), **GIT_USER, "GIT_SSH_COMMAND": "pit pipe git"}


@pytest.fixture(params=["plain", "nginx"])
def way(request: pytest.FixtureRequest, cluster: Cluster, environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """`pit pipe`, straight or through nginx with a pinned certificate: that is said by a directory of one's own."""
    if request.param == "plain":
        yield "pit pipe"
        return
    (tmp_path / "nginx").mkdir()
    front, running = start_nginx(tmp_path / "nginx", cluster.serving.port)
    (tmp_path / ".pitconnect.txt").write_text(f"{front.url}\n{front.certificate.read_text()}")
    try:
        yield f"pit pipe -C {tmp_path}"
    finally:
        running.terminate()
        running.wait(timeout=30)


def run(
    environment: dict[str, str], *argv: str | Path, stdin: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    return subprocess.run(
        words, env=environment, input=stdin, cwd=cwd or "/", capture_output=True, text=True, timeout=120
    )


# ----------------------------------------------------------------------------------------------------------------- sftp


def test_sftp_works_through_pit_pipe(way: str, environment: dict[str, str], tmp_path: Path) -> None:
    content = os.urandom(6_000_000)
    (tmp_path / "up").write_bytes(content)
    batch = f"-mkdir by-sftp\nput {tmp_path}/up by-sftp/file\nget by-sftp/file {tmp_path}/down\nls -l by-sftp\n"
    done = run(environment, "sftp", "-b", "-", "-D", f"{way} sftp home", stdin=batch)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "down").read_bytes() == content


def test_a_refusal_is_one_line_and_an_exit_code(way: str, environment: dict[str, str]) -> None:
    for words, message in (
        (("sftp", "user:bob"), "only see and change their own account"),
        (("sftp",), "expected: pit pipe sftp"),
        (("telnet",), "expected: pit pipe"),
        (("git", "pit", "git-upload-archive 'snapshots'"), "may not ask for"),
        (("rsync", "home", ".", "pit", "rsync", "--server", "--daemon", ".", "."), "--daemon"),
    ):
        done = run(environment, *way.split(), *words)
        assert done.returncode != 0
        assert done.stdout == ""
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


def test_words_for_ssh_are_not_words_for_pit(environment: dict[str, str]) -> None:
    """What sshfs appends, and what would be an option of pit elsewhere."""
    words = ("-x", "-a", "-oClearAllForwardings=yes", "-h", "--help", "--debug", "pit", "-s", "sftp")
    argv = ["pit", "pipe", "sftp", "home", *words]
    with subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(SFTP_INIT)
        running.stdin.flush()
        assert running.stdout.read(5)[4:] == b"\2"
        running.stdin.close()
        assert running.stdout.read()
    assert running.returncode == 0


def test_a_login_that_ended_is_said_and_nothing_is_asked(environment: dict[str, str]) -> None:
    done = run({**environment, "PIT_TOKEN": "no-such-token"}, "pit", "pipe", "sftp", "home", stdin="password\n")
    assert done.returncode == 1
    assert "pit login" in done.stderr


# ------------------------------------------------------------------------------------------------------------------ git


@pytest.fixture
def checkout(tmp_path: Path, environment: dict[str, str]) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    run(environment, "git", "init", "-q", cwd=folder)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "weights.bin").write_bytes(os.urandom(200_000))
    commit(folder, environment)
    return folder


def commit(folder: Path, environment: dict[str, str]) -> str:
    run(environment, "git", "add", "-A", cwd=folder)
    assert run(environment, "git", "commit", "-q", "-m", "x", cwd=folder).returncode == 0
    return run(environment, "git", "rev-parse", "HEAD", cwd=folder).stdout.strip()


def test_snapshots_are_pushed_and_fetched(
    way: str, cluster: Cluster, environment: dict[str, str], checkout: Path, tmp_path: Path
) -> None:
    through = {**environment, "GIT_SSH_COMMAND": f"{way} git"}
    head = run(environment, "git", "rev-parse", "HEAD", cwd=checkout).stdout.strip()
    done = run(through, "git", "push", "ssh://pit/snapshots", f"HEAD:refs/pit/incoming/{head}", cwd=checkout)
    assert done.returncode == 0, done.stderr
    assert (snapshots_path(cluster.root, "anna") / "refs/pit/incoming" / head).exists()
    run(environment, "git", "init", "-q", tmp_path / "other")
    fetch = ("git", "fetch", "-q", "ssh://pit/snapshots", f"refs/pit/incoming/{head}")
    done = run({**through, "GIT_SSH_VARIANT": "simple"}, *fetch, cwd=tmp_path / "other")
    assert (done.returncode, done.stderr) == (0, "")
    assert run(environment, "git", "cat-file", "-t", head, cwd=tmp_path / "other").stdout == "commit\n"


def test_only_incoming_refs_can_be_pushed(environment: dict[str, str], checkout: Path, cluster: Cluster) -> None:
    refs = snapshots_path(cluster.root, "anna") / "refs"
    for ref in ("refs/heads/main", "refs/tags/x", "refs/pit/7", "refs/pit/incomings", "refs/replace/x"):
        done = run(environment, "git", "push", "ssh://pit/snapshots", f"HEAD:{ref}", cwd=checkout)
        assert done.returncode != 0
        assert "hidden ref" in done.stderr
        assert not (refs.parent / ref).exists()
    kept = refs / "pit" / "7"
    done = run(environment, "git", "push", "ssh://pit/snapshots", "HEAD:refs/pit/incoming/mine", cwd=checkout)
    assert done.returncode == 0, done.stderr
    kept.write_bytes((refs / "pit" / "incoming" / "mine").read_bytes())
    done = run(environment, "git", "push", "ssh://pit/snapshots", ":refs/pit/7", cwd=checkout)
    assert done.returncode != 0
    assert kept.exists()


def test_a_push_beyond_the_limit_is_refused_with_words_and_leaves_nothing(
    way: str, environment: dict[str, str], checkout: Path, cluster: Cluster
) -> None:
    (checkout / "large.bin").write_bytes(os.urandom(30_000_000))
    head = commit(checkout, environment)
    through = {**environment, "GIT_SSH_COMMAND": f"{way} git"}
    done = run(through, "git", "push", "ssh://pit/snapshots", f"HEAD:refs/pit/incoming/{head}", cwd=checkout)
    assert done.returncode != 0
    assert "exceeds maximum allowed size" in done.stderr
    repository = snapshots_path(cluster.root, "anna")
    assert not (repository / "refs/pit/incoming" / head).exists()
    assert sum(path.stat().st_size for path in repository.rglob("*") if path.is_file()) < 20_000_000


def test_a_damaged_object_is_refused(environment: dict[str, str], checkout: Path) -> None:
    """A tree with an entry `.git` would be a trap for whoever checks it out."""
    blob = run(environment, "git", "hash-object", "-w", "train.py", cwd=checkout).stdout.strip()
    raw = b"100644 .git\0" + bytes.fromhex(blob)
    (checkout / "raw").write_bytes(raw)
    make = ("git", "hash-object", "-t", "tree", "-w", "--literally", "raw")
    tree = run(environment, *make, cwd=checkout).stdout.strip()
    bad = run(environment, "git", "commit-tree", "-m", "trap", tree, cwd=checkout).stdout.strip()
    done = run(environment, "git", "push", "ssh://pit/snapshots", f"{bad}:refs/pit/incoming/{bad}", cwd=checkout)
    assert done.returncode != 0
    assert "hasDotgit" in done.stderr


# ---------------------------------------------------------------------------------------------------------------- rsync


def test_rsync_goes_both_ways_with_any_name(
    way: str, environment: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "deep er").mkdir(parents=True)
    for name in ("plain", "-rf", "spa ce", "new\nline", "$HOME", "`id`", "ümlaut"):
        (source / "deep er" / name).write_text(name)
    (source / "large").write_bytes(os.urandom(5_000_000))
    command = f"{way} rsync home sets/{tmp_path.name}/a%20b%24c"
    done = run(environment, "rsync", "-a", "--mkpath", "-e", command, f"{source}/", "pit:.")
    assert (done.returncode, done.stderr) == (0, "")
    there = cluster.root / "home" / "anna" / "sets" / tmp_path.name / "a b$c"
    assert {path.name for path in (there / "deep er").iterdir()} == {p.name for p in (source / "deep er").iterdir()}
    done = run(environment, "rsync", "-a", "-e", f"{command}/", "pit:.", f"{tmp_path}/back/")
    assert (done.returncode, done.stderr) == (0, "")
    assert run(environment, "diff", "-r", source, tmp_path / "back").returncode == 0


def test_rsync_cannot_be_talked_into_anything_else(
    environment: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "list").write_text("/etc/passwd\n")
    base = ("--server", "--sender", "-r")
    for words in (
        ("--daemon",),
        ("--config=/data/x",),
        ("--rsh=sh",),
        ("-e", "sh"),
        ("-esh",),
        ("-re.iLsf", "--rsync-path=/bin/sh"),
        ("--log-file=/data/x",),
        ("--files-from=/etc/passwd",),
        ("--temp-dir=/data",),
        ("-s",),
        ("--secluded-args",),
        ("--protect-args",),
        ("--write-batch=/data/x",),
        ("--read-batch=/data/x",),
        ("--backup-dir=/",),
        ("--log-format=%n",),
        ("--copy-as=root",),
    ):
        done = run(environment, "pit", "pipe", "rsync", "home", ".", "pit", "rsync", *base, *words, ".", ".")
        assert done.returncode == 1, words
        assert "rsync may not be asked for" in done.stderr, (words, done.stderr)
    done = run(environment, "pit", "pipe", "rsync", "shared", ".", "pit", "rsync", "--server", "-r", ".", ".")
    assert "read-only" in done.stderr


def test_a_path_need_not_be_text(environment: dict[str, str], cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = run(environment, "rsync", "-a", "-e", "pit pipe rsync home odd%FF%2Bname/", tmp_path / "file", "pit:.")
    assert done.returncode == 0, done.stderr
    assert (cluster.root / "home" / "anna" / os.fsdecode(b"odd\xff+name") / "file").read_text() == "x"


def test_a_path_that_looks_like_an_option_is_a_path(
    environment: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    done = run(environment, "rsync", "-a", "-e", "pit pipe rsync home --log-file=oops/", tmp_path / "file", "pit:.")
    assert done.returncode == 0, done.stderr
    assert (cluster.root / "home" / "anna" / "--log-file=oops" / "file").read_text() == "x"


# ---------------------------------------------------------------------------------------------------------- confinement


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    return tmp_path


def confined(
    ground: Path, *argv: str, writable: bool = True, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    program = Program("test", argv, Place(ground / "room", writable))
    return subprocess.run(
        command(program, ground),
        env=ENVIRONMENT,
        user=user,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_there_is_no_network_inside(ground: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        attempt = ("/bin/bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{listening.getsockname()[1]}")
        assert subprocess.run(attempt).returncode == 0
        assert confined(ground, *attempt).returncode != 0


def test_programs_are_limited_and_start_with_a_clean_environment(ground: Path) -> None:
    done = confined(ground, "/bin/bash", "-c", "ulimit -v; ulimit -u; ulimit -c; ulimit -t")
    assert done.stdout.split() == [
        str(programs.MEMORY_BYTES // 1024),
        str(programs.PROCESSES),
        "0",
        str(programs.CPU_S),
    ]
    names = {line.partition("=")[0] for line in confined(ground, "/usr/bin/env").stdout.splitlines()}
    assert names - {"PWD"} == set(ENVIRONMENT)


FORKS = "for (1..1000) { my $child = fork; last if !defined $child; if (!$child) { sleep 60; exit } $n++ } print $n"


def test_a_program_that_runs_away_ends_at_its_limits() -> None:
    """The kernel counts processes for everybody but root, who never runs them: the service gives its rights up."""
    with tempfile.TemporaryDirectory(prefix="pipe-") as name:
        ground = Path(name)
        ground.chmod(0o755)
        (ground / "room").mkdir()
        somebody = 65534 if os.geteuid() == 0 else None
        grown = confined(
            ground, "/usr/bin/perl", "-e", f'$_ = "x" x {programs.MEMORY_BYTES}; print "here"', user=somebody
        )
        assert (grown.returncode != 0, grown.stdout) == (True, "")
        forked = confined(ground, "/usr/bin/perl", "-e", FORKS, user=somebody)
        assert 0 < int(forked.stdout) < programs.PROCESSES, forked.stderr
        wait_until(
            lambda: confined(ground, "/usr/bin/perl", "-e", FORKS, user=somebody).stdout == forked.stdout,
            message="nothing of it is left",
        )


def test_the_kernel_keeps_read_only_what_is_read_only(ground: Path) -> None:
    """Without the server's own -R, and for a file that belongs to it."""
    (ground / "room" / "file").write_text("before")
    ours, theirs = socket.socketpair()
    server = programs.sftp(Place(ground / "room", True)).argv
    argv = command(Program("sftp", server, Place(ground / "room", False)), ground)
    with ours, subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno(), env=ENVIRONMENT) as running:
        theirs.close()
        sftp = Sftp(ours)
        for path in ("file", "new"):
            with pytest.raises(Refused):
                sftp.write(path, b"after")
        assert sftp.read("file") == b"before"
        ours.shutdown(socket.SHUT_RDWR)
        assert running.wait(timeout=30) == 0
