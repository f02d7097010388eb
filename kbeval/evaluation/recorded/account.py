"""An account of what was met while reading look-ups: each kind counted, and told to the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal, TypeVar

from kbeval.evaluation.reading.values import RowProblem
from kbeval.records import Fault

T = TypeVar("T")
Severity = Literal["error", "warning"]

SUMMED: dict[str, tuple[str, str, Severity]] = {  # told once for all: what, what became of it
    "no_session": (
        "look-ups have no session id",
        "they are left out: a memory works within a session",
        "error",
    ),
    "duplicate": (
        "look-ups repeat another one of their session in time, query and documents",
        "each is counted once",
        "warning",
    ),
    "out_of_order": (
        "look-ups stand after a later one of their session",
        "each session is sorted by time",
        "warning",
    ),
    "naive_time": ("times have no zone", "they are taken as UTC", "warning"),
    "other_zone": ("times are in other zones than UTC", "they are converted to UTC", "warning"),
    "untimed": (
        "look-ups have no time",
        "their sessions keep the order of the record",
        "warning",
    ),
    "ambiguous_labels": (
        "look-ups ask what several labelled queries ask, with different labels",
        "they stay without labels",
        "warning",
    ),
    "gold_not_in_corpus": (
        "look-ups are labelled with documents of which the corpus has none",
        "they stay without labels",
        "warning",
    ),
}


class Account:
    """What was left out, what was met, and the faults that say so.

    `unit` is what a place in the source is: a physical "line" of a file, else the word for it.
    What is counted with a `problem` is told at its place; without one, in a sentence for all of
    its kind, if `SUMMED` has it.
    """

    def __init__(self, source: str, *, unit: str = "line") -> None:
        self.source = source
        self.unit = unit
        self.left_out: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._faults: list[Fault] = []
        self._untold: Counter[str] = Counter()
        self._first: dict[str, int | None] = {}

    def leave_out(
        self,
        reason: str,
        place: int | None,
        problem: str = "",
        *,
        remedy: str = "",
        count: int = 1,
        severity: Severity = "error",
    ) -> None:
        """Count look-ups that are in no session."""
        self.left_out[reason] += count
        self._say(reason, place, problem, remedy, count, severity)

    def meet(
        self, kind: str, place: int | None, problem: str = "", *, remedy: str = "", count: int = 1
    ) -> None:
        """Count something odd about what is kept, or what is no look-up."""
        self.counts[kind] += count
        self._say(kind, place, problem, remedy, count, "warning")

    def tell(
        self, problem: str, remedy: str = "", *, place: int | None, severity: Severity = "warning"
    ) -> None:
        """Say something about one place, or about the whole source."""
        line = place if self.unit == "line" else None
        if place is not None and line is None:
            problem = f"{self.unit} {place}: {problem}"
        self._faults.append(Fault(self.source, problem, remedy, line, severity))

    def refuse(self, fault: Fault) -> None:
        """Take over a fault of the reader: a line of which nothing is known."""
        self.left_out["malformed"] += 1
        self._faults.append(fault)

    def add(self, other: Account) -> None:
        """Take over what another account of the same source holds."""
        self.left_out.update(other.left_out)
        self.counts.update(other.counts)
        self._faults += other._faults
        self._untold.update(other._untold)
        self._first = other._first | self._first

    def faults(self) -> tuple[Fault, ...]:
        """All faults by line, the ones about the whole source first."""
        told = [self._summed(kind) for kind in SUMMED if self._untold[kind]]
        return tuple(sorted((*told, *self._faults), key=lambda fault: fault.line or 0))

    def _say(
        self,
        kind: str,
        place: int | None,
        problem: str,
        remedy: str,
        count: int,
        severity: Severity,
    ) -> None:
        if problem:
            self.tell(problem, remedy, place=place, severity=severity)
        else:
            self._untold[kind] += count
            self._first.setdefault(kind, place)

    def _summed(self, kind: str) -> Fault:
        what, remedy, severity = SUMMED[kind]
        place = self._first[kind]
        first = "" if place is None else f", the first in {self.unit} {place}"
        return Fault(self.source, f"{self._untold[kind]} {what}{first}", remedy, None, severity)


def tolerant(
    kind: str, read: Callable[..., T], *values: object, place: int, account: Account
) -> T | None:
    """What `read` makes of the values; None where it raises `RowProblem`, counted and told."""
    try:
        return read(*values)
    except RowProblem as problem:
        account.meet(kind, place, str(problem), remedy="it counts as not recorded")
        return None
