"""Throwing away in time: src/ of ended jobs, old jobs, old entries of the audit trail, the trash, what a crash left
behind. The slow timer."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snakepit.errors import SnakepitError
from snakepit.loop.deeds import LoopSettings
from snakepit.source import snapshots
from snakepit.source.sweep import drop_job, drop_leftovers, drop_old_caches, drop_src, empty_trash
from snakepit.store import audit, jobs
from snakepit.store.database import Store
from snakepit.store.rows import JobInput, JobRow

log = logging.getLogger(__name__)
EVERY_S = 60.0
AT_ONCE = 200
UNUSED_CACHE_S = 30 * 86400.0


async def keep(store: Store, settings: LoopSettings, clock: Callable[[], dt.datetime]) -> None:
    """For ever, once a minute: what is due."""
    while True:
        try:
            await keep_once(store, settings, clock())
        except (SnakepitError, OSError) as error:
            log.error("keeping house is put off: %s", error)
        await asyncio.sleep(EVERY_S)


async def keep_once(store: Store, settings: LoopSettings, now: dt.datetime) -> None:
    """Everything that is due now."""
    for id in await store.read(jobs.src_due, now, AT_ONCE):
        await asyncio.to_thread(drop_src, settings.root, id)
        await store.write(jobs.set_src_until, id, None)
    old = await store.read(jobs.done_before, now - dt.timedelta(seconds=settings.keep_jobs_s), AT_ONCE)
    for id in old:
        await remove_job(store, settings.root, id)
    await store.write(audit.delete_before, now - dt.timedelta(seconds=settings.keep_audit_s))
    await asyncio.to_thread(drop_old_caches, settings.root, UNUSED_CACHE_S)
    for user in await asyncio.to_thread(snapshots.due, settings.root):
        try:
            await snapshots.collect(settings.root, user, settings.confined)
        except (SnakepitError, OSError) as error:  # one user's, which holds up nobody else's
            log.error("the snapshots of user %s are not collected: %s", user, error)
    await asyncio.to_thread(empty_trash, settings.root, settings.keep_trash_s)


async def remove_job(store: Store, root: Path, id: int) -> None:
    """A job that is over, with all it left. The row goes first: what has none is swept at the next start."""
    row, given = await store.read(_with_input, id)
    await store.write(jobs.delete, id)
    await asyncio.to_thread(drop_job, root, id)
    if row.snapshot:
        await asyncio.to_thread(snapshots.drop, root, row.user, id)
    if given.archive:
        await asyncio.to_thread(Path(given.archive).unlink, True)


async def sweep(store: Store, root: Path) -> None:
    """At the start, before anything is submitted or prepared: what was cut short by a crash."""
    try:
        await asyncio.to_thread(drop_leftovers, root)
        there = [int(path.name) for path in _listed(root / "pits") if path.name.isdigit()]
        for id in await store.read(_unknown, there):
            log.warning("pits/%d goes to the trash: there is no such job", id)
            await asyncio.to_thread(drop_job, root, id)
        refs = {id: user for user, id in await asyncio.to_thread(list, snapshots.all_kept(root))}
        for id in await store.read(_unknown, list(refs)):
            await asyncio.to_thread(snapshots.drop, root, refs[id], id)
        wanted = {Path(path).name for path in await store.read(jobs.archives)}
        for path in _listed(root / "inputs"):
            if path.name not in wanted:
                await asyncio.to_thread(path.unlink, True)
    except (SnakepitError, OSError) as error:
        log.error("what a crash left stays until the next start: %s", error)


def _listed(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _with_input(c: Any, id: int) -> tuple[JobRow, JobInput]:
    return jobs.get(c, id), jobs.input_of(c, id)


def _unknown(c: Any, ids: list[int]) -> list[int]:
    return [id for id in ids if jobs.find(c, id) is None]
