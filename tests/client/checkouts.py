"""Real checkouts for the tests of snapshots, and what is in them."""

import os
import stat
import subprocess
from pathlib import Path

from snakepit.client.aside import Repository, find_repository
from snakepit.client.snapshot import Snapshot, take
from tests.source.repositories import ENV
from tests.source.repositories import Repository as Real

BINARY = bytes(range(256)) * 40


def found(place: Path) -> Repository:
    repository = find_repository(place)
    assert isinstance(repository, Repository), repository
    return repository


def snapped(place: Path, **more: object) -> Snapshot:
    return take(found(place), **more)  # type: ignore[arg-type]


def contents(real: Real, commit: str) -> dict[bytes, tuple[str, bytes]]:
    """Mode and bytes of every file in the commit, straight from the objects."""
    listed = subprocess.run(["git", "ls-tree", "-r", "-z", commit], cwd=real.path, env=ENV, capture_output=True)
    files = {}
    for entry in listed.stdout.split(b"\0")[:-1]:
        words, _, name = entry.partition(b"\t")
        mode, _, blob = words.decode().split()
        got = subprocess.run(["git", "cat-file", "blob", blob], cwd=real.path, env=ENV, capture_output=True, check=True)
        files[name] = mode, got.stdout
    return files


def on_disk(place: Path, *but: str) -> dict[bytes, tuple[str, bytes]]:
    files = {}
    for path in place.rglob("*"):
        short = path.relative_to(place)
        if ".git" in short.parts or str(short) in but:
            continue
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            files[os.fsencode(short)] = "120000", os.fsencode(path.readlink())
        elif stat.S_ISREG(mode):
            files[os.fsencode(short)] = "100755" if mode & 0o100 else "100644", path.read_bytes()
    return files
