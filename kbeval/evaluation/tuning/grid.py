"""Level by worth for a whole grid of settings at once: each setting is two places in one order.

similarity >= t is distance <= max * (1 - t), so no setting grades anew: it only says how many of
the queries, nearest first, each level accepts.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import ConfigError
from kbeval.evaluation.judge import Worth
from kbeval.evaluation.tuning.ladder import Ladder
from kbeval.records import Level
from kbeval.retrieval.grading import DECIMALS, l2_to_similarity


def grid_matrices(tuned: Ladder, settings: ArrayLike) -> NDArray[np.int32]:
    """Counts `[setting, level, worth]` of shape (m, 4, 4), equal to grading every setting.

    `settings` has shape (m, 3): max-l2-distance, highly-relevant, reference. Raises
    `ConfigError` for the first setting that is not valid; show those as such, apart.
    """
    limit, high, reference = _checked(settings).T  # (m,) each
    closed, given = _accepted_by_setting(tuned, limit, np.stack([high, reference]))
    member = tuned.worth[tuned.order] == np.arange(len(Worth))[:, None]  # (4, f)
    all_up_to, free_up_to = _up_to(member), _up_to(member & tuned.free[tuned.order])
    exact, free, precise = (
        np.bincount(tuned.worth[kind], minlength=len(Worth)).astype(np.int32)[:, None]
        for kind in (tuned.exact, tuned.free, tuned.precise)
    )
    at_high, free_given = np.take(all_up_to, closed, axis=1), np.take(free_up_to, given, axis=1)
    matrices = np.empty((len(Level), len(Worth), len(limit)), dtype=np.int32)
    matrices[Level.PRECISE] = precise
    matrices[Level.HIGHLY_RELEVANT] = at_high
    matrices[Level.REFERENCE] = exact + free_given - at_high
    matrices[Level.NOT_FOUND] = free - free_given
    return np.moveaxis(matrices, -1, 0)


def _accepted_by_setting(
    tuned: Ladder, limit: NDArray[np.float64], thresholds: NDArray[np.float64]
) -> NDArray[np.int64]:
    """`accepted_counts` of each row of `thresholds` (2, m); a grid repeats few values often."""
    of_limit, limits = pd.factorize(limit)
    flat, least = pd.factorize(thresholds.ravel())
    of_threshold = flat.reshape(thresholds.shape)
    if len(limits) * len(least) > thresholds.size:
        return np.stack([accepted_counts(tuned, limit, row) for row in thresholds])
    counts = accepted_counts(tuned, np.repeat(limits, len(least)), np.tile(least, len(limits)))
    found: NDArray[np.int64] = counts[of_limit * len(least) + of_threshold]
    return found


def accepted_counts(
    tuned: Ladder, max_l2_distance: NDArray[np.float64], threshold: NDArray[np.float64]
) -> NDArray[np.int64]:
    """How many of `tuned.order` reach each threshold under each max; arguments of shape (m,).

    Found by distance, then repaired with the rounded similarity itself until it holds.
    """
    limit, least = max_l2_distance, np.round(threshold, DECIMALS)
    near = tuned.distance[tuned.order]
    guess = np.where(least > 0, (1.0 - least) * limit, np.inf)  # 0 accepts what is beyond max
    count = np.searchsorted(near, guess, side="right").astype(np.int64)
    around = np.concatenate([[0.0], near, [np.inf]])  # [count] is the last accepted one
    open_ = np.flatnonzero(least > 0)  # settings that are not known to hold yet
    while len(open_):
        at, wanted = count[open_], (limit[open_], least[open_])
        too_many = (at > 0) & ~_reaches(around[at], *wanted)
        too_few = (at < len(near)) & _reaches(around[at + 1], *wanted)
        step = too_few.astype(np.int64) - too_many
        count[open_] += step
        open_ = open_[step != 0]
    return count


def _reaches(
    distance: NDArray[np.float64], limit: NDArray[np.float64], least: NDArray[np.float64]
) -> NDArray[np.bool_]:
    reaches: NDArray[np.bool_] = l2_to_similarity(distance, limit) >= least
    return reaches


def _up_to(member: NDArray[np.bool_]) -> NDArray[np.int32]:
    """How many members there are before each place: (4, f) -> (4, f + 1)."""
    sums = np.zeros((len(member), member.shape[1] + 1), dtype=np.int32)
    np.cumsum(member, axis=1, out=sums[:, 1:])
    return sums


def _checked(settings: ArrayLike) -> NDArray[np.float64]:
    rows = np.atleast_2d(np.asarray(settings, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise ConfigError(
            f"settings of shape {rows.shape}: (m, 3) is expected, max, highly-relevant, reference"
        )
    limit, high, reference = rows.T
    wrong = ~(
        (limit > 0) & np.isfinite(limit) & (reference >= 0) & (reference <= high) & (high <= 1)
    )
    if wrong.any():
        first = tuple(float(x) for x in rows[wrong][0])
        raise ConfigError(
            f"setting {first} (max, highly-relevant, reference) is not valid; allowed is "
            "max > 0 and 0 <= reference <= highly-relevant <= 1"
        )
    return rows
