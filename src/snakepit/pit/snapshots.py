"""The checkout as a snapshot: agreed to where that is needed, sent, and kept here under the job's number."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from snakepit.client import sending, versions
from snakepit.client.aside import NoRepository, Repository, find_repository
from snakepit.client.client import Client
from snakepit.client.reaching import PUSH, Head
from snakepit.client.snapshot import Concerns, Limits, Snapshot, take
from snakepit.core.sizes import parse_size
from snakepit.errors import BadRequest, SnakepitError
from snakepit.pit import ask, render
from snakepit.pit.arguments import Arguments, UsageError
from snakepit.pit.source import Source

FILE_LIMIT, TOTAL_LIMIT = "PIT_MAX_FILE", "PIT_MAX_SNAPSHOT"
LISTED = 20
PATIENCE_S = 1.0


def of_repository(repository: Repository, client: Client, arguments: Arguments, script: str | None) -> Source:
    branch = arguments.text("branch")
    ref = sending.check_branch(repository, branch) if branch is not None else ""
    head = Head(client)
    try:
        head.expect(PUSH)
        snapshot = take(repository, reviewer(arguments), limits())
        for note in snapshot.notes:
            render.talk(f"Note: {render.clean(note)}")
        send(head, snapshot)
    finally:
        head.close()

    def submitted(number: int) -> None:
        versions.keep(repository, client.address.url, number, snapshot.commit)
        if ref:
            sending.make_branch(repository, ref, snapshot.commit)

    return Source(_fields(snapshot), _lines(snapshot), _shown(snapshot), script=script, submitted=submitted)


def send(head: Head, snapshot: Snapshot) -> None:
    passing = _Passing()
    try:
        sending.push(snapshot.repository, snapshot.commit, head, passing)
    finally:
        passing.close()


class _Passing:
    """git's words on a line that is painted over, once it takes long enough to wonder."""

    def __init__(self) -> None:
        self._since, self._painted = time.monotonic(), False

    def __call__(self, line: str) -> None:
        if time.monotonic() - self._since > PATIENCE_S and ask.interactive():
            render.prompt(f"\r  {render.clean(line)}\x1b[K")
            self._painted = True

    def close(self) -> None:
        if self._painted:
            render.prompt("\r\x1b[K")


def _fields(snapshot: Snapshot) -> dict[str, object]:
    fields: dict[str, object] = {"snapshot": snapshot.commit, "diffLoC": snapshot.diff_loc}
    if snapshot.repository.head:
        fields["hash"] = snapshot.repository.head
    if snapshot.repository.shown:
        fields["origin"] = snapshot.repository.shown
    return fields


def _lines(snapshot: Snapshot) -> list[tuple[str, str]]:
    found = snapshot.repository
    lines = [("Remote", f"{found.remote} <{found.shown}>")] if found.shown else []
    return [*lines, ("Hash", found.head or "no commit yet"), ("Diff LoC", str(snapshot.diff_loc))]


def _shown(snapshot: Snapshot) -> dict[str, object]:
    found = snapshot.repository
    names = {"remote": found.remote, "origin": found.shown, "hash": found.head}
    return {**names, "diffLoC": snapshot.diff_loc, "snapshot": snapshot.commit}


def limits() -> Limits:
    return Limits(_size(FILE_LIMIT, Limits().file_bytes), _size(TOTAL_LIMIT, Limits().total_bytes))


def _size(variable: str, usual: int) -> int:
    text = os.environ.get(variable)
    try:
        return parse_size(text) if text else usual
    except BadRequest as problem:
        raise UsageError(f"{variable}: {problem.message}") from None


def reviewer(arguments: Arguments) -> Callable[[Concerns], None]:
    """People are asked; scripts get an error that names the files and the flag."""

    def review(concerns: Concerns) -> None:
        if concerns.secrets and not arguments.on("allow-secrets"):
            _agree("These files look like secrets", list(concerns.secrets), "--allow-secrets")
        if arguments.on("allow-large"):
            return
        if concerns.large:
            files = [f"{name} ({render.size(size)})" for name, size in concerns.large]
            _agree("These files are large", files, "--allow-large")
        elif concerns.too_much:
            total = render.size(concerns.total_bytes)
            _agree(f"New and changed files are {total} in all", [], "--allow-large")

    return review


def _agree(what: str, files: list[str], flag: str) -> None:
    shown = [render.clean(name) for name in files[:LISTED]]
    if len(files) > LISTED:
        shown.append(f"and {len(files) - LISTED} more")
    if ask.interactive():
        render.talk(f"{what}{':' if shown else '.'}" + "".join(f"\n  {name}" for name in shown))
        if ask.yes("Send them with the job (y/N)? ", flag):
            return
        raise SnakepitError("Nothing was sent. What .gitignore or .pitignore names is not sent.")
    listed = ": " + ", ".join(shown) if shown else ""
    raise SnakepitError(
        f"{what[0].lower()}{what[1:]}{listed}. Name them in .gitignore or .pitignore, or send them with {flag}"
    )


def repository_here() -> Repository:
    found = find_repository(Path.cwd())
    if isinstance(found, NoRepository):
        raise SnakepitError(f"{found.reason}: there are no snapshots here")
    return found
