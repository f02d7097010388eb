"""How much the cuts move when other queries had been labelled: the stability range (method.md 7).

Clusters are drawn with replacement and the cuts tuned anew. The optimum of a step function
converges slowly and the bootstrap is not consistent for it, so the range is a picture of how much
the cuts move, never a confidence interval. Queries are sorted once; a resample is a count per
query, in the order of the ladder, and one row of counts stays in the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.tuning.constraints import Infeasible
from kbeval.evaluation.tuning.cuts import Objective, best_cuts
from kbeval.evaluation.tuning.ladder import Ladder, PreciseRule, ladder, largest_max_of
from kbeval.evaluation.tuning.objectives import accuracy_costs, require_three_grades
from kbeval.evaluation.tuning.plateau import Interval, decimal, finite, midway
from kbeval.records import Level
from kbeval.retrieval.grading import DECIMALS

RESAMPLES = 1000
RANGE = (0.025, 0.975)  # of the re-tuned cuts
BARRED = 1 << 60  # above every sum of costs; two of them still fit
Pair = Callable[[NDArray[np.int64]], tuple[int, int] | None]  # how many each cut accepts


@dataclass(frozen=True, slots=True)
class Movement:
    """Where one cut went: the 2.5 to 97.5 % range of the re-tuned cuts, and their median.

    Distances; -inf: the level was not used, inf: nothing observed was refused. None where no
    resample could be tuned.
    """

    level: Level
    low: float | None
    high: float | None
    steady: float | None  # the median, itself a cut that one of the resamples had
    not_used_count: int
    no_limit_count: int

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite end is null, and the counts tell which."""
        return {
            "stability_range": [_plain(self.low), _plain(self.high)],
            "steady": _plain(self.steady),
            "not_used_count": self.not_used_count,
            "no_limit_count": self.no_limit_count,
        }

    def __str__(self) -> str:
        """One line, in distances."""
        if self.low is None or self.high is None or self.steady is None:
            return f"{self.level.name}: no resample could be tuned"
        low, high, steady = (_told(end) for end in (self.low, self.high, self.steady))
        return f"{self.level.name}: stability range {low} to {high}, steady {steady}"


@dataclass(frozen=True, slots=True)
class Stability:
    """The re-tuned cuts of many resamples; `infeasible_count` of them had no pair at all."""

    highly_relevant: Movement
    reference: Movement
    resamples: int
    infeasible_count: int
    clusters: int
    seed: int

    @property
    def ranges(self) -> dict[Level, tuple[float, float]]:
        """The stability range by level, as `cuts.hinges_on` takes it."""
        moved = (self.highly_relevant, self.reference)
        return {m.level: (m.low, m.high) for m in moved if m.low is not None and m.high is not None}

    @property
    def steady(self) -> tuple[float, float] | None:
        """The median cuts, of HIGHLY_RELEVANT and REFERENCE; never crossed."""
        high, reference = self.highly_relevant.steady, self.reference.steady
        return None if high is None or reference is None else (high, reference)

    def to_json(self) -> dict[str, Any]:
        """Plain values, by level."""
        return {
            "resamples": self.resamples,
            "infeasible_count": self.infeasible_count,
            "clusters": self.clusters,
            "seed": self.seed,
            "cuts": {m.level.name: m.to_json() for m in (self.highly_relevant, self.reference)},
        }


