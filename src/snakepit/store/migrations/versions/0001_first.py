"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# A revision is history: it says what it did then, and never reads today's schema.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _itself()
    _people()
    _machines()
    _jobs()
    _of_jobs()
    _runs()
    _processes()


def _itself() -> None:
    op.create_table(
        "meta",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )
    op.create_table(
        "counters",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )


def _people() -> None:
    op.create_table(
        "groups",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("title", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_groups"),
    )
    op.create_table(
        "users",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("fullname", TEXT, nullable=False),
        sa.Column("email", TEXT, nullable=False),
        sa.Column("password_hash", sa.LargeBinary(), nullable=False),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
    )
    op.create_table(
        "user_groups",
        sa.Column("user", TEXT, nullable=False),
        sa.Column("group", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["group"], ["groups.id"], name="fk_user_groups_group", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name="fk_user_groups_user", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user", "group", name="pk_user_groups"),
    )
    op.create_index("ix_user_groups_group", "user_groups", ["group"], unique=False)
    op.create_table(
        "autoshares",
        sa.Column("user", TEXT, nullable=False),
        sa.Column("group", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["group"], ["groups.id"], name="fk_autoshares_group", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name="fk_autoshares_user", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user", "group", name="pk_autoshares"),
    )
    op.create_index("ix_autoshares_group", "autoshares", ["group"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", ID, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("dies_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name="fk_tokens_user", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tokens_expires_at", "tokens", ["expires_at"], unique=False)
    op.create_index("ix_tokens_user", "tokens", ["user"], unique=False)


def _machines() -> None:
    op.create_table(
        "aliases",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_aliases"),
    )
    op.create_table(
        "nodes",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("endpoint", TEXT, nullable=False),
        sa.Column("properties", TEXT, nullable=False),
        sa.Column("online", sa.Boolean(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("drain_reason", TEXT, nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("mem_bytes", sa.BigInteger(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("isolation", TEXT, nullable=False),
        sa.Column("isolation_problem", TEXT, nullable=False),
        sa.Column("limits", TEXT, nullable=False),
        sa.Column("hostname", TEXT, nullable=False),
        sa.Column("boot_id", TEXT, nullable=False),
        sa.Column("state_id", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
    )
    op.create_table(
        "resources",
        sa.Column("node", TEXT, nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("uuid", TEXT, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("declared", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["nodes.id"], name="fk_resources_node", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", "index", name="pk_resources"),
    )
    op.create_table(
        "resource_groups",
        sa.Column("node", TEXT, nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("group", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["group"], ["groups.id"], name="fk_resource_groups_group", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["node", "index"],
            ["resources.node", "resources.index"],
            name="fk_resource_groups_node_index",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("node", "index", "group", name="pk_resource_groups"),
    )
    op.create_index("ix_resource_groups_group", "resource_groups", ["group"], unique=False)


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", ID, nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("description", TEXT, nullable=False),
        sa.Column("request", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("provisioning", TEXT, nullable=False),
        sa.Column("origin_shown", TEXT, nullable=False),
        sa.Column("hash", TEXT, nullable=False),
        sa.Column("diff_loc", sa.Integer(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("continues", sa.BigInteger(), nullable=True),
        sa.Column("until", TEXT, nullable=False),
        sa.Column("on_node_loss", TEXT, nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("environment", TEXT, nullable=False),
        sa.Column("time_limit_s", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("outcome", TEXT, nullable=True),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("allocation", TEXT, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("util_comp", sa.Float(), nullable=False),
        sa.Column("util_mem", sa.Float(), nullable=False),
        sa.Column("src_until", sa.BigInteger(), nullable=True),
        sa.Column("idempotency_key", TEXT, nullable=True),
        sa.Column("body_hash", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_jobs_since", "jobs", ["since"], unique=False)
    op.create_index(
        "ix_jobs_src_until",
        "jobs",
        ["src_until"],
        unique=False,
        sqlite_where=sa.text("src_until IS NOT NULL"),
        postgresql_where=sa.text("src_until IS NOT NULL"),
    )
    op.create_index("ix_jobs_state_since", "jobs", ["state", "since"], unique=False)
    op.create_index("uq_jobs_user_idempotency_key", "jobs", ["user", "idempotency_key"], unique=True)


def _of_jobs() -> None:
    op.create_table(
        "job_inputs",
        sa.Column("job", ID, autoincrement=False, nullable=False),
        sa.Column("script", sa.LargeBinary(), nullable=False),
        sa.Column("origin", TEXT, nullable=False),
        sa.Column("hash", TEXT, nullable=False),
        sa.Column("diff", sa.LargeBinary(), nullable=False),
        sa.Column("archive", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_job_inputs_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", name="pk_job_inputs"),
    )
    op.create_table(
        "job_groups",
        sa.Column("job", ID, nullable=False),
        sa.Column("group", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["group"], ["groups.id"], name="fk_job_groups_group", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_job_groups_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "group", name="pk_job_groups"),
    )
    op.create_index("ix_job_groups_group", "job_groups", ["group"], unique=False)
    op.create_table(
        "state_changes",
        sa.Column("id", ID, nullable=False),
        sa.Column("job", ID, nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_state_changes_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_state_changes"),
    )
    op.create_index("ix_state_changes_job", "state_changes", ["job"], unique=False)


def _runs() -> None:
    op.create_table(
        "tasks",
        sa.Column("job", ID, autoincrement=False, nullable=False),
        sa.Column("task", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("outcome", TEXT, nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_tasks_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "task", name="pk_tasks"),
    )
    op.create_table(
        "attempts",
        sa.Column("job", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("task", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("outcome", TEXT, nullable=True),
        sa.Column("reason", TEXT, nullable=False),
        sa.ForeignKeyConstraint(
            ["job", "task"], ["tasks.job", "tasks.task"], name="fk_attempts_job_task", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job", "task", "attempt", name="pk_attempts"),
    )
    op.create_index(
        "ix_attempts_live",
        "attempts",
        ["job"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def _processes() -> None:
    op.create_table(
        "processes",
        sa.Column("job", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("task", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("process", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("group_index", sa.Integer(), nullable=False),
        sa.Column("process_index", sa.Integer(), nullable=False),
        sa.Column("node", TEXT, nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("mem_bytes", sa.BigInteger(), nullable=False),
        sa.Column("whole_node", sa.Boolean(), nullable=False),
        sa.Column("phase", TEXT, nullable=False),
        sa.Column("code", sa.Integer(), nullable=True),
        sa.Column("cause", TEXT, nullable=True),
        sa.Column("note", TEXT, nullable=False),
        sa.Column("result", TEXT, nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("address", TEXT, nullable=False),
        sa.Column("ports", TEXT, nullable=False),
        sa.ForeignKeyConstraint(
            ["job", "task", "attempt"],
            ["attempts.job", "attempts.task", "attempts.attempt"],
            name="fk_processes_job_task_attempt",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job", "task", "attempt", "process", name="pk_processes"),
    )
    op.create_table(
        "grants",
        sa.Column("job", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("task", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("process", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("share", TEXT, nullable=False),
        sa.Column("mem_bytes", sa.BigInteger(), nullable=False),
        sa.Column("compute_sum", sa.Float(), nullable=False),
        sa.Column("memory_sum", sa.Float(), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job", "task", "attempt", "process"],
            ["processes.job", "processes.task", "processes.attempt", "processes.process"],
            name="fk_grants_job_task_attempt_process",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job", "task", "attempt", "process", "index", name="pk_grants"),
    )
