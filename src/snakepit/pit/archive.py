"""Sending a directory as an archive. Until it has arrived the archive and a note about it stay in the directory,
so that an upload that broke off can be resumed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path

from snakepit.client.archive import make_archive, sizes
from snakepit.client.client import Client
from snakepit.client.secrets import looks_secret
from snakepit.client.snapshot import Concerns
from snakepit.client.upload import upload
from snakepit.errors import SnakepitError
from snakepit.pit import ask, render
from snakepit.pit.arguments import Arguments
from snakepit.pit.snapshots import limits, reviewer
from snakepit.pit.source import Source

ARCHIVE = ".job-upload.tar.gz"
NOTE = ".job-upload.json"
QUESTION = "Continue incomplete upload (y) or delete it and proceed scheduling a new job (N)? "


def of_directory(cwd: Path, client: Client, arguments: Arguments) -> Source:
    """`--upload` says what to do with one that broke off: "resume", "restart"; else it is asked."""
    archive, note = cwd / ARCHIVE, cwd / NOTE
    old = _unfinished(archive, note)
    if old is not None and _resume(archive, arguments.text("upload")):
        remote = old
    else:
        _review(cwd, archive, arguments)
        if old is not None:
            _forget(client, old)
        remote = _new(cwd, archive, note)
    size = archive.stat().st_size
    upload(client, str(archive), remote, lambda done, total, speed: render.progress("uploading", done, total, speed))

    def tidy() -> None:
        _forget(client, remote)
        archive.unlink(missing_ok=True)
        note.unlink(missing_ok=True)

    return Source({"archive": remote}, [("Archive", render.size(size))], {"archive": size}, tidy)


def _review(cwd: Path, archive: Path, arguments: Arguments) -> None:
    """As for a snapshot, only that nothing was agreed to before."""
    bounds, found = limits(), sizes(cwd, archive)
    hidden = tuple(name for name in found if looks_secret(os.fsencode(name)))
    large = sorted(
        ((name, size) for name, size in found.items() if size > bounds.file_bytes), key=lambda each: -each[1]
    )
    total = sum(found.values())
    if hidden or large or total > bounds.total_bytes:
        reviewer(arguments)(Concerns(hidden, tuple(large), total, total > bounds.total_bytes))


def _unfinished(archive: Path, note: Path) -> str | None:
    """The name at the head of an upload that broke off."""
    if not archive.exists() or not note.exists():
        return None
    try:
        remote = str(json.loads(note.read_text())["remote"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return remote if remote.startswith(".upload-") and os.sep not in remote else None


def _resume(archive: Path, how: str | None) -> bool:
    if how is not None:
        return how == "resume"
    render.talk(f"There is an incomplete upload of this directory ({render.size(archive.stat().st_size)}).")
    return ask.yes(QUESTION, "--upload resume or --upload restart")


def _forget(client: Client, remote: str) -> None:
    with contextlib.suppress(SnakepitError):
        client.remove_file(remote)


def _new(cwd: Path, archive: Path, note: Path) -> str:
    remote = f".upload-{secrets.token_hex(16)}.tar.gz"
    note.unlink(missing_ok=True)
    made = make_archive(cwd, archive, render.talk if render.debugging else lambda _: None)
    note.write_text(json.dumps({"remote": remote, "files": made.files, "size": made.size_bytes}) + "\n")
    render.talk(f"Archived {made.files} files and directories, {render.size(made.size_bytes)}.")
    return remote
