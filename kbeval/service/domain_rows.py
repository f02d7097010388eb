"""The rows of `knowledge_domain`: which of them are due, how they are written, and why not.

A row's `updated_at` is the time its text was written. A text that is older than a document of
its domain is therefore due, whatever ended the program in between; a failed generation leaves
both as they are, and its reason goes into a small file beside the index.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.domains.domain_text import DomainText
from kbeval.retrieval.saved import write_atomically
from kbeval.store.documents import StoredDocument
from kbeval.store.domains import StoredDomain, get_domain, recount_domain, upsert_domain

if TYPE_CHECKING:
    from kbeval.service.binds import Connection

log = logging.getLogger(__name__)

REASONS_FILE = "domains.json"
STALE = "the text is older than a document of the domain"
EMPTY = "no text"


def write_domain(connection: Connection, domain: str, text: DomainText) -> None:
    """Write a domain's row into this transaction and recount it.

    A degraded text makes the row if there is none, and else leaves it alone (REQ-03.4).
    """
    if not text.degraded or get_domain(connection, domain) is None:
        upsert_domain(
            connection,
            domain,
            description=text.description,
            when_to_retrieve=text.when_to_retrieve,
        )
    recount_domain(connection, domain)


def due_domains(
    documents: Collection[StoredDocument], domains: Collection[StoredDomain]
) -> dict[str, str]:
    """The domains whose text is missing or older than a document of theirs, with the reason."""
    texts = {row.domain_id: row for row in domains}
    due: dict[str, str] = {}
    for document in documents:
        row = texts.get(document.category)
        if row is None:
            due[document.category] = "no row"
        elif not row.when_to_retrieve.strip():
            due[document.category] = EMPTY
        elif row.updated_at and document.updated_at and row.updated_at < document.updated_at:
            due.setdefault(document.category, STALE)
    return dict(sorted(due.items()))


def miscounted(
    documents: Collection[StoredDocument], domains: Collection[StoredDomain]
) -> tuple[str, ...]:
    """The domains whose `document_count` is not the number of their documents."""
    counts = dict.fromkeys((row.domain_id for row in domains), 0)
    for document in documents:
        if document.category in counts:
            counts[document.category] += 1
    return tuple(row.domain_id for row in domains if row.document_count != counts[row.domain_id])


def read_reasons(folder: Path) -> dict[str, str]:
    """Why the texts of domains are not new; a file that is damaged tells nothing."""
    try:
        found = json.loads((folder / REASONS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s: cannot be read (%s)", folder / REASONS_FILE, error)
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def note_reasons(folder: Path, texts: Mapping[str, DomainText]) -> None:
    """Remember why these texts are not new, and forget the reasons of those that are."""
    former = read_reasons(folder)
    reasons = {name: reason for name, reason in former.items() if name not in texts}
    reasons |= {name: text.degraded for name, text in texts.items() if text.degraded}
    if reasons == former:
        return
    content = json.dumps(dict(sorted(reasons.items())), ensure_ascii=False, indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / REASONS_FILE, content.encode("utf-8", "replace"))
    except OSError as error:  # the reason is in the log, and the row shows that the text is due
        log.warning("%s: cannot be written (%s)", folder / REASONS_FILE, error.strerror)
