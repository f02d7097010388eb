"""V002: the fields of a document's front matter."""

import sqlalchemy as sa

from kbeval.store.migrations import steps
from kbeval.store.schema import Json

revision = "V002"
down_revision = "V001"


def upgrade() -> None:
    """Make what is missing."""
    steps.add_column("api_document", sa.Column("metadata", Json))


def downgrade() -> None:
    """Take it back."""
    steps.drop_column("api_document", "metadata")
