"""P6: one whole look-up after its vector is there, 10,000 x 1,024, in a fresh session.

Prints whole tool / bare FAISS flat search of the same depth on one thread (goal <= 1.2), the
median over paired look-ups. Excluded: encoding the query (the stand-in hands its vector over)
and building the index. Random unit vectors and texts without shared keys, fixed seed.
Unset OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE in the command's environment.
"""

from __future__ import annotations

import argparse
import statistics
import time

import faiss
import numpy as np

from kbeval.records import Corpus, Document
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.tool import KnowledgeTool


class Handed:
    """An encoder that hands over vectors made beforehand."""

    name, window, fingerprint = "handed", 512, "handed"

    def __init__(self, vectors: dict[str, np.ndarray]) -> None:
        self.vectors = vectors
        self.dimension = len(next(iter(vectors.values())))

    def encode(self, texts, kind):
        return np.stack([self.vectors[text.split("\n")[0]] for text in texts])

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=1024)
    parser.add_argument("--queries", type=int, default=300)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(given.documents + given.queries, given.dimension)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    titles = [f"document number {i:05d}" for i in range(given.documents)]
    queries = [f"what is meant by item {i:05d}" for i in range(given.queries)]
    near = rng.integers(given.documents, size=given.queries)
    rows[given.documents :] = rows[near] + 0.3 * rows[given.documents :]  # something to hand out
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    encoder = Handed(dict(zip([*titles, *queries], rows, strict=True)))
    documents = tuple(
        Document(f"{i:05d}.md", title, f"Text of {title}.", domain=f"d{i % 9}", content_hash=title)
        for i, title in enumerate(titles)
    )
    knowledge = Knowledge.build(Corpus("made", documents), encoder, passage_tokens=128)
    tool = KnowledgeTool(knowledge)
    depth = tool.settings.retrieval.limit + 1
    ratios, found = [], 0
    for i, query in enumerate(queries):
        vector = np.ascontiguousarray(rows[given.documents + i][None])
        faiss.omp_set_num_threads(1)
        start = time.perf_counter()
        knowledge.l1.engine.search(vector, depth)
        middle = time.perf_counter()
        result, _ = tool.lookup_knowledge(query, f"session {i}")
        end = time.perf_counter()
        found += result.found
        ratios.append((end - middle) / (middle - start))
    print(f"whole look-up / bare FAISS flat: {statistics.median(ratios):.3f} (goal <= 1.2)")
    print(f"{found} of {len(queries)} look-ups handed something out")


if __name__ == "__main__":
    main()
