"""What was retrieved, without any cut: recall, RR and nDCG by ir_measures (method.md 3).

The library sees ranks, never distances, so that what a user sees as rank 1 is rank 1 in the
number; and it sees numbers for names, so that no id can be taken for something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import DatasetError
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.queries import LabelledSet
from kbeval.evaluation.statistics import Rate, mean_interval
from kbeval.records import Evidence, Fault
from kbeval.retrieval.ranking import places

Ranking = Literal["l1", "tool"]
Judgements = Mapping[str, Mapping[str, int] | Sequence[str]]
Results = Mapping[str, Sequence[str] | Sequence[tuple[str, float]]]


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """Retrieval measures under the names ir_measures prints, per query and as means.

    Every counted query stands in every mean; one without any result counts 0.
    """

    query_ids: tuple[str, ...]  # (n,), in the order of the arrays
    per_query: Mapping[str, NDArray[np.float64]]  # measure -> (n,)
    mean: Mapping[str, Rate]
    without_result: tuple[str, ...] = ()  # counted, with 0
    unknown: tuple[str, ...] = ()  # in the results only; not counted
    without_answer: tuple[str, ...] = ()  # no document answers; not counted
    tied: tuple[str, ...] = ()  # a tie between different grades at a rank that matters
    faults: tuple[Fault, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The mean of each measure as value, low, high, n, and what is to know about them."""
        return {name: mean.to_json() for name, mean in self.mean.items()} | {
            "queries": len(self.query_ids),
            "without_result": len(self.without_result),
            "unknown": list(self.unknown),
            "without_answer": len(self.without_answer),
            "tied": len(self.tied),
        }


def measure_names(answers_from: int = 1) -> tuple[str, ...]:
    """Names of the measures: documents that answer, then any positive score, then nDCG.

    >>> measure_names(2)[:4]
    ('R(rel=2)@1', 'R(rel=2)@5', 'R(rel=2)@10', 'RR(rel=2)@10')
    >>> measure_names(1)
    ('R@1', 'R@5', 'R@10', 'RR@10', 'nDCG@10')
    """
    names = [
        f"{measure}{f'(rel={least})' if least > 1 else ''}@{cutoff}"
        for least in (answers_from, 1)
        for measure, cutoff in (("R", 1), ("R", 5), ("R", 10), ("RR", 10))
    ]
    return (*dict.fromkeys(names), "nDCG@10")


def retrieval_measures(
    labelled: LabelledSet,
    evidence: Evidence,
    judged: Judged,
    *,
    ranking: Ranking = "l1",
    depth: int = 20,
) -> Ranked:
    """Measure the evidence's ranking over answerable queries with an answer (method.md 3).

    `l1` is by distance alone, `tool` the order of handing out: L0 matches in at most limit - 1
    places, then L1. Ranks beyond `depth` count as not found (the measures end at 10). Judged
    documents that the corpus lacks stay in the ideal ranking.
    """
    counted = np.flatnonzero(judged.answerable & ~judged.partial)
    index: dict[Hashable, int] = {path: position for position, path in enumerate(evidence.paths)}
    queries = [labelled.queries[number] for number in judged.query[counted].tolist()]
    grades = [
        {index.setdefault(path, len(index)): score for path, score in query.grades.items()}
        for query in queries
    ]
    orders = [
        _order(evidence, row, ranking=ranking, limit=judged.limit, depth=depth)
        for row in judged.row[counted].tolist()
    ]
    return _ranked(
        tuple(query.id for query in queries),
        grades,
        orders,
        names=measure_names(labelled.answers_from),
        cluster=judged.cluster[counted],
    )


def measure_results(
    judgements: Judgements,
    results: Results,
    *,
    answers_from: int = 1,
    names: Sequence[str] | None = None,
    cluster: Mapping[str, Hashable] | None = None,
) -> Ranked:
    """Measure results given as text ids, for runs that come from elsewhere.

    A query's judgements are path -> score, or a list of paths that answer; its results are
    paths in the order shown, or (path, similarity) pairs, which are ordered by similarity, then
    path. Doubled documents count once and are a warning in `faults`; results for queries
    without judgements are listed as `unknown`. Raises `DatasetError` for ids that are not text
    and for a measure that ir_measures does not know.
    """
    faults: list[Fault] = []
    index: dict[Hashable, int] = {}
    counted, grades, orders = [], [], []
    for query, labels in judgements.items():
        scores = _scores(_text(query, "judgements"), labels, answers_from, faults)
        if max(scores.values(), default=0) < answers_from:
            continue
        counted.append(query)
        grades.append({index.setdefault(path, len(index)): s for path, s in scores.items()})
        shown = _shown(query, results.get(query, ()), faults)
        orders.append([(index.setdefault(path, len(index)), key) for path, key in shown])
    groups = {query: (cluster or {}).get(query, query) for query in counted}
    codes: dict[Hashable, int] = {}
    return _ranked(
        tuple(counted),
        grades,
        orders,
        names=names or measure_names(answers_from),
        cluster=[codes.setdefault(group, len(codes)) for group in groups.values()],
        unknown=tuple(_text(query, "results") for query in results if query not in judgements),
        without_answer=tuple(query for query in judgements if query not in groups),
        faults=tuple(faults),
    )


_Order = list[tuple[int, Hashable]]  # documents in rank, each with a key that ties share


