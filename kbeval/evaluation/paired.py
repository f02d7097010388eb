"""Two runs on the same queries: do they differ, and how small a difference could be seen (9).

Differences are summed per cluster (session, else need, else query) and a whole cluster changes
its sign: flipping queries one by one finds differences where sessions alone made them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import ConfigError
from kbeval.evaluation.statistics import CONFIDENCE, Rate, mean_interval

DRAWS = 9_999
EXACT = 13  # clusters that differ, up to which every assignment of signs is tried
FEWEST_DIFFERING = 6  # clusters; with fewer no p lies below 0.05, as 2 / 2^5 does not
POWER = 0.8
_CHUNK = 1 << 22  # signs drawn at once


@dataclass(frozen=True, slots=True)
class Paired:
    """The mean of a paired difference per query, second less first, tested over clusters.

    `p` is two-sided, by flipping the signs of whole clusters, before any adjustment; None
    without a query. `detectable` is the least true difference that these labels would show in 4 of
    5 samples (method.md 9); None where every query differs alike or clusters are too few.
    """

    difference: Rate
    p: float | None
    detectable: float | None
    clusters: int
    differing_clusters: int
    differing_rows: int

    def rows_for(self, margin: float) -> int | None:
        """The rows (and clusters in proportion) that would bring `detectable` to a margin above 0.

        >>> round(Paired(Rate(0.1, 0.0, 0.2, 100), 0.05, 0.14, 100, 60, 60).rows_for(0.02))
        4900
        """
        if self.detectable is None or margin <= 0:
            return None
        return math.ceil(round(self.difference.n * (self.detectable / margin) ** 2, 6))

    @property
    def note(self) -> str:
        """Why no difference could be found here, whatever it is; empty where one could."""
        n = self.difference.n
        if n and not self.differing_rows:
            return f"0 of {n} differ; at most {min(3 / self.clusters, 1):.3g} would (95 %)"
        if n and self.differing_clusters < FEWEST_DIFFERING:
            return (
                f"{self.differing_clusters} of {self.clusters} clusters differ; fewer than "
                f"{FEWEST_DIFFERING} cannot give p below 0.05"
            )
        return ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "difference": self.difference.to_json(),
            "p": self.p,
            "detectable": self.detectable,
            "clusters": self.clusters,
            "differing_clusters": self.differing_clusters,
            "differing": self.differing_rows,
            "note": self.note,
        }


def paired_difference(
    difference: ArrayLike,
    cluster: ArrayLike | None = None,
    *,
    tests: int = 1,
    draws: int = DRAWS,
    seed: int = 0,
) -> Paired:
    """Test the mean of differences of shape (n,), one a query, over clusters of shape (n,).

    `tests` is how many are made together: it enters what is detectable, not `p`, which `holm`
    adjusts. Raises `ConfigError` for a difference that is not finite, another length of
    `cluster`, or fewer than 1 draw or test.
    """
    value, code = _checked(difference, cluster, draws=draws, tests=tests)
    found = mean_interval(value, code, empty="no query")
    sums = _cluster_sums(value, code)
    error = _error(found, len(sums))
    return Paired(
        difference=found,
        p=sign_flip(value, code, draws=draws, seed=seed) if len(value) else None,
        detectable=None if error is None else detectable(error, tests=tests),
        clusters=len(sums),
        differing_clusters=int(np.count_nonzero(sums)),
        differing_rows=int(np.count_nonzero(value)),
    )


def sign_flip(
    difference: ArrayLike, cluster: ArrayLike | None = None, *, draws: int = DRAWS, seed: int = 0
) -> float:
    """Two-sided p of "no difference", flipping the signs of whole clusters (method.md 9).

    Both arguments have shape (n,). The statistic is the sum of the differences. Exact where at
    most 13 clusters differ (the others change nothing), else (b + 1) / (draws + 1). Raises
    `ConfigError` as `paired_difference` does.

    >>> sign_flip([1, 1, 1, 1, 1, 1])
    0.03125
    """
    value, code = _checked(difference, cluster, draws=draws)
    sums = _cluster_sums(value, code)
    moved = sums[sums != 0]
    least = abs(float(moved.sum())) - 1e-9 * float(np.abs(moved).sum())  # ties count
    if len(moved) <= EXACT:
        signs = 1.0 - 2.0 * (np.arange(1 << len(moved))[:, None] >> np.arange(len(moved)) & 1)
        return float((np.abs(signs @ moved) >= least).mean())
    rng, reached, left = np.random.default_rng(seed), 0, draws
    while left:
        size = min(left, max(1, _CHUNK // len(moved)))
        flipped = rng.integers(0, 2, (size, len(moved)), dtype=np.int8) @ (2 * moved) - moved.sum()
        reached += int((np.abs(flipped) >= least).sum())
        left -= size
    return (reached + 1) / (draws + 1)


def detectable(error: float, *, tests: int = 1) -> float:
    """The true difference found with power 80 % at 5 % two-sided, from its standard error.

    With several tests at the first step of Holm's procedure.

    >>> round(detectable(1.0), 2), round(detectable(1.0, tests=4), 2)
    (2.8, 3.34)
    """
    from scipy.special import ndtri

    return float(ndtri(1 - (1 - CONFIDENCE) / (2 * tests)) + ndtri(POWER)) * error


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


def _checked(
    difference: ArrayLike, cluster: ArrayLike | None, *, draws: int, tests: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The differences, those that rounding alone made as 0, and a number for each cluster."""
    value = np.asarray(difference, dtype=np.float64)
    given = np.arange(len(value)) if cluster is None else np.asarray(cluster)
    if given.shape != value.shape or value.ndim != 1:
        raise ConfigError(
            f"differences have shape {value.shape}, clusters {given.shape}; (n,) twice is expected"
        )
    if not np.isfinite(value).all():
        raise ConfigError(f"difference {int(np.argmin(np.isfinite(value)))} is not finite")
    if draws < 1 or tests < 1:
        raise ConfigError(f"draws {draws}, tests {tests}: at least 1 of each is expected")
    known = np.where(np.abs(value) > 1e-12 * np.abs(value).max(initial=0.0), value, 0.0)
    return known, np.unique(given, return_inverse=True)[1].astype(np.int64)


def _error(mean: Rate, clusters: int) -> float | None:
    """The standard error that a mean's t interval rests on; None without an interval."""
    from scipy.special import stdtrit

    if mean.value is None or mean.high is None:
        return None
    return (mean.high - mean.value) / float(stdtrit(clusters - 1, (1 + CONFIDENCE) / 2))


def _cluster_sums(value: NDArray[np.float64], code: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums by cluster, (G,); one that only rounding keeps from 0 is 0."""
    sums = np.bincount(code, value).astype(np.float64)
    sums[np.abs(sums) <= 1e-12 * np.bincount(code, np.abs(value))] = 0.0
    return sums
