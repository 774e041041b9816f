"""Snapshots on their way: pushed to the user's repository at the head, and fetched from it again.

git does the work, over a connection of ours; it sends what the head does not have yet.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator

from snakepit.client.aside import Repository, private_git
from snakepit.client.git import Git
from snakepit.client.reaching import FETCH, PUSH
from snakepit.errors import SnakepitError, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

    from snakepit.client.reaching import Place

INCOMING = "refs/pit/incoming/"
# Patterns as texts: they are needed when something went wrong, and a start of pit shall not wait for them.
_TOO_LARGE = r"exceeds maximum allowed size"
_FULL = r"no space left on device|out of diskspace|disk quota exceeded"
_IN_THE_WAY = r"cannot lock ref|reference already exists|\.lock'|failed to update ref"
_BROKEN = r"unexpected disconnect|early EOF|connection reset|broken pipe|connection broke off"
_MISSING = r"unable to read|bad object|missing (?:blob|tree|commit)|could not read|bad tree"
_NOISE = r"(?:remote: )*(?:fatal|error|Command failed|! \[remote rejected\])[: ]*"
_PROGRESS = (
    *("Enumerating ", "Counting ", "Compressing ", "Writing ", "Resolving "),
    *("Unpacking ", "Receiving ", "Checking ", "Delta ", "Total "),
)


def push(repository: Repository, commit: str, to: Place, hear: Callable[[str], None] = lambda _: None) -> None:
    """The head has the commit and all it needs when this returns; `hear` gets git's words on how far it is."""
    git = private_git(repository)
    words = ["push", "--no-verify", "--no-signed", "--no-follow-tags", "--thin", "--progress", "--porcelain"]
    # Another may be sending the same at this moment; one that was killed at the head may have left a lock behind.
    for ref in (commit, commit, f"{commit}-{os.urandom(4).hex()}"):
        with to.reach(PUSH) as (address, handles):
            code, said = _talk(git, [*words, address, f"{commit}:{INCOMING}{ref}"], handles, hear)
        if code == 0:
            return
        if not re.search(_IN_THE_WAY, said, re.IGNORECASE):
            break
    if re.search(_TOO_LARGE, said, re.IGNORECASE):
        raise TooLarge(
            "the head does not take that much at once (its limit is maxSnapshotSize): "
            "add large files to .gitignore or .pitignore, or use --archive"
        )
    if re.search(_FULL, said, re.IGNORECASE):
        raise SnakepitError("the code could not be sent: the disk of the head is full")
    if re.search(_BROKEN, said, re.IGNORECASE):
        raise SnakepitError("the code could not be sent: the connection broke off. No job was made: try again")
    if re.search(_MISSING, said, re.IGNORECASE):
        (repository.pit / "index").unlink(missing_ok=True)  # what was read before is gone: next time all is read again
    raise SnakepitError(f"the code could not be sent: {said}")


def fetch(git: Git, source: Place, ref: str, to: str, depth: int = 0) -> None:
    more = [f"--depth={depth}"] if depth else []
    plain = ("--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance")
    with source.reach(FETCH) as (address, handles):
        words = ["fetch", "--quiet", *plain, *more, address, f"+{ref}:{to}"]
        code, said = _talk(git, words, handles, lambda _: None)
    if code != 0:
        raise SnakepitError(said)


def check_branch(repository: Repository, name: str) -> str:
    """The full name of a branch that could be made."""
    if name.startswith("-") or repository.git.find("check-ref-format", "--branch", name) != name:
        raise SnakepitError(f'"{name}" cannot be the name of a branch')
    ref = f"refs/heads/{name}"
    if repository.git.find("rev-parse", "--verify", "--quiet", ref) is not None:
        raise SnakepitError(f'there is a branch "{name}" already')
    return ref


def make_branch(repository: Repository, ref: str, commit: str) -> None:
    repository.git.ask("update-ref", "--no-deref", "-m", "pit run --branch", ref, commit, "0" * 40)


def _talk(git: Git, words: list[str], handles: tuple[int, ...], hear: Callable[[str], None]) -> tuple[int, str]:
    """Its exit code, and on one line what it said besides how far it was."""
    try:
        process = subprocess.Popen(
            git.argv(words),
            cwd=git.top,
            env={**git.environment(), "GIT_ALLOW_PROTOCOL": "fd:file", "GIT_TERMINAL_PROMPT": "0"},
            pass_fds=handles,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        raise SnakepitError("git is not installed") from None
    said: list[str] = []
    with process:
        assert process.stderr is not None
        for line in _lines(process.stderr):
            if line.removeprefix("remote: ").startswith(_PROGRESS):
                hear(line)
            else:
                said.append(re.sub(_NOISE, "", line))
    # git's own advice is about ssh, and would only mislead.
    kept = [line for line in said if line and not line.startswith(_ADVICE)]
    return process.returncode, "; ".join(dict.fromkeys(kept)) or "the connection broke off"


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """Lines that end as lines do, or that are painted over."""
    rest = b""
    while chunk := os.read(stream.fileno(), 1 << 16):
        *lines, rest = re.split(rb"[\r\n]+", rest + chunk)
        yield from (line.decode("utf-8", "replace").strip() for line in lines)
    yield rest.decode("utf-8", "replace").strip()


_ADVICE = (
    "Could not read from remote repository",
    "Please make sure you have the correct access rights",
    "and the repository exists",
    "failed to push some refs",
    "the remote end hung up unexpectedly",
)
