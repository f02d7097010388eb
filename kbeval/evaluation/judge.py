"""Labels meet evidence: what each query's answer is worth, before any cut (method.md 1 to 3).

Nothing here depends on the two cuts. How a cut decides what is handed out is kept as the least
reference cut at which something holds (`tau`), so every pair of cuts can be measured at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import DatasetError
from kbeval.evaluation.answers import ALWAYS, NEVER, handed_out, reached
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.records import Convention, Evidence
from kbeval.retrieval.grading import checked_distance


class Worth(IntEnum):
    """What the primary of an answer is worth to its query, from worst to best (method.md 2)."""

    NOTHING = 0  # the query is unanswerable: there was nothing to find
    WRONG = 1
    RELATED = 2
    ANSWERS = 3


class Nearness(IntEnum):
    """What an unanswerable query is near to."""

    UNSTATED = 0
    NEAR = 1  # its topic is covered
    FAR = 2


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """n labelled queries with their evidence, before any cut; arrays of shape (n,).

    A `tau` is the least reference cut (a distance) from which something holds: -inf at every
    cut, inf at none. Documents are positions in the evidence's `paths`.
    """

    query: NDArray[np.int64]  # position in the labelled set's queries
    row: NDArray[np.int64]  # row of the evidence
    cluster: NDArray[np.int64]  # session, else need, else the query itself
    answerable: NDArray[np.bool_]
    nearness: NDArray[np.int8]  # Nearness
    partial: NDArray[np.bool_]  # answerable, and no document of the corpus answers
    l0_count: NDArray[np.int64]
    l0_handed_count: NDArray[np.int64]  # L0 matches with a place at every cut
    unique_is_nearest: NDArray[np.bool_]  # the only L0 match is also the nearest document
    primary: NDArray[np.int64]  # -1: there is no document at all
    primary_distance: NDArray[np.float64]
    distance: NDArray[np.float64]  # the one that grades
    worth: NDArray[np.int8]  # Worth of the primary
    primary_unjudged: NDArray[np.bool_]  # answerable, pooled labels, no row for the primary
    better_exists: NDArray[np.bool_]  # the corpus holds a document graded above the primary
    tied_primary: NDArray[np.bool_]  # a tie at rank 1 mixes worths
    tau: NDArray[np.float64]  # every need group has a member handed out: the hint is true
    tau_if_unjudged_best: NDArray[np.float64]  # the same if unjudged documents are the best
    tau_answer: NDArray[np.float64]  # any document handed out answers
    several_top: NDArray[np.bool_]  # no need groups, and several documents share the top score
    best_missing: NDArray[np.bool_]  # the corpus lacks every document of the highest score
    gold_truncated: NDArray[np.bool_]  # a need group lies wholly beyond the evidence's depth
    gold_cut: NDArray[np.bool_]  # a need group has no document that was embedded whole
    missing_gold_count: NDArray[np.int64]  # positive documents that the corpus lacks
    limit: int
    convention: Convention
    labels: Literal["complete", "pooled"]
    left_out: Mapping[str, int]  # by reason
    outside_count: int  # queries of the set without evidence: another split

    def __len__(self) -> int:
        return len(self.query)

    @property
    def graded_by_supplement(self) -> NDArray[np.bool_]:
        """A supplement is nearer than the primary, so the distance that grades is not its own."""
        nearer: NDArray[np.bool_] = self.distance < self.primary_distance
        return nearer

    def hint_false(self, reference_cut: float) -> NDArray[np.bool_]:
        """Whether a closed level's hint would be false at this reference cut, of shape (n,)."""
        return ~reached(self.tau, reference_cut)


