"""Which rule of PRECISE to use, chosen on the labels that choose the cuts (method.md 7).

No cut changes PRECISE, but its rule decides which queries a cut may grade. Each rule is tried out
of fold at cuts of its own, so neither looks better for being tuned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.statistics import Rate, mean_interval
from kbeval.evaluation.tuning.cuts import Objective
from kbeval.evaluation.tuning.folds import (
    FEWEST_GROUPS,
    RuleOf,
    fold_numbers,
    group_codes,
    mean_cost,
    out_of_fold,
    part,
)
from kbeval.evaluation.tuning.ladder import PreciseRule

RULES: tuple[PreciseRule, PreciseRule] = ("unique", "unique-and-nearest")
REPETITIONS = 2  # of the folds in which the rules are tried; each training part tries them again


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """The rule, and the paired difference in cost that chose it, out of fold.

    `difference` is `unique-and-nearest` less `unique`, a query; `why_not` says why the rules could
    not be tried.
    """

    rule: PreciseRule
    difference: Rate
    why_not: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rule": self.rule,
            "difference": self.difference.to_json(),
            "not_tried": self.why_not,
        }


def choose_rule(
    judged: Judged,
    objective: Objective,
    costs: Costs,
    *,
    present: PreciseRule = "unique",
    groups: ArrayLike | None = None,
    normalization: Normalization | None = None,
    seed: int = 0,
) -> RuleChoice:
    """`unique-and-nearest` where `unique` costs more beyond doubt, else the present rule.

    Beyond doubt: the whole 95 % interval of the difference lies below 0. Where a training part
    cannot be tuned, or there are fewer than 10 groups, the present rule stays.
    """
    code = group_codes(judged, groups)
    count = len(np.unique(code))
    if count < FEWEST_GROUPS:
        return _not_tried(present, f"{count} groups, at least {FEWEST_GROUPS} are needed")
    numbers = fold_numbers(code, judged.answerable, repetitions=REPETITIONS, seed=seed)
    paid = []
    for rule in RULES:
        try:
            held = out_of_fold(
                judged, objective, numbers, normalization=normalization, precise_requires=rule
            )
        except ConfigError as error:
            return _not_tried(present, f"a training part cannot be tuned: {error}")
        paid.append(mean_cost(judged, costs, held.highly_relevant, held.reference, rule))
    difference = mean_interval(paid[1] - paid[0], judged.cluster, empty="no query")
    worse = difference.high is not None and difference.high < 0
    return RuleChoice("unique-and-nearest" if worse else present, difference)


def rule_in_training(
    judged: Judged,
    objective: Objective,
    costs: Costs,
    *,
    present: PreciseRule,
    groups: ArrayLike | None,
    normalization: Normalization | None,
    seed: int,
) -> RuleOf | None:
    """`choose_rule` for any training part of `judged`; None where there is nothing to choose."""
    if present == "unique-and-nearest":
        return None
    code = group_codes(judged, groups)

    def rule_of(train: NDArray[np.bool_]) -> PreciseRule:
        return choose_rule(
            part(judged, train),
            objective,
            costs,
            present=present,
            groups=code[train],
            normalization=normalization,
            seed=seed,
        ).rule

    return rule_of


def _not_tried(present: PreciseRule, why: str) -> RuleChoice:
    return RuleChoice(present, Rate(None, None, None, 0, why), why)
