"""The audit trail: who went inside which job, when, and for what. Only ever added to, and thrown away by age."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from snakepit.store.rows import AuditRow
from snakepit.store.schema import audit

LARGEST = 2**63 - 1


def insert(
    c: Connection, at: datetime, user: str, kind: str, job: int, worker: int, node: str, detail: str, address: str
) -> None:
    values = {"at": at, "user": user, "kind": kind, "job": job, "worker": worker, "node": node}
    c.execute(_INSERT, values | {"detail": detail, "address": address})


def listing(
    c: Connection, user: str | None = None, job: int | None = None, before: int = LARGEST, limit: int = 100
) -> list[AuditRow]:
    """The newest first; `before` is the number of an entry, for the page after it."""
    wanted = [audit.c.id < before]
    if user is not None:
        wanted.append(audit.c.user == user)
    if job is not None:
        wanted.append(audit.c.job == job)
    rows = c.execute(select(audit).where(*wanted).order_by(audit.c.id.desc()).limit(limit))
    return [AuditRow(*row) for row in rows]


def delete_before(c: Connection, when: datetime) -> int:
    """How many there were."""
    return c.execute(audit.delete().where(audit.c.at < when)).rowcount


_INSERT = audit.insert()
