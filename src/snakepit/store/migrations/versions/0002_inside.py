"""Going inside jobs: groups that may, and who did."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "job_exec_groups",
        sa.Column("job", ID, nullable=False),
        sa.Column("group", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["group"], ["groups.id"], name="fk_job_exec_groups_group", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_job_exec_groups_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "group", name="pk_job_exec_groups"),
    )
    op.create_index("ix_job_exec_groups_group", "job_exec_groups", ["group"])
    op.create_table(
        "audit",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("worker", sa.Integer(), nullable=False),
        sa.Column("node", TEXT, nullable=False),
        sa.Column("detail", TEXT, nullable=False),
        sa.Column("address", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_job", "audit", ["job"])
