"""The tables. Job → task → attempt → process → grant; the people and machines around them.

What tells of the past names users and nodes without a foreign key: it survives them. `HEAD` is the newest migration.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    text,
)

from snakepit.core.job import Cause, Outcome, State, Until
from snakepit.store.columns import ID, Chosen, Json, JsonTuple, Moment, Numbered, Share, Words

HEAD = "0004"

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

meta = Table("meta", metadata, Column("key", Words, primary_key=True), Column("value", Words, nullable=False))

counters = Table(
    "counters", metadata, Column("name", Words, primary_key=True), Column("value", BigInteger, nullable=False)
)

groups = Table("groups", metadata, Column("id", Words, primary_key=True), Column("title", Words, nullable=False))

users = Table(
    "users",
    metadata,
    Column("id", Words, primary_key=True),
    Column("fullname", Words, nullable=False),
    Column("email", Words, nullable=False),
    Column("password_hash", LargeBinary, nullable=False),
    Column("admin", Boolean, nullable=False),
)


def _links(name: str, table: str, column: str) -> Table:
    """Pairs of something and a group; they go when either goes."""
    return Table(
        name,
        metadata,
        Column(column, ForeignKey(f"{table}.id", ondelete="CASCADE"), primary_key=True),
        Column("group", ForeignKey("groups.id", ondelete="CASCADE"), primary_key=True, index=True),
    )


user_groups = _links("user_groups", "users", "user")
autoshares = _links("autoshares", "users", "user")

tokens = Table(
    "tokens",
    metadata,
    Column("id", ID, primary_key=True),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("user", ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", Words, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("used_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("dies_at", Moment, nullable=False),
    sqlite_autoincrement=True,
)

aliases = Table("aliases", metadata, Column("id", Words, primary_key=True), Column("name", Words, nullable=False))

nodes = Table(
    "nodes",
    metadata,
    Column("id", Words, primary_key=True),
    Column("endpoint", Words, nullable=False),
    Column("properties", Json, nullable=False),
    Column("online", Boolean, nullable=False),
    Column("since", Moment, nullable=False),
    Column("drained", Boolean, nullable=False),
    Column("drain_reason", Words, nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("mem_bytes", BigInteger, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("isolation", Words, nullable=False),
    Column("isolation_problem", Words, nullable=False),
    Column("limits", JsonTuple, nullable=False),
    Column("hostname", Words, nullable=False),
    Column("boot_id", Words, nullable=False),
    Column("state_id", Words, nullable=False),
)

resources = Table(
    "resources",
    metadata,
    Column("node", ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("name", Words, nullable=False),
    Column("kind", Words, nullable=False),
    Column("uuid", Words, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("declared", Boolean, nullable=False),
)

resource_groups = Table(
    "resource_groups",
    metadata,
    Column("node", Words, primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("group", ForeignKey("groups.id", ondelete="CASCADE"), primary_key=True, index=True),
    ForeignKeyConstraint(["node", "index"], ["resources.node", "resources.index"], ondelete="CASCADE"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", ID, primary_key=True),
    Column("user", Words, nullable=False),
    Column("description", Words, nullable=False),
    Column("request", Words, nullable=False),
    Column("source", Words, nullable=False),
    Column("provisioning", Words, nullable=False),
    Column("origin_shown", Words, nullable=False),
    Column("hash", Words, nullable=False),
    Column("diff_loc", Integer, nullable=False),
    Column("private", Boolean, nullable=False),
    Column("continues", BigInteger),
    Column("until", Chosen(Until), nullable=False),
    Column("on_node_loss", Words, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("environment", Json, nullable=False),
    Column("time_limit_s", BigInteger, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("state", Numbered(State), nullable=False),
    Column("since", Moment, nullable=False, index=True),
    Column("created_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("outcome", Chosen(Outcome)),
    Column("reason", Words, nullable=False),
    Column("allocation", Words, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("util_comp", Float, nullable=False),
    Column("util_mem", Float, nullable=False),
    Column("src_until", Moment),
    Column("snapshot", Words, nullable=False, server_default=""),
    Column("idempotency_key", Words),
    Column("body_hash", LargeBinary),
    # By state for the status and for retention; by user (first column of the unique one) for has_jobs.
    Index("ix_jobs_state_since", "state", "since"),
    Index("uq_jobs_user_idempotency_key", "user", "idempotency_key", unique=True),
    sqlite_autoincrement=True,
)
Index(
    "ix_jobs_src_until",
    jobs.c.src_until,
    sqlite_where=text("src_until IS NOT NULL"),
    postgresql_where=text("src_until IS NOT NULL"),
)


def _key(*names: str) -> list[Column[int]]:
    types = {"job": BigInteger}
    return [Column(name, types.get(name, Integer), primary_key=True, autoincrement=False) for name in names]


def _child_of(table: str, *columns: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(list(columns), [f"{table}.{column}" for column in columns], ondelete="CASCADE")


job_inputs = Table(
    "job_inputs",
    metadata,
    Column("job", ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    # Bytes, because a script is kept exactly as it was sent, whatever characters it has.
    Column("script", LargeBinary, nullable=False),
    Column("origin", Words, nullable=False),
    Column("hash", Words, nullable=False),
    Column("diff", LargeBinary, nullable=False),
    Column("archive", Words, nullable=False),
)

job_groups = _links("job_groups", "jobs", "job")
# Those of them whose members may go inside the running job.
job_exec_groups = _links("job_exec_groups", "jobs", "job")

state_changes = Table(
    "state_changes",
    metadata,
    Column("id", ID, primary_key=True),
    Column("job", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("state", Numbered(State), nullable=False),
    Column("since", Moment, nullable=False),
    Column("reason", Words, nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    Column("job", ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("task", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("outcome", Chosen(Outcome)),
    Column("ended_at", Moment),
)

attempts = Table(
    "attempts",
    metadata,
    *_key("job", "task", "attempt"),
    Column("started_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("outcome", Chosen(Outcome)),
    Column("reason", Words, nullable=False),
    _child_of("tasks", "job", "task"),
)
Index(
    "ix_attempts_live",
    attempts.c.job,
    sqlite_where=text("ended_at IS NULL"),
    postgresql_where=text("ended_at IS NULL"),
)

processes = Table(
    "processes",
    metadata,
    *_key("job", "task", "attempt", "process"),
    Column("group_index", Integer, nullable=False),
    Column("process_index", Integer, nullable=False),
    Column("node", Words, nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("mem_bytes", BigInteger, nullable=False),
    Column("whole_node", Boolean, nullable=False),
    Column("phase", Words, nullable=False),
    Column("code", Integer),
    Column("cause", Chosen(Cause)),
    Column("note", Words, nullable=False),
    Column("result", Words, nullable=False),
    Column("ended_at", Moment),
    Column("log_bytes", BigInteger, nullable=False),
    Column("address", Words, nullable=False),
    Column("ports", JsonTuple, nullable=False),
    _child_of("attempts", "job", "task", "attempt"),
)

grants = Table(
    "grants",
    metadata,
    *_key("job", "task", "attempt", "process", "index"),
    Column("share", Share, nullable=False),
    Column("mem_bytes", BigInteger, nullable=False),
    # Sums over `samples` looks at the card, each 0..1.
    Column("compute_sum", Float, nullable=False),
    Column("memory_sum", Float, nullable=False),
    Column("samples", BigInteger, nullable=False),
    _child_of("processes", "job", "task", "attempt", "process"),
)

# Who went inside which job, when, for what. It names people and jobs without keys: it survives both.
audit = Table(
    "audit",
    metadata,
    Column("id", ID, primary_key=True),
    Column("at", Moment, nullable=False, index=True),
    Column("user", Words, nullable=False),
    Column("kind", Words, nullable=False),
    Column("job", BigInteger, nullable=False, index=True),
    Column("worker", Integer, nullable=False),
    Column("node", Words, nullable=False),
    Column("detail", Words, nullable=False),
    Column("address", Words, nullable=False),
    sqlite_autoincrement=True,
)
