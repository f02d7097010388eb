"""Distance -> similarity -> level: pure functions over numpy arrays.

Look-up, evaluation, sweep and replay all call these, so they cannot disagree (design.md 2).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import DistanceError
from kbeval.records import Convention, Level

DECIMALS = 6  # of distances, similarities and thresholds
NOISE = 1e-6  # a distance this far below 0 is rounding noise and counts as 0


def l2_to_similarity(distance: ArrayLike, max_l2_distance: ArrayLike = 2.0) -> NDArray[np.float64]:
    """Map distances to [0, 1]: 0 is 1.0, `max_l2_distance` and beyond is 0.0 (FS-1).

    The arguments broadcast, so distances of shape (n, 1) against limits of shape (m,)
    give (n, m). Rounded to 6 decimals (design.md 2). A query without a neighbour has
    distance inf, hence 0.0. Raises `DistanceError` for a negative, NaN or non-numeric distance.

    >>> l2_to_similarity([0.0, 1.0, 2.0, 3.0]).tolist()
    [1.0, 0.5, 0.0, 0.0]
    """
    limit = np.asarray(max_l2_distance, dtype=np.float64)
    near = np.minimum(checked_distance(distance), limit)
    similarity: NDArray[np.float64] = np.round(1.0 - near / limit, DECIMALS)
    return similarity


def checked_distance(distance: ArrayLike) -> NDArray[np.float64]:
    """Distances as float64, rounded to 6 decimals, noise below 0 set to 0 (design.md 1, 2).

    Raises `DistanceError` naming position and value of the first distance that is negative,
    NaN, or no number (text, booleans and nulls are not numbers here).

    >>> checked_distance([-1e-7, 0.6]).tolist()
    [0.0, 0.6]
    """
    values = np.asarray(distance)
    if values.dtype.kind not in "fiu" or _holds_bool(distance):
        raise DistanceError(f"distance {distance!r} is not a number; a finite number is expected")
    values = values.astype(np.float64)
    wrong = np.isnan(values) | (values < -NOISE)
    if wrong.any():
        position = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(wrong)))
        value = np.atleast_1d(values)[position]
        raise DistanceError(
            f"distance at {position} is {value}; a number from 0 is expected "
            "(a negative value is a similarity or an inner product, not a distance)"
        )
    rounded: NDArray[np.float64] = np.round(np.maximum(values, 0.0), DECIMALS)
    return rounded


def _holds_bool(distance: Any) -> bool:  # noqa: ANN401
    return isinstance(distance, (list, tuple)) and any(isinstance(x, bool) for x in distance)


def grade(
    l0_count: ArrayLike,
    l0_handed_count: ArrayLike,
    similarity: ArrayLike,
    *,
    highly_relevant: ArrayLike = 0.75,
    reference: ArrayLike = 0.5,
    l0_may_be_precise: ArrayLike = True,
) -> NDArray[np.int8]:
    """Grade answers (FS-2, design.md 3); the first row that holds wins.

    `l0_count` counts the knowledge base's matches, `l0_handed_count` those in this answer,
    `similarity` is the best among the documents with a place in it. `l0_may_be_precise` is
    False where `precise-requires: unique-and-nearest` asks for more than a unique match and
    does not get it. The arguments broadcast. Returns `Level` values, of the broadcast shape.

    >>> grade([1, 2, 0, 3, 2, 0], [1, 2, 0, 3, 1, 0], [0.1, 0.8, 0.8, 0.6, 0.1, 0.4]).tolist()
    [3, 2, 2, 1, 1, 0]
    """
    unique = np.equal(l0_count, 1) & np.equal(l0_handed_count, 1)
    highly_relevant = np.round(np.asarray(highly_relevant, dtype=np.float64), DECIMALS)
    reference = np.round(np.asarray(reference, dtype=np.float64), DECIMALS)
    referred = np.greater_equal(similarity, reference) | np.greater(l0_handed_count, 0)
    level = np.where(referred, Level.REFERENCE, Level.NOT_FOUND)
    level = np.where(np.greater_equal(similarity, highly_relevant), Level.HIGHLY_RELEVANT, level)
    level = np.where(unique & np.asarray(l0_may_be_precise), Level.PRECISE, level)
    graded: NDArray[np.int8] = level.astype(np.int8)
    return graded


def cut_distance(threshold: float, max_l2_distance: float = 2.0) -> float:
    """The largest distance, at 6 decimals, whose similarity still reaches `threshold`.

    Repaired with the rounded formula itself, so that grading by distance <= cut and by
    similarity >= threshold agree. A threshold of 0 has no cut: inf.

    >>> cut_distance(0.75), cut_distance(0.5, 1.5)
    (0.5, 0.75)
    """
    if round(threshold, DECIMALS) <= 0:
        return math.inf
    step = 10.0**-DECIMALS
    near = round((1.0 - threshold) * max_l2_distance, DECIMALS)
    reach = math.ceil(max_l2_distance) + 2
    tried = np.round(near + step * np.arange(-reach, reach + 1), DECIMALS)
    tried = tried[tried >= 0]
    holds = l2_to_similarity(tried, max_l2_distance) >= round(threshold, DECIMALS)
    return float(tried[holds][-1]) if holds.any() else -math.inf


def distance_to_cosine(distance: ArrayLike, convention: Convention) -> NDArray[np.float64]:
    """Cosine of two unit vectors from their distance: 1 - d^2 / 2, or 1 - d / 2 if squared.

    >>> distance_to_cosine([0.0, 2.0], "l2").tolist(), float(distance_to_cosine(0.4, "squared_l2"))
    ([1.0, -1.0], 0.8)
    """
    squared = np.asarray(distance, dtype=np.float64)
    if convention == "l2":
        squared = np.square(squared)
    cosine: NDArray[np.float64] = 1.0 - squared / 2.0
    return cosine