def _order(evidence: Evidence, row: int, *, ranking: Ranking, limit: int, depth: int) -> _Order:
    documents = evidence.l1_document[row, :depth].tolist()
    near = dict(zip(documents, evidence.l1_distance[row, :depth].tolist(), strict=True))
    near.pop(-1, None)
    if ranking == "l1":
        return list(near.items())
    start, stop = evidence.l0_offset[row : row + 2].tolist()
    exact = evidence.l0_document[start:stop].tolist()
    key: dict[int, Hashable] = {doc: (False, distance) for doc, distance in near.items()}
    matched = dict(zip(exact, evidence.l0_distance[start:stop].tolist(), strict=True))
    placed = exact[: max(limit - 1, 1)]
    key |= {doc: (True, matched[doc]) for doc in placed}
    return [(doc, key[doc]) for doc in places(placed, near, limit=max(depth, limit))]


def _ranked(
    query_ids: tuple[str, ...],
    grades: Sequence[Mapping[int, int]],
    orders: Sequence[_Order],
    *,
    names: Sequence[str],
    cluster: ArrayLike,
    **lists: Any,  # noqa: ANN401
) -> Ranked:
    measures = _parsed(names)
    per_query = _calculated(measures, grades, [[doc for doc, _ in order] for order in orders])
    deepest = max((_cutoff(measure, len(query_ids)) for measure in measures), default=0)
    return Ranked(
        query_ids,
        per_query,
        {name: mean_interval(x, cluster, bounds=(0.0, 1.0)) for name, x in per_query.items()},
        without_result=tuple(q for q, order in zip(query_ids, orders, strict=True) if not order),
        tied=tuple(
            query
            for query, grade, order in zip(query_ids, grades, orders, strict=True)
            if _tie_matters(order, grade, deepest)
        ),
        **lists,
    )


def _parsed(names: Sequence[str]) -> list[Any]:
    import ir_measures

    measures: list[Any] = []
    pipeline: Any = ir_measures.DefaultPipeline
    for name in names:
        try:
            measure: Any = ir_measures.parse_measure(name)
            measure.validate_params()
            known = pipeline.supports(measure)
        except (ValueError, NameError, SyntaxError, TypeError, AssertionError):
            known = False
        if not known:
            raise DatasetError(
                f"measure {name!r} is not known to ir_measures; names as in "
                f"{', '.join(measure_names())} are expected"
            )
        measures.append(measure)
    return measures


def _cutoff(measure: Any, otherwise: int) -> int:  # noqa: ANN401
    cutoff = measure["cutoff"] if "cutoff" in measure.SUPPORTED_PARAMS else None
    return cutoff if isinstance(cutoff, int) else otherwise


def _calculated(
    measures: Sequence[Any],
    grades: Sequence[Mapping[int, int]],
    orders: Sequence[Sequence[int]],
) -> dict[str, NDArray[np.float64]]:
    """Every measure of every query; ranks become distinct falling values, names numbers."""
    import ir_measures

    values = {str(measure): np.zeros(len(grades)) for measure in measures}
    if not grades:
        return values
    longest = max(map(len, orders))
    depth = max(_cutoff(measure, longest) for measure in measures)
    qrels = {
        str(i): {str(doc): max(score, 0) for doc, score in grade.items()}
        for i, grade in enumerate(grades)
    }
    run = {
        str(i): {str(doc): float(depth - rank) for rank, doc in enumerate(order[:depth])}
        for i, order in enumerate(orders)
        if order
    }
    for metric in ir_measures.evaluator(measures, qrels).iter_calc(run):
        values[str(metric.measure)][int(metric.query_id)] = metric.value
    return values


def _tie_matters(order: _Order, grades: Mapping[int, int], deepest: int) -> bool:
    """Whether different grades share a key at the measured ranks, or across the last of them."""
    last = order[:deepest][-1][1] if order else None
    head = [pair for rank, pair in enumerate(order) if rank < deepest or pair[1] == last]
    return any(
        a_key == b_key and max(grades.get(a, 0), 0) != max(grades.get(b, 0), 0)
        for (a, a_key), (b, b_key) in pairwise(head)
    )


def _scores(
    query: str, labels: Mapping[str, int] | Sequence[str], answers_from: int, faults: list[Fault]
) -> dict[str, int]:
    if isinstance(labels, Mapping):
        return {_text(path, f"judgements of {query!r}"): s for path, s in labels.items()}
    return dict.fromkeys(_once(query, labels, "judgements", faults), answers_from)


def _shown(
    query: str, results: Sequence[str] | Sequence[tuple[str, float]], faults: list[Fault]
) -> list[tuple[str, Hashable]]:
    """Each document once, in the order shown, with its similarity (or its rank) as tie key."""
    pairs = [
        (r, -rank) if isinstance(r, str) else _pair(query, r) for rank, r in enumerate(results)
    ]
    ordered = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    key: dict[str, Hashable] = {}
    for path, similarity in ordered:
        key.setdefault(path, similarity)
    return [(path, key[path]) for path in _once(query, [p for p, _ in ordered], "results", faults)]


def _pair(query: str, result: Any) -> tuple[str, float]:  # noqa: ANN401
    match result:
        case (str(path), similarity) if np.isreal(similarity) and np.isfinite(similarity):
            return path, float(similarity)
    raise DatasetError(
        f"results of {query!r}: got {result!r}; a path or a (path, finite similarity) pair is "
        "expected, ids as text exactly as typed"
    )


def _once(query: str, paths: Sequence[str], where: str, faults: list[Fault]) -> list[str]:
    counts = Counter(_text(path, f"{where} of {query!r}") for path in paths)
    faults.extend(
        Fault(
            where,
            f"query {query!r} lists {path!r} {count} times",
            "it counts once",
            severity="warning",
        )
        for path, count in counts.items()
        if count > 1
    )
    return list(counts)


def _text(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise DatasetError(f"{where}: got {name!r}; ids are text, exactly as typed")
    return name
