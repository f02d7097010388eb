"""Pooling: what several rankings put on top is what has to be judged (method.md 2, 9)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.queries import Query
from kbeval.evaluation.statistics import Rate, cluster_rate
from kbeval.records import Document, Evidence
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.l0 import CJK, fold

Tops = tuple[tuple[str, ...], ...]  # paths of each query, best first

_WORD = re.compile(r"[^\W_]+")
_SCRIPTS = re.compile(f"({CJK.pattern})")  # a word is cut where its script changes


@dataclass(frozen=True, slots=True)
class Pool:
    """The first k documents of each ranking, for n queries."""

    query_ids: tuple[str, ...]  # (n,)
    tops: Mapping[str, Tops]  # ranking -> (n,)
    depth: int

    def pairs(self) -> list[tuple[str, str]]:
        """Every (query id, path) of the pool once, in the order of the queries."""
        found: dict[tuple[str, str], None] = {}
        for i, query_id in enumerate(self.query_ids):
            for tops in self.tops.values():
                found.update(dict.fromkeys((query_id, path) for path in tops[i]))
        return list(found)

    def only(self, rows: Sequence[int]) -> Pool:
        """The pool of these queries alone, by their places."""
        tops = {name: tuple(top[i] for i in rows) for name, top in self.tops.items()}
        return Pool(tuple(self.query_ids[i] for i in rows), tops, self.depth)


def pooled(queries: Sequence[Query], bases: Sequence[Knowledge], *, depth: int = 5) -> Pool:
    """Pool L0, each base's encoder and BM25, `depth` documents each.

    The bases hold the same documents. L0 matches are ranked by the first base's distances.
    """
    texts = [query.text for query in queries]
    evidence = {base.encoder.name: base.gather(texts, depth=depth) for base in bases}
    return pool_of(queries, bases[0].documents, evidence, depth=depth)


def pool_of(
    queries: Sequence[Query],
    documents: Sequence[Document],
    evidence: Mapping[str, Evidence],
    *,
    depth: int = 5,
) -> Pool:
    """Pool what was gathered already: `evidence` by encoder, one row a query.

    Every evidence is at least `depth` deep, over the same documents.
    """
    tops: dict[str, Tops] = {}
    for name, found in evidence.items():
        if not tops:
            tops["l0"] = tuple(
                _paths(found, found.l0_document[start:stop], depth)
                for start, stop in pairwise(found.l0_offset.tolist())
            )
        tops[name] = tuple(_paths(found, row, depth) for row in found.l1_document)
    tops["bm25"] = bm25_tops(documents, [query.text for query in queries], depth=depth)
    return Pool(tuple(query.id for query in queries), tops, depth)


def bm25_tops(documents: Sequence[Document], texts: Sequence[str], *, depth: int = 5) -> Tops:
    """The first documents of each text by BM25 over title and body, ties by path.

    Words are runs of letters and digits, folded; Chinese is cut into pairs of characters. A
    document that shares no word with the text is not in its ranking.
    """
    import bm25s

    ranking = bm25s.BM25()
    paths = [document.path for document in documents]
    content = [words(f"{document.title}\n{document.body}") for document in documents]
    if not any(content):
        return ((),) * len(texts)
    ranking.index(content, show_progress=False)
    known = set().union(*content)
    order = np.argsort(paths, kind="stable")
    tops = []
    for text in texts:
        asked = [word for word in words(text) if word in known]
        if not asked:
            tops.append(())
            continue
        value = ranking.get_scores(asked)
        best = order[np.argsort(-value[order], kind="stable")][:depth]
        tops.append(tuple(paths[i] for i in best if value[i] > 0))
    return tuple(tops)


def words(text: str) -> list[str]:
    """The words of a text for BM25.

    >>> words("重启nginx服务器 now")
    ['重启', 'nginx', '服务', '务器', 'now']
    """
    found: list[str] = []
    for word in _WORD.findall(fold(text)):
        for run in filter(None, _SCRIPTS.split(word)):
            if CJK.match(run):
                found += [run[i : i + 2] for i in range(max(len(run) - 1, 1))]
            else:
                found.append(run)
    return found


def judged_share(pool: Pool, queries: Sequence[Query]) -> dict[str, tuple[int, int]]:
    """Judged@k of each ranking: (documents with a judgement, documents on top)."""
    return {
        name: (sum(judged), sum(shown))
        for name, (judged, shown) in _judged_and_shown(pool, queries).items()
    }


def judged_rates(pool: Pool, queries: Sequence[Query]) -> dict[str, Rate]:
    """Judged@k of each ranking with its interval over the queries' clusters; n counts queries."""
    cluster = [query.cluster for query in queries]
    return {
        name: cluster_rate(judged, shown, cluster, empty="the ranking shows no document")
        for name, (judged, shown) in _judged_and_shown(pool, queries).items()
    }


def unjudged_pairs(pool: Pool, queries: Sequence[Query]) -> list[tuple[str, str]]:
    """The pairs (query id, path) of the pool that have no judgement yet, in its order."""
    grades = {query.id: query.grades for query in queries}
    return [pair for pair in pool.pairs() if pair[1] not in grades[pair[0]]]


def _judged_and_shown(
    pool: Pool, queries: Sequence[Query]
) -> dict[str, tuple[list[int], list[int]]]:
    """Of each query, by ranking: documents with a judgement, documents on top."""
    return {
        name: (
            [sum(p in q.grades for p in top) for q, top in zip(queries, tops, strict=True)],
            [len(top) for top in tops],
        )
        for name, tops in pool.tops.items()
    }


def _paths(evidence: Evidence, documents: NDArray[np.int32], depth: int) -> tuple[str, ...]:
    return tuple(evidence.paths[d] for d in documents[:depth].tolist() if d >= 0)
