"""The language reference topics that come with every Python, as a corpus (`python-topics`).

`help("assert")` reads them: some 80 texts, from a few lines to the whole chapter on special
methods, and many of the long ones contain short ones in full. They are always at hand, so the
labelled set over them needs no download and carries labels only.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from hashlib import sha256

from kbeval.records import Corpus, Document

TOPIC_DOMAINS: Mapping[str, str] = {  # domain -> the names of its topics
    "statements": (
        "assert assignment async augassign break class compound continue del else for function "
        "global if import nonlocal pass raise return try while with yield"
    ),
    "expressions": (
        "atom-identifiers atom-literals attribute-references await binary bitwise booleans calls "
        "comparisons conversions dict exprlists in lambda lists operator-summary power shifting "
        "slicings subscriptions unary"
    ),
    "lexical": "floating formatstrings id-classes identifiers imaginary integers numbers strings",
    "data-model": (
        "attribute-access callable-types context-managers customization numeric-types objects "
        "sequence-types specialattrs specialnames"
    ),
    "types": (
        "bltin-code-objects bltin-ellipsis-object bltin-null-object bltin-type-objects "
        "string-methods truth types typesfunctions typesmapping typesmethods typesmodules "
        "typesseq typesseq-mutable"
    ),
    "program": "debugger dynamic-features exceptions execmodel naming",
}

# Names somebody would type to get just this topic. Left out are labels nobody types ("typesseq")
# and words that stand in every other question about Python ("for", "with", "class", "function").
TYPED_NAMES = (
    "assert assignment async await booleans break comparisons context-managers continue debugger "
    "del dict exceptions global identifiers import lambda naming nonlocal pass raise return "
    "shifting slicings string-methods subscriptions unary yield"
)

_DOMAIN_OF = {name: domain for domain, names in TOPIC_DOMAINS.items() for name in names.split()}
_HEADING = re.compile(r"\A\s*(?P<title>\S[^\n]*)\n(?P<rule>[*=])(?P=rule)+[ \t]*(?:\n|\Z)")


def load_topics(texts: Mapping[str, str] | None = None) -> Corpus:
    """The topics of this Python, or of `texts` (name -> text), sorted by name.

    A document's path is the topic's name, an opaque id; its body is the whole text, heading
    included; `metadata["python"]` is the version. A topic without text is left out and counted in
    `failed_count`. The texts change a little between versions of Python: the fingerprint tells.
    """
    found = _installed() if texts is None else texts
    written = {name: text for name, text in sorted(found.items()) if text.strip()}
    documents = tuple(_document(name, text) for name, text in written.items())
    return Corpus(
        root="python-topics",
        documents=documents,
        failed_count=len(found) - len(written),
        fingerprint=_fingerprint(documents),
    )


def _installed() -> Mapping[str, str]:
    from pydoc_data.topics import topics  # half a megabyte of text

    return topics


def _document(name: str, text: str) -> Document:
    title = _title(name, text)
    return Document(
        path=name,
        title=title,
        body=text,
        domain=_DOMAIN_OF.get(name, "uncategorized"),
        content_hash=sha256(f"{title}\n{text}".encode()).hexdigest(),
        keywords=(name,) if name in TYPED_NAMES.split() else (),
        metadata={"python": platform.python_version()},
    )


def _title(name: str, text: str) -> str:
    """The text's first heading without its quotation marks, else the name in readable form."""
    heading = _HEADING.match(text)
    if heading is None:
        return name.replace("-", " ").capitalize()
    return heading["title"].replace('"', "").strip()


def _fingerprint(documents: tuple[Document, ...]) -> str:
    digest = sha256()
    for document in sorted(documents, key=lambda document: document.path):
        digest.update(f"{document.path}\0{document.content_hash}\n".encode())
    return digest.hexdigest()
