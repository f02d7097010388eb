"""V010: the verdict and what the session memory did to it (FS-6)."""

import sqlalchemy as sa

from kbeval.store.migrations import steps

revision = "V010"
down_revision = "V009"


def upgrade() -> None:
    """Make what is missing."""
    steps.add_column("tool_invocation", sa.Column("relevance_level", sa.String(20)))
    steps.add_column("tool_invocation", sa.Column("dedup_reason", sa.String(32)))
    steps.set_foreign_version(9, 10)


def downgrade() -> None:
    """Take it back."""
    steps.drop_column("tool_invocation", "dedup_reason")
    steps.drop_column("tool_invocation", "relevance_level")
    steps.set_foreign_version(10, 9)
