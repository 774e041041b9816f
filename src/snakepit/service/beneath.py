"""Opening what users name, beneath a directory handle: component by component, never through a symbolic link.

No path is ever compared by its text. Everything here blocks: call it on a thread.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from snakepit.errors import BadRequest, Forbidden, NotFound, SnakepitError
from snakepit.source.sweep import remove_tree
from snakepit.wire.tree import DIRECTORY, FILE, PART

LONGEST_PATH = 4096
ENTRIES_AT_ONCE = 2000
ASIDE = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(PART)}")
LEFT_S = 86400  # nobody goes on with a part of this age
LOOK_EVERY_S = 3600.0
MOST_LOOKED_AT = 10_000
_filling: set[str] = set()
_looked_at: dict[tuple[int, int], float] = {}  # when, by device and inode


# What a name or a size that somebody sent may bring about.
REFUSALS = (errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG, errno.ENXIO, errno.EEXIST, errno.ENOTEMPTY, errno.EBUSY)


class NoSpace(SnakepitError):
    status = 507


def make_directory(path: Path) -> None:
    """A home, or the directory of a group; jobs mount it. Whoever may write there may also shut its door (chmod 0), for
    all: it is opened again."""
    path.mkdir(mode=0o750, parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o700 != 0o700:
        with suppress(PermissionError):  # an admin's own arrangement
            path.chmod(mode | 0o700)


def components(path: str) -> list[str]:
    """The names of a path; `..` would lead out of the room and is nowhere."""
    if "\0" in path or len(path) > LONGEST_PATH:
        raise BadRequest("Not a path")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise NotFound("There is nothing outside of this directory")
    return names


@contextmanager
def directory(base: Path, names: list[str]) -> Iterator[int]:
    """A handle of the directory `names` beneath `base`."""
    with speaking(base.name):
        handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            with speaking(name):
                refuse_link(handle, name)
                deeper = os.open(name, DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = deeper
        yield handle
    finally:
        os.close(handle)


def open_file(base: Path, path: str, flags: int, mode: int = 0o600) -> int:
    """A handle of a regular file beneath `base`; the caller closes it."""
    names = components(path)
    if not names:
        raise BadRequest("This is a directory")
    with directory(base, names[:-1]) as parent, speaking(names[-1]):
        refuse_link(parent, names[-1])
        handle = os.open(names[-1], flags | FILE, mode, dir_fd=parent)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise NotFound(f"{quoted(names[-1])} is not a file")
        return handle


def status(base: Path, path: str) -> os.stat_result:
    """Of a file or directory; anything else is refused."""
    names = components(path)
    if not names:
        with directory(base, []) as handle:
            return os.fstat(handle)
    with directory(base, names[:-1]) as parent, speaking(names[-1]):
        found = os.stat(names[-1], dir_fd=parent, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise Forbidden("Symbolic links are not followed")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise NotFound(f"{quoted(names[-1])} is neither file nor directory")
    return found


def listing(base: Path, path: str) -> tuple[list[str], list[str]]:
    """Names of directories and of files, sorted; links and special files are not shown."""
    directories, files = [], []
    with directory(base, components(path)) as handle, speaking(path), os.scandir(handle) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                files.append(entry.name)
    return sorted(directories), sorted(files)


def details(base: Path, path: str) -> Iterator[list[tuple[str, os.stat_result]]]:
    """Names and stats of directories and files, as they come, many at a time."""
    with directory(base, components(path)) as handle, speaking(path), os.scandir(handle) as entries:
        found: list[tuple[str, os.stat_result]] = []
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # gone since
            if stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
                found.append((entry.name, status))
            if len(found) >= ENTRIES_AT_ONCE:
                yield found
                found = []
        yield found


def move(base: Path, source: str, target: str) -> None:
    """A file takes the place of another (or a free one), at once and whole."""
    old, new = components(source), components(target)
    if not old or not new:
        raise BadRequest("This is a directory")
    with directory(base, old[:-1]) as parent, directory(base, new[:-1]) as goal, speaking(old[-1]):
        found = os.stat(old[-1], dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise BadRequest(f"{quoted(old[-1])} is not a file")
        refuse_link(goal, new[-1])
        os.rename(old[-1], new[-1], src_dir_fd=parent, dst_dir_fd=goal)


@contextmanager
def new_directory(base: Path, path: str, replace: bool) -> Iterator[int]:
    """A handle to fill a directory by. A new one comes to its place when it is whole, and is gone if it never is;
    with `replace` one that is there is filled as it is."""
    names = components(path)
    if replace:
        if names:
            with contextlib.suppress(BadRequest):  # already existing
                make_directories(base, path)
        with directory(base, names) as handle:
            yield handle
        return
    if not names:
        raise BadRequest("Target directory is existing. Use force option to overwrite what is in it.")
    with directory(base, names[:-1]) as parent, speaking(names[-1]):
        if _exists(parent, names[-1]):
            raise BadRequest("Target directory is existing. Use force option to overwrite what is in it.")
        _drop_remains(parent)
        aside = f".{secrets.token_hex(8)}{PART}"
        os.mkdir(aside, 0o750, dir_fd=parent)
        _filling.add(aside)
        try:
            handle = os.open(aside, DIRECTORY, dir_fd=parent)
            try:
                yield handle
            finally:
                os.close(handle)
            os.rename(aside, names[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True, dir_fd=parent)
            raise
        finally:
            _filling.discard(aside)


def drop_remains(base: Path, path: str) -> bool:
    """Beside a file that is about to be made; whether there were any. A directory is looked through once an hour, as it
    may be large, and files many. What is wrong with the path is said by whoever makes the file."""
    names = components(path)
    with contextlib.suppress(SnakepitError, OSError), directory(base, names[:-1]) as parent:
        found, now = os.fstat(parent), time.monotonic()
        which = found.st_dev, found.st_ino
        if now - _looked_at.get(which, float("-inf")) < LOOK_EVERY_S:
            return False
        if len(_looked_at) >= MOST_LOOKED_AT:
            _looked_at.clear()
        _looked_at[which] = now
        return _drop_remains(parent)
    return False


def _drop_remains(parent: int) -> bool:
    """Of transfers that a crash or a kill cut off here: nobody else would ever take them away, and they count."""
    with os.scandir(parent) as entries:
        names = [entry.name for entry in entries if ASIDE.fullmatch(entry.name) and entry.name not in _filling]
    dropped = False
    for name in names:
        with contextlib.suppress(OSError):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if found.st_mtime > time.time() - LEFT_S:
                continue
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(name, ignore_errors=True, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)
            dropped = True
    return dropped


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def make_directories(base: Path, path: str) -> None:
    """mkdir -p; one that is there already is an error, as in the original."""
    names = components(path)
    fresh = False
    with speaking(base.name):
        handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            with speaking(name):
                refuse_link(handle, name)
                try:
                    os.mkdir(name, 0o750, dir_fd=handle)
                    fresh = True
                except FileExistsError:
                    fresh = False
                deeper = os.open(name, DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = deeper
    finally:
        os.close(handle)
    if not fresh:
        raise BadRequest("Already existing")


def remove(base: Path, path: str, trash: Path) -> None:
    """A file, a link itself, or a directory with all that is in it; never the base."""
    names = components(path)
    if not names:
        raise Forbidden("The directory itself cannot be deleted")
    with directory(base, names[:-1]) as parent, speaking(names[-1]):
        found = os.stat(names[-1], dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(names[-1], dir_fd=parent)
            return
        trash.mkdir(mode=0o700, exist_ok=True)
        # Out of sight at once, by one rename; then taken apart where nobody can put links into it any more.
        target = trash / f"0-{secrets.token_hex(6)}-deleted"
        try:
            os.rename(names[-1], target, src_dir_fd=parent)
        except OSError as problem:
            if problem.errno not in (errno.EXDEV, errno.EACCES):
                raise
            shutil.rmtree(names[-1], dir_fd=parent)
            return
    remove_tree(target)


def refuse_link(parent: int, name: str) -> None:
    """Only for a better word than ELOOP; it is O_NOFOLLOW that keeps people in their rooms."""
    try:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise Forbidden("Symbolic links are not followed")
    except FileNotFoundError:
        return


def quoted(name: str) -> str:
    """In double quotes, as everywhere; bytes that are no UTF-8 and control characters are written out."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Translates what the system says."""
    try:
        yield
    except FileNotFoundError as problem:
        raise NotFound(f"{quoted(name)} does not exist") from problem
    except (NotADirectoryError, IsADirectoryError) as problem:
        raise BadRequest(f"{quoted(name)}: {problem.strerror}") from problem
    except PermissionError as problem:
        raise Forbidden(f"{quoted(name)}: {problem.strerror}") from problem
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise Forbidden("Symbolic links are not followed") from problem
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace("The disk of the service is full") from problem
        if problem.errno in REFUSALS:
            raise BadRequest(f"{quoted(name[:40])}: {problem.strerror}") from problem
        raise
    except UnicodeEncodeError as problem:
        raise BadRequest("Not a path") from problem
