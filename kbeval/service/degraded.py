"""What no model wrote although it was asked to, with the reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kbeval.service.domain_rows import due_domains, read_reasons
from kbeval.service.stored import entry_of
from kbeval.store.documents import StoredDocument, list_documents
from kbeval.store.domains import StoredDomain, list_domains

if TYPE_CHECKING:
    from kbeval.service.binds import Connection, Engine


@dataclass(frozen=True, slots=True)
class DegradedField:
    """A field that holds less than it should: of which document or domain, and why."""

    kind: Literal["document", "domain"]
    name: str  # a path, or a domain's id
    field: str
    reason: str


def degraded_fields(bind: Engine | Connection, folder: Path) -> tuple[DegradedField, ...]:
    """All degraded fields, documents first; `folder` is that of the index."""
    documents, domains = list_documents(bind), list_domains(bind)
    return (*document_fields(documents), *domain_fields(documents, domains, read_reasons(folder)))


def document_fields(rows: Collection[StoredDocument]) -> tuple[DegradedField, ...]:
    """The degraded fields of documents; one without a body cannot be indexed at all."""
    found: list[DegradedField] = []
    for row in rows:
        entry = entry_of(row)
        if entry is None:
            reason = "stored without its body, so not indexed; upload it again"
            found.append(DegradedField("document", row.file_path, "body", reason))
            continue
        lacking = dict.fromkeys(entry.missing, "never generated") | dict(entry.degraded or {})
        found += [DegradedField("document", row.file_path, *pair) for pair in lacking.items()]
    return tuple(found)


def domain_fields(
    documents: Collection[StoredDocument],
    domains: Collection[StoredDomain],
    reasons: Mapping[str, str],
) -> tuple[DegradedField, ...]:
    """The domains whose text is not that of their documents as they now are."""
    present = {row.category for row in documents}
    due = due_domains(documents, domains)
    noted = {name: reason for name, reason in reasons.items() if name in present}
    return tuple(
        DegradedField("domain", name, "when_to_retrieve", reason)
        for name, reason in sorted((due | noted).items())
    )
