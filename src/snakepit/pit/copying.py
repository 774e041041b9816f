"""Copying files and directories, with the seed's rules for what is there already.

Here a file is written beside its place and comes to it whole; what broke off is found again by what it is a part of.
At the head a new file grows in its place, by offset, as in the original; one that is replaced stays until the new one
is whole.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterator

from snakepit.client import transfer
from snakepit.client.client import Client
from snakepit.client.http import LostAnswer
from snakepit.client.places import Place
from snakepit.errors import BadRequest, Forbidden, NotFound, SnakepitError
from snakepit.pit import ask, render
from snakepit.pit.bar import Bar
from snakepit.pit.session import open_client
from snakepit.wire.tree import PART

LARGER_HERE = "Larger local file already existing. Remove it or use force option to overwrite."
SAME_HERE = "Local file of same size already existing: Skipped download."
ONLY_FILES = "Command only supports file transfers."
GO_ON_HERE = "Remote file larger than local one. Continue interrupted download (yN)? "
GO_ON_THERE = "Remote file smaller than local one. Continue interrupted upload (yN)? "
LARGER_THERE = "Remote file is larger than local one."
STREAM_THERE = (
    "Remote file already existing. What comes from stdin or a pipe cannot be compared with it: "
    "use force option to overwrite."
)
SAME_THERE = "Remote file of same size already existing: Skipped upload."
OTHER_HERE = "Local file is not the beginning of the remote one. Use force option to overwrite it."
OTHER_THERE = "Remote file is not the beginning of the local one. Use force option to overwrite it."
NOT_A_FILE = "Target path is existing, but not a file."
HOW = "--continue or --force"
COMPARED = 1024 * 1024  # bytes before the place where a transfer goes on


class How:
    """What was wished: `force` starts over, `go_on` continues, neither asks."""

    __slots__ = ("force", "go_on", "tree")

    def __init__(self, force: bool = False, go_on: bool = False, tree: bool = False) -> None:
        self.force, self.go_on, self.tree = force, go_on, tree


def _refuse_to_go_on(how: How, source: str, target: str) -> None:
    """Which directory would be meant, one that is there or one in it? `pit sync` has one meaning."""
    if how.go_on:
        words = f"pit sync {shlex.quote(source)} {shlex.quote(target) if target else '<directory>'}"
        raise BadRequest(f"Directories are continued by pit sync, which sends only what is missing: {words}")


# ---------------------------------------------------------------------------------------------------------------- down


def pull(place: Place, path: str, local: str | None, how: How) -> int:
    client = open_client()
    found = transfer.get(client, place, path)
    if how.tree and not found.is_file:
        _refuse_to_go_on(how, f"{place.entity}:{path}", local or "")
        return _pull_tree(client, place, path, local, how)
    if not found.is_file:
        raise BadRequest(f"{ONLY_FILES} (Directories: -r)")
    if local in (None, "-"):
        transfer.receive(client, place, path, render.out_bytes, 0)
        return 0
    assert local is not None
    if os.path.isdir(local):
        local = os.path.join(local, os.path.basename(path.rstrip("/")))
    if _special(local):
        with open(local, "wb", buffering=0) as device:
            transfer.receive(client, place, path, device.write, 0)
        return 0
    _pull_file(client, place, path, local, found, how)
    return 0


def _pull_file(client: Client, place: Place, path: str, local: str, found: transfer.Stats, how: How) -> None:
    there = os.stat(local).st_size if os.path.exists(local) else None
    part = _part(local, f"{place.root} {path} {found.size} {found.mtime}")
    if there is not None and not how.force:
        if there > found.size:
            raise BadRequest(LARGER_HERE)
        if there == found.size:
            render.talk(SAME_HERE)
            return
        if not ask.yes(GO_ON_HERE, HOW, how.go_on or None):
            raise BadRequest("Aborted")
        if not _fetch(client, place, path, local, found.size, there):
            raise BadRequest(OTHER_HERE)
        return
    offset = 0
    if os.path.exists(part) and not how.force:
        offset = min(os.stat(part).st_size, found.size)
        render.talk(f"Continuing interrupted download at {render.size(offset)}.")
    _forget_parts(local, except_for=part)
    if not _fetch(client, place, path, part, found.size, offset):
        render.talk("It is not the beginning of the remote file: starting over.")
        client.close()
        _fetch(client, place, path, part, found.size, 0)
    os.replace(part, local)


def _fetch(client: Client, place: Place, path: str, local: str, size: int, offset: int) -> bool:
    """From `offset` on; before it, the last part comes once more, in the same answer, and is compared. False where it
    differs: then nothing was written."""
    start = max(0, offset - COMPARED)
    try:
        with open(local, "r+b" if offset else "wb", buffering=0) as file, Bar("downloading", size, offset) as bar:
            known = os.pread(file.fileno(), offset - start, start) if offset else b""
            file.truncate(offset)
            file.seek(offset)
            rest = _Rest(known, _whole(file.fileno()))
            try:
                transfer.receive(client, place, path, rest.take, start, lambda done: bar(max(done, offset)))
            except _Differs:
                return False
            return not rest.known
    except FileNotFoundError:
        raise NotFound(f"There is no directory {os.path.dirname(local) or '.'}") from None


class _Differs(Exception):
    pass


class _Rest:
    """Takes what is to be `known` already, and writes what follows it."""

    def __init__(self, known: bytes, write: Callable[[bytes], object]) -> None:
        self.known, self._write = known, write

    def take(self, block: bytes) -> None:
        expected, self.known = self.known[: len(block)], self.known[len(block) :]
        if not block.startswith(expected):
            raise _Differs
        if rest := block[len(expected) :] if expected else block:
            self._write(rest)


def _whole(handle: int) -> Callable[[bytes], object]:
    def write(block: bytes) -> None:
        view = memoryview(block)
        while view:
            view = view[os.write(handle, view) :]

    return write


def _part(local: str, what: str) -> str:
    """The unfinished copy of exactly this file in this state: one of another is never continued."""
    import hashlib

    folder, name = os.path.split(local)
    digest = hashlib.sha256(os.fsencode(f"{name} {what}")).hexdigest()[:16]
    mark = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    return os.path.join(folder, f".{mark}-{digest}{PART}")


def _forget_parts(local: str, except_for: str) -> None:
    """Earlier ones of the same name, whose file at the head has changed since."""
    folder, part = os.path.split(except_for)
    mark = part.partition("-")[0]
    with contextlib.suppress(OSError):
        for name in os.listdir(folder or "."):
            if name.startswith(f"{mark}-") and name.endswith(PART) and name != part:
                os.unlink(os.path.join(folder, name))


def _special(local: str) -> bool:
    """/dev/stdout, a pipe: written as it comes."""
    try:
        mode = os.stat(local).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _pull_tree(client: Client, place: Place, path: str, local: str | None, how: How) -> int:
    if local in (None, "-"):
        raise BadRequest("A directory needs a place to go to: pit cp -r <entity>:<path> <directory>")
    assert local is not None
    if os.path.isdir(local):
        local = os.path.join(local, os.path.basename(path.strip("/")) or place.name)
    if os.path.lexists(local) and not how.force:
        raise BadRequest(f"{local} is existing. Use force option to overwrite what is in it, or pit sync.")
    if how.force:
        os.makedirs(local, exist_ok=True)
        return _fill(client, place, path, local)
    folder, name = os.path.split(local.rstrip("/"))
    aside = os.path.join(folder, f".{os.urandom(8).hex()}{PART}")
    try:
        os.mkdir(aside)
    except FileNotFoundError:
        raise NotFound(f"There is no directory {folder or '.'}") from None
    try:
        code = _fill(client, place, path, aside)
        os.rename(aside, os.path.join(folder, name))
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return code


def _fill(client: Client, place: Place, path: str, local: str) -> int:
    handle = os.open(local, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with whole_or_sync(), Bar("downloading") as bar:
            return _left_out(transfer.receive_tree(client, place, path, handle, bar))
    finally:
        os.close(handle)


@contextlib.contextmanager
def whole_or_sync() -> Iterator[None]:
    """A directory travels in one go: what broke off begins again, or is left to `pit sync`."""
    try:
        yield
    except LostAnswer as problem:
        raise SnakepitError(f"{problem.message}. Try again, or use pit sync, which goes on where it was") from problem


def _left_out(problems: list[str]) -> int:
    for line in problems:
        render.talk(f"Left out: {render.clean(line)}")
    return 1 if problems else 0


# ------------------------------------------------------------------------------------------------------------------ up


def push(place: Place, path: str, local: str | None, how: How, into: bool = False) -> int:
    """`into`: a directory that is there takes the file under its own name, as cp does."""
    if local is not None and local != "-" and not os.path.exists(local):
        raise NotFound(f"{local} does not exist")
    client = open_client()
    named = local is not None and local != "-"
    base = os.path.basename(os.path.abspath(local)) if local is not None and named else ""
    if named and (not path.strip("/") or path.endswith("/")):
        path = path + base
    found = transfer.look(client, place, path)
    if into and named and found is not None and not found.is_file:
        path = f"{path.rstrip('/')}/{base}"
        found = transfer.look(client, place, path)
    if local is not None and named and os.path.isdir(local):
        if not how.tree:
            raise BadRequest(f"{ONLY_FILES} (Directories: -r)")
        _refuse_to_go_on(how, local, f"{place.entity}:{path}")
        return _push_tree(client, place, path, local, how, found)
    if found is not None and not found.is_file:
        raise BadRequest(NOT_A_FILE)
    if local is None or not named:
        stdin = sys.stdin.fileno()
        _push_stream(client, place, path, found, how, lambda space: os.readv(stdin, [space]))
    elif _special(local):
        with open(local, "rb", buffering=0) as device:
            _push_stream(client, place, path, found, how, device.readinto)
    else:
        _push_file(client, place, path, local, found, how)
    return 0


def _push_file(client: Client, place: Place, path: str, local: str, found: transfer.Stats | None, how: How) -> None:
    with open(local, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        offset = 0
        if found is not None and not how.force:
            if found.size > size:
                raise BadRequest(LARGER_THERE)
            if found.size == size:
                render.talk(SAME_THERE)
                return
            if found.size and not ask.yes(GO_ON_THERE, HOW, how.go_on or None):
                raise BadRequest("Aborted")
            offset = found.size
            if offset and not _begins(client, place, path, file.fileno(), offset):
                raise BadRequest(OTHER_THERE)
            file.seek(offset)
        with Bar("uploading", size, offset) as bar:
            end = _send(client, place, path, found, how, _unchanged(file, local), offset, bar, size)
    if end != size:
        raise SnakepitError(f"{local} changed while it was sent: {end} of {size} bytes are there")


def _unchanged(file: io.FileIO, local: str) -> transfer.ReadInto:
    """Reads; at the end a file that was rewritten meanwhile is an error. One that grew is told from its size."""
    before = os.fstat(file.fileno())

    def read(space: memoryview) -> int | None:
        count = file.readinto(space)
        now = os.fstat(file.fileno()) if not count else before
        if now.st_size == before.st_size and now.st_mtime_ns != before.st_mtime_ns:
            raise SnakepitError(f"{local} changed while it was sent: send it again with the force option")
        return count

    return read


def _begins(client: Client, place: Place, path: str, local: int, offset: int) -> bool:
    """Whether the remote file is the beginning of the local one, by its last part. What may not be read is trusted."""
    start = max(0, offset - COMPARED)
    try:
        return transfer.piece(client, place, path, start, offset) == os.pread(local, offset - start, start)
    except Forbidden:
        return True


def _push_stream(
    client: Client, place: Place, path: str, found: transfer.Stats | None, how: How, read: transfer.ReadInto
) -> None:
    if found is not None and found.size and not how.force:
        raise BadRequest(STREAM_THERE)
    with Bar("uploading") as bar:
        _send(client, place, path, found, how, read, 0, bar)


def _send(
    client: Client,
    place: Place,
    path: str,
    found: transfer.Stats | None,
    how: How,
    read: transfer.ReadInto,
    offset: int,
    bar: transfer.Told = lambda _: None,
    size: int = 0,
) -> int:
    if found is None:
        with _naming_the_folder(client, place, path):
            transfer.make_file(client, place, path, size)
    if found is None or not (how.force and found.size):
        return transfer.send(client, place, path, read, offset, bar)
    folder, slash, name = path.rpartition("/")
    aside = f"{folder}{slash}.{os.urandom(8).hex()}{PART}"
    transfer.make_file(client, place, aside, size)
    try:
        end = transfer.send(client, place, aside, read, 0, bar)
        transfer.move(client, place, aside, f"{folder}{slash}{name}")
    except BaseException:
        with contextlib.suppress(SnakepitError):
            client.close()
            transfer.delete(client, place, aside)
        raise
    return end


def _push_tree(client: Client, place: Place, path: str, local: str, how: How, found: transfer.Stats | None) -> int:
    if found is not None and found.is_file:
        raise BadRequest("Target path is existing, but not a directory.")
    if found is not None and not how.force:
        raise BadRequest("Target directory is existing. Use force option to overwrite what is in it, or pit sync.")
    handle = os.open(local, os.O_RDONLY | os.O_DIRECTORY)
    try:
        size = transfer.tree_size(handle)
        with whole_or_sync(), _naming_the_folder(client, place, path), Bar("uploading", size) as bar:
            return _left_out(transfer.send_tree(client, place, path, handle, size, how.force, bar))
    finally:
        os.close(handle)


@contextlib.contextmanager
def _naming_the_folder(client: Client, place: Place, path: str) -> Iterator[None]:
    """Where something is to go into a directory that is not there: which, and how it is made."""
    try:
        yield
    except NotFound:
        folder = os.path.dirname(path.rstrip("/"))
        if not folder.strip("/") or transfer.look(client, place, folder) is not None:
            raise
        make = f"pit mkdir {place.entity} {shlex.quote(folder)}"
        raise NotFound(f'"{folder}" does not exist in {place.entity}. Make it first: {make}') from None
