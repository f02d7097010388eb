"""Running totals over sessions: enough for every ratio and its interval, whatever the number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.statistics import CONFIDENCE, Rate, rate_of_clusters

SESSIONS = "sessions"  # 1 for each: what makes a mean per session a ratio
ROUNDING = 1e-14  # share of a sum of squares that is rounding, not spread


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """q quantities summed over G sessions, and how they vary together between sessions."""

    names: tuple[str, ...]
    session_count: int  # G
    total: NDArray[np.float64]  # (q,)
    co_moment: NDArray[np.float64]  # (q, q), sum over sessions of (x - mean)(y - mean)
    present: NDArray[np.int64]  # (q,), sessions in which the quantity is above 0

    def of(self, name: str) -> float:
        """The total of one quantity."""
        return float(self.total[self.names.index(name)])

    def count(self, name: str) -> int:
        """The total of a quantity that is counted."""
        return round(self.of(name))

    def sessions_with(self, name: str) -> int:
        """Sessions that have any of a quantity: the clusters of a share of it."""
        return int(self.present[self.names.index(name)])

    def share(
        self, part: str, whole: str, *, empty: str = "", confidence: float = CONFIDENCE
    ) -> Rate:
        """Part / whole as sums over sums, in [0, 1], over sessions that have any of `whole`.

        The part never exceeds the whole in a session. `empty` is the note of a whole of 0.
        """
        return self._ratio({part: 1.0}, whole, bounds=(0.0, 1.0), empty=empty, level=confidence)

    def ratio(self, part: str, whole: str, *, empty: str = "") -> Rate:
        """The same for a part that may be negative."""
        return self._ratio({part: 1.0}, whole, bounds=None, empty=empty)

    def per_session(self, *names: str, confidence: float = CONFIDENCE) -> Rate:
        """The mean per session of one quantity, or of the sum of several."""
        return self.weighted(dict.fromkeys(names, 1.0), confidence=confidence)

    def weighted(self, weights: Mapping[str, float], *, confidence: float = CONFIDENCE) -> Rate:
        """The mean per session of a weighted sum of quantities."""
        return self._ratio(weights, SESSIONS, bounds=None, level=confidence)

    def _ratio(
        self,
        weights: Mapping[str, float],
        whole: str,
        *,
        bounds: tuple[float, float] | None,
        empty: str = "no session",
        level: float = CONFIDENCE,
    ) -> Rate:
        place = self.names.index(whole)
        denominator = float(self.total[place])
        if denominator == 0:
            return Rate(None, None, None, 0, empty)
        above = np.zeros(len(self.names))
        for name, weight in weights.items():
            above[self.names.index(name)] = weight
        value = float(above @ self.total) / denominator
        residual = above.copy()
        residual[place] -= value
        squares = float(residual @ self.co_moment @ residual)
        scale = float(above @ self.co_moment @ above)
        scale += value**2 * float(self.co_moment[place, place])
        return rate_of_clusters(
            value,
            max(0.0, squares),
            denominator,
            cluster_count=int(self.present[place]),
            n=round(denominator),
            flat=squares <= ROUNDING * scale,
            bounds=bounds,
            confidence=level,
        )


class RunningTotals:
    """Adds up sessions one at a time, in memory that does not grow with them.

    Means and co-moments are updated by Welford's rule: sums of squares would lose the spread
    between sessions where it is small beside their size.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._place = {name: i for i, name in enumerate((SESSIONS, *names))}
        size = len(self._place)
        self._count = 0
        self._total = np.zeros(size)
        self._mean = np.zeros(size)
        self._co_moment = np.zeros((size, size))
        self._present = np.zeros(size, dtype=np.int64)

    def add(self, session: Mapping[str, float]) -> None:
        """Add one session's quantities; what is not named is 0."""
        row = np.zeros(len(self._place))
        row[0] = 1
        for name, value in session.items():
            row[self._place[name]] = value
        self._count += 1
        self._total += row
        self._present += row > 0
        before = row - self._mean
        self._mean += before / self._count
        self._co_moment += np.outer(before, row - self._mean)

    def totals(self) -> Totals:
        """The totals so far."""
        return Totals(
            names=tuple(self._place),
            session_count=self._count,
            total=self._total.copy(),
            co_moment=self._co_moment.copy(),
            present=self._present.copy(),
        )
