"""`pit ls`, `mkdir`, `delete`, `du`: what is there, and how much."""

from __future__ import annotations

import time

from snakepit.client import places, transfer
from snakepit.errors import BadRequest
from snakepit.pit import render, session
from snakepit.pit.arguments import JSON, Argument, Arguments, Command, Option, UsageError
from snakepit.pit.commands.copy import PLACES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def ls(arguments: Arguments) -> int:
    place, path = _where(arguments)
    client = session.open_client()
    found = transfer.get(client, place, path)
    if found.is_file:
        entries = [transfer.Entry(path, True, found.size, _seconds(found.mtime))]
    elif arguments.on("long") or arguments.on("json"):
        entries = transfer.entries(client, place, path)
        entries.sort(key=lambda entry: entry.is_file)
    else:
        directories, files = transfer.names(client, place, path)
        shown = [f"D {render.name(each)}\n" for each in directories] + [f"F {render.name(each)}\n" for each in files]
        render.out_names("".join(shown))
        return 0
    if arguments.on("json"):
        keys = ("name", "isFile", "size", "mtime")
        render.json_out([dict(zip(keys, (e.name, e.is_file, e.size, e.mtime), strict=True)) for e in entries])
    else:
        minutes: dict[int, str] = {}
        render.out_names("".join(_line(entry, arguments.on("long"), minutes) for entry in entries))
    return 0


def _line(entry: transfer.Entry, long: bool, minutes: dict[int, str]) -> str:
    kind, name = "F" if entry.is_file else "D", render.name(entry.name)
    if not long:
        return f"{kind} {name}\n"
    minute, second = divmod(int(entry.mtime), 60)
    if minute not in minutes:  # the files of a data set are of few moments, and local time is slow to find
        minutes[minute] = time.strftime("%Y-%m-%d %H:%M", time.localtime(minute * 60))
    size = str(entry.size) if entry.is_file else "-"
    return f"{kind} {size:>14} {minutes[minute]}:{second:02} {name}\n"


def _seconds(date: str) -> float:
    import calendar

    whole, _, fraction = date.removesuffix("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")


def mkdir(arguments: Arguments) -> int:
    place, path = _where(arguments, needed=True)
    transfer.make_directory(session.open_client(), place, path)
    return 0


def delete(arguments: Arguments) -> int:
    place, path = _where(arguments, needed=True)
    transfer.delete(session.open_client(), place, path)
    return 0


def du(arguments: Arguments) -> int:
    place, path = _where(arguments) if arguments.words("entity") else (places.HOME, "")
    client = session.open_client()
    if transfer.get(client, place, path).is_file:
        raise BadRequest(f"{path} is a file: pit ls -l shows its size")
    found = client.call("GET", place.target("stats", path, usage=1), limit_s=600)
    if arguments.on("json"):
        render.json_out(found)
        return 0
    lines = [f"{render.size(size):>9}  {render.name(name)}\n" for name, size, _ in found["entries"]]
    shown = place.entity + (f":{render.name(path)}" if path else "")
    lines.append(f"{render.size(found['size']):>9}  {shown} ({_count(found['files'])})\n")
    render.out_names("".join(lines))
    render.out(_used(found, place))
    return 0


def _count(files: int) -> str:
    return "1 file" if files == 1 else f"{files} files"


def _used(found: dict[str, Any], place: places.Place) -> str:
    """What counts against a limit; of a user more than the directory, so it is said without a limit, too."""
    used, limit = found.get("used"), found.get("limit")
    whose = "home and jobs" if place.root.startswith("/users/") else ""
    if used is None or not (limit or whose):
        return ""
    if limit:
        return f"{render.size(used):>9}  of {render.size(limit)} ({whose or 'in all'})\n"
    return f"{render.size(used):>9}  {whose} (no limit)\n"


def _where(arguments: Arguments, needed: bool = False) -> tuple[places.Place, str]:
    place, path, rest = places.parse([*arguments.words("entity"), *arguments.words("path")])
    if rest:
        raise UsageError(f'unexpected argument "{rest[0]}"')
    if needed and not path.strip("/"):
        raise UsageError("missing argument <path>")
    return place, path


WORDS = (Argument("entity"), Argument("path", required=False))

COMMANDS = (
    Command(
        "ls",
        "lists a directory of the cluster",
        ls,
        WORDS,
        (Option("-l --long", "shows sizes and times too"), JSON),
        examples=("pit ls home", "pit ls -l 190 keep", "pit ls group:students:sets"),
        notes=PLACES,
    ),
    Command(
        "mkdir",
        "makes a directory at the cluster, and those above it",
        mkdir,
        WORDS,
        examples=("pit mkdir home sets/faces", "pit mkdir group:students:sets"),
        notes=PLACES,
    ),
    Command(
        "delete",
        "deletes a file, or a directory with all that is in it",
        delete,
        WORDS,
        examples=("pit delete home sets/faces", "pit delete group:students:old.tar"),
        notes=f"{PLACES}\nIt does not ask. Jobs are removed by pit rm.",
    ),
    Command(
        "du",
        "shows what takes how much space",
        du,
        (Argument("entity", required=False), Argument("path", required=False)),
        (JSON,),
        examples=("pit du", "pit du 190", "pit du group:students sets"),
        notes=f"{PLACES}\nWithout any of them it is your home. The last line is what a limit counts: home and jobs.",
    ),
)
