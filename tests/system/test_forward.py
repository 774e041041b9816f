"""`pit forward` into real jobs: every byte both ways, many at once, and each thing that goes wrong."""

import contextlib
import os
import resource
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from snakepit.client import http
from snakepit.client.forward import Forward, door_of
from tests.cluster import RUNNING, Cluster, User
from tests.conftest import pick_free_port
from tests.forwarding import digest, pit_of, quiet_cluster, running, server_script, serving_job, talk
from tests.pitting import Pit
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with quiet_cluster() as found:
        yield found


@pytest.fixture
def pit(cluster: Cluster, tmp_path: Path) -> Pit:
    return pit_of(cluster.admin, tmp_path)


@pytest.fixture(scope="module")
def ports() -> list[int]:
    return [pick_free_port(), pick_free_port()]


@pytest.fixture(scope="module")
def job(cluster: Cluster, ports: list[int]) -> int:
    return serving_job(cluster.admin, *ports)


def test_bytes_go_both_ways_on_several_ports_and_both_loopbacks(pit: Pit, job: int, ports: list[int]) -> None:
    data = os.urandom(3_000_000)
    with running(pit, "forward", str(job), *(f"0:{port}" for port in ports)) as forward:
        found = forward.ports()
        assert len(set(found)) == 2
        for port in found:
            for host in ("127.0.0.1", "::1"):
                assert talk(port, b"echo\n" + data, host) == data
        assert forward.interrupt() == 0
    assert f"Forwarding port {ports[0]} of worker 0 to port {found[0]} on localhost...\n" in forward.out
    assert forward.err == ["Start\n", "Hit Ctrl-C to stop forwarding.\n"]


def test_every_forward_is_one_entry_of_the_trail_however_many_connections_it_has(
    pit: Pit, me: User, job: int, ports: list[int]
) -> None:
    def entries() -> list[tuple[str, str, str]]:
        return [(each["user"], each["kind"], each["detail"]) for each in me.call("GET", f"/audit?job={job}&limit=1000")]

    before = len(entries())
    for _ in range(2):
        with running(pit, "forward", str(job), *(f"0:{port}" for port in ports)) as forward:
            for port in forward.ports():
                assert [talk(port, b"echo\nx") for _ in range(10)] == [b"x"] * 10
            assert forward.interrupt() == 0
    first, second = ports
    new = entries()[: len(entries()) - before]
    assert sorted(new) == sorted([(me.name, "forward", str(first)), (me.name, "forward", str(second))] * 2)


def test_a_local_port_may_be_chosen(pit: Pit, job: int, ports: list[int]) -> None:
    one, other = pick_free_port(), pick_free_port()
    with running(pit, "forward", "-w", "0", f"job:{job}", f"{one}:{ports[0]}", f"{other}:{ports[0]}") as forward:
        assert forward.ports() == [one, other]
        assert talk(one, b"echo\nx") == talk(other, b"echo\nx") == b"x"


def test_a_server_on_ipv6_alone_is_reached(pit: Pit, me: User) -> None:
    port = pick_free_port()
    job = serving_job(me, f"6:{port}")
    with running(pit, "forward", str(job), f"0:{port}") as forward:
        assert talk(forward.ports()[0], b"echo\nsix") == b"six"
    me.client.stop(job)


def test_each_direction_ends_on_its_own(pit: Pit, me: User, job: int, ports: list[int]) -> None:
    data = os.urandom(500_000)
    with running(pit, "forward", str(job), f"0:{ports[0]}") as forward:
        (port,) = forward.ports()
        assert talk(port, b"digest\n" + data) == digest(data)
        with socket.create_connection(("127.0.0.1", port), 30) as one:
            one.sendall(b"bye\n")
            assert one.recv(10) == b"bye"
            assert one.recv(10) == b""
            one.sendall(bytes(123_457))
        me.says(job, "after bye 123457")


def test_two_hundred_connections_at_once_keep_their_bytes_apart(pit: Pit, job: int, ports: list[int]) -> None:
    with running(pit, "forward", str(job), f"0:{ports[0]}") as forward, ThreadPoolExecutor(200) as pool:
        (port,) = forward.ports()
        # All are open before the first one ends.
        ready = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(200)]
        for one in ready:
            one.sendall(b"echo\n.")
        assert {one.recv(1) for one in ready} == {b"."}

        def rest(number: int) -> bool:
            data = str(number).encode() * 10_000
            ready[number].sendall(data)
            ready[number].shutdown(socket.SHUT_WR)
            with ready[number] as one:
                return b"".join(iter(lambda: one.recv(65536), b"")) == data

        assert all(pool.map(rest, range(200)))


