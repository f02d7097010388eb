"""How far a claim reaches where queries share topics: the design effect by topic (method.md 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.tuning.certificate import Certificate
from kbeval.evaluation.tuning.cuts import Choice, levels_at
from kbeval.evaluation.tuning.ladder import PreciseRule
from kbeval.evaluation.tuning.plan import measured_design_effect
from kbeval.records import Level
from kbeval.studies.tuning_parts import Parts, topic_names

LARGE = 2.0  # a design effect above it: topics count, not queries


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of the labels that confirm: how much alike the queries of one topic fare.

    `effects` maps a rate to its design effect (None: nothing to compare) and the queries counted.
    `split_apart`: no topic both chooses and confirms, or folds go by topic.
    """

    count: int
    effects: Mapping[str, tuple[float | None, int]]
    split_apart: bool

    @property
    def reach(self) -> str:
        """How far a claim goes; empty where topics do not limit it."""
        large = [name for name, (effect, _) in self.effects.items() if (effect or 0.0) > LARGE]
        why = ["the split is by topic"] if self.split_apart else []
        why += [f"the design effect of {name} is above {LARGE:g}" for name in large]
        if not why:
            return ""
        return (
            f"{' and '.join(why)}: a certificate reaches the {self.count} topics of the "
            "confirming labels, no further"
        )

    def lines(self) -> Iterator[str]:
        """The effects in one line, then how far a claim goes."""
        told = ", ".join(
            f"{name} {'-' if effect is None else f'{effect:.2f}'} (n={n})"
            for name, (effect, n) in self.effects.items()
        )
        yield f"design effect by topic, {self.count} topics: {told}"
        if self.reach:
            yield self.reach

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "count": self.count,
            "design_effect": {
                name: {"value": effect, "n": n} for name, (effect, n) in self.effects.items()
            },
            "split_by_topic": self.split_apart,
            "reach": self.reach,
        }


def topics_of(
    parts: Parts, rule: PreciseRule, choice: Choice | None, certificate: Certificate | None
) -> Topics | None:
    """The design effects at the certified cuts on what confirms, else at the cuts chosen.

    None where a query names no topic, or there are no cuts.
    """
    certified = None if certificate is None else certificate.cuts
    confirming = parts.reported if certificate is None else parts.pair()[1]
    pair = certified or (None if choice is None else choice.distances)
    names = topic_names(parts.labelled, confirming)
    if names is None or pair is None:
        return None
    chosen_on = topic_names(parts.labelled, parts.chosen_on)
    apart = parts.grouped_by == "topic" if parts.folded else chosen_on is not None
    if apart and chosen_on is not None and not parts.folded:
        apart = not set(chosen_on.tolist()) & set(names.tolist())
    return Topics(len(np.unique(names)), _effects(confirming, pair, rule, names), apart)


def _effects(
    judged: Judged, pair: tuple[float, float], rule: PreciseRule, names: NDArray[np.str_]
) -> dict[str, tuple[float | None, int]]:
    level = levels_at(judged, *pair, rule)
    rows = {
        "precision[HIGHLY_RELEVANT]": (
            judged.worth == Worth.ANSWERS,
            level == Level.HIGHLY_RELEVANT,
        ),
        "leak_rate": (level != Level.NOT_FOUND, ~judged.answerable),
    }
    return {
        name: (measured_design_effect(held[among], names[among]), int(among.sum()))
        for name, (held, among) in rows.items()
    }
