"""P8: the embedding cache when every text is a hit. Goal: below 3 us a text.

    python benchmarks/p8_embedding_cache.py [--texts 20000] [--dimension 384] [--rounds 7]

Compared in one run, medians of interleaved rounds: our cache; the limit (hash each text, look up
its row in a dict, gather from a table in memory); diskcache, one read a text, as its users do
(a blake2b key, the vector's bytes as value, into an array). Excluded: filling the caches, start of
the interpreter. Opening (reading and checking the file) is timed apart and shown as its own line.
A stand-in encoder that must never be called proves that every text is a hit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.vectors import EmbeddingCache
from kbeval.records import Kind


class Recorded:
    """An encoder that gives random unit vectors while filling and refuses to work after."""

    name = "recorded"
    window = 512
    fingerprint = "recorded"

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.filling = True
        self._rng = np.random.default_rng(0)

    def encode(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Random unit vectors (n, d)."""
        if not self.filling:
            raise RuntimeError("a text was no hit")
        rows = self._rng.normal(size=(len(texts), self.dimension))
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words."""
        return [len(text.split()) for text in texts]


def key_of(text: str) -> bytes:
    """The key that all three use."""
    return blake2b(text.encode(), digest_size=16).digest()


def bare(
    texts: Sequence[str], row: dict[bytes, int], table: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The least there is to do: hash, look up, gather."""
    keys = [blake2b(text.encode(), digest_size=16).digest() for text in texts]
    return table[np.asarray(list(map(row.__getitem__, keys)))]


def measured(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each work, the works taking turns."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - begin)
    return {name: float(np.median(taken)) for name, taken in seconds.items()}


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    texts = [f"how do I change the setting number {n} of my account" for n in range(chosen.texts)]
    encoder = Recorded(chosen.dimension)
    with tempfile.TemporaryDirectory() as folder:
        cache = EmbeddingCache(Path(folder) / "ours")
        table = cache.embed(encoder, texts, "query")
        encoder.filling = False
        row = {key_of(text): n for n, text in enumerate(texts)}
        works: dict[str, Callable[[], object]] = {
            "ours": lambda: cache.embed(encoder, texts, "query"),
            "ours, opened anew": lambda: EmbeddingCache(Path(folder) / "ours").embed(
                encoder, texts, "query"
            ),
            "limit": lambda: bare(texts, row, table),
        }
        try:
            import diskcache
        except ImportError:
            print("diskcache is not installed: no peer")
        else:
            peer = diskcache.Cache(str(Path(folder) / "peer"))
            with peer.transact():
                for text, vector in zip(texts, table, strict=True):
                    peer.set(key_of(text), vector.tobytes())
            works["diskcache"] = lambda: np.stack(
                [np.frombuffer(peer.get(key_of(text)), dtype=np.float32) for text in texts]
            )
        seconds = measured(works, chosen.rounds)
    print(f"{chosen.texts} texts, {chosen.dimension} numbers each, {chosen.rounds} rounds, medians")
    for name, taken in seconds.items():
        ratio = taken / seconds["limit"]
        print(f"{name:18} {taken / chosen.texts * 1e6:7.2f} us a text  {ratio:6.2f} x the limit")
    if "diskcache" in seconds:
        print(f"ours is {seconds['diskcache'] / seconds['ours']:.1f} times as fast as diskcache")


if __name__ == "__main__":
    main()
