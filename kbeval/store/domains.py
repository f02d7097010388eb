"""`knowledge_domain`: what the planner is told about each domain (REQ-03).

The functions take an engine, or a connection whose transaction they join.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbeval.store.database import reading, writing
from kbeval.store.plain import plain
from kbeval.store.rows import instant, key, upsert

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


@dataclass(frozen=True, slots=True)
class StoredDomain:
    """One row of `knowledge_domain`; the time is aware, in UTC."""

    domain_id: str
    description: str
    when_to_retrieve: str
    document_count: int
    updated_at: datetime | None


def upsert_domain(
    bind: Engine | Connection,
    domain_id: str,
    *,
    description: str | None = None,
    when_to_retrieve: str | None = None,
    document_count: int | None = None,
) -> None:
    """Write the domain's row. What is None stays as it stands; in a new row it is empty, or 0.

    So a failed generation keeps the last text (REQ-03.4). Raises `DatabaseError`.
    """
    from kbeval.store.schema import knowledge_domain

    given = {
        "description": description,
        "when_to_retrieve": when_to_retrieve,
        "document_count": document_count,
    }
    empty = {"description": "", "when_to_retrieve": "", "document_count": 0}
    changed, _ = plain({name: value for name, value in given.items() if value is not None})
    new = {name: value for name, value in empty.items() if name not in changed}
    row_key = {"domain_id": key(domain_id, "domain_id")}
    with writing(bind) as connection:
        changed["updated_at"] = datetime.now(UTC)
        upsert(connection, knowledge_domain, row_key, changed=changed, new=new)


def recount_domain(bind: Engine | Connection, domain_id: str) -> int:
    """Count the domain's documents in `api_document` and write the number into its row.

    The row is locked first, so that of two uploads into one domain the second counts both.
    A domain without a row is counted only.
    """
    from sqlalchemy import func, select

    from kbeval.store.schema import api_document, knowledge_domain

    domain = knowledge_domain.c.domain_id == domain_id
    documents = select(func.count()).where(api_document.c.category == domain_id)
    with writing(bind) as connection:
        connection.execute(select(knowledge_domain.c.domain_id).where(domain).with_for_update())
        count = connection.scalar(documents) or 0
        connection.execute(knowledge_domain.update().where(domain).values(document_count=count))
    return count


def get_domain(bind: Engine | Connection, domain_id: str) -> StoredDomain | None:
    """The domain's row, None if there is none."""
    return next((row for row in list_domains(bind) if row.domain_id == domain_id), None)


def list_domains(bind: Engine | Connection) -> tuple[StoredDomain, ...]:
    """All domains by id, those without a document left as well."""
    from sqlalchemy import select

    from kbeval.store.schema import knowledge_domain

    names = StoredDomain.__dataclass_fields__
    with reading(bind) as connection:
        found = connection.execute(select(*(knowledge_domain.c[name] for name in names))).mappings()
        rows = [dict(row) for row in found]
    rows.sort(key=lambda row: str(row["domain_id"]))
    return tuple(_domain(row) for row in rows)


def _domain(row: dict[str, Any]) -> StoredDomain:
    row["updated_at"] = instant(row["updated_at"], f"knowledge_domain {row['domain_id']!r}")
    return StoredDomain(**row)
