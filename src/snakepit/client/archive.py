"""A directory as an archive: everything but what `.gitignore` and `.pitignore` leave out, the user's token and our own
uploads. Needs no git; the patterns mean what they mean there.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from snakepit.errors import SnakepitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import tarfile

NEVER_SENT = (".pituser.txt", ".job-upload*")
IGNORE_FILES = (".gitignore", ".pitignore")
COMPRESSION = 4  # a good half of the best size at a quarter of its time


class Archive(NamedTuple):
    path: Path
    files: int
    size_bytes: int


def make_archive(directory: Path, target: Path, say: Callable[[str], None] = lambda _line: None) -> Archive:
    """Writes `target` (.tar.gz) whole or not at all; one line per entry goes to `say`."""
    import gzip
    import tarfile

    unfinished = target.with_name(target.name + ".part")
    count = 0
    try:
        with (
            _speaking(directory),
            gzip.open(unfinished, "wb", COMPRESSION) as file,
            tarfile.open(fileobj=file, mode="w|") as tar,
        ):
            for name in entries(directory, say, {target, unfinished}):
                say(f"Archiving {name}...")
                tar.add(directory / name, arcname=name, recursive=False, filter=_anonymous)
                count += 1
        with _speaking(directory):
            unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return Archive(target, count, target.stat().st_size)


def sizes(directory: Path, target: Path) -> dict[str, int]:
    """Of all files that would be in the archive."""
    found = {}
    with _speaking(directory):
        for name in entries(directory, lambda _line: None, {target}):
            status = (directory / name).lstat()
            if stat.S_ISREG(status.st_mode):
                found[name] = status.st_size
    return found


@contextlib.contextmanager
def _speaking(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise SnakepitError(f"Cannot archive {problem.filename or directory}: {problem.strerror or problem}") from None


def entries(directory: Path, say: Callable[[str], None], leave_out: set[Path]) -> Iterator[str]:
    """Names below `directory` in a fixed order, directories before what is in them. Links are never followed."""
    # Rules read on the way down stay valid for what is below; the last that fits decides.
    pending: list[tuple[str, tuple[Rule, ...]]] = [("", ())]
    while pending:
        place, rules = pending.pop()
        here = directory / place
        rules = (*rules, *_read_rules(here, place))
        below = []
        for entry in sorted(os.scandir(here), key=lambda entry: entry.name):
            name = f"{place}/{entry.name}" if place else entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or Path(entry.path) in leave_out:
                continue
            if not _sendable(entry) or ignored(name, is_directory, rules):
                say(f"Ignoring {name}")
                continue
            yield name
            if is_directory:
                below.append((name, rules))
        pending += reversed(below)


class Rule(NamedTuple):
    place: str  # the directory of the ignore file, "" at the top
    pattern: re.Pattern[str]
    directories_only: bool
    again: bool  # "!": not ignored after all


def read_rule(line: str, place: str = "") -> Rule | None:
    """One line of an ignore file; None for blanks and comments."""
    text = line.rstrip("\r\n")
    text = re.sub(r"(?<!\\)[ \t]+$", "", text)
    if not text or text.startswith("#"):
        return None
    again = text.startswith("!")
    text = text[1:] if again else text
    directories_only = text.endswith("/")
    text = text[:-1] if directories_only else text
    if not text:
        return None
    anchored = "/" in text
    glob = text.removeprefix("/") if anchored else "**/" + text
    try:
        return Rule(place, re.compile(as_regex(glob), re.DOTALL), directories_only, again)
    except re.error:  # an impossible range ([z-a]) fits nothing
        return None


def ignored(name: str, is_directory: bool, rules: Sequence[Rule]) -> bool:
    """Whether the last rule that fits `name` (a path from the top, its parents not ignored) leaves it out."""
    if any(_never(pattern).fullmatch(name.rpartition("/")[2]) for pattern in NEVER_SENT):
        return True
    for rule in reversed(rules):
        inside = name if not rule.place else name.removeprefix(rule.place + "/")
        if (is_directory or not rule.directories_only) and rule.pattern.fullmatch(inside):
            return not rule.again
    return False


@functools.cache
def _never(pattern: str) -> re.Pattern[str]:
    return re.compile(as_regex(pattern), re.DOTALL)


def _read_rules(here: Path, place: str) -> list[Rule]:
    rules = []
    for name in IGNORE_FILES:
        path = here / name
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="surrogateescape").removeprefix("\ufeff").split("\n")
            rules += [rule for line in lines if (rule := read_rule(line, place))]
    return rules


_IN_SET = re.compile(r"\[:(?P<named>[a-z]+):\]|\\(?P<plain>.)|(?P<range>-)|.", re.DOTALL)
_NAMED = {"alpha": "A-Za-z", "digit": "0-9", "alnum": "A-Za-z0-9", "lower": "a-z", "upper": "A-Z", "space": r"\s"}
_TOKENS = re.compile(
    r"(?P<any>^\*\*/|/\*\*/|/\*\*$)|(?P<star>\*+)|(?P<one>\?)|"
    r"(?P<set>\[[!^]?+\]?+(?:\[:[a-z]+:\]|\\.|[^\]\\])*+\])|(?P<open>\[|\\$)|\\(?P<plain>.)|.",
    re.DOTALL,
)


def as_regex(glob: str) -> str:
    """gitignore's wildcards: `*` and `?` stop at a slash, `**` between slashes does not."""
    if glob == "**":  # "/**" at the top: all, however deep
        return ".*"
    parts = []
    for token in _TOKENS.finditer(glob):
        match token.lastgroup:
            case "any":
                parts.append({"/**/": "/(?:.*/)?", "/**": "/.*"}.get(token[0], "(?:.*/)?"))
            case "star":
                parts.append("[^/]*")
            case "one":
                parts.append("[^/]")
            case "set":
                parts.append(_set(token[0][1:-1]))
            case "open":  # an unclosed set fits nothing in git
                return r"(?!)"
            case "plain":
                parts.append(re.escape(token["plain"]))
            case _:
                parts.append(re.escape(token[0]))
    return "".join(parts)


def _set(inside: str) -> str:
    negated = inside[:1] in ("!", "^")
    body = ""
    for token in _IN_SET.finditer(inside, 1 if negated else 0):
        if token["named"]:
            body += _NAMED.get(token["named"], "")
        else:
            body += "-" if token["range"] else re.escape(token["plain"] or token[0])
    return f"(?!/)[{'^' if negated else ''}{body}]" if body else "(?!)"


def _sendable(entry: os.DirEntry[str]) -> bool:
    """Files, directories and links; sockets, pipes and devices mean nothing elsewhere."""
    mode = entry.stat(follow_symlinks=False).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
