"""What the verbs stand on: the store, the loop, the settings, a clock, who is signed in. Held, not inherited.

The settings are a Protocol because `config` lies above this room; whatever has these members will do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from snakepit.loop.loop import Loop
from snakepit.service.auth import Limiter, Passwords, Registrations, Sessions
from snakepit.service.inside.visits import Visits
from snakepit.service.pipes.boards import Boards
from snakepit.service.pipes.registry import Pipes
from snakepit.service.usage import Limits, Owner
from snakepit.store import jobs
from snakepit.store.database import Store


class Settings(Protocol):
    """What the service wants to know of the configuration."""

    @property
    def data_root(self) -> Path: ...
    @property
    def query_limit(self) -> int: ...
    @property
    def open_registration(self) -> bool: ...
    @property
    def token_ttl_s(self) -> float: ...
    @property
    def token_max_age_s(self) -> float: ...
    @property
    def hash_rounds(self) -> int: ...
    @property
    def until(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def debug_http(self) -> bool: ...
    @property
    def max_snapshot_size_bytes(self) -> int: ...
    @property
    def max_user_size_bytes(self) -> int: ...
    @property
    def max_group_size_bytes(self) -> int: ...
    @property
    def trusted_proxies(self) -> tuple[str, ...]: ...


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Service:
    """One running service."""

    store: Store
    loop: Loop
    settings: Settings
    clock: Callable[[], datetime] = utc_now
    sessions: Sessions = field(init=False)
    passwords: Passwords = field(init=False)
    limiter: Limiter = field(init=False)
    registrations: Registrations = field(init=False)
    pipes: Pipes = field(init=False)
    boards: Boards = field(init=False)
    visits: Visits = field(init=False)
    limits: Limits = field(init=False)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.store, self.clock, self.settings.token_ttl_s, self.settings.token_max_age_s)
        self.passwords = Passwords(self.settings.hash_rounds)
        self.limiter = Limiter(lambda: self.clock().timestamp())
        self.registrations = Registrations(lambda: self.clock().timestamp())
        self.pipes = Pipes(self.sessions, self.settings.data_root)
        self.boards = Boards(self.pipes, self.settings.data_root)
        self.visits = Visits(self.store, self.loop, self.sessions, self.clock)
        sizes = self.settings.max_user_size_bytes, self.settings.max_group_size_bytes
        self.limits = Limits(*sizes, self._directories)

    async def access_changed(self) -> None:
        """After any change of users, groups, aliases or resource groups: nobody works with yesterday's rights."""
        await self.tokens_changed()
        await self.loop.reload_access()

    async def tokens_changed(self) -> None:
        """After any end of a token: requests with it are refused, and what stands on it ends."""
        self.sessions.forget()
        await self.review()

    async def review(self) -> None:
        """Pipes and sessions inside jobs whose right is gone end now."""
        await self.pipes.review()
        await self.visits.review()

    def close(self) -> None:
        """Streams and pipes end promptly; jobs go on."""
        self.closing.set()
        self.pipes.close()
        self.visits.close()
        self.limits.close()

    async def _directories(self, owner: Owner) -> list[Path]:
        """What counts for a user's or group's limit: of a user, the directories of the jobs too."""
        root = self.settings.data_root
        if owner.kind == "group":
            return [root / "groups" / owner.id]
        owned = await self.store.read(jobs.of_user, owner.id)
        return [root / "home" / owner.id, *(root / "pits" / str(job.id) for job in owned)]
