"""A waiting job's place is its priority and its number: no rank is kept."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("jobs", "rank")
