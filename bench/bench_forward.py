"""A port of a job through `pit forward`, next to the same port through `ssh -L` with a real sshd: how long a new
connection takes until its first answer, and how many bytes pass."""

import contextlib
import getpass
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import say_ratio
from tests.conftest import pick_free_port
from tests.forwarding import pit_of, quiet_cluster, running, serving_job
from tests.waiting import wait_until

CONNECTIONS, ROUNDS, FLOOD = 60, 5, 1_000_000_000


def main() -> None:
    if not (shutil.which("ssh") and Path("/usr/sbin/sshd").exists()):
        print("forward: left out, OpenSSH's client and server are not installed")
        return
    port = pick_free_port()
    with quiet_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        job, pit = serving_job(cluster.admin, port), pit_of(cluster.admin, Path(folder) / "pit")
        with running(pit, "forward", str(job), f"0:{port}") as forward, ssh_forward(Path(folder), port) as theirs:
            (ours,) = forward.ports()
            compare(ours, theirs)


def compare(ours: int, theirs: int) -> None:
    times: dict[int, list[float]] = {ours: [], theirs: []}
    speeds: dict[int, list[float]] = {ours: [], theirs: []}
    for local in (ours, theirs):
        first_answer(local)
    for _ in range(CONNECTIONS):
        for local in times:
            times[local].append(first_answer(local))
    for _ in range(ROUNDS):
        for local in speeds:
            speeds[local].append(flood(local))
    say_ratio("a new connection", statistics.median(times[ours]), "ssh -L", statistics.median(times[theirs]), at_most=2)
    rate, peer = (statistics.median(speeds[local]) / 1e6 for local in (ours, theirs))
    verdict = "ok" if rate >= 0.4 * peer else "TOO SLOW"
    print(f"throughput: {rate:.0f} MB/s, ssh -L: {peer:.0f} MB/s, ratio {rate / peer:.2f} (at least 0.4): {verdict}")


def first_answer(port: int) -> float:
    begin = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), 30) as one:
        one.sendall(b"echo\nx")
        assert one.recv(1) == b"x"
        return time.perf_counter() - begin


def flood(port: int) -> float:
    """Bytes per second from the job to here."""
    space, left = bytearray(1 << 20), FLOOD
    with socket.create_connection(("127.0.0.1", port), 30) as one:
        begin = time.perf_counter()
        one.sendall(f"flood {FLOOD}\n".encode())
        while left:
            left -= one.recv_into(space)
        return FLOOD / (time.perf_counter() - begin)


@contextlib.contextmanager
def ssh_forward(folder: Path, remote: int) -> Iterator[int]:
    """A local port that leads to `remote` of this machine through OpenSSH."""
    port, local = pick_free_port(), pick_free_port()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    options = {
        "ListenAddress": "127.0.0.1",
        "AuthorizedKeysFile": str(folder / "user.pub"),
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
    }
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    server = subprocess.Popen(
        ["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-p", str(port), "-h", str(folder / "host"), *words],
        stderr=subprocess.DEVNULL,
    )
    ways = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "-F", "none"]
    wait_until(lambda: answers(port), 15, "sshd listens")
    whom = [f"{getpass.getuser()}@127.0.0.1", "-i", str(folder / "user"), "-p", str(port)]
    client = subprocess.Popen(
        ["ssh", "-q", "-N", *ways, "-L", f"{local}:127.0.0.1:{remote}", *whom], stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: answers(local), 15, "ssh forwards")
        yield local
    finally:
        for process in (client, server):
            process.terminate()
            process.wait(15)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
