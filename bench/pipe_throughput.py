"""Sequential reading and writing of one large file by OpenSSH's sftp: through `pit pipe` and the service, next to the
same confined sftp-server with nothing in between."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from bench.measure import PASSWORD, running_service, side_by_side
from snakepit.client.client import Client
from snakepit.service.pipes import programs
from snakepit.service.pipes.entity import Place
from snakepit.service.pipes.programs import ENVIRONMENT, command
from tests.serving import PROGRAMS, Serving

SIZE_MB = int(os.environ.get("BENCH_MEGABYTES", "256"))
ROUNDS = 5
AT_LEAST = {"read": 0.4, "write": 0.5}


def main() -> None:
    with running_service() as serving, tempfile.TemporaryDirectory() as scratch:
        environment = signed_in(serving)
        large = Path(scratch) / "large"
        with large.open("wb") as file:
            for _ in range(SIZE_MB):
                file.write(os.urandom(1 << 20))
        pipe = f"{PROGRAMS}/pit pipe sftp home"
        room = Path(scratch) / "room"
        room.mkdir()
        bare = shlex.join(command(programs.sftp(Place(room, True)), Path(scratch)))
        for what, batch in (("write", f"put {large} large"), ("read", "get large /dev/null")):
            ours_s, peer_s = side_by_side(
                lambda batch=batch: sftp(pipe, batch, environment),  # type: ignore[misc]
                lambda batch=batch: sftp(bare, batch, ENVIRONMENT),  # type: ignore[misc]
                ROUNDS,
            )
            ratio = peer_s / ours_s
            rates = f"{SIZE_MB / ours_s:.0f} MB/s, without the service: {SIZE_MB / peer_s:.0f} MB/s"
            verdict = "ok" if ratio >= AT_LEAST[what] else "TOO SLOW"
            print(f"sftp {what} through a pipe: {rates}, ratio {ratio:.2f} (at least {AT_LEAST[what]:g}): {verdict}")


def signed_in(serving: Serving) -> dict[str, str]:
    with Client(serving.url) as client:
        client.register("tilman", "T. Kamp", "t@example.org", PASSWORD)
        token = client.authenticate("tilman", PASSWORD)
    (serving.home / "user" / ".pitconnect.txt").write_text(f"{serving.url}\n")
    return {**serving.environment(), "PIT_TOKEN": token}


def sftp(server: str, batch: str, environment: dict[str, str]) -> None:
    # Requests large and many enough that no side waits for the other.
    arguments = ["sftp", "-q", "-b", "-", "-B", "131072", "-R", "128", "-D", server]
    done = subprocess.run(arguments, input=batch + "\n", env=environment, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    main()
