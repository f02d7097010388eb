"""V006: what a look-up found."""

import sqlalchemy as sa

from kbeval.store.migrations import steps
from kbeval.store.schema import Json

revision = "V006"
down_revision = "V005"


def upgrade() -> None:
    """Make what is missing."""
    steps.add_column("tool_invocation", sa.Column("retrieval_details", Json))


def downgrade() -> None:
    """Take it back."""
    steps.drop_column("tool_invocation", "retrieval_details")
