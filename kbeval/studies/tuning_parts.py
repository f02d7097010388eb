"""What a tuning rests on: labels that choose and labels that report, and costs held out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.config import Normalization, Settings
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.opening import OpenedSet, Progress, gather_splits
from kbeval.evaluation.queries import LabelledSet
from kbeval.evaluation.statistics import Rate, mean_interval
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import Choice, Objective, choose
from kbeval.evaluation.tuning.folds import (
    fold_numbers,
    group_codes,
    halves,
    mean_cost,
    out_of_fold,
    part,
)
from kbeval.evaluation.tuning.held_out import (
    HeldOut,
    NotHeldOut,
    cross_validated,
    dev_test,
)
from kbeval.evaluation.tuning.ladder import PreciseRule
from kbeval.evaluation.tuning.rule_choice import RuleChoice, choose_rule, rule_in_training
from kbeval.records import Evidence

OBJECTIVES = ("cost", "accuracy", "macro-f1")
SEPARATE = ("lang", "kind", "domain")  # what may have cuts of its own
Pairs = tuple[NDArray[np.float64], NDArray[np.float64]]  # Dh and Dr, each (repetitions, n)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The labels that choose the cuts and those that report; the same where folds are held out."""

    labelled: LabelledSet
    evidence: Evidence
    chosen_on: Judged
    reported: Judged
    splits: tuple[str, str]  # their names
    groups: NDArray[np.int64] | None  # of `chosen_on`, for its folds; None: dev and test
    grouped_by: str
    seed: int

    @property
    def folded(self) -> bool:
        """Whether there is no dev split, so that folds are held out."""
        return self.groups is not None

    def pair(self) -> tuple[Judged, Judged]:
        """Two parts without a common group: dev and test, else two halves by group."""
        if self.groups is None:
            return self.chosen_on, self.reported
        proposes = halves(self.chosen_on, self.groups, seed=self.seed)
        return part(self.chosen_on, proposes), part(self.chosen_on, ~proposes)


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What is to be tuned for, over which present settings."""

    objective: Objective
    costs: Costs
    settings: Settings
    seed: int = 0

    @property
    def present(self) -> Normalization:
        """The settings in use."""
        return self.settings.retrieval.normalization

    @property
    def present_rule(self) -> PreciseRule:
        """The rule of PRECISE in use."""
        return self.settings.retrieval.l0.precise_requires


def objective_of(
    name: str | None,
    costs: Costs,
    *,
    precision: float | None = None,
    leak: float | None = None,
    false_closure: float | None = None,
) -> Objective:
    """The objective of the options: constraints where any is given, else the one named.

    Raises `ConfigError` for an unknown name, or a name beside constraints.
    """
    if name is not None and name not in OBJECTIVES:
        raise ConfigError(f"objective: got {name!r}; allowed are {', '.join(OBJECTIVES)}")
    if any(bound is not None for bound in (precision, leak, false_closure)):
        if name is not None:
            raise ConfigError(
                f"objective: got {name!r} beside precision, leak or false closure; with these the "
                "coverage of HIGHLY_RELEVANT is maximised, so one of the two is expected"
            )
        return Constraints(precision=precision, leak=leak, false_closure=false_closure)
    if name == "accuracy":
        return "accuracy"
    return "macro_f1" if name == "macro-f1" else costs


def parts_of(opened: OpenedSet, *, seed: int = 0, progress: Progress | None = None) -> Parts:
    """Dev chooses and the reported split reports; without dev the one split does both, by folds.

    Folds go by topic where every query names one and no session or need is torn, else by session
    or need. Raises `DatasetError` where a split cannot be judged.
    """
    report = opened.split
    dev = "dev" if "dev" in opened.labelled.splits and report != "dev" else report
    splits = (dev, report) if dev != report else (report,)
    evidence, judged = gather_splits(opened, splits, progress=progress)
    groups, by = _groups(opened.labelled, judged[dev])
    return Parts(
        labelled=opened.labelled,
        evidence=evidence,
        chosen_on=judged[dev],
        reported=judged[report],
        splits=(dev, report),
        groups=groups if dev == report else None,
        grouped_by=by,
        seed=seed,
    )


def rule_choice(parts: Parts, ask: Ask, *, certified: bool = False) -> RuleChoice:
    """The rule of PRECISE, from the labels that choose; those alone that propose, if certified."""
    judged, groups = parts.chosen_on, parts.groups
    if certified and groups is not None:
        proposes = halves(judged, groups, seed=parts.seed)
        judged, groups = part(judged, proposes), groups[proposes]
    return choose_rule(
        judged,
        ask.objective,
        ask.costs,
        present=ask.present_rule,
        groups=groups,
        normalization=ask.present,
        seed=parts.seed,
    )


def hold_out(parts: Parts, ask: Ask, rule: PreciseRule) -> HeldOut | Infeasible | NotHeldOut:
    """The choice of cuts, and what it achieves on queries that had no part in it.

    Where folds are held out, the rule of PRECISE is chosen anew in each training part.
    """
    common: dict[str, Any] = {
        "normalization": ask.present,
        "precise_requires": rule,
        "costs": ask.costs,
    }
    if not parts.folded:
        return dev_test(parts.chosen_on, parts.reported, ask.objective, **common)
    rule_of = rule_in_training(
        parts.chosen_on,
        ask.objective,
        ask.costs,
        present=ask.present_rule,
        groups=parts.groups,
        normalization=ask.present,
        seed=parts.seed,
    )
    return cross_validated(
        parts.chosen_on,
        ask.objective,
        groups=parts.groups,
        rule_of=rule_of,
        seed=parts.seed,
        **common,
    )


def choice_on(parts: Parts, ask: Ask, rule: PreciseRule) -> Choice | Infeasible:
    """The cuts that the choosing labels give."""
    return choose(parts.chosen_on, ask.objective, normalization=ask.present, precise_requires=rule)


def held_cuts(parts: Parts, ask: Ask, rule: PreciseRule) -> Pairs:
    """The cuts each reported query is graded with, chosen without it; (repetitions, n) each.

    Where no pair keeps the constraints HIGHLY_RELEVANT is not used.
    """
    if not parts.folded:
        found = choice_on(parts, ask, rule)
        cuts = (-math.inf, -math.inf) if isinstance(found, Infeasible) else found.distances
        high, reference = (np.full((1, len(parts.reported)), cut) for cut in cuts)
        return high, reference
    code = group_codes(parts.chosen_on, parts.groups)
    numbers = fold_numbers(code, parts.chosen_on.answerable, seed=parts.seed)
    held = out_of_fold(
        parts.chosen_on,
        ask.objective,
        numbers,
        normalization=ask.present,
        precise_requires=rule,
    )
    return held.highly_relevant, held.reference


def cost_at(judged: Judged, pairs: Pairs, costs: Costs, rule: PreciseRule) -> NDArray[np.float64]:
    """The cost of each query at its cuts, averaged over repetitions, of shape (n,)."""
    return mean_cost(judged, costs, *pairs, rule)


def cost_of(judged: Judged, level: NDArray[np.int8], costs: Costs) -> NDArray[np.float64]:
    """The cost of each query at the levels given, of shape (n,)."""
    cost: NDArray[np.float64] = costs.scaled()[level, judged.worth] / costs.scale
    return cost


def paired(judged: Judged, difference: NDArray[np.float64]) -> Rate:
    """The mean of a paired difference of shape (n,), its interval over clusters."""
    return mean_interval(difference, judged.cluster, empty="no query")


def part_names(parts: Parts, judged: Judged, by: str) -> NDArray[np.str_]:
    """What language, kind or domain (`by`) each judged query is of, of shape (n,); `-`: none."""
    queries = parts.labelled.queries
    return np.array([getattr(queries[i], by) or "-" for i in judged.query], dtype=np.str_)


def topic_names(labelled: LabelledSet, judged: Judged) -> NDArray[np.str_] | None:
    """The topic of each judged query, of shape (n,); None where one names none."""
    topics = [labelled.queries[i].metadata.get("topic") for i in judged.query]
    return np.array([str(topic) for topic in topics], dtype=np.str_) if all(topics) else None


def turned(judged: Judged) -> Judged:
    """The same judged queries, their distances told in the other convention.

    Distances and reference cuts are squared or rooted; order, and so every verdict that rests
    on order alone, stays.
    """
    squared = judged.convention == "l2"

    def other(values: NDArray[np.float64]) -> NDArray[np.float64]:
        known = np.where(np.isfinite(values), values, 0.0)
        told = np.round(np.square(known) if squared else np.sqrt(known), 6)
        return np.where(np.isfinite(values), told, values)

    names = ("primary_distance", "distance", "tau", "tau_if_unjudged_best", "tau_answer")
    changed: dict[str, Any] = {name: other(getattr(judged, name)) for name in names}
    return replace(judged, convention="squared_l2" if squared else "l2", **changed)


def _groups(labelled: LabelledSet, judged: Judged) -> tuple[NDArray[np.int64], str]:
    topics = topic_names(labelled, judged)
    if topics is not None:
        code = np.unique(topics, return_inverse=True)[1]
        try:
            return group_codes(judged, code), "topic"
        except ConfigError:  # a session or need is torn by topics: it must stay whole
            pass
    return group_codes(judged), "session, need or query"
