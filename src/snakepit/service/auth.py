"""Who is asking: passwords (bcrypt, on threads of their own), random tokens kept as hashes, limited login attempts and
registrations.

A token lives `tokenTTL` from its last use, at most `tokenMaxAge` from its making, and ends with a password change.
Sessions are cached, so that a request costs no database read; any change of users, groups or tokens empties the cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import bcrypt
from sqlalchemy import Connection

from snakepit.core.access import Person
from snakepit.errors import BadRequest, TooMany, Unauthorized
from snakepit.store import tokens, users
from snakepit.store.database import Store
from snakepit.store.rows import TokenRow, UserRow
from snakepit.wire.names import SHORTEST_PASSWORD

LONGEST_PASSWORD_BYTES = 72  # bcrypt looks no further
CACHED_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in person, and the token that says so."""

    person: Person
    token: int
    expires_at: datetime
    renew_at: datetime
    dies_at: datetime
    autoshare: tuple[str, ...] = ()


class Sessions:
    def __init__(self, store: Store, clock: Callable[[], datetime], ttl_s: float, max_age_s: float) -> None:
        self._store, self._clock = store, clock
        self._ttl, self._max_age = timedelta(seconds=ttl_s), timedelta(seconds=max_age_s)
        self._cache: dict[bytes, Session] = {}
        self._generation = 0

    async def open(self, user: str, name: str = "", ttl_s: float | None = None) -> tuple[int, str]:
        """A new token: its id and its text, which is shown this once."""
        now = self._clock()
        text = secrets.token_urlsafe(32)
        ttl = self._ttl if ttl_s is None else timedelta(seconds=ttl_s)
        # A named token is for scripts: it lives as long as was asked, used or not.
        dies_at = now + (self._max_age if ttl_s is None else ttl)
        id = await self._store.write(_insert, digest(text), user, name, now, min(now + ttl, dies_at), dies_at)
        return id, text

    async def find(self, text: str) -> Session:
        """The session of a token; Unauthorized with words when there is none."""
        return await self.use(digest(text))

    async def use(self, key: bytes) -> Session:
        """By the token's hash; it counts as used, and lives on."""
        session = await self.look(key)
        now = self._clock()
        if now >= session.renew_at:
            await self._renew(key, session, now)
        return session

    async def look(self, key: bytes) -> Session:
        """By the token's hash, without using it."""
        session = self._cache.get(key)
        if session is None:
            session = await self._load(key)
        if self._clock() >= session.expires_at:
            self._cache.pop(key, None)
            raise Unauthorized("Token expired")
        return session

    def forget(self) -> None:
        self._generation += 1
        self._cache.clear()

    async def _load(self, key: bytes) -> Session:
        generation = self._generation
        found = await self._store.read(_token_and_user, key)
        if found is None:
            raise Unauthorized("Invalid token")
        token, user = found
        if user is None:
            raise Unauthorized("Token for unknown user")
        session = Session(
            Person(user.id, user.admin, user.groups),
            token.id,
            token.expires_at,
            token.used_at + self._renewal_pause(),
            token.dies_at or token.expires_at,
            user.autoshare,
        )
        if generation == self._generation:  # else it may be yesterday's already
            if len(self._cache) >= CACHED_SESSIONS:
                self._cache.clear()
            self._cache[key] = session
        return session

    async def _renew(self, key: bytes, session: Session, now: datetime) -> None:
        expires_at = max(session.expires_at, min(now + self._ttl, session.dies_at))
        renewed = replace(session, expires_at=expires_at, renew_at=now + self._renewal_pause())
        if key in self._cache:
            self._cache[key] = renewed  # first, so that requests of the same moment do not all write
        await self._store.write(tokens.renew, session.token, now, expires_at)

    def _renewal_pause(self) -> timedelta:
        return self._ttl / 24


def _insert(
    c: Connection, key: bytes, user: str, name: str, now: datetime, expires_at: datetime, dies_at: datetime
) -> int:
    tokens.purge_expired(c, now)  # a good moment: nobody else counts them
    return tokens.insert(c, key, user, name, now, expires_at, dies_at)


