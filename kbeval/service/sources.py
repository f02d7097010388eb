"""Files, folders and data sets as documents to upload, each under its path from a root."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kbeval.corpus.sources import open_corpus
from kbeval.errors import ConfigError, CorpusError
from kbeval.records import Corpus, Document, Fault
from kbeval.service.reading import read_source


def open_sources(
    sources: Iterable[Path], *, root: Path | None = None, strict: bool = False
) -> Corpus:
    """The documents of files, folders and data sets, and every fault, as one corpus.

    A folder's documents are known by their paths below it, a file by its path from the working
    folder; with `root` both by their paths from there. Raises `CorpusError` for a folder without
    documents and, with `strict`, for any that failed; `ConfigError` for one outside the root.
    """
    documents: list[Document] = []
    faults: list[Fault] = []
    failed_count = 0
    for source in sources:
        corpus = _folder(source, root, strict) if _is_many(source) else _file(source, root, strict)
        documents += corpus.documents
        faults += corpus.faults
        failed_count += corpus.failed_count
    return Corpus("", tuple(documents), tuple(faults), failed_count)


def _is_many(source: Path) -> bool:
    return source.is_dir() or source.suffix == ".jsonl" or not source.exists()


def _folder(source: Path, root: Path | None, strict: bool) -> Corpus:
    corpus = open_corpus(source, strict=strict)
    if root is None or not source.is_dir() or (below := _below(source, root)) == ".":
        return corpus
    moved = (
        replace(document, path=f"{below}/{document.path}") if document.stem else document
        for document in corpus.documents
    )
    return replace(corpus, documents=tuple(moved))


def _file(source: Path, root: Path | None, strict: bool) -> Corpus:
    document, faults = read_source((source, _below(source, root or Path())))
    if strict and document is None:
        raise CorpusError(str(next(fault for fault in faults if fault.severity == "error")))
    return Corpus(
        str(source), () if document is None else (document,), faults, int(document is None)
    )


def _below(path: Path, root: Path) -> str:
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        raise ConfigError(
            f"{path}: lies outside {root.resolve()}; say with --root where its path begins"
        ) from None
