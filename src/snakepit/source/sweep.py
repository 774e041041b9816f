"""Throwing away: into the trash by a rename, out of it some time later. Nothing is followed through a symlink, and a
tree that its owner made unreadable, or thousands of directories deep, goes like any other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from pathlib import Path

from snakepit.source.layout import PREPARATION, held, left_over, pit_dir, pits_dir
from snakepit.source.spare import READY, known

OWN_TRASH = ".trash"
_TRASHED = "{when}-{nonce}-{name}"


def to_trash(root: Path, path: Path, keep: bool = True) -> Path | None:
    """Moves `path` (never what it links to) into `<root>/trash`; None when there is nothing. With `keep` false the
    next emptying takes it, however young it is. `pits/` or `home/` may be disks of their own, each then has
    its own trash: nothing is ever copied."""
    if not os.path.lexists(path):
        return None
    when = int(time.time()) if keep else 0
    name = _TRASHED.format(when=when, nonce=secrets.token_hex(6), name=path.name[:100])
    try:
        return _moved(path, root / "trash" / name)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
    return _moved(path, root / path.relative_to(root).parts[0] / OWN_TRASH / name)


def _moved(path: Path, target: Path) -> Path | None:
    target.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        path.rename(target)
    except FileNotFoundError:
        return None
    except PermissionError:  # a directory that changes its parent must be writable itself
        _open_up(path)
        path.rename(target)
    return target


def empty_trash(root: Path, older_than_s: float) -> int:
    """Removes what was thrown away that long ago; gives the number of things. Blocking: call it in a thread."""
    limit = time.time() - older_than_s
    removed = 0
    for trash in (root / "trash", *root.glob(f"*/{OWN_TRASH}")):
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(trash.iterdir()):
                if _trashed_at(path) <= limit:
                    remove_tree(path)
                    removed += 1
    return removed


def drop_src(root: Path, job: int) -> None:
    """After `keepSrc`: the job's code and temporary files; `keep/`, the log and the results stay."""
    for name in ("src", "tmp"):
        to_trash(root, pit_dir(root, job) / name, keep=False)


def drop_job(root: Path, job: int) -> None:
    to_trash(root, pit_dir(root, job))


def drop_user(root: Path, user: str) -> None:
    """The home goes to the trash; what was fetched for the user, with the rights the user had then, goes at once."""
    to_trash(root, root / "home" / user)
    to_trash(root, root / "cache" / user, keep=False)


def drop_old_caches(root: Path, unused_s: float) -> int:
    """Fetched repositories that no job asked for in that time; one that is in use at this moment stays."""
    limit = time.time() - unused_s
    dropped = 0
    for lock in sorted((root / "cache").glob("*/*.lock")):
        with contextlib.suppress(FileNotFoundError), held(lock) as mine:
            if mine and lock.stat().st_mtime <= limit:
                to_trash(root, lock.with_suffix(""), keep=False)
                lock.unlink()
                dropped += 1
    return dropped


def drop_leftovers(root: Path) -> int:
    """Preparations that a crash cut off, and directories that stood ready; those of this process are left alone."""
    found = []
    for path in sorted(pits_dir(root).glob(f"{PREPARATION}*")):
        with left_over(path) as nobodys:
            if nobodys and (trashed := to_trash(root, path, keep=False)) is not None:
                found.append(trashed)
    used = known(root)
    for path in pits_dir(root).glob(f"{READY}*"):
        if path.name not in used and (trashed := to_trash(root, path, keep=False)) is not None:
            found.append(trashed)
    for path in found:
        remove_tree(path)
    return len(found)


def remove_tree(path: Path) -> None:
    """Removes a file, a link or a directory with all that is in it. Nested directories are first moved up to the top,
    so that neither recursion nor open files grow with the depth. Two may be at the same: what is gone is gone."""
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
        _open_up(path)
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        while directories := _strip(top, top):
            for name in directories:
                with contextlib.suppress(FileNotFoundError):
                    _dissolve(top, name)
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()


def _strip(directory: int, top: int) -> list[str]:
    """Unlinks all files of `directory` and gives (at the top) or moves up (below it) its subdirectories."""
    found = []
    with os.scandir(directory) as listing:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    for name, is_directory in entries:
        with contextlib.suppress(FileNotFoundError):
            if not is_directory:
                os.unlink(name, dir_fd=directory)
            elif directory == top:
                found.append(name)
            else:
                _open_up(name, directory)
                os.rename(name, f".{secrets.token_hex(8)}", src_dir_fd=directory, dst_dir_fd=top)
    return found


def _dissolve(top: int, name: str) -> None:
    _open_up(name, top)
    directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        _strip(directory, top)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=top)


def _open_up(path: str | Path, parent: int | None = None) -> None:
    """Gives the owner all rights on a directory. By handle: a name could meanwhile be a link to something else."""
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
    finally:
        os.close(handle)


def _trashed_at(path: Path) -> float:
    when = path.name.partition("-")[0]
    return float(when) if when.isascii() and when.isdigit() else path.lstat().st_ctime
