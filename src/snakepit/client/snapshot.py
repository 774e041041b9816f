"""A commit of the files as they lie on disk, made without touching HEAD, the index, a branch, the stash or a hook.

It is made by a git directory of our own, `pit/` inside the user's: with an index of its own, and with attributes that
switch off every filter and conversion, so that the tree holds the very bytes. New objects go where the user's are, so
that `refs/pit/<job>` can keep them. That index stays from time to time and knows what was read before: only changed
files are read again. Every run works on a copy of it that replaces it at the end, so a killed run leaves no lock.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from snakepit.client.aside import Aside, Repository, find_repository
from snakepit.client.git import Asked, Git
from snakepit.client.listing import Listing, listing
from snakepit.client.secrets import looks_secret
from snakepit.errors import SnakepitError

FILE_LIMIT_BYTES = 100_000_000
TOTAL_LIMIT_BYTES = 5_000_000_000
POINTER = b"version https://git-lfs.github.com/spec/"
POINTER_LONGEST = 1024
TEXT_LIMIT = "core.bigFileThreshold=16m"  # larger files count as binary when lines are counted
NOBODY = {
    f"GIT_{who}_{what}": text
    for who in ("AUTHOR", "COMMITTER")
    for what, text in (("NAME", "pit"), ("EMAIL", "pit@localhost"))
}


class Snapshot(NamedTuple):
    repository: Repository
    commit: str  # what the job runs; the user's own commit where nothing differs from it
    tree: str
    diff_loc: int  # lines that differ from HEAD
    notes: tuple[str, ...] = ()  # in words for people


class Concerns(NamedTuple):
    """What is asked about before anything of it is read."""

    secrets: tuple[str, ...] = ()
    large: tuple[tuple[str, int], ...] = ()  # name and size in bytes
    total_bytes: int = 0
    too_much: bool = False


class Limits(NamedTuple):
    file_bytes: int = FILE_LIMIT_BYTES
    total_bytes: int = TOTAL_LIMIT_BYTES


def take(
    repository: Repository, review: Callable[[Concerns], None] = lambda _: None, limits: Limits | None = None
) -> Snapshot:
    """`review` raises where the user does not agree; it is not called where there is nothing to agree to."""
    try:
        return _take(repository, review, limits or Limits())
    except OSError as problem:
        raise SnakepitError(
            f"cannot take a snapshot: {problem.strerror or problem} ({problem.filename or repository.top})"
        ) from None


def _take(repository: Repository, review: Callable[[Concerns], None], limits: Limits) -> Snapshot:
    with Aside.of(repository) as aside:
        with aside.git.asking(*_QUESTIONS) as ours:  # as many files to look at as there are in the listing
            found = listing(repository.top)
            changes = _changes(repository, found.names, ours)
        concerns = _concerns(repository, found, changes, limits)
        if concerns.secrets or concerns.large or concerns.too_much:
            review(concerns)
        tree = _tree(aside, found.names, changes)
        commit = _commit(aside.git, repository, tree)
        aside.keep(commit)
        loc = _changed_lines(aside.git, repository, tree, found.inner)
        notes = (*found.notes, *_known_secrets(found, changes), *_pointers(repository, found))
    return Snapshot(repository, commit, tree, loc, notes)


def _tree(aside: Aside, names: set[bytes], changes: _Changes) -> str:
    _bring_in(aside.git, changes)
    try:
        return aside.git.text("write-tree")
    except SnakepitError:  # objects that our index knows are gone
        aside.forget()
    with aside.git.asking(*_QUESTIONS) as ours:
        changes = _changes(aside.repository, names, ours)
    _bring_in(aside.git, changes)
    return aside.git.text("write-tree")


# What our index has, and what of it is not as it is on disk.
_QUESTIONS = (("ls-files", "-z"), ("diff-files", "-z", "--name-only"))


class _Changes:
    """How our index differs from the disk."""

    __slots__ = ("gone", "read")

    def __init__(self, gone: list[bytes]) -> None:
        self.gone = gone
        self.read: dict[bytes, os.stat_result] = {}


def _changes(repository: Repository, names: set[bytes], ours: list[Asked]) -> _Changes:
    known, differing = (set(asked.names()) for asked in ours)
    changes = _Changes(gone=sorted(known - names))
    disk = _Disk(os.fsencode(repository.top))
    for name in sorted((names - known) | (differing & names)):
        status = disk.look(name)
        if status is not None:
            changes.read[name] = status
        elif name in known:
            changes.gone.append(name)
    return changes


class _Disk:
    """Files and links below a directory. A path through a link is none of ours, though the system would follow it."""

    def __init__(self, top: bytes) -> None:
        self._top = top
        self._real: dict[bytes, bool] = {b"": True}

    def look(self, name: bytes) -> os.stat_result | None:
        if not self._is_real(name.rpartition(b"/")[0]):
            return None
        try:
            status = os.lstat(os.path.join(self._top, name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) else None

    def _is_real(self, place: bytes) -> bool:
        known = self._real.get(place)
        if known is None:
            known = self._is_real(place.rpartition(b"/")[0])
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                known = known and stat.S_ISDIR(os.lstat(os.path.join(self._top, place)).st_mode)
            self._real[place] = known
        return known


def _concerns(repository: Repository, found: Listing, changes: _Changes, limits: Limits) -> Concerns:
    """Only of what is new: what a snapshot before had, unchanged, was agreed to then."""
    secrets = tuple(os.fsdecode(name) for name in changes.read if name in found.other and looks_secret(name))
    sizes = {name: status.st_size for name, status in changes.read.items()}
    large = [name for name, size in sizes.items() if size > limits.file_bytes]
    if not large and sum(sizes.values()) <= limits.total_bytes:
        return Concerns(secrets)
    committed = _committed_sizes(repository)
    new = {name: size for name, size in sizes.items() if committed.get(name) != size}
    shown = sorted(((os.fsdecode(name), new[name]) for name in large if name in new), key=lambda each: -each[1])
    return Concerns(secrets, tuple(shown), sum(new.values()), sum(new.values()) > limits.total_bytes)


def _committed_sizes(repository: Repository) -> dict[bytes, int]:
    """What was committed goes along anyway, with the history."""
    if not repository.head:
        return {}
    sizes = {}
    for entry in Git(repository.top).names("ls-tree", "-r", "-l", "-z", "--full-tree", repository.head):
        words, _, name = entry.partition(b"\t")
        size = words.split()[3]
        if size.isdigit():
            sizes[name] = int(size)
    return sizes


def _bring_in(git: Git, changes: _Changes) -> None:
    if changes.gone:
        git.ask("update-index", "--force-remove", "-z", "--stdin", stdin=_joined(changes.gone))
    if changes.read:
        git.ask("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=_joined(changes.read))


def _joined(names: Iterable[bytes]) -> bytes:
    return b"".join(name + b"\0" for name in names)


def _commit(git: Git, repository: Repository, tree: str) -> str:
    """The same files on the same commit make the same snapshot, so it has no time and no author of its own."""
    if tree == repository.head_tree and not repository.partial:
        return repository.head
    when = f"@{repository.head_time} +0000"
    env = {**git.env, **NOBODY, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    # Of a partial clone only the files on disk are known to be here: its history cannot be sent.
    parents = ("-p", repository.head) if repository.head and not repository.partial else ()
    message = f"Snapshot by pit, on {repository.head[:12] or 'no commit'}"
    return Git(git.top, env).text("commit-tree", tree, *parents, "-m", message)


def _changed_lines(git: Git, repository: Repository, tree: str, inner: list[bytes]) -> int:
    """As `git diff --numstat` counts them; files of submodules, and line ends that git would convert, do not count."""
    if tree == repository.head_tree:
        return 0
    base = repository.head_tree or git.text("hash-object", "-t", "tree", "-w", "--stdin")
    but = [f":(top,exclude,literal){os.fsdecode(name)}" for name in inner]
    words = ("diff-tree", "-r", "--numstat", "--no-renames", "--no-textconv", "--no-ext-diff", "--ignore-cr-at-eol")
    counted = git.run(("-c", TEXT_LIMIT, *words, base, tree, "--", ".", *but))
    fields = [field for line in counted.stdout.splitlines() for field in line.split(b"\t")[:2]]
    return sum(int(field) for field in fields if field.isdigit())


def _known_secrets(found: Listing, changes: _Changes) -> list[str]:
    """Agreed to before, and still said."""
    names = sorted(name for name in found.other if name not in changes.read and looks_secret(name))
    return [f"{os.fsdecode(name)} goes along, as before (it looks like a secret)" for name in names]


def _pointers(repository: Repository, found: Listing) -> list[str]:
    """Files of Git LFS whose contents are not on this machine."""
    attributes = [name for name in found.tracked if name.rpartition(b"/")[2] == b".gitattributes"]
    if not any(b"filter=lfs" in _start(repository.top, name, 1 << 16) for name in attributes):
        return []
    small = [name for name in found.tracked if _is_pointer(repository.top, name)]
    if not small:
        return []
    more = f" and {len(small) - 1} more" if len(small) > 1 else ""
    return [f"{os.fsdecode(min(small))}{more}: only the Git LFS pointer is here (git lfs pull fetches the contents)"]


def _is_pointer(top: Path, name: bytes) -> bool:
    try:
        status = os.lstat(os.path.join(os.fsencode(top), name))
    except OSError:
        return False
    plain = stat.S_ISREG(status.st_mode) and len(POINTER) < status.st_size <= POINTER_LONGEST
    return plain and _start(top, name, len(POINTER)) == POINTER


def _start(top: Path, name: bytes, length: int) -> bytes:
    try:
        with open(os.path.join(os.fsencode(top), name), "rb") as file:
            return file.read(length)
    except OSError:
        return b""


__all__ = ["Concerns", "Limits", "Repository", "Snapshot", "find_repository", "take"]
