"""A knowledge base that remembers: each query embedded and searched once, for all policies.

The live tool runs over it unchanged. What it asks for is answered from memory, equal to what the
base itself would answer; what goes beyond the memory, a greater depth or another query, is asked
of the base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.encoders import Encoder
from kbeval.errors import EncoderError
from kbeval.records import Evidence, Kind
from kbeval.retrieval.embedding import Progress
from kbeval.retrieval.kept_evidence import kept_evidence
from kbeval.retrieval.knowledge import Knowledge

CELLS = 4_000_000  # queries x documents that are remembered at a time, 12 bytes each
LEAST_DEPTH = 64


class Remembered(NamedTuple):
    """What was found for n queries; blank queries are none, the tool never looks for them."""

    row: Mapping[str, int]  # query -> its place
    vectors: NDArray[np.float32]  # (n, d)
    evidence: Evidence


def remember(
    knowledge: Knowledge,
    queries: Sequence[str],
    *,
    depth: int,
    keep: bool = False,
    progress: Progress | None = None,
) -> Remembered:
    """Embed, through the base's cache, and search each distinct query once.

    About `depth` documents of each are kept, fewer where all together would be too many. With
    `keep` the cache holds what was found, and a later call searches nothing. Raises
    `VectorError` or `EncoderError` for a query that cannot be embedded.
    """
    texts = [query for query in dict.fromkeys(queries) if query.strip()]
    if not knowledge.documents:
        texts = []
    if texts:
        vectors = knowledge.embed_queries(texts, progress=progress, keep=True)
    else:
        vectors = np.empty((0, knowledge.encoder.dimension), np.float32)
    affordable = max(LEAST_DEPTH, CELLS // max(len(texts), 1))
    depth = min(depth, affordable, len(knowledge.documents))
    if keep:
        evidence = kept_evidence(knowledge, texts, depth=depth)
    else:
        evidence = knowledge.gather_checked(texts, vectors, depth=depth)
    return Remembered({text: row for row, text in enumerate(texts)}, vectors, evidence)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecalledKnowledge(Knowledge):
    """A base that answers single queries from what is remembered of it."""

    remembered: Remembered

    def embed_queries(
        self, queries: Sequence[str], *, progress: Progress | None = None, keep: bool = False
    ) -> NDArray[np.float32]:
        """Vectors of queries, (n, d): the remembered one, else those of the base."""
        row = self._row(queries)
        if row is None:
            return Knowledge.embed_queries(self, queries, progress=progress, keep=keep)
        return self.remembered.vectors[row : row + 1]

    def gather_checked(
        self, queries: Sequence[str], vectors: NDArray[np.float32], *, depth: int | None = None
    ) -> Evidence:
        """`Knowledge.gather_checked` for vectors that `embed_queries` gave."""
        kept, count = self.remembered.evidence, len(self.documents)
        row = self._row(queries)
        width = count if depth is None else min(depth, count)
        if row is None or width > kept.l1_document.shape[1]:
            return Knowledge.gather_checked(self, queries, vectors, depth=depth)
        start, stop = kept.l0_offset[row : row + 2].tolist()
        cut = kept.query_truncated
        return Evidence(
            paths=self.paths,
            convention=kept.convention,
            l0_offset=np.array([0, stop - start]),
            l0_document=kept.l0_document[start:stop],
            l0_distance=kept.l0_distance[start:stop],
            l1_document=kept.l1_document[row : row + 1, :width],
            l1_distance=kept.l1_distance[row : row + 1, :width],
            complete=width >= count,
            query_truncated=None if cut is None else cut[row : row + 1],
        )

    def _row(self, queries: Sequence[str]) -> int | None:
        return self.remembered.row.get(queries[0]) if len(queries) == 1 else None


def recalled(knowledge: Knowledge, remembered: Remembered) -> RecalledKnowledge:
    """The base with this memory; it shares everything else."""
    own = {field.name: getattr(knowledge, field.name) for field in fields(Knowledge)}
    return RecalledKnowledge(**own, remembered=remembered)


def with_versions(knowledge: RecalledKnowledge, versions: Mapping[str, int]) -> RecalledKnowledge:
    """The base in which these documents have another content, named by path and number.

    Nobody recorded the new text, so the body stays and the content hash changes: that is what the
    session memory goes by. Paths that the base does not hold change nothing.
    """
    documents = list(knowledge.documents)
    for path, number in versions.items():
        if (at := knowledge.position.get(path)) is not None:
            documents[at] = replace(documents[at], content_hash=f"{path}@{number}")
    return replace(knowledge, documents=tuple(documents))


@dataclass(frozen=True, slots=True)
class EncoderName:
    """What a look-up says about the encoder, for processes that embed nothing."""

    name: str
    dimension: int
    window: int
    fingerprint: str

    def encode(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Raises `EncoderError`: vectors come with the queries."""
        raise EncoderError(f"encoder {self.name}: replay has no vector for {len(texts)} texts")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Raises `EncoderError`: what was cut is known with the vectors."""
        raise EncoderError(f"encoder {self.name}: replay does not count its tokens")


def without_encoder(knowledge: Knowledge) -> Knowledge:
    """The base as it can be sent to another process."""
    encoder: Encoder = EncoderName(
        knowledge.encoder.name,
        knowledge.encoder.dimension,
        knowledge.encoder.window,
        knowledge.encoder.fingerprint,
    )
    return replace(knowledge, encoder=encoder, cache=None)
