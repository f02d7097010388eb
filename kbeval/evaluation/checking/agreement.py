"""Do two judges agree? Files of judgements, the blind sample, and weighted kappa (method.md 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import DatasetError
from kbeval.evaluation.reading.labels import LABEL_NAMES
from kbeval.evaluation.reading.rows import Row, read_rows
from kbeval.evaluation.reading.values import RowProblem, integer_of
from kbeval.evaluation.statistics import FEWEST_CLUSTERS, Rate

JUDGEMENTS, SECOND_JUDGEMENTS = "judgements.tsv", "second-judgements.tsv"
GRADES = (0, 1, 2)
FLOOR = 0.65  # of kappa; met when the lower bound meets it
RESAMPLES = 2_000

Pair = tuple[str, str]  # a query's id and a document's path
Grades = Mapping[Pair, int]

_NAMES = {**LABEL_NAMES, "judge": ("judge",), "pass": ("pass",)}
# a pair's disagreement: 0 for equal grades, 1 for the two ends of the scale
_APART = np.abs(np.subtract.outer(GRADES, GRADES)) / (len(GRADES) - 1)


class Judgement(NamedTuple):
    """One row of a file of judgements: who gave which score to a pair, in which pass."""

    query: str
    document: str
    grade: int
    judge: str
    number: int  # the pass, from 1
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """How far two judges agree on a sample of pairs, weighted back to the pool.

    `kappa` has the bootstrap interval and n, the pairs; `same` is the weighted share of equal
    scores. `table` counts pairs of the sample, `[first, second]`. Rows are resampled by `unit`.
    """

    kappa: Rate
    same: float | None
    table: NDArray[np.int64]  # (3, 3)
    pool: tuple[int, ...]  # pairs of each first score in the pool
    unit: Literal["query", "pair"]
    unit_count: int
    seed: int

    @property
    def meets_floor(self) -> bool:
        """Whether kappa's lower bound reaches 0.65."""
        return self.kappa.low is not None and self.kappa.low >= FLOOR

    def to_json(self) -> dict[str, Any]:
        """Plain values; `table` is first score -> second score -> pairs."""
        return {
            "kappa": self.kappa.to_json(),
            "same": self.same,
            "table": {str(a): {str(b): int(self.table[a, b]) for b in GRADES} for a in GRADES},
            "pool": {str(grade): count for grade, count in zip(GRADES, self.pool, strict=True)},
            "floor": FLOOR,
            "meets_floor": self.meets_floor,
            "resampled_by": self.unit,
            "units": self.unit_count,
            "resamples": RESAMPLES,
            "seed": self.seed,
        }


def read_judgements(path: str | Path) -> tuple[Judgement, ...]:
    """The rows of `judgements.tsv` or `second-judgements.tsv` (there `pass` may be missing).

    A pair may be judged again in a later pass. Raises `DatasetError` naming the line for a score
    other than 0, 1, 2, a pass that is no number from 1, an empty id or judge, and a pair that is
    judged twice in one pass.
    """
    needed = [*LABEL_NAMES, "judge"]
    rows = read_rows(Path(path), _NAMES, needed=needed)
    if rows.faults:
        raise DatasetError(str(rows.faults[0]))
    found: dict[tuple[str, str, int], Judgement] = {}
    for row in rows.rows:
        try:
            judgement = _judgement(row)
            first = found.setdefault(
                (judgement.query, judgement.document, judgement.number), judgement
            )
            if first is not judgement:
                raise RowProblem(
                    f"query {judgement.query!r} and document {judgement.document!r} stand in line "
                    f"{first.line} already, in the same pass {first.number}; one row is allowed"
                )
        except RowProblem as problem:
            raise DatasetError(f"{rows.file}:{row.line}: {problem}") from None
    return tuple(found.values())


def grades_of(
    judgements: Iterable[Judgement], *, which: Literal["first", "last"] = "last"
) -> dict[Pair, int]:
    """The score of each pair, in its last pass (or its first), in the order of the rows."""
    found: dict[Pair, Judgement] = {}
    for judgement in judgements:
        pair = (judgement.query, judgement.document)
        held = found.get(pair)
        if held is None or (judgement.number > held.number) == (which == "last"):
            found[pair] = judgement
    return {pair: judgement.grade for pair, judgement in found.items()}


def sample_for_second_judgement(
    judgements: Iterable[Judgement] | Grades, *, per_grade: int = 50, seed: int = 0
) -> tuple[Pair, ...]:
    """Pairs for a blind second judgement: `per_grade` of each first score, shuffled.

    All of a score that has fewer. The order of the rows does not matter, the seed does. The
    pairs carry no score, and their order tells none.
    """
    grades = judgements if isinstance(judgements, Mapping) else grades_of(judgements)
    rng = np.random.default_rng(seed)
    drawn: list[Pair] = []
    for grade in GRADES:
        stratum = sorted(pair for pair, own in grades.items() if own == grade)
        chosen = rng.choice(len(stratum), size=min(per_grade, len(stratum)), replace=False)
        drawn += [stratum[i] for i in chosen]
    return tuple(drawn[i] for i in rng.permutation(len(drawn)))


