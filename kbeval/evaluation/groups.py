"""The same numbers per kind and language: where the tool is good, and where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from kbeval.evaluation.ranked import Ranked
from kbeval.evaluation.statistics import Rate, mean_interval, rate

GROUPED_BY = ("kind", "lang")
RECALL_AT = 5


def by_group(
    queries: pd.DataFrame, ranked: Ranked, *, answers_from: int = 1
) -> dict[str, dict[str, dict[str, Any]]]:
    """Measures of every kind and language that occurs, as plain values for JSON.

    `queries` is the table of `query_table`, `ranked` the L1 ranking. Each group has its number of
    `queries`, `recall_at_5` of documents that answer (before any cut), `answered` (answerable
    queries that were given a first document that answers), `found_rate` and `leak_rate`.
    Description, not comparison: groups are small and were not drawn at random.
    """
    name = f"R{f'(rel={answers_from})' if answers_from > 1 else ''}@{RECALL_AT}"
    recall = pd.Series(ranked.per_query[name], index=list(ranked.query_ids))
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for column in GROUPED_BY:
        groups = {str(value): part for value, part in queries.groupby(column) if value}
        if len(groups) > 1:
            table[column] = {value: _measured(part, recall) for value, part in groups.items()}
    return table


def _measured(part: pd.DataFrame, recall: pd.Series[float]) -> dict[str, Any]:
    given = (part["level"] != "NOT_FOUND").to_numpy()
    answerable = (part["outcome"] != "unanswerable").to_numpy()
    right = (part["outcome"] == "right").to_numpy()
    cluster = pd.factorize(part["cluster"])[0]
    known = part["query_id"].isin(recall.index).to_numpy()
    found = recall.loc[part["query_id"][known]].to_numpy(dtype=np.float64)

    def share(success: Any, among: Any, empty: str) -> dict[str, Any]:  # noqa: ANN401
        return rate(success[among], cluster[among], empty=empty).to_json()

    mean: Rate = mean_interval(
        found, cluster[known], bounds=(0.0, 1.0), empty="no document answers alone"
    )
    return {
        "queries": len(part),
        f"recall_at_{RECALL_AT}": mean.to_json(),
        "answered": share(given & right, answerable, "no answerable query"),
        "found_rate": share(given, answerable, "no answerable query"),
        "leak_rate": share(given, ~answerable, "no unanswerable query"),
    }
