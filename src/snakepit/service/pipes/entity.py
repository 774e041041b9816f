"""What a pipe may be about: home, user:x, group:x, shared, job:n. Names in, a directory and its right out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from snakepit.core import access
from snakepit.core.access import JobRights, Person
from snakepit.errors import BadRequest, NotFound
from snakepit.service.beneath import make_directory
from snakepit.store import groups, jobs, users
from snakepit.store.database import Store
from snakepit.wire.names import may_be_job, problem_with


@dataclass(frozen=True, slots=True)
class Place:
    """A directory on the head; what is not writable is bound read-only, and the kernel keeps it so."""

    directory: Path
    writable: bool


async def resolve(store: Store, root: Path, person: Person, entity: str) -> Place:
    """Where an entity lies, for somebody who may go there; errors with words otherwise."""
    kind, _, id = entity.partition(":")
    if kind.isascii() and kind.isdigit() and not id:
        kind, id = "job", kind
    match kind:
        case "home" if entity == "home":
            return await _user(store, root, person, person.id)
        case "user":
            return await _user(store, root, person, _checked(kind, id))
        case "group":
            return await _group(store, root, person, _checked(kind, id))
        case "shared" if entity == "shared":
            return await _there(root / "shared", "The shared directory")
        case "job":
            return await _job(store, root, person, _checked(kind, id))
    raise BadRequest(
        f"No such entity {entity[:60]!r}: there are home, user:<name>, group:<name>, shared and job:<number>"
    )


def _checked(kind: str, id: str) -> str:
    if problem := problem_with(kind, id):
        raise BadRequest(problem)
    return id


async def _user(store: Store, root: Path, person: Person, user: str) -> Place:
    access.see_user(person, user)
    await store.read(users.get, user)
    directory = root / "home" / user
    await asyncio.to_thread(make_directory, directory)
    return Place(directory, True)


async def _group(store: Store, root: Path, person: Person, group: str) -> Place:
    access.use_group_data(person, group)
    await store.read(groups.get, group)
    directory = root / "groups" / group
    await asyncio.to_thread(make_directory, directory)
    return Place(directory, True)


async def _job(store: Store, root: Path, person: Person, id: str) -> Place:
    if not may_be_job(id):
        raise NotFound("Job not found")
    row = await store.read(jobs.get, int(id))
    access.read_job(person, JobRights(row.user, row.groups))
    return await _there(root / "pits" / str(row.id), f"The directory of job {row.id}")


async def _there(directory: Path, words: str) -> Place:
    if not await asyncio.to_thread(directory.is_dir):
        raise NotFound(f"{words} does not exist (yet, or no longer)")
    return Place(directory, False)
