"""P5: searching a whole query set over 100,000 x 1,024 vectors, against FAISS flat itself.

Prints the ratio FAISS time / our time for the same queries and the same depth (goal >= 0.95),
whether the ids are the same, and how much faster a batch is than one call a query (goal >= 7).
Excluded: building the index, embedding. Random unit vectors, fixed seed; median of several runs,
taken in turn. Unset OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE in the command's environment.
"""

from __future__ import annotations

import argparse
import statistics
import time

import faiss
import numpy as np

from kbeval.retrieval.l1 import default_threads, nearest_passages


def unit(rng: np.random.Generator, rows: int, dimension: int) -> np.ndarray:
    vectors = rng.normal(size=(rows, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=1024)
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=default_threads())
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    vectors = unit(rng, given.passages, given.dimension)
    queries = unit(rng, given.queries, given.dimension)
    base = nearest_passages(vectors, np.arange(given.passages, dtype=np.int32), given.passages)

    def bare() -> tuple[np.ndarray, np.ndarray]:
        faiss.omp_set_num_threads(given.threads)
        return base.engine.search(queries, given.depth)

    def ours() -> tuple[np.ndarray, np.ndarray]:
        return base.nearest(queries, given.depth, threads=given.threads)

    few = queries[: min(64, given.queries)]

    def one_by_one() -> None:
        for query in few:
            base.nearest(query[None], given.depth)

    bare(), ours()
    pairs = [(seconds(bare), seconds(ours), seconds(one_by_one)) for _ in range(given.runs)]
    ratio = statistics.median(b / o for b, o, _ in pairs)
    single = statistics.median((s / len(few)) / (o / len(queries)) for _, o, s in pairs)
    same = (bare()[1] == ours()[0]).mean()
    print(
        f"FAISS / kbeval, {given.queries} queries, depth {given.depth}: {ratio:.3f} (goal >= 0.95)"
    )
    print(f"one call a query / batch: {single:.1f} (goal >= 7)")
    print(f"ids equal at the same place: {same:.6f} (equal distances may stand in another order)")


if __name__ == "__main__":
    main()
