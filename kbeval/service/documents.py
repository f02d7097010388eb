"""The documents of a database as a corpus: for whoever looks things up without the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbeval.corpus.identity import corpus_fingerprint
from kbeval.records import Corpus, Fault
from kbeval.service.stored import entry_of
from kbeval.store.database import name_of
from kbeval.store.documents import holds_documents, list_documents

if TYPE_CHECKING:
    from kbeval.service.binds import Engine


def corpus_in(engine: Engine) -> Corpus:
    """What `api_document` holds; empty where there is no such table, or no row in it.

    A row without a body is named and counted as failed. Raises `DatabaseError`.
    """
    root = name_of(engine)
    rows = list_documents(engine) if holds_documents(engine) else ()
    entries = [(row.file_path, entry_of(row)) for row in rows]
    documents = tuple(entry.document for _, entry in entries if entry is not None)
    faults = tuple(
        Fault(f"{root}: {path}", "the row has no body", "upload the document again")
        for path, entry in entries
        if entry is None
    )
    return Corpus(root, documents, faults, len(faults), corpus_fingerprint(documents))
