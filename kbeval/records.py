"""The nouns of kbeval, frozen and checked at birth: read this page first.

A `Corpus` holds `Document`s and the `Fault`s met while loading. Retrieval turns n queries into
`Evidence`, before any threshold. The tool hands out a `LookupResult` and keeps an `Invocation`.
In comments: n queries, k hits, d dimensions, m settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["query", "passage"]
Convention = Literal["l2", "squared_l2"]
Locale = Literal["zh", "en"]


class Level(IntEnum):
    """The verdict on an answer, from worst to best (FS-2)."""

    NOT_FOUND = 0
    REFERENCE = 1
    HIGHLY_RELEVANT = 2
    PRECISE = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in the input: where, what, and what to do about it.

    `severity` "error" means that the item was not loaded, "warning" that it was.
    """

    file: str
    problem: str
    remedy: str = ""
    line: int | None = None  # physical line, from 1
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        """One line for the user: `file:line: problem; remedy`."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.problem}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a knowledge base (REQ-05).

    `path` is the identity: a normalised relative path, or the opaque id of a BEIR or CSV set.
    `stem` is the file name without its ending, empty for opaque ids. `covers` is empty and
    `when_to_retrieve` None where the author wrote none. `content_hash` covers title and body.
    """

    path: str
    title: str
    body: str
    domain: str = "uncategorized"
    content_hash: str = ""
    summary: str = ""
    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    when_to_retrieve: str | None = None
    stem: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)  # everything else the author wrote


@dataclass(frozen=True, slots=True)
class Corpus:
    """What there is to find, and what was lost while reading it.

    `fingerprint` is a hash over every path and content hash, independent of order.
    """

    root: str
    documents: tuple[Document, ...]
    faults: tuple[Fault, ...] = ()
    failed_count: int = 0  # documents that could not be loaded
    fingerprint: str = ""

    def __len__(self) -> int:
        return len(self.documents)


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document as the encoder reads it: the title in front, then whole paragraphs."""

    document: int  # position in the list of documents it was cut from
    text: str
    token_count: int


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What retrieval found for n queries, before any threshold (design.md 3, 16).

    Documents are positions in `paths`. Distances are in `convention`, rounded to 6 decimals.
    L0 matches are ragged: those of query i lie at `l0_offset[i]:l0_offset[i + 1]`, nearest first,
    then by path; their distance is always computed. L1 neighbours are sorted by distance, then by
    path, each document once (by its nearest passage); unused places hold -1 and inf.
    """

    paths: tuple[str, ...]
    convention: Convention
    l0_offset: NDArray[np.int64]  # (n + 1,)
    l0_document: NDArray[np.int32]  # (sum of L0 matches,)
    l0_distance: NDArray[np.float64]  # (sum of L0 matches,)
    l1_document: NDArray[np.int32]  # (n, k)
    l1_distance: NDArray[np.float64]  # (n, k)
    complete: bool = True  # k covers every document of the knowledge base
    query_truncated: NDArray[np.bool_] | None = None  # (n,), beyond the encoder's window

    @property
    def l0_count(self) -> NDArray[np.int64]:
        """L0 matches of each query in the whole knowledge base, of shape (n,)."""
        return self.l0_offset[1:] - self.l0_offset[:-1]

    def __len__(self) -> int:
        return len(self.l0_offset) - 1


@dataclass(frozen=True, slots=True)
class PrimaryResult:
    """The document an agent should read first (FS-4); it has no field for a score."""

    file_path: str
    title: str
    domain: str
    content: str


@dataclass(frozen=True, slots=True)
class SupplementResult:
    """A further document of the answer (FS-4); it has no field for a score."""

    file_path: str
    title: str
    domain: str
    content: str


@dataclass(frozen=True, slots=True)
class LookupResult:
    """What the model is given (FS-4). Level and hint are None when nothing is handed out."""

    found: bool
    message: str
    primary: PrimaryResult | None = None
    supplements: tuple[SupplementResult, ...] = ()
    relevance_level: str | None = None
    completeness_hint: str | None = None
    retrieved_domains_this_session: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Invocation:
    """What the caller records about one look-up (FS-6); the model never sees it.

    `relevance_level` is the level's name, "NOT_FOUND" when nothing matched, None when everything
    that matched had been given before. `claim` is what `KnowledgeTool.take_back` undoes.
    """

    tool_name: str
    session_id: str | None
    query: str
    started_at: str  # UTC, ISO 8601
    duration_ms: float
    relevance_level: str | None
    dedup_reason: str | None
    retrieval_details: Mapping[str, Any]
    claim: object | None = None
