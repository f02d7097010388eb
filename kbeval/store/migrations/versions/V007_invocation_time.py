"""V007: when a look-up began and how long it took."""

import sqlalchemy as sa

from kbeval.store.migrations import steps
from kbeval.store.schema import UtcTime

revision = "V007"
down_revision = "V006"


def upgrade() -> None:
    """Make what is missing."""
    steps.add_column("tool_invocation", sa.Column("started_at", UtcTime))
    steps.add_column("tool_invocation", sa.Column("duration_ms", sa.Float))


def downgrade() -> None:
    """Take it back."""
    steps.drop_column("tool_invocation", "duration_ms")
    steps.drop_column("tool_invocation", "started_at")
