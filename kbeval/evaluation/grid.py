"""Level by worth for a whole grid of settings at once: each setting is two places in one order.

similarity >= t is distance <= max * (1 - t), so no setting grades anew: it only says how many of
the queries, nearest first, each level accepts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import ConfigError
from kbeval.evaluation.judge import Worth
from kbeval.evaluation.ladder import Ladder
from kbeval.records import Level
from kbeval.retrieval.grading import DECIMALS, l2_to_similarity


def grid_matrices(tuned: Ladder, settings: ArrayLike) -> NDArray[np.int64]:
    """Counts `[setting, level, worth]` of shape (m, 4, 4), equal to grading every setting.

    `settings` has shape (m, 3): max-l2-distance, highly-relevant, reference. Raises
    `ConfigError` for the first setting that is not valid; show those as such, apart.
    """
    limit, high, reference = _checked(settings).T  # (m,) each
    closed = accepted_counts(tuned, limit, high)
    given = accepted_counts(tuned, limit, reference)
    worth = np.arange(len(Worth))
    near = tuned.worth[tuned.order]
    all_up_to = _up_to(near[:, None] == worth)  # (f + 1, 4)
    free_up_to = _up_to((near[:, None] == worth) & tuned.free[tuned.order][:, None])
    exact, free, precise = (
        np.bincount(tuned.worth[kind], minlength=len(Worth))
        for kind in (tuned.exact, tuned.free, tuned.precise)
    )
    given_free = free_up_to[given]
    matrices = np.empty((len(limit), len(Level), len(Worth)), dtype=np.int64)
    matrices[:, Level.PRECISE] = precise
    matrices[:, Level.HIGHLY_RELEVANT] = all_up_to[closed]
    matrices[:, Level.REFERENCE] = exact - all_up_to[closed] + given_free
    matrices[:, Level.NOT_FOUND] = free - given_free
    return matrices


def accepted_counts(
    tuned: Ladder, max_l2_distance: NDArray[np.float64], threshold: NDArray[np.float64]
) -> NDArray[np.int64]:
    """How many of `tuned.order` reach each threshold under each max; arguments of shape (m,).

    Found by distance, then repaired with the rounded similarity itself until it holds.
    """
    pairs = np.stack([max_l2_distance, np.round(threshold, DECIMALS)], axis=1)
    distinct, back = np.unique(pairs, axis=0, return_inverse=True)
    limit, least = distinct.T
    near = tuned.distance[tuned.order]
    count = np.searchsorted(near, (1.0 - least) * limit, side="right")
    padded = np.concatenate([[0.0], near, [np.inf]])  # padded[count] is the last one accepted
    while True:
        last_holds = (count == 0) | (l2_to_similarity(padded[count], limit) >= least)
        more = count < len(near)
        next_holds = more & (
            l2_to_similarity(padded[np.minimum(count + 1, len(near))], limit) >= least
        )
        step = np.where(last_holds, next_holds.astype(np.int64), -1)
        if not step.any():
            counts: NDArray[np.int64] = count[back.ravel()].astype(np.int64)
            return counts
        count = count + step


def _up_to(member: NDArray[np.bool_]) -> NDArray[np.int64]:
    sums = np.zeros((len(member) + 1, member.shape[1]), dtype=np.int64)
    np.cumsum(member, axis=0, out=sums[1:])
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
