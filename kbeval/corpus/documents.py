"""Documents from a markdown folder or a BEIR folder, and everything lost while reading them.

Both come in by `load_corpus`. A bad file or line costs that file or line: it becomes a `Fault`
with place and remedy and is counted, so that a thinner corpus can be seen where numbers are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from kbeval.corpus.beir import beir_documents
from kbeval.corpus.fields import Rejected
from kbeval.corpus.folder import ENDINGS, markdown_files, read_text
from kbeval.corpus.frontmatter import parse_front_matter
from kbeval.corpus.identity import (
    UNCATEGORIZED,
    check_text,
    content_hash,
    corpus_fingerprint,
    declared_document,
    normalised_path,
)
from kbeval.corpus.pieces import blocks
from kbeval.errors import CorpusError
from kbeval.records import Corpus, Document, Fault

__all__ = [
    "UNCATEGORIZED",
    "content_hash",
    "corpus_fingerprint",
    "document_from_markdown",
    "load_corpus",
    "normalised_path",
    "summary",
]

BEIR_FILE = "corpus.jsonl"

_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*\Z")
_UNDERLINED = re.compile(r"(.+)\n {0,3}=+[ \t]*(?:\n|\Z)")

_Item = tuple[Document | None, tuple[Fault, ...]]


def load_corpus(folder: str | Path, *, strict: bool = False) -> Corpus:
    """Read every document of a folder: BEIR if it holds a corpus.jsonl, else markdown.

    Markdown files are read recursively in the order of their paths; hidden ones are passed over.
    Every fault is in `Corpus.faults`, named by the path as the caller wrote it, and documents
    that could not be loaded are counted in `failed_count`. Raises `CorpusError` if the folder is
    missing or holds no document that can be read, and with `strict` if any document failed.
    """
    root = Path(folder)
    if not root.exists():
        raise CorpusError(f"{folder}: no such folder")
    beir = root if root.is_file() and root.suffix == ".jsonl" else root / BEIR_FILE
    if root.is_file() and beir != root:
        raise CorpusError(f"{folder}: is a file; a folder of documents or a .jsonl is expected")
    items = list(beir_documents(beir) if beir.is_file() else _markdown_items(root))
    documents = tuple(document for document, _ in items if document is not None)
    faults = tuple(fault for _, faults in items for fault in faults)
    failed_count = sum(any(f.severity == "error" for f in faults) for _, faults in items)
    if failed_count and (strict or not documents):
        first = next(fault for fault in faults if fault.severity == "error")
        raise CorpusError(f"{first} ({len(documents)} loaded, {failed_count} failed)")
    if not documents:
        found = f"no documents in {BEIR_FILE}" if beir.is_file() else "no markdown files"
        wanted = f"{', '.join(ENDINGS)} files or a {BEIR_FILE} are expected"
        raise CorpusError(f"{folder}: {found}; {wanted}")
    fingerprint = corpus_fingerprint(documents)
    return Corpus(str(folder), documents, faults, failed_count, fingerprint)


def summary(corpus: Corpus) -> str:
    """One line for the user: what was loaded and failed, and what is worth a look.

    For instance `2 loaded, 3 failed; 1 uncategorized, 1 without a body (a.md), 2 warnings`.
    """
    uncategorized = sum(document.domain == UNCATEGORIZED for document in corpus.documents)
    empty = [document.path for document in corpus.documents if not document.body.strip()]
    warnings = sum(fault.severity == "warning" for fault in corpus.faults)
    named = ", ".join(empty[:3]) + (f" and {len(empty) - 3} more" if len(empty) > 3 else "")
    notes = [
        f"{uncategorized} {UNCATEGORIZED}" if uncategorized else "",
        f"{len(empty)} without a body ({named})" if empty else "",
        f"{warnings} warning{'s' if warnings > 1 else ''}" if warnings else "",
    ]
    line = f"{len(corpus)} loaded, {corpus.failed_count} failed"
    return "; ".join(filter(None, [line, ", ".join(filter(None, notes))]))


def document_from_markdown(text: str, path: str, *, file: str = "") -> _Item:
    """One document and its faults; the document is None if one of them is an error (REQ-05).

    `path` becomes its identity, normalised. A missing title is the first heading, else the file
    name. The domain is `category`, else the first folder, else "uncategorized". `file` names the
    place in faults, if not `path`.
    """
    file = file or path
    try:
        path = normalised_path(path)
    except CorpusError as error:
        return None, (Fault(file, str(error), "name it by its path below the root"),)
    matter = parse_front_matter(text, file)
    if any(fault.severity == "error" for fault in matter.faults):
        return None, matter.faults
    body = _BLANK_LINES.sub("", matter.body).rstrip()
    stem = PurePosixPath(path).stem
    document = declared_document(
        matter.fields,
        path=path,
        title=matter.fields.get("title") or _first_heading(body) or stem,
        body=body,
        domain=matter.fields.get("category") or _first_folder(path),
        stem=stem,
    )
    return document, matter.faults


def _first_folder(path: str) -> str:
    return path.split("/")[0] if "/" in path else UNCATEGORIZED


def _first_heading(body: str) -> str:
    """The text of the first heading that is not part of a code block, else an empty text."""
    for start, end, kind in blocks(body):
        form = {"heading": _HEADING, "paragraph": _UNDERLINED}.get(kind)
        heading = form.match(body[start:end]) if form else None
        if heading and heading[1].strip():
            return heading[1].strip()
    return ""


def _markdown_items(root: Path) -> Iterator[_Item]:
    files, refused = markdown_files(root)
    yield from ((None, (fault,)) for fault in refused)
    seen: dict[str, Path] = {}
    for file in files:
        try:
            text = read_text(file)
            path = file.relative_to(root).as_posix()
            check_text(path, "the file name")
            document, faults = document_from_markdown(text, path, file=str(file))
            if document and (other := seen.setdefault(document.path, file)) != file:
                raise Rejected(f"has the same path as {other}, once normalised", "rename one")
        except Rejected as wrong:
            yield None, (Fault(str(file), wrong.problem, wrong.remedy, wrong.line),)
        else:
            yield document, faults
