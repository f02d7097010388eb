"""The two cuts one can defend: chosen exactly, or a verdict where a number would lie.

`best_cuts` works on plain arrays and may be called thousands of times; `choose` is the whole
answer for judged queries: cuts, plateau, and what hinders them (method.md 5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible, constrained
from kbeval.evaluation.tuning.ladder import (
    Ladder,
    PreciseRule,
    Rule,
    ladder,
    largest_max_of,
    may_be_precise,
)
from kbeval.evaluation.tuning.objectives import Optimum, accuracy, additive, macro_f1
from kbeval.evaluation.tuning.plateau import Cut, Interval, cut_at, decimal, finite
from kbeval.records import Convention, Level
from kbeval.retrieval.grading import grade

Objective = Costs | Constraints | Literal["accuracy", "macro_f1"]

NO_WRONG = "no query without an answer in this set; a lower limit cannot be chosen"
NO_ANSWER = (
    "no query with an answer in this set; a cut of HIGHLY_RELEVANT cannot be chosen, "
    "recall and precision are not defined (0 relevant)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The cuts chosen for one objective, or the verdicts that stand in their place.

    `one_class` maps a level to why no number is recommended for it; the cut itself still shows
    its plateau. `constants` maps a level to why its cut is one of the two constants in place of
    the best one: never or always given.
    """

    objective: str
    value: Fraction
    second: Fraction | None  # found_rate, under constraints
    highly_relevant: Cut
    reference: Cut
    one_class: Mapping[Level, str]
    precise_requires: PreciseRule
    convention: Convention
    n: int  # queries tuned on
    pair: tuple[int, int]  # rungs of the ladder
    constants: Mapping[Level, str] = field(default_factory=dict)

    @property
    def distances(self) -> tuple[float, float]:
        """The two cut distances, of HIGHLY_RELEVANT and REFERENCE, inclusive."""
        return self.highly_relevant.distance, self.reference.distance

    def to_json(self, max_l2_distance: float) -> dict[str, Any]:
        """Plain values; similarities under `max_l2_distance`."""
        return {
            "objective": self.objective,
            "value": float(self.value),
            "found_rate": None if self.second is None else float(self.second),
            "n": self.n,
            "precise_requires": self.precise_requires,
            "convention": self.convention,
            "cuts": {
                cut.level.name: cut.to_json(self.convention, max_l2_distance)
                for cut in (self.highly_relevant, self.reference)
            },
            "one_class": {level.name: why for level, why in self.one_class.items()},
            "constants": {level.name: why for level, why in self.constants.items()},
        }


def best_cuts(
    tuned: Ladder, objective: Objective, *, weights: NDArray[np.int64] | None = None
) -> Optimum | Infeasible:
    """The best pair of cuts under an objective, with every pair of equal value.

    `weights` (n,) are whole counts per query, such as those of a resample. Raises `ConfigError`
    for accuracy or macro-F1 on labels that cannot place two cuts.
    """
    if isinstance(objective, Costs):
        table, scale = _whole_units(objective)
        return additive(tuned, table, scale=scale, weights=weights)
    if isinstance(objective, Constraints):
        return constrained(tuned, objective, weights)
    if objective == "accuracy":
        return accuracy(tuned, weights)
    if objective == "macro_f1":
        return macro_f1(tuned, weights)
    raise ConfigError(
        f"objective: got {objective!r}; allowed are costs, constraints, accuracy, macro_f1"
    )


@lru_cache(maxsize=16)
def _whole_units(costs: Costs) -> tuple[NDArray[np.int64], int]:
    """The costs as integers `[level, worth]`, and their scale; kept, as resamples ask again."""
    table = costs.scaled()
    table.flags.writeable = False
    return table, costs.scale


def choose(
    judged: Judged,
    objective: Objective,
    *,
    normalization: Normalization | None = None,
    precise_requires: PreciseRule = "unique",
    among: NDArray[np.bool_] | None = None,
    weights: NDArray[np.int64] | None = None,
) -> Choice | Infeasible:
    """Choose both cuts for judged queries, or those `among` (n,), each counted `weights` times.

    `normalization` is the present setting, whose max must stay expressible. Weights belong to
    the queries among. Raises `ConfigError` if there is no query, or for an objective that these
    labels cannot serve.
    """
    present = 0.0 if normalization is None else normalization.max_l2_distance
    tuned = ladder(
        judged,
        precise_requires=precise_requires,
        largest_max=largest_max_of(judged, present),
        among=among,
    )
    if not len(tuned):
        raise ConfigError("0 queries to tune on; at least one labelled query is expected")
    optimum = best_cuts(tuned, objective, weights=weights)
    if isinstance(optimum, Infeasible):
        return optimum
    pair = optimum.rungs
    return Choice(
        objective=name_of(objective),
        value=optimum.value,
        second=optimum.second,
        highly_relevant=cut_at(tuned, Level.HIGHLY_RELEVANT, optimum.highly_relevant),
        reference=cut_at(tuned, Level.REFERENCE, optimum.references(pair[0])),
        one_class=one_class(tuned),
        precise_requires=precise_requires,
        convention=judged.convention,
        n=len(tuned),
        pair=pair,
    )


