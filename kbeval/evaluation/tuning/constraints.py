"""The best two cuts that keep promises: a floor of precision, ceilings of leak and false closure.

Coverage of HIGHLY_RELEVANT is made as large as the constraints allow, then found_rate
(method.md 5). Precision is not monotone in the cut, so the largest cut that holds is meant, not
the first that fails.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.errors import ConfigError
from kbeval.evaluation.answers import reached
from kbeval.evaluation.judge import Worth
from kbeval.evaluation.tuning.ladder import Ladder
from kbeval.evaluation.tuning.objectives import Optimum
from kbeval.evaluation.tuning.plateau import decimal, finite

NAMES = {
    "precision": "precision[HIGHLY_RELEVANT]",
    "leak": "leak_rate",
    "false_closure": "false_closure_rate[HIGHLY_RELEVANT]",
    "reference_precision": "precision[REFERENCE]",
}


@dataclass(frozen=True, slots=True)
class Constraints:
    """What the cuts must keep to; None is not asked. Rates from 0 to 1, inclusive.

    `precision` and `false_closure` are those of HIGHLY_RELEVANT alone: PRECISE is not tunable
    and must not pay for it. Raises `ConfigError` for a rate outside [0, 1] or nothing asked.
    """

    precision: float | None = None  # at least
    leak: float | None = None  # at most
    false_closure: float | None = None  # at most
    reference_precision: float | None = None  # at least

    def __post_init__(self) -> None:
        asked = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, rate in asked.items():
            if rate is not None and not 0 <= rate <= 1:
                raise ConfigError(f"constraints.{name}: got {rate}; a rate from 0 to 1 is expected")
        if all(rate is None for rate in asked.values()):
            raise ConfigError(f"constraints: none is asked; known are {', '.join(asked)}")

    def __str__(self) -> str:
        """The constraints in words, those asked."""
        return ", ".join(self.told(f.name) for f in fields(self) if self.asked(f.name) is not None)

    def asked(self, name: str) -> Fraction | None:
        """A bound as the exact decimal that was written."""
        rate = getattr(self, name)
        return None if rate is None else Fraction(str(rate))

    def told(self, name: str) -> str:
        """One constraint in words."""
        sign = ">=" if "precision" in name else "<="
        return f"{NAMES[name]} {sign} {getattr(self, name)}"


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No pair of cuts keeps the constraints; an answer, not an error.

    `best` is the best value of `constraint` that can be reached under those `under` it, at the
    distance `at` of its own cut; None where its denominator is always empty. `reference_rung` is
    the largest Dr that keeps the leak, usable with HIGHLY_RELEVANT unused; None where none does.
    """

    constraint: str  # a key of NAMES
    told: str
    under: str
    best: Fraction | None
    at: float | None
    leak_floor: Fraction | None  # what L0 alone leaks; None without unanswerable queries
    reference_rung: int | None

    def to_json(self) -> dict[str, Any]:
        """Plain values; `best` and `leak_floor` are null where nothing is counted."""
        floor = self.leak_floor
        return {
            "infeasible": NAMES[self.constraint],
            "message": str(self),
            "best": None if self.best is None else float(self.best),
            "at_distance": None if self.at is None else finite(self.at),
            "leak_floor": None if floor is None else float(floor),
        }

    def __str__(self) -> str:
        """One line: the constraint, the best value there is, and whose fault it is."""
        under = f" under {self.under}" if self.under else ""
        if self.best is None:
            empty = "no unanswerable query" if self.constraint == "leak" else "no query is graded"
            return f"{self.told} cannot be shown{under}: {empty}"
        at = "" if self.at is None else f" at distance {decimal(self.at)}"
        floor = ""
        if self.constraint == "leak":
            floor = "; exact matches alone (leak_floor) break it, no cut can mend that"
        return f"{self.told} is never reached{under}: best is {float(self.best):.4f}{at}{floor}"


def constrained(
    ladder: Ladder, asked: Constraints, weights: NDArray[np.int64] | None = None
) -> Optimum | Infeasible:
    """The pair that keeps the constraints with most coverage[HIGHLY_RELEVANT], then found_rate.

    A level at which nothing is graded has no precision: for HIGHLY_RELEVANT a constraint on it
    is then not kept, an empty REFERENCE harms nothing. `weights` (n,) are counts per query.
    """
    counts = np.ones(len(ladder), dtype=np.int64) if weights is None else weights
    return _Search(ladder, asked, counts).run()


