"""Rates with their intervals, and how many labels a claim needs (method.md 6, 7).

Rows belong to clusters (session, else need, else the query itself). Where every cluster has one
row a rate gets Wilson's interval; else rows are summed per cluster and the interval is that of a
ratio over clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import ConfigError

CONFIDENCE = 0.95
FEWEST_CLUSTERS = 10  # below: no interval
STEADY_CLUSTERS = 40  # below: the interval is approximate
NO_SPREAD = "all are equal: no spread"  # the note of a value on which all clusters agree


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate or a mean with its 95 % interval, over `n` rows.

    `value` is None where the denominator is empty, `low` and `high` where no interval can be
    given; `note` then says why, or that the interval is approximate.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The keys value, low, high, n, and note where there is one.

        >>> Rate(0.5, 0.25, 0.75, 8).to_json()
        {'value': 0.5, 'low': 0.25, 'high': 0.75, 'n': 8}
        """
        known = {"value": self.value, "low": self.low, "high": self.high, "n": self.n}
        return known | ({"note": self.note} if self.note else {})

    def __str__(self) -> str:
        """`value [low, high] n`, a dash for what is not known."""
        value, low, high = (
            "-" if part is None else f"{part:.3f}" for part in (self.value, self.low, self.high)
        )
        return f"{value} [{low}, {high}] {self.n}" + (f" ({self.note})" if self.note else "")


def wilson(success_count: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's interval for `success_count` of `n` independent rows; (0, 1) if n is 0.

    >>> [round(end, 4) for end in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    from scipy.special import ndtri

    if n == 0:
        return 0.0, 1.0
    z = float(ndtri((1 + confidence) / 2))
    share = success_count / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
    return 0.0 if success_count == 0 else low, 1.0 if success_count == n else high


def clopper_pearson(
    success_count: int, n: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The exact binomial interval, never too short; (0, 1) if n is 0.

    >>> [round(end, 4) for end in clopper_pearson(8, 10)]
    [0.4439, 0.9748]
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    k = success_count
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, tail))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - tail))
    return low, high


def rate(success: ArrayLike, cluster: ArrayLike | None = None, *, empty: str = "") -> Rate:
    """The share of True rows with its interval: Wilson if every cluster has one row.

    `success` and `cluster` have shape (n,); `cluster` None means independent rows. `empty` is
    the note of a rate without rows, whose value is None.

    >>> str(rate([True] * 8 + [False] * 2))
    '0.800 [0.490, 0.943] 10'
    """
    held = np.asarray(success, dtype=np.bool_)
    if cluster is not None and held.size and _largest_cluster(cluster) > 1:
        return cluster_rate(held, np.ones(len(held)), cluster)
    if not held.size:
        return Rate(None, None, None, 0, empty)
    count = int(held.sum())
    return Rate(count / len(held), *wilson(count, len(held)), len(held))


def cluster_rate(
    numerator_per_row: ArrayLike,
    denominator_per_row: ArrayLike,
    cluster: ArrayLike,
    *,
    empty: str = "",
) -> Rate:
    """The ratio of two sums, in [0, 1], with the t interval over clusters (method.md 7).

    All arguments have shape (n,); rows (and clusters) whose denominator is 0 do not count. All
    or none: Clopper-Pearson with the number of clusters. Fewer than 10 clusters: no interval.
    """
    numerator = np.asarray(numerator_per_row, dtype=np.float64)
    denominator = np.asarray(denominator_per_row, dtype=np.float64)
    return _ratio(numerator, denominator, np.asarray(cluster), bounds=(0.0, 1.0), empty=empty)


def mean_interval(
    values: ArrayLike,
    cluster: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    bounds: tuple[float, float] | None = None,
    empty: str = "",
) -> Rate:
    """The (weighted) mean of a number per row with the t interval over cluster sums.

    For costs and retrieval measures; arguments of shape (n,). `bounds` are the least and the
    greatest value there can be: the interval is clipped to them, and a mean that sits on one of
    them gets Clopper-Pearson's with the number of clusters.

    >>> str(mean_interval(list(range(40))))
    '19.500 [15.761, 23.239] 40'
    """
    value = np.asarray(values, dtype=np.float64)
    weight = np.ones(len(value)) if weights is None else np.asarray(weights, dtype=np.float64)
    code = np.arange(len(value)) if cluster is None else np.asarray(cluster)
    return _ratio(value * weight, weight, code, bounds=bounds, empty=empty)


def _largest_cluster(cluster: ArrayLike) -> int:
    return int(np.unique(np.asarray(cluster), return_counts=True)[1].max())


