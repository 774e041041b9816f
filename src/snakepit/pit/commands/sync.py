"""`pit sync`: rsync through the pipe. For data sets of any size: only what differs is sent; what broke off goes on."""

from __future__ import annotations

import os
import subprocess

from snakepit.client import places, transfer
from snakepit.client.client import Client
from snakepit.client.http import quote
from snakepit.errors import BadRequest, Forbidden, NotFound, SnakepitError
from snakepit.pit import own, render, session
from snakepit.pit.arguments import Argument, Arguments, Command, Option, UsageError

# What a person's files are: contents, links as such, times, who may execute; owners are the service's affair.
COPY = ("-rltE", "--no-secluded-args", "--partial-dir=.rsync-partial", "--timeout=600")
INSTALL = "rsync is not installed here (Debian and Ubuntu: apt-get install rsync; macOS: brew install rsync)"
ENDS = {
    11: "a file could not be read or written; the same command goes on where it was",
    12: "the connection broke off; the same command goes on where it was",
    20: "interrupted; the same command goes on where it was",
    23: "some files could not be transferred",
    24: "some files vanished while they were transferred",
    30: "the connection went silent; the same command goes on where it was",
}


def sync(arguments: Arguments) -> int:
    """Which side is the cluster's is said by its place; the other one is here."""
    source, target = arguments.word("source"), arguments.word("target")
    remote_source, remote_target = places.find(source), places.find(target)
    if (remote_source is None) == (remote_target is None):
        raise UsageError("one of the two has to be a place at the cluster (home:sets), the other one here")
    client = session.open_client()
    if remote_target is not None:
        place, path = remote_target[0], remote_target[1] or ""
        words = _up(client, source, place, path)
    else:
        assert remote_source is not None
        place, path = remote_source[0], remote_source[1] or ""
        words = _down(client, place, path, target)
    return _run(client, words, arguments)


def _up(client: Client, local: str, place: places.Place, path: str) -> list[str]:
    if not os.path.lexists(local):
        raise NotFound(f"{local} does not exist")
    if not place.writable:
        raise Forbidden(f"{place.entity} is read-only")
    if over := transfer.whole(client, place).over_limit:
        raise SnakepitError(over)
    there = transfer.look(client, place, path)
    if os.path.isdir(local):
        if there is not None and there.is_file:
            raise BadRequest("Target path is existing, but not a directory.")
        if there is None:
            transfer.make_directory(client, place, path)
        return ["-e", _shell(place, f"{path}/"), "--", _local(local, inside=True), "pit:."]
    if there is not None and not there.is_file:
        path = f"{path}/" if path else ""
    return ["-e", _shell(place, path), "--", _local(local), "pit:."]


def _down(client: Client, place: places.Place, path: str, local: str) -> list[str]:
    found = transfer.get(client, place, path)
    inside = "" if found.is_file else "/"
    return ["-e", _shell(place, f"{path}{inside}"), "--", "pit:.", _local(local, inside=not found.is_file)]


def _local(path: str, inside: bool = False) -> str:
    """With a colon in it rsync would take it for a host's, unless it begins with a dot or slash."""
    path = path if path.startswith(("/", "./")) else f"./{path}"
    return f"{path.rstrip('/')}/" if inside else path


def _shell(place: places.Place, path: str) -> str:
    """rsync splits at blanks, and reads quotes: a quote within is written twice."""
    encoded = "/".join(quote(name) for name in path.split("/")) or "."
    words = own.pipe("rsync", place.entity, encoded if encoded != "/" else ".")
    return " ".join("'" + word.replace("'", "''") + "'" for word in words)


def _run(client: Client, words: list[str], arguments: Arguments) -> int:
    options = [*COPY]
    options += ["--info=progress2", "--no-inc-recursive"] if render.on_terminal() else []
    options += ["--delete"] if arguments.on("delete") else []
    options += ["--checksum"] if arguments.on("checksum") else []
    options += ["-n", "-i"] if arguments.on("dry-run") else []
    options += ["-z"] if arguments.on("compress") else []
    render.flush()
    try:
        code = subprocess.run(["rsync", *options, *words], env=own.environment(client)).returncode
    except FileNotFoundError:
        raise SnakepitError(INSTALL) from None
    if code:
        raise SnakepitError(ENDS.get(code, f"rsync ended with code {code}"))
    return 0


COMMANDS = (
    Command(
        "sync",
        "makes one directory like the other, here and at the cluster",
        sync,
        (Argument("source"), Argument("target")),
        (
            Option("--delete", "also removes what the source does not have"),
            Option("-n --dry-run", "only shows what would be done"),
            Option("-z --compress", "compresses on the way"),
            Option("--checksum", "compares contents, not sizes and times"),
        ),
        examples=(
            "pit sync faces home:sets/faces",
            "pit sync 190:keep results",
            "pit sync --delete faces group:students:sets/faces",
        ),
        notes="""
What is in the one directory is then in the other: only what differs travels (by rsync, which has to be
installed here), and after an interruption the same command goes on. Files work too.""",
    ),
)
