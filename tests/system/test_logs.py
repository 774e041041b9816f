"""Logs: large ones, long lines, raw bytes, progress bars, slow readers, and a service killed under its followers."""

import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.cluster import DONE, Cluster, User, running_cluster
from tests.waiting import wait_until

STAMP = rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \[worker 0\] "
LINE = 99
LINES = 2_000_000  # of 100 bytes: 200 MB


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(gpus="") as found:
        yield found


def own_lines(me: User, number: int) -> list[bytes]:
    """What the job itself wrote."""
    text = b"".join(me.client.log(number, follow=False))
    lines = [re.sub(b"^" + STAMP, b"", line) for line in text.split(b"\n") if re.match(STAMP, line)]
    return [line for line in lines if not re.match(rb"Worker 0 (started|ended)", line)]


def test_200_mb_of_output_arrive_whole_while_the_service_answers(cluster: Cluster, me: User) -> None:
    number = me.submit(f"python3 -c 'for i in range({LINES}): print(str(i).zfill({LINE}))'")
    slowest_s, expected = 0.0, 0
    counting = threading.Thread(target=lambda: follow(me, number))
    counting.start()
    while me.state(number) != DONE:
        begun = time.monotonic()
        me.client.hello()
        slowest_s = max(slowest_s, time.monotonic() - begun)
    counting.join(120)
    seen = FOLLOWED[number]
    for match in re.finditer(rb"(\d{%d})\n" % LINE, seen):
        assert int(match[1]) == expected
        expected += 1
    assert expected == LINES
    assert slowest_s < 5
    assert me.job(number)["outcome"] == "succeeded"


FOLLOWED: dict[int, bytes] = {}


def follow(me: User, number: int) -> None:
    FOLLOWED[number] = b"".join(me.client.log(number))


def test_lines_of_a_megabyte_stay_whole(me: User) -> None:
    job = me.run("python3 -c 'for i in range(10): print(str(i) * 1_000_000)'")
    assert own_lines(me, job["id"]) == [str(digit).encode() * 1_000_000 for digit in range(10)]


def test_raw_bytes_are_kept_as_they_came(cluster: Cluster, me: User) -> None:
    job = me.run("head -c 3000000 /dev/urandom | tee $KEEP_DIR/raw; echo; echo after")
    copy = next((cluster.pit(job["id"]) / "log").glob("worker-*.log"))
    assert copy.read_bytes() == (cluster.pit(job["id"]) / "keep" / "raw").read_bytes() + b"\nafter\n"
    assert own_lines(me, job["id"])[-1] == b"after"


def test_carriage_returns_of_progress_bars_make_lines(me: User) -> None:
    job = me.run(r"printf 'start\r\n'; for i in 1 2 3; do printf '\r%d%%' $i; sleep 0.12; done; printf '\nno end'")
    assert own_lines(me, job["id"]) == [b"start", b"1%", b"2%", b"3%", b"no end"]


def test_stdout_and_stderr_are_in_one_log_in_their_order(me: User) -> None:
    job = me.run("for i in 1 2 3; do echo out $i; echo err $i >&2; done")
    assert own_lines(me, job["id"]) == [f"{kind} {i}".encode() for i in (1, 2, 3) for kind in ("out", "err")]


def test_a_follower_that_does_not_read_holds_up_nobody(cluster: Cluster, me: User) -> None:
    number = me.submit(f"until [ -e $KEEP_DIR/go ]; do sleep 0.02; done; yes {LINE * 'x'} | head -c 40000000")
    lazy = []
    for _ in range(5):
        one = socket.create_connection(("127.0.0.1", cluster.serving.port))
        one.sendall(f"GET /jobs/{number}/log HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {me.token}\r\n\r\n".encode())
        lazy.append(one)
    before = resident_mb(cluster)
    me.says(number, "Worker 0 started")
    (cluster.pit(number) / "keep" / "go").touch()
    assert me.done(number, 120)["outcome"] == "succeeded"
    assert me.run("echo on")["outcome"] == "succeeded"
    assert resident_mb(cluster) - before < 100
    for one in lazy:
        one.close()


def test_a_job_that_shuts_its_own_directory_holds_up_nobody(cluster: Cluster, me: User) -> None:
    once = me.submit("chmod 000 $JOB_DIR; echo still here; sleep 1; echo last; exit 3")
    always = me.submit("while sleep 0.01; do chmod 000 $JOB_DIR; echo x; done & sleep 1000")
    me.says(once, "still here")
    assert me.run("echo on")["outcome"] == "succeeded"
    me.done(once)
    assert me.codes(once) == [[3]]
    assert own_lines(me, once) == [b"still here", b"last"]
    me.call("POST", f"/jobs/{always}/stop")
    assert me.done(always)["outcome"] == "stopped"
    assert "Worker 0 ended" in me.log(always)
    me.call("DELETE", f"/jobs/{always}")
    assert not cluster.pit(always).exists()


def test_a_log_that_was_removed_under_a_running_job_is_begun_again(cluster: Cluster, me: User) -> None:
    number = me.submit("while sleep 0.05; do echo x; done")
    me.says(number, "] x")
    removed = (cluster.pit(number) / "log").rename(cluster.serving.home / "removed")  # at once: it is written to
    shutil.rmtree(removed)
    assert me.run("echo on")["outcome"] == "succeeded"
    me.call("POST", f"/jobs/{number}/stop")
    assert me.done(number)["outcome"] == "stopped"
    assert "Worker 0 ended" in me.log(number)


def resident_mb(cluster: Cluster) -> float:
    with open(f"/proc/{cluster.serving.process.pid}/status") as file:  # noqa: PTH123
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def test_a_follower_sees_every_line_once_across_kills_of_the_service(cluster: Cluster, me: User) -> None:
    number = me.submit("for i in $(seq 150); do echo line $i; sleep 0.02; done")
    seen: list[bytes] = []
    reading = threading.Thread(target=lambda: seen.extend(me.client.log(number)))
    reading.start()
    for least in (10, 60):
        wait_until(lambda least=least: b"".join(seen).count(b" line ") >= least, 60)  # type: ignore[misc]
        cluster.serving.kill()
        cluster.serving.start_again()
    reading.join(60)
    assert not reading.is_alive()
    assert [int(line) for line in re.findall(rb"\] line (\d+)\n", b"".join(seen))] == list(range(1, 151))


def test_the_last_lines_can_be_asked_for(me: User) -> None:
    job = me.run("seq 1000; printf '%s' last")
    tail = b"".join(me.client.log(job["id"], follow=False, lines=3)).splitlines()
    assert len(tail) == 3
    assert b"".join(me.client.log(job["id"], lines=0)) == b""