def name_of(objective: Objective) -> str:
    """What was optimised, in words."""
    if isinstance(objective, Costs):
        return "expected_cost"
    if isinstance(objective, Constraints):
        return f"coverage[HIGHLY_RELEVANT], then found_rate, with {objective}"
    return objective


def levels_at(
    judged: Judged,
    highly_relevant: float | NDArray[np.float64],
    reference: float | NDArray[np.float64],
    precise_requires: Rule = "unique",
) -> NDArray[np.int8]:
    """Grade judged queries by two cut distances (inclusive) in place of thresholds, (n,).

    The tool's own `grade`, with the distance turned round so that nearer is greater. Cuts and rule
    may be each query's own, of shape (..., n), and so are the levels then.
    """
    graded = grade(
        judged.l0_count,
        judged.l0_handed_count,
        -judged.distance,
        highly_relevant=np.negative(highly_relevant),
        reference=np.negative(reference),
        l0_may_be_precise=may_be_precise(judged, precise_requires),
    )
    return np.where(judged.primary < 0, np.int8(Level.NOT_FOUND), graded)


def one_class(tuned: Ladder) -> dict[Level, str]:
    """The levels for which these labels give no ground, and why (method.md 5).

    Among queries without an L0 match: none that is wrong or has nothing to find, so no Dr can
    be chosen; or none that its primary answers, so no Dh.
    """
    worth = tuned.worth[tuned.free]
    verdicts = {}
    if not (worth == Worth.ANSWERS).any():
        verdicts[Level.HIGHLY_RELEVANT] = NO_ANSWER
    if not (worth <= Worth.WRONG).any():
        verdicts[Level.REFERENCE] = NO_WRONG
    return verdicts


def doubtful(judged: Judged, count: int = 10) -> dict[str, NDArray[np.int64]]:
    """The nearest wrong and the farthest right of the queries without an L0 match.

    Positions in `judged`, the most telling first, so that a person sees mislabel or truth. Wrong:
    the primary is wrong or there is nothing to find; right: it answers.
    """
    free = (judged.l0_count == 0) & np.isfinite(judged.distance)
    order = np.argsort(judged.distance, kind="stable")
    wrong = order[(free & (judged.worth <= Worth.WRONG))[order]]
    right = order[(free & (judged.worth == Worth.ANSWERS))[order]][::-1]
    return {"nearest_wrong": wrong[:count], "farthest_right": right[:count]}


def sensitivity(
    judged: Judged,
    objective: Objective,
    *,
    normalization: Normalization | None = None,
    precise_requires: PreciseRule = "unique",
) -> dict[str, Choice | Infeasible | str]:
    """The cuts under other assumptions; a text says why one cannot be made (method.md 5).

    Unjudged primaries left out; the share of unanswerable queries halved and doubled.
    """

    def again(**changed: Any) -> Choice | Infeasible | str:  # noqa: ANN401
        try:
            return choose(
                judged,
                objective,
                normalization=normalization,
                precise_requires=precise_requires,
                **changed,
            )
        except ConfigError as error:
            return str(error)

    found: dict[str, Choice | Infeasible | str] = {
        "unjudged_left_out": again(among=~judged.primary_unjudged)
    }
    for name, factor in (("share_halved", Fraction(1, 2)), ("share_doubled", Fraction(2))):
        weights = share_weights(judged.answerable, factor)
        found[name] = weights if isinstance(weights, str) else again(weights=weights)
    return found


def share_weights(answerable: NDArray[np.bool_], factor: Fraction) -> NDArray[np.int64] | str:
    """Whole counts per query under which the share of unanswerable ones is `factor` times as large.

    A text where that cannot be: none is unanswerable, none answerable, or the share would reach 1.

    >>> share_weights(np.array([True, True, True, False]), Fraction(2)).tolist()
    [1, 1, 1, 3]
    """
    a, u = int(answerable.sum()), int((~answerable).sum())
    if not a or not u:
        return f"{a} answerable and {u} unanswerable queries: there is no share to change"
    share = factor * Fraction(u, a + u)
    if share >= 1:
        return f"{u} of {a + u} queries are unanswerable: {float(factor):g} times that is no share"
    each = share / (1 - share) * Fraction(a, u)  # the weight of one unanswerable query
    return np.where(answerable, each.denominator, each.numerator).astype(np.int64)


def hinges_on(
    others: Mapping[str, Choice | Infeasible | str],
    stability: Mapping[Level, tuple[float, float]],
) -> list[str]:
    """Which assumptions move a cut out of its stability range: `name: level at distance`."""
    told = []
    for name, other in others.items():
        if isinstance(other, Infeasible):
            told.append(f"{name}: {other}")
        elif isinstance(other, Choice):
            for cut in (other.highly_relevant, other.reference):
                low, high = stability.get(cut.level, (-math.inf, math.inf))
                if not low <= cut.distance <= high:
                    at = finite(cut.distance)
                    where = cut.note if at is None else f"at distance {decimal(at)}"
                    told.append(f"{name}: {cut.level.name} {where}")
    return told


__all__ = [
    "Choice",
    "Constraints",
    "Cut",
    "Infeasible",
    "Interval",
    "Objective",
    "Optimum",
    "best_cuts",
    "choose",
    "doubtful",
    "hinges_on",
    "levels_at",
    "one_class",
    "sensitivity",
    "share_weights",
]
