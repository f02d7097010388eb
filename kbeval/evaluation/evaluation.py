"""The result of an evaluation: its numbers, its tables, and the files they are kept in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kbeval.evaluation.judge import Judged, Nearness, Worth
from kbeval.evaluation.measures import Measures
from kbeval.evaluation.statistics import Rate
from kbeval.records import Convention, Level

COLUMNS = ("answers", "related", "wrong", "nothing (near)", "nothing (far)")


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """One evaluation of one split.

    `summary` is the JSON of `evaluate --json`. `queries` has one row a judged query. `cuts` are
    distances by level, in `convention`.
    """

    summary: Mapping[str, Any]
    measures: Measures
    judged: Judged
    level: NDArray[np.int8]  # (n,)
    queries: pd.DataFrame
    cuts: Mapping[str, float]
    convention: Convention

    @property
    def folder_name(self) -> str:
        """A name for a results folder: set, split and encoder."""
        parts = (self.summary["set"], self.summary["split"], self.summary["encoder"])
        return re.sub(r"[^\w.]+", "-", "-".join(parts)).strip("-.")

    @property
    def matrix(self) -> pd.DataFrame:
        """Level by worth, unanswerable queries by nearness; counts of queries."""
        levels = list(reversed(Level))
        near = self.measures.nearness_matrix
        table = pd.DataFrame(
            self.measures.level_matrix[levels][:, [Worth.ANSWERS, Worth.RELATED, Worth.WRONG]],
            index=[level.name for level in levels],
            columns=list(COLUMNS[:3]),
        )
        table[COLUMNS[3]] = near[levels, Nearness.NEAR]
        table[COLUMNS[4]] = near[levels, Nearness.FAR]
        if near[:, Nearness.UNSTATED].any():
            table["nothing"] = near[levels, Nearness.UNSTATED]
        return table

    @property
    def rates(self) -> pd.DataFrame:
        """The verdicts' rates with their intervals: name, value, low, high, n, note.

        With pooled labels the other bound of what unjudged documents leave open stands beside.
        """
        m = self.measures
        pooled, best = self.judged.labels == "pooled", m.false_closure_rate_if_unjudged_best
        named: dict[str, Rate] = {
            **self._precisions(),
            **_by_level("coverage", m.coverage),
            "found_rate": m.found_rate,
            "missed_rate": m.missed_rate,
            "leak_rate": m.leak_rate,
            "leak_rate_near": m.leak_rate_near,
            "leak_rate_far": m.leak_rate_far,
            "closed_leak_rate": m.closed_leak_rate,
            "leak_floor": m.leak_floor,
            "false_closure_rate": m.false_closure_rate,
            **({"false_closure_rate_if_unjudged_best": best} if pooled else {}),
            **_by_level("false_closure_rate", m.false_closure_rate_by_level),
            "better_exists": m.better_exists,
            "answered_anywhere": m.answered_anywhere,
            "complete": m.complete,
        }
        rows = [
            {"name": name, "value": r.value, "low": r.low, "high": r.high, "n": r.n, "note": r.note}
            for name, r in named.items()
        ]
        return pd.DataFrame(rows)

    def headline(self) -> str:
        """The first question in one sentence: which share of the verdicts was true."""
        closed = self.level >= Level.HIGHLY_RELEVANT
        m = self.measures
        parts = [
            f"{level.name}: {_share(m.precision[level])}"
            for level in (Level.PRECISE, Level.HIGHLY_RELEVANT, Level.REFERENCE)
        ]
        return (
            f"{self.summary['set']} ({self.summary['split']}), {self.summary['encoder']}: "
            f"of {len(self.judged)} queries {int(closed.sum())} were closed "
            f"(PRECISE or HIGHLY_RELEVANT). "
            f"The first document answered for {'; '.join(parts)}. "
            f"Unanswerable queries that got documents: {_share(m.leak_rate)}. "
            f"Hints that were false: {self._false_hints()}."
        )

    def _false_hints(self) -> str:
        m = self.measures
        if m.false_closure_settled:
            return _share(m.false_closure_rate)
        low, high = m.false_closure_rate_if_unjudged_best.value, m.false_closure_rate.value
        return (
            f"not settled, from {low:.2f} to {high:.2f} of {m.false_closure_rate.n}: "
            "it hangs on documents that nobody judged"
        )

    def _precisions(self) -> dict[str, Rate]:
        """Each level's precision and, where primaries are unjudged, its upper bound beneath."""
        m = self.measures
        named = {}
        for level, rate in m.precision.items():
            named[f"precision[{level.name}]"] = rate
            if m.unjudged_count[level]:
                bound = m.precision_if_unjudged_answers[level]
                named[f"precision_if_unjudged_answers[{level.name}]"] = bound
        return named

    def worst(self, count: int = 20) -> pd.DataFrame:
        """The queries that cost most, the most confident verdicts first among equals."""
        wrong = self.queries[self.queries["cause"] != ""]
        order = wrong.sort_values(
            ["cost", "distance", "query_id"], ascending=[False, True, True], kind="stable"
        )
        columns = ["query_id", "text", "level", "outcome", "cause", "cost", "similarity"]
        return order[[*columns, "primary", "expected"]].head(count).reset_index(drop=True)

    def save(self, folder: str | Path) -> list[Path]:
        """Write evaluation.json, queries.csv, rates.csv and matrix.csv; return their paths."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        facts = {"headline": self.headline(), **self.summary}
        text = json.dumps(facts, ensure_ascii=False, indent=1, allow_nan=False)
        tables = {"queries.csv": self.queries, "rates.csv": self.rates}
        paths = [target / name for name in ("evaluation.json", *tables, "matrix.csv")]
        paths[0].write_text(text + "\n", encoding="utf-8")
        for name, table in tables.items():
            table.to_csv(target / name, index=False)
        self.matrix.to_csv(target / "matrix.csv", index_label="level")
        return paths


def _by_level(name: str, rates: Mapping[Level, Rate]) -> dict[str, Rate]:
    return {f"{name}[{level.name}]": rate for level, rate in rates.items()}


def _share(rate: Rate) -> str:
    if rate.value is None:
        return f"none ({rate.note})" if rate.note else "none"
    interval = "" if rate.low is None else f" [{rate.low:.2f}, {rate.high:.2f}]"
    return f"{rate.value:.2f}{interval} of {rate.n}"