class _Search:
    """The running sums of one ladder, and the constraints one after the other."""

    def __init__(self, ladder: Ladder, asked: Constraints, counts: NDArray[np.int64]) -> None:
        """Sum up what each rung accepts; index i is a rung of Dh, j one of Dr."""
        self.ladder, self.asked, self.counts = ladder, asked, counts
        answers = ladder.worth == Worth.ANSWERS
        self.graded = ladder.running(counts)  # HIGHLY_RELEVANT
        self.right = ladder.running(counts * answers)
        self.covered = ladder.running(counts * ladder.answerable)
        self.found = ladder.running(counts * (ladder.answerable & ladder.free))
        self.free = ladder.running(counts * ladder.free)
        self.free_right = ladder.running(counts * (answers & ladder.free))
        self.exact = int((counts * ladder.exact).sum())
        self.exact_right = int((counts * (answers & ladder.exact)).sum())
        unanswerable = ~ladder.answerable
        self.unanswerable = int((counts * unanswerable).sum())
        self.leak_floor = int((counts * (unanswerable & ~ladder.free)).sum())
        self.leaked = self.leak_floor + ladder.running(counts * (unanswerable & ladder.free))
        self.rungs: NDArray[np.int64] = np.arange(len(ladder.end), dtype=np.int64)

    def run(self) -> Optimum | Infeasible:
        """Narrow down by leak, precision, false closure, precision of REFERENCE, in this order."""
        top = self._top()
        if top is None:
            best = Fraction(self.leak_floor, self.unanswerable) if self.unanswerable else None
            return self._infeasible("leak", best, None, None)
        narrowed = self._precise_enough(top)
        if isinstance(narrowed, Infeasible):
            return narrowed
        kept = narrowed[self._hints_hold(narrowed, np.full(len(narrowed), top))]
        if not len(kept):
            false, closed = self._false(narrowed, np.full(len(narrowed), top)), self.covered
            rates = [Fraction(int(f), int(closed[i])) for f, i in zip(false, narrowed, strict=True)]
            at = int(np.argmin([float(rate) for rate in rates]))
            return self._infeasible("false_closure", rates[at], int(narrowed[at]), top)
        last = self._last_references(kept, top)
        holds = last >= kept
        holds[holds] = self._hints_hold(kept[holds], last[holds])
        if not holds.any():
            highest, dr = self._best_reference_precision(kept, top)
            return self._infeasible("reference_precision", highest, dr, top)
        return self._optimum(kept[holds], last[holds])

    def _optimum(self, high: NDArray[np.int64], last: NDArray[np.int64]) -> Optimum:
        """Of the feasible Dh, each with its largest Dr: those of most coverage, then found."""
        covered = self.covered[high].max()
        most = self.covered[high] == covered
        high, last = high[most], last[most]
        found = self.found[last].max()
        best = self.found[last] == found
        reach = dict(zip(high[best].tolist(), last[best].tolist(), strict=True))

        def references(i: int) -> NDArray[np.int64]:
            tried = self.rungs[i : reach[i] + 1]
            tried = tried[(self.found[tried] == found) & self._reference_holds(i, tried)]
            kept: NDArray[np.int64] = tried[self._hints_hold(np.full(len(tried), i), tried)]
            return kept

        ladder = self.ladder
        total = int((self.counts * ladder.answerable).sum())
        precise = int((self.counts * (ladder.answerable & ladder.precise)).sum())
        given = precise + int((self.counts * (ladder.answerable & ladder.exact)).sum())
        return Optimum(
            Fraction(precise + int(covered), max(total, 1)),
            high[best].astype(np.int64),
            references,
            Fraction(given + int(found), max(total, 1)),
        )

    def _top(self) -> int | None:
        """The largest Dr whose leak is allowed; every smaller one is as well."""
        most = self.asked.asked("leak")
        if most is None:
            return len(self.rungs) - 1
        holds = self.leaked * most.denominator <= most.numerator * self.unanswerable
        return int(np.flatnonzero(holds)[-1]) if self.unanswerable and holds.any() else None

    def _precise_enough(self, top: int) -> NDArray[np.int64] | Infeasible:
        """Every Dh up to `top` whose precision holds, ascending."""
        every: NDArray[np.int64] = self.rungs[: top + 1]
        least = self.asked.asked("precision")
        if least is None and self.asked.asked("false_closure") is None:
            return every
        tried: NDArray[np.int64] = every[self.graded[every] > 0]
        name = "false_closure" if least is None else "precision"
        if not len(tried):
            return self._infeasible(name, None, None, top)
        if least is None:
            return tried
        right, graded = self.right[tried], self.graded[tried]
        holds = right * least.denominator >= least.numerator * graded
        if not holds.any():
            rates = right / graded
            at = int(np.flatnonzero(rates == rates.max())[-1])  # the largest coverage of the best
            best = Fraction(int(right[at]), int(graded[at]))
            return self._infeasible("precision", best, int(tried[at]), top)
        held: NDArray[np.int64] = tried[holds]
        return held

    def _false(self, high: NDArray[np.int64], reference: NDArray[np.int64]) -> NDArray[np.int64]:
        """False hints among the answerable HIGHLY_RELEVANT, at pairs of rungs of shape (p,)."""
        false = np.zeros(len(high), dtype=np.int64)
        for j in np.unique(reference):
            hint_false = ~reached(self.ladder.tau, float(self.ladder.accepted[j]))
            along = self.ladder.running(self.counts * (hint_false & self.ladder.answerable))
            at = reference == j
            false[at] = along[high[at]]
        return false

    def _least_false_closure(self, high: NDArray[np.int64], top: int) -> tuple[Fraction, int]:
        """The least false closure at Dr `top`, and the largest Dh that has it."""
        rates = self._false(high, np.full(len(high), top)) / self.covered[high]
        at = int(np.flatnonzero(rates == rates.min())[-1])
        false = self._false(high[at : at + 1], np.array([top]))[0]
        return Fraction(int(false), int(self.covered[high[at]])), int(high[at])

    def _hints_hold(
        self, high: NDArray[np.int64], reference: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Whether false closure is allowed, at pairs of rungs of shape (p,)."""
        most = self.asked.asked("false_closure")
        if most is None:
            return np.full(len(high), True)
        false = self._false(high, reference)
        holds: NDArray[np.bool_] = false * most.denominator <= most.numerator * self.covered[high]
        return holds

    def _margins(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """G of each Dr and H of each Dh: precision[REFERENCE] holds where G[j] >= H[i]."""
        least = self.asked.asked("reference_precision") or Fraction(0)
        p, q = least.numerator, least.denominator
        return (
            q * self.free_right - p * self.free,
            q * (self.right - self.exact_right) - p * (self.graded - self.exact),
        )

    def _reference_holds(self, i: int, j: NDArray[np.int64]) -> NDArray[np.bool_]:
        if self.asked.reference_precision is None:
            return np.full(len(j), True)
        gained, needed = self._margins()
        holds: NDArray[np.bool_] = gained[j] >= needed[i]
        return holds

    def _last_references(self, high: NDArray[np.int64], top: int) -> NDArray[np.int64]:
        """For each Dh the largest Dr up to `top` at which precision[REFERENCE] holds, else -1."""
        if self.asked.reference_precision is None:
            return np.full(len(high), top)
        gained, needed = self._margins()
        most = np.maximum.accumulate(gained[top::-1])  # over j from `top` down
        first = np.searchsorted(most, needed[high], side="left")
        return np.where(first <= top, top - first, -1)

    def _best_reference_precision(
        self, high: NDArray[np.int64], top: int
    ) -> tuple[Fraction | None, int | None]:
        """The best precision[REFERENCE] over pairs that keep the other constraints."""
        best: tuple[Fraction | None, int | None] = (None, None)
        for i in high.tolist():
            j = self.rungs[i : top + 1]
            j = j[self._hints_hold(np.full(len(j), i), j)]
            count = self.exact - self.graded[i] + self.free[j]
            right = self.exact_right - self.right[i] + self.free_right[j]
            if not (count > 0).any():
                continue
            at = int(np.argmax(np.where(count > 0, right / np.maximum(count, 1), -1.0)))
            rate = Fraction(int(right[at]), int(count[at]))
            if best[0] is None or rate > best[0]:
                best = (rate, int(j[at]))
        return best

    def _infeasible(
        self, name: str, best: Fraction | None, rung: int | None, top: int | None
    ) -> Infeasible:
        order = ("leak", "precision", "false_closure", "reference_precision")
        before = [x for x in order[: order.index(name)] if self.asked.asked(x) is not None]
        floor = Fraction(self.leak_floor, self.unanswerable) if self.unanswerable else None
        return Infeasible(
            constraint=name,
            told=self.asked.told(name),
            under=", ".join(self.asked.told(x) for x in before),
            best=best,
            at=None if rung is None else float(self.ladder.accepted[rung]),
            leak_floor=floor,
            reference_rung=top,
        )
