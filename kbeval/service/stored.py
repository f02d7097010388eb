"""A document as a row of `api_document`, and back: the one place that knows its metadata.

The body lives in the metadata, not in a file: one transaction then holds everything an index is
rebuilt from, so that no kill and no second machine can part a row from its text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kbeval.corpus.identity import content_hash
from kbeval.domains.describe import DocumentFields, Written
from kbeval.records import Document
from kbeval.store.documents import StoredDocument, upsert_document
from kbeval.store.plain import clean_text, plain

if TYPE_CHECKING:
    from kbeval.service.binds import Connection

_LISTS = ("keywords", "tags", "aliases")
_KEYS = {"covers": "covers", "when_to_retrieve": "whenToRetrieve"}  # ours -> the specs'
_NAMES = {key: name for name, key in _KEYS.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored document as it is indexed, and where its two fields come from.

    `generated` are the fields a model wrote, `degraded` those it failed to write, with reasons.
    """

    document: Document
    generated: tuple[str, ...] = ()
    degraded: Mapping[str, str] | None = None

    @property
    def written(self) -> Document:
        """The document as its author wrote it, without the fields that are not the author's."""
        made = {*self.generated, *(self.degraded or ())}
        blank: dict[str, Any] = {"covers": (), "when_to_retrieve": None}
        return replace(self.document, **{name: blank[name] for name in made})

    @property
    def missing(self) -> tuple[str, ...]:
        """The fields that are neither the author's, nor generated, nor marked as degraded."""
        document = self.document
        made = {*self.generated, *(self.degraded or ())}
        fields = Written(document.covers, document.when_to_retrieve).missing
        return tuple(name for name in fields if name not in made)


def storable(document: Document) -> tuple[Document, tuple[str, ...]]:
    """The document as the database gives it back, and what had to change for that."""
    notes: list[str] = []
    title = clean_text(document.title, "title", notes)
    body = clean_text(document.body, "body", notes)
    kept, more = plain(_metadata(replace(document, title=title, body=body), (), {}))
    domain = clean_text(document.domain, "category", notes)
    row = StoredDocument(
        file_path=document.path,
        title=title,
        category=domain,
        metadata=kept,
        content_hash=content_hash(title, body),
        created_at=None,
        updated_at=None,
    )
    return _document(row), (*notes, *more)


def filled(document: Document, fields: DocumentFields) -> Entry:
    """The document with its two fields."""
    whole = replace(
        document, covers=fields.covers, when_to_retrieve=fields.when_to_retrieve.strip() or None
    )
    return Entry(storable(whole)[0], fields.generated, dict(fields.degraded))


def entry_of(row: StoredDocument) -> Entry | None:
    """The document of a row; None for a row without a body, which nothing can index."""
    if not isinstance(row.metadata.get("body"), str):
        return None
    generated = [_NAMES.get(key, key) for key in _texts(row.metadata.get("generated"))]
    found = row.metadata.get("degraded")
    degraded = found if isinstance(found, Mapping) else {}
    return Entry(
        _document(row),
        tuple(name for name in generated if name in _KEYS),
        {_NAMES[key]: str(reason) for key, reason in degraded.items() if key in _NAMES},
    )


def entries_of(rows: Collection[StoredDocument]) -> dict[str, Entry]:
    """The documents that can be indexed, by path."""
    return {row.file_path: entry for row in rows if (entry := entry_of(row)) is not None}


def write_entry(connection: Connection, entry: Entry) -> None:
    """Write the document's row into this transaction."""
    document = entry.document
    upsert_document(
        connection,
        document.path,
        title=document.title,
        category=document.domain,
        metadata=_metadata(document, entry.generated, entry.degraded or {}),
        content_hash=document.content_hash,
    )


def _metadata(
    document: Document, generated: Sequence[str], degraded: Mapping[str, str]
) -> dict[str, Any]:
    """What the row keeps beside path, title and category; keys as the specs write them."""
    return {
        "covers": list(document.covers),
        "whenToRetrieve": document.when_to_retrieve or "",
        "generated": [_KEYS[name] for name in generated],
        "degraded": {_KEYS[name]: reason for name, reason in degraded.items()},
        "summary": document.summary,
        **{name: list(getattr(document, name)) for name in _LISTS},
        "stem": document.stem,
        "frontMatter": dict(document.metadata),
        "body": document.body,
    }


def _document(row: StoredDocument) -> Document:
    kept = row.metadata
    other = kept.get("frontMatter")
    return Document(
        path=row.file_path,
        title=row.title,
        body=kept["body"],
        domain=row.category,
        content_hash=row.content_hash or content_hash(row.title, kept["body"]),
        summary=str(kept.get("summary") or ""),
        **{name: _texts(kept.get(name)) for name in (*_LISTS, "covers")},
        when_to_retrieve=str(kept.get("whenToRetrieve") or "") or None,
        stem=str(kept.get("stem") or ""),
        metadata=dict(other) if isinstance(other, Mapping) else {},
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()
