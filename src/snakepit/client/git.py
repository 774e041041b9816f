"""Asking git about a checkout: one way to start it, with settings under which no hook runs and no lock is taken."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from snakepit.errors import SnakepitError

# The user's settings must not change what a diff looks like, nor a hook hear of our index.
SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.safecrlf=false",
    "core.splitIndex=false",
    "advice.addEmbeddedRepo=false",
)
# Set inside git's own hooks, and then about another repository or index than the one we are asked about.
_ELSEWHERE = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
)


@dataclass(frozen=True, slots=True)
class Git:
    top: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def ask(self, *words: str, stdin: bytes = b"") -> bytes:
        done = self.run(words, stdin)
        if done.returncode != 0:
            said = " ".join(done.stderr.decode("utf-8", "replace").split())
            raise SnakepitError(f"git {words[0]} failed: {said or f'exit code {done.returncode}'}")
        return done.stdout

    def text(self, *words: str) -> str:
        return self.ask(*words).decode("utf-8", "surrogateescape").strip("\n")

    def find(self, *words: str) -> str | None:
        """Its answer; None where it has none."""
        done = self.run(words)
        return done.stdout.decode("utf-8", "surrogateescape").strip("\n") if done.returncode == 0 else None

    def names(self, *words: str, stdin: bytes = b"") -> list[bytes]:
        """A list that git ends with NUL bytes (`-z`)."""
        return self.ask(*words, stdin=stdin).split(b"\0")[:-1]

    def run(self, words: Sequence[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                self.argv(words), cwd=self.top, env=self.environment(), input=stdin, capture_output=True
            )
        except FileNotFoundError:
            raise SnakepitError("git is not installed") from None

    def argv(self, words: Sequence[str]) -> list[str]:
        return ["git", *(part for setting in SETTINGS for part in ("-c", setting)), *words]

    def environment(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
        return {**plain, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **self.env}
