"""Who may do what: the one place where it is decided, asked by every door.

A refusal is an exception with words. Rights on data inside a job are not here: mounts keep them (`domains`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from snakepit.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who signed in."""

    id: str
    admin: bool = False
    groups: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class JobRights:
    """What matters of a job for rights: its owner, the groups it is shared with, and those that may go inside."""

    owner: str
    groups: Collection[str] = ()
    exec_groups: Collection[str] = ()


def administer(person: Person) -> None:
    """Nodes, aliases, groups, other users' admin flag and memberships."""
    if not person.admin:
        raise Forbidden("Only administrators may do this")


def see_user(person: Person, user: str) -> None:
    if not (person.admin or person.id == user):
        raise Forbidden("Users may only see and change their own account")


def change_user(person: Person, user: str, makes_admin: bool = False) -> None:
    see_user(person, user)
    if makes_admin and not person.admin:
        raise Forbidden("Only administrators may make somebody an administrator")


def use_group_data(person: Person, group: str) -> None:
    if not (person.admin or group in person.groups):
        raise Forbidden(f'Only members of group "{group}" and administrators may do this')


def may_read_job(person: Person, job: JobRights) -> bool:
    """Log, details, files: owner, admins, members of a group the job is shared with."""
    return person.admin or person.id == job.owner or any(group in person.groups for group in job.groups)


def read_job(person: Person, job: JobRights) -> None:
    if not may_read_job(person, job):
        raise Forbidden(f'This job belongs to "{job.owner}" and is not shared with you')


def stop_job(person: Person, job: JobRights) -> None:
    """Whoever may read a job may stop it, as in the original: a colleague ends a job that ran away."""
    read_job(person, job)


def enter_job(person: Person, job: JobRights) -> None:
    """Commands and connections inside reach the owner's data: for owner and admins, unless he shared just that."""
    if person.admin or person.id == job.owner or any(group in person.groups for group in job.exec_groups):
        return
    raise Forbidden(f'Only its owner "{job.owner}", those he lets in (--exec) and administrators may go inside the job')


def change_job(person: Person, job: JobRights) -> None:
    """Removing, sharing: owner and admins. Sharers read."""
    if not (person.admin or person.id == job.owner):
        raise Forbidden(f'Only its owner "{job.owner}" and administrators may do this with the job')


def share_with(person: Person, group: str) -> None:
    """One shares only with groups of one's own."""
    use_group_data(person, group)


def use_resource(groups_of_user: Collection[str], groups_of_resource: Collection[str]) -> bool:
    """Restricted resources are for members; administrators are not exempt."""
    return not groups_of_resource or any(group in groups_of_user for group in groups_of_resource)