def judge(
    labelled: LabelledSet,
    evidence: Evidence,
    query_position: ArrayLike | None = None,
    *,
    limit: int = 3,
    embedded_whole: Sequence[bool] | NDArray[np.bool_] | None = None,
) -> Judged:
    """Judge what retrieval found for each labelled query (method.md 1, 2).

    `query_position` maps the set's queries to rows of the evidence, -1 for those outside this
    evaluation; None: the rows are the queries, in order. `embedded_whole` (documents,) is False
    where the encoder saw only a part. Left out and counted: `no_judgement`, `gold_not_in_corpus`,
    added to what the set's loader left out. Raises `DatasetError` if the mapping does not fit or
    an unanswerable query has an answer, `DistanceError` if an L0 match has no distance.
    """
    position = _checked_position(query_position, len(labelled.queries), len(evidence))
    checked_distance(evidence.l1_distance[:, :limit])
    whole = np.ones(len(evidence.paths)) if embedded_whole is None else np.asarray(embedded_whole)
    case = _Judge(
        evidence,
        index={path: document for document, path in enumerate(evidence.paths)},
        limit=limit,
        answers_from=labelled.answers_from,
        pooled=labelled.judged == "pooled",
        cut=frozenset(np.flatnonzero(whole == 0).tolist()),
    )
    left_out = dict(labelled.left_out)
    kept: list[int] = []
    rows: list[_Row] = []
    for number in np.flatnonzero(position >= 0).tolist():
        query = labelled.queries[number]
        labels = _labels(query, labelled.answers_from, case.index)
        if isinstance(labels, str):
            left_out[labels] = left_out.get(labels, 0) + 1
            continue
        kept.append(number)
        rows.append(case.row(int(position[number]), query, labels))
    columns: dict[str, NDArray[Any]] = {
        name: np.array([getattr(row, name) for row in rows], dtype=dtype)
        for name, dtype in _COLUMNS.items()
    }
    names = [labelled.queries[number].cluster for number in kept]
    return Judged(
        query=np.array(kept, dtype=np.int64),
        row=position[kept] if kept else np.zeros(0, dtype=np.int64),
        cluster=np.unique(names, return_inverse=True)[1].astype(np.int64),
        **columns,
        limit=limit,
        convention=evidence.convention,
        labels=labelled.judged,
        left_out=left_out,
        outside_count=int((position < 0).sum()),
    )


class _Labels(NamedTuple):
    grades: Mapping[int, int]  # document position -> score, for documents in the corpus
    groups: tuple[frozenset[int], ...]  # every group needs a member handed out
    best: int  # highest score in the corpus
    best_missing: bool
    several_top: bool
    missing_gold_count: int


class _Row(NamedTuple):
    answerable: bool
    nearness: int
    partial: bool
    l0_count: int
    l0_handed_count: int
    unique_is_nearest: bool
    primary: int
    primary_distance: float
    distance: float
    worth: int
    primary_unjudged: bool
    better_exists: bool
    tied_primary: bool
    tau: float
    tau_if_unjudged_best: float
    tau_answer: float
    several_top: bool
    best_missing: bool
    gold_truncated: bool
    gold_cut: bool
    missing_gold_count: int


_COLUMNS: dict[str, type] = get_type_hints(_Row) | {"nearness": np.int8, "worth": np.int8}


def _checked_position(
    query_position: ArrayLike | None, query_count: int, row_count: int
) -> NDArray[np.int64]:
    given = np.arange(row_count) if query_position is None else np.asarray(query_position)
    position = given.astype(np.int64)
    if position.shape != (query_count,) or (position >= row_count).any():
        raise DatasetError(
            f"{query_count} queries do not fit to evidence of {row_count} rows: their positions "
            f"have shape {position.shape}, the greatest is {position.max(initial=-1)}"
        )
    return position


