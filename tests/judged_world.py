"""Judged queries made from plain columns, without a set or a base behind them."""

import math

import numpy as np

from kbeval.evaluation.judge import Judged, Worth

A, R, W, N = Worth.ANSWERS, Worth.RELATED, Worth.WRONG, Worth.NOTHING


def judged_from(
    distance,
    worth,
    *,
    cluster=None,
    l0_count=0,
    unique_is_nearest=True,
    tau=-math.inf,
    convention="l2",
    limit=3,
):
    """n judged queries; every argument is of shape (n,) or one value for all."""
    distance = np.asarray(distance, np.float64)
    n = len(distance)
    worth = np.asarray(worth, np.int8)

    def full(value, dtype):
        return np.broadcast_to(np.asarray(value, dtype), (n,)).copy()

    count = full(l0_count, np.int64)
    no = full(False, np.bool_)
    return Judged(
        query=np.arange(n),
        row=np.arange(n),
        cluster=np.arange(n) if cluster is None else np.asarray(cluster, np.int64),
        answerable=worth != N,
        nearness=full(0, np.int8),
        partial=no,
        l0_count=count,
        l0_handed_count=np.minimum(count, max(limit - 1, 1)),
        unique_is_nearest=full(unique_is_nearest, np.bool_) & (count == 1),
        primary=np.where(np.isfinite(distance), 0, -1),
        primary_distance=distance.copy(),
        distance=distance,
        worth=worth,
        primary_unjudged=no,
        better_exists=no,
        tied_primary=no,
        tau=full(tau, np.float64),
        tau_if_unjudged_best=full(tau, np.float64),
        tau_answer=np.where(worth == A, -math.inf, math.inf),
        several_top=no,
        best_missing=no,
        gold_truncated=no,
        gold_cut=no,
        missing_gold_count=full(0, np.int64),
        limit=limit,
        convention=convention,
        labels="complete",
        left_out={},
        outside_count=0,
    )


def world(n, seed, *, spread=0.25, exact=0.1, related=0.2, cluster_size=1):
    """Nearer is better, with much overlap; distances at 3 decimals, so there are ties."""
    rng = np.random.default_rng(seed)
    clusters = -(-n // cluster_size)
    worth = rng.choice([0, 1, 2, 3], n, p=[0.2, 0.4 - related, related, 0.4])
    middle = np.array([1.1, 1.0, 0.85, 0.6])[worth]
    distance = np.round(np.clip(rng.normal(middle, spread), 0, 2), 3)
    return judged_from(
        distance,
        worth,
        cluster=rng.permutation(np.arange(n) % clusters),
        l0_count=np.where(rng.random(n) < exact, rng.integers(1, 4, n), 0),
        unique_is_nearest=rng.random(n) < 0.5,
        tau=np.where(rng.random(n) < 0.3, np.round(distance + rng.random(n), 3), -math.inf),
    )
