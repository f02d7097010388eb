"""What the records say, in the specs' own queries (FS-6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbeval.store.database import reading
from kbeval.store.plain import read_json

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

LOOKUP = "lookup_knowledge"


@dataclass(frozen=True, slots=True)
class RepeatedDocument:
    """A document that look-ups met again after its session had been given it."""

    file_path: str
    withheld_count: int  # look-ups from whose answer it was kept back
    handed_count: int  # look-ups that handed it out
    session_count: int  # sessions in which it was kept back


def grade_distribution(
    bind: Engine | Connection, *, tool_name: str = LOOKUP
) -> dict[str | None, int]:
    """Look-ups by `relevance_level`, most frequent first.

    None counts history from before V010 and look-ups of which everything was given before.
    """
    return _distribution(bind, "relevance_level", tool_name)


def dedup_reasons(bind: Engine | Connection, *, tool_name: str = LOOKUP) -> dict[str | None, int]:
    """Look-ups by `dedup_reason`, most frequent first; None: the memory changed nothing."""
    return _distribution(bind, "dedup_reason", tool_name)


def top_repeated_documents(
    bind: Engine | Connection, *, limit: int = 20, tool_name: str = LOOKUP
) -> tuple[RepeatedDocument, ...]:
    """The documents that were kept back most often, then by path, at most `limit` of them."""
    withheld: Counter[str] = Counter()
    handed: Counter[str] = Counter()
    sessions: dict[str, set[str | None]] = {}
    for session_id, details in _details(bind, tool_name):
        handed.update(document["file_path"] for document in details.get("handed_out") or ())
        for path in details.get("withheld") or ():
            withheld[path] += 1
            sessions.setdefault(path, set()).add(session_id)
    order = sorted(withheld.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        RepeatedDocument(path, count, handed[path], len(sessions[path]))
        for path, count in order[:limit]
    )


def _distribution(bind: Engine | Connection, column: str, tool_name: str) -> dict[str | None, int]:
    from sqlalchemy import func, select

    from kbeval.store.schema import tool_invocation

    value = tool_invocation.c[column]
    statement = (
        select(value, func.count()).where(tool_invocation.c.tool_name == tool_name).group_by(value)
    )
    with reading(bind) as connection:
        found = [(level, int(count)) for level, count in connection.execute(statement)]
    return dict(sorted(found, key=lambda pair: (-pair[1], pair[0] or "")))


def _details(
    bind: Engine | Connection, tool_name: str
) -> Iterator[tuple[str | None, dict[str, Any]]]:
    from sqlalchemy import select

    from kbeval.store.schema import tool_invocation

    columns = tool_invocation.c
    statement = select(columns.session_id, columns.retrieval_details).where(
        columns.tool_name == tool_name
    )
    with reading(bind) as connection:
        for session_id, details in connection.execution_options(yield_per=1000).execute(statement):
            kept = read_json(details) if isinstance(details, str) else details
            if isinstance(kept, dict):
                yield session_id, kept
