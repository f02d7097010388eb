"""How many labels a claim needs, before anyone labels (method.md 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kbeval.errors import ConfigError
from kbeval.evaluation.statistics import label_budget, label_budget_for_power

ERRORS = (0, 1, 2, 3)
POWER = 0.8
TRUTHS = {0.9: (0.95, 0.97), 0.95: (0.98, 0.99)}  # of these claims; of others by their errors
FEWER_ERRORS = (2, 5)  # a truth whose error rate is the claim's divided by this


@dataclass(frozen=True, slots=True)
class Need:
    """The least number of queries graded at the level, for the claim alone and as one of several.

    `errors` of them may be wrong; or, with `truth`, that is how precise the level truly is.
    """

    alone: int
    shared: int
    errors: int | None = None
    truth: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values; the row's own key is `errors` or `truth`."""
        row = {"errors": self.errors} if self.truth is None else {"truth": self.truth}
        return row | {"alone": self.alone, "one_of_several": self.shared}


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """What a claim needs on the confirming part, and how many queries to label for that.

    Queries to label = n / coverage of the level / share that confirms * design effect; asked of
    `queries`, None where coverage is not known.
    """

    claim: str
    rate: float  # what is claimed to be reached: the precision, or 1 - leak
    confidence: float
    claims: int  # made together; each gets its part of what may go wrong
    by_errors: tuple[Need, ...]
    by_truth: tuple[Need, ...]
    coverage: float | None
    confirming_share: float
    effect: float

    def queries(self, graded: int) -> int | None:
        """Queries to label for `graded` of them to be graded at the level where it counts."""
        if self.coverage is None:
            return None
        per_query = Fraction(str(self.coverage)) * Fraction(str(self.confirming_share))
        return math.ceil(graded * Fraction(str(self.effect)) / per_query)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = {"by_errors": self.by_errors, "by_truth": self.by_truth}
        return {
            "claim": self.claim,
            "confidence": self.confidence,
            "claims": self.claims,
            "power": POWER,
            "coverage": self.coverage,
            "confirming_share": self.confirming_share,
            "design_effect": self.effect,
        } | {name: [self._row(need) for need in needs] for name, needs in rows.items()}

    def _row(self, need: Need) -> dict[str, Any]:
        to_label = {
            "queries_alone": self.queries(need.alone),
            "queries_one_of_several": self.queries(need.shared),
        }
        return need.to_json() | to_label


def label_plan(
    precision: float | None = None,
    confidence: float = 0.95,
    *,
    leak: float | None = None,
    claims: int = 2,
    truths: Sequence[float] | None = None,
    coverage: float | None = None,
    confirming_share: float = 0.5,
    effect: float = 1.0,
) -> LabelPlan:
    """The label budget of one claim: precision >= `precision`, or leak <= `leak`.

    For a leak n counts unanswerable queries, and `coverage` is their share of all. `truths` are
    the rates for which 80 % power is asked (None: some that suit the claim). `coverage` is the
    share of queries graded at the level, `confirming_share` that of the queries which confirm,
    `effect` a `design_effect`. Raises `ConfigError` for a number outside its range.

    >>> plan = label_plan(0.95, coverage=0.4)
    >>> [(need.alone, need.shared) for need in plan.by_errors]
    [(59, 72), (93, 110), (124, 142), (153, 173)]
    >>> plan.queries(72)
    360
    """
    claim, rate = _claim(precision, leak)
    for name, value in (("confidence", confidence), ("confirming-share", confirming_share)):
        _check(name, value, 0 < value < 1 or (value == 1 and name != "confidence"))
    if coverage is not None:
        _check("coverage", coverage, 0 < coverage <= 1)
    if claims < 1 or not 1 <= effect < math.inf:
        raise ConfigError(f"claims {claims}, design effect {effect}: both must be at least 1")
    alone, shared = _deltas(confidence, claims)
    wanted = truths if truths is not None else _truths(rate)
    return LabelPlan(
        claim=claim,
        rate=rate,
        confidence=confidence,
        claims=claims,
        by_errors=tuple(
            Need(label_budget(rate, alone, e), label_budget(rate, shared, e), errors=e)
            for e in ERRORS
        ),
        by_truth=tuple(
            Need(
                label_budget_for_power(rate, alone, truth, power=POWER),
                label_budget_for_power(rate, shared, truth, power=POWER),
                truth=truth,
            )
            for truth in wanted
        ),
        coverage=coverage,
        confirming_share=confirming_share,
        effect=effect,
    )


