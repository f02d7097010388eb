"""Encoders compared, as tables: costs, pairs, coverage at one precision, where they disagree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from kbeval.evaluation.judge import Worth
from kbeval.evaluation.query_table import query_table
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.cuts import levels_at
from kbeval.records import Level
from kbeval.studies.tuning_compare import Comparison
from kbeval.studies.tuning_parts import held_cuts
from kbeval.studies.tuning_result import Tuned, Tuning

QUERY = ["query_id", "text", "lang", "kind", "expected"]


def cost_table(comparison: Comparison) -> pd.DataFrame:
    """One row an encoder: its cost held out, its rule of PRECISE, its best where cuts are chosen.

    The last column is optimistic: it is there to choose an encoder by, not to report.
    """
    rows = [
        {
            "encoder": name,
            **_spread("expected_cost", cost),
            "n": cost.n,
            "note": cost.note,
            "precise_requires": comparison.rules[name],
            f"best {comparison.objective} where chosen": _number(comparison.proposed[name]),
        }
        for name, cost in comparison.cost.items()
    ]
    return pd.DataFrame(rows)


def pair_table(comparison: Comparison) -> pd.DataFrame:
    """One row a pair: cost of the second less the first, p over clusters, what was detectable."""
    rows = [
        {
            "first": pair.first,
            "second": pair.second,
            **_spread("difference", pair.found.difference),
            "n": pair.found.difference.n,
            "p_holm": _number(pair.p_holm),
            "detectable": _number(pair.found.detectable),
            "margin": pair.margin,
            "needed": pair.needed,
            "told_apart": pair.told_apart,
            "note": pair.found.note or pair.found.difference.note,
        }
        for pair in comparison.pairs
    ]
    return pd.DataFrame(rows).astype({"needed": "Int64"})


def coverage_table(comparison: Comparison) -> pd.DataFrame:
    """One row an encoder and wanted precision; no values where the precision is never reached."""
    matching = comparison.matching
    rows = [
        {
            "wanted": row.wanted,
            "encoder": row.encoder,
            "reached": row.reached,
            "cut": _number(row.cut),
            **_spread("coverage", row.coverage),
            "n": row.coverage.n,
            "coverage_floor": _number(row.floor),
            **_spread("precision", row.precision),
            "graded": row.precision.n,
            "fell_short": row.fell_short,
            "reached_share": row.reached_share,
            "not_matched": matching.not_matched(row.encoder, row.wanted),
        }
        for row in matching.rows
    ]
    return pd.DataFrame(rows)


def gap_table(comparison: Comparison) -> pd.DataFrame:
    """One row a pair and wanted precision: coverage of the second less that of the first."""
    rows = [
        {
            "wanted": gap.wanted,
            "first": gap.first,
            "second": gap.second,
            **_spread("coverage", gap.coverage),
            "p_holm": _number(gap.p_holm),
            **_spread("precision", gap.precision),
            "not_matched": gap.not_matched,
            "note": gap.coverage.note,
        }
        for gap in comparison.matching.pairs
    ]
    return pd.DataFrame(rows)


def disagreements(tuning: Tuning) -> pd.DataFrame:
    """The held-out queries that some encoders answer right and others do not, dearest first.

    Right is a first document that answers, or nothing for a query without an answer; each encoder
    at cuts chosen without the query (in folds: those of the first repetition). `right` names who
    is; beside stand what each handed out first, with its level, and what it cost.
    """
    tables = {tuned.encoder: _answers(tuned) for tuned in tuning.tuned}
    first = next(iter(tables.values()))
    right = pd.DataFrame({name: table["right"] for name, table in tables.items()})
    found = first[QUERY].assign(
        right=["|".join(right.columns[row]) for row in right.to_numpy(dtype=np.bool_)]
    )
    for name, table in tables.items():
        found[name] = table["given"]
        found[f"cost {name}"] = table["cost"]
    costs = pd.DataFrame({name: table["cost"] for name, table in tables.items()})
    found["spread"] = costs.max(axis=1) - costs.min(axis=1)
    split = found[right.any(axis=1) & ~right.all(axis=1)]
    ordered = split.sort_values(["spread", "query_id"], ascending=[False, True], kind="stable")
    return ordered.drop(columns="spread").reset_index(drop=True)


def _answers(tuned: Tuned) -> pd.DataFrame:
    """What one encoder's cuts made of each held-out query."""
    parts, ask = tuned.parts, tuned.ask
    judged = parts.reported
    high, reference = (cuts[0] for cuts in held_cuts(parts, ask, tuned.rule))
    level = levels_at(judged, high, reference, tuned.rule)
    table = query_table(judged, parts.labelled, parts.evidence, level, ask.present, ask.costs)
    handed = level > Level.NOT_FOUND
    given = np.where(handed, table["level"] + " " + table["primary"], "nothing")
    right = np.where(judged.answerable, handed & (judged.worth == Worth.ANSWERS), ~handed)
    return table[[*QUERY, "cost"]].assign(given=given, right=right)


def _spread(name: str, rate: Rate) -> dict[str, Any]:
    ends = {name: rate.value, f"{name}_low": rate.low, f"{name}_high": rate.high}
    return {column: _number(value) for column, value in ends.items()}


def _number(value: float | None) -> float:
    """NaN for None, so that a column stays one of numbers."""
    return np.nan if value is None else value
