"""Encoders side by side, each at cuts of its own; never at one shared threshold (method.md 9)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.paired import Paired, holm, paired_difference
from kbeval.evaluation.statistics import CONFIDENCE, Rate, mean_interval
from kbeval.evaluation.tuning.constraints import Infeasible
from kbeval.evaluation.tuning.cuts import choose, name_of
from kbeval.evaluation.tuning.ladder import PreciseRule
from kbeval.evaluation.tuning.matched import Matching
from kbeval.evaluation.tuning.matching import RESAMPLES, match_precision
from kbeval.evaluation.tuning.rematching import Side
from kbeval.studies.tuning_parts import Ask, Parts, cost_at, held_cuts

COST_MARGIN = 0.02  # of the first encoder's cost: a difference that would matter (method.md 9)
Arm = tuple[str, Parts, PreciseRule]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two encoders on the same held-out queries: cost of the second less that of the first.

    `margin` is the difference that would matter; `needed` the queries with which one as small
    could be detected, None where that cannot be told.
    """

    first: str
    second: str
    found: Paired
    p_holm: float | None  # over the pairs
    margin: float

    @property
    def needed(self) -> int | None:
        """Queries that would bring the detectable difference down to the margin."""
        return self.found.rows_for(self.margin)

    @property
    def told_apart(self) -> bool:
        """The difference is beyond chance, over all pairs."""
        return self.p_holm is not None and self.p_holm <= round(1 - CONFIDENCE, 12)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "first": self.first,
            "second": self.second,
            **self.found.to_json(),
            "p_holm": self.p_holm,
            "margin": self.margin,
            "needed": self.needed,
        }

    def __str__(self) -> str:
        """One line: which is cheaper or that it cannot be told, and what could have been seen."""
        difference = self.found.difference
        told = "cannot be told apart from"
        if self.told_apart and difference.value:
            told = "costs more than" if difference.value > 0 else "costs less than"
        p = "" if self.p_holm is None else f", p {self.p_holm:.4f}"
        parts = [f"{self.second} {told} {self.first}: {difference} a query{p}"]
        if self.found.detectable is not None:
            parts.append(f"a difference of {self.found.detectable:.3f} could be detected")
        if self.needed is not None:
            parts.append(f"{self.needed} queries would detect {self.margin:.3f}")
        return "; ".join(parts + [self.found.note] * bool(self.found.note))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Each encoder's held-out cost, every pair's difference, coverage at matched precision.

    `proposed` is the objective's best value on the labels that choose, None where no cuts keep
    what is asked; `preferred` the encoder it is best for: the choice that test had no part in.
    `certified` names encoders in the order in which the confirming labels were used for them.
    """

    objective: str
    cost: dict[str, Rate]
    rules: dict[str, PreciseRule]
    pairs: tuple[Pair, ...]
    matching: Matching
    proposed: dict[str, float | None]
    preferred: str | None
    certified: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "objective": self.objective,
            "expected_cost": {name: cost.to_json() for name, cost in self.cost.items()},
            "precise_requires": self.rules,
            "pairs": [pair.to_json() for pair in self.pairs],
            "matched_precision": self.matching.to_json(),
            "where_cuts_are_chosen": {"best": self.proposed, "preferred": self.preferred},
            "certified_in_order": list(self.certified),
        }


def compare_encoders(
    arms: Sequence[Arm],
    ask: Ask,
    *,
    held: Mapping[str, NDArray[np.float64]] | None = None,
    certified: Sequence[str] = (),
    resamples: int = RESAMPLES,
) -> Comparison:
    """Compare held-out expected_cost, paired by query, and coverage at matched precision.

    `held` are costs a query held out, (n,), of encoders where they are known already. Raises
    `ConfigError` where a name comes twice, or the encoders were not judged on the same queries.
    """
    names = [name for name, _, _ in arms]
    if len(set(names)) < len(names):
        raise ConfigError(f"encoder: {', '.join(names)} are given; each may be given once")
    matching = match_precision(
        [_side(*arm) for arm in arms],
        normalization=ask.present,
        resamples=resamples,
        seed=ask.seed,
    )
    reported, folded = arms[0][1].reported, arms[0][1].folded
    costs = {
        name: cost_at(parts.reported, held_cuts(parts, ask, rule), ask.costs, rule)
        for name, parts, rule in arms
        if name not in (held or {})
    } | dict(held or {})
    costs = {name: costs[name] for name in names}
    means = {
        name: _marked(mean_interval(cost, reported.cluster, bounds=ask.costs.bounds), folded=folded)
        for name, cost in costs.items()
    }
    proposed = {name: _proposed(parts, ask, rule) for name, parts, rule in arms}
    return Comparison(
        objective=name_of(ask.objective),
        cost=means,
        rules={name: rule for name, _, rule in arms},
        pairs=_pairs(costs, reported, seed=ask.seed, folded=folded),
        matching=matching,
        proposed=proposed,
        preferred=_best(proposed, lower=isinstance(ask.objective, Costs)),
        certified=tuple(certified),
    )


def _pairs(
    costs: Mapping[str, NDArray[np.float64]], reported: Judged, *, seed: int, folded: bool
) -> tuple[Pair, ...]:
    """Every pair of encoders, from the cost of each query, (n,) each; Holm over the pairs."""
    couples = list(combinations(costs, 2))
    found = [
        paired_difference(costs[b] - costs[a], reported.cluster, tests=len(couples), seed=seed)
        for a, b in couples
    ]
    adjusted = holm([one.p for one in found])
    return tuple(
        Pair(
            a,
            b,
            replace(one, difference=_marked(one.difference, folded=folded)),
            p,
            COST_MARGIN * float(costs[a].mean()),
        )
        for (a, b), one, p in zip(couples, found, adjusted, strict=True)
    )


def _side(name: str, parts: Parts, rule: PreciseRule) -> Side:
    return Side(name, parts.chosen_on, parts.reported, rule, parts.groups, parts.seed)


def _marked(rate: Rate, *, folded: bool) -> Rate:
    """Held out by folds an interval is approximate: the trainings overlap."""
    return replace(rate, note="approximate") if folded and rate.low is not None else rate


def _proposed(parts: Parts, ask: Ask, rule: PreciseRule) -> float | None:
    """The best value of the objective on the labels that choose, or propose where halved."""
    try:
        found = choose(
            parts.pair()[0], ask.objective, normalization=ask.present, precise_requires=rule
        )
    except ConfigError:  # half of the labels may lack a grade that all of them have
        return None
    return None if isinstance(found, Infeasible) else float(found.value)


def _best(proposed: dict[str, float | None], *, lower: bool) -> str | None:
    """The name of the best value; None where none is or several are."""
    known = {name: value for name, value in proposed.items() if value is not None}
    if not known:
        return None
    best = (min if lower else max)(known.values())
    names = [name for name, value in known.items() if math.isclose(value, best, abs_tol=1e-12)]
    return names[0] if len(names) == 1 else None
