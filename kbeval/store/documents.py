"""`api_document`: one row for each document that was uploaded (REQ-02).

The functions take an engine, or a connection whose transaction they join: an upload is then
all or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbeval.store.database import reading, writing
from kbeval.store.plain import clean_text, plain, read_json
from kbeval.store.rows import instant, key, upsert

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """One row of `api_document`; the times are aware, in UTC."""

    file_path: str
    title: str
    category: str
    metadata: Mapping[str, Any]
    content_hash: str | None
    created_at: datetime | None
    updated_at: datetime | None


def upsert_document(
    bind: Engine | Connection,
    file_path: str,
    *,
    title: str,
    category: str,
    metadata: Mapping[str, Any],
    content_hash: str,
) -> None:
    """Write the document's row; one that was there keeps its `created_at`.

    What JSON cannot keep is noted under `notes` in the metadata. Raises `DatabaseError`.
    """
    from kbeval.store.schema import api_document

    now = datetime.now(UTC)
    kept, notes = plain(metadata)
    row = {
        "title": clean_text(title, "title", notes),
        "category": clean_text(category, "category", notes),
        "metadata": kept | ({"notes": notes} if notes else {}),
        "content_hash": content_hash,
        "updated_at": now,
    }
    path = key(file_path, "file_path")
    with writing(bind) as connection:
        upsert(connection, api_document, {"file_path": path}, changed=row, new={"created_at": now})


def delete_document(bind: Engine | Connection, file_path: str) -> bool:
    """Delete the document's row; False if there was none."""
    from kbeval.store.schema import api_document

    statement = api_document.delete().where(api_document.c.file_path == file_path)
    with writing(bind) as connection:
        return bool(connection.execute(statement).rowcount)


def get_document(bind: Engine | Connection, file_path: str) -> StoredDocument | None:
    """The document's row, None if there is none."""
    found = _select(bind, file_path=file_path)
    return found[0] if found else None


def list_documents(
    bind: Engine | Connection, *, category: str | None = None
) -> tuple[StoredDocument, ...]:
    """All documents, or those of one category, by path."""
    return _select(bind) if category is None else _select(bind, category=category)


def holds_documents(bind: Engine | Connection) -> bool:
    """Whether there is a document; a database of others may not even have the table."""
    from sqlalchemy import inspect, select

    from kbeval.store.schema import api_document

    with reading(bind) as connection:
        if not inspect(connection).has_table(api_document.name):
            return False
        return connection.execute(select(api_document.c.id).limit(1)).first() is not None


def _select(bind: Engine | Connection, **equal: str) -> tuple[StoredDocument, ...]:
    from sqlalchemy import select

    from kbeval.store.schema import api_document

    names = StoredDocument.__dataclass_fields__
    statement = select(*(api_document.c[name] for name in names))
    for column, value in equal.items():
        statement = statement.where(api_document.c[column] == value)
    with reading(bind) as connection:
        rows = [dict(row) for row in connection.execute(statement).mappings()]
    return tuple(_document(row) for row in sorted(rows, key=lambda row: str(row["file_path"])))


def _document(row: dict[str, Any]) -> StoredDocument:
    where = f"api_document {row['file_path']!r}"
    kept = row["metadata"]
    row["metadata"] = (read_json(kept) if isinstance(kept, str) else kept) or {}
    for column in ("created_at", "updated_at"):
        row[column] = instant(row[column], where)
    return StoredDocument(**row)