def agreement(
    first: Grades,
    second: Grades,
    *,
    cluster: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Agreement:
    """Linear-weighted kappa of a sample stratified by the first score (method.md 9).

    `first` holds every judged pair of the pool, `second` those judged again. Each pair of the
    sample weighs as many as its first score has pairs in the pool for every pair in the sample.
    The interval resamples whole clusters of queries (`cluster`: query id -> cluster, by default
    the query), 2,000 times. None with a note: fewer than 10 clusters, or one score only.
    Raises `DatasetError` for a pair that was never judged first.
    """
    pairs = sorted(second)
    if stranger := next((pair for pair in pairs if pair not in first), None):
        raise DatasetError(
            f"query {stranger[0]!r} and document {stranger[1]!r} are judged a second time but "
            "not a first time; a sample of the judged pairs is expected"
        )
    pool = tuple(sum(grade == own for own in first.values()) for grade in GRADES)
    names = [(cluster or {}).get(query, query) for query, _ in pairs]
    groups = np.unique(np.array(names, dtype=str), return_inverse=True)[1]
    count = int(groups.max(initial=-1)) + 1
    tables = np.zeros((count, len(GRADES), len(GRADES)), dtype=np.int64)
    for group, pair in zip(groups, pairs, strict=True):
        tables[group, first[pair], second[pair]] += 1
    table = tables.sum(axis=0)
    share = _weighted(table, pool)
    value = float(weighted_kappa(table, pool))
    return Agreement(
        kappa=_interval(value, tables, pool, len(pairs), seed=seed),
        same=float(np.trace(share)) if pairs else None,
        table=table,
        pool=pool,
        unit="pair" if count == len(pairs) else "query",
        unit_count=count,
        seed=seed,
    )


def weighted_kappa(table: ArrayLike, pool: Sequence[int] | None = None) -> NDArray[np.float64]:
    """Linear-weighted kappa of tables `[..., first, second]` over the scores 0, 1, 2.

    `pool` weighs each row back to so many pairs; rows without a pair in the sample are left out.
    NaN where chance alone would always agree (one score only) or the table is empty.

    >>> round(float(weighted_kappa([[8, 2, 0], [1, 7, 2], [0, 1, 9]])), 4)
    0.775
    """
    share = _weighted(np.asarray(table), pool)
    by_chance = share.sum(axis=-1)[..., :, None] * share.sum(axis=-2)[..., None, :]
    apart = (share * _APART).sum(axis=(-2, -1))
    expected = (by_chance * _APART).sum(axis=(-2, -1))
    known = expected > 0
    kappa: NDArray[np.float64] = np.where(known, 1 - apart / np.where(known, expected, 1.0), np.nan)
    return kappa


def _weighted(table: NDArray[Any], pool: Sequence[int] | None) -> NDArray[np.float64]:
    """Shares of the pool, which sum to 1, from counts of a sample; zeros for an empty table."""
    counts = table.astype(np.float64)
    rows = counts.sum(axis=-1, keepdims=True)
    if pool is not None:
        counts = counts / np.where(rows > 0, rows, 1.0) * np.asarray(pool, np.float64)[:, None]
    total = counts.sum(axis=(-2, -1), keepdims=True)
    share: NDArray[np.float64] = counts / np.where(total > 0, total, 1.0)
    return share


def _interval(
    value: float, tables: NDArray[np.int64], pool: Sequence[int], n: int, *, seed: int
) -> Rate:
    """Kappa with the percentile interval over resampled clusters, from their tables (G, 3, 3)."""
    if np.isnan(value):
        return Rate(None, None, None, n, "every pair has the same score" if n else "no pair")
    count = len(tables)
    if count < FEWEST_CLUSTERS:
        return Rate(value, None, None, n, "too few queries")
    rng = np.random.default_rng(seed)
    times = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)  # (2000, G)
    drawn = np.einsum("rg,gab->rab", times, tables)
    kappas = weighted_kappa(drawn, pool)
    kappas = kappas[~np.isnan(kappas)]
    low, high = np.percentile(kappas, [2.5, 97.5])
    lost = RESAMPLES - len(kappas)
    missing = tables.sum(axis=(0, 2)) == 0
    unseen = [str(g) for g in GRADES if missing[g] and pool[g]]
    notes = [f"{lost} resamples have one score only"] if lost else []
    notes += [f"no pair of first score {', '.join(unseen)} in the sample"] if unseen else []
    return Rate(value, float(low), float(high), n, "; ".join(notes))


def _judgement(row: Row) -> Judgement:
    query, document, grade, judge = (str(row.fields[name]) for name in (*LABEL_NAMES, "judge"))
    if not (query.strip() and document.strip() and judge.strip()):
        raise RowProblem("the id of the query, of the document or the judge is empty")
    score = integer_of(grade)
    if score not in GRADES:
        raise RowProblem(f"score is {score}; 0, 1 and 2 are allowed")
    number = integer_of(row.fields.get("pass", "1"))
    if number < 1:
        raise RowProblem(f"pass is {number}; a number from 1 is allowed")
    return Judgement(query, document, score, judge, number, row.line)
