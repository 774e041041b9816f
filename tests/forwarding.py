"""For tests of what goes inside a job: servers that run there, and a `pit` that keeps running here."""

import concurrent.futures
import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from snakepit.errors import SnakepitError
from tests.cluster import Cluster, User, running_cluster
from tests.pitting import Pit
from tests.serving import PROGRAMS
from tests.waiting import wait_until

# Every connection says on its first line what it wants: echo, digest (of all that comes, at its end), bye (ends its own
# direction first, then counts what still comes, into the log), flood (so many bytes), sink (never reads).
SERVER = r"""
import hashlib, socket, sys, threading
def serve(one):
    stream = one.makefile("rb")
    word, _, rest = stream.readline().decode().strip().partition(" ")
    if word == "echo":
        while data := stream.read1(65536):
            one.sendall(data)
    elif word == "digest":
        one.sendall(hashlib.sha256(stream.read()).hexdigest().encode())
    elif word == "bye":
        one.sendall(b"bye")
        one.shutdown(socket.SHUT_WR)
        print("after bye", len(stream.read()), flush=True)
    elif word == "flood":
        block, left = bytes(range(256)) * 1024, int(rest)
        while left:
            left -= one.send(block[:min(left, len(block))])
    elif word == "sink":
        threading.Event().wait()
    one.shutdown(socket.SHUT_RDWR)
    one.close()
def listen(port):
    server = socket.create_server(("::1" if port.startswith("6:") else "127.0.0.1", int(port.rpartition(":")[2])),
                                  family=socket.AF_INET6 if port.startswith("6:") else socket.AF_INET, backlog=512)
    sys.stdout.write("listening " + port + "\n")
    sys.stdout.flush()
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
for port in sys.argv[2:]:
    threading.Thread(target=listen, args=(port,)).start()
"""


def pit_of(user: User, folder: Path) -> Pit:
    """`pit` of somebody who is logged in by a token."""
    pit = Pit.of(user.serving, folder)
    pit.answers.update(PIT_USER=user.name, PIT_TOKEN=user.token)
    return pit


def serving_job(me: User, *ports: int | str) -> int:
    job = me.submit(server_script(*ports))
    for port in ports:
        me.says(job, f"listening {port}")
    return job


def server_script(*ports: int | str) -> str:
    words = " ".join(str(port) for port in ports)
    own = "server.$WORKER_INDEX.py"  # every process of the job writes it, in one place
    return f"cat > {own} <<'END_OF_FILE'\n{SERVER}\nEND_OF_FILE\nexec python3 {own} -- {words}"


@dataclass
class Running:
    """A `pit` command that goes on; what it says is read as it comes."""

    process: subprocess.Popen[str]
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def start(cls, pit: Pit, *arguments: str, **environment: str) -> "Running":
        process = subprocess.Popen(
            [str(PROGRAMS / "pit"), *arguments],
            cwd=pit.project,
            env=pit.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running = cls(process)
        for stream, lines in ((process.stdout, running.out), (process.stderr, running.err)):
            assert stream is not None
            running.readers.append(threading.Thread(target=_read, args=(stream, lines)))
            running.readers[-1].start()
        return running

    def said(self, text: str, timeout_s: float = 60) -> str:
        def there() -> bool:
            if text in "".join(self.out + self.err):
                return True
            if self.process.poll() is not None:
                self.end()
                assert text in "".join(self.out + self.err), f"it ended: {self.out} {self.err}"
            return False

        wait_until(there, timeout_s, f"it says {text!r} (so far: {self.out} {self.err})")
        return "".join(self.out + self.err)

    def ports(self) -> list[int]:
        """The local ports it forwards."""
        text = self.said("Hit Ctrl-C")
        return [int(port) for port in re.findall(r"to port (\d+) on localhost", text)]

    def end(self, timeout_s: float = 60) -> int:
        """Its exit code, once all it said was read."""
        code = self.process.wait(timeout_s)
        for reader in self.readers:
            reader.join(timeout_s)
        return code

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def processor_s(self) -> float:
        used = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096


def _read(stream: IO[str], lines: list[str]) -> None:
    with stream:
        lines.extend(stream)


@contextlib.contextmanager
def quiet_cluster(**options: str) -> Iterator[Cluster]:
    """A cluster whose jobs are ended with it; jobs outlive a service by design."""
    with running_cluster(gpus="", **options) as cluster:
        try:
            yield cluster
        finally:
            stop_all(cluster)


def stop_all(cluster: Cluster) -> None:
    for job in cluster.admin.client.status()["running"]:
        with contextlib.suppress(SnakepitError):
            cluster.admin.client.stop(job["id"])
        cluster.admin.done(job["id"])


@contextlib.contextmanager
def running(pit: Pit, *arguments: str, **environment: str) -> Iterator[Running]:
    found = Running.start(pit, *arguments, **environment)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
        found.end()


def talk(port: int, data: bytes, host: str = "127.0.0.1", ends: bool = True) -> bytes:
    """Sends, ends its own direction, reads to the end of the other; a reset is raised, whichever direction hears it."""
    with socket.create_connection((host, port), 120) as one, concurrent.futures.ThreadPoolExecutor(1) as sender:
        sent = sender.submit(_send, one, data, ends)
        answer = b"".join(iter(lambda: one.recv(1 << 16), b""))
        if not answer and (problem := sent.result()):
            raise ConnectionResetError from problem
        return answer


def _send(one: socket.socket, data: bytes, ends: bool) -> OSError | None:
    try:
        one.sendall(data)
        if ends:
            one.shutdown(socket.SHUT_WR)
    except OSError as problem:  # a socket tells of a reset once only: perhaps here
        return problem
    return None


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
