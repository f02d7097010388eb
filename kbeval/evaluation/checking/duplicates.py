"""Documents that say the same: declared (`same_as`), equal in content, or near by an encoder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbeval.records import Document
from kbeval.retrieval.knowledge import Knowledge

NEAR = 0.95  # cosine from which two documents count as near duplicates
BLOCK = 4_000_000  # cosines held at a time

Pair = tuple[str, str]  # two paths, the lower one first


@dataclass(frozen=True, slots=True, eq=False)
class Relatives:
    """Which documents stand in for each other.

    `declared` and `equal` are groups of paths; `near` maps a pair of documents to its cosine.
    `unknown` are declared names that no document has: (the document, the name it gives).
    """

    declared: tuple[tuple[str, ...], ...]
    equal: tuple[tuple[str, ...], ...]
    near: Mapping[Pair, float]
    unknown: tuple[Pair, ...]

    def of(self, paths: Collection[str]) -> frozenset[str]:
        """The documents and all that may say the same (method.md 10).

        Declared and equal ones transitively; near ones of all these, and what is declared for
        them. Near ones of near ones do not count: a chain of small steps leads anywhere.
        """
        same = self._closed(frozenset(paths))
        near = {other for pair in self.near if same & set(pair) for other in pair}
        return self._closed(same | near)

    def undeclared(self) -> dict[Pair, float]:
        """The near pairs that nobody declared to be the same, the nearest first."""
        found = {
            pair: cosine
            for pair, cosine in self.near.items()
            if not any(set(pair) <= set(group) for group in self.declared)
        }
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def _closed(self, paths: frozenset[str]) -> frozenset[str]:
        groups = [set(group) for group in (*self.declared, *self.equal)]
        while more := {path for group in groups if group & paths for path in group} - paths:
            paths |= more
        return paths


def relatives(
    documents: Sequence[Document], near: Iterable[Mapping[Pair, float]] = ()
) -> Relatives:
    """The relatives among documents; `near` are the `near_pairs` of one or more encoders.

    A pair that several encoders find has its highest cosine.
    """
    known = {document.path for document in documents}
    named = [(d.path, name) for d in documents for name in declared_names(d)]
    texts: dict[str, list[str]] = defaultdict(list)
    for document in documents:
        if text := " ".join(document.body.split()):
            texts[text].append(document.path)
    nearest: dict[Pair, float] = {}
    for pairs in near:
        for pair, cosine in pairs.items():
            nearest[pair] = max(cosine, nearest.get(pair, -1.0))
    return Relatives(
        declared=_groups([pair for pair in named if pair[1] in known and pair[0] != pair[1]]),
        equal=tuple(tuple(sorted(group)) for group in texts.values() if len(group) > 1),
        near=dict(sorted(nearest.items())),
        unknown=tuple(pair for pair in named if pair[1] not in known or pair[0] == pair[1]),
    )


def declared_names(document: Document) -> tuple[str, ...]:
    """What a document declares to be the same as itself: `same_as`, one path or a list."""
    value = document.metadata.get("same_as")
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else (str(value),)


def near_pairs(base: Knowledge, *, cosine: float = NEAR) -> dict[Pair, float]:
    """Pairs of documents whose nearest passages have at least this cosine, with it."""
    vectors, document = base.l1.vectors, base.l1.document
    found: dict[Pair, float] = {}
    rows = max(1, BLOCK // max(1, len(vectors)))
    for start in range(0, len(vectors), rows):
        block = np.round(vectors[start : start + rows] @ vectors.T, 6)
        for row, column in np.argwhere(block >= cosine):
            one, other = document[start + row], document[column]
            if one < other:  # documents stand in the order of their paths
                pair = base.paths[one], base.paths[other]
                found[pair] = max(float(block[row, column]), found.get(pair, -1.0))
    return dict(sorted(found.items()))


def _groups(pairs: Sequence[Pair]) -> tuple[tuple[str, ...], ...]:
    """Connected groups of paths, each sorted, in order."""
    group_of: dict[str, set[str]] = {}
    for one, other in pairs:
        together = group_of.get(one, {one}) | group_of.get(other, {other})
        group_of |= dict.fromkeys(together, together)
    return tuple(sorted({tuple(sorted(group)) for group in group_of.values()}))
