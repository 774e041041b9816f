"""Unpacking an uploaded archive. tar runs confined to the one directory it fills, and strips or refuses names that lead
elsewhere; the archive itself is opened here, beneath the data root, through no symlink.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from snakepit.errors import BadRequest, SnakepitError
from snakepit.source.sandbox import Sandbox

MAGIC = ((b"\x1f\x8b", "--gzip"), (b"BZh", "--bzip2"), (b"\xfd7zXZ\0", "--xz"), (b"\x28\xb5\x2f\xfd", "--zstd"))
NO_SPACE = "No space left on device"


async def unpack(root: Path, path: Path, src: Path, box: Sandbox) -> None:
    with open_beneath(root, path) as file:
        start = os.pread(file.fileno(), 6, 0)  # tar reads from the handle, so its position must not move
        compression = [option for magic, option in MAGIC if start.startswith(magic)]
        size = os.fstat(file.fileno()).st_size
        box.say(f"Unpacking the archive ({size} bytes)")
        # Owners are ours, not the archive's; a directory that is already there (src itself) keeps its rights.
        words = ["tar", "--extract", "--file=-", *compression, "--no-same-owner", "--no-overwrite-dir"]
        done = await box.run([*words, "--delay-directory-restore"], cwd=src, writable=[src], stdin=file)
    if done.code != 0:
        if NO_SPACE in done.words:
            raise SnakepitError("The disk of the head is full: the archive could not be unpacked")
        raise SnakepitError(f"The archive cannot be unpacked: {done.words}")


def open_beneath(root: Path, path: Path) -> BinaryIO:
    """Opens a regular file of the data root; homes are writable for their users, so any part could be a symlink."""
    try:
        parts = path.relative_to(root).parts
    except ValueError:
        raise BadRequest("Archive outside of the data of the service") from None
    if not parts or ".." in parts:
        raise BadRequest("Archive outside of the data of the service")
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            flags = os.O_NOFOLLOW | (os.O_NONBLOCK if last else os.O_DIRECTORY)
            handle, parent = os.open(part, os.O_RDONLY | flags, dir_fd=handle), handle
            os.close(parent)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BadRequest("The archive is not a file")
    except OSError:
        os.close(handle)
        raise SnakepitError(f"Archive not found: {path.name}") from None
    except BadRequest:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")
