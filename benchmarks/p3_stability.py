"""P3: the stability range of the chosen cuts, 1,000 resamples of 10,000 queries.

Run: python benchmarks/p3_stability.py
The queries are those of p1_cuts.py (three grades, a tenth with L0 matches). The peer tunes each
resample by itself through the public door: the drawn queries as arrays, `ladder_of` (sorting),
`best_cuts`, `cut_at`; the same draws, so that all 2,000 cuts can be compared. It is measured over
every tenth resample in each round and compared over all of them once. A second line says the same
for queries in clusters of five. Processor time; the ratio is the median over rounds. Excluded on
both sides: making the queries; on the peer's side also the drawing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from p1_cuts import Queries

from kbeval.evaluation.costs import Costs
from kbeval.evaluation.tuning.cuts import best_cuts
from kbeval.evaluation.tuning.ladder import ladder_of
from kbeval.evaluation.tuning.objectives import Optimum
from kbeval.evaluation.tuning.plateau import cut_at
from kbeval.evaluation.tuning.stability import ladder_order, resample_counts, resampled_cuts
from kbeval.records import Level

QUERIES, RESAMPLES, ROUNDS, GOAL = 10_000, 1_000, 5, 5.0


def drawn_queries(queries: Queries, cluster: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The positions that each resample draws, in no order, as a drawn set comes."""
    rng = np.random.default_rng(1)
    ladder = queries.ladder()
    order = ladder_order(ladder)
    counts = resample_counts(ladder, cluster, resamples=RESAMPLES, seed=0)
    return [rng.permutation(np.repeat(order, count)) for count in counts]


def separate_sweep(queries: Queries, drawn: NDArray[np.int64], costs: Costs) -> tuple[float, float]:
    """One resample, tuned as if it were a set of its own."""
    ladder = ladder_of(queries.distance[drawn], queries.worth[drawn], exact=queries.exact[drawn])
    found = best_cuts(ladder, costs)
    assert isinstance(found, Optimum)
    high = cut_at(ladder, Level.HIGHLY_RELEVANT, found.highly_relevant)
    reference = cut_at(ladder, Level.REFERENCE, found.references(found.rungs[0]))
    return high.distance, reference.distance


def product(queries: Queries, cluster: NDArray[np.int64], costs: Costs) -> NDArray[np.float64]:
    """All resamples, from plain arrays."""
    return resampled_cuts(queries.ladder(), costs, cluster, resamples=RESAMPLES, seed=0)


def seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def compare(name: str, queries: Queries, cluster: NDArray[np.int64]) -> None:
    """Time both in turn, then compare every cut."""
    costs, draws = Costs(), drawn_queries(queries, cluster)
    some = draws[::10]
    rounds = [
        (
            seconds(lambda: product(queries, cluster, costs)),
            len(draws)
            / len(some)
            * seconds(lambda: [separate_sweep(queries, d, costs) for d in some]),
        )
        for _ in range(ROUNDS)
    ]
    fast, slow = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratio = statistics.median(slow / fast for fast, slow in rounds)
    found = product(queries, cluster, costs)
    wanted = np.array([separate_sweep(queries, d, costs) for d in draws])
    print(
        f"{name}: {RESAMPLES} resamples of {QUERIES} queries {fast:.3f} s, separate exact sweeps "
        f"{slow:.3f} s: {ratio:.1f}x (goal {GOAL:g}x); {int((found == wanted).sum())} of "
        f"{found.size} cuts equal"
    )


def main() -> None:
    """Print times, ratios and equalities."""
    queries = Queries(QUERIES, 1)
    compare("each query by itself", queries, np.arange(QUERIES))
    compare("clusters of five", queries, np.arange(QUERIES) // 5)


if __name__ == "__main__":
    main()
