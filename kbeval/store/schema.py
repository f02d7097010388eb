"""The three tables as the specs name them, at the newest version (V010).

The one module of the package that imports SQLAlchemy at its top; others import it inside the
function that needs a table. How a database gets here is in `migrations`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    TIMESTAMP,
    BigInteger,
    Column,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.types import TypeEngine

from kbeval.store.times import utc_text


class UtcTime(TypeDecorator[Any]):
    """Takes an aware time; PostgreSQL keeps a timestamptz, SQLite ISO text in UTC.

    What comes back is what the database holds, text or time: `times.utc` reads both.
    """

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column's type in this database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(TIMESTAMP(timezone=True))
        return dialect.type_descriptor(String(32))

    def process_bind_param(self, value: object, dialect: Dialect) -> object:
        """The value as this database takes it."""
        if isinstance(value, datetime) and dialect.name != "postgresql":
            return utc_text(value)
        return value


Id = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER counts up by itself there
Json = JSON(none_as_null=True)
metadata = MetaData()

api_document = Table(
    "api_document",
    metadata,
    Column("id", Id, primary_key=True),
    Column("file_path", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("metadata", Json),
    Column("content_hash", String(64)),
    Index("ux_api_document_file_path", "file_path", unique=True),
    Index("ix_api_document_category", "category"),
)

tool_invocation = Table(
    "tool_invocation",
    metadata,
    Column("id", Id, primary_key=True),
    Column("session_id", Text),
    Column("tool_name", Text, nullable=False),
    Column("query", Text),
    Column("created_at", UtcTime, nullable=False),  # when the row was written
    Column("retrieval_details", Json),
    Column("started_at", UtcTime),  # when the look-up began
    Column("duration_ms", Float),
    Column("relevance_level", String(20)),
    Column("dedup_reason", String(32)),
    Index("ix_tool_invocation_session", "session_id", "started_at"),
)

knowledge_domain = Table(
    "knowledge_domain",
    metadata,
    Column("domain_id", Text, primary_key=True),
    Column("description", Text, nullable=False),
    Column("when_to_retrieve", Text, nullable=False),
    Column("document_count", Integer, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
)
