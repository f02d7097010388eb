"""Encoders side by side, each at cuts of its own; never at one shared threshold (method.md 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.judge import Worth
from kbeval.evaluation.statistics import (
    CONFIDENCE,
    FEWEST_CLUSTERS,
    Rate,
    mean_interval,
    rate,
)
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import choose, levels_at
from kbeval.evaluation.tuning.ladder import PreciseRule
from kbeval.records import Level
from kbeval.studies.tuning_parts import Ask, Parts, cost_at, held_cuts

MATCHED = (0.8, 0.9, 0.95)  # precisions of HIGHLY_RELEVANT at which coverage is compared
Arm = tuple[str, Parts, PreciseRule]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two encoders on the same held-out queries: cost of the second less that of the first."""

    first: str
    second: str
    difference: Rate
    p: float | None  # two-sided, over clusters; Holm over the pairs

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "first": self.first,
            "second": self.second,
            "difference": self.difference.to_json(),
            "p_holm": self.p,
        }

    def __str__(self) -> str:
        """One line: which is cheaper, or that it cannot be told."""
        low, high = self.difference.low, self.difference.high
        told = "cannot be told apart from"
        if low is not None and high is not None and self.p is not None:
            sure = self.p <= 1 - CONFIDENCE
            told = ("costs more than" if low > 0 else "costs less than") if sure else told
        p = "" if self.p is None else f", p {self.p:.4f}"
        return f"{self.second} {told} {self.first}: {self.difference} a query{p}"


@dataclass(frozen=True, slots=True)
class Matched:
    """One encoder at the largest cut that keeps a precision on the choosing labels.

    `precision` and `coverage` are those that came out on the reported ones; None: no cut keeps it.
    """

    encoder: str
    wanted: float
    precision: Rate | None
    coverage: Rate | None

    def to_json(self) -> dict[str, Any]:
        """Plain values; null where the precision is never reached."""
        return {
            "encoder": self.encoder,
            "wanted": self.wanted,
            "precision": None if self.precision is None else self.precision.to_json(),
            "coverage": None if self.coverage is None else self.coverage.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Each encoder's held-out cost, every pair's difference, coverage at matched precision."""

    cost: dict[str, Rate]
    pairs: tuple[Pair, ...]
    matched: tuple[Matched, ...]

    def not_matched(self, wanted: float) -> bool:
        """Whether the precisions that came out differ by more than their intervals."""
        came = [m.precision for m in self.matched if m.wanted == wanted and m.precision]
        lows = [p.low for p in came if p.low is not None]
        highs = [p.high for p in came if p.high is not None]
        return bool(lows and highs and max(lows) > min(highs))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "expected_cost": {name: cost.to_json() for name, cost in self.cost.items()},
            "pairs": [pair.to_json() for pair in self.pairs],
            "matched_precision": [
                row.to_json() | {"not_matched": self.not_matched(row.wanted)}
                for row in self.matched
            ],
        }


def compare_encoders(arms: Sequence[Arm], ask: Ask) -> Comparison:
    """Compare held-out expected_cost on the queries that every encoder has, paired by query."""
    shared = _shared([parts.reported.query for _, parts, _ in arms])
    costs, cluster = {}, np.zeros(0, dtype=np.int64)
    for name, parts, rule in arms:
        judged = parts.reported
        kept = np.isin(judged.query, shared)
        cost = cost_at(judged, held_cuts(parts, ask, rule), ask.costs, rule)
        costs[name], cluster = cost[kept], judged.cluster[kept]
    found = [
        (a, b, mean_interval(costs[b] - costs[a], cluster, empty="no query"))
        for a, b in combinations(costs, 2)
    ]
    count = len(np.unique(cluster))
    chance = holm([_chance(difference, count) for _, _, difference in found])
    return Comparison(
        cost={
            name: mean_interval(cost, cluster, bounds=ask.costs.bounds)
            for name, cost in costs.items()
        },
        pairs=tuple(
            Pair(a, b, difference, p) for (a, b, difference), p in zip(found, chance, strict=True)
        ),
        matched=tuple(
            _matched(name, parts, ask, rule, wanted)
            for wanted in MATCHED
            for name, parts, rule in arms
            if not parts.folded
        ),
    )


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """Holm's adjustment of p-values, in their own order; None stays.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = sorted((p, place) for place, p in enumerate(chances) if p is not None)
    adjusted: list[float | None] = [None] * len(chances)
    least = 0.0
    for step, (p, place) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - step)))
        adjusted[place] = round(least, 12)
    return adjusted


def _chance(difference: Rate, clusters: int) -> float | None:
    """Two-sided p of a paired mean difference, from its t interval over clusters."""
    from scipy.special import stdtr, stdtrit

    if difference.value is None or difference.high is None or clusters < FEWEST_CLUSTERS:
        return None
    wide = float(stdtrit(clusters - 1, (1 + CONFIDENCE) / 2))
    error = (difference.high - difference.value) / wide
    return float(2 * stdtr(clusters - 1, -abs(difference.value) / error)) if error > 0 else None


def _matched(name: str, parts: Parts, ask: Ask, rule: PreciseRule, wanted: float) -> Matched:
    found = choose(
        parts.chosen_on,
        Constraints(precision=wanted),
        normalization=ask.present,
        precise_requires=rule,
    )
    if isinstance(found, Infeasible):
        return Matched(name, wanted, None, None)
    judged = parts.reported
    level = levels_at(judged, *found.distances, rule)
    closed, among = level == Level.HIGHLY_RELEVANT, judged.answerable
    right = judged.worth[closed] == Worth.ANSWERS
    return Matched(
        name,
        wanted,
        rate(right, judged.cluster[closed], empty="no query was graded HIGHLY_RELEVANT"),
        rate(closed[among], judged.cluster[among], empty="no answerable query"),
    )


def _shared(queries: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    shared = queries[0]
    for other in queries[1:]:
        shared = np.intersect1d(shared, other)
    return shared
