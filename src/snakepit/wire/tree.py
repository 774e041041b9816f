"""How a directory travels: a tar stream, read from and written beneath an open directory, shared by service and client.

Every name is opened from a handle, component by component, never through a symbolic link: whatever is swapped
meanwhile, nothing outside is read or written. Names are bytes to us (surrogateescape both ways).
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Protocol

from snakepit.errors import BadRequest

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, or opening a pipe that a job left there would wait for a writer for ever.
FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
BLOCK = 256 * 1024
LEFT_OUT = ".pit-left-out"  # the last member, where something could not be read; lines of `name: reason`
PART = ".pit-part"  # how names end that are not yet what they shall be


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Level:
    """One directory of a walk: its place below the top, a handle that is open until the next one comes, its entries."""

    names: tuple[str, ...]
    handle: int
    entries: list[os.DirEntry[str]]


@contextmanager
def below(top: int, names: Iterable[str]) -> Iterator[int]:
    """A handle of the directory `names` below the handle `top`."""
    handle = os.dup(top)
    try:
        for name in names:
            deeper = os.open(name, DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = deeper
        yield handle
    finally:
        os.close(handle)


def walk(top: int, problems: list[str] | None = None) -> Iterator[Level]:
    """Every directory below, parents first; one that goes away meanwhile is passed over, others become `problems`.

    One handle at a time, opened anew from the top: no depth exhausts the handles, no rename leads out.
    """
    left: list[tuple[str, ...]] = [()]
    while left:
        names = left.pop()
        try:
            with below(top, names) as handle:
                with os.scandir(handle) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
                yield Level(names, handle, entries)
                left += [(*names, each.name) for each in reversed(entries) if each.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as problem:
            if not names:
                raise
            if problems is not None:
                problems.append(f"{'/'.join(names)}: {problem.strerror}")


# ------------------------------------------------------------------------------------------------------------- packing


def pack(top: int, prefix: str = "", problems: list[str] | None = None) -> Iterator[bytes]:
    """The directory as a tar stream: directories, files, symbolic links as such. `top` stays the caller's.
    What had to be left out is in `problems`, and told at the end of the stream."""
    problems = [] if problems is None else problems
    if prefix:
        yield _header(prefix, tarfile.DIRTYPE, os.fstat(top))
    for level in walk(top, problems):
        for entry in level.entries:
            if entry.name.endswith(PART):
                continue  # of an upload that is still going on, or broke off
            name = "/".join((*((prefix,) if prefix else ()), *level.names, entry.name))
            try:
                yield from _member(level.handle, entry, name, problems)
            except OSError as problem:
                problems.append(f"{name}: {problem.strerror}")
    if problems:
        text = "".join(f"{line}\n" for line in problems).encode("utf-8", "surrogateescape")
        yield _header(LEFT_OUT, tarfile.REGTYPE, None, len(text)) + text + _padding(len(text))
    yield bytes(tarfile.BLOCKSIZE * 2)


def gathered(parts: Iterator[bytes], size: int = BLOCK) -> Iterator[bytes]:
    """The same bytes in larger pieces: each costs a change of threads."""
    kept: list[bytes] = []
    length = 0
    for part in parts:
        kept.append(part)
        length += len(part)
        if length >= size:
            yield b"".join(kept)
            kept, length = [], 0
    if kept:
        yield b"".join(kept)


def _member(parent: int, entry: os.DirEntry[str], name: str, problems: list[str]) -> Iterator[bytes]:
    found = entry.stat(follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        yield _header(name, tarfile.DIRTYPE, found)
    elif stat.S_ISLNK(found.st_mode):
        yield _header(name, tarfile.SYMTYPE, found, link=os.readlink(entry.name, dir_fd=parent))
    elif stat.S_ISREG(found.st_mode):
        handle = os.open(entry.name, os.O_RDONLY | FILE, dir_fd=parent)
        try:
            found = os.fstat(handle)
            if stat.S_ISREG(found.st_mode):
                yield _header(name, tarfile.REGTYPE, found, found.st_size)
                yield from _content(handle, found.st_size, name, problems)
        finally:
            os.close(handle)


def _content(handle: int, size: int, name: str, problems: list[str]) -> Iterator[bytes]:
    left = size
    while left:
        try:
            block = os.read(handle, min(BLOCK, left))
            problem = "" if block else "became shorter while it was read"
        except OSError as error:
            block, problem = b"", error.strerror or "cannot be read"
        if problem:  # its length was said already: what is missing is zeros, and told at the end
            problems.append(f"{name}: {problem}")
            while left:
                yield bytes(min(BLOCK, left))
                left -= min(BLOCK, left)
            break
        left -= len(block)
        yield block
    yield _padding(size)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _header(name: str, type: bytes, found: os.stat_result | None, size: int = 0, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = type, size, link
    info.mode = found.st_mode & 0o777 if found else 0o600
    info.mtime = max(0, int(found.st_mtime)) if found else 0
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


# ----------------------------------------------------------------------------------------------------------- unpacking


def unpack(source: Readable, top: int) -> list[str]:
    """Writes a tar stream below `top`, each file beside its place first; gives what the sender had to leave out.

    Only directories, files and symbolic links are made; a link's target is text that nothing here follows.
    """
    try:
        with tarfile.open(fileobj=_Stream(source), mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                if member.name == LEFT_OUT:
                    return _lines(archive, member)
                _unpack_member(archive, member, top)
    except tarfile.TarError as problem:
        raise BadRequest(f"not a whole tar archive: {problem}") from problem
    return []


class _Stream(io.RawIOBase):
    """tarfile takes a short read for the end; sockets and bodies give what they have."""

    def __init__(self, source: Readable) -> None:
        self._source = source

    def read(self, size: int = -1) -> bytes:
        parts = []
        while size and (part := self._source.read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _lines(archive: tarfile.TarFile, member: tarfile.TarInfo) -> list[str]:
    file = archive.extractfile(member)
    return file.read().decode("utf-8", "surrogateescape").splitlines() if file else []


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, top: int) -> None:
    names = [name for name in member.name.split("/") if name not in ("", ".")]
    if ".." in names or "\0" in member.name:
        raise BadRequest(f"{member.name[:80]!r} leads out of the directory")
    if not names:
        return
    _make_parents(top, names if member.isdir() else names[:-1])
    if member.isdir():
        return
    with below(top, names[:-1]) as parent:
        if member.issym():
            _link(parent, names[-1], member.linkname)
        elif member.isreg():
            file = archive.extractfile(member)
            assert file is not None  # it is one
            _file(parent, names[-1], member, file)
        else:
            raise BadRequest(f"{member.name[:80]!r}: only directories, files and symbolic links can be sent")


def _make_parents(top: int, names: list[str]) -> None:
    try:
        with below(top, names):
            return
    except FileNotFoundError:
        pass
    for depth in range(1, len(names) + 1):
        with below(top, names[: depth - 1]) as parent:
            try:
                os.mkdir(names[depth - 1], 0o750, dir_fd=parent)
            except FileExistsError:
                continue


def _file(parent: int, name: str, member: tarfile.TarInfo, source: IO[bytes]) -> None:
    aside = f".{os.urandom(8).hex()}{PART}"
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE, 0o600, dir_fd=parent)
    try:
        with os.fdopen(handle, "wb", buffering=0):
            left = member.size
            while left:
                block = source.read(min(BLOCK, left))
                if not block:
                    raise BadRequest(f"the archive broke off within {member.name[:80]!r}")
                left -= len(block)
                write(handle, block)
            os.fchmod(handle, member.mode & 0o777 | 0o600)
            os.rename(aside, name, src_dir_fd=parent, dst_dir_fd=parent)
            os.utime(handle, (member.mtime, member.mtime))  # not before: a part of this age is taken for a remain
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=parent)
        raise


def write(handle: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(handle, view) :]


def _link(parent: int, name: str, target: str) -> None:
    aside = f".{os.urandom(8).hex()}{PART}"
    os.symlink(target, aside, dir_fd=parent)
    try:
        os.rename(aside, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(aside, dir_fd=parent)
        raise
