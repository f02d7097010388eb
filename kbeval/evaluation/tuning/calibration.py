"""From similarity to the probability that the nearest document answers (method.md 8).

A description of one encoder, one corpus and one mix of unanswerable queries, of queries without
an L0 match. Fitted on dev, shown on test. Thresholds are claimed elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import ConfigError
from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.statistics import Rate, mean_interval, wilson
from kbeval.evaluation.tuning.ladder import largest_max_of
from kbeval.retrieval.grading import l2_to_similarity

Method = Literal["logistic", "isotonic"]
ISOTONIC_FROM = 1000  # queries
BINS, FEWEST_IN_A_BIN = 10, 30
WEAK_PENALTY = 1e4  # of the standardized logistic fit; keeps a perfect separation finite


@dataclass(frozen=True, slots=True)
class Bin:
    """Test queries of neighbouring similarity: what was foretold, and what came."""

    low: float  # similarity
    high: float
    foretold: float  # mean probability
    came: Rate  # the share whose nearest document answers, Wilson's interval

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "similarity": [self.low, self.high],
            "foretold": self.foretold,
            "came": self.came.to_json(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """P(the nearest document answers | similarity), as a curve through knots.

    `probability` of a logistic curve is worked out from `slope` and `intercept`; of an isotonic
    one by straight lines between `knots` and level beyond them.
    """

    method: Method
    max_l2_distance: float  # under which similarities are meant
    slope: float
    intercept: float
    knots: tuple[NDArray[np.float64], NDArray[np.float64]]  # similarity, probability
    base_rate: float  # of dev
    dev_n: int
    test_n: int
    brier: Rate
    brier_difference: Rate  # to foretelling the base rate always; below 0 is better
    bins: tuple[Bin, ...]

    def probability(self, similarity: ArrayLike) -> NDArray[np.float64]:
        """The probability at each similarity, of the same shape."""
        return _probability(
            np.asarray(similarity, dtype=np.float64),
            self.method,
            (self.slope, self.intercept),
            self.knots,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; the curve by its two numbers or by its knots."""
        curve: dict[str, Any] = {"slope": self.slope, "intercept": self.intercept}
        if self.method == "isotonic":
            curve = {"similarity": self.knots[0].tolist(), "probability": self.knots[1].tolist()}
        return {
            "method": self.method,
            "max_l2_distance": self.max_l2_distance,
            "curve": curve,
            "base_rate": self.base_rate,
            "dev_n": self.dev_n,
            "test_n": self.test_n,
            "brier": self.brier.to_json(),
            "brier_difference": self.brier_difference.to_json(),
            "reliability": [part.to_json() for part in self.bins],
        }


@dataclass(frozen=True, slots=True)
class NotCalibrated:
    """Why no curve can be fitted or shown; an answer, not an error."""

    why: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"not_calibrated": self.why}

    def __str__(self) -> str:
        """One line."""
        return f"not calibrated: {self.why}"


def calibrate(
    dev: Judged,
    test: Judged,
    *,
    max_l2_distance: float | None = None,
    method: Method | None = None,
) -> Calibration | NotCalibrated:
    """Fit the curve on `dev` and show it on `test`; queries without an L0 match only.

    Similarities are those under `max_l2_distance` (None: the largest there can be, so that none
    is clipped). `method` None: isotonic from 1,000 queries, else logistic. Raises `ConfigError`
    if the two parts differ in convention.
    """
    if dev.convention != test.convention:
        raise ConfigError(
            f"dev was judged in {dev.convention}, test in {test.convention}; both must be the same"
        )
    limit = max_l2_distance or max(largest_max_of(dev), largest_max_of(test))
    (near, right, _), (near_test, right_test, cluster) = (
        _cases(judged, limit) for judged in (dev, test)
    )
    if not right.any() or right.all():
        found = "all" if right.any() else "none"
        return NotCalibrated(f"of {len(right)} dev queries without an L0 match {found} is answered")
    if not len(near_test):
        return NotCalibrated("no test query without an L0 match to show it on")
    chosen: Method = method or ("isotonic" if len(near) >= ISOTONIC_FROM else "logistic")
    line, knots = _fitted(near, right, chosen)
    foretold = _probability(near_test, chosen, line, knots)
    base = float(right.mean())
    loss, base_loss = np.square(foretold - right_test), np.square(base - right_test)
    return Calibration(
        method=chosen,
        max_l2_distance=limit,
        slope=line[0],
        intercept=line[1],
        knots=knots,
        base_rate=base,
        dev_n=len(near),
        test_n=len(near_test),
        brier=mean_interval(loss, cluster, bounds=(0.0, 1.0)),
        brier_difference=mean_interval(loss - base_loss, cluster, bounds=(-1.0, 1.0)),
        bins=reliability(near_test, foretold, right_test),
    )


