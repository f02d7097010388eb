"""The largest cut that keeps a precision, found anew on every resample (method.md 9).

Each encoder meets the same resamples. On one of them a cut is found by running sums over the
ladder of the choosing labels and read off running sums over the reported ones; without a dev
split the cuts come from the other folds, once, and only the reported clusters are drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.config import Normalization
from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.tuning.constraints import Constraints
from kbeval.evaluation.tuning.cuts import levels_at
from kbeval.evaluation.tuning.folds import fold_numbers, group_codes, out_of_fold
from kbeval.evaluation.tuning.ladder import Ladder, PreciseRule, ladder, largest_max_of
from kbeval.evaluation.tuning.plateau import Interval, midway
from kbeval.records import Level

RIGHT, GRADED, COVERED, ANSWERABLE = range(4)  # what is summed over reported queries
Counts = NDArray[np.int64]  # how often each query is drawn, (n,)
Again = Callable[[Counts, Counts], tuple[NDArray[np.float64], NDArray[np.bool_]]]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One encoder's labels: those that choose, those that report, and its rule of PRECISE.

    `groups` (n,) of the queries are those of the folds; None: dev chooses and test reports.
    """

    name: str
    chosen_on: Judged
    reported: Judged
    rule: PreciseRule = "unique"
    groups: NDArray[np.int64] | None = None
    seed: int = 0  # of the folds


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """One side at each wanted precision, p of them.

    `columns` (p, 4, n): HIGHLY_RELEVANT that answer, HIGHLY_RELEVANT, answerable ones graded so or
    better, answerable; in folds each a mean over repetitions. `cuts` (p,) is -inf where no cut
    keeps the precision, NaN in folds. `reached_share` (p,) of the trainings keep it. `again` gives
    for counts per query, of dev and of test, the sums (p, 4) and what was reached (p,).
    """

    columns: NDArray[np.float64]
    cuts: NDArray[np.float64]
    reached_share: NDArray[np.float64]
    again: Again


def placed(side: Side, wanted: Sequence[float], normalization: Normalization) -> Placed:
    """Place one side's cuts on dev, or on the other folds."""
    if side.groups is not None:
        return _out_of_fold(side, wanted, normalization)
    largest = largest_max_of(side.chosen_on, normalization.max_l2_distance)
    tuned = ladder(side.chosen_on, precise_requires=side.rule, largest_max=largest)
    cuts_at = cut_finder(tuned, wanted)
    sums_at = _reader(ladder(side.reported, precise_requires=side.rule))

    def again(dev: Counts, test: Counts) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        cuts = cuts_at(dev)
        return sums_at(test, cuts), cuts > -math.inf

    cuts = cuts_at(np.ones(len(tuned), np.int64))
    level = [levels_at(side.reported, cut, cut, side.rule) for cut in cuts]
    columns = np.stack([_columns(side.reported, one[None]) for one in level])
    return Placed(columns, cuts, (cuts > -math.inf).astype(np.float64), again)


