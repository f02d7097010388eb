"""How documents get in and out, step by step, so that a kill leaves nothing half done."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.domains.describe import Batch, DocumentFields
from kbeval.domains.domain_text import DomainText
from kbeval.errors import IndexFileError
from kbeval.records import Document, Fault
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.tool import KnowledgeTool
from kbeval.service.describing import Describer, renewed
from kbeval.service.domain_rows import (
    due_domains,
    miscounted,
    note_reasons,
    read_reasons,
    write_domain,
)
from kbeval.service.index import IndexBuilder
from kbeval.service.stored import Entry, entries_of, filled, write_entry
from kbeval.service.upload import Progress, Upload
from kbeval.store.database import writing
from kbeval.store.documents import delete_document, get_document, list_documents
from kbeval.store.domains import list_domains

if TYPE_CHECKING:
    from kbeval.service.binds import Engine

log = logging.getLogger(__name__)

CHUNK = 32  # documents a transaction of a large upload; what a kill may cost in model calls

Task = tuple[Entry | None, Document]  # what is stored so far, and what its author wrote now


@dataclass(frozen=True, slots=True)
class Changes:
    """Writes to the database and hands the tool a new base; one change at a time."""

    engine: Engine
    index_folder: Path
    builder: IndexBuilder
    describer: Describer
    tool: KnowledgeTool

    def is_done(self, former: Entry | None, document: Document) -> bool:
        """Whether the document is stored as it is, with all that can be had for it."""
        if former is None or former.written != document or former.missing:
            return False
        return not former.degraded or self.describer.llm is None

    def apply(self, changed: Mapping[str, Entry | None]) -> dict[str, DomainText]:
        """Write these documents, or delete those that are None, as one step.

        Texts and vectors are made first; the transaction then holds rows, domains and the saved
        index, so that a failure of any of them leaves all as it was. Returns the domains' texts.
        """
        knowledge = self._changed(changed)
        rows = [get_document(self.engine, path) for path in changed]
        domains = {row.category for row in rows if row is not None}
        domains |= {entry.document.domain for entry in changed.values() if entry is not None}
        texts = {domain: self._domain_text(domain, changed) for domain in sorted(domains)}
        with self._former_index_on_failure(), writing(self.engine) as connection:
            for path, entry in changed.items():
                if entry is None:
                    delete_document(connection, path)
                else:
                    write_entry(connection, entry)
            for domain, text in texts.items():
                write_domain(connection, domain, text)
            self._save(knowledge)
        self.tool.knowledge = knowledge
        note_reasons(self.index_folder, texts)
        return texts

    def store(
        self, todo: Sequence[Task], domains: Collection[str], progress: Progress | None
    ) -> Upload:
        """Describe and write documents in groups, then renew their domains and `domains`.

        An exception, an interrupt among them, keeps the documents that came before it.
        """
        groups = _Groups(self, len(todo), progress)
        fields: list[DocumentFields] = []
        self.describer.ask_again()
        try:
            for start in range(0, len(todo), CHUNK):
                fields += groups.add(todo[start : start + CHUNK])
        finally:
            groups.keep()
            self._take_up(groups.kept)
        touched = {entry.document.domain for entry in groups.kept} | set(domains)
        texts = self.renew_domains(touched, progress)
        return Upload(
            stored=tuple(sorted(groups.kept, key=lambda entry: entry.document.path)),
            faults=tuple(groups.faults),
            failed_count=len(groups.faults),
            domains=texts,
            failure=self.describer.failure(Batch(tuple(fields)), list(texts.values())),
        )

    def keep(self, entries: Sequence[Entry]) -> tuple[list[Entry], tuple[Fault, ...]]:
        """Write a group of documents; first they are embedded, which may refuse some.

        The domains are not recounted: a wrong count tells `load_index` of an interruption.
        """
        probe = replace(self.builder, centre="none")
        documents = [entry.document for entry in entries]
        _, faults = probe.added_or_refused(probe.empty(), documents)
        refused = {fault.file for fault in faults}
        good = [entry for entry in entries if entry.document.path not in refused]
        with writing(self.engine) as connection:
            for entry in good:
                write_entry(connection, entry)
        return good, faults

    def renew_domains(
        self, domains: Collection[str], progress: Progress | None
    ) -> dict[str, DomainText]:
        """Have these domains' texts written and recount them, each kept as it comes."""
        texts: dict[str, DomainText] = {}
        for domain in sorted(domains):
            texts[domain] = text = self._domain_text(domain, {})
            with writing(self.engine) as connection:
                write_domain(connection, domain, text)
            if progress is not None:
                progress("domains", len(texts), len(domains))
        note_reasons(self.index_folder, texts)
        return texts

    def repair_domains(self, progress: Progress | None) -> None:
        """Renew the domains that have no row, and those an interrupted upload left behind.

        A text that a model was asked for in vain is not asked for again: `regenerate` does that.
        """
        documents, domains = list_documents(self.engine), list_domains(self.engine)
        due = due_domains(documents, domains).keys()
        wanted = set(miscounted(documents, domains)) | (due - {row.domain_id for row in domains})
        if self.describer.llm is not None:
            wanted |= due - read_reasons(self.index_folder).keys()
        self.renew_domains(wanted, progress)

    def try_to_save(self, knowledge: Knowledge) -> None:
        """Save what `load_index` can make again; a failure is logged."""
        try:
            self._save(knowledge)
        except IndexFileError as error:
            log.warning("%s; it is made again at the next start", error)

    def _changed(self, changed: Mapping[str, Entry | None]) -> Knowledge:
        """The base with these documents in and out. Raises what embedding raises."""
        base = self.tool.knowledge
        gone = [path for path, entry in changed.items() if entry is None and path in base.position]
        documents = [entry.document for entry in changed.values() if entry is not None]
        return self.builder.added(base.remove(gone), documents)

    def _take_up(self, entries: Sequence[Entry]) -> None:
        """Have the tool find the documents that were written; their vectors are in the cache."""
        if entries:
            documents = [entry.document for entry in entries]
            knowledge, _ = self.builder.added_or_refused(self.tool.knowledge, documents)
            self.try_to_save(knowledge)
            self.tool.knowledge = knowledge

    def _domain_text(self, domain: str, changed: Mapping[str, Entry | None]) -> DomainText:
        """The text of a domain as it will be with these changes."""
        rows = list_documents(self.engine, category=domain)
        entries: dict[str, Entry | None] = {**entries_of(rows), **changed}
        documents = [
            entry.document
            for _, entry in sorted(entries.items())
            if entry is not None and entry.document.domain == domain
        ]
        texts = {row.domain_id: row.when_to_retrieve for row in list_domains(self.engine)}
        return self.describer.domain_text(domain, documents, texts, former=texts.get(domain, ""))

    def _save(self, knowledge: Knowledge) -> None:
        try:
            knowledge.save(self.index_folder)
        except OSError as error:
            raise IndexFileError(
                f"{self.index_folder}: the index cannot be written ({error.strerror or error})"
            ) from error

    @contextmanager
    def _former_index_on_failure(self) -> Iterator[None]:
        """Put the former index back if the transaction fails after the new one was saved."""
        try:
            yield
        except BaseException:
            self.try_to_save(self.tool.knowledge)
            raise


class _Groups:
    """The documents of one upload, described and written group by group."""

    def __init__(self, changes: Changes, count: int, progress: Progress | None) -> None:
        self.changes = changes
        self.count = count
        self.progress = progress
        self.waiting: list[Entry] = []
        self.kept: list[Entry] = []
        self.faults: list[Fault] = []

    def add(self, group: Sequence[Task]) -> tuple[DocumentFields, ...]:
        def came(position: int, fields: DocumentFields) -> None:
            self.waiting.append(entry_from(*group[position], fields))

        batch = self.changes.describer.many([document for _, document in group], came)
        self.keep()
        return batch.fields

    def keep(self) -> None:
        if not self.waiting:
            return
        group, self.waiting = self.waiting, []
        good, refused = self.changes.keep(group)
        self.kept += good
        self.faults += refused
        if self.progress is not None:
            self.progress("documents", len(self.kept) + len(self.faults), self.count)


def entry_from(former: Entry | None, document: Document, fields: DocumentFields) -> Entry:
    """What to store: of an unchanged document, what a model wrote before stays where it can."""
    if former is not None and former.written == document:
        return renewed(former, fields)
    return filled(document, fields)