def test_more_connections_than_handles_wait_without_burning_the_processor(pit: Pit, job: int, ports: list[int]) -> None:
    with running(pit, "forward", str(job), f"0:{ports[0]}") as forward, contextlib.ExitStack() as stack:
        (port,) = forward.ports()
        resource.prlimit(forward.process.pid, resource.RLIMIT_NOFILE, (40, 40))
        many = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(60)]
        first = many[0]
        first.sendall(b"echo\n.")
        assert first.recv(1) == b"."

        def rests() -> bool:
            begun_s = forward.processor_s()
            assert select.select((first,), (), (), 2)[0] == []  # a while in which nothing happens
            return forward.processor_s() - begun_s < 0.5

        wait_until(rests, message="it waits without burning the processor")
        for one in many[1:]:
            one.sendall(b"echo\nx")
        for one in many:
            one.shutdown(socket.SHUT_WR)
        assert [one.recv(10) for one in many[1:]] == [b"x"] * 59


def test_few_handles_at_first_are_no_limit() -> None:
    lines = [
        "from snakepit.pit.forwarding import allow_many",
        "from resource import *",
        "setrlimit(RLIMIT_NOFILE, (100, 200))",
        "allow_many()",
        "print(getrlimit(RLIMIT_NOFILE))",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout == "(200, 200)\n"


def test_a_server_may_take_its_time_to_read(
    me: User, job: int, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE", (("TCP_USER_TIMEOUT", 300),))
    door = door_of(job, 0, 0, ports[0])
    forward = Forward(me.client, [door], print)
    forward.begin()
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(forward.run)
        try:
            with socket.create_connection(("127.0.0.1", door.port), 30) as one:
                one.sendall(b"sink\n")
                while select.select((), (one,), (), 0.5)[1]:
                    one.send(bytes(65536))
                assert select.select((one,), (), (), 2)[0] == []  # no reset
        finally:
            forward.stop()
            running.result(30)


def test_memory_stays_small_when_one_side_does_not_read(pit: Pit, job: int, ports: list[int]) -> None:
    with running(pit, "forward", str(job), f"0:{ports[0]}") as forward:
        (port,) = forward.ports()
        assert len(talk(port, b"echo\nx")) == 1
        before = forward.memory_bytes()
        with socket.create_connection(("127.0.0.1", port), 5) as deaf, socket.create_connection(("::1", port)) as mute:
            mute.sendall(b"flood 1000000000\n")
            deaf.sendall(b"sink\n")
            deaf.settimeout(2)
            with pytest.raises(TimeoutError):
                deaf.sendall(bytes(1 << 28))
            assert talk(port, b"echo\nothers go on") == b"others go on"
            assert forward.memory_bytes() - before < 32_000_000


def test_a_reset_on_one_side_is_a_reset_on_the_other(pit: Pit, job: int, ports: list[int]) -> None:
    with running(pit, "forward", str(job), f"0:{ports[0]}") as forward:
        (port,) = forward.ports()
        one = socket.create_connection(("127.0.0.1", port), 30)
        one.sendall(b"flood 100000000\n")
        assert one.recv(1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
        assert talk(port, b"echo\nstill there") == b"still there"


# --------------------------------------------------------------------------------------------------- what goes wrong


def test_a_port_nobody_listens_on_is_refused_until_somebody_does(pit: Pit, me: User) -> None:
    port = pick_free_port()
    job = me.submit(f"while ! test -e go; do sleep 0.05; done\n{server_script(port)}")
    me.reaches(job, RUNNING)
    with running(pit, "forward", str(job), f"0:{port}") as forward:
        (local,) = forward.ports()
        with pytest.raises(ConnectionResetError):
            talk(local, b"echo\nx")
        forward.said(f"Connection refused: nobody listens on port {port} of worker 0")
        pit.ok("exec", str(job), "--", "touch", "go")
        me.says(job, f"listening {port}")
        assert talk(local, b"echo\nx") == b"x"
    me.client.stop(job)


def test_a_server_of_the_machine_is_no_server_of_the_job(pit: Pit, me: User, job: int) -> None:
    with running(pit, "forward", str(job), f"0:{me.serving.port}") as forward, pytest.raises(ConnectionResetError):
        talk(forward.ports()[0], b"GET /hello HTTP/1.0\r\n\r\n")


def test_a_local_port_in_use_is_named(pit: Pit, job: int, ports: list[int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Port {port} is in use on localhost" in pit.fails("forward", str(job), f"{port}:{ports[0]}")


@pytest.mark.parametrize("word", ["x", "1:", ":1", "1:0", "65536", "1:65536", "1:2:3", "-1", "1 :2", "٣"])
def test_junk_is_no_pair_of_ports(pit: Pit, job: int, word: str) -> None:
    assert "Wrong port pair format" in pit.fails("forward", str(job), "--", word, code=2)


def test_workers_and_jobs_that_are_not_there_are_said_to_be_so(pit: Pit, me: User, job: int) -> None:
    assert "Worker" in pit.fails("forward", "-w", "7", str(job), "0:80")
    assert "Job not found" in pit.fails("forward", "999", "0:80")
    ended = me.run("true")["id"]
    assert "Worker not active" in pit.fails("forward", str(ended), "0:80")
    assert "missing ports" in pit.fails("forward", str(job), code=2)


def test_it_ends_with_the_worker(pit: Pit, me: User) -> None:
    port = pick_free_port()
    job = serving_job(me, port)
    with running(pit, "forward", str(job), f"0:{port}") as forward:
        (local,) = forward.ports()
        with socket.create_connection(("127.0.0.1", local), 30) as one:
            one.sendall(b"echo\nx")
            assert one.recv(1) == b"x"
            me.client.stop(job)
            assert forward.end() == 0
        assert forward.err[-1] == f"Job {job} has ended: stopped - Stopped by user {me.name}\n"
        assert "Command failed" not in "".join(forward.err)


def test_it_ends_with_the_worker_where_the_job_goes_on(pit: Pit, me: User) -> None:
    job = me.submit("if [ $WORKER_INDEX = 1 ]; then sleep 1000; fi; until [ -e go ]; do sleep 0.05; done", "2:[]")
    me.reaches(job, RUNNING)
    with running(pit, "forward", str(job), "0:80") as forward:
        forward.ports()
        pit.ok("exec", str(job), "--", "touch", "go")
        assert forward.end() == 0
    assert forward.err[-1] == f"Worker 0 of job {job} has ended.\n"
    me.client.stop(job)


def test_it_ends_with_the_right(cluster: Cluster, tmp_path: Path) -> None:
    bob = cluster.user("bob")
    port = pick_free_port()
    job = serving_job(bob, port)
    token = bob.call("POST", "/users/~/tokens", {"name": "forward"})
    pit = Pit.of(cluster.serving, tmp_path)
    with running(pit, "forward", str(job), f"0:{port}", PIT_USER="bob", PIT_TOKEN=token["token"]) as forward:
        (local,) = forward.ports()
        with socket.create_connection(("127.0.0.1", local), 30) as one:
            one.sendall(b"echo\nx")
            assert one.recv(1) == b"x"
            bob.call("DELETE", f"/users/~/tokens/{token['id']}")
            assert forward.end() == 1
        assert forward.err[-1].startswith("Command failed:")
    bob.client.stop(job)


def test_nobody_forwards_from_the_job_of_another(cluster: Cluster, tmp_path: Path, job: int) -> None:
    assert "may go inside the job" in pit_of(cluster.user("eve"), tmp_path).fails("forward", str(job), "0:80")


def test_connections_wait_for_a_service_that_comes_back(tmp_path: Path) -> None:
    port = pick_free_port()
    with quiet_cluster() as cluster:
        job = serving_job(cluster.admin, port)
        with running(pit_of(cluster.admin, tmp_path), "forward", str(job), f"0:{port}") as forward:
            (local,) = forward.ports()
            assert talk(local, b"echo\nbefore") == b"before"
            cluster.serving.kill()
            forward.said("Trying again until it is back")
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(talk, local, b"echo\nwaited")
                cluster.serving.start_again()
                assert waiting.result(60) == b"waited"
            forward.said("Connected to pit again.")
            assert forward.interrupt() == 0


def test_ctrl_c_in_a_terminal_ends_it_well(pit: Pit, job: int, ports: list[int]) -> None:
    with pit.terminal("forward", str(job), f"0:{ports[0]}") as terminal:
        terminal.expect("Hit Ctrl-C to stop forwarding.")
        terminal.interrupt()
        assert terminal.end() == 0
        assert "Traceback" not in terminal.shown


def test_a_program_that_goes_leaves_nothing_behind_in_the_service(
    pit: Pit, me: User, ports: list[int], job: int
) -> None:
    """Killed, not asked: the spare connections are gone too."""

    def lines() -> int:
        """Established connections of the service."""
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
        return sum(row[1].endswith(f":{me.serving.port:04X}") and row[3] == "01" for row in rows)

    before = lines()
    with running(pit, "forward", str(job), f"0:{ports[0]}") as forward:
        assert talk(forward.ports()[0], b"echo\nx") == b"x"
        wait_until(lambda: lines() > before, message="there are connections")
    wait_until(lambda: lines() <= before + 1, message="the connections are gone")