def resampled(
    sides: Sequence[Side], found: Sequence[Placed], *, resamples: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Sums and what was reached on each resample of whole clusters of dev and of test.

    Shapes (resamples, sides, p, 4) and (resamples, sides, p). All sides meet the same draws, as
    their queries are the same, in the same order.
    """
    rng = np.random.default_rng(seed)
    draws = [_drawing(judged.cluster, rng) for judged in (sides[0].chosen_on, sides[0].reported)]
    precisions = found[0].columns.shape[0]
    sums = np.empty((resamples, len(sides), precisions, 4))
    reached = np.empty((resamples, len(sides), precisions), dtype=np.bool_)
    for row in range(resamples):
        dev, test = (draw() for draw in draws)
        for place, one in enumerate(found):
            sums[row, place], reached[row, place] = one.again(dev, test)
    return sums, reached


def cut_finder(tuned: Ladder, wanted: Sequence[float]) -> Callable[[Counts], NDArray[np.float64]]:
    """For counts per query the cut of most coverage that keeps each precision, -inf: none does.

    Of cuts with equal coverage the strictest, midway to the next drawn distance: the one that
    `choose` gives for the drawn queries.
    """
    each, near = _in_order(tuned), tuned.distance[tuned.order]
    bounds = [Fraction(str(precision)) for precision in wanted]

    def cuts_at(counts: Counts) -> NDArray[np.float64]:
        count = counts[tuned.order]
        drawn = np.flatnonzero(count)
        right, graded, covered = _running(each, count)[:, tuned.end]
        cuts = np.full(len(bounds), -math.inf)
        for place, least in enumerate(bounds):
            holds = (graded > 0) & (right * least.denominator >= least.numerator * graded)
            kept = np.flatnonzero(holds)
            if len(kept):
                rung = kept[np.searchsorted(covered[kept], covered[kept[-1]])]
                cuts[place] = midway(_gap(near, drawn, int(tuned.end[rung])))
        return cuts

    return cuts_at


def _gap(near: NDArray[np.float64], drawn: NDArray[np.int64], end: int) -> Interval:
    """Between the last drawn distance of the first `end` and the next drawn one."""
    beyond = int(np.searchsorted(drawn, end))
    refused = float(near[drawn[beyond]]) if beyond < len(drawn) else math.inf
    return Interval(float(near[drawn[beyond - 1]]), refused)


def _reader(tuned: Ladder) -> Callable[[Counts, NDArray[np.float64]], NDArray[np.float64]]:
    """Sums (p, 4) over reported queries at cuts (p,), under counts per query."""
    each, near = _in_order(tuned), tuned.distance[tuned.order]
    answerable = tuned.answerable.astype(np.int64)
    precise = answerable * tuned.precise

    def sums_at(counts: Counts, cuts: NDArray[np.float64]) -> NDArray[np.float64]:
        running = _running(each, counts[tuned.order])
        sums = np.full((len(cuts), 4), float(counts @ answerable))
        sums[:, : COVERED + 1] = running[:, np.searchsorted(near, cuts, side="right")].T
        sums[:, COVERED] += counts @ precise
        return sums

    return sums_at


def _in_order(tuned: Ladder) -> NDArray[np.int64]:
    """What a cut can close, nearest first, (3, k): it answers, it is one, it is answerable."""
    every = np.full(len(tuned), True)
    kinds = np.stack([tuned.worth == Worth.ANSWERS, every, tuned.answerable])
    return kinds[:, tuned.order].astype(np.int64)


def _running(each: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Weighted sums of the first 0, 1, ... k: (3, k) and (k,) -> (3, k + 1)."""
    sums = np.zeros((3, len(count) + 1), dtype=np.int64)
    np.cumsum(each * count, axis=1, out=sums[:, 1:])
    return sums


def _out_of_fold(side: Side, wanted: Sequence[float], normalization: Normalization) -> Placed:
    """Cuts from the other folds, chosen once; a query counts by its mean over repetitions."""
    judged = side.reported
    code = group_codes(judged, side.groups)
    numbers = fold_numbers(code, judged.answerable, seed=side.seed)
    columns, shares = [], []
    for precision in wanted:
        held = out_of_fold(
            judged,
            Constraints(precision=precision),
            numbers,
            normalization=normalization,
            precise_requires=side.rule,
        )
        pairs: Any = zip(held.highly_relevant, held.reference, strict=True)  # one cut a query
        level = [levels_at(judged, high, reference, side.rule) for high, reference in pairs]
        columns.append(_columns(judged, np.stack(level)))
        shares.append(1 - held.infeasible_count / held.training_count)
    share = np.array(shares)
    stacked = np.stack(columns)

    def again(_: Counts, test: Counts) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        return stacked @ test, share > 0

    return Placed(stacked, np.full(len(wanted), np.nan), share, again)


def precise_at(judged: Judged, rule: PreciseRule) -> NDArray[np.bool_]:
    """The answerable queries that are PRECISE, which no cut changes, of shape (n,)."""
    level = levels_at(judged, -math.inf, -math.inf, rule)
    precise: NDArray[np.bool_] = (level == Level.PRECISE) & judged.answerable
    return precise


def _columns(judged: Judged, level: NDArray[np.int8]) -> NDArray[np.float64]:
    """What is summed, a value a query: levels (repetitions, n) -> (4, n)."""
    graded = (level == Level.HIGHLY_RELEVANT).mean(axis=0)
    covered = (level >= Level.HIGHLY_RELEVANT).mean(axis=0)
    answers = judged.worth == Worth.ANSWERS
    rows = [graded * answers, graded, covered * judged.answerable, judged.answerable]
    return np.stack(rows).astype(np.float64)


def _drawing(cluster: NDArray[np.int64], rng: np.random.Generator) -> Callable[[], Counts]:
    """Draws as many clusters as there are, with replacement, as counts per query."""
    code = np.unique(cluster, return_inverse=True)[1]
    count = int(code.max()) + 1

    def draw() -> Counts:
        drawn = np.bincount(rng.integers(0, count, count), minlength=count)
        return drawn[code].astype(np.int64)

    return draw
