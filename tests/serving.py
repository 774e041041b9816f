"""A real `snakepit serve` in a process of its own, on loopback, with an empty data root.

As root the service drops its rights, so its directories are made where others can go (not in pytest's private ones)."""

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from snakepit.engines.cgroups import remove_cgroups
from tests.waiting import wait_until

PROGRAMS = Path(sys.executable).parent
PASSWORD = "correct-horse-9"


@dataclass(slots=True)
class Serving:
    home: Path
    port: int
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, port: int, *options: str, config: str = "") -> Self:
        home = Path(tempfile.mkdtemp(prefix="snakepit-test-"))
        home.chmod(0o755)
        (home / "user").mkdir()
        (home / "snakepit.conf").write_text(config)
        serving = cls(home, port, cls._launch(home, port, options))
        try:
            wait_until(serving.answers, timeout_s=120, message="the service says hello")
        except BaseException:
            serving.stop()
            raise
        return serving

    @staticmethod
    def _launch(home: Path, port: int, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
        where = ("--config", str(home / "snakepit.conf"), "--data", str(home / "data"))
        with (home / "service.log").open("ab") as log:
            return subprocess.Popen(
                [
                    str(PROGRAMS / "snakepit"),
                    "serve",
                    *where,
                    "--interface",
                    "127.0.0.1",
                    "--port",
                    str(port),
                    *options,
                ],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        assert self.process.poll() is None, f"the service ended: {self.log()}"
        try:
            with urllib.request.urlopen(f"{self.url}/hello", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def log(self) -> str:
        return (self.home / "service.log").read_text(errors="replace")

    def kill(self) -> None:
        """kill -9: no goodbye."""
        self.process.kill()
        self.process.wait(timeout=30)

    def start_again(self) -> None:
        self.process = self._launch(self.home, self.port, ())
        wait_until(self.answers, timeout_s=120, message="the service says hello again")

    def agents(self) -> list[int]:
        """The process ids of the agents that serve this data root's nodes."""
        found = []
        for path in (self.home / "data" / "nodes").glob("*/socket"):
            directory = os.open(path.parent, os.O_PATH)
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(f"/proc/self/fd/{directory}/socket")
                except OSError:
                    continue
                finally:
                    os.close(directory)
                peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                found.append(struct.unpack("3i", peer)[0])
        return found

    def stop(self) -> None:
        """Ends the service, and with it what outlives it by design, then removes everything."""
        try:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(timeout=60)
        finally:
            self.process.kill()
            self.kill_agents()
            with contextlib.suppress(FileNotFoundError):
                remove_cgroups((self.home / "data" / "cluster-id").read_text().strip())
            shutil.rmtree(self.home, ignore_errors=True)

    def kill_agents(self) -> None:
        for pid in self.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def environment(self, user: str = "tilman") -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("SNAKEPIT_", "PIT_"))}
        answers = {"PIT_USER": user, "PIT_PASSWORD": PASSWORD, "PIT_FULLNAME": "T. Kamp", "PIT_EMAIL": "t@example.org"}
        return {**plain, **answers, "HOME": str(self.home / "user"), "PATH": f"{PROGRAMS}:{plain['PATH']}"}
