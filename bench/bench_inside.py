"""`pit exec N -- true` next to `ssh host true` with a fresh connection to a real sshd; and how many bytes pass."""

import contextlib
import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.measure import say_ratio, seconds_of, side_by_side
from tests.cluster import RUNNING, running_cluster
from tests.conftest import pick_free_port
from tests.pitting import Pit
from tests.serving import PROGRAMS
from tests.waiting import wait_until

FLOOD = 500_000_000
Run = Callable[..., None]


def main() -> None:
    if not (shutil.which("ssh") and Path("/usr/sbin/sshd").exists()):
        print("inside: left out, OpenSSH's client and server are not installed")
        return
    with running_cluster(gpus="") as cluster, tempfile.TemporaryDirectory() as folder:
        job = cluster.admin.submit("sleep 1000")
        cluster.admin.reaches(job, RUNNING)
        pit = Pit.of(cluster.serving, Path(folder) / "pit")
        pit.answers = {"PIT_TOKEN": cluster.admin.token}
        try:
            with sshd(Path(folder)) as ssh:
                compare(pit_exec(pit, job), ssh)
        finally:
            cluster.admin.call("POST", f"/jobs/{job}/stop")
            cluster.admin.done(job)


def compare(pit: Run, ssh: Run) -> None:
    ours, peer = side_by_side(lambda: pit("true"), lambda: ssh("true"))
    say_ratio("pit exec N -- true", ours, "ssh host true", peer, at_most=1.5)
    flood = ("head", "-c", str(FLOOD), "/dev/zero")
    times = [(seconds_of(lambda: pit(*flood)), seconds_of(lambda: ssh(*flood))) for _ in range(4)][1:]
    rate, their = (FLOOD / sorted(column)[1] / 1e6 for column in zip(*times, strict=True))
    print(f"output of a command: {rate:.0f} MB/s, ssh: {their:.0f} MB/s, ratio {rate / their:.2f}")


def pit_exec(pit: Pit, job: int) -> Run:
    def run(*words: str) -> None:
        command = [str(PROGRAMS / "pit"), "exec", str(job), "--", *words]
        _run(command, pit.environment(), pit.project)

    return run


def _run(command: list[str], environment: dict[str, str], folder: Path) -> None:
    # Into a pipe that is read, as people use it; /dev/null would spare both sides the last step.
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        while process.stdout.read(1 << 20):
            pass
    assert process.returncode == 0, command


@contextlib.contextmanager
def sshd(folder: Path) -> Iterator[Run]:
    """Runs a command through OpenSSH on this machine, each time with a connection of its own."""
    port = pick_free_port()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    settings = {"ListenAddress": "127.0.0.1", "AuthorizedKeysFile": str(folder / "user.pub"), "StrictModes": "no"}
    # An empty home, so that nobody's .bashrc is measured along.
    settings |= {"UsePAM": "no", "PidFile": "none", "PermitRootLogin": "yes", "SetEnv": f"HOME={folder}"}
    words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    command = ["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-p", str(port), "-h", str(folder / "host"), *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        options = [
            "-i",
            str(folder / "user"),
            "-p",
            str(port),
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "LogLevel=ERROR",
        ]
        options += ["-F", "/dev/null", "-o", f"UserKnownHostsFile={folder / 'known'}", "-o", "IdentitiesOnly=yes"]
        ssh = ["ssh", *options, f"{getpass.getuser()}@127.0.0.1"]
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        try:
            wait_until(lambda: subprocess.run([*ssh, "true"], env=environment, capture_output=True).returncode == 0)
            yield lambda *words: _run([*ssh, *words], environment, folder)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
