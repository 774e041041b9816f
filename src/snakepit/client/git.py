"""Asking git about a checkout: one way to start it, with settings under which no hook runs and no lock is taken."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
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


class Git:
    """git in the directory `top`, with `env` besides the environment that there is."""

    __slots__ = ("env", "top")

    def __init__(self, top: Path, env: Mapping[str, str] | None = None) -> None:
        self.top, self.env = top, env or {}

    def ask(self, *words: str, stdin: bytes = b"") -> bytes:
        return self.start(words).answer(stdin)

    def text(self, *words: str) -> str:
        return self.ask(*words).decode("utf-8", "surrogateescape").strip("\n")

    def find(self, *words: str) -> str | None:
        """Its answer; None where it has none."""
        return self.start(words).found()

    def names(self, *words: str, stdin: bytes = b"") -> list[bytes]:
        """A list that git ends with NUL bytes (`-z`)."""
        return self.start(words).names(stdin)

    def run(self, words: Sequence[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return self.start(words).done(stdin)

    @contextlib.contextmanager
    def asking(self, *questions: Sequence[str]) -> Iterator[list[Asked]]:
        """Several questions at a time, beside what else is done before their answers are read."""
        asked: list[Asked] = []
        try:
            asked += [self.start(words) for words in questions]
            yield asked
        finally:
            for each in asked:
                each.end()

    def start(self, words: Sequence[str]) -> Asked:
        try:
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                self.argv(words), cwd=self.top, env=self.environment(), stdin=pipe, stdout=pipe, stderr=pipe
            )
        except FileNotFoundError:
            raise SnakepitError("git is not installed") from None
        return Asked(words[0], process)

    def argv(self, words: Sequence[str]) -> list[str]:
        return ["git", *(part for setting in SETTINGS for part in ("-c", setting)), *words]

    def environment(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
        return {**plain, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **self.env}


class Asked:
    """A question that git is at work on. Its answer is read once, in one of these ways."""

    __slots__ = ("process", "what")

    def __init__(self, what: str, process: subprocess.Popen[bytes]) -> None:
        self.what, self.process = what, process

    def answer(self, stdin: bytes = b"") -> bytes:
        done = self.done(stdin)
        if done.returncode != 0:
            said = " ".join(done.stderr.decode("utf-8", "replace").split())
            raise SnakepitError(f"git {self.what} failed: {said or f'exit code {done.returncode}'}")
        return done.stdout

    def found(self) -> str | None:
        done = self.done()
        return done.stdout.decode("utf-8", "surrogateescape").strip("\n") if done.returncode == 0 else None

    def names(self, stdin: bytes = b"") -> list[bytes]:
        return self.answer(stdin).split(b"\0")[:-1]

    def done(self, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        try:
            out, said = self.process.communicate(stdin)
        except BaseException:
            self.end()
            raise
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, said)

    def end(self) -> None:
        """Nobody wants to know any more, or everything is known."""
        if self.process.returncode is None:
            self.process.kill()
        with self.process:  # closes its handles and waits
            pass
