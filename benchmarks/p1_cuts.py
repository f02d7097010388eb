"""P1: the best two cuts over 10,000 queries, exact over all pairs, against searching for them.

Run: python benchmarks/p1_cuts.py
Made-up distances of three grades, a tenth with L0 matches. The product is timed from plain arrays
to the chosen pair, sorting included. Peers: 200 trials of a random pair of cuts, each one numpy
pass (what a trial of any tuner costs at least); the usual loop over every observed cut of a
single-cut objective (F1 of "the first document answers"), one numpy pass each; and, where they are
installed (pip install optuna redis-retrieval-optimizer), optuna's own 200 trials and
redis-retrieval-optimizer's own threshold search of a semantic cache on its own objective, the mean
F1 of a query with one neighbour. It gets the neighbours from a stand-in, so only its search is
timed, once. The bare limit is argsort, two prefix sums and a running minimum. Processor time;
ratios are medians of several rounds side by side. Excluded: making the queries. Values are compared
in whole units of cost; the slow oracle measures all pairs of a sample.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Worth
from kbeval.evaluation.tuning.cuts import best_cuts
from kbeval.evaluation.tuning.ladder import Ladder, ladder_of
from kbeval.evaluation.tuning.objectives import Optimum
from kbeval.records import Level

QUERIES, TRIALS, ROUNDS, SAMPLE = 10_000, 200, 9, 400
GOAL_TRIALS, GOAL_LOOP = 500, 5_000


class Queries:
    """n queries: distance, worth, L0 matches."""

    def __init__(self, n: int, seed: int) -> None:
        """Nearer is better, with much overlap."""
        rng = np.random.default_rng(seed)
        self.worth = rng.choice([0, 1, 2, 3], n, p=[0.2, 0.2, 0.2, 0.4]).astype(np.int8)
        middle = np.array([1.1, 1.0, 0.85, 0.6])[self.worth]
        self.distance = np.round(np.clip(rng.normal(middle, 0.25), 0, 2), 6)
        self.exact = rng.random(n) < 0.1

    def ladder(self) -> Ladder:
        return ladder_of(self.distance, self.worth, exact=self.exact)

    def cost(self, high: float, reference: float, table: NDArray[np.int64]) -> int:
        """One numpy pass: grade every query at one pair of cuts, add up."""
        level = np.where(
            self.distance <= high,
            Level.HIGHLY_RELEVANT,
            np.where(self.exact | (self.distance <= reference), Level.REFERENCE, Level.NOT_FOUND),
        )
        return int(table[level, self.worth].sum())


def product(queries: Queries, costs: Costs, ladder: Ladder | None = None) -> Fraction:
    """The least mean cost, exactly; from plain arrays where no ladder is given."""
    found = best_cuts(ladder or queries.ladder(), costs)
    assert isinstance(found, Optimum)
    return found.value


def random_trials(queries: Queries, table: NDArray[np.int64], seed: int) -> int:
    """The best of 200 random pairs."""
    pairs = np.sort(np.random.default_rng(seed).random((TRIALS, 2)) * 2.0, axis=1)
    return min(queries.cost(*pair, table) for pair in pairs.tolist())


def optuna_trials(queries: Queries, table: NDArray[np.int64], seed: int) -> int:
    """Optuna's default sampler, 200 trials."""
    import optuna  # type: ignore[import-not-found]

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def trial(given: object) -> int:
        high = given.suggest_float("high", 0.0, 2.0)  # type: ignore[attr-defined]
        reference = given.suggest_float("reference", high, 2.0)  # type: ignore[attr-defined]
        return queries.cost(high, reference, table)

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(trial, n_trials=TRIALS)
    return int(study.best_value)


def one_cut_loop(queries: Queries) -> float:
    """F1 at every observed distance, one numpy pass each: the usual threshold search."""
    right = queries.worth == Worth.ANSWERS
    best = 0.0
    for cut in np.unique(queries.distance):
        given = queries.distance <= cut
        best = max(best, 2 * int((given & right).sum()) / (int(given.sum()) + int(right.sum())))
    return best


def one_cut(queries: Queries) -> float:
    """The same by the running sums of the ladder."""
    ladder = queries.ladder()
    right = queries.worth == Worth.ANSWERS
    hit, given = ladder.running(right), ladder.running(np.ones(len(right), np.int64))
    return float((2 * hit / (given + right.sum())).max())


class Neighbours:
    """What redis-retrieval-optimizer asks of a semantic cache: one neighbour a query, at once."""

    def __init__(self, queries: Queries) -> None:
        """Distances as the cosine distance it expects, between 0 and 1."""
        distance = (queries.distance / 2).tolist()
        self.found = [[{"id": "d", "vector_distance": d}] for d in distance]
        self.index = self._vectorizer = self
        self.threshold = 0.0

    def embed(self, query: str) -> list[float]:
        self.asked = int(query)
        return [0.0]

    def query(self, query: object) -> list[dict[str, object]]:
        return self.found[self.asked]

    def set_threshold(self, threshold: float) -> None:
        self.threshold = float(threshold)


