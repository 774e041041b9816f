"""`pit` as users type it, against a real service: every user with a home and a project directory of their own."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.serving import PASSWORD, PROGRAMS, Serving
from tests.terminal import Terminal


@dataclass(slots=True)
class Pit:
    serving: Serving
    home: Path
    project: Path
    answers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, serving: Serving, folder: Path) -> "Pit":
        """A machine that is connected, where nobody has logged in yet."""
        home, project = folder / "home", folder / "project"
        home.mkdir(parents=True)
        project.mkdir()
        (home / ".pitconnect.txt").write_text(f"{serving.url}\n")
        return cls(serving, home, project)

    def registered(self, user: str) -> "Pit":
        answers = {"PIT_USER": user, "PIT_FULLNAME": "Some Body", "PIT_EMAIL": "some@example.org"}
        self.ok("login", "--register", **answers, PIT_PASSWORD=PASSWORD)
        return self

    def environment(self, **more: str) -> dict[str, str]:
        kept = ("PATH", "LANG", "PYTHONPATH")
        plain = {name: os.environ[name] for name in kept if name in os.environ}
        return {"TERM": "xterm", **plain, "HOME": str(self.home), **self.answers, **more}

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(PROGRAMS / "pit"), *arguments],
            cwd=self.project,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
        )

    def ok(self, *arguments: str, **environment: str) -> str:
        """What it printed; it has to succeed."""
        done = self.run(*arguments, **environment)
        assert done.returncode == 0, f"pit {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fails(self, *arguments: str, code: int = 1, **environment: str) -> str:
        """What it said on stderr; it has to fail with this code, and with a clear word, not a traceback."""
        done = self.run(*arguments, **environment)
        assert done.returncode == code, f"pit {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stderr

    def submit(self, script: str, title: str = "T", request: str = "[]", *options: str) -> int:
        out = self.ok("run", title, request, "--script-only", "-d", script, *options)
        return int(out.rpartition("=> job number: ")[2])

    def terminal(self, *arguments: str, columns: int = 120, **environment: str) -> Terminal:
        command = [str(PROGRAMS / "pit"), *arguments]
        return Terminal(*command, cwd=self.project, env=self.environment(**environment), columns=columns)
