"""Encoders at one precision in place of one threshold: what each then covers (method.md 9).

Never one shared threshold: the same distance means something else to every encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.plateau import decimal, finite


@dataclass(frozen=True, slots=True)
class Matched:
    """One encoder at the largest cut that keeps a precision on the choosing labels.

    `reached` False: no cut keeps it, and there are no rates. `cut` is None then and where folds
    are held out. The interval of `coverage` holds the choice of the cut, that of `precision` is of
    the queries this cut graded. `floor` is the part of coverage that is PRECISE, whatever the cut.
    `reached_share` counts resamples (trainings, in folds).
    """

    encoder: str
    wanted: float
    reached: bool
    cut: float | None
    precision: Rate
    coverage: Rate
    floor: float | None
    reached_share: float

    @property
    def fell_short(self) -> bool:
        """The precision that came out lies beyond doubt below the one that was kept on dev."""
        return self.precision.high is not None and self.precision.high < self.wanted

    def to_json(self) -> dict[str, Any]:
        """Plain values; a rate that does not exist has value null and says why."""
        return {
            "encoder": self.encoder,
            "wanted": self.wanted,
            "reached": self.reached,
            "cut": None if self.cut is None else finite(self.cut),
            "precision": self.precision.to_json(),
            "coverage": self.coverage.to_json(),
            "coverage_floor": self.floor,
            "fell_short": self.fell_short,
            "reached_share": self.reached_share,
        }

    def __str__(self) -> str:
        """One line, without the encoder."""
        if not self.reached:
            return f"never {self.wanted:g}"
        where = "" if self.cut is None else f" at distance {decimal(self.cut)}"
        floor = "" if self.floor is None else f" (PRECISE alone {self.floor:.3f})"
        of = "trainings" if self.cut is None else "resamples"
        partly = "" if self.reached_share == 1 else f"; reached in {self.reached_share:.0%} of {of}"
        short = f", short of {self.wanted:g}" if self.fell_short else ""
        came = f"precision that came out {self.precision}{short}"
        return f"coverage {self.coverage}{floor}{where}, {came}{partly}"


@dataclass(frozen=True, slots=True)
class CoverageGap:
    """Coverage of the second encoder less that of the first, at one wanted precision.

    `precision` is the same difference of the precisions that came out. `p` is two-sided, from the
    resamples; `p_holm` adjusts it over the pairs of encoders at this precision.
    """

    first: str
    second: str
    wanted: float
    coverage: Rate
    precision: Rate
    p: float | None
    p_holm: float | None

    @property
    def not_matched(self) -> bool:
        """The precisions that came out differ by more than their interval."""
        low, high = self.precision.low, self.precision.high
        return low is not None and high is not None and not low <= 0 <= high

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "first": self.first,
            "second": self.second,
            "wanted": self.wanted,
            "coverage_difference": self.coverage.to_json(),
            "precision_difference": self.precision.to_json(),
            "not_matched": self.not_matched,
            "p": self.p,
            "p_holm": self.p_holm,
        }

    def __str__(self) -> str:
        """One line: how much more the second covers, or why that cannot be said."""
        who = f"{self.wanted:g} {self.second} less {self.first}"
        if self.coverage.value is None:
            return f"{who}: {self.coverage.note}"
        p = "" if self.p_holm is None else f", p {self.p_holm:.4f}"
        return f"{who}: coverage {self.coverage}{p}; precision {self.precision}"


@dataclass(frozen=True, slots=True)
class Matching:
    """Every encoder at every wanted precision, and every pair of encoders."""

    rows: tuple[Matched, ...]
    pairs: tuple[CoverageGap, ...]
    resamples: int
    folded: bool

    def not_matched(self, encoder: str, wanted: float) -> bool:
        """Whether this encoder's precision came out unlike that of any other."""
        return any(
            pair.not_matched
            for pair in self.pairs
            if pair.wanted == wanted and encoder in (pair.first, pair.second)
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "resamples": self.resamples,
            "cuts_from": "the other folds" if self.folded else "dev",
            "encoders": [
                row.to_json() | {"not_matched": self.not_matched(row.encoder, row.wanted)}
                for row in self.rows
            ],
            "pairs": [pair.to_json() for pair in self.pairs],
        }