def design_effect(per_cluster: float, icc: float) -> float:
    """How many clustered queries are worth one independent one: 1 + (m - 1) * ICC.

    `per_cluster` m queries each, `icc` their intra-cluster correlation. Raises `ConfigError` for
    m below 1 or an ICC outside [0, 1].

    >>> design_effect(7, 0.2)
    2.2
    """
    if not (1 <= per_cluster < math.inf and 0 <= icc <= 1):
        raise ConfigError(
            f"design effect: {per_cluster} queries per cluster, ICC {icc}; at least 1, and an ICC "
            "from 0 to 1 are expected"
        )
    return float(1 + (Fraction(str(per_cluster)) - 1) * Fraction(str(icc)))


def measured_design_effect(success: ArrayLike, cluster: ArrayLike) -> float | None:
    """The variance of a rate over clusters against that of as many independent queries.

    Both arguments have shape (n,). By topic, a value above 2 says that a claim reaches the topics
    of the set that confirmed it, no further. None where all are equal or there is one cluster.

    >>> measured_design_effect([1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1])
    6.0
    """
    held = np.asarray(success, dtype=np.float64)
    code = np.unique(np.asarray(cluster), return_inverse=True)[1]
    count = int(code.max(initial=-1)) + 1
    mean = float(held.mean()) if len(held) else 0.0
    if count < 2 or mean in (0.0, 1.0):
        return None
    residual = np.bincount(code, held - mean)
    clustered = count / (count - 1) * float(np.square(residual).sum())
    return clustered / (len(held) * mean * (1 - mean))


@dataclass(frozen=True, slots=True)
class TooFewLabels:
    """A claim that these labels cannot support, even without one error."""

    claim: str
    alone: int
    shared: int
    claims: int
    have: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "claim": self.claim,
            "needed_alone": self.alone,
            "needed_one_of_several": self.shared,
            "claims": self.claims,
            "have": self.have,
            "message": str(self),
        }

    def __str__(self) -> str:
        """One line, in the numbers of the claim."""
        leak = self.claim.startswith("leak")
        counted = "unanswerable queries" if leak else "queries graded HIGHLY_RELEVANT"
        shared = f", {self.shared} as one of {self.claims} claims" if self.claims > 1 else ""
        return (
            f"{self.alone} {counted} without an error support {self.claim} alone{shared}; "
            f"you have {self.have}"
        )


def too_few_labels(
    n: int,
    *,
    precision: float | None = None,
    leak: float | None = None,
    confidence: float = 0.95,
    claims: int = 2,
) -> TooFewLabels | None:
    """The verdict where `n` queries graded at the level (or unanswerable ones) are too few.

    None where they would be enough if none of them were wrong, as one of `claims`.

    >>> str(too_few_labels(31, precision=0.95))
    '59 queries graded HIGHLY_RELEVANT without an error support precision >= 0.95 alone, 72 as \
one of 2 claims; you have 31'
    """
    claim, rate = _claim(precision, leak)
    alone, shared = (label_budget(rate, delta, 0) for delta in _deltas(confidence, claims))
    return TooFewLabels(claim, alone, shared, claims, n) if n < shared else None


def _claim(precision: float | None, leak: float | None) -> tuple[str, float]:
    """The claim in words, and the rate it says is reached."""
    if precision is not None and leak is None:
        _check("precision", precision, 0 < precision < 1)
        return f"precision >= {precision}", precision
    if leak is not None and precision is None:
        _check("leak", leak, 0 < leak < 1)
        return f"leak <= {leak}", float(1 - Fraction(str(leak)))
    raise ConfigError(
        f"plan: got precision {precision} and leak {leak}; exactly one of the two is expected"
    )


def _deltas(confidence: float, claims: int) -> tuple[float, float]:
    """What may go wrong, for the claim alone and as one of several."""
    delta = 1 - Fraction(str(confidence))
    return float(delta), float(delta / claims)


def _truths(rate: float) -> tuple[float, ...]:
    """The truths of method.md's table; for other claims a half and a fifth of the errors."""
    wrong = 1 - Fraction(str(rate))
    return TRUTHS.get(rate) or tuple(float(1 - wrong / fewer) for fewer in FEWER_ERRORS)


def _check(name: str, value: float, holds: bool) -> None:
    if not holds:
        raise ConfigError(f"plan: {name} is {value}; a number above 0 and below 1 is expected")
