"""What must not happen between the queries of a set: copies, and needs on both sides of a split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.retrieval.l0 import CJK, fold

NEAR_EQUAL = 0.8  # share of common letter runs (Dice) from which two texts are shown
BLOCK = 256  # queries compared at a time

Groups = Mapping[str, tuple[Query, ...]]


@dataclass(frozen=True, slots=True)
class NearEqual:
    """Two queries of different splits that are spelled nearly alike."""

    one: str
    other: str
    share: float  # common letter runs, 0 to 1
    texts: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.one} {self.texts[0]!r} ~ {self.other} {self.texts[1]!r} ({self.share:.2f})"


def equal_texts(queries: Sequence[Query]) -> Groups:
    """Queries whose texts are equal after folding (NFKC, case, blanks), by that text."""
    return _grouped(queries, lambda query: fold(query.text))


def across(groups: Groups) -> dict[str, tuple[Query, ...]]:
    """The groups whose queries lie in more than one split."""
    return {key: g for key, g in groups.items() if len({query.split for query in g}) > 1}


def shared_units(labelled: LabelledSet) -> dict[str, dict[str, tuple[Query, ...]]]:
    """Needs, sessions and topics with queries in more than one split, by kind of unit."""
    units: dict[str, Callable[[Query], str]] = {
        "need_id": lambda query: query.need_id or "",
        "session_id": lambda query: query.session_id or "",
        "topic": lambda query: str(query.metadata.get("topic") or ""),
    }
    return {name: across(_grouped(labelled.queries, unit)) for name, unit in units.items()}


def near_equal(queries: Sequence[Query], *, least: float = NEAR_EQUAL) -> tuple[NearEqual, ...]:
    """Pairs in different splits that share most of their `letter_grams`, the nearest first.

    Equal texts are not among them. The share is Dice's: twice the common runs through the sum of
    both. Signs do not count.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [fold(query.text) for query in queries]
    if not any(map(letter_grams, texts)) or len({query.split for query in queries}) < 2:
        return ()
    counted = CountVectorizer(analyzer=letter_grams, binary=True, dtype=np.float32)
    grams = counted.fit_transform(texts).tocsr()
    size = np.asarray(grams.sum(axis=1)).ravel()  # (n,)
    split = np.array([query.split for query in queries])
    found: list[NearEqual] = []
    for name in sorted(set(split))[:-1]:
        here, there = np.flatnonzero(split == name), np.flatnonzero(split > name)
        opposite = grams[there].T.tocsc()
        for start in range(0, len(here), BLOCK):
            rows = here[start : start + BLOCK]
            common = (grams[rows] @ opposite).tocoo()
            total = size[rows[common.row]] + size[there[common.col]]
            share = 2 * common.data / total
            for at in np.flatnonzero(share >= least):
                one, other = rows[common.row[at]], there[common.col[at]]
                if texts[one] != texts[other]:
                    pair = queries[one], queries[other]
                    words = pair[0].text, pair[1].text
                    found.append(NearEqual(pair[0].id, pair[1].id, float(share[at]), words))
    return tuple(sorted(found, key=lambda pair: (-pair.share, pair.one, pair.other)))


def letter_grams(text: str) -> list[str]:
    """The distinct runs of three characters of a text, of two where one of them is CJK.

    Signs count as blanks, and the text stands between blanks.

    >>> letter_grams("to-do"), letter_grams("限流?")
    ([' do', ' to', 'do ', 'o d', 'to '], [' 限', '流 ', '限流'])
    """
    words = "".join(c if c.isalnum() else " " for c in text).split()
    if not words:
        return []
    whole = f" {' '.join(words)} "
    runs = (whole[i : i + (2 if CJK.search(whole[i : i + 2]) else 3)] for i in range(len(whole)))
    return sorted({run for run in runs if len(run) == 3 or (len(run) == 2 and CJK.search(run))})


def contradictions(groups: Groups, answers_from: int) -> list[tuple[Query, Query, str]]:
    """Equal texts whose labels contradict each other, each with the first that differs.

    One is answerable and the other is not, or a document judged for both answers only one.
    Turns of sessions are left out: their context may tell them apart.
    """
    found = []
    for group in groups.values():
        alone = [query for query in group if query.session_id is None]
        for query in alone[1:]:
            if reason := _contradiction(alone[0], query, answers_from):
                found.append((alone[0], query, reason))
    return found


def _contradiction(one: Query, other: Query, answers_from: int) -> str:
    if one.answerable != other.answerable:
        return "only one of them is declared unanswerable"
    for path in sorted(one.grades.keys() & other.grades.keys()):
        scores = one.grades[path], other.grades[path]
        if (scores[0] >= answers_from) != (scores[1] >= answers_from):
            return f"document {path!r} has score {scores[0]} and {scores[1]}"
    return ""


def _grouped(queries: Sequence[Query], key: Callable[[Query], str]) -> Groups:
    found: dict[str, list[Query]] = defaultdict(list)
    for query in queries:
        if own := key(query):
            found[own].append(query)
    return {own: tuple(group) for own, group in found.items() if len(group) > 1}
