"""Pooling: what several rankings put on top is what has to be judged (method.md 2, 9)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbeval.evaluation.queries import Query
from kbeval.records import Document
from kbeval.retrieval.knowledge import Knowledge

Tops = tuple[tuple[str, ...], ...]  # paths of each query, best first

_WORD = re.compile(r"[㐀-鿿豈-﫿぀-ヿ]+|[^\W_]+")


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


def pooled(queries: Sequence[Query], bases: Sequence[Knowledge], *, depth: int = 5) -> Pool:
    """Pool L0, each base's encoder and BM25, `depth` documents each.

    The bases hold the same documents. L0 matches are ranked by the first base's distances.
    """
    texts = [query.text for query in queries]
    tops: dict[str, Tops] = {}
    for base in bases:
        evidence = base.gather(texts)
        if "l0" not in tops:
            offset = evidence.l0_offset
            tops["l0"] = tuple(
                tuple(
                    base.paths[d] for d in evidence.l0_document[offset[i] : offset[i + 1]][:depth]
                )
                for i in range(len(texts))
            )
        tops[base.encoder.name] = tuple(
            tuple(base.paths[d] for d in row[:depth] if d >= 0) for row in evidence.l1_document
        )
    tops["bm25"] = bm25_tops(bases[0].documents, texts, depth=depth)
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

    >>> words("Restart nginx 重启服务")
    ['restart', 'nginx', '重启', '启服', '服务']
    """
    found: list[str] = []
    for run in _WORD.findall(text.casefold()):
        if _is_cjk(run):
            found += [run[i : i + 2] for i in range(max(len(run) - 1, 1))]
        else:
            found.append(run)
    return found


def judged_share(pool: Pool, queries: Sequence[Query]) -> dict[str, tuple[int, int]]:
    """Judged@k of each ranking: (documents with a judgement, documents on top)."""
    shares = {}
    for name, tops in pool.tops.items():
        pairs = [(q, path) for q, top in zip(queries, tops, strict=True) for path in top]
        shares[name] = (sum(path in query.grades for query, path in pairs), len(pairs))
    return shares


def _is_cjk(run: str) -> bool:
    return (
        "\u3040" <= run[0] <= "\u30ff"
        or "\u3400" <= run[0] <= "\u9fff"
        or "豈" <= run[0] <= "\ufaff"
    )
