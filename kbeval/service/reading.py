"""What is uploaded, in whatever form it comes: a text, a file, a document, a whole corpus."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kbeval.corpus.documents import document_from_markdown
from kbeval.corpus.fields import Rejected
from kbeval.corpus.folder import read_text
from kbeval.corpus.identity import check_text
from kbeval.errors import CorpusError
from kbeval.records import Corpus, Document, Fault
from kbeval.service.stored import storable

_NO_FAULTS: tuple[Fault, ...] = ()

Source = Document | tuple[str | Path, str]  # a document, or a text or file and its path


def read_source(source: Source) -> tuple[Document | None, tuple[Fault, ...]]:
    """The document of a source as it can be stored, None if a fault is an error.

    A str is the markdown text itself, a `Path` the file that holds it.
    """
    if isinstance(source, Document):
        found, faults = source, _NO_FAULTS
    else:
        content, path = source
        file = str(content) if isinstance(content, Path) else path
        if isinstance(content, Path) and not content.exists():
            return None, (Fault(file, "no such file"),)
        try:
            text = read_text(content) if isinstance(content, Path) else content
            check_text(path, "the path")
            check_text(text, "the text")
        except Rejected as wrong:
            return None, (Fault(file, wrong.problem, wrong.remedy, wrong.line),)
        parsed, faults = document_from_markdown(text, path, file=file)
        if parsed is None:
            return None, faults
        found = parsed
    document, notes = storable(found)
    changed = (Fault(document.path, note, severity="warning") for note in notes)
    return document, (*faults, *changed)


def read_one(source: Source) -> tuple[Document, tuple[Fault, ...]]:
    """The document and its warnings. Raises `CorpusError` for one that cannot be read."""
    document, faults = read_source(source)
    if document is None:
        raise CorpusError(str(next(fault for fault in faults if fault.severity == "error")))
    return document, faults


def read_many(
    sources: Corpus | Iterable[Source],
) -> tuple[list[Document], list[Fault], int]:
    """The documents, every fault, and how many could not be read; a path counts once."""
    corpus = sources if isinstance(sources, Corpus) else None
    faults = list(corpus.faults) if corpus else []
    failed_count = corpus.failed_count if corpus else 0
    documents: dict[str, Document] = {}
    for source in corpus.documents if corpus else sources:  # type: ignore[union-attr]
        document, found = read_source(source)
        faults += found
        if document is not None and document.path in documents:
            problem = "has the path of another document of this upload"
            faults.append(Fault(document.path, problem, "rename one"))
            document = None
        if document is None:
            failed_count += 1
        else:
            documents[document.path] = document
    return list(documents.values()), faults, failed_count