def _token_and_user(c: Connection, key: bytes) -> tuple[TokenRow, UserRow | None] | None:
    token = tokens.find_by_hash(c, key)
    return None if token is None else (token, users.find(c, token.user))


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


class Passwords:
    """Slow on purpose, so on two threads of their own: logins queue behind each other, never before the event loop."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="bcrypt")

    async def hash(self, password: str) -> bytes:
        check_password(password)
        return await asyncio.get_running_loop().run_in_executor(self._threads, hash_password, password, self._rounds)

    async def matches(self, password: str, hashed: bytes) -> bool:
        plain = password.encode("utf-8", "replace")
        if len(plain) > LONGEST_PASSWORD_BYTES or b"\0" in plain:
            return False
        return await asyncio.get_running_loop().run_in_executor(self._threads, bcrypt.checkpw, plain, hashed)


def check_password(password: str) -> None:
    """Of new ones; whoever has a shorter one from before keeps it."""
    if len(password) < SHORTEST_PASSWORD:
        raise BadRequest(f"The password is too short ({SHORTEST_PASSWORD} characters at least)")
    if len(password.encode()) > LONGEST_PASSWORD_BYTES:
        raise BadRequest(f"The password is too long ({LONGEST_PASSWORD_BYTES} bytes max)")


def hash_password(password: str, rounds: int) -> bytes:
    check_password(password)
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds))


class Limiter:
    """Failed logins within a minute. A name is held up where it was tried, and only far later everywhere: nobody
    locks a colleague out by typing his name."""

    window_s = 60.0
    per_user_and_address = 10
    per_user = 100
    per_address = 30

    def __init__(self, now: Callable[[], float]) -> None:
        self._failures = Recent(now, self.window_s)

    def attempt(self, user: str, address: str) -> None:
        """Counts an attempt as failed until `succeeded` says otherwise; TooMany when there were too many."""
        self._failures.add(self._keys(user, network(address)), "failed login attempts")

    def succeeded(self, user: str, address: str) -> None:
        together, *apart = self._keys(user, network(address))
        self._failures.forget(together)
        for key in apart:
            self._failures.take_back(key)

    def _keys(self, user: str, address: str) -> dict[str, int]:
        return {
            f"user {user} from {address}": self.per_user_and_address,
            f"user {user}": self.per_user,
            f"address {address}": self.per_address,
        }


class Registrations:
    """New accounts by strangers. A class that starts together behind one address gets in, who wants thousands does
    not."""

    window_s = 600.0
    per_address = 40

    def __init__(self, now: Callable[[], float]) -> None:
        self._made = Recent(now, self.window_s)

    def attempt(self, address: str) -> None:
        self._made.add({network(address): self.per_address}, "registrations from this address")


class Recent:
    """When things happened within a window, by key; in memory, bounded."""

    remembered = 20_000

    def __init__(self, now: Callable[[], float], window_s: float) -> None:
        self._now, self._window_s = now, window_s
        self._times: dict[str, list[float]] = {}

    def add(self, limits: dict[str, int], what: str) -> None:
        """One more under each key, or under none: TooMany where there are as many as its limit."""
        for key, limit in limits.items():
            recent = self._recent(key)
            if len(recent) >= limit:
                raise TooManyAttempts(what, self._window_s - (self._now() - recent[0]))
        for key in limits:
            self._times.setdefault(key, []).append(self._now())
        if len(self._times) > self.remembered:
            self._times = {key: times for key in list(self._times) if (times := self._recent(key))}

    def take_back(self, key: str) -> None:
        if times := self._times.get(key):
            times.pop()

    def forget(self, key: str) -> None:
        self._times.pop(key, None)

    def _recent(self, key: str) -> list[float]:
        times = [at for at in self._times.get(key, ()) if at > self._now() - self._window_s]
        if key in self._times:
            self._times[key] = times
        return times


class TooManyAttempts(TooMany):
    def __init__(self, what: str, retry_after_s: float) -> None:
        self.retry_after_s = max(1, round(retry_after_s))
        super().__init__(f"Too many {what}, try again in {self.retry_after_s} seconds")


def network(address: str) -> str:
    """Whom an address stands for: of IPv6 a single customer has 2⁶⁴."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
