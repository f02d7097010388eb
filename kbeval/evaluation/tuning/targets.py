"""Accuracy and macro-F1 of a grading, with intervals: how often the level is its worth's target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.statistics import (
    CONFIDENCE,
    FEWEST_CLUSTERS,
    STEADY_CLUSTERS,
    Rate,
    rate,
)
from kbeval.evaluation.tuning.objectives import TARGET
from kbeval.records import Level

BOOTSTRAP = 2000  # resamples of whole clusters
_NO_QUERY = "no query but PRECISE ones"
_TARGETS = np.array([TARGET[worth] for worth in Worth], dtype=np.int8)


def target_accuracy(judged: Judged, level: NDArray[np.int8]) -> Rate:
    """The share of queries, PRECISE ones apart, at their target level; `level` has shape (n,)."""
    tuned = level != Level.PRECISE
    right = level[tuned] == _TARGETS[judged.worth[tuned]]
    return rate(right, judged.cluster[tuned], empty=_NO_QUERY)


def macro_f1_rate(judged: Judged, level: NDArray[np.int8], *, seed: int = 0) -> Rate:
    """The mean F1 over the levels that have a true query, PRECISE queries apart.

    The interval is the percentile one over resampled clusters, their counts summed, then divided.
    """
    tuned = level != Level.PRECISE
    given, target = level[tuned], _TARGETS[judged.worth[tuned]]
    code = np.unique(judged.cluster[tuned], return_inverse=True)[1]
    classes = [x for x in (Level.HIGHLY_RELEVANT, Level.REFERENCE, Level.NOT_FOUND)]
    classes = [x for x in classes if (target == x).any()]
    if not classes:
        return Rate(None, None, None, 0, _NO_QUERY)
    hit = [np.bincount(code, (given == x) & (target == x)) for x in classes]
    both = [np.bincount(code, (given == x) * 1.0 + (target == x)) for x in classes]
    counts = np.stack([*hit, *both], axis=1)  # (G, 2 * classes)
    value = float(_macro_f1(counts.sum(axis=0)))
    if len(counts) < FEWEST_CLUSTERS:
        return Rate(value, None, None, len(given), "too few queries")
    alike, times = np.unique(counts, axis=0, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(
        len(counts), times / len(counts), size=BOOTSTRAP
    )
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(_macro_f1(drawn @ alike), tails).tolist()
    steady = "approximate" if len(counts) < STEADY_CLUSTERS else ""
    return Rate(value, low, high, len(given), steady)


def _macro_f1(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """From hits and (given + true) by class, in halves of the last axis."""
    hit, both = np.split(counts, 2, axis=-1)
    mean: NDArray[np.float64] = (2 * hit / np.maximum(both, 1)).mean(axis=-1)
    return mean
