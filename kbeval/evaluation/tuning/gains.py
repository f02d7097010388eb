"""Does a cut pay, do separate cuts pay: held-out gains against what is simpler (method.md 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.statistics import CONFIDENCE, FEWEST_CLUSTERS, Rate, mean_interval
from kbeval.evaluation.tuning.cuts import Objective
from kbeval.evaluation.tuning.folds import (
    FOLDS,
    REPETITIONS,
    HeldOutCuts,
    fold_numbers,
    group_codes,
    in_sample,
    out_of_fold,
)
from kbeval.evaluation.tuning.ladder import PreciseRule, Rule, is_precise
from kbeval.evaluation.tuning.objectives import accuracy_costs
from kbeval.records import Level

FEWEST_OF_A_CLASS = 100  # queries a part needs of each class before it may get its own cuts
CONSTANTS = {
    Level.HIGHLY_RELEVANT: ("never closed", "always closed"),
    Level.REFERENCE: ("nothing handed out", "everything handed out"),
}


@dataclass(frozen=True, slots=True)
class Pays:
    """What one cut gains a query over each constant, on queries held out, in units of cost.

    `pays` is None where there are too few clusters for an interval.
    """

    level: Level
    over: Mapping[str, Rate]  # constant -> gain
    pays: bool | None

    @property
    def best_constant(self) -> str:
        """The constant that is hardest to beat."""
        return min(self.over, key=lambda name: _or_least(self.over[name].value))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        over = {name: gain.to_json() for name, gain in self.over.items()}
        return {"pays": self.pays, "best_constant": self.best_constant, "gain_over": over}

    def __str__(self) -> str:
        """One line: the verdict `no_cut_pays`, or the gain."""
        gain = self.over[self.best_constant]
        if gain.value == 0 and gain.high is None and self.pays is False:
            return f"{self.level.name}: no cut pays; the best one is {self.best_constant!r} itself"
        told = {True: "a cut pays", False: "no cut pays", None: "too few to tell if a cut pays"}
        return f"{self.level.name}: {told[self.pays]}; gain over {self.best_constant!r}: {gain}"


@dataclass(frozen=True, slots=True)
class SeparateCuts:
    """Cuts of their own for each part (a language, kind or domain) against one pair for all.

    `lower` is the lower end of the gain, adjusted by Holm over everything that was tried with it.
    """

    by: str
    gain: Rate  # out of fold, a query
    apparent: float | None  # the same on the queries that tuned the cuts
    lower: float | None
    parts: Mapping[str, tuple[int, int]]  # part -> queries that are answered, that are not

    @property
    def too_small(self) -> tuple[str, ...]:
        """Parts with fewer than 100 queries of one class."""
        return tuple(name for name, n in self.parts.items() if min(n) < FEWEST_OF_A_CLASS)

    @property
    def advised(self) -> bool:
        """Separate cuts pay, and every part is large enough to have its own."""
        return len(self.parts) > 1 and not self.too_small and (self.lower or 0.0) > 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "by": self.by,
            "advised": self.advised,
            "gain": self.gain.to_json(),
            "apparent_gain": self.apparent,
            "holm_lower": self.lower,
            "parts": {name: {"answers": a, "wrong": w} for name, (a, w) in self.parts.items()},
            "too_small": list(self.too_small),
            "message": str(self),
        }

    def __str__(self) -> str:
        """One line: the advice and its ground."""
        if len(self.parts) < 2:
            return f"{self.by}: one part, nothing to separate"
        if self.advised:
            return f"{self.by}: separate cuts pay, gain {self.gain} out of fold"
        why = f"gain {self.gain} out of fold"
        if self.too_small:
            names = ", ".join(repr(name) for name in self.too_small)
            why += f"; fewer than {FEWEST_OF_A_CLASS} queries of a class in {names}"
        return f"{self.by}: keep one pair of cuts; {why}"


def cut_pays(
    judged: Judged,
    highly_relevant: NDArray[np.float64],
    reference: NDArray[np.float64],
    costs: Costs | None,
    precise_requires: Rule = "unique",
) -> dict[Level, Pays]:
    """Whether each cut beats both of its constants on held-out queries (`no_cut_pays`).

    The cuts, and the rule where it is by query, have shape (repetitions, n): those each query was
    graded with, averaged over repetitions. The total cost is a sum over the two cuts, so each is
    judged by its own part: Dh against closing nothing or everything, Dr against handing out
    nothing or everything. A cut pays if the 95 % interval of its gain over both lies above 0.
    `costs` None counts accuracy.
    """
    close, give = _parts_of_cost(judged, costs, precise_requires)
    many = len(np.unique(judged.cluster)) >= FEWEST_CLUSTERS
    found = {}
    for level, each, cuts in (
        (Level.HIGHLY_RELEVANT, close, highly_relevant),
        (Level.REFERENCE, give, reference),
    ):
        at_cut = (each * (judged.distance <= cuts)).mean(axis=0)
        everything = np.atleast_2d(each).mean(axis=0)
        gains = (-at_cut, everything - at_cut)
        over = {
            name: mean_interval(gain, judged.cluster, empty="no query")
            for name, gain in zip(CONSTANTS[level], gains, strict=True)
        }
        pays = all(_above_zero(gain) for gain in over.values()) if many else None
        found[level] = Pays(level, over, pays)
    return found


def separate_cuts(
    judged: Judged,
    parts: Mapping[str, ArrayLike],
    objective: Objective,
    *,
    groups: ArrayLike | None = None,
    normalization: Normalization | None = None,
    precise_requires: PreciseRule = "unique",
    costs: Costs | None = None,
    folds: int = FOLDS,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> tuple[SeparateCuts, ...]:
    """Whether parts should have cuts of their own, judged out of fold, Holm over all of `parts`.

    `parts` maps what is told apart (language, kind, domain) to a name for each query, (n,). Gains
    are in units of `costs` (those of the objective, where it is a table; accuracy counts itself).
    Raises `ConfigError` for names of another shape, or as tuning does.
    """
    table = None if objective == "accuracy" else costs or Costs()
    table = objective if isinstance(objective, Costs) else table
    code = group_codes(judged, groups)
    numbers = fold_numbers(code, judged.answerable, folds=folds, repetitions=repetitions, seed=seed)

    def out(own: NDArray[np.int64] | None = None) -> HeldOutCuts:
        return out_of_fold(
            judged,
            objective,
            numbers,
            normalization=normalization,
            precise_requires=precise_requires,
            parts=own,
        )

    def apparent(own: NDArray[np.int64] | None = None) -> HeldOutCuts:
        return in_sample(
            judged,
            objective,
            normalization=normalization,
            precise_requires=precise_requires,
            parts=own,
        )

    def cost(held: HeldOutCuts) -> NDArray[np.float64]:
        return _cost_of_cuts(judged, held, table, precise_requires)

    one, apparent_one = cost(out()), cost(apparent())
    rows = []
    for by, names in parts.items():
        own = _part_codes(by, names, len(judged))
        gain = mean_interval(one - cost(out(own)), judged.cluster, empty="no query")
        rows.append((by, gain, float((apparent_one - cost(apparent(own))).mean())))
    lower = _holm_lower([gain for _, gain, _ in rows], len(np.unique(judged.cluster)))
    return tuple(
        SeparateCuts(by, gain, seen, low, part_sizes(judged, parts[by]))
        for (by, gain, seen), low in zip(rows, lower, strict=True)
    )


def part_sizes(judged: Judged, names: ArrayLike) -> dict[str, tuple[int, int]]:
    """By part: the queries whose level rests on distance, those answered and those not.

    `names` (n,) is the part of each query.
    """
    given, free = np.asarray(names), judged.l0_count == 0
    answers, wrong = judged.worth == Worth.ANSWERS, judged.worth <= Worth.WRONG
    return {
        str(name): (
            int((free & answers & (given == name)).sum()),
            int((free & wrong & (given == name)).sum()),
        )
        for name in np.unique(given)
    }


def _holm_lower(gains: list[Rate], clusters: int) -> list[float | None]:
    """The lower end of each gain at its step of Holm's procedure, 2.5 % in all.

    Below the first that is not above 0 none is: its own lower end is then at most 0.
    """
    from scipy.special import stdtrit

    alpha = (1 - CONFIDENCE) / 2
    errors = [_standard_error(gain, clusters) for gain in gains]
    order = sorted(range(len(gains)), key=lambda i: -_ratio(gains[i].value, errors[i]))
    lower: list[float | None] = [None] * len(gains)
    stopped = False
    for step, i in enumerate(order):
        value, error = gains[i].value, errors[i]
        if value is None or error is None:
            continue
        low = value - float(stdtrit(clusters - 1, 1 - alpha / (len(gains) - step))) * error
        stopped = stopped or low <= 0
        lower[i] = min(low, 0.0) if stopped else low
    return lower


def _ratio(value: float | None, error: float | None) -> float:
    if value is None or error is None:
        return -math.inf
    return value / error if error else math.copysign(math.inf, value) if value else 0.0


def _standard_error(gain: Rate, clusters: int) -> float | None:
    """Of the mean behind an interval; 0 where all clusters agree, None where there are too few."""
    from scipy.special import stdtrit

    if gain.value is None or clusters < FEWEST_CLUSTERS:
        return None
    if gain.high is None:
        return 0.0
    return (gain.high - gain.value) / float(stdtrit(clusters - 1, (1 + CONFIDENCE) / 2))


def _parts_of_cost(
    judged: Judged, costs: Costs | None, rule: Rule
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each query adds to the cost where Dh, and where Dr, accepts it; of shape (..., n)."""
    table, scale = (accuracy_costs(), 1) if costs is None else (costs.scaled(), costs.scale)
    near = np.isfinite(judged.distance)
    close = (table[Level.HIGHLY_RELEVANT] - table[Level.REFERENCE])[judged.worth] / scale
    give = (table[Level.REFERENCE] - table[Level.NOT_FOUND])[judged.worth] / scale
    return close * (near & ~is_precise(judged, rule)), give * (near & (judged.l0_count == 0))


def _cost_of_cuts(
    judged: Judged, held: HeldOutCuts, costs: Costs | None, rule: PreciseRule
) -> NDArray[np.float64]:
    """The cost of each query that depends on the cuts, averaged over repetitions, (n,)."""
    close, give = _parts_of_cost(judged, costs, rule)
    closed = (judged.distance <= held.highly_relevant).mean(axis=0)
    given = (judged.distance <= held.reference).mean(axis=0)
    cost: NDArray[np.float64] = close * closed + give * given
    return cost


def _part_codes(by: str, names: ArrayLike, n: int) -> NDArray[np.int64]:
    given = np.asarray(names)
    if given.shape != (n,):
        raise ConfigError(f"{by}: {given.shape} names of parts for {n} queries; one each")
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def _above_zero(gain: Rate) -> bool:
    """The lower end lies above 0; where all clusters agree, the gain itself."""
    low = gain.value if gain.low is None else gain.low
    return low is not None and low > 0


def _or_least(value: float | None) -> float:
    return -math.inf if value is None else value
