"""Beside the cuts: both rules of PRECISE held out, and a wrong belief about squared distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbeval.config import Normalization
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.measures import cuts, levels, measure
from kbeval.evaluation.statistics import Rate, mean_interval, rate
from kbeval.evaluation.tuning.export import grade_mix
from kbeval.evaluation.tuning.ladder import PreciseRule
from kbeval.evaluation.tuning.rule_choice import RULES, RuleChoice
from kbeval.records import Convention, Level
from kbeval.studies.tuning_parts import Ask, Parts, cost_at, held_cuts, paired, turned

OTHER: Mapping[Convention, Convention] = {"l2": "squared_l2", "squared_l2": "l2"}
WHICH: Mapping[Convention, str] = {"l2": "Euclidean", "squared_l2": "squared Euclidean"}


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """One rule of `precise-requires`, at cuts of its own, on queries held out."""

    rule: PreciseRule
    graded: int
    precision: Rate
    expected_cost: Rate

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "graded": self.graded,
            "precision": self.precision.to_json(),
            "expected_cost": self.expected_cost.to_json(),
        }


@dataclass(frozen=True, slots=True)
class PreciseRules:
    """The rule that the choosing labels chose, and what both achieve where it is reported.

    `difference` is the paired one in cost on the reported queries: `unique-and-nearest` less
    `unique`. It describes; `chosen` holds what decided.
    """

    chosen: RuleChoice
    outcomes: tuple[RuleOutcome, ...]
    difference: Rate

    def to_json(self) -> dict[str, Any]:
        """Plain values, by rule."""
        return {
            **{outcome.rule: outcome.to_json() for outcome in self.outcomes},
            "difference": self.difference.to_json(),
            "chosen": self.chosen.to_json(),
        }


def precise_rules(parts: Parts, ask: Ask, chosen: RuleChoice) -> PreciseRules:
    """What either rule achieves on queries held out, each at its own best cuts (design.md 3)."""
    judged, outcomes, paid = parts.reported, [], []
    for rule in RULES:
        cost = cost_at(judged, held_cuts(parts, ask, rule), ask.costs, rule)
        precise = levels(judged, ask.present, rule) == Level.PRECISE  # no cut moves it
        answers = judged.worth[precise] == Worth.ANSWERS
        precision = rate(answers, judged.cluster[precise], empty="no query was graded PRECISE")
        mean = mean_interval(cost, judged.cluster, bounds=ask.costs.bounds)
        outcomes.append(RuleOutcome(rule, int(precise.sum()), precision, mean))
        paid.append(cost)
    return PreciseRules(chosen, tuple(outcomes), paired(judged, paid[1] - paid[0]))


@dataclass(frozen=True, slots=True)
class WrongBelief:
    """The same thresholds where the distances are of the other kind than believed.

    `differ` of `n` queries get another level than intended.
    """

    settings: str  # "present" or "recommended"
    believed: Convention
    actual: Convention
    differ: int
    n: int
    mix: Mapping[str, tuple[float, float]]  # level -> share intended, share that comes
    rates: Mapping[str, tuple[Rate, Rate]]  # intended, that comes

    def to_json(self) -> dict[str, Any]:
        """Plain values; a pair is what was intended and what comes."""
        return {
            "settings": self.settings,
            "believed": self.believed,
            "actual": self.actual,
            "differ": self.differ,
            "n": self.n,
            "mix": {name: list(pair) for name, pair in self.mix.items()},
            "rates": {name: [rate.to_json() for rate in pair] for name, pair in self.rates.items()},
        }


def wrong_belief(
    judged: Judged, normalization: Normalization, rule: PreciseRule, costs: Costs, *, settings: str
) -> WrongBelief:
    """Grade with the other kind of distance under unchanged numbers (design.md 1).

    Believed is the convention of `normalization`; the engine returns the other one.
    """
    other = OTHER[normalization.distance]
    there = normalization.model_copy(update={"distance": other})
    arms = ((judged, normalization), (turned(judged), there))
    level = [levels(one, setting, rule) for one, setting in arms]
    measured = [
        measure(one, own, reference_cut=cuts(setting)[1], costs=costs)
        for (one, setting), own in zip(arms, level, strict=True)
    ]
    mixes = [grade_mix(own) for own in level]
    right, wrong = measured
    high = Level.HIGHLY_RELEVANT
    return WrongBelief(
        settings=settings,
        believed=normalization.distance,
        actual=other,
        differ=int(np.count_nonzero(level[0] != level[1])),
        n=len(judged),
        mix={name: (mixes[0][name], mixes[1][name]) for name in mixes[0]},
        rates={
            "expected_cost": (right.expected_cost, wrong.expected_cost),
            "precision[HIGHLY_RELEVANT]": (right.precision[high], wrong.precision[high]),
            "coverage[HIGHLY_RELEVANT]": (right.coverage[high], wrong.coverage[high]),
            "found_rate": (right.found_rate, wrong.found_rate),
            "leak_rate": (right.leak_rate, wrong.leak_rate),
        },
    )
