"""From rungs to cuts: the range of equal value, and the distance chosen in it (method.md 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.tuning.ladder import Ladder
from kbeval.records import Convention, Level
from kbeval.retrieval.grading import DECIMALS, distance_to_cosine, l2_to_similarity

NOT_USED = "this level is not used"
NO_LIMIT = "no lower limit is supported by these data"


@dataclass(frozen=True, slots=True)
class Interval:
    """Cuts of equal value: from the last accepted distance to below the first refused one.

    `accepted` is -inf where nothing need be accepted, `refused` inf where nothing is refused.
    """

    accepted: float
    refused: float

    def similarity(self, max_l2_distance: float) -> tuple[float, float]:
        """The thresholds of equal value, low (exclusive, but 0 if nothing is refused) and high."""
        low = 0.0 if math.isinf(self.refused) else _similar(self.refused, max_l2_distance)
        high = 1.0 if math.isinf(self.accepted) else _similar(self.accepted, max_l2_distance)
        return low, high

    def to_json(self) -> dict[str, float | None]:
        """Distances; null for an open end."""
        return {"accepted": finite(self.accepted), "refused": finite(self.refused)}


@dataclass(frozen=True, slots=True)
class Cut:
    """One chosen cut: where a level ends, and how far it could move without a change of value.

    `gap` is the place between two observed distances in which the cut lies, `plateau` the gaps of
    equal value that adjoin it, `others` further intervals of equal value.
    """

    level: Level
    gap: Interval
    plateau: Interval
    others: tuple[Interval, ...] = ()

    @property
    def distance(self) -> float:
        """Midway between last accepted and first refused, at 6 decimals.

        -inf: the level is not used; inf: nothing observed is refused.
        """
        return midway(self.gap)

    @property
    def note(self) -> str:
        """What stands in place of a number where there is none."""
        if self.gap.accepted == -math.inf:
            return NOT_USED
        return NO_LIMIT if self.gap.refused == math.inf else ""

    def to_json(self, convention: Convention, max_l2_distance: float) -> dict[str, Any]:
        """Distance, similarity under this max, and cosine; null with a note where no number is."""
        known = math.isfinite(self.distance)
        similarity = _similar(self.distance, max_l2_distance) if known else None
        cosine = float(distance_to_cosine(self.distance, convention)) if known else None
        return {
            "level": self.level.name,
            "distance": finite(self.distance),
            "similarity": similarity,
            "cosine": None if cosine is None else round(cosine, DECIMALS),
            "last_accepted": finite(self.gap.accepted),
            "first_refused": finite(self.gap.refused),
            "plateau": self.plateau.to_json(),
            "other_plateaus": [other.to_json() for other in self.others],
            "note": self.note,
        }

    def describe(self, convention: Convention, max_l2_distance: float) -> str:
        """One line: the cut in three units, or why there is no number."""
        if self.note:
            return f"{self.level.name}: {self.note}"
        cosine = float(distance_to_cosine(self.distance, convention))
        similarity = _similar(self.distance, max_l2_distance)
        return (
            f"{self.level.name}: distance <= {decimal(self.distance)} ({convention}), "
            f"similarity >= {decimal(similarity)} of max {decimal(max_l2_distance)}, "
            f"cosine >= {cosine:.4f}"
        )


def midway(gap: Interval) -> float:
    """The middle of a gap, at 6 decimals, never the refused end; an open end stays open.

    >>> midway(Interval(0.5, 0.6)), midway(Interval(0.5, 0.500001)), midway(Interval(0.5, math.inf))
    (0.55, 0.5, inf)
    """
    if math.isinf(gap.accepted) or math.isinf(gap.refused):
        return gap.accepted if math.isinf(gap.accepted) else gap.refused
    steps = round(gap.accepted * 10**DECIMALS) + round(gap.refused * 10**DECIMALS)
    return int(steps // 2) / int(10**DECIMALS)


def cut_at(ladder: Ladder, level: Level, rungs: NDArray[np.int64]) -> Cut:
    """The cut at the strictest of the optimal `rungs` (ascending), with its plateau."""
    parts = intervals(ladder, rungs)
    first = int(rungs[0])
    gap = Interval(float(ladder.accepted[first]), float(ladder.refused[first]))
    return Cut(level, gap, parts[0], parts[1:])


def intervals(ladder: Ladder, rungs: NDArray[np.int64]) -> tuple[Interval, ...]:
    """Rungs (ascending) as intervals, adjacent ones joined."""
    runs = np.split(rungs, np.flatnonzero(np.diff(rungs) > 1) + 1)
    return tuple(
        Interval(float(ladder.accepted[run[0]]), float(ladder.refused[run[-1]])) for run in runs
    )


def decimal(value: float) -> str:
    """A number with as few of its 6 decimals as it needs, one at least; never rounded shorter.

    >>> decimal(2.0), decimal(1.250909), decimal(0.37455)
    ('2.0', '1.250909', '0.37455')
    """
    short = format(value, f".{DECIMALS}f").rstrip("0")
    return short + "0" if short.endswith(".") else short


def finite(value: float) -> float | None:
    """None for an infinity, as in JSON."""
    return float(value) if math.isfinite(value) else None


def _similar(distance: float, max_l2_distance: float) -> float:
    return float(l2_to_similarity(distance, max_l2_distance))
