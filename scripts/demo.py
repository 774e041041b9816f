"""`make demo`: a one-machine cluster on loopback, and a training job on it, nothing left behind.

What it prints after `$` is what a user would type. DEMO_KEEP=1 leaves the cluster running until Ctrl-C."""

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))  # this checkout, wherever its environment was made

from snakepit.engines.cgroups import remove_cgroups  # noqa: E402

CARD = "GeForce GTX 1070"
START_LIMIT_S = 60

TRAIN = '''\
"""Fits y = 3x + 2 by gradient descent: small enough for a demo, and yet a real training loop."""

import json
import os
import pathlib
import random

random.seed(1)
data = [(x / 10, 3 * x / 10 + 2 + random.gauss(0, 0.1)) for x in range(-20, 20)]
slope = offset = 0.0
print("GPUs of this process:", os.environ.get("CUDA_VISIBLE_DEVICES") or "none that can be seen", flush=True)
for epoch in range(1, 6):
    for _ in range(20):
        errors = [(slope * x + offset - y, x) for x, y in data]
        slope -= 0.05 * 2 * sum(error * x for error, x in errors) / len(data)
        offset -= 0.05 * 2 * sum(error for error, _ in errors) / len(data)
    loss = sum((slope * x + offset - y) ** 2 for x, y in data) / len(data)
    print(f"epoch {epoch}  loss {loss:.4f}  y = {slope:.2f}x + {offset:.2f}", flush=True)
pathlib.Path(os.environ["KEEP_DIR"], "model.json").write_text(json.dumps({"slope": slope, "offset": offset}))
pathlib.Path(os.environ["RESULT_FILE"]).write_text(f"loss {loss:.4f}")
'''


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demo lives: its own directories, and the programs that the service's user can reach."""

    home: Path
    programs: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def project(self) -> Path:
        return self.home / "training"

    @property
    def environment(self) -> dict[str, str]:
        """A home of its own, so that the demo neither reads nor writes the files of whoever runs it."""
        path = f"{self.programs}:{os.environ.get('PATH', os.defpath)}"
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(("SNAKEPIT_", "PIT_", "GIT_"))
        }
        copied = self.home / "python" / "lib"
        libraries = {"LD_LIBRARY_PATH": str(copied)} if copied.exists() else {}
        own = {
            "HOME": str(self.home / "user"),
            "SNAKEPIT_CONF": str(self.home / "snakepit.conf"),
            "PYTHONUNBUFFERED": "1",
        }
        return {**plain, **libraries, **own, "PATH": path}


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    home = Path(tempfile.mkdtemp(prefix="snakepit-demo-"))
    home.chmod(0o755)
    try:
        (home / "user").mkdir()
        (home / "snakepit.conf").touch()
        place = Place(home, reachable_programs(home))
        with git_server(place) as origin, service(place) as address:
            tour(place, origin, address)
            if os.environ.get("DEMO_KEEP"):
                keep(place, address)
        return 0
    except Failure as failure:
        print(f"make demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(home, ignore_errors=True)


class Failure(Exception):
    """What went wrong, in one line."""


# ------------------------------------------------------------------------------------------------------------ the tour


def tour(place: Place, origin: str | None, address: str) -> None:
    say(f"The service listens at {address}. Now a user registers; the first one becomes admin.")
    password = secrets.token_urlsafe(12)
    pit(place, "connect", address)
    answers = {
        "PIT_USER": "demo",
        "PIT_PASSWORD": password,
        "PIT_FULLNAME": "Demo User",
        "PIT_EMAIL": "demo@example.org",
    }
    pit(place, "login", "--register", extra=answers)
    pit(place, "show", "me")
    request = prepare_node(place)
    make_project(place, origin)
    say("A training job, from a git checkout, its log streaming back:")
    pit(place, "run", "First light", request, "-l")
    say("Two processes at once that know of each other:")
    pit(place, "run", "Second light", "2:[]", "-d", 'echo "I am $PROCESS_INDEX of $NUM_PROCESSES_GROUP0"', "-l")
    say("What the cluster knows of it now:")
    pit(place, "status")
    pit(place, "show", "job:1")
    say(f"That was a cluster at {address}.")


def prepare_node(place: Place) -> str:
    """Makes node n0 ready, with what this machine lacks said aloud; the request that fits it."""
    if (problem := sandbox_problem()) is not None:
        say(f"No sandbox here: {problem}\nThe demo goes on with isolation=none: fit for one user, not for a lab.")
        pit(place, "set", "node:n0", "isolation=none")
    shown = pit(place, "show", "node:n0")
    if "(cuda" in shown or "(rocm" in shown:
        return "[gpu]"
    say("No GPU was detected here, so two are declared: jobs are placed on them as on real ones.")
    pit(place, "set", "node:n0", f"resources=2:{CARD}")
    pit(place, "add", "alias:gtx1070", f"name={CARD}")
    pit(place, "show", "node:n0")
    return "[2:gtx1070]"


def make_project(place: Place, origin: str | None) -> None:
    project = place.project
    (project / "train.py").write_text(TRAIN)
    (project / ".compute").write_text("python3 train.py\n")
    if origin is None:
        return
    git(place, "init", "--quiet", "--initial-branch=main", str(project))
    git(place, "-C", str(project), "add", "train.py", ".compute")
    git(place, "-C", str(project), "commit", "--quiet", "-m", "A small training")
    git(place, "-C", str(project), "remote", "add", "origin", origin)
    git(place, "-C", str(project), "push", "--quiet", str(place.home / "git" / "training.git"), "main")
    git(place, "-C", str(project), "fetch", "--quiet", "origin")
    git(place, "-C", str(project), "branch", "--quiet", "--set-upstream-to=origin/main")
    # A change that was never committed travels along.
    (project / ".compute").write_text('echo "Hello from job $JOB_NUMBER"\npython3 train.py\n')


def pit(place: Place, *arguments: str, extra: dict[str, str] | None = None) -> str:
    """Types a `pit` command: shows it and what it answers."""
    print(f"$ pit {shlex.join(arguments)}", flush=True)
    place.project.mkdir(exist_ok=True)
    running = subprocess.Popen(
        [str(place.programs / "pit"), *arguments],
        cwd=place.project,
        env={**place.environment, **(extra or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    assert running.stdout is not None
    for line in running.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    if running.wait() != 0:
        raise Failure(f"`pit {arguments[0]}` ended with exit code {running.returncode}")
    return "".join(lines)


def keep(place: Place, address: str) -> None:
    say(
        f"It stays until Ctrl-C. To use it from another terminal:\n"
        f"  export HOME={place.home / 'user'} PATH={place.programs}:$PATH && cd {place.project} && pit status\n"
        f"or any client at {address} (its HTTP API: {address}/openapi.json)."
    )
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


def say(text: str) -> None:
    print("\n" + "\n".join(f"# {line}" for line in text.splitlines()), flush=True)


# ------------------------------------------------------------------------------------------------ the programs it needs


@contextlib.contextmanager
def service(place: Place) -> Iterator[str]:
    """`snakepit serve` on a free loopback port with an empty data root, until the block ends."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = ["serve", "--data", str(place.data), "--interface", "127.0.0.1", "--port", str(port)]
    say("Starting the service:")
    print(f"$ snakepit {shlex.join(command)}", flush=True)
    log = place.home / "service.log"
    with log.open("wb") as output:
        running = subprocess.Popen(
            [str(place.programs / "snakepit"), *command],
            cwd="/",
            env=place.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        await_hello(running, address, log)
        yield address
    finally:
        end(running)
        end_agents(place)
        with contextlib.suppress(OSError):  # none where it did not get so far
            remove_cgroups((place.data / "cluster-id").read_text().strip())


def await_hello(running: subprocess.Popen[bytes], address: str, log: Path) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit and running.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"{address}/hello", timeout=5):
            return
        time.sleep(0.1)
    raise Failure(f"the service did not start:\n{log.read_text(errors='replace')}")


def end_agents(place: Place) -> None:
    """Agents outlive the service by design, so that jobs do; a demo leaves nothing, and ends its own."""
    for path in sorted((place.data / "nodes").glob("*/socket")):
        directory = os.open(path.parent, os.O_PATH)
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(f"/proc/self/fd/{directory}/socket")
            peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            os.kill(struct.unpack("3i", peer)[0], signal.SIGTERM)
        os.close(directory)


@contextlib.contextmanager
def git_server(place: Place) -> Iterator[str | None]:
    """The project's origin, served by git's own daemon; None where it is missing: then an archive is sent."""
    core = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    if not (Path(core) / "git-daemon").exists():
        yield None
        return
    base = place.home / "git"
    git(place, "init", "--quiet", "--bare", "--initial-branch=main", str(base / "training.git"))
    port = free_port()
    # The program itself, not the `git` wrapper around it: stopping the wrapper would leave the daemon behind.
    running = subprocess.Popen(
        [
            f"{core}/git-daemon",
            "--export-all",
            f"--base-path={base}",
            "--listen=127.0.0.1",
            f"--port={port}",
            str(base),
        ],
        env=place.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"git://127.0.0.1:{port}/training.git"
    finally:
        end(running)


def git(place: Place, *arguments: str) -> None:
    author = ("-c", "user.name=Demo User", "-c", "user.email=demo@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *author, *arguments], env=place.environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"git {arguments[0]}: {done.stderr.strip()}")


def end(running: subprocess.Popen[bytes]) -> None:
    if running.poll() is None:
        running.terminate()
        try:
            running.wait(timeout=20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --------------------------------------------------------------------------------------------- what this machine allows


def sandbox_problem() -> str | None:
    """Why payloads cannot be confined here, in words; None when they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (as root: apt-get install bubblewrap)."
    trial = [
        "bwrap",
        "--unshare-user",
        "--unshare-pid",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "true",
    ]
    done = subprocess.run([*as_somebody_else(), *trial], cwd="/", capture_output=True, text=True)
    return None if done.returncode == 0 else f"bubblewrap does not work for ordinary users: {done.stderr.strip()}"


def as_somebody_else() -> Sequence[str]:
    """Nothing of a user runs as root, so what root can do says nothing about what the service will be able to do."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return ()
    return ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")


def reachable_programs(home: Path) -> Path:
    """The directory with `pit` and `snakepit`. A service started as root drops its rights; from a checkout in a private
    home (or with an interpreter in one) it could then no longer read itself, so it is installed where it can."""
    programs = Path(sys.executable).parent
    trial = [*as_somebody_else(), sys.executable, "-c", "import snakepit.admin, fastapi"]
    if subprocess.run(trial, cwd="/", capture_output=True).returncode == 0:
        return programs
    say(
        "This checkout is in a private directory, which the service cannot read once it has dropped root's rights:\n"
        "installing a copy for the demo. This takes a moment."
    )
    interpreter = reachable_interpreter(home)
    subprocess.run([interpreter, "-m", "venv", home / "venv"], check=True)
    pip = [str(home / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{ROOT}[server]"], check=True)
    return home / "venv" / "bin"


def reachable_interpreter(home: Path) -> Path:
    """A Python that others can start too: this one, the system's, or else a copy of this one."""
    base = Path(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    fits = "import sys, venv, ensurepip, ssl, sqlite3; sys.exit(sys.version_info < (3, 11))"
    for candidate in (base / "bin" / name, Path("/usr/bin/python3"), Path("/usr/local/bin/python3")):
        trial = [*as_somebody_else(), str(candidate), "-c", fits]
        if candidate.exists() and subprocess.run(trial, cwd="/", capture_output=True).returncode == 0:
            return candidate
    shutil.copytree(base, home / "python", symlinks=True, ignore=shutil.ignore_patterns("test", "site-packages", "*.a"))
    return home / "python" / "bin" / name


if __name__ == "__main__":
    sys.exit(main())
