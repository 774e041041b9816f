"""How much there is: the sizes of trees, and the limits of users and groups.

Nobody walks a tree per request: a figure is kept, grows by what is uploaded, and is measured anew in the background.
Only a "no" is worth a fresh look first. What counts is what is on the disk, a file with several names once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from snakepit.core.sizes import rough_size
from snakepit.errors import SnakepitError
from snakepit.wire.tree import walk

REFRESH_S = 60  # older figures are measured anew, beside the request that found them old
FRESH_S = 2  # a figure of this age may refuse
PATIENCE_S = 10  # what a request waits for a figure; then the one at hand counts, or none
SECTOR_BYTES = 512  # the unit of st_blocks


class OverLimit(SnakepitError):
    """A user or group has no room left."""

    status = 507


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose limit it is."""

    kind: str  # user or group
    id: str


def owner_of(directory: Path) -> Owner:
    """Of a home or the directory of a group."""
    return Owner("group" if directory.parent.name == "groups" else "user", directory.name)


@dataclass(frozen=True, slots=True)
class Usage:
    size_bytes: int = 0
    files: int = 0


@dataclass(slots=True)
class Figure:
    size_bytes: int
    at: float


def measure(top: int) -> dict[str, Usage]:
    """Of every entry of an open directory, by its name: what it takes, with all below it."""
    found: dict[str, list[int]] = {}
    seen: set[tuple[int, int]] = set()
    for level in walk(top):
        for entry in level.entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            sums = found.setdefault(level.names[0] if level.names else entry.name, [0, 0])
            if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            sums[0] += status.st_blocks * SECTOR_BYTES
            sums[1] += not entry.is_dir(follow_symlinks=False)
    return {name: Usage(*sums) for name, sums in found.items()}


class Limits:
    """`directories` names the directories that count for an owner."""

    def __init__(
        self,
        user_bytes: int,
        group_bytes: int,
        directories: Callable[[Owner], Awaitable[list[Path]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = {"user": user_bytes, "group": group_bytes}
        self._directories, self._clock = directories, clock
        self._figures: dict[Owner, Figure] = {}
        self._measuring: dict[Owner, asyncio.Task[None]] = {}
        # One walk at a time: measuring shall not take the disk from those who work.
        self._walker = ThreadPoolExecutor(1, "usage")

    def close(self) -> None:
        self._walker.shutdown(wait=False, cancel_futures=True)

    def limit(self, owner: Owner) -> int:
        """0: none."""
        return self._limits[owner.kind]

    async def check(self, owner: Owner, more_bytes: int = 0) -> None:
        """OverLimit, with the figures, where this much more does not fit, or nothing at all."""
        limit = self.limit(owner)
        if not limit:
            return
        used = await self._known(owner)
        if self._over(used, more_bytes, limit) and self._age(owner) > FRESH_S:
            used = await self._renewed(owner)
        if self._over(used, more_bytes, limit):
            needs = f", and this needs {rough_size(more_bytes)}" if more_bytes else ""
            room = "pit delete and pit rm job:<number> make" if owner.kind == "user" else "pit delete makes"
            raise OverLimit(
                f'{owner.kind.title()} "{owner.id}" uses {rough_size(used)} of {rough_size(limit)}{needs}. '
                f"pit du shows where it is, {room} room"
            )

    def wrote(self, owner: Owner, size_bytes: int) -> None:
        figure = self._figures.get(owner)
        if figure is not None:
            figure.size_bytes += size_bytes

    def room_made(self, owner: Owner) -> None:
        """Something was removed: the next "no" looks anew."""
        if owner in self._figures:
            self._figures[owner].at = float("-inf")

    async def used(self, owner: Owner) -> int:
        """For people: not older than a minute."""
        if owner in self._figures and self._age(owner) <= FRESH_S:
            return self._figures[owner].size_bytes
        return await self._renewed(owner)

    @staticmethod
    def _over(used: int, more_bytes: int, limit: int) -> bool:
        return used >= limit or used + more_bytes > limit

    def _age(self, owner: Owner) -> float:
        figure = self._figures.get(owner)
        return float("inf") if figure is None else self._clock() - figure.at

    async def _known(self, owner: Owner) -> int:
        if owner not in self._figures:
            return await self._renewed(owner)
        if self._age(owner) > REFRESH_S:
            self._begin(owner)
        return self._figures[owner].size_bytes

    async def _renewed(self, owner: Owner) -> int:
        await asyncio.wait((self._begin(owner),), timeout=PATIENCE_S)
        figure = self._figures.get(owner)
        return 0 if figure is None else figure.size_bytes

    def _begin(self, owner: Owner) -> asyncio.Task[None]:
        running = self._measuring.get(owner)
        if running is None:
            running = self._measuring[owner] = asyncio.create_task(self._measure(owner))
            running.add_done_callback(lambda _: self._measuring.pop(owner, None))
        return running

    async def _measure(self, owner: Owner) -> None:
        directories = await self._directories(owner)
        before = self._figures.get(owner)
        base = before.size_bytes if before else 0
        at = self._clock()
        used = await asyncio.get_running_loop().run_in_executor(self._walker, _total, directories)
        after = self._figures.get(owner)
        # What was written while we looked may have been seen or not: rather twice than never, for a minute.
        grown = max(0, after.size_bytes - base) if after else 0
        self._figures[owner] = Figure(used + grown, at)


def _total(directories: Iterable[Path]) -> int:
    total = 0
    for path in directories:
        try:
            top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            total += sum(usage.size_bytes for usage in measure(top).values())
        except OSError:
            continue
        finally:
            os.close(top)
    return total
