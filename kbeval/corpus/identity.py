"""What makes a document that document: its path, its content and what it declares."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from kbeval.corpus.fields import KNOWN_FIELDS, LIST_FIELDS, Rejected
from kbeval.errors import CorpusError
from kbeval.records import Document

UNCATEGORIZED = "uncategorized"

_DRIVE = re.compile(r"[A-Za-z]:/")


def normalised_path(path: str) -> str:
    r"""The one spelling of a relative path: NFC, `/`, without `.`, `..` and doubled slashes.

    Case, `_`, `-` and blanks are kept. Raises `CorpusError` for a path that is absolute, leaves
    the root or names nothing.

    >>> normalised_path("./docs//x/../a.md"), normalised_path("docs\\a.md")
    ('docs/a.md', 'docs/a.md')
    """
    plain = unicodedata.normalize("NFC", path).replace("\\", "/")
    if plain.startswith("/") or _DRIVE.match(plain):
        raise CorpusError(f"path {path!r} is absolute; a path relative to the root is expected")
    kept: list[str] = []
    for part in plain.split("/"):
        if part == "..":
            if not kept:
                raise CorpusError(f"path {path!r} leaves the root; it has to stay below it")
            kept.pop()
        elif part not in ("", "."):
            kept.append(part)
    if not kept:
        raise CorpusError(f"path {path!r} names no document; a relative path is expected")
    return "/".join(kept)


def content_hash(title: str, body: str) -> str:
    """SHA-256 of title and body, in hexadecimal."""
    return _sha256([title, body])


def corpus_fingerprint(documents: Iterable[Document]) -> str:
    """SHA-256 over every path, content hash and declared field, whatever the order of documents.

    The fields belong to it because exact keys and passages are made of them.
    """
    return _sha256(
        sorted(
            _sha256(
                [
                    document.path,
                    document.content_hash or content_hash(document.title, document.body),
                    document.domain,
                    document.summary,
                    document.when_to_retrieve or "",
                    *("\x1f".join(getattr(document, name)) for name in LIST_FIELDS),
                ]
            )
            for document in documents
        )
    )


def declared_document(
    fields: Mapping[str, Any],
    *,
    path: str,
    title: str,
    body: str,
    domain: str,
    stem: str = "",
) -> Document:
    """A document from its checked fields; what is not known among them is metadata."""
    return Document(
        path=path,
        title=title,
        body=body,
        domain=domain,
        content_hash=content_hash(title, body),
        summary=fields.get("summary", ""),
        **{name: fields.get(name, ()) for name in LIST_FIELDS},
        when_to_retrieve=fields.get("when_to_retrieve"),
        stem=stem,
        metadata={name: value for name, value in fields.items() if name not in KNOWN_FIELDS},
    )


def check_text(text: str, where: str) -> None:
    """Raise `Rejected` for half a surrogate pair, which no encoder and no file can take."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        raise Rejected(f"{where} holds U+{half:04X}, which is no character", "remove it") from None


def _sha256(parts: Iterable[str]) -> str:
    """A hash that tells ("ab", "c") from ("a", "bc"): every part goes in with its length."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8")
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()