def reliability(
    similarity: NDArray[np.float64], foretold: NDArray[np.float64], right: NDArray[np.bool_]
) -> tuple[Bin, ...]:
    """At most 10 bins of equal count along similarity, of 30 queries or more, fewer if need be.

    All arguments have shape (n,). Queries of one similarity stay in one bin.
    """
    order = np.argsort(similarity, kind="stable")
    return tuple(
        Bin(
            float(similarity[rows[0]]),
            float(similarity[rows[-1]]),
            float(foretold[rows].mean()),
            _wilson_rate(right[rows]),
        )
        for rows in np.split(order, _bin_ends(similarity[order]))
        if len(rows)
    )


def _bin_ends(ascending: NDArray[np.float64]) -> list[int]:
    """Where one bin ends and the next begins, the last end left out."""
    n = len(ascending)
    bins = max(1, min(BINS, n // FEWEST_IN_A_BIN))
    ends: list[int] = []
    for number in range(1, bins):
        start = ends[-1] if ends else 0
        wanted = max(round(number * n / bins), start + FEWEST_IN_A_BIN)
        if wanted >= n:
            break
        end = int(np.searchsorted(ascending, ascending[wanted - 1], side="right"))
        if n - end >= FEWEST_IN_A_BIN:
            ends.append(end)
    return ends


def _wilson_rate(right: NDArray[np.bool_]) -> Rate:
    count = int(right.sum())
    return Rate(count / len(right), *wilson(count, len(right)), len(right))


def _cases(
    judged: Judged, limit: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Similarity, whether the nearest document answers, cluster: of queries without an L0 match."""
    kept = (judged.l0_count == 0) & np.isfinite(judged.distance)
    return (
        l2_to_similarity(judged.distance[kept], limit),
        judged.worth[kept] == Worth.ANSWERS,
        judged.cluster[kept],
    )


def _fitted(
    near: NDArray[np.float64], right: NDArray[np.bool_], method: Method
) -> tuple[tuple[float, float], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """(slope, intercept) of the logistic curve, or the knots of the isotonic one."""
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        curve.fit(near, right.astype(np.float64))
        return (0.0, 0.0), (curve.X_thresholds_, curve.y_thresholds_)
    from sklearn.linear_model import LogisticRegression

    middle, width = float(near.mean()), float(near.std()) or 1.0
    fit = LogisticRegression(C=WEAK_PENALTY, solver="newton-cholesky", max_iter=1000)
    fit.fit((near[:, None] - middle) / width, right)
    slope = float(fit.coef_[0, 0]) / width
    return (slope, float(fit.intercept_[0]) - slope * middle), (np.zeros(0), np.zeros(0))


def _probability(
    similarity: NDArray[np.float64],
    method: Method,
    line: tuple[float, float],
    knots: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> NDArray[np.float64]:
    from scipy.special import expit

    if method == "isotonic":
        return np.interp(similarity, *knots)
    probability: NDArray[np.float64] = expit(line[0] * similarity + line[1])
    return probability
