"""`pit pull`, `cp`, `push`, `cat`, `download`: files and directories between here and the head."""

from __future__ import annotations

import os

from snakepit.client import entities, places
from snakepit.errors import BadRequest
from snakepit.pit import copying, render, session
from snakepit.pit.arguments import Argument, Arguments, Command, Option, UsageError
from snakepit.pit.bar import Bar
from snakepit.wire.tree import PART

OPTIONS = (
    Option("-f --force", "overwrites what is there"),
    Option("-c --continue", "goes on with a transfer that broke off, without asking"),
    Option("-r --recursive", "copies a directory with all that is in it"),
)
WORDS = (
    Argument("entity"),
    Argument("remotePath", required=False),
    Argument("localPath", required=False),
)
PLACES = """
"entity" is home, user:<name>, group:<name>, shared, job:<number> or just <number>.
The path may stand behind a colon too: 190:keep/model.pt."""


def pull(arguments: Arguments) -> int:
    words = _words(arguments)
    if places.find(words[0]) is None:
        return _up(words, _how(arguments))
    place, path, rest = places.parse(words)
    if len(rest) > 1:
        raise UsageError(f'unexpected argument "{rest[1]}"')
    if rest and (other := places.find(rest[0])) is not None and other[1] is not None:
        raise UsageError("one side has to be here: copy to this machine first, or use pit mount")
    return copying.pull(place, path, rest[0] if rest else None, _how(arguments))


def _up(words: list[str], how: copying.How) -> int:
    """`cp LOCAL entity:path` or `cp LOCAL entity path`."""
    if len(words) < 2:
        raise UsageError(f'"{words[0]}" is no place for files (expected {places.KNOWN}, with :<path> behind it)')
    place, path, rest = places.parse(words[1:])
    if rest:
        raise UsageError(f'unexpected argument "{rest[0]}"')
    return copying.push(place, path, words[0], how, into=True)


def push(arguments: Arguments) -> int:
    place, path, rest = places.parse(_words(arguments))
    if len(rest) > 1:
        raise UsageError(f'unexpected argument "{rest[1]}"')
    if not rest and not path.strip("/"):
        raise UsageError("missing argument <remotePath>")
    return copying.push(place, path, rest[0] if rest else None, _how(arguments))


def cat(arguments: Arguments) -> int:
    place, path, rest = places.parse(_words(arguments))
    if rest:
        raise UsageError(f'unexpected argument "{rest[0]}"')
    return copying.pull(place, path, None, copying.How())


def download(arguments: Arguments) -> int:
    (number,) = entities.job_numbers([arguments.word("jobNumber")])
    name = f"job{number}.tar.gz"
    if os.path.lexists(name):
        raise BadRequest(f"{name} is existing already")
    client = session.open_client()
    aside = f".{os.urandom(8).hex()}{PART}"
    answer = client.answer("GET", f"/jobs/{number}/targz", limit_s=600)
    try:
        with open(aside, "xb") as file, Bar("downloading") as bar:
            for block in answer.blocks():
                file.write(block)
                bar(file.tell())
        os.link(aside, name)  # unlike a rename it takes no other file's place
    except FileExistsError:
        raise BadRequest(f"{name} is existing already") from None
    finally:
        os.unlink(aside)
    render.talk(f"{name}: {render.size(os.stat(name).st_size)}")
    return 0


def _words(arguments: Arguments) -> list[str]:
    return [word for name in ("entity", "remotePath", "localPath") for word in arguments.words(name)]


def _how(arguments: Arguments) -> copying.How:
    if arguments.on("force") and arguments.on("continue"):
        raise UsageError("--force and --continue exclude each other")
    return copying.How(arguments.on("force"), arguments.on("continue"), arguments.on("recursive"))


COMMANDS = (
    Command(
        "pull",
        "copies a file or directory from the cluster, or to it",
        pull,
        WORDS,
        OPTIONS,
        aliases=("cp",),
        examples=(
            "pit cp 190:keep/model.pt .",
            "pit cp 190 keep/model.pt .          # the same, as it always was",
            "pit cp -r 190:keep results",
            "pit cp data.tar home:sets/",
            "pit cp 190:log/0.log | less",
        ),
        notes=f"{PLACES}\nWithout a local path it goes to stdout. Large directories, again and again: pit sync.",
    ),
    Command(
        "push",
        "copies a file or directory to the cluster",
        push,
        WORDS,
        OPTIONS,
        examples=(
            "pit push home sets/data.tar data.tar",
            "pit push home:sets/data.tar data.tar",
            "pit push -r group:students:sets/faces faces",
            "tar c . | pit push home all.tar",
        ),
        notes=f"{PLACES}\nWithout a local path it comes from stdin.",
    ),
    Command(
        "cat",
        "prints a file of the cluster",
        cat,
        (Argument("entity"), Argument("remotePath", required=False)),
        examples=("pit cat 190 keep/result.json", "pit cat home:notes.txt"),
        notes=PLACES,
    ),
    Command(
        "download",
        "downloads the directory of a job as job<number>.tar.gz",
        download,
        (Argument("jobNumber"),),
        examples=("pit download 190",),
    ),
)
