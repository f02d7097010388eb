"""V005: what the agent looked up."""

import sqlalchemy as sa

from kbeval.store.migrations import steps
from kbeval.store.schema import Id, UtcTime

revision = "V005"
down_revision = "V004"


def upgrade() -> None:
    """Make what is missing."""
    steps.make_table(
        "tool_invocation",
        sa.Column("id", Id, primary_key=True),
        sa.Column("session_id", sa.Text),
        sa.Column("tool_name", sa.Text, nullable=False),
        sa.Column("query", sa.Text),
        sa.Column("created_at", UtcTime, nullable=False),
    )


def downgrade() -> None:
    """Take it back."""
    steps.drop_table("tool_invocation")
