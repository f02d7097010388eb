"""Match encoders at a precision: cuts from dev, coverage from test, intervals from both.

On dev each encoder gets the cut of most coverage that keeps the precision; on test stand its
coverage and the precision that came out. Intervals come from resampling dev and test clusters and
matching anew each time, so they hold what the choice of the cut adds (method.md 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.paired import holm
from kbeval.evaluation.statistics import (
    FEWEST_CLUSTERS,
    STEADY_CLUSTERS,
    Rate,
    cluster_rate,
    rate,
)
from kbeval.evaluation.tuning.matched import CoverageGap, Matched, Matching
from kbeval.evaluation.tuning.rematching import (
    ANSWERABLE,
    COVERED,
    GRADED,
    RIGHT,
    Placed,
    Side,
    placed,
    precise_at,
    resampled,
)

PRECISIONS = (0.8, 0.9, 0.95)  # of HIGHLY_RELEVANT
RESAMPLES = 2000
ENDS = (0.025, 0.975)
EMPTY = "no query was graded HIGHLY_RELEVANT"


def match_precision(
    sides: Sequence[Side],
    *,
    wanted: Sequence[float] = PRECISIONS,
    normalization: Normalization | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Matching:
    """Compare coverage where every encoder keeps the same precisions (method.md 9).

    `normalization` is the present setting, as for `choose`. A resample on which an encoder cannot
    keep a precision counts with HIGHLY_RELEVANT unused. Raises `ConfigError` where the sides are
    not the same queries, a precision is no rate above 0, or there is no resample.
    """
    _check(sides, wanted, resamples)
    found = [placed(side, wanted, normalization or Normalization()) for side in sides]
    draws = _Draws.of(sides, resampled(sides, found, resamples=resamples, seed=seed))
    rows, pairs = [], []
    for p, precision in enumerate(wanted):
        row = [_matched(side, found[s], precision, (s, p), draws) for s, side in enumerate(sides)]
        gaps = [_gap(row, (a, b, p), draws) for a, b in combinations(range(len(sides)), 2)]
        adjusted = holm([gap.p for gap in gaps])
        rows += row
        pairs += [replace(gap, p_holm=p) for gap, p in zip(gaps, adjusted, strict=True)]
    return Matching(tuple(rows), tuple(pairs), resamples, draws.folded)


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    """Rates on each resample, of shape (resamples, sides, p); NaN where nothing is counted."""

    coverage: NDArray[np.float64]
    precision: NDArray[np.float64]
    reached: NDArray[np.bool_]
    clusters: int  # of the smaller part
    folded: bool

    @classmethod
    def of(
        cls, sides: Sequence[Side], drawn: tuple[NDArray[np.float64], NDArray[np.bool_]]
    ) -> _Draws:
        sums, reached = drawn
        parts = (sides[0].chosen_on, sides[0].reported)
        return cls(
            coverage=_share(sums[..., COVERED], sums[..., ANSWERABLE]),
            precision=_share(sums[..., RIGHT], sums[..., GRADED]),
            reached=reached,
            clusters=min(len(np.unique(judged.cluster)) for judged in parts),
            folded=sides[0].groups is not None,
        )

    def rate(self, value: float | None, drawn: NDArray[np.float64], n: int) -> Rate:
        """A value with the middle 95 % of its draws of shape (resamples,)."""
        known = drawn[~np.isnan(drawn)]
        if value is None or not len(known):
            return Rate(None, None, None, n, EMPTY)
        if self.clusters < FEWEST_CLUSTERS:
            return Rate(value, None, None, n, "too few clusters")
        low, high = np.quantile(known, ENDS).tolist()
        steady = "approximate" if self.folded or self.clusters < STEADY_CLUSTERS else ""
        return Rate(value, low, high, n, steady)

    def chance(self, drawn: NDArray[np.float64]) -> float | None:
        """Two-sided p of "no difference": how far the draws lie on one side of 0."""
        known = drawn[~np.isnan(drawn)]
        if self.clusters < FEWEST_CLUSTERS or not len(known):
            return None
        fewer = min(int((known <= 0).sum()), int((known >= 0).sum()))
        return min(1.0, 2 * (fewer + 1) / (len(known) + 1))


def _matched(
    side: Side, found: Placed, wanted: float, place: tuple[int, int], draws: _Draws
) -> Matched:
    s, p = place
    columns, share = found.columns[p], float(draws.reached[:, s, p].mean())
    answerable = round(float(columns[ANSWERABLE].sum()))
    floor = float(precise_at(side.reported, side.rule).sum()) / answerable if answerable else None
    if not found.reached_share[p]:
        never = Rate(None, None, None, 0, f"never {wanted:g}")
        return Matched(side.name, wanted, False, None, never, never, floor, share)
    covered = float(columns[COVERED].sum()) / answerable if answerable else None
    coverage = draws.rate(covered, draws.coverage[:, s, p], answerable)
    precision = _precision(columns, side.reported, folded=draws.folded)
    if draws.folded:
        share = float(found.reached_share[p])
    cut = None if draws.folded else float(found.cuts[p])
    return Matched(side.name, wanted, True, cut, precision, coverage, floor, share)


def _precision(columns: NDArray[np.float64], judged: Judged, *, folded: bool) -> Rate:
    """Of the queries these cuts grade HIGHLY_RELEVANT; in folds pooled over repetitions."""
    right, graded = columns[RIGHT], columns[GRADED]
    if folded:
        pooled = cluster_rate(right, graded, judged.cluster, empty=EMPTY)
        note = "approximate" if pooled.low is not None else pooled.note
        return replace(pooled, n=round(float(graded.sum())), note=note)
    closed = graded > 0
    return rate(right[closed] > 0, judged.cluster[closed], empty=EMPTY)


def _gap(row: Sequence[Matched], place: tuple[int, int, int], draws: _Draws) -> CoverageGap:
    """The second of a pair less the first; without a difference where one is never matched."""
    a, b, p = place
    first, second = row[a], row[b]
    never = [one.encoder for one in (first, second) if not one.reached]
    if never:
        none = Rate(None, None, None, 0, f"{' and '.join(never)} never {first.wanted:g}")
        return CoverageGap(first.encoder, second.encoder, first.wanted, none, none, None, None)
    coverage = draws.coverage[:, b, p] - draws.coverage[:, a, p]
    precision = draws.precision[:, b, p] - draws.precision[:, a, p]
    n = second.coverage.n
    return CoverageGap(
        first.encoder,
        second.encoder,
        first.wanted,
        draws.rate(_less(second.coverage, first.coverage), coverage, n),
        draws.rate(_less(second.precision, first.precision), precision, second.precision.n),
        draws.chance(coverage),
        None,
    )


def _less(one: Rate, other: Rate) -> float | None:
    return None if one.value is None or other.value is None else one.value - other.value


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    share: NDArray[np.float64] = np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)
    return share


def _check(sides: Sequence[Side], wanted: Sequence[float], resamples: int) -> None:
    if len(sides) < 2 or resamples < 1:
        raise ConfigError(
            f"{len(sides)} encoders, {resamples} resamples: at least 2 encoders and 1 resample"
        )
    for precision in wanted:
        if not 0 < precision <= 1:
            raise ConfigError(f"precision: got {precision}; above 0 and at most 1 is expected")
    first = sides[0]
    for other in sides[1:]:
        same = (first.groups is None) == (other.groups is None)
        pairs = ((first.chosen_on, other.chosen_on), (first.reported, other.reported))
        if not same or not all(_alike(ours, theirs) for ours, theirs in pairs):
            raise ConfigError(
                f"{first.name} and {other.name} were not judged on the same queries; "
                "only paired by query can encoders be compared"
            )


def _alike(one: Judged, other: Judged) -> bool:
    names = ("query", "cluster", "answerable")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
