"""What the chosen cuts achieve on queries that had no part in choosing them (method.md 7).

Cuts from dev, everything else from test; without a dev split, folds by group. Numbers at tuned
cuts on the queries that tuned them are shown only as the optimism gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.measures import Measures, measure
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.constraints import Infeasible
from kbeval.evaluation.tuning.cuts import Choice, Objective, choose, levels_at
from kbeval.evaluation.tuning.folds import (
    FEWEST_GROUPS,
    FOLDS,
    REPETITIONS,
    HeldOutCuts,
    RuleOf,
    fold_numbers,
    group_codes,
    mean_cost,
    out_of_fold,
)
from kbeval.evaluation.tuning.gains import Pays, cut_pays
from kbeval.evaluation.tuning.ladder import PreciseRule, Rule
from kbeval.evaluation.tuning.targets import macro_f1_rate, target_accuracy
from kbeval.records import Level

LOWER_IS_BETTER = (
    "expected_cost",
    "leak_rate",
    "closed_leak_rate",
    "missed_rate",
    "false_closure_rate",
    "better_exists",
)
HIGHER_IS_BETTER = ("precision", "coverage", "found_rate", "complete", "accuracy", "macro_f1")
DEV_CUTS = "cuts from dev alone, every rate from test alone"
ALL_CUTS = (
    "the exported cuts come from all queries; the rates are those of the procedure, tuned on the "
    "other folds"
)


@dataclass(frozen=True, slots=True)
class Gap:
    """How much better a measure looked where the cuts were tuned; above 0 is optimism."""

    tuned: float
    held_out: Rate
    gap: float  # in the better direction

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"tuned": self.tuned, "held_out": self.held_out.to_json(), "gap": self.gap}


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """One choice of cuts, and what was seen of it on queries held out.

    `rates` are held out, under the names of `measures`, a level in brackets. `measures` holds all
    of test; None where folds were pooled.
    """

    choice: Choice
    rates: Mapping[str, Rate]
    gaps: Mapping[str, Gap]
    cost: NDArray[np.float64]  # (n,), of each query held out, averaged over repetitions
    pays: Mapping[Level, Pays]
    measures: Measures | None
    told: str
    n: int
    groups: int
    repetitions: int  # 0: dev and test
    infeasible_count: int = 0  # trainings that no pair of cuts could serve
    training_count: int = 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside the numbers."""
        notes = [self.told]
        if self.infeasible_count:
            notes.append(
                f"in {self.infeasible_count} of {self.training_count} trainings no pair of cuts "
                "keeps the constraints; there HIGHLY_RELEVANT was not used"
            )
        return tuple(notes + [str(pays) for pays in self.pays.values() if not pays.pays])

    def to_json(self, max_l2_distance: float) -> dict[str, Any]:
        """Plain values; similarities under `max_l2_distance`."""
        return {
            "choice": self.choice.to_json(max_l2_distance),
            "procedure": "dev and test" if not self.repetitions else "folds by group",
            "repetitions": self.repetitions,
            "n": self.n,
            "groups": self.groups,
            "rates": {name: rate.to_json() for name, rate in self.rates.items()},
            "optimism": {name: gap.to_json() for name, gap in self.gaps.items()},
            "cut_pays": {level.name: pays.to_json() for level, pays in self.pays.items()},
            "infeasible_count": self.infeasible_count,
            "training_count": self.training_count,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class NotHeldOut:
    """Why nothing can be held out of these queries; an answer, not an error."""

    why: str
    groups: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"not_held_out": self.why, "groups": self.groups}

    def __str__(self) -> str:
        """One line."""
        return f"cannot be held out: {self.why}"


def dev_test(
    dev: Judged,
    test: Judged,
    objective: Objective,
    *,
    normalization: Normalization | None = None,
    precise_requires: PreciseRule = "unique",
    costs: Costs | None = None,
) -> HeldOut | Infeasible:
    """Choose the cuts on `dev` and measure them on `test`, with intervals from test alone.

    `costs` is the table of expected_cost where the objective is none itself. Raises `ConfigError`
    if the two were measured in different conventions or limits, or as `choose` does.
    """
    _check_alike(dev, test)
    choice = choose(dev, objective, normalization=normalization, precise_requires=precise_requires)
    if isinstance(choice, Infeasible):
        return choice
    table = objective if isinstance(objective, Costs) else costs or Costs()
    high, reference = (np.full(len(test), cut) for cut in choice.distances)
    tuned, _ = _at_cuts(dev, choice.distances, objective, table, precise_requires)
    held, measures = _at_cuts(test, choice.distances, objective, table, precise_requires)
    return HeldOut(
        choice=choice,
        rates=held,
        gaps=_gaps(tuned, held),
        cost=mean_cost(test, table, high[None], reference[None], precise_requires),
        pays=cut_pays(
            test, high[None], reference[None], _gain_costs(objective, table), precise_requires
        ),
        measures=measures,
        told=DEV_CUTS,
        n=len(test),
        groups=len(np.unique(test.cluster)),
        repetitions=0,
    )


