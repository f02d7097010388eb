"""V001: documents."""

import sqlalchemy as sa

from kbeval.store.migrations import steps
from kbeval.store.schema import Id, UtcTime

revision = "V001"
down_revision = None


def upgrade() -> None:
    """Make what is missing."""
    steps.make_table(
        "api_document",
        sa.Column("id", Id, primary_key=True),
        sa.Column("file_path", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
    )
    steps.add_index("ux_api_document_file_path", "api_document", "file_path", unique=True)


def downgrade() -> None:
    """Take it back."""
    steps.drop_table("api_document")
