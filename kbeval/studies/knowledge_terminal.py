"""What the knowledge base's commands print: tables for a reader, and the same facts as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kbeval.service import DegradedField, Upload
from kbeval.store.documents import StoredDocument
from kbeval.store.domains import StoredDomain
from kbeval.store.reports import RepeatedDocument

Counts = Mapping[str | None, int]


def upload_facts(
    upload: Upload, lacking: Sequence[DegradedField], *, document_count: int
) -> dict[str, Any]:
    """What an upload, a deletion or a regeneration did, and what is degraded now."""
    return {
        "stored": [entry.document.path for entry in upload.stored],
        "unchanged": list(upload.unchanged),
        "deleted": list(upload.deleted),
        "failed": upload.failed_count,
        "domains": sorted(upload.domains),
        "degraded": [asdict(one) for one in lacking],
        "documents": document_count,
    }


def upload_text(upload: Upload, lacking: Sequence[DegradedField], *, document_count: int) -> str:
    """The same for a reader."""
    lines = [f"{upload.summary()}; {document_count} documents in all"]
    if lacking:
        reasons = list(dict.fromkeys(one.reason for one in lacking))
        more = f", and {len(reasons) - 1} other reasons" if len(reasons) > 1 else ""
        lines.append(
            f"{len(lacking)} degraded fields ({reasons[0]}{more}); "
            "`kbeval docs ls --degraded` lists them"
        )
    return "\n".join(lines)


def listing_facts(
    documents: Sequence[StoredDocument],
    domains: Sequence[StoredDomain],
    lacking: Sequence[DegradedField],
) -> dict[str, Any]:
    """What is stored, without bodies."""
    names = ("file_path", "title", "category", "content_hash")
    texts = ("domain_id", "description", "when_to_retrieve", "document_count")
    return {
        "documents": [{name: getattr(row, name) for name in names} for row in documents],
        "domains": [{name: getattr(row, name) for name in texts} for row in domains],
        "degraded": [asdict(one) for one in lacking],
    }


def print_listing(
    documents: Sequence[StoredDocument],
    domains: Sequence[StoredDomain],
    lacking: Sequence[DegradedField],
) -> None:
    """The same for a reader; what is degraded is marked."""
    marked = {(one.kind, one.name) for one in lacking}
    rows = [
        (row.file_path, row.title, row.category, _mark(("document", row.file_path) in marked))
        for row in documents
    ]
    _table(f"{len(rows)} documents", ["path", "title", "domain", ""], rows)
    texts = [
        (
            row.domain_id,
            row.document_count,
            row.when_to_retrieve,
            _mark(("domain", row.domain_id) in marked),
        )
        for row in domains
    ]
    _table(f"{len(texts)} domains", ["domain", "documents", "when to retrieve", ""], texts)


def print_degraded(lacking: Sequence[DegradedField]) -> None:
    """Each degraded field with its reason."""
    rows = [(one.kind, one.name, one.field, one.reason) for one in lacking]
    _table(f"{len(rows)} degraded fields", ["what", "name", "field", "reason"], rows)


def invocation_facts(
    grades: Counts, reasons: Counts, repeated: Sequence[RepeatedDocument]
) -> dict[str, Any]:
    """What the recorded look-ups say; the key `null` counts those without a value."""
    return {
        "look_ups": sum(grades.values()),
        "relevance_level": {name or "null": count for name, count in grades.items()},
        "dedup_reason": {name or "null": count for name, count in reasons.items()},
        "repeated": [asdict(one) for one in repeated],
    }


def print_invocations(
    grades: Counts, reasons: Counts, repeated: Sequence[RepeatedDocument]
) -> None:
    """The same for a reader."""
    total = sum(grades.values())
    for title, counts in (("relevance level", grades), ("dedup reason", reasons)):
        rows = [(name or "-", count, f"{count / total:.1%}") for name, count in counts.items()]
        _table(f"{total} look-ups by {title}", [title, "look-ups", "share"], rows)
    _table(
        "documents kept back most often",
        ["document", "kept back", "handed out", "sessions"],
        [
            (one.file_path, one.withheld_count, one.handed_count, one.session_count)
            for one in repeated
        ],
    )


def _mark(degraded: bool) -> str:
    return "degraded" if degraded else ""


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    Console().print(table)
