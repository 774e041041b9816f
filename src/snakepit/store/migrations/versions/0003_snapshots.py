"""Jobs that run a snapshot of their user's checkout."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("snapshot", TEXT, nullable=False, server_default=""))
