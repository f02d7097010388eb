"""V009: domains and when to look into them (REQ-03)."""

import sqlalchemy as sa

from kbeval.store.migrations import steps
from kbeval.store.schema import UtcTime

revision = "V009"
down_revision = "V008"


def upgrade() -> None:
    """Make what is missing."""
    steps.make_table(
        "knowledge_domain",
        sa.Column("domain_id", sa.Text, primary_key=True),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("when_to_retrieve", sa.Text, nullable=False),
        sa.Column("document_count", sa.Integer, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
    )


def downgrade() -> None:
    """Take it back."""
    steps.drop_table("knowledge_domain")
