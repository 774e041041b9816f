"""Throwing away in time: src/ of ended jobs, old jobs, the trash, what a crash left behind. The slow timer."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from pathlib import Path

from snakepit.errors import SnakepitError
from snakepit.loop.deeds import LoopSettings
from snakepit.source.sweep import drop_job, drop_leftovers, drop_old_caches, drop_src, empty_trash
from snakepit.store import jobs
from snakepit.store.database import Store

log = logging.getLogger(__name__)
EVERY_S = 60.0
AT_ONCE = 200
UNUSED_CACHE_S = 30 * 86400.0


async def keep(store: Store, settings: LoopSettings, clock: Callable[[], dt.datetime]) -> None:
    """For ever: first what a crash left, then once a minute what is due."""
    await _sweep_unknown(store, settings.root)
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
        await store.write(jobs.delete, id)
        await asyncio.to_thread(drop_job, settings.root, id)
    await asyncio.to_thread(drop_old_caches, settings.root, UNUSED_CACHE_S)
    await asyncio.to_thread(empty_trash, settings.root, settings.keep_trash_s)


async def _sweep_unknown(store: Store, root: Path) -> None:
    """Half-made preparations, and directories of jobs that are in no row: a removal was cut short."""
    await asyncio.to_thread(drop_leftovers, root)
    pits = root / "pits"
    for path in sorted(pits.iterdir()) if pits.is_dir() else ():
        if path.name.isdigit() and await store.read(jobs.find, int(path.name)) is None:
            await asyncio.to_thread(drop_job, root, int(path.name))
