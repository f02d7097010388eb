"""Alembic's door: the connection and its transaction are given, the steps run inside."""

from alembic import context

if hasattr(context, "config"):  # only while Alembic runs it, not when it is merely imported
    context.configure(connection=context.config.attributes["connection"])
    context.run_migrations()
