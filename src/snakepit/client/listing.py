"""Which files of a checkout are sent: tracked, staged and untracked ones as they lie on disk, those of submodules and
of other repositories inside too. Not what git ignores, not what `.pitignore` names, never the user's token.

Names are bytes, as git and the disk have them. Nothing is read here but `.pitignore` files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from snakepit.client.archive import NEVER_SENT, Rule, as_regex, entries, ignored, read_rule
from snakepit.client.git import Git
from snakepit.errors import SnakepitError

PITIGNORE = b".pitignore"
GITLINK = b"160000"
_NEVER = re.compile(os.fsencode("(?:.*/)?(?:" + "|".join(map(as_regex, NEVER_SENT)) + ")"), re.DOTALL)


class Listing:
    """`tracked` are those that git was given on purpose; `other` those that merely lie there and are not ignored."""

    __slots__ = ("inner", "notes", "other", "tracked")

    def __init__(self) -> None:
        self.tracked: set[bytes] = set()
        self.other: set[bytes] = set()
        self.inner: list[bytes] = []  # directories that are repositories of their own
        self.notes: list[str] = []

    @property
    def names(self) -> set[bytes]:
        return self.tracked | self.other


def listing(top: Path) -> Listing:
    found = Listing()
    above = _Rules(os.fsencode(top), ())
    _gather(top, b"", found, above, again=False)
    rules = _Rules(os.fsencode(top), found.names)
    if rules.take_back:
        _gather(top, b"", ignored_ones := Listing(), above, again=True)
        found.other |= {name for name in ignored_ones.other if rules.verdict(name) is False}
    left_out = rules.verdict if rules.any else _NEVER.fullmatch
    found.tracked = {name for name in found.tracked if not left_out(name)}
    found.other = {name for name in found.other if not left_out(name)} - found.tracked
    return found


def _gather(place: Path, prefix: bytes, found: Listing, above: _Rules, again: bool) -> None:
    """One repository and, below it, those inside it. `again`: only what git ignores."""
    inside: list[bytes] = []
    which = ("--ignored",) if again else ()
    others = ("ls-files", "-z", "--others", *which, "--exclude-standard")
    with Git(place).asking(others, ("ls-files", "-z", "--stage")) as (untracked, staged):
        for entry in staged.names():
            words, _, name = entry.partition(b"\t")
            if words.startswith(GITLINK):
                inside.append(name)
            elif not again:
                found.tracked.add(prefix + name)
        for name in untracked.names():
            if name.endswith(b"/"):
                inside.append(name[:-1])
            else:
                found.other.add(prefix + name)
    for name in dict.fromkeys(inside):
        if above.leaves_out(prefix + name):  # it may well be broken
            continue
        _gather_inner(place, prefix, name, found, above, again)


def _gather_inner(place: Path, prefix: bytes, name: bytes, found: Listing, above: _Rules, again: bool) -> None:
    """Its files go as plain files: that gives the bytes on disk, whatever is committed or pushed there."""
    shown, inner = os.fsdecode(prefix + name), place / os.fsdecode(name)
    if inner.is_symlink() or not inner.is_dir():
        return  # replaced by something else, which is listed by itself, or gone
    found.inner.append(prefix + name)
    if not os.path.lexists(inner / ".git"):
        plain = [os.fsencode(each) for each in entries(inner, lambda _line: None, set()) if not (inner / each).is_dir()]
        found.other.update(prefix + name + b"/" + each for each in plain)
        if not plain and not again:
            found.notes.append(f"the submodule {shown} is not checked out here, so it is empty in the job")
        return
    try:
        if Path(Git(inner).text("rev-parse", "--show-toplevel")).resolve() != inner.resolve():
            raise SnakepitError("its .git is no repository")
        _gather(inner, prefix + name + b"/", found, above, again)
    except SnakepitError as problem:
        raise SnakepitError(
            f"the repository in {shown} is broken ({problem.message}): mend it, or name it in .pitignore"
        ) from None


class _Rules:
    """All `.pitignore` files of the checkout. They speak of tracked files too, and with `!` of ignored ones."""

    def __init__(self, top: bytes, names: Iterable[bytes]) -> None:
        places = {name[: -len(PITIGNORE)].rstrip(b"/") for name in names if name.rpartition(b"/")[2] == PITIGNORE}
        self._by_place = {place: _read(top, place) for place in places | {b""}}
        self.any = any(self._by_place.values())
        self.take_back = any(rule.again for rules in self._by_place.values() for rule in rules)
        self._directories: dict[bytes, tuple[bool | None, tuple[Rule, ...]]] = {}

    def verdict(self, name: bytes) -> bool | None:
        """True: left out. False: taken although git ignores it. None: nothing is said of it."""
        place = name.rpartition(b"/")[0]
        above, rules = self._directory(place)
        if above is True:
            return True
        own = _judge(name, False, rules)
        return above if own is None else own

    def leaves_out(self, directory: bytes) -> bool:
        return self._directory(directory)[0] is True

    def _directory(self, place: bytes) -> tuple[bool | None, tuple[Rule, ...]]:
        known = self._directories.get(place)
        if known is None:
            if place:
                above, rules = self._directory(place.rpartition(b"/")[0])
                own = True if above is True else _judge(place, True, rules)
                above = above if own is None else own
            else:
                above, rules = None, ()
            known = self._directories[place] = above, (*rules, *self._by_place.get(place, ()))
        return known


def _judge(name: bytes, is_directory: bool, rules: tuple[Rule, ...]) -> bool | None:
    text = os.fsdecode(name)
    if ignored(text, is_directory, rules):
        return True
    return False if any(_fits(rule, text, is_directory) for rule in rules if rule.again) else None


def _fits(rule: Rule, name: str, is_directory: bool) -> bool:
    inside = name if not rule.place else name.removeprefix(rule.place + "/")
    return (is_directory or not rule.directories_only) and rule.pattern.fullmatch(inside) is not None


def _read(top: bytes, place: bytes) -> tuple[Rule, ...]:
    path = os.path.join(top, place, PITIGNORE)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return ()
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().removeprefix("\ufeff").split("\n")
    except FileNotFoundError:
        return ()
    except OSError as problem:
        raise SnakepitError(f"cannot read {os.fsdecode(path)}: {problem.strerror}") from None
    return tuple(_rules(lines, os.fsdecode(place)))


def _rules(lines: list[str], place: str) -> Iterator[Rule]:
    for line in lines:
        if (rule := read_rule(line, place)) is not None:
            yield rule