def cross_validated(
    judged: Judged,
    objective: Objective,
    *,
    groups: ArrayLike | None = None,
    normalization: Normalization | None = None,
    precise_requires: PreciseRule = "unique",
    rule_of: RuleOf | None = None,
    costs: Costs | None = None,
    folds: int = FOLDS,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> HeldOut | Infeasible | NotHeldOut:
    """Choose the cuts on all queries, and hold folds out to see what the procedure achieves.

    `precise_requires` is the rule of the cuts chosen; with `rule_of` it was chosen from these
    labels, and so it is chosen anew in every training part (`out_of_fold`).
    Folds are drawn by `groups` (n,) (None: clusters), stratified by answerable. Counts are pooled
    over folds, then divided; rates and intervals are averaged over repetitions and approximate.
    Raises `ConfigError` for groups that cut clusters, or as `choose` does.
    """
    code = group_codes(judged, groups)
    count = len(np.unique(code))
    if count < FEWEST_GROUPS:
        return NotHeldOut(f"{count} groups, at least {FEWEST_GROUPS} are needed", count)
    choice = choose(
        judged, objective, normalization=normalization, precise_requires=precise_requires
    )
    if isinstance(choice, Infeasible):
        return choice
    numbers = fold_numbers(code, judged.answerable, folds=folds, repetitions=repetitions, seed=seed)
    try:
        held = out_of_fold(
            judged,
            objective,
            numbers,
            normalization=normalization,
            precise_requires=precise_requires,
            rule_of=rule_of,
        )
    except ConfigError as error:  # the whole set could be tuned, a part of it cannot
        return NotHeldOut(f"a training part cannot be tuned: {error}", count)
    table = objective if isinstance(objective, Costs) else costs or Costs()
    pooled = _pooled(judged, held, objective, table)
    tuned, _ = _at_cuts(judged, choice.distances, objective, table, precise_requires)
    return HeldOut(
        choice=choice,
        rates=pooled,
        gaps=_gaps(tuned, pooled),
        cost=mean_cost(judged, table, held.highly_relevant, held.reference, held.nearest),
        pays=cut_pays(
            judged,
            held.highly_relevant,
            held.reference,
            _gain_costs(objective, table),
            held.nearest,
        ),
        measures=None,
        told=ALL_CUTS,
        n=len(judged),
        groups=count,
        repetitions=repetitions,
        infeasible_count=held.infeasible_count,
        training_count=held.training_count,
    )


def averaged(rates: Sequence[Rate]) -> Rate:
    """The mean of one rate over repetitions, ends too; marked approximate.

    Repetitions whose denominator is empty are left out and counted in the note.

    >>> str(averaged([Rate(0.5, 0.4, 0.6, 10), Rate(0.7, 0.6, 0.8, 12)]))
    '0.600 [0.500, 0.700] 11 (approximate)'
    """
    known = [rate for rate in rates if rate.value is not None]
    if not known:
        return Rate(None, None, None, 0, rates[0].note)
    value, low, high = (
        None if None in ends else float(np.mean([end for end in ends if end is not None]))
        for ends in zip(*((rate.value, rate.low, rate.high) for rate in known), strict=True)
    )
    empty = len(rates) - len(known)
    notes = ["approximate"] if low is not None else [known[0].note or "no interval"]
    notes += [f"{empty} of {len(rates)} repetitions are empty"] if empty else []
    n = round(float(np.mean([rate.n for rate in known])))
    return Rate(value, low, high, n, "; ".join(notes))


def rates_of(measures: Measures) -> dict[str, Rate]:
    """Every rate of the measures by name; those of a level as `precision[HIGHLY_RELEVANT]`."""
    found: dict[str, Rate] = {}
    for field in fields(measures):
        value = getattr(measures, field.name)
        if isinstance(value, Rate):
            found[field.name] = value
        elif isinstance(value, Mapping):
            found |= {
                f"{field.name}[{getattr(key, 'name', key)}]": rate
                for key, rate in value.items()
                if isinstance(rate, Rate)
            }
    return found


def _at_cuts(
    judged: Judged,
    cuts: tuple[float, float] | tuple[NDArray[np.float64], NDArray[np.float64]],
    objective: Objective,
    costs: Costs,
    rule: Rule,
) -> tuple[dict[str, Rate], Measures]:
    """Every rate at two cuts, or at cuts and rule of each query's own (n,), and the objective's."""
    high, reference = cuts
    level = levels_at(judged, high, reference, rule)
    # one cut a query is as good as one for all: every use of it broadcasts
    measures = measure(judged, level, reference_cut=reference, costs=costs)  # type: ignore[arg-type]
    rates = rates_of(measures)
    if objective == "accuracy":
        rates["accuracy"] = target_accuracy(judged, level)
    elif objective == "macro_f1":
        rates["macro_f1"] = macro_f1_rate(judged, level)
    return rates, measures


def _pooled(
    judged: Judged, held: HeldOutCuts, objective: Objective, costs: Costs
) -> dict[str, Rate]:
    """Every rate over all folds of a repetition at once, then averaged over repetitions."""
    rows = [
        _at_cuts(judged, (high, reference), objective, costs, nearest)[0]
        for high, reference, nearest in zip(
            held.highly_relevant, held.reference, held.nearest, strict=True
        )
    ]
    return {name: averaged([row[name] for row in rows]) for name in rows[0]}


def _gaps(tuned: Mapping[str, Rate], held: Mapping[str, Rate]) -> dict[str, Gap]:
    """The optimism of every measure that has a better direction."""
    gaps = {}
    for name, rate in held.items():
        here, there = tuned[name].value, rate.value
        kind = name.split("[")[0]
        if here is None or there is None or kind not in LOWER_IS_BETTER + HIGHER_IS_BETTER:
            continue
        gaps[name] = Gap(here, rate, there - here if kind in LOWER_IS_BETTER else here - there)
    return gaps


def _gain_costs(objective: Objective, costs: Costs) -> Costs | None:
    """The table in which a cut must pay; None: accuracy."""
    return None if objective == "accuracy" else costs


def _check_alike(dev: Judged, test: Judged) -> None:
    for name in ("convention", "limit"):
        ours, theirs = getattr(dev, name), getattr(test, name)
        if ours != theirs:
            raise ConfigError(
                f"dev was judged with {name} {ours}, test with {theirs}; both must be the same"
            )
