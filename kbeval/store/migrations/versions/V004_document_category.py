"""V004: documents by category."""

from kbeval.store.migrations import steps

revision = "V004"
down_revision = "V003"


def upgrade() -> None:
    """Make what is missing."""
    steps.add_index("ix_api_document_category", "api_document", "category")


def downgrade() -> None:
    """Take it back."""
    steps.drop_index("ix_api_document_category", "api_document")
