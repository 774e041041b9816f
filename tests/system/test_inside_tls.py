"""`pit exec`, `pit shell` and `pit forward` through the nginx of the docs, with TLS: as without, each direction ends on
its own."""

import os
import select
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster import Cluster, User
from tests.conftest import pick_free_port
from tests.forwarding import digest, pit_of, quiet_cluster, running, serving_job, talk
from tests.pitting import Pit
from tests.processes import alive
from tests.serving import PROGRAMS
from tests.system.test_nginx import Front, connect, start_nginx
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with quiet_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def front(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    front, nginx = start_nginx(tmp_path_factory.mktemp("nginx"), cluster.serving.port)
    try:
        yield front
    finally:
        nginx.terminate()
        nginx.wait(15)


@pytest.fixture(scope="module")
def port() -> int:
    return pick_free_port()


@pytest.fixture(scope="module")
def job(cluster: Cluster, port: int) -> int:
    return serving_job(cluster.admin, port)


@pytest.fixture
def pit(me: User, front: Front, tmp_path: Path) -> Pit:
    pit = pit_of(me, tmp_path / "pit")
    connect(pit.project, front.url, front.certificate)
    return pit


def test_every_byte_and_every_end_of_a_forward_passes(pit: Pit, me: User, job: int, port: int) -> None:
    with running(pit, "forward", str(job), f"0:{port}") as forward, ThreadPoolExecutor(20) as pool:
        (local,) = forward.ports()
        data = os.urandom(5_000_000)
        assert talk(local, b"echo\n" + data) == data
        assert talk(local, b"digest\n" + data) == digest(data)
        with socket.create_connection(("::1", local), 30) as one:
            one.sendall(b"bye\n")
            assert one.recv(10) == b"bye"
            assert one.recv(10) == b""
            one.sendall(bytes(77_777))
        me.says(job, "after bye 77777")
        said = [str(number).encode() * 1000 for number in range(60)]
        assert list(pool.map(lambda each: talk(local, b"echo\n" + each), said)) == said
        assert forward.interrupt() == 0


def test_who_looks_may_take_his_time_to_read(pit: Pit, job: int) -> None:
    with subprocess.Popen(
        [str(PROGRAMS / "pit"), "exec", str(job), "--", "head", "-c", "30000000", "/dev/zero"],
        cwd=pit.project,
        env=pit.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        assert select.select((process.stderr,), (), (), 4)[0] == []  # as long as somebody looks at what `less` shows
        out, err = process.communicate(timeout=60)
    assert (process.returncode, len(out), err) == (0, 30_000_000, b"")


def test_the_streams_of_exec_pass_with_their_ends_and_the_code(pit: Pit, job: int) -> None:
    data = os.urandom(5_000_000)
    script = "cat; echo aside >&2; exit 41"
    done = subprocess.run(
        [str(PROGRAMS / "pit"), "exec", str(job), "--", "bash", "-c", script],
        cwd=pit.project,
        env=pit.environment(),
        input=data,
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout == data, done.stderr) == (41, True, b"aside\n")


def test_a_shell_has_a_terminal_there_too(pit: Pit, job: int) -> None:
    with pit.terminal("shell", str(job), columns=99) as terminal:
        terminal.type("stty size; tty; exit 9\n")
        terminal.expect("40 99")
        terminal.expect("/dev/pts/")
        assert terminal.end() == 9


def test_a_client_that_is_killed_hangs_up_although_nobody_reads_what_it_sent(pit: Pit, job: int) -> None:
    with subprocess.Popen(
        [str(PROGRAMS / "pit"), "exec", str(job), "--", "sleep", "7659"],
        cwd=pit.project,
        env=pit.environment(),
        stdin=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        wait_until(lambda: alive("sleep\x007659"), message="it sleeps")
        os.set_blocking(process.stdin.fileno(), False)
        while select.select((), (process.stdin,), (), 2)[1]:
            os.write(process.stdin.fileno(), bytes(65536))
        assert alive("sleep\x007659")
        process.kill()
        wait_until(lambda: not alive("sleep\x007659"), message="it is hung up")
