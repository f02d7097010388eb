"""Nearest passages by FAISS flat, exactly: the one place that knows what the engine returns.

FAISS answers with squared L2 in single precision. Candidates are taken from it, their distances
are computed again in double precision, so that one query alone and in a batch give the same six
decimals, and then ordered by distance, then path (design.md 1, 2).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbeval.errors import DistanceError, IndexFileError
from kbeval.records import Convention
from kbeval.retrieval.grading import DECIMALS, checked_distance
from kbeval.retrieval.packed import NO_NEIGHBOUR, each_once, packed, unpacked

if TYPE_CHECKING:
    import faiss

Vectors = NDArray[np.float32]
Neighbours = tuple[NDArray[np.int32], NDArray[np.float64]]  # documents and distances, (n, k) each

SLACK = 1e-5  # more than the error of a squared distance in single precision, unit vectors
BLOCK = 8_000_000  # distances held at a time by an exhaustive search
PIECE = 4096  # passages widened to double precision at a time by it
ENGINE_BLOCK = 4096  # passages the engine multiplies at a time; its own 1024 is some 5 % slower
BATCH = 1024  # queries searched at a time
PART = 64  # of them whose distances one thread computes again


@dataclass(frozen=True, slots=True, eq=False)
class NearestPassages:
    """The vectors of all passages, and exact search over them by document.

    `vectors` are unit vectors of shape (p, d), in the order of `document`: (p,) positions of
    documents, never falling. Documents stand in the order of their paths, so that a lower
    position is a lower path.
    """

    vectors: Vectors
    document: NDArray[np.int32]
    document_count: int
    convention: Convention
    engine: faiss.Index
    squared_norm: NDArray[np.float64]  # (p,), 1 up to the rounding of single precision
    start: NDArray[np.int64]  # (document_count + 1,), where each document's passages begin

    def nearest(self, queries: Vectors, k: int, *, threads: int = 1) -> Neighbours:
        """The k nearest documents of each of n queries, each document once.

        Exact under the order (distance at 6 decimals, position): ties at the last place are
        fetched until the distance grows. Unused places hold -1 and inf.
        """
        k = min(int(k), self.document_count)
        if k == 0 or len(queries) == 0:
            return np.empty((len(queries), 0), np.int32), np.empty((len(queries), 0))
        parts = [
            self._search(queries[i : i + BATCH], k, threads) for i in range(0, len(queries), BATCH)
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def all_documents(self, queries: Vectors) -> Neighbours:
        """Every document of each query, by distance, then position: (n, document_count) each."""
        shape = (len(queries), self.document_count)
        documents, distances = np.empty(shape, np.int32), np.empty(shape)
        rows = max(1, BLOCK // max(1, len(self.vectors)))
        positions = np.arange(self.document_count)
        for i in range(0, len(queries), rows):
            block = queries[i : i + rows].astype(np.float64)
            near = self._all_squared(block)
            if len(self.vectors) > self.document_count:
                near = np.minimum.reduceat(near, self.start[:-1], axis=1)
            keys = packed(self._distance(near), positions, self.document_count)
            keys.sort(axis=1)
            documents[i : i + rows], distances[i : i + rows] = unpacked(keys, self.document_count)
        return documents, distances

    def distances_to(self, query: Vectors, documents: Sequence[int]) -> NDArray[np.float64]:
        """Distances of one query, of shape (d,), to the given documents."""
        return self._distance(np.array([self._near(query, doc)[0] for doc in documents]))

    def nearest_passage(self, query: Vectors, document: int) -> int:
        """The position of the document's passage nearest to one query of shape (d,)."""
        return self._near(query, document)[1]

    def _near(self, query: Vectors, document: int) -> tuple[float, int]:
        first, last = self.start[document], self.start[document + 1]
        gap = self.vectors[first:last].astype(np.float64) - query
        squared = np.einsum("pd,pd->p", gap, gap)
        best = int(squared.argmin())
        return float(squared[best]), int(first) + best

    def _search(self, queries: Vectors, k: int, threads: int) -> Neighbours:
        total = len(self.vectors)
        wanted = min(k + 8 if total == self.document_count else 2 * k + 16, total)
        documents, distances, done = self._ranked(queries, k, wanted, threads)
        while wanted < total and not done.all():
            wanted = min(4 * wanted, total)
            rest = np.flatnonzero(~done)
            found = self._ranked(queries[rest], k, wanted, threads)
            documents[rest], distances[rest], done[rest] = found
        return documents, distances

    def _ranked(
        self, queries: Vectors, k: int, wanted: int, threads: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]:
        """The k nearest documents among the `wanted` nearest passages; whether that is enough."""
        raw, found = self._engine_search(queries, wanted, threads)
        near = self._distance(self._exact(queries, found, threads))
        reach = np.maximum(raw[:, -1].astype(np.float64) - SLACK, 0.0)
        if self.convention == "l2":
            reach = np.sqrt(reach)
        if len(queries) == 1:
            document, distance = self._ranked_alone(near, found, k)
            return document, distance, distance[:, -1] < reach
        keys = packed(near, self.document[found], self.document_count)
        if found.min() < 0:
            keys[found < 0] = NO_NEIGHBOUR
        keys.sort(axis=1)
        if len(self.vectors) > self.document_count:
            keys = each_once(keys, self.document_count)
        document, distance = unpacked(keys[:, :k], self.document_count)
        return document, distance, distance[:, -1] < reach

    def _ranked_alone(
        self, near: NDArray[np.float64], found: NDArray[np.int64], k: int
    ) -> Neighbours:
        """The same for one query, (1, k): of so few numbers each step of an array costs more."""
        rows = zip(
            near[0].tolist(), self.document[found[0]].tolist(), found[0].tolist(), strict=True
        )
        first: dict[int, float] = {}
        for distance, document in sorted((x, doc) for x, doc, passage in rows if passage >= 0):
            first.setdefault(document, distance)
        missing = max(0, k - len(first))
        nearest = [*first, *[-1] * missing][:k]
        distances = [*first.values(), *[np.inf] * missing][:k]
        return np.array([nearest], np.int32), np.array([distances])

    def _engine_search(
        self, queries: Vectors, k: int, threads: int
    ) -> tuple[Vectors, NDArray[np.int64]]:
        import faiss

        faiss.omp_set_num_threads(threads)
        queries = np.ascontiguousarray(queries, np.float32)
        if len(queries) == 1:
            raw, found = self.engine.search(queries, k)
            return raw, found
        usual = faiss.cvar.distance_compute_blas_database_bs
        faiss.cvar.distance_compute_blas_database_bs = ENGINE_BLOCK
        try:
            raw, found = self.engine.search(queries, k)
        finally:
            faiss.cvar.distance_compute_blas_database_bs = usual
        return raw, found

    def _exact(
        self, queries: Vectors, found: NDArray[np.int64], threads: int
    ) -> NDArray[np.float64]:
        """Squared distances in double precision, (n, k); where `found` is -1 they mean nothing."""
        wide = queries.astype(np.float64)
        exact = np.empty(found.shape)

        def compute(first: int) -> None:
            rows = np.empty((found.shape[1], self.vectors.shape[1]), np.float32)
            doubles = np.empty(rows.shape)
            for i in range(first, min(first + PART, len(queries))):
                # `wrap` takes -1 as numpy does, and unlike `raise` it needs no second buffer
                np.take(self.vectors, found[i], axis=0, out=rows, mode="wrap")
                doubles[:] = rows
                np.dot(doubles, wide[i], out=exact[i])

        parts = range(0, len(queries), PART)
        if threads > 1 and len(parts) > 1:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(compute, parts))
        else:
            for part in parts:
                compute(part)
        exact *= -2.0
        exact += self.squared_norm[found]
        exact += self._squared(wide)
        return exact

    def _all_squared(self, queries: NDArray[np.float64]) -> NDArray[np.float64]:
        """Squared distances of every passage, (n, p); passages are widened piece by piece."""
        squared = np.empty((len(queries), len(self.vectors)))
        for first in range(0, len(self.vectors), PIECE):
            piece = self.vectors[first : first + PIECE].astype(np.float64)
            np.matmul(queries, piece.T, out=squared[:, first : first + PIECE])
        squared *= -2.0
        squared += self.squared_norm
        squared += self._squared(queries)
        return squared

    @staticmethod
    def _squared(queries: NDArray[np.float64]) -> NDArray[np.float64]:
        squared: NDArray[np.float64] = np.einsum("nd,nd->n", queries, queries)[:, None]
        return squared

    def _distance(self, squared: NDArray[np.float64]) -> NDArray[np.float64]:
        """From the engine's squared L2 to the configured convention; the only such place."""
        squared = np.maximum(squared, 0.0)
        distance = np.sqrt(squared) if self.convention == "l2" else squared
        rounded: NDArray[np.float64] = np.round(distance, DECIMALS)
        return rounded


