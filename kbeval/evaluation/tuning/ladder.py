"""Queries on the ladder of cuts: the distances at which a level can change (method.md 5).

Rung 0 accepts nothing (a cut of -inf), each next rung one observed distance more; distances that
the tool cannot tell apart share a rung. Every objective is a sum over what a rung accepts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.evaluation.judge import Judged, Worth
from kbeval.records import Convention
from kbeval.retrieval.grading import DECIMALS, checked_distance, l2_to_similarity

PreciseRule = Literal["unique", "unique-and-nearest"]
Rule = PreciseRule | NDArray[np.bool_]  # or by query, (..., n): whether `nearest` is required
RANGE: dict[Convention, float] = {"l2": 2.0, "squared_l2": 4.0}  # of unit vectors


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """n queries over k + 1 rungs; what a cut accepts is a prefix of `order`.

    A query is PRECISE at every cut, or at least REFERENCE (`exact`: it has L0 matches), or free.
    """

    distance: NDArray[np.float64]  # (n,), the one that grades; inf: there is no document
    worth: NDArray[np.int8]  # (n,), Worth of the primary
    precise: NDArray[np.bool_]  # (n,)
    exact: NDArray[np.bool_]  # (n,)
    tau: NDArray[np.float64]  # (n,), the least reference cut at which the hint is true
    order: NDArray[np.int64]  # the queries that a cut can accept, nearest first
    end: NDArray[np.int64]  # (k + 1,), how many of `order` each rung accepts
    accepted: NDArray[np.float64]  # (k + 1,), the farthest distance each rung accepts
    refused: NDArray[np.float64]  # (k + 1,), the nearest distance each rung refuses

    def __len__(self) -> int:
        return len(self.worth)

    @property
    def free(self) -> NDArray[np.bool_]:
        """Queries whose level rests on their distance alone, of shape (n,)."""
        free: NDArray[np.bool_] = ~self.precise & ~self.exact
        return free

    @property
    def answerable(self) -> NDArray[np.bool_]:
        """Queries that are not unanswerable, of shape (n,)."""
        answerable: NDArray[np.bool_] = self.worth != Worth.NOTHING
        return answerable

    def running(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Sums over the queries that each rung accepts: (..., n) -> (..., k + 1), integers."""
        sums = np.zeros((*values.shape[:-1], len(self.order) + 1), dtype=np.int64)
        np.cumsum(values[..., self.order], axis=-1, out=sums[..., 1:])
        return sums if len(self.end) == sums.shape[-1] else sums[..., self.end]

    def rung(self, distance: float) -> int:
        """The highest rung whose distances a cut at `distance` accepts."""
        return int(np.searchsorted(self.accepted, distance, side="right")) - 1


def ladder(
    judged: Judged,
    *,
    precise_requires: PreciseRule = "unique",
    largest_max: float | None = None,
    among: NDArray[np.bool_] | None = None,
) -> Ladder:
    """The ladder of judged queries, or of those `among` (n,) names.

    Distances whose similarity under `largest_max` (the largest max-l2-distance to be exported;
    None: that of unit vectors) is the same share a rung.
    """
    kept = np.full(len(judged), True) if among is None else among
    precise = is_precise(judged, precise_requires)
    return ladder_of(
        judged.distance[kept],
        judged.worth[kept],
        precise=precise[kept],
        exact=((judged.l0_count > 0) & ~precise)[kept],
        tau=judged.tau[kept],
        largest_max=largest_max_of(judged) if largest_max is None else largest_max,
    )


def may_be_precise(judged: Judged, rule: Rule) -> NDArray[np.bool_]:
    """Whether a unique L0 match of each query may be PRECISE, of shape (..., n) as the rule's."""
    required = rule == "unique-and-nearest" if isinstance(rule, str) else rule
    allowed: NDArray[np.bool_] = judged.unique_is_nearest | np.logical_not(required)
    return allowed


def is_precise(judged: Judged, rule: Rule) -> NDArray[np.bool_]:
    """Whether each query is PRECISE, at every cut, of shape (..., n) as the rule's."""
    precise: NDArray[np.bool_] = (judged.l0_count == 1) & may_be_precise(judged, rule)
    return precise


def ladder_of(
    distance: ArrayLike,
    worth: ArrayLike,
    *,
    precise: ArrayLike = False,
    exact: ArrayLike = False,
    tau: ArrayLike = -math.inf,
    largest_max: float = 2.0,
) -> Ladder:
    """The ladder of plain arrays of shape (n,). Raises `DistanceError` for NaN or a negative.

    >>> ladder_of([0.5, 0.2, 0.5], [3, 3, 1]).accepted.tolist()
    [-inf, 0.2, 0.5]
    """
    known = checked_distance(distance)
    shape = known.shape
    fixed = np.broadcast_to(np.asarray(precise, dtype=np.bool_), shape)
    reachable = ~fixed & np.isfinite(known)
    order = np.argsort(np.where(reachable, known, math.inf))[: np.count_nonzero(reachable)]
    near = known[order]
    last = np.append(_told_apart(near, largest_max), True)[: len(order)]  # of its rung
    end = np.concatenate([[0], np.flatnonzero(last) + 1])
    return Ladder(
        distance=known,
        worth=np.asarray(worth, dtype=np.int8),
        precise=fixed,
        exact=np.broadcast_to(np.asarray(exact, dtype=np.bool_), shape) & ~fixed,
        tau=np.broadcast_to(np.asarray(tau, dtype=np.float64), shape),
        order=order,
        end=end,
        accepted=np.concatenate([[-math.inf], near[end[1:] - 1]]),
        refused=np.append(near, math.inf)[end],
    )


def _told_apart(near: NDArray[np.float64], largest_max: float) -> NDArray[np.bool_]:
    """Whether each distance (ascending) has another similarity than the next one.

    Rounding can only join those that lie within two steps of it; the others need no look.
    """
    apart = np.diff(np.minimum(near, largest_max))
    told: NDArray[np.bool_] = apart > 0
    close = np.flatnonzero(told & (apart < 2 * largest_max * 10.0**-DECIMALS))
    pairs = l2_to_similarity(near[np.stack([close, close + 1])], largest_max)
    told[close] = pairs[0] != pairs[1]
    return told


def largest_max_of(judged: Judged, present: float = 0.0) -> float:
    """The largest max-l2-distance to be exported: of unit vectors, the present one, or farther.

    Vectors that are not of unit length can lie beyond both; then the farthest distance counts.
    """
    farthest = judged.distance[np.isfinite(judged.distance)].max(initial=0.0)
    return float(max(RANGE[judged.convention], present, math.ceil(farthest)))
