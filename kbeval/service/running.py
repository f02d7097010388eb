"""The running tool: documents in and out, tool calls answered and recorded (REQ-02 to REQ-04).

The database is the truth. Everything else follows from it and is repaired by `load_index`: the
saved index by comparing its documents with the rows, a domain's text by its time, its count by
counting. So a kill at any moment loses no document and doubles none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbeval.config import Settings
from kbeval.corpus.identity import normalised_path
from kbeval.domains.knowledge_map import knowledge_map, map_domains
from kbeval.domains.prompts import ExecutorVersion, executor_prompt, planner_prompt
from kbeval.errors import CorpusError, DatabaseError, KbevalError
from kbeval.records import Corpus, Document, Fault, Locale, LookupResult
from kbeval.retrieval.answer import answer_text
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.tool import KnowledgeTool
from kbeval.service.calls import CallRefused, query_of
from kbeval.service.changes import Changes, entry_from
from kbeval.service.degraded import DegradedField, degraded_fields
from kbeval.service.describing import Describer
from kbeval.service.index import IndexBuilder
from kbeval.service.reading import Source, read_many, read_one
from kbeval.service.stored import entries_of, entry_of
from kbeval.service.upload import Progress, Upload
from kbeval.store.documents import StoredDocument, get_document, list_documents
from kbeval.store.domains import list_domains
from kbeval.store.recorder import Recorder

if TYPE_CHECKING:
    from kbeval.service.binds import Engine

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 60.0  # between two tries of a model that single uploads found silent


class KnowledgeService:
    """One knowledge base in use: its database, its index, its tool and its records.

    Made by `open_service`. Look-ups run at any time and from any thread; changes wait for each
    other, and a look-up sees the base before a change or after it. What another process changed
    is seen after `load_index`.
    """

    def __init__(
        self,
        engine: Engine,
        index_folder: Path,
        *,
        builder: IndexBuilder,
        describer: Describer,
        settings: Settings,
    ) -> None:
        self.engine = engine
        self.index_folder = index_folder
        self.recorder = Recorder(engine)
        self.tool = KnowledgeTool(builder.empty(), settings)
        self._builder = builder
        self._changes = Changes(engine, index_folder, builder, describer, self.tool)
        self._changing = threading.RLock()
        self._loaded = False
        self._asked_at = time.monotonic()

    @property
    def knowledge(self) -> Knowledge:
        """The base that look-ups work on now."""
        return self.tool.knowledge

    @property
    def settings(self) -> Settings:
        """The tool's settings."""
        return self.tool.settings

    # the index ----------------------------------------------------------------------------

    def load_index(
        self, *, anew: bool = False, progress: Progress | None = None
    ) -> tuple[Fault, ...]:
        """Bring the index in line with the stored documents, and the domains' rows with both.

        Only what is new or changed is embedded. A domain without a row gets its text, as do the
        domains of an upload that was interrupted (REQ-03). With `anew` everything is indexed
        again, and the centre fitted to what is there now. Returns the documents that cannot be
        indexed, with the reasons; they are counted in `knowledge.failed_count`.
        """
        with self._changing:
            rows = list_documents(self.engine)
            entries = entries_of(rows)
            base = self._base(anew)
            knowledge, faults = self._builder.brought_up_to_date(
                base,
                {path: entry.document for path, entry in entries.items()},
                _embedding(progress),
            )
            faults += tuple(_bodiless(row) for row in rows if row.file_path not in entries)
            for fault in faults:
                log.warning("%s", fault)
            knowledge = replace(knowledge, failed_count=len(faults))
            if anew or not self._loaded or knowledge.fingerprint != base.fingerprint:
                self._changes.try_to_save(knowledge)
            self.tool.knowledge = knowledge
            self._loaded = True
            try:
                self._changes.repair_domains(progress)
            except DatabaseError as error:  # look-ups work without
                log.warning("the domains' rows are not up to date: %s", error)
            return faults

    # documents in and out -----------------------------------------------------------------

    def upload_document(self, content: str | Path | Document, path: str = "") -> Upload:
        """Store one document, generate what its author left out, renew its domain (REQ-02, 03).

        `content` is a markdown text, the file that holds one, or a `Document`; `path` is its
        identity, for a file by default its name. All or nothing: after an exception database,
        index and tool are as before. A model that fails is none (REQ-02.6).
        Raises `CorpusError` for a document that cannot be read or indexed.
        """
        if isinstance(content, Path) and not path:
            path = content.name
        document, faults = read_one(content if isinstance(content, Document) else (content, path))
        with self._change():
            row = get_document(self.engine, document.path)
            former = None if row is None else entry_of(row)
            if self._changes.is_done(former, document):
                if document.path not in self.knowledge.position:  # another process stored it
                    self.load_index()
                return Upload(unchanged=(document.path,), faults=faults)
            self._ask_again()
            entry = entry_from(former, document, self._changes.describer.one(document))
            texts = self._changes.apply({document.path: entry})
        return Upload(stored=(entry,), faults=faults, domains=texts)

    def delete_document(self, path: str) -> Upload:
        """Delete one document; `delete_documents` for one."""
        return self.delete_documents([path])

    def delete_documents(self, paths: Iterable[str]) -> Upload:
        """Delete documents, all or none, and renew their domains (REQ-03).

        A domain without a document left keeps its row: count 0, empty text, no call.
        Raises `CorpusError` for a path that is not stored.
        """
        with self._change():
            stored = {row.file_path: row for row in list_documents(self.engine)}
            known = dict.fromkeys(_known(stored, path) for path in paths)
            self._ask_again()
            texts = self._changes.apply(dict.fromkeys(known))
        return Upload(deleted=tuple(known), domains=texts)

    def upload_many(
        self, sources: Corpus | Iterable[Source], *, progress: Progress | None = None
    ) -> Upload:
        """Store many documents; each touched domain is renewed once, at the end.

        A document that cannot be read or indexed costs that document. Documents are kept in
        small groups as they are described, so that an interruption loses little; the same call
        again goes on where it ended: what is stored already and has not changed is passed over.
        """
        documents, faults, failed_count = read_many(sources)
        with self._change():
            rows = list_documents(self.engine)
            stored = entries_of(rows)
            todo = [
                (stored.get(document.path), document)
                for document in documents
                if not self._changes.is_done(stored.get(document.path), document)
            ]
            done = {document.path for document in documents} - {one.path for _, one in todo}
            if done - self.knowledge.position.keys():
                self.load_index(progress=progress)
            left = {row.category for row in rows if row.file_path in {d.path for _, d in todo}}
            upload = self._changes.store(todo, left, progress)
        return replace(
            upload,
            unchanged=tuple(sorted(done)),
            faults=(*faults, *upload.faults),
            failed_count=failed_count + upload.failed_count,
        )

    def regenerate(
        self, paths: Collection[str] | None = None, *, progress: Progress | None = None
    ) -> Upload:
        """Ask again for generated fields; an author's are never touched.

        Without `paths` for all that is degraded, documents and domains; with paths for every
        field of those documents that is not the author's. What fails keeps what it had.
        """
        with self._change():
            rows = list_documents(self.engine)
            stored = entries_of(rows)
            if paths is None:
                chosen = [entry for entry in stored.values() if entry.degraded or entry.missing]
                due = {one.name for one in self.degraded() if one.kind == "domain"}
            else:
                chosen, due = [stored[_known(stored, path)] for path in paths], set()
            todo = [(entry, entry.written) for entry in chosen]
            return self._changes.store(todo, due, progress)

    def degraded(self) -> tuple[DegradedField, ...]:
        """Every field that a model was to write and did not, with its reason."""
        return degraded_fields(self.engine, self.index_folder)

    # what planner and executor are told ---------------------------------------------------

    def build_knowledge_map(self, *, budget: int | None = None) -> str:
        """The map of the domains that have documents; empty without any domain row (REQ-04)."""
        return _map(self.engine, self.knowledge.documents, budget)

    def planner_prompt(self, *, budget: int | None = None, locale: Locale | None = None) -> str:
        """The planner's system prompt, the map at its end where there is one."""
        map_text = self.build_knowledge_map(budget=budget)
        return planner_prompt(map_text, locale=locale or self.settings.locale)

    def executor_prompt(
        self, *, version: ExecutorVersion = "v2", locale: Locale | None = None
    ) -> str:
        """The executor's system prompt (FS-5)."""
        return executor_prompt(locale=locale or self.settings.locale, version=version)

    # look-ups -----------------------------------------------------------------------------

    def lookup_knowledge(
        self, query: str, session_id: str | None = None, *, redeliver: bool = False
    ) -> LookupResult:
        """Look something up and record it (FS-6)."""
        result, invocation = self.tool.lookup_knowledge(query, session_id, redeliver=redeliver)
        self.recorder.save(invocation)
        return result

    def handle_tool_call(self, call: str | Mapping[str, Any], session_id: str | None = None) -> str:
        """Answer a model's tool call: its arguments (or the whole call) in, JSON for it out.

        The session is the argument, else that of the enclosing `session_scope`. What is wrong
        with the call, or with the look-up, is told to the model as `{"error": ...}`. A reply
        that cannot be serialised takes back what was claimed, and raises.
        """
        try:
            query = query_of(call, self.settings.locale)
            result, invocation = self.tool.lookup_knowledge(query, session_id)
        except CallRefused as refused:
            log.warning("tool call refused: %s", refused)
            return refused.reply()
        except KbevalError as error:
            log.warning("look-up failed: %s", error)
            return CallRefused(self.settings.locale, "failed", str(error)).reply()
        try:
            reply = answer_text(result)
            reply.encode("utf-8")
            self.recorder.save(invocation)
        except BaseException:
            self.tool.take_back(invocation)
            raise
        return reply

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    def _base(self, anew: bool) -> Knowledge:
        if anew:
            return self._builder.empty()
        return self.knowledge if self._loaded else self._builder.loaded(self.index_folder)

    def _ask_again(self) -> None:
        """Give a model that had stopped answering another chance, but not at every upload."""
        if time.monotonic() - self._asked_at >= ASK_AGAIN_SECONDS:
            self._asked_at = time.monotonic()
            self._changes.describer.ask_again()

    @contextmanager
    def _change(self) -> Iterator[None]:
        """One change at a time, on an index that is loaded."""
        with self._changing:
            if not self._loaded:
                self.load_index()
            yield


def stored_map(engine: Engine, *, budget: int | None = None) -> str:
    """The knowledge map from the database alone, without an index (REQ-04)."""
    entries = entries_of(list_documents(engine)).values()
    return _map(engine, [entry.document for entry in entries], budget)


def _map(engine: Engine, documents: Iterable[Document], budget: int | None) -> str:
    rows = {row.domain_id: row for row in list_domains(engine)}
    return knowledge_map(map_domains(documents, rows), budget=budget) if rows else ""


def _known(stored: Mapping[str, object], path: str) -> str:
    """The path as it is stored: as written (ids of data sets are opaque), else normalised."""
    if path not in stored and path:
        path = normalised_path(path)
    if path not in stored:
        raise CorpusError(f"{path or repr(path)}: no such document in the database")
    return path


def _bodiless(row: StoredDocument) -> Fault:
    return Fault(row.file_path, "stored without its body, so not indexed", "upload it again")


def _embedding(progress: Progress | None) -> Callable[[int, int], object] | None:
    return None if progress is None else partial(progress, "embedding")
