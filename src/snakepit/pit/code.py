"""Which code goes along with a job: a git checkout as a snapshot, or as origin, hash and diff; an archive; or none."""

from __future__ import annotations

import shlex
from pathlib import Path

from snakepit.client.aside import Repository, find_repository
from snakepit.client.client import Client
from snakepit.errors import SnakepitError
from snakepit.pit import render
from snakepit.pit.arguments import Arguments, UsageError
from snakepit.pit.source import Source

NOTHING = Source({}, [], {})


def collect(arguments: Arguments, client: Client, script: str) -> Source:
    cwd = Path.cwd()
    if arguments.on("script-only"):
        if arguments.on("archive"):
            raise UsageError("--script-only and --archive exclude each other")
        if not script:
            raise UsageError("--script-only needs something to run: -d 'commands' or -- command")
        return NOTHING
    if arguments.on("origin"):
        if arguments.on("archive"):
            raise UsageError("--origin and --archive exclude each other")
        return _of_origin(cwd, script)
    if not arguments.on("archive"):
        repository = find_repository(cwd)
        if isinstance(repository, Repository):
            return _of_snapshot(repository, cwd, client, arguments, script)
        if cwd in (Path.home(), Path("/")):
            return _no_project(cwd, script)
        render.talk(f"Sending an archive: {repository.reason}.")
    if arguments.on("branch"):
        raise UsageError("--branch is for snapshots of git checkouts")
    _warn_of_nothing(cwd, script)
    from snakepit.pit.archive import of_directory

    return of_directory(cwd, client, arguments)


def _no_project(cwd: Path, script: str) -> Source:
    """Nobody means to send a whole home directory along with a one-line command."""
    if not script:
        raise SnakepitError(f"{cwd} is no project directory; change into one, or use --archive to send all of it")
    render.talk(f"{cwd} is no project: only the command is sent (--archive sends the directory).")
    return NOTHING


def _of_snapshot(repository: Repository, cwd: Path, client: Client, arguments: Arguments, script: str) -> Source:
    from snakepit.pit.snapshots import of_repository

    _warn_of_nothing(cwd if (cwd / ".compute").is_file() else repository.top, script)
    return of_repository(repository, client, arguments, _script_there(repository.subdirectory, cwd, script))


def _of_origin(cwd: Path, script: str) -> Source:
    """As the original client does it: the head fetches the commit by itself, and gets the difference."""
    from snakepit.client.checkout import NoCheckout, describe

    checkout = describe(cwd)
    if isinstance(checkout, NoCheckout):
        raise SnakepitError(f"--origin: {checkout.reason}")
    for note in checkout.notes:
        render.talk(f"Note: {note}")
    _warn_of_nothing(cwd if (cwd / ".compute").is_file() else checkout.top, script)
    fields: dict[str, object] = {"origin": checkout.origin, "hash": checkout.hash}
    if checkout.diff:
        fields.update(_diff_field(checkout.diff))
    lines = [
        ("Remote", f"{checkout.remote} <{checkout.origin_shown}>"),
        ("Hash", checkout.hash),
        ("Diff LoC", str(checkout.diff_loc)),
    ]
    names = ("remote", "origin", "hash", "diffLoC")
    values = (checkout.remote, checkout.origin_shown, checkout.hash, checkout.diff_loc)
    return Source(
        fields, lines, dict(zip(names, values, strict=True)), script=_script_there(checkout.subdirectory, cwd, script)
    )


def _script_there(subdirectory: str, cwd: Path, script: str) -> str | None:
    """Called in a subdirectory, a job starts there too. A `.compute` of the top stays one of the top."""
    if not subdirectory or not (script or (cwd / ".compute").is_file()):
        return None
    return f"cd {shlex.quote(subdirectory)} || exit\n{script or 'bash .compute'}"


def _diff_field(diff: bytes) -> dict[str, object]:
    """As text where it is UTF-8, as every service understands; files in other encodings need the longer way."""
    try:
        return {"diff": diff.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {"diffBase64": base64.b64encode(diff).decode()}


def _warn_of_nothing(place: Path, script: str) -> None:
    if not script and not (place / ".compute").is_file():
        render.talk(
            "There is no .compute file here and no command was given (-d, or after --): the job will do nothing."
        )
