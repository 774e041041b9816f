"""The user's own repository on the head, where snapshots arrive by `git push`. Bare, without hooks, checked on arrival.

Only `refs/pit/incoming/*` can be pushed, moved and deleted by its owner (git's denyDeletes would hold for branches
alone); what is kept of it, under names that are hidden from a push, is the service's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from pathlib import Path

from snakepit.errors import BadRequest, Unavailable
from snakepit.service.pipes.entity import Place
from snakepit.service.pipes.programs import ENVIRONMENT, Program, installed
from snakepit.source.snapshots import repository as kept_at

SERVICES = ("receive-pack", "upload-pack")
# Histories that are merely old or odd; everybody's git has lived with them.
HARMLESS = ("badTimezone", "missingSpaceBeforeDate", "missingTaggerEntry", "zeroPaddedFilemode")
RULES = (
    "core.hooksPath=/dev/null",
    "core.fsync=committed,reference",  # a job that was taken must find its code after a power cut
    "gc.auto=0",
    "maintenance.auto=false",
    "receive.autogc=false",
    "receive.fsckObjects=true",
    "transfer.fsckObjects=true",
    "receive.shallowUpdate=true",
    "receive.hideRefs=refs",
    "receive.hideRefs=!refs/pit/incoming",
    "uploadpack.hideRefs=refs",
    "uploadpack.hideRefs=!refs/pit",
    # Large files pass by in windows: the program's memory is limited.
    "core.bigFileThreshold=32m",
    "core.packedGitWindowSize=64m",
    "core.packedGitLimit=512m",
    "pack.threads=1",
    "pack.windowMemory=256m",
    *(f"receive.fsck.{kind}=ignore" for kind in HARMLESS),
)


def snapshots_path(root: Path, user: str) -> Path:
    return kept_at(root, user)


async def snapshots(root: Path, user: str) -> Path:
    """The repository, made if it is not there."""
    path = snapshots_path(root, user)
    if not await asyncio.to_thread((path / "HEAD").exists):
        await _make(path)
    return path


def git(repository: Path, service: str, largest_bytes: int) -> Program:
    """The server's half of a push (writing) or of a fetch (reading only)."""
    if service not in SERVICES:
        raise BadRequest(f"No such service of git {service[:40]!r}: there are receive-pack and upload-pack")
    rules = [*RULES, f"receive.maxInputSize={largest_bytes}"]
    settings = [word for rule in rules for word in ("-c", rule)]
    argv = (installed("git"), *settings, service, ".")
    return Program("git", argv, Place(repository, service == "receive-pack"))


async def _make(path: Path) -> None:
    """Made aside and renamed, so that nobody meets half a repository; of two makers one wins."""
    await asyncio.to_thread(path.parent.mkdir, mode=0o700, parents=True, exist_ok=True)
    aside = path.parent / f".snapshots-{secrets.token_hex(6)}"
    try:
        making = await asyncio.create_subprocess_exec(
            installed("git"),
            *("-c", "init.defaultBranch=none", "init", "--quiet", "--bare", "--template=", str(aside)),
            env=ENVIRONMENT,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        if await making.wait() != 0:
            raise Unavailable("The repository for snapshots could not be made: the disk of the head may be full")
        with contextlib.suppress(OSError):  # a non-empty directory is there: somebody was faster
            await asyncio.to_thread(os.rename, aside, path)
    finally:
        await asyncio.to_thread(shutil.rmtree, aside, True)
