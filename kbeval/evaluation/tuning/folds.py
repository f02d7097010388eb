"""Parts of a labelled set that tune and parts that are held out (method.md 7).

A group never stands on both sides. What is tuned on the other folds grades the held-out one, so
every query ends up with cuts that it had no part in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.tuning.constraints import Infeasible
from kbeval.evaluation.tuning.cuts import Objective, best_cuts, levels_at
from kbeval.evaluation.tuning.ladder import Ladder, PreciseRule, Rule, ladder, largest_max_of
from kbeval.evaluation.tuning.plateau import Interval, midway

FOLDS, REPETITIONS = 5, 10
RuleOf = Callable[[NDArray[np.bool_]], PreciseRule]  # a training part (n,) -> its rule of PRECISE
FEWEST_GROUPS = 10  # below: it cannot be held out


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutCuts:
    """The cuts each query was graded with, tuned without its group; by repetition and query."""

    highly_relevant: NDArray[np.float64]  # (repetitions, n)
    reference: NDArray[np.float64]  # (repetitions, n)
    nearest: NDArray[np.bool_]  # (repetitions, n), whether PRECISE required the nearest document
    infeasible_count: int  # of the trainings; they leave HIGHLY_RELEVANT unused
    training_count: int


def part(judged: Judged, among: NDArray[np.bool_]) -> Judged:
    """The judged queries that `among` (n,) names, as a set of its own."""
    arrays: dict[str, Any] = {
        f.name: getattr(judged, f.name)[among]
        for f in fields(judged)
        if isinstance(getattr(judged, f.name), np.ndarray)
    }
    return replace(judged, **arrays)


def group_codes(judged: Judged, groups: ArrayLike | None = None) -> NDArray[np.int64]:
    """Which group each query is in, of shape (n,): its cluster, or the group given.

    Raises `ConfigError` if the shapes differ or a cluster lies in two groups.
    """
    given = judged.cluster if groups is None else np.asarray(groups)
    if given.shape != (len(judged),):
        raise ConfigError(f"groups have shape {given.shape}; ({len(judged)},) is expected")
    code = np.unique(given, return_inverse=True)[1].astype(np.int64)
    both = np.unique(np.stack([judged.cluster, code]), axis=1)[0]
    doubled = both[:-1][both[1:] == both[:-1]]
    if len(doubled):
        first = np.unique(code[judged.cluster == doubled[0]])
        raise ConfigError(
            f"groups: cluster {int(doubled[0])} (a session or need) has queries in {len(first)} "
            "groups; a group must hold whole clusters"
        )
    return code


def fold_numbers(
    code: NDArray[np.int64],
    answerable: NDArray[np.bool_],
    *,
    folds: int = FOLDS,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> NDArray[np.int64]:
    """The fold of each query, of shape (repetitions, n): by group, stratified by answerable.

    Groups alike (share of answerable queries, then size) are dealt out one to each fold in turn.
    Raises `ConfigError` for fewer than 2 folds or no repetition.
    """
    if folds < 2 or repetitions < 1:
        raise ConfigError(
            f"folds {folds}, repetitions {repetitions}: at least 2 folds and 1 repetition"
        )
    size = np.bincount(code)
    share = np.bincount(code, answerable) / size
    count = len(size)
    rng = np.random.default_rng(seed)
    numbers = np.empty((repetitions, len(code)), dtype=np.int64)
    for repetition in range(repetitions):
        alike = np.lexsort((rng.random(count), size, share))
        rounds = np.tile(np.arange(folds), (-(-count // folds), 1))
        fold = np.empty(count, dtype=np.int64)
        fold[alike] = rng.permuted(rounds, axis=1).ravel()[:count]
        numbers[repetition] = fold[code]
    return numbers


def halves(judged: Judged, groups: ArrayLike | None = None, *, seed: int = 0) -> NDArray[np.bool_]:
    """Which queries propose (True) and which confirm, of shape (n,): two halves by group."""
    code = group_codes(judged, groups)
    fold = fold_numbers(code, judged.answerable, folds=2, repetitions=1, seed=seed)
    proposes: NDArray[np.bool_] = fold[0] == 0
    return proposes


def out_of_fold(
    judged: Judged,
    objective: Objective,
    numbers: NDArray[np.int64],
    *,
    normalization: Normalization | None = None,
    precise_requires: PreciseRule = "unique",
    rule_of: RuleOf | None = None,
    parts: NDArray[np.int64] | None = None,
) -> HeldOutCuts:
    """Tune on the other folds, for every fold of every repetition.

    `numbers` (repetitions, n) comes from `fold_numbers`. `rule_of` chooses the rule of PRECISE from
    each training part (n,), in place of `precise_requires`. With `parts` (n,) each part gets cuts
    of its own, and those of all where its training queries cannot be tuned. Raises `ConfigError`
    for an objective that the labels of a training part cannot serve.
    """
    tuning = _Tuning.of(judged, objective, normalization, precise_requires)
    cuts = np.full((2, *numbers.shape), -math.inf)
    nearest = np.full(numbers.shape, precise_requires == "unique-and-nearest")
    feasible = []
    for repetition, number in enumerate(numbers):
        for fold in np.unique(number).tolist():
            train, held = number != fold, number == fold
            own = tuning if rule_of is None else replace(tuning, rule=rule_of(train))
            nearest[repetition, held] = own.rule == "unique-and-nearest"
            feasible.append(own.fill(cuts[:, repetition], train, held, parts))
    return HeldOutCuts(cuts[0], cuts[1], nearest, feasible.count(False), len(feasible))


def in_sample(
    judged: Judged,
    objective: Objective,
    *,
    normalization: Normalization | None = None,
    precise_requires: PreciseRule = "unique",
    parts: NDArray[np.int64] | None = None,
) -> HeldOutCuts:
    """The same with nothing held out, for what a gain looks like on the queries that tuned it."""
    tuning = _Tuning.of(judged, objective, normalization, precise_requires)
    cuts = np.full((2, 1, len(judged)), -math.inf)
    everyone = np.full(len(judged), True)
    feasible = tuning.fill(cuts[:, 0], everyone, everyone, parts)
    nearest = np.full((1, len(judged)), precise_requires == "unique-and-nearest")
    return HeldOutCuts(cuts[0], cuts[1], nearest, int(not feasible), 1)


def mean_cost(
    judged: Judged,
    costs: Costs,
    highly_relevant: NDArray[np.float64],
    reference: NDArray[np.float64],
    rule: Rule,
) -> NDArray[np.float64]:
    """The cost of each query at its own cuts, averaged over repetitions, of shape (n,).

    The cuts have shape (repetitions, n), and so has the rule where it is by query.
    """
    level = levels_at(judged, highly_relevant, reference, rule)
    mean: NDArray[np.float64] = costs.scaled()[level, judged.worth].mean(axis=0) / costs.scale
    return mean


def tuned_distances(tuned: Ladder, objective: Objective) -> tuple[tuple[float, float], bool]:
    """The cut distances (Dh, Dr) of the strictest best pair, and whether there is one.

    Where no pair keeps the constraints HIGHLY_RELEVANT is not used, and Dr is the largest that
    keeps the leak.
    """
    found = best_cuts(tuned, objective)
    if isinstance(found, Infeasible):
        rung = found.reference_rung
        return (-math.inf, -math.inf if rung is None else rung_distance(tuned, rung)), False
    high, reference = found.rungs
    return (rung_distance(tuned, high), rung_distance(tuned, reference)), True


def rung_distance(tuned: Ladder, rung: int) -> float:
    """The cut distance of a rung: midway to the next one."""
    return midway(Interval(float(tuned.accepted[rung]), float(tuned.refused[rung])))


@dataclass(frozen=True, slots=True, eq=False)
class _Tuning:
    """What stays the same over the trainings of one set."""

    judged: Judged
    objective: Objective
    largest_max: float
    rule: PreciseRule

    @classmethod
    def of(
        cls,
        judged: Judged,
        objective: Objective,
        normalization: Normalization | None,
        rule: PreciseRule,
    ) -> _Tuning:
        present = 0.0 if normalization is None else normalization.max_l2_distance
        return cls(judged, objective, largest_max_of(judged, present), rule)

    def fill(
        self,
        cuts: NDArray[np.float64],
        train: NDArray[np.bool_],
        held: NDArray[np.bool_],
        parts: NDArray[np.int64] | None,
    ) -> bool:
        """Write the cuts (2, n) of the held queries; whether a pair keeps the constraints."""
        pair, feasible = self.pair(train)
        cuts[:, held] = np.array(pair)[:, None]
        for code in [] if parts is None else np.unique(parts[held]).tolist():
            own = parts == code
            cuts[:, held & own] = np.array(self.own_pair(train & own) or pair)[:, None]
        return feasible

    def pair(self, among: NDArray[np.bool_]) -> tuple[tuple[float, float], bool]:
        tuned = ladder(
            self.judged,
            precise_requires=self.rule,
            largest_max=self.largest_max,
            among=among,
        )
        return tuned_distances(tuned, self.objective)

    def own_pair(self, among: NDArray[np.bool_]) -> tuple[float, float] | None:
        """The cuts of one part; None where its labels cannot be tuned."""
        try:
            pair, feasible = self.pair(among) if among.any() else (None, False)
        except ConfigError:  # one part may lack a grade that the whole set has
            return None
        return pair if feasible else None
