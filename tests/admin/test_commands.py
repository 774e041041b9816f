"""The `snakepit` command as people type it: a process of its own, its exit code, one line on stderr."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import snakepit as package
from tests.conftest import pick_free_port
from tests.reachable import reachable
from tests.serving import PROGRAMS
from tests.waiting import wait_until

PROGRAM = PROGRAMS / "snakepit"
SOURCES = Path(package.__path__[0]).parent
MAIN = "from snakepit.admin.main import main; main()"


@pytest.fixture
def place() -> Iterator[Path]:
    """Where the service's own account can go, which pytest's private directories are not."""
    with tempfile.TemporaryDirectory(prefix="snakepit-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def snakepit(*words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SNAKEPIT_")}
    return subprocess.run(
        [PROGRAM, *words], input=stdin, capture_output=True, text=True, env={**plain, **environ}, cwd="/", timeout=60
    )


def serve(place: Path, port: int, *words: str) -> subprocess.Popen[bytes]:
    where = ("--data", str(place / "data"), "--interface", "127.0.0.1", "--port", str(port))
    with (place / "log").open("ab") as log:
        return subprocess.Popen([PROGRAM, "serve", *where, *words], cwd="/", stderr=log, stdin=subprocess.DEVNULL)


def hello(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/hello").text == "Here I am"
    except httpx.TransportError:
        return False


def test_version_and_help() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", snakepit("--version").stdout)
    assert {"serve", "init", "config", "install-service", "doctor"} <= set(snakepit("--help").stdout.split())


def test_config_check_prints_values_and_origins(place: Path) -> None:
    (place / "c").write_text("queryLimit: 5\n")
    done = snakepit("config", "check", "--config", str(place / "c"), SNAKEPIT_PORT="99")
    assert done.returncode == 0
    assert re.search(r"^queryLimit +5 +.*/c$", done.stdout, re.MULTILINE)
    assert re.search(r"^port +99 +\$SNAKEPIT_PORT$", done.stdout, re.MULTILINE)


def test_mistakes_of_a_configuration_are_one_line_each_and_exit_code_2(place: Path) -> None:
    (place / "c").write_text("prot: 5\nuntil: some\n")
    for command in (("config", "check"), ("serve",), ("init", "--admin", "anna")):
        done = snakepit(*command, "--config", str(place / "c"))
        assert (done.returncode, done.stdout) == (2, "")
        unknown, bad = done.stderr.splitlines()
        assert unknown == f"snakepit: {place}/c: unknown key 'prot', did you mean port?"
        assert bad == f"snakepit: {place}/c: until: expected one of all, any (it is 'some')"


def test_the_unit_does_not_kill_jobs(place: Path) -> None:
    done = snakepit("install-service", "--output", str(place / "snakepit.service"), "--config", str(place / "my conf"))
    assert done.returncode == 0
    unit = (place / "snakepit.service").read_text()
    assert "KillMode=process" in unit
    assert "Restart=on-failure" in unit
    assert f'ExecStart={PROGRAM} serve --config "{place}/my conf"' in unit
    assert snakepit("install-service", "--output", str(place / "no" / "x")).returncode == 2
    assert snakepit("install-service", "--output", "-").stdout.startswith("[Unit]")


@pytest.mark.system
def test_systemd_has_nothing_to_say_against_the_unit(place: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    file = place / "snakepit.service"
    assert snakepit("install-service", "--output", str(file), "--config", str(place / "my $conf 100%")).returncode == 0
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_doctor_says_what_works_here(place: Path) -> None:
    done = snakepit("doctor", "--data", str(place / "data"))
    assert {line[3:].strip().split(":")[0] for line in done.stdout.splitlines()} >= {"python", "git", "sandbox", "gpus"}
    assert done.returncode == 0


@pytest.mark.system
def test_init_makes_an_admin_and_never_takes_a_password_as_argument(place: Path) -> None:
    data = str(place / "data")
    assert snakepit("init", "--admin", "tilman", "--data", data, "--password", "x").returncode == 2
    first = snakepit("init", "--admin", "tilman", "--data", data, SNAKEPIT_PASSWORD="correct-horse-9")
    assert (first.returncode, first.stderr) == (0, "")
    assert snakepit("init", "--admin", "anna", "--data", data, stdin="correct-horse-9\n").returncode == 0
    again = snakepit("init", "--admin", "anna", "--data", data, stdin="correct-horse-9\n")
    assert (again.returncode, again.stderr) == (1, "snakepit: User already existing\n")
    assert "no password" in snakepit("init", "--admin", "bob", "--data", data).stderr
    assert "Wrong user id format" in snakepit("init", "--admin", "B b", "--data", data, stdin="x\n").stderr
    assert snakepit("init", "--admin", "bob", "--data", data, stdin="x" * 80).returncode == 1
    assert "too short" in snakepit("init", "--admin", "bob", "--data", data, stdin="7 chars\n").stderr
    with sqlite3.connect(place / "data" / "snakepit.db") as database:
        rows = database.execute("select id, admin from users order by id").fetchall()
    database.close()
    assert rows == [("anna", 1), ("tilman", 1)]


@pytest.mark.system
def test_serve_comes_up_stops_cleanly_and_comes_up_again(place: Path) -> None:
    port, data = pick_free_port(), place / "data"
    for _ in range(2):
        running = serve(place, port, "--no-local-node")
        try:
            wait_until(lambda: hello(port), timeout_s=60)
            assert (data / ".pitconnect.txt").read_text() == f"http://127.0.0.1:{port}\n"
            assert data.stat().st_mode & 0o777 == 0o750
            assert (data / "snakepit.db").stat().st_mode & 0o777 == 0o600
            if os.geteuid() == 0:
                assert data.stat().st_uid != 0
                status = Path(f"/proc/{running.pid}/status").read_text()
                assert re.search(r"^Uid:(\s+)(\d+)\1\2\1\2\1\2$", status, re.MULTILINE)
                assert not re.search(r"^[UG]id:.*\b0\b", status, re.MULTILINE)
                assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0
    assert "Traceback" not in (place / "log").read_text()


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="every other test here is run by an ordinary user already")
def test_an_ordinary_user_can_serve_too(place: Path) -> None:
    port, home = pick_free_port(), place / "nobody"
    where = ("--interface", "127.0.0.1", "--port", str(port))
    home.mkdir()
    os.chown(home, 65534, 65534)
    with reachable(PROGRAMS.parent) as venv, reachable(SOURCES) as sources:
        running = subprocess.Popen(
            [venv / "bin" / "python", "-c", MAIN, "serve", "--no-local-node", *where],
            cwd="/",
            env={**os.environ, "HOME": str(home), "PYTHONPATH": str(sources)},
            stderr=subprocess.PIPE,
            user=65534,
            group=65534,
            extra_groups=[],
        )
        try:
            wait_until(lambda: hello(port), timeout_s=60)
            assert (home / ".snakepit" / "data" / "snakepit.db").stat().st_uid == 65534
        finally:
            running.terminate()
            running.communicate(timeout=60)
    assert running.returncode == 0


@pytest.mark.system
def test_a_second_service_and_a_taken_port_are_refused_in_one_line(place: Path) -> None:
    port = pick_free_port()
    running = serve(place, port, "--no-local-node")
    try:
        wait_until(lambda: hello(port), timeout_s=60)
        where = ("--interface", "127.0.0.1", "--no-local-node")
        data = str(place / "data")
        second = snakepit("serve", "--data", data, "--port", str(pick_free_port()), *where)
        words = f"snakepit: another service (process {running.pid}) uses the data root {data}\n"
        assert (second.returncode, second.stderr) == (1, words)
        taken = snakepit("serve", "--data", str(place / "other"), "--port", str(port), *where)
        assert taken.returncode == 1
        assert taken.stderr == f"snakepit: cannot listen on 127.0.0.1:{port}: Address already in use\n"
        assert not (place / "other").exists()
    finally:
        running.terminate()
        running.wait(60)


@pytest.mark.system
def test_a_data_root_that_cannot_be_used_is_refused_and_nothing_is_left(place: Path) -> None:
    words = ("--interface", "127.0.0.1", "--port", str(pick_free_port()))
    (place / "file").write_text("")
    blocked = snakepit("serve", "--data", str(place / "file" / "data"), *words)
    assert (blocked.returncode, blocked.stderr.count("\n")) == (2, 1)
    assert "data root" in blocked.stderr
    if os.geteuid() == 0:
        (place / "private").mkdir(mode=0o700)
        private = snakepit("serve", "--data", str(place / "private" / "a" / "data"), *words)
        assert (private.returncode, "cannot be reached by" in private.stderr) == (2, True)
        assert list((place / "private").iterdir()) == []
        (place / "foreign").mkdir()
        (place / "foreign" / "precious").write_text("x")
        foreign = snakepit("serve", "--data", str(place / "foreign"), *words)
        assert (foreign.returncode, "is not empty" in foreign.stderr) == (2, True)
        assert (place / "foreign").stat().st_uid == 0


def test_a_bad_interface_is_refused(place: Path) -> None:
    done = snakepit("serve", "--data", str(place / "data"), "--interface", "203.0.113.77", "--port", "8099")
    assert (done.returncode, done.stderr.count("\n")) == (1, 2)
    assert "cannot listen on 203.0.113.77:8099" in done.stderr
    assert "unencrypted" in done.stderr
