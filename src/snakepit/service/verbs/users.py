"""Accounts: registering, seeing, changing, removing, memberships. The first user becomes admin."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import Connection

from snakepit.core import access
from snakepit.core.job import State
from snakepit.errors import Conflict, Forbidden, NotFound, WrongState
from snakepit.service.beneath import make_directory
from snakepit.service.call import Call
from snakepit.store import groups, jobs, tokens, users
from snakepit.store.rows import UserRow
from snakepit.wire import shapes
from snakepit.wire.fields import Field, table

NEW_USER = table(
    Field("fullname"),
    Field("email"),
    Field("password", required=True, longest=1000),
    Field("admin", "flag", words="only for admins"),
    Field("autoshare", "texts", longest=100),
)
CHANGED_USER = table(
    Field("verification", longest=1000, words="the password of whoever asks"),
    Field("fullname"),
    Field("email"),
    Field("password", longest=1000),
    Field("admin", "flag"),
    Field("autoshare", "texts", longest=100, words="groups that new jobs are shared with"),
)


async def exists(call: Call) -> None:
    """Whether there is a user of this name."""
    if await call.service.store.read(users.find, call.user) is None:
        raise NotFound("User not found")


async def add(call: Call) -> None:
    """Register a user; the first one becomes admin."""
    service, body = call.service, call.body
    by_admin = call.session is not None and call.person.admin
    if body.get("admin") and not by_admin:
        raise Forbidden("Only administrators may make somebody an administrator")
    if body.get("autoshare") and not by_admin:
        raise Forbidden("Only administrators may give a new account groups to share with")
    user = call.user if call.session is not None else call.path["user"]
    if await service.store.read(users.find, user) is not None:
        raise Forbidden("User already existing")
    if not by_admin:
        service.registrations.attempt(call.address)
    hashed = await service.passwords.hash(body["password"])
    try:
        await service.store.write(_insert, user, body, hashed, by_admin, service.settings.open_registration)
    except Conflict as problem:  # somebody was faster
        raise Forbidden(problem.message) from problem
    await asyncio.to_thread(make_directory, service.settings.data_root / "home" / user)
    await service.access_changed()


def _insert(c: Connection, user: str, body: dict[str, Any], hashed: bytes, by_admin: bool, is_open: bool) -> None:
    if not by_admin:
        if not is_open and users.count(c) > 0:
            raise Forbidden("Registration is closed here: ask an administrator for an account")
        if users.has_jobs(c, user):
            raise Forbidden(
                "Only admins can re-create this account, as there are already jobs with this user-ID as owner."
            )
    admin = True if by_admin and body.get("admin") else (False if by_admin else None)
    users.insert(c, user, body.get("fullname", ""), body.get("email", ""), hashed, admin, body.get("autoshare", ()))


async def ids(call: Call) -> list[str]:
    """All users."""
    access.administer(call.person)
    return await call.service.store.read(users.ids)


async def show(call: Call) -> shapes.User:
    """An account."""
    access.see_user(call.person, call.user)
    row = await call.service.store.read(users.get, call.user)
    shown: shapes.User = {"id": row.id, "fullname": row.fullname, "email": row.email, "admin": row.admin}
    if row.groups:
        shown["groups"] = sorted(row.groups)
    if row.autoshare:
        shown["autoshare"] = sorted(row.autoshare)
    return shown


async def change(call: Call) -> None:
    """Change an account; needs the password of whoever asks."""
    service, user = call.service, call.user
    access.change_user(call.person, user, makes_admin=bool(call.body.get("admin")))
    await verify(call, call.body.pop("verification", None))
    for group in call.body.get("autoshare", ()):
        await service.store.read(groups.get, group)
        if user == call.person.id:
            access.share_with(call.person, group)
    fields = dict(call.body)
    if "password" in fields:
        fields["password_hash"] = await service.passwords.hash(fields.pop("password"))
    await service.store.write(_update, user, fields)
    await service.access_changed()


def _update(c: Connection, user: str, fields: dict[str, Any]) -> None:
    users.update(c, user, **fields)
    if "password_hash" in fields:  # whoever knew the old one is out, everywhere
        tokens.delete_of_user(c, user)


async def verify(call: Call, password: str | None) -> UserRow:
    """The caller's own password, asked once more."""
    if password is None:
        raise Forbidden("Only verified access")
    service = call.service
    row = await service.store.read(users.get, call.person.id)
    service.limiter.attempt(row.id, call.address)
    if not await service.passwords.matches(password, row.password_hash):
        # Not 401, as in the original: to its client that is a bad token, and it logs in and asks again without end.
        raise Forbidden("Verification failed")
    service.limiter.succeeded(row.id, call.address)
    return row


async def remove(call: Call) -> None:
    """Remove an account: its jobs are stopped, its home goes to the trash, its tokens end."""
    service, user = call.service, call.user
    access.change_user(call.person, user)
    # The row goes last: what a crash cuts short can be asked for again, and nobody inherits a home.
    await service.store.read(_check_removable, user)
    await service.store.write(tokens.delete_of_user, user)
    await service.tokens_changed()
    await _stop_jobs(call, user)
    await service.loop.remove_home(user)
    await service.store.write(users.delete, user)
    await service.access_changed()
    await _stop_jobs(call, user)  # one may have slipped in


def _check_removable(c: Connection, user: str) -> None:
    if users.get(c, user).admin and users.admins(c) == 1:
        raise WrongState("This is the last admin: make another user admin first")


async def _stop_jobs(call: Call, user: str) -> None:
    for job in await call.service.store.read(jobs.of_user, user):
        if job.state < State.STOPPING:
            try:
                await call.service.loop.stop(job.id, f"User {user} was removed")
            except WrongState:
                continue  # it ended by itself meanwhile


async def join(call: Call) -> None:
    """Put a user into a group."""
    await _set_member(call, True)


async def leave(call: Call) -> None:
    """Take a user out of a group."""
    await _set_member(call, False)


async def _set_member(call: Call, on: bool) -> None:
    access.administer(call.person)
    await call.service.store.write(users.set_member, call.user, call.path["group"], on)
    await call.service.access_changed()
