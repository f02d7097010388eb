"""One row a judged query: what was asked, what came, what it was worth, and why it went wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kbeval.config import Normalization
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged, Nearness, Worth
from kbeval.evaluation.measures import cuts
from kbeval.evaluation.misses import causes, near_cut
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.records import Evidence, Level
from kbeval.retrieval.grading import distance_to_cosine, l2_to_similarity

OUTCOMES = {
    Worth.ANSWERS: "right",
    Worth.RELATED: "related",
    Worth.WRONG: "wrong",
    Worth.NOTHING: "unanswerable",
}


def query_table(
    judged: Judged,
    labelled: LabelledSet,
    evidence: Evidence,
    level: NDArray[np.int8],
    normalization: Normalization,
    costs: Costs,
) -> pd.DataFrame:
    """One row a judged query, in the order of the set."""
    highly_relevant, reference = cuts(normalization)
    queries = [labelled.queries[i] for i in judged.query]
    known = np.isfinite(judged.distance)
    similarity = l2_to_similarity(judged.distance, normalization.max_l2_distance)
    cosine = distance_to_cosine(np.where(known, judged.distance, np.nan), normalization.distance)
    return pd.DataFrame(
        {
            "query_id": [query.id for query in queries],
            "text": [query.text for query in queries],
            "split": [query.split for query in queries],
            "kind": [query.kind for query in queries],
            "lang": [query.lang for query in queries],
            "domain": [query.domain for query in queries],
            "nearness": [_nearness(code) for code in judged.nearness],
            "level": [Level(code).name for code in level],
            "outcome": [OUTCOMES[Worth(code)] for code in judged.worth],
            "cause": causes(judged, level, reference_cut=reference).astype(str),
            "cost": costs.scaled()[level, judged.worth] / costs.scale,
            "distance": np.where(known, judged.distance, np.nan),
            "similarity": similarity,
            "cosine": cosine,
            "l0_count": judged.l0_count,
            "primary": [evidence.paths[i] if i >= 0 else "" for i in judged.primary],
            "primary_unjudged": judged.primary_unjudged,
            "expected": [_expected(query, labelled.answers_from) for query in queries],
            "hint_false": judged.answerable
            & (level >= Level.HIGHLY_RELEVANT)
            & judged.hint_false(reference),
            "near_cut": near_cut(judged, level, highly_relevant, reference),
            "query_truncated": _truncated(evidence)[judged.row],
            "cluster": [query.cluster for query in queries],
        }
    )


def _truncated(evidence: Evidence) -> NDArray[np.bool_]:
    """Whether the encoder read only the first part of a query, of shape (rows,)."""
    cut = evidence.query_truncated
    return np.zeros(len(evidence), np.bool_) if cut is None else cut


def _nearness(code: int) -> str:
    name = Nearness(code).name.lower()
    return "" if name == "unstated" else name


def _expected(query: Query, answers_from: int) -> str:
    """The documents with the highest score, as text."""
    top = max(query.grades.values(), default=0)
    return "|".join(path for path, score in query.grades.items() if score == top > 0)