def _ratio(
    numerator: NDArray[np.float64],
    denominator: NDArray[np.float64],
    cluster: NDArray[Any],
    *,
    bounds: tuple[float, float] | None,
    empty: str,
) -> Rate:
    counted = denominator > 0
    n = int(counted.sum())
    if n == 0:
        return Rate(None, None, None, 0, empty)
    code = np.unique(cluster[counted], return_inverse=True)[1]
    above = np.bincount(code, numerator[counted]).astype(np.float64)  # (G,)
    below = np.bincount(code, denominator[counted]).astype(np.float64)  # (G,)
    value = float(above.sum() / below.sum())
    residual = above - value * below
    return rate_of_clusters(
        value,
        float(np.square(residual).sum()),
        float(below.sum()),
        cluster_count=len(above),
        n=n,
        flat=bool(np.abs(residual).max() <= 1e-12 * max(1.0, abs(value)) * below.max()),
        bounds=bounds,
        unit="sessions" if len(above) < n else "queries",
    )


def rate_of_clusters(
    value: float,
    residual_squares: float,
    denominator: float,
    *,
    cluster_count: int,
    n: int,
    flat: bool,
    bounds: tuple[float, float] | None = None,
    unit: str = "sessions",
    confidence: float = CONFIDENCE,
) -> Rate:
    """A ratio r = S / N of sums over G clusters with its t interval (method.md 7).

    `residual_squares` is the sum over clusters of (s - r n)^2, `denominator` is N, and `flat` says
    that all clusters agree: then there is an interval (Clopper-Pearson's, with G) only where the
    value sits on one of the `bounds`. Fewer than 10 clusters: no interval.
    """
    if cluster_count < FEWEST_CLUSTERS:
        return Rate(value, None, None, n, f"too few {unit}")
    if flat:
        low, high = _without_spread(value, cluster_count, bounds, confidence)
    else:
        half = _half_width(residual_squares, denominator, cluster_count, confidence)
        least, greatest = bounds if bounds else (-math.inf, math.inf)
        low, high = max(least, value - half), min(greatest, value + half)
    steady = "approximate" if cluster_count < STEADY_CLUSTERS else ""
    return Rate(value, low, high, n, steady if low is not None else NO_SPREAD)


def _half_width(
    residual_squares: float, denominator: float, cluster_count: int, confidence: float
) -> float:
    from scipy.special import stdtrit

    error = math.sqrt(cluster_count / (cluster_count - 1) * residual_squares) / denominator
    return float(stdtrit(cluster_count - 1, (1 + confidence) / 2)) * error


def _without_spread(
    value: float, count: int, bounds: tuple[float, float] | None, confidence: float
) -> tuple[float | None, float | None]:
    """All clusters agree: an interval only where the value is all or none of the bounds."""
    for bound, success_count in zip(bounds or (), (0, count), strict=False):
        if bounds and math.isclose(value, bound, abs_tol=1e-12):
            width = bounds[1] - bounds[0]
            low, high = clopper_pearson(success_count, count, confidence)
            return bounds[0] + low * width, bounds[0] + high * width
    return None, None


def label_budget(p: float, delta: float, errors: int) -> int:
    """The least n of which `errors` may be wrong while a rate >= `p` is still shown (method.md 6).

    Least n with binom.cdf(errors, n, 1 - p) <= delta. For leak <= r read p = 1 - r. Raises
    `ConfigError` unless 0 < p < 1, 0 < delta < 1 and errors >= 0.

    >>> label_budget(0.9, 0.05, 0), label_budget(0.95, 0.025, 3)
    (29, 173)
    """
    from scipy.special import bdtr

    _check_claim(p, delta)
    if errors < 0:
        raise ConfigError(f"errors must be 0 or more, got {errors}")
    size = 64
    while True:
        n = np.arange(errors + 1, errors + 1 + size)
        holds = bdtr(float(errors), n, 1 - p) <= delta
        if holds.any():
            return int(n[holds.argmax()])
        size *= 4


def label_budget_for_power(p: float, delta: float, truth: float, *, power: float = 0.8) -> int:
    """The least n from which a rate that truly is `truth` passes the claim with `power` or more.

    The chance to pass saws with n; from the n returned on it stays at `power` or above. Raises
    `ConfigError` unless 0 < p < truth < 1, 0 < delta < 1 and 0 < power < 1.

    >>> label_budget_for_power(0.9, 0.05, 0.97)
    89
    """
    from scipy.special import bdtr
    from scipy.stats import binom

    _check_claim(p, delta)
    if not (p < truth < 1 and 0 < power < 1):
        raise ConfigError(
            f"truth {truth} must lie between the claim {p} and 1, and power {power} between 0 and 1"
        )
    size = 256
    while True:
        n = np.arange(1, size + 1)
        first = binom.ppf(delta, n, 1 - p)  # least k with cdf(k) >= delta
        allowed = np.where(bdtr(first, n, 1 - p) <= delta, first, first - 1)  # -1: none
        chance = np.where(allowed >= 0, bdtr(np.maximum(allowed, 0.0), n, 1 - truth), 0.0)
        last_below = int(n[chance < power].max(initial=0))
        if size >= 2 * last_below:
            return last_below + 1
        size *= 4


def _check_claim(p: float, delta: float) -> None:
    if not (0 < p < 1 and 0 < delta < 1):
        raise ConfigError(f"a claim needs 0 < p < 1 and 0 < delta < 1, got p {p}, delta {delta}")