def semantic_cache(queries: Queries) -> float:
    """The threshold that redis-retrieval-optimizer chooses, as a distance of ours."""
    from redis_retrieval_optimizer.threshold_optimization import (  # type: ignore[import-not-found]
        CacheThresholdOptimizer,
    )

    right = (queries.worth == Worth.ANSWERS).tolist()
    asked = [{"query": str(i), "query_match": "d" if ok else ""} for i, ok in enumerate(right)]
    cache = Neighbours(queries)
    CacheThresholdOptimizer(cache, asked).optimize()
    return cache.threshold * 2


def accepted_right(queries: Queries, cut: float) -> int:
    """Its objective: right neighbours taken, and others left (strictly below the cut)."""
    right = queries.worth == Worth.ANSWERS
    return int(((queries.distance < cut) == right).sum())


def best_accepted(queries: Queries) -> int:
    """The same objective at its best cut, by the running sums of the ladder."""
    ladder, right = queries.ladder(), queries.worth == Worth.ANSWERS
    hit, given = ladder.running(right), ladder.running(np.ones(len(right), np.int64))
    return int((2 * hit - given).max() + (~right).sum())


def bare_limit(queries: Queries, table: NDArray[np.int64]) -> int:
    """Argsort, prefix sums, running minimum; no ties, no weights, no checks."""
    order = np.argsort(queries.distance)
    worth, exact = queries.worth[order], queries.exact[order]
    high = np.cumsum((table[2] - table[1])[worth])
    reference = np.cumsum(np.where(exact, 0, (table[1] - table[0])[worth]))
    return int((high + np.minimum.accumulate(reference[::-1])[::-1]).min())


def all_pairs(queries: Queries, table: NDArray[np.int64]) -> int:
    """The slow oracle: every pair of observed cuts."""
    cuts = [-np.inf, *np.unique(queries.distance)]
    return min(
        queries.cost(high, reference, table)
        for at, high in enumerate(cuts)
        for reference in cuts[at:]
    )


def seconds(work: Callable[[], object], times: int = 1) -> float:
    start = time.thread_time()
    for _ in range(times):
        work()
    return (time.thread_time() - start) / times


def compare_semantic_cache(queries: Queries) -> None:
    """Print the ratio to redis-retrieval-optimizer, and what each of the two found."""
    if importlib.util.find_spec("redis_retrieval_optimizer") is None:
        print(f"redis-retrieval-optimizer: not installed, not compared (goal {GOAL_LOOP}x)")
        return
    semantic_cache(Queries(50, 1))  # it compiles its measures at first use
    start = time.thread_time()
    cut = semantic_cache(queries)
    taken = time.thread_time() - start
    ours = statistics.median(seconds(lambda: best_accepted(queries), 20) for _ in range(ROUNDS))
    print(
        f"redis-retrieval-optimizer, its own objective: {taken:.1f} s, ours {ours * 1e3:.2f} ms: "
        f"{taken / ours:.0f}x (goal {GOAL_LOOP}x); right for {accepted_right(queries, cut)} "
        f"queries at its cut, {best_accepted(queries)} at ours"
    )


def main() -> None:
    """Print times, ratios and equalities."""
    costs, queries = Costs(), Queries(QUERIES, 1)
    table, ladder = costs.scaled(), queries.ladder()
    rounds = []
    for _ in range(ROUNDS):
        rounds.append(
            (
                seconds(lambda: product(queries, costs), 20),
                seconds(lambda: bare_limit(queries, table), 20),
                seconds(lambda: random_trials(queries, table, 0)),
                seconds(lambda: one_cut(queries), 20),
                seconds(lambda: product(queries, costs, ladder), 20),
            )
        )
    exact, bare, trials, single, again = (
        statistics.median(times) for times in zip(*rounds, strict=True)
    )
    ratio = statistics.median(r[2] / r[0] for r in rounds)
    best = product(queries, costs) * QUERIES
    lower = sum(random_trials(queries, table, seed) < best for seed in range(20))
    print(
        f"two cuts, {QUERIES} queries, exact: {exact * 1e3:.2f} ms from plain arrays, "
        f"{again * 1e3:.2f} ms with the ladder there (bare {bare * 1e3:.2f} ms)"
    )
    print(
        f"{TRIALS} random trials, one numpy pass each: {trials * 1e3:.0f} ms: {ratio:.0f}x; "
        f"cheaper than exact in {lower} of 20 searches"
    )
    if importlib.util.find_spec("optuna") is None:
        print(f"optuna: not installed, not compared (goal {GOAL_TRIALS}x)")
    else:
        start = time.thread_time()
        found = optuna_trials(queries, table, 0)
        taken = time.thread_time() - start
        print(
            f"optuna, {TRIALS} trials: {taken * 1e3:.0f} ms: {taken / exact:.0f}x "
            f"(goal {GOAL_TRIALS}x), found {found}, exact {int(best)}"
        )
    loop = seconds(lambda: one_cut_loop(queries))
    same = one_cut_loop(queries) == one_cut(queries)
    print(
        f"one cut (F1), loop over every observed cut: {loop * 1e3:.0f} ms, running sums "
        f"{single * 1e3:.2f} ms: {loop / single:.0f}x, {'same' if same else 'DIFFERENT'} value"
    )
    compare_semantic_cache(queries)
    small = [Queries(SAMPLE // 8, seed) for seed in range(20)]
    equal = sum(product(q, costs) * len(q.worth) == all_pairs(q, table) for q in small)
    print(f"equal to the slow oracle over all pairs: {equal} of {len(small)}")


if __name__ == "__main__":
    main()
