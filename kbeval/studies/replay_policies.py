"""Policies side by side, from the ledger: what pictures draw and sweeps count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from kbeval.config import Settings, load_settings
from kbeval.evaluation.ledger.ledger import Ledger
from kbeval.evaluation.replaying.obedience import ObedienceCurve
from kbeval.evaluation.replaying.policies import DEFAULT_POLICIES, NO_MEMORY, Policy
from kbeval.evaluation.statistics import Rate

WHOLE = "whole session"
METRICS = (  # columns of the ledger's table that a sweep compares
    "saved_once_per_session",
    "saved_cumulative_per_session",
    "saved_share",
    "harm_low",
    "harm_high",
    "lost_low",
    "lost_high",
    "dead_ends",
    "blocked",
)


_NOTHING = Rate(0.0, 0.0, 0.0, 0)  # avoided by an executor that never obeys: by definition


def compared(ledger: Ledger) -> pd.DataFrame:
    """The rows of the ledger's table that may stand in one picture.

    A policy whose executor obeys is one draw of a sensitivity analysis, and is left out. Harm
    under no memory is 0 by definition and has no interval.
    """
    table = ledger.table()
    table = table[table["policy"].isin(comparable(ledger.policies.values()))].reset_index(drop=True)
    ends = [name + end for name in ("harm_low", "harm_high") for end in ("_from", "_to")]
    table.loc[table["policy"] == NO_MEMORY, ends] = None
    return table


def comparable(policies: Iterable[Policy]) -> list[str]:
    """The names of the policies whose executor obeys nothing."""
    return [policy.name for policy in policies if policy.obeys == "nothing"]


def by_horizon(ledger: Ledger) -> pd.DataFrame:
    """Document memory with each horizon in turns, shortest first, the whole session last."""
    horizons = {
        name: policy.settings.session.horizon_turns
        for name, policy in ledger.policies.items()
        if _is_documents(policy, ledger.policies[NO_MEMORY])
    }
    order = sorted(horizons, key=lambda name: horizons[name] or float("inf"))
    table = ledger.table().set_index("policy").loc[order].reset_index()
    return table.assign(horizon=[str(horizons[name] or WHOLE) for name in order])


def obedience_table(curves: Mapping[str, ObedienceCurve]) -> pd.DataFrame:
    """A row a policy and level of obedience, 0 first: what is avoided, what is harmed."""
    rows = [
        {
            "policy": policy,
            "obedience": point.obedience,
            **_ends("avoided", point.avoided_share if point.obedience else _NOTHING),
            **_ends("avoided_tokens", point.avoided_tokens),
            **_ends("harmed", point.harmed_share),
            "harmed_turns_least": point.harmed_least,
            "harmed_turns_most": point.harmed_most,
        }
        for policy, curve in curves.items()
        for point in curve.points
    ]
    names = ("avoided", "avoided_tokens", "harmed")
    columns = [name + end for name in names for end in ("", "_from", "_to")]
    columns += ["harmed_turns_least", "harmed_turns_most"]
    return pd.DataFrame(rows, columns=["policy", "obedience", *columns])


def metrics(ledger: Ledger) -> dict[str, Any]:
    """What a sweep tabulates: plain names for one memory policy, a value each for several."""
    rows = [row for row in ledger.table().to_dict("records") if row["policy"] != NO_MEMORY]
    if len(rows) == 1:
        return {name: rows[0][name] for name in METRICS}
    return {
        name: {row["policy"]: {"value": row[name]} for row in rows if row[name] is not None}
        for name in METRICS
    }


def usual_policies(horizons: Sequence[int] | None = None, policy: str = "") -> list[str]:
    """The texts of the policies to compare: `policy` alone, else the usual ones.

    With `horizons` document memory is tried with these in place of the usual horizons.

    >>> usual_policies([2])
    ['none', 'documents', 'primary', 'content', 'hints', 'documents horizon-turns=2']
    >>> usual_policies([2], "primary")
    ['primary']
    """
    if policy:
        return [policy]
    if horizons is None:
        return list(DEFAULT_POLICIES)
    kept = [text for text in DEFAULT_POLICIES if "horizon" not in text]
    return kept + [f"documents horizon-turns={horizon}" for horizon in horizons]


def with_thresholds(
    settings: Mapping[str, Any], highly_relevant: float | None, reference: float | None
) -> Settings:
    """The settings with these thresholds, where given. Raises `ConfigError`."""
    thresholds = {
        "highly-relevant-threshold": highly_relevant,
        "reference-threshold": reference,
    }
    given = {key: value for key, value in thresholds.items() if value is not None}
    retrieval = dict(settings.get("retrieval") or {})
    normalization = dict(retrieval.get("normalization") or {}) | given
    return load_settings({**settings, "retrieval": retrieval | {"normalization": normalization}})


def _is_documents(policy: Policy, none: Policy) -> bool:
    """Whether it is the memory of REQ-01, with or without a horizon in turns, and nothing else."""
    plain = policy.settings.session.model_copy(update={"horizon_turns": None})
    remembering = none.settings.session.model_copy(update={"memory": "documents"})
    same = policy.settings.retrieval == none.settings.retrieval
    return same and policy.obeys == "nothing" and plain == remembering


def _ends(name: str, rate: Rate) -> dict[str, float | None]:
    return {name: rate.value, f"{name}_from": rate.low, f"{name}_to": rate.high}
