"""`tool_invocation`: one row for each look-up (FS-6), written singly or in batches, and read.

The look-ups of a running tool go through a `Recorder`, which never fails them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from kbeval.errors import DatabaseError
from kbeval.records import Invocation
from kbeval.store.database import reading, writing
from kbeval.store.plain import clean_text, plain, read_json
from kbeval.store.rows import instant
from kbeval.store.times import utc

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from kbeval.store.recorder import Recorder

log = logging.getLogger(__name__)

BATCH = 1_000  # rows a transaction; other writers get their turn in between


@dataclass(frozen=True, slots=True)
class StoredInvocation:
    """One row of `tool_invocation`; the times are aware, in UTC.

    `started_at` is when the row was written where the history kept no start. `relevance_level`
    is None in history from before V010, and where everything that matched was given before.
    """

    id: int
    session_id: str | None
    tool_name: str
    query: str | None
    started_at: datetime
    created_at: datetime | None
    duration_ms: float | None
    relevance_level: str | None
    dedup_reason: str | None
    retrieval_details: Mapping[str, Any]

    @property
    def returned_paths(self) -> tuple[str, ...]:
        """The documents that were handed out, the primary first."""
        handed = self.retrieval_details.get("handed_out") or ()
        return tuple(document["file_path"] for document in handed)


def save_invocation(target: Engine | Connection | Recorder, invocation: Invocation) -> int | None:
    """Write one look-up, durable when this returns; its id, None from a `Recorder`.

    The claim is not stored. What JSON or the database cannot keep is replaced and noted under
    `notes` in `retrieval_details`. Raises `DatabaseError`, which a `Recorder` counts instead.
    """
    from kbeval.store.recorder import Recorder
    from kbeval.store.schema import tool_invocation

    if isinstance(target, Recorder):
        target.save(invocation)
        return None
    row = invocation_row(invocation)
    with writing(target) as connection:
        result = connection.execute(tool_invocation.insert().values(**row))
        return int(result.inserted_primary_key[0]) if result.inserted_primary_key else None


def save_invocations(
    bind: Engine | Connection, invocations: Iterable[Invocation], *, batch: int = BATCH
) -> int:
    """Write many look-ups, `batch` to a transaction; how many.

    When it fails, the batches before are kept. Raises `DatabaseError`, which says how many.
    """
    from kbeval.store.schema import tool_invocation

    source = iter(invocations)
    saved_count = 0
    while rows := [invocation_row(invocation) for invocation in islice(source, batch)]:
        try:
            with writing(bind) as connection:
                connection.execute(tool_invocation.insert(), rows)
        except DatabaseError as error:
            raise DatabaseError(f"{error}; {saved_count} look-ups were saved before") from error
        saved_count += len(rows)
    return saved_count


def read_invocations(
    bind: Engine | Connection, *, session_id: str | None = None, tool_name: str | None = None
) -> tuple[StoredInvocation, ...]:
    """The look-ups in the order of their instants, then ids; all, or those of one session or tool.

    A time without a zone is taken as UTC, with a warning. Raises `DatabaseError`.
    """
    from sqlalchemy import select

    from kbeval.store.schema import tool_invocation

    columns = tool_invocation.c
    names = StoredInvocation.__dataclass_fields__
    statement = select(*(columns[name] for name in names)).order_by(columns.id)
    if session_id is not None:
        statement = statement.where(columns.session_id == session_id)
    if tool_name is not None:
        statement = statement.where(columns.tool_name == tool_name)
    with reading(bind) as connection:
        found = [_invocation(dict(row)) for row in connection.execute(statement).mappings()]
    return tuple(sorted(found, key=lambda row: (row.started_at, row.id)))


def invocation_row(invocation: Invocation) -> dict[str, Any]:
    """The row as the table takes it. Raises `DatabaseError` for a time that is none."""
    details, notes = plain(invocation.retrieval_details)
    measured, its_notes = plain({"duration_ms": invocation.duration_ms})
    notes += its_notes
    row = {
        "session_id": _clean(invocation.session_id, "session_id", notes),
        "tool_name": _clean(invocation.tool_name, "tool_name", notes),
        "query": _clean(invocation.query, "query", notes),
        "started_at": _started(invocation.started_at, notes),
        "created_at": datetime.now(UTC),
        "duration_ms": measured["duration_ms"],
        "relevance_level": invocation.relevance_level,
        "dedup_reason": invocation.dedup_reason,
    }
    if notes:
        details["notes"] = [*details.get("notes", ()), *notes]
    return row | {"retrieval_details": details}


def _clean(text: str | None, name: str, notes: list[str]) -> str | None:
    return None if text is None else clean_text(text, name, notes)


def _started(value: str | datetime, notes: list[str]) -> datetime:
    try:
        time, naive = utc(value)
    except (ValueError, AttributeError) as error:
        raise DatabaseError(
            f"started_at: {value!r} is no ISO 8601 time, such as 2024-01-01T05:30:00Z"
        ) from error
    if naive:
        log.warning("started_at: the time %s has no zone, taken as UTC", value)
        notes.append("started_at had no zone, taken as UTC")
    return time


def _invocation(row: dict[str, Any]) -> StoredInvocation:
    where = f"tool_invocation {row['id']}"
    details = row["retrieval_details"]
    details = read_json(details) if isinstance(details, str) else details
    row["retrieval_details"] = details if isinstance(details, dict) else {}
    row["created_at"] = instant(row["created_at"], where)
    started = instant(row["started_at"], where) or row["created_at"]
    if started is None:
        raise DatabaseError(f"{where}: neither started_at nor created_at is set")
    return StoredInvocation(**row | {"started_at": started})
