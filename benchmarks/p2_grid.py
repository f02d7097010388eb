"""P2: level by worth at 4,774 points (max, highly relevant, reference) over 10,000 queries.

Run: python benchmarks/p2_grid.py
The peer grades all queries anew at each point with plain numpy and counts the cells. The product is
timed twice: from plain arrays (sorting included), and with the ladder already there, as in a sweep.
Processor time, medians of several rounds side by side. Excluded: making queries and grid.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.tuning.grid import grid_matrices
from kbeval.evaluation.tuning.ladder import Ladder, ladder_of

QUERIES, ROUNDS, GOAL = 10_000, 7, 250


def queries(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.int64]]:
    """Distance, worth and number of L0 matches, of shape (n,) each."""
    rng = np.random.default_rng(seed)
    worth = rng.choice([0, 1, 2, 3], QUERIES, p=[0.2, 0.2, 0.2, 0.4]).astype(np.int8)
    middle = np.array([1.1, 1.0, 0.85, 0.6])[worth]
    distance = np.round(np.clip(rng.normal(middle, 0.25), 0, 2), 6)
    return distance, worth, rng.choice([0, 0, 0, 0, 0, 0, 0, 1, 2], QUERIES)


def grid() -> NDArray[np.float64]:
    """14 maxima, 31 thresholds of HIGHLY_RELEVANT, 11 of REFERENCE: 4,774 points."""
    limits = np.round(np.arange(14) * 0.1 + 0.7, 6)
    high = np.round(np.arange(31) * 0.01 + 0.5, 6)
    reference = np.round(np.arange(11) * 0.05, 6)
    return np.array([(m, h, r) for m in limits for h in high for r in reference])


def one_pass_a_point(
    distance: NDArray[np.float64],
    worth: NDArray[np.int8],
    l0_count: NDArray[np.int64],
    settings: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Normalise, grade and count at every point."""
    matrices = np.empty((len(settings), 4, 4), dtype=np.int64)
    for at, (limit, high, reference) in enumerate(settings):
        similarity = np.round(1.0 - np.minimum(distance, limit) / limit, 6)
        level = ((similarity >= reference) | (l0_count > 0)).astype(np.int64)
        level[similarity >= high] = 2
        level[l0_count == 1] = 3
        matrices[at] = np.bincount(level * 4 + worth, minlength=16).reshape(4, 4)
    return matrices


def ladder(
    distance: NDArray[np.float64], worth: NDArray[np.int8], l0_count: NDArray[np.int64]
) -> Ladder:
    return ladder_of(distance, worth, precise=l0_count == 1, exact=l0_count > 1)


def seconds(work: Callable[[], object], times: int) -> float:
    start = time.thread_time()
    for _ in range(times):
        work()
    return (time.thread_time() - start) / times


def main() -> None:
    """Print times, ratios and equality."""
    given, settings = queries(1), grid()
    tuned = ladder(*given)
    equal = (grid_matrices(tuned, settings) == one_pass_a_point(*given, settings)).all()
    rounds = [
        (
            seconds(lambda: one_pass_a_point(*given, settings), 1),
            seconds(lambda: grid_matrices(ladder(*given), settings), 10),
            seconds(lambda: grid_matrices(tuned, settings), 10),
        )
        for _ in range(ROUNDS)
    ]
    slow, whole, sweep = (statistics.median(times) for times in zip(*rounds, strict=True))
    print(
        f"{len(settings)} points, {QUERIES} queries: one pass a point {slow * 1e3:.0f} ms, "
        f"from plain arrays {whole * 1e3:.2f} ms: "
        f"{statistics.median(r[0] / r[1] for r in rounds):.0f}x, "
        f"with the ladder there {sweep * 1e3:.2f} ms: "
        f"{statistics.median(r[0] / r[2] for r in rounds):.0f}x (goal {GOAL}x); "
        f"{'same' if equal else 'DIFFERENT'} in every cell"
    )


if __name__ == "__main__":
    main()
