"""Jobs through the whole service: one alone, next to the same sandboxed command by hand; submits of eight clients at
once; and thousands of small ones, where the last thousand may be no slower than the first."""

import http.client
import json
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.measure import PASSWORD, in_turns, running_service, say_rate, say_ratio
from snakepit.core.confine import SYS_CORES, Bind, World, bubblewrap
from snakepit.core.domains import job_mounts
from snakepit.engines.agent.etc import Etc, links
from tests.serving import Serving

CLIENTS = 8
SUBMITS = 2000
MANY = int(os.environ.get("BENCH_JOBS", "5000"))


class Talk:
    """One keep-alive connection of a signed-in user."""

    def __init__(self, serving: Serving, token: str = "") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", serving.port)
        self.token = token

    def ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"X-Auth-Token": self.token, "Content-Type": "application/json"}
        self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        assert answer.status == 200, f"{method} {path}: {answer.status} {content.decode(errors='replace')}"
        return json.loads(content) if content else None

    def submit(self, script: str = "true") -> int:
        job = self.ask("POST", "/jobs", {"clusterRequest": "[]", "description": "bench", "script": script})
        number: int = job["id"]
        return number

    def finish(self, job: int) -> None:
        while self.ask("GET", f"/jobs/{job}/wait?timeout=30")["state"] != 7:
            pass


def main() -> None:
    with running_service() as serving:
        talk = Talk(serving)
        talk.ask("PUT", "/users/bench", {"fullname": "Bench", "email": "b@example.org", "password": PASSWORD})
        talk.token = talk.ask("POST", "/users/bench/authenticate", {"password": PASSWORD})["token"]
        one_job(talk)
        # Nothing starts meanwhile: submits are measured, not how they share the machine with what runs.
        talk.ask("POST", "/nodes/n0/drain", {})
        numbers = many_submits(serving, talk.token)
        talk.ask("POST", "/nodes/n0/resume", {})
        finish_all(talk, numbers)
        many_jobs(serving, talk)


def one_job(talk: Talk) -> None:
    for _ in range(10):
        talk.finish(talk.submit())  # a warm node
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        command = by_hand(Path(place))
        ours, same, least = in_turns(lambda: talk.finish(talk.submit()), lambda: run(command), lambda: run(LEAST))
    say_ratio("a job, POST to DONE", ours, "the same sandbox and command by hand", same, at_most=6)
    print(f"  the least sandbox by hand: {least * 1000:.1f} ms, ratio {ours / least:.2f}")


def by_hand(root: Path) -> list[str]:
    """What the agent would run: the job's own world, made by the same function."""
    for name in ("pits/1/log", "shared", "home/bench", "own", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("hosts", "passwd"):
        (root / name).touch()
    (root / "pits" / "1" / "script.sh").write_text("true\n")
    mounts = job_mounts(str(root), 1, "bench", [])
    binds = [Bind(str(root / "own"), "/home/bench", writable=True)]
    binds += [Bind(str(root / name), f"/etc/{name}") for name in ("hosts", "passwd")]
    binds += [Bind(mount.source, mount.path, writable=mount.writable) for mount in mounts]
    inside = next(mount.path for mount in mounts if mount.source.endswith("/pits/1"))
    world = World(
        binds=tuple(binds),
        network=True,
        hostname="bench",
        temporary=str(root / "tmp"),
        sysfs=SYS_CORES,
        etc=Etc(str(root)).directory(),
        links=links(),
    )
    return bubblewrap(world, ["/bin/bash", f"{inside}/script.sh"])


LEAST = [
    *("bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--new-session", "--cap-drop", "ALL"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
    *("--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "bash", "-c", "true"),
]


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, cwd="/")


def many_submits(serving: Serving, token: str) -> list[int]:
    def client(_: int) -> list[int]:
        talk = Talk(serving, token)
        return [talk.submit() for _ in range(SUBMITS // CLIENTS)]

    begin = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        numbers = [number for part in pool.map(client, range(CLIENTS)) for number in part]
    say_rate(f"durable POST /jobs over {CLIENTS} connections", SUBMITS / (time.perf_counter() - begin), at_least=500)
    return numbers


def finish_all(talk: Talk, numbers: list[int]) -> None:
    for number in numbers:
        talk.finish(number)


def many_jobs(serving: Serving, talk: Talk) -> None:
    """Thousands queued and run; how long each thousand took and what the service holds in memory then."""
    # Queued first, all of them: otherwise the first ones would have run before their time is taken.
    talk.ask("POST", "/nodes/n0/drain", {})
    numbers = [talk.submit() for _ in range(MANY)]
    talk.ask("POST", "/nodes/n0/resume", {})
    times, memory = [], []
    for first in range(0, MANY, 1000):
        begin = time.perf_counter()
        finish_all(talk, numbers[first : first + 1000])
        times.append(time.perf_counter() - begin)
        memory.append(resident_mib(serving.process.pid))
        print(f"  jobs {first}-{first + 999}: {1000 / times[-1]:.0f} per second, {memory[-1]:.0f} MiB")
    say_ratio(f"the last thousand of {MANY}", times[-1], "the first", times[0], at_most=1.2)
    print(f"memory of the service: {memory[0]:.0f} MiB after the first thousand, {memory[-1]:.0f} MiB after the last")


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


if __name__ == "__main__":
    main()