def stability(
    judged: Judged,
    objective: Objective,
    *,
    normalization: Normalization | None = None,
    precise_requires: PreciseRule = "unique",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Stability:
    """The stability range of both cuts, by resampling the clusters of `judged`.

    `normalization` is the present setting, as for `choose`. Raises `ConfigError` without a query
    or a resample, or for an objective these labels cannot serve.
    """
    present = 0.0 if normalization is None else normalization.max_l2_distance
    largest = largest_max_of(judged, present)
    tuned = ladder(judged, precise_requires=precise_requires, largest_max=largest)
    cuts = resampled_cuts(tuned, objective, judged.cluster, resamples=resamples, seed=seed)
    return summary(cuts, clusters=len(np.unique(judged.cluster)), seed=seed)


def summary(cuts: NDArray[np.float64], *, clusters: int, seed: int) -> Stability:
    """The ranges and medians of re-tuned cuts of shape (resamples, 2); NaN: infeasible."""
    kept = cuts[~np.isnan(cuts[:, 0])]
    high, reference = (
        _movement(level, np.sort(kept[:, column]))
        for column, level in enumerate((Level.HIGHLY_RELEVANT, Level.REFERENCE))
    )
    return Stability(high, reference, len(cuts), len(cuts) - len(kept), clusters, seed)


def resampled_cuts(
    tuned: Ladder,
    objective: Objective,
    cluster: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> NDArray[np.float64]:
    """The cut distances tuned on each resample of clusters, of shape (resamples, 2).

    `cluster` (n,) belongs to the ladder's queries. A row equals what tuning the drawn queries by
    themselves gives: their own gaps, their own middle. NaN where no pair keeps the constraints.
    Raises `ConfigError` without a query or a resample, or for accuracy and macro-F1 on labels
    that cannot place two cuts.
    """
    if not len(tuned) or resamples < 1:
        raise ConfigError(f"{len(tuned)} queries, {resamples} resamples: at least 1 of each")
    pair = _additive_pair(tuned, objective) or _any_pair(tuned, objective)
    near = tuned.distance[tuned.order]
    cuts = np.full((resamples, 2), np.nan)
    for row, count in enumerate(resample_counts(tuned, cluster, resamples=resamples, seed=seed)):
        ends = pair(count)
        if ends is not None:
            cuts[row] = [midway(_gap(near, count, end)) for end in ends]
    return cuts


def resample_counts(
    tuned: Ladder, cluster: ArrayLike, *, resamples: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    """How often each query is drawn, one resample after the other, of shape (n,).

    In the order of `ladder_order`. As many clusters are drawn as there are, with replacement.
    """
    rng = np.random.default_rng(seed)
    code = np.asarray(cluster)[ladder_order(tuned)]
    first, inverse = np.unique(code, return_index=True, return_inverse=True)[1:]
    place = np.argsort(np.argsort(first))[inverse]  # numbered as the ladder meets them
    total = len(first)
    alone = total == len(code)  # then place is 0, 1, 2, ... and need not be looked up
    for _ in range(resamples):
        drawn = np.bincount(rng.integers(0, total, total, dtype=np.int32), minlength=total)
        yield drawn if alone else drawn[place]


def ladder_order(tuned: Ladder) -> NDArray[np.int64]:
    """Positions of the queries: those a cut can accept, nearest first, then the others."""
    rest = np.full(len(tuned), True)
    rest[tuned.order] = False
    return np.concatenate([tuned.order, np.flatnonzero(rest)]).astype(np.int64)


def _additive_pair(tuned: Ladder, objective: Objective) -> Pair | None:
    """The strictest best pair for counts in ladder order; None: not a sum of costs.

    As `objectives.additive`, but in place: what lies inside a rung is barred, not cut out.
    """
    if objective == "accuracy":
        require_three_grades(tuned, "accuracy")
        table = accuracy_costs()
    elif isinstance(objective, Costs):
        table = objective.scaled()
    else:
        return None
    worth = tuned.worth[tuned.order]
    close = (table[Level.HIGHLY_RELEVANT] - table[Level.REFERENCE])[worth]
    give = (table[Level.REFERENCE] - table[Level.NOT_FOUND])[worth]
    give[tuned.exact[tuned.order]] = 0
    k = len(worth)
    barred = np.full(k + 1, BARRED, dtype=np.int64)
    barred[tuned.end] = 0

    high, reference, added = np.zeros(k + 1, np.int64), np.zeros(k + 1, np.int64), barred.copy()

    def fill(sums: NDArray[np.int64], count: NDArray[np.int64], each: NDArray[np.int64]) -> None:
        np.multiply(count[:k], each, out=added[1:])
        np.cumsum(added[1:], out=sums[1:])
        sums[1:] += barred[1:]

    def pair(count: NDArray[np.int64]) -> tuple[int, int]:
        fill(high, count, close)
        fill(reference, count, give)
        least = np.minimum.accumulate(reference[::-1])[::-1]
        i = int(np.argmin(np.add(high, least, out=added)))
        return i, i + int(np.argmax(reference[i:] == least[i]))

    return pair


def _any_pair(tuned: Ladder, objective: Objective) -> Pair:
    """The same through the front door, for constraints and macro-F1."""
    at = ladder_order(tuned)

    def pair(count: NDArray[np.int64]) -> tuple[int, int] | None:
        weights = np.empty(len(tuned), dtype=np.int64)
        weights[at] = count
        found = best_cuts(tuned, objective, weights=weights)
        if isinstance(found, Infeasible):
            return None
        high, reference = found.rungs
        return int(tuned.end[high]), int(tuned.end[reference])

    return pair


def _gap(near: NDArray[np.float64], drawn: NDArray[np.int64], end: int) -> Interval:
    """Between the last drawn distance of the first `end` and the next drawn one."""
    last, first = end - 1, end
    while last >= 0 and not drawn[last]:
        last -= 1
    while first < len(near) and not drawn[first]:
        first += 1
    return Interval(
        float(near[last]) if last >= 0 else -math.inf,
        float(near[first]) if first < len(near) else math.inf,
    )


def _movement(level: Level, cuts: NDArray[np.float64]) -> Movement:
    """Order statistics, so that an infinite cut needs no arithmetic; `cuts` ascending."""
    if not len(cuts):
        return Movement(level, None, None, None, 0, 0)
    low, steady, high = (
        float(cuts[max(math.ceil(round(q * len(cuts), DECIMALS)) - 1, 0)])
        for q in (RANGE[0], 0.5, RANGE[1])
    )
    unused, unlimited = int((cuts == -math.inf).sum()), int((cuts == math.inf).sum())
    return Movement(level, low, high, steady, unused, unlimited)


def _plain(value: float | None) -> float | None:
    return None if value is None else finite(value)


def _told(distance: float) -> str:
    if math.isfinite(distance):
        return decimal(distance)
    return "not used" if distance < 0 else "no limit"
