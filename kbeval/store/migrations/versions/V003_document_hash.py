"""V003: which version of its content a document has."""

import sqlalchemy as sa

from kbeval.store.migrations import steps

revision = "V003"
down_revision = "V002"


def upgrade() -> None:
    """Make what is missing."""
    steps.add_column("api_document", sa.Column("content_hash", sa.String(64)))


def downgrade() -> None:
    """Take it back."""
    steps.drop_column("api_document", "content_hash")
