"""Tokens: only their hashes are kept. Whether one is still good is for the caller to say, who knows the time."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from snakepit import errors
from snakepit.store.rows import TokenRow
from snakepit.store.schema import tokens

_TOKENS = select(
    tokens.c.id,
    tokens.c.user,
    tokens.c.name,
    tokens.c.created_at,
    tokens.c.used_at,
    tokens.c.expires_at,
    tokens.c.dies_at,
)


def insert(
    c: Connection,
    hash: bytes,
    user: str,
    name: str,
    now: datetime,
    expires_at: datetime,
    dies_at: datetime,
) -> int:
    """The new token's id."""
    values = {"hash": hash, "user": user, "name": name, "created_at": now, "used_at": now}
    fresh = tokens.insert().values(**values, expires_at=expires_at, dies_at=dies_at)
    number: int = c.execute(fresh.returning(tokens.c.id)).scalar_one()
    return number


def find_by_hash(c: Connection, hash: bytes) -> TokenRow | None:
    row = c.execute(_TOKENS.where(tokens.c.hash == hash)).first()
    return TokenRow(*row) if row else None


def renew(c: Connection, id: int, now: datetime, expires_at: datetime) -> None:
    """It was used; it lives on until `expires_at`, never beyond its `dies_at` and never shorter than before."""
    row = c.execute(_TOKENS.where(tokens.c.id == id)).first()
    if row is None:
        return
    token = TokenRow(*row)
    until = min(max(expires_at, token.expires_at), token.dies_at)
    c.execute(tokens.update().where(tokens.c.id == id).values(used_at=max(now, token.used_at), expires_at=until))


def delete(c: Connection, id: int, user: str | None = None) -> None:
    """With `user`, only a token of that user's."""
    which = tokens.delete().where(tokens.c.id == id)
    if user is not None:
        which = which.where(tokens.c.user == user)
    if c.execute(which).rowcount == 0:
        raise errors.NotFound("Token not found")


def delete_of_user(c: Connection, user: str, except_id: int | None = None) -> int:
    """How many there were."""
    which = tokens.delete().where(tokens.c.user == user)
    if except_id is not None:
        which = which.where(tokens.c.id != except_id)
    return c.execute(which).rowcount


def list_of_user(c: Connection, user: str) -> list[TokenRow]:
    return [TokenRow(*row) for row in c.execute(_TOKENS.where(tokens.c.user == user).order_by(tokens.c.id))]


def purge_expired(c: Connection, now: datetime) -> int:
    return c.execute(tokens.delete().where(tokens.c.expires_at <= now)).rowcount
