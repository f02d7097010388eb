"""What a certified claim says, what it rests on, and what it costs (method.md 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kbeval.evaluation.statistics import Rate, label_budget
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.plateau import decimal, finite
from kbeval.records import Level


@dataclass(frozen=True, slots=True)
class LeakTest:
    """Every unanswerable query of the confirming part, at the reference cut that was found.

    `distance` None: not even the smallest cut passes; the numbers are those of exact matches.
    """

    distance: float | None
    n: int
    errors: int
    bound: float  # upper
    at_most: float

    @property
    def passed(self) -> bool:
        """The claim holds at `distance`."""
        return self.distance is not None

    def to_json(self) -> dict[str, Any]:
        """Plain values; distance null with passed true: no lower limit."""
        return {
            "passed": self.passed,
            "distance": None if self.distance is None else finite(self.distance),
            "n": self.n,
            "errors": self.errors,
            "upper_bound": self.bound,
            "at_most": self.at_most,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One candidate for Dh on the confirming part: queries graded HIGHLY_RELEVANT, and errors.

    `chance` is that of no more errors if the precision were just what is asked. `closed` and
    `false` are the answerable ones and those with a false hint; None: not asked.
    """

    distance: float
    n: int
    errors: int
    chance: float
    lower_bound: float  # of the precision
    closed: int | None
    false: int | None
    false_chance: float | None
    passed: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        found = {
            "distance": finite(self.distance),
            "n": self.n,
            "errors": self.errors,
            "chance": self.chance,
            "precision_lower_bound": self.lower_bound,
            "passed": self.passed,
        }
        if self.closed is not None:
            found |= {"closed": self.closed, "false": self.false, "false_chance": self.false_chance}
        return found


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was certified, or why nothing was; the naive optimum and its price beside.

    Cuts are (Dh, Dr). Coverage is that of HIGHLY_RELEVANT on the confirming part. `spent` says
    what the confirming part was used for before; then nothing is certified. `beside` are all
    encoders that these labels certified, in order; the claim is void for one chosen by them.
    """

    asked: Constraints
    delta: float
    each_delta: float  # of each family of claims
    cuts: tuple[float, float] | None  # that passed
    leak: LeakTest | None
    steps: tuple[Step, ...]
    candidates: tuple[float, ...]
    naive: tuple[float, float] | Infeasible  # the best pair of the proposing part
    naive_coverage: Rate | None
    coverage: Rate | None
    proposing_n: int
    confirming_n: int  # one query of each cluster
    seed: int
    why_not: str
    spent: str = ""
    beside: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        """Whether the claim may be made."""
        return self.cuts is not None and not self.spent

    @property
    def coverage_given_up(self) -> float | None:
        """Coverage of the naive optimum less that of the certified cuts."""
        if self.naive_coverage is None or self.coverage is None:
            return None
        naive, own = self.naive_coverage.value, self.coverage.value
        return None if naive is None or own is None else naive - own

    @property
    def enough(self) -> int | None:
        """Queries graded HIGHLY_RELEVANT that would have done, with no more errors than seen.

        Of the first candidate; None where it passed or nothing was tried.
        """
        if not self.steps or self.steps[0].passed:
            return None
        return label_budget(self.asked.precision or 0.0, self.each_delta, self.steps[0].errors)

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite distance is null."""
        naive: Any = self.naive
        return {
            "certified": self.certified,
            "claim": str(self),
            "asked": str(self.asked),
            "delta": self.delta,
            "each_delta": self.each_delta,
            "cuts": None if self.cuts is None else _cuts_json(self.cuts),
            "leak_test": None if self.leak is None else self.leak.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "candidates": [finite(distance) for distance in self.candidates],
            "naive": naive.to_json() if isinstance(naive, Infeasible) else _cuts_json(naive),
            "naive_coverage": None
            if self.naive_coverage is None
            else self.naive_coverage.to_json(),
            "coverage": None if self.coverage is None else self.coverage.to_json(),
            "coverage_given_up": self.coverage_given_up,
            "enough": self.enough,
            "proposing_n": self.proposing_n,
            "confirming_n": self.confirming_n,
            "seed": self.seed,
            "spent": self.spent,
            "beside": list(self.beside),
        }

    def __str__(self) -> str:
        """One line: the claim and how far it reaches, or why there is none."""
        if self.spent or self.cuts is None:
            return f"not certified: {self.spent or self.why_not}"
        high, reference = (decimal(cut) if math.isfinite(cut) else "no limit" for cut in self.cuts)
        return (
            f"{self.asked} hold for cuts {high} and {reference} with a chance of at least "
            f"{1 - self.delta:g} over the labels, for queries drawn as the confirming ones were, "
            f"labels as they are{self._condition()}"
        )

    def _condition(self) -> str:
        """What the claim hangs on where several encoders were certified on the same labels."""
        if not self.beside:
            return ""
        names = ", then ".join(self.beside)
        return f"; for an encoder chosen without these labels ({names} were certified on them)"


def _cuts_json(cuts: tuple[float, float]) -> dict[str, float | None]:
    levels = (Level.HIGHLY_RELEVANT, Level.REFERENCE)
    return {level.name: finite(cut) for level, cut in zip(levels, cuts, strict=True)}
