"""What a stranger's rsync may ask of ours: a list of what is allowed. Whatever is not on it is refused by name.

What could open another file, another program or a port (--daemon, --rsh, --log-file, --files-from, --temp-dir, and
--secluded-args, which sends the real arguments later, unseen) is not on it. The path is no argument: it comes apart
from them and is written behind `./`, so that no name becomes an option.
"""

from __future__ import annotations

import asyncio
import re
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence

from snakepit.errors import BadRequest, Forbidden
from snakepit.service.beneath import components
from snakepit.service.pipes.entity import Place
from snakepit.service.pipes.programs import Program, installed

# Letters that say what is copied and how; then, as rsync's clients write it, `e.` and what the client is capable of.
FLAGS = re.compile(r"-[vnlLkKWHtOrcuRdzxpEgoDAXSIiUyJ]*(e[0-9]*\.[0-9]*[A-Za-z]{0,32})?")
ALLOWED = frozenset(
    {
        "--append",
        "--append-verify",
        "--delete",
        "--delete-after",
        "--delete-before",
        "--delete-delay",
        "--delete-during",
        "--delete-excluded",
        "--delete-missing-args",
        "--existing",
        "--force",
        "--ignore-errors",
        "--ignore-existing",
        "--ignore-missing-args",
        "--inplace",
        "--log-format=%i",
        "--log-format=%i%I",
        "--log-format=X",
        "--mkpath",
        "--new-compress",
        "--no-implied-dirs",
        "--no-msgs2stderr",
        "--numeric-ids",
        "--old-compress",
        "--omit-dir-times",
        "--partial",
        "--partial-dir",
        ".rsync-partial",  # what follows it; no other place
        "--remove-source-files",
        "--size-only",
        "--stats",
    }
)
NUMBERS = re.compile(
    r"--(timeout|bwlimit|max-size|min-size|modify-window|max-delete|block-size|compress-level|checksum-seed|max-alloc)"
    r"=-?[0-9]{1,18}"
)
CHOICES = re.compile(r"--(compress-choice|checksum-choice)=[a-z0-9]{1,16}(,[a-z0-9]{1,16})?")
MOST_ARGUMENTS = 60
# Newer ones write errors to stderr, which a pipe does not have, and their exit code does not get through either: what
# could not be written would be lost without a word. With this they say it as part of the transfer, as older ones do.
SAY_IT_THERE = "--no-msgs2stderr"
_known: dict[str, tuple[str, ...]] = {}


async def ways_of(program: str) -> tuple[str, ...]:
    """What has to be said to this rsync besides; asked once."""
    if program not in _known:
        asking = await asyncio.create_subprocess_exec(program, "--version", stdout=PIPE, stdin=DEVNULL)
        said = (await asking.communicate())[0].decode(errors="replace")
        _known[program] = (SAY_IT_THERE,) if version(said) >= (3, 2, 3) else ()
    return _known[program]


def version(said: str) -> tuple[int, ...]:
    found = re.search(r"version v?(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def rsync(place: Place, path: str, arguments: Sequence[str], ways: Sequence[str] = ()) -> Program:
    """`rsync --server` on `path`, with the options that the client's rsync asked for, if all of them may be."""
    if len(arguments) > MOST_ARGUMENTS:
        raise BadRequest("Too many arguments for rsync")
    for word in arguments:
        if word not in ("--server", "--sender") and not allowed(word):
            raise BadRequest(f"rsync may not be asked for {word[:60]!r} here")
    if not place.writable and ("--sender" not in arguments or "--remove-source-files" in arguments):
        raise Forbidden("This is read-only")
    options = [word for word in arguments if word not in ("--server", "--sender", *ways)]
    role = ["--server", *(["--sender"] if "--sender" in arguments else [])]
    return Program("rsync", (installed("rsync"), *role, *ways, *options, ".", beneath_here(path)), place)


def allowed(word: str) -> bool:
    return word in ALLOWED or any(shape.fullmatch(word) for shape in (FLAGS, NUMBERS, CHOICES))


def beneath_here(path: str) -> str:
    """As rsync reads it: a slash at the end means what is in the directory, not the directory."""
    names = components(path)
    return "/".join((".", *names)) + ("/" if path.endswith("/") or not names else "")