def _labels(query: Query, answers_from: int, index: Mapping[str, int]) -> _Labels | str:
    """The labels as positions in the corpus, or the reason to leave the query out."""
    grades = {index[path]: score for path, score in query.grades.items() if path in index}
    highest = max(query.grades.values(), default=0)
    if query.answerable is False:
        if highest >= answers_from:
            raise DatasetError(
                f"query {query.id!r} is declared unanswerable but has a document of score "
                f"{highest}; below answers_from {answers_from} is allowed"
            )
        return _Labels(grades, (), 0, False, False, 0)
    if highest <= 0:
        return "no_judgement"
    best = max(grades.values(), default=0)
    if best <= 0:
        return "gold_not_in_corpus"
    top = frozenset(doc for doc, score in grades.items() if score == best)
    needs = (frozenset(index[path] for path in group if path in index) for group in query.needs)
    groups = tuple(group for group in needs if group)
    missing = sum(score > 0 and path not in index for path, score in query.grades.items())
    several = not query.needs and len(top) > 1
    return _Labels(grades, groups or (top,), best, best < highest, several, missing)


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    """What stays the same over the queries of one evaluation."""

    evidence: Evidence
    index: Mapping[str, int]  # path -> document
    limit: int
    answers_from: int
    pooled: bool
    cut: frozenset[int]  # documents that were not embedded whole

    def row(self, row: int, query: Query, labels: _Labels) -> _Row:
        answer = handed_out(self.evidence, row, limit=self.limit)
        answerable = query.answerable is not False
        primary = answer.documents[0] if answer.documents else -1
        reach = dict(zip(answer.documents, answer.reach, strict=True))
        tau = max((self._first(reach, group) for group in labels.groups), default=ALWAYS)
        unjudged = [doc for doc in reach if self.pooled and doc not in labels.grades]
        answering = [doc for doc, s in labels.grades.items() if s >= self.answers_from]
        count = int(self.evidence.l0_offset[row + 1] - self.evidence.l0_offset[row])
        return _Row(
            answerable=answerable,
            nearness=Nearness[query.nearness.upper() or "UNSTATED"],
            partial=answerable and labels.best < self.answers_from,
            l0_count=count,
            l0_handed_count=min(count, max(self.limit - 1, 1)),
            unique_is_nearest=count == 1 and answer.primary_distance <= self._nearest(row),
            primary=primary,
            primary_distance=answer.primary_distance,
            distance=answer.distance,
            worth=self._worth(primary, labels, answerable=answerable),
            primary_unjudged=answerable and primary in unjudged,
            better_exists=labels.best > max(labels.grades.get(primary, 0), 0),
            tied_primary=answerable and self._tied(row, labels),
            tau=tau,
            tau_if_unjudged_best=min(tau, self._first(reach, unjudged)),
            tau_answer=self._first(reach, answering),
            several_top=labels.several_top,
            best_missing=labels.best_missing,
            gold_truncated=any(self._beyond_depth(row, group) for group in labels.groups),
            gold_cut=any(group <= self.cut for group in labels.groups),
            missing_gold_count=labels.missing_gold_count,
        )

    def _worth(self, document: int, labels: _Labels, *, answerable: bool) -> Worth:
        score = labels.grades.get(document, 0)
        if not answerable:
            return Worth.NOTHING
        if score >= self.answers_from:
            return Worth.ANSWERS
        return Worth.RELATED if score > 0 else Worth.WRONG

    @staticmethod
    def _first(reach: Mapping[int, float], wanted: Sequence[int] | frozenset[int]) -> float:
        """The least reference cut at which one of the wanted documents is handed out."""
        return min((reach.get(document, NEVER) for document in wanted), default=NEVER)

    def _nearest(self, row: int) -> float:
        return min(self.evidence.l1_distance[row, :1].tolist(), default=NEVER)

    def _tied(self, row: int, labels: _Labels) -> bool:
        """Documents that share rank 1's distance, among its kind, are not worth the same."""
        start, stop = self.evidence.l0_offset[row : row + 2].tolist()
        documents, distances = self.evidence.l1_document[row], self.evidence.l1_distance[row]
        if stop > start:
            documents = self.evidence.l0_document[start:stop]
            distances = self.evidence.l0_distance[start:stop]
        if len(distances) < 2 or distances[0] != distances[1] or documents[1] < 0:
            return False
        tied = documents[: int(np.searchsorted(distances, distances[0], side="right"))]
        return len({self._worth(int(doc), labels, answerable=True) for doc in tied}) > 1

    def _beyond_depth(self, row: int, group: frozenset[int]) -> bool:
        """No member of a need group is among the neighbours kept, nor an L0 match."""
        if self.evidence.complete:
            return False
        start, stop = self.evidence.l0_offset[row : row + 2].tolist()
        return group.isdisjoint(self.evidence.l0_document[start:stop].tolist()) and (
            group.isdisjoint(self.evidence.l1_document[row].tolist())
        )
