"""Signing in and out, and named tokens for scripts."""

from __future__ import annotations

from sqlalchemy import Connection

from snakepit.core import access
from snakepit.errors import BadRequest, NotFound
from snakepit.service.call import Call
from snakepit.store import tokens, users
from snakepit.wire import shapes
from snakepit.wire.durations import parse_duration_s
from snakepit.wire.fields import Field, table

PASSWORD = table(Field("password", required=True, longest=1000))
NEW_TOKEN = table(Field("name", required=True, longest=64), Field("ttl", "time", words="seconds or a time-value"))


async def authenticate(call: Call) -> shapes.Token:
    """Sign in: a password for a token."""
    service, user = call.service, call.path["user"]
    service.limiter.attempt(user, call.address)
    row = await service.store.read(users.find, user)
    if row is None:
        raise NotFound("User not found")
    if not await service.passwords.matches(call.body["password"], row.password_hash):
        raise BadRequest("Wrong password")
    service.limiter.succeeded(user, call.address)
    _, token = await service.sessions.open(user)
    return {"token": token}


async def logout(call: Call) -> None:
    """End the token that asks."""
    await call.service.store.write(_end, call.signed_in.token)
    await call.service.tokens_changed()


def _end(c: Connection, token: int) -> None:
    try:
        tokens.delete(c, token)
    except NotFound:
        return  # ended by another way in the same moment


async def add_token(call: Call) -> shapes.NamedToken:
    """A named token for scripts; its text is shown this once."""
    access.see_user(call.person, call.user)
    await call.service.store.read(users.get, call.user)
    ttl_s = call.service.settings.token_max_age_s
    if "ttl" in call.body:
        ttl_s = seconds(call.body["ttl"], "ttl", low_s=1)
    id, text = await call.service.sessions.open(call.user, call.body["name"], ttl_s)
    return {"id": id, "token": text}


async def list_tokens(call: Call) -> list[shapes.TokenInfo]:
    """The tokens of a user, without their texts."""
    access.see_user(call.person, call.user)
    now = call.service.clock()
    return [
        {
            "id": row.id,
            "name": row.name,
            "created": row.created_at.isoformat(),
            "used": row.used_at.isoformat(),
            "expires": row.expires_at.isoformat(),
        }
        for row in await call.service.store.read(tokens.list_of_user, call.user)
        if row.expires_at > now
    ]


async def remove_token(call: Call) -> None:
    """End a token."""
    access.see_user(call.person, call.user)
    await call.service.store.write(tokens.delete, int(call.path["token"]), call.user)
    await call.service.tokens_changed()


def seconds(value: float | str, name: str, low_s: float = 0.0) -> float:
    """A JSON number is seconds; a text is a time-value."""
    try:
        given = parse_duration_s(value) if isinstance(value, str) else parse_duration_s(value * 1000)
    except ValueError as problem:
        raise BadRequest(f'"{name}": {problem}') from problem
    if given < low_s:
        raise BadRequest(f'"{name}" must be at least {low_s:g} s')
    return given
