"""Evidence as if some documents were not in the knowledge base, another set for every query."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kbeval.records import Evidence
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.l0 import ExactKeys


def hidden_evidence(
    knowledge: Knowledge,
    queries: Sequence[str],
    hidden: Sequence[Collection[str]],
    *,
    limit: int,
) -> Evidence:
    """What retrieval finds for n queries with `hidden` paths (n sets) taken out of L0 and L1.

    Gathered deep enough that `limit` documents remain, where there are so many. A key that only
    a longer key of a hidden document had covered matches again, as it would without the
    document. Paths that the base does not hold are passed over.
    """
    gone = [
        {knowledge.position[path] for path in paths if path in knowledge.position}
        for paths in hidden
    ]
    deepest = max(map(len, gone), default=0) + limit
    vectors = knowledge.embed_queries(queries, keep=True)
    depth = min(deepest, len(knowledge.documents))
    evidence = knowledge.gather(queries, vectors=vectors, depth=depth)
    document, distance = _nearest_left(evidence, gone, limit)
    keys = _KeysLeft(knowledge)
    exact: list[list[tuple[float, int]]] = []
    for row, query in enumerate(queries):
        start, stop = evidence.l0_offset[row : row + 2]
        matches: Sequence[int] = evidence.l0_document[start:stop].tolist()
        if gone[row] & set(matches):
            matches = keys.matches(query, gone[row])
        near: list[float] = knowledge.l1.distances_to(vectors[row], matches).tolist()
        exact.append(sorted(zip(near, matches, strict=True)))
    return replace(
        evidence,
        l0_offset=np.cumsum([0, *map(len, exact)]),
        l0_document=np.array([doc for match in exact for _, doc in match], np.int32),
        l0_distance=np.array([near for match in exact for near, _ in match], np.float64),
        l1_document=document,
        l1_distance=distance,
        complete=False,
    )


def _nearest_left(
    evidence: Evidence, gone: Sequence[Collection[int]], limit: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The `limit` nearest documents of each query that are not gone, (n, limit) each."""
    shape = (len(evidence), limit)
    document, distance = np.full(shape, -1, np.int32), np.full(shape, np.inf)
    for row, without in enumerate(gone):
        own = evidence.l1_document[row]
        kept = np.flatnonzero((own >= 0) & ~np.isin(own, list(without)))[:limit]
        document[row, : len(kept)] = own[kept]
        distance[row, : len(kept)] = evidence.l1_distance[row, kept]
    return document, distance


class _KeysLeft:
    """L0 matches of a query without some documents, exactly as if these had never been there.

    Only a document that matches by itself can match among others; so few are looked at together.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        self._documents = knowledge.documents
        self._settings = knowledge.retrieval.l0
        self._alone = [ExactKeys([document], self._settings) for document in knowledge.documents]

    def matches(self, query: str, gone: Collection[int]) -> list[int]:
        candidates = [
            place
            for place, keys in enumerate(self._alone)
            if place not in gone and keys.matches(query)
        ]
        together = ExactKeys([self._documents[place] for place in candidates], self._settings)
        return [candidates[i] for i in together.matches(query)]