def nearest_passages(
    vectors: Vectors,
    document: NDArray[np.int32],
    document_count: int,
    *,
    convention: Convention = "l2",
    make_engine: Callable[[int], faiss.Index] | None = None,
) -> NearestPassages:
    """Put unit vectors into an engine that has proved what it returns.

    `make_engine` takes the dimension and gives an empty FAISS index; the default is flat L2.
    Raises `IndexFileError` for an engine of another metric.
    """
    import faiss

    make_engine = make_engine or faiss.IndexFlatL2
    prove_engine(make_engine(2))
    engine = make_engine(vectors.shape[1])
    engine.add(np.ascontiguousarray(vectors, np.float32))
    exact = vectors.astype(np.float64)
    return NearestPassages(
        vectors=vectors,
        document=document,
        document_count=document_count,
        convention=convention,
        engine=engine,
        squared_norm=np.einsum("pd,pd->p", exact, exact),
        start=np.searchsorted(document, np.arange(document_count + 1)),
    )


def prove_engine(empty: faiss.Index) -> None:
    """Check on two vectors that an engine answers with squared L2 (design.md 1).

    e1 against (.6, .8) is 0.8 squared, 0.894 plain. Raises `IndexFileError` naming the metric.
    """
    import faiss

    metrics = {v: k for k, v in vars(faiss).items() if k.startswith("METRIC_")}
    name = metrics.get(empty.metric_type, str(empty.metric_type))
    if empty.metric_type != faiss.METRIC_L2:
        raise IndexFileError(f"the index's metric is {name}; METRIC_L2 is expected")
    empty.add(np.array([[0.6, 0.8]], np.float32))
    raw = float(empty.search(np.array([[1.0, 0.0]], np.float32), 1)[0][0, 0])
    if abs(raw - 0.8) > SLACK:
        raise IndexFileError(
            f"the index answers {raw:.4f} for vectors at squared L2 0.8; METRIC_L2 is expected"
        )


def from_engine(
    raw: Sequence[object], names: Sequence[str], *, convention: Convention = "l2"
) -> dict[str, float]:
    """Squared L2 distances of a foreign engine, by document, in `convention` (design.md 1).

    Padding (inf or the largest single-precision number) is no neighbour and gives no entry.
    Raises `DistanceError` naming the document for NaN, negative values and what is no number.
    """
    distances: dict[str, float] = {}
    for name, value in zip(names, raw, strict=True):
        try:
            squared = float(checked_distance(value))  # type: ignore[arg-type]
        except DistanceError as error:
            raise DistanceError(f"{name}: {error}") from None
        if squared < float(np.finfo(np.float32).max) * 0.99:
            distances[name] = round(squared**0.5 if convention == "l2" else squared, DECIMALS)
    return distances


def default_threads() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
