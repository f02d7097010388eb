"""V008: the look-ups of a session in their order."""

from kbeval.store.migrations import steps

revision = "V008"
down_revision = "V007"


def upgrade() -> None:
    """Make what is missing."""
    steps.add_index("ix_tool_invocation_session", "tool_invocation", "session_id", "started_at")


def downgrade() -> None:
    """Take it back."""
    steps.drop_index("ix_tool_invocation_session", "tool_invocation")
