"""Which claims a set has labels enough for (method.md 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.judge import Judged
from kbeval.evaluation.queries import LabelledSet
from kbeval.evaluation.statistics import label_budget
from kbeval.records import Level

ALONE, ONE_OF_TWO = 0.05, 0.025  # the chance to be wrong that a claim may use
ERRORS = (0, 1, 2, 3)
PRECISION, LEAK = "precision[HIGHLY_RELEVANT]", "leak_rate"
CLAIMED = ((PRECISION, 0.90), (PRECISION, 0.95), (LEAK, 0.05))


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim about one split: the labels it needs, and those the split has.

    `alone` and `one_of_two` are the independent queries it takes with 0, 1, 2, 3 errors among
    them. `available` is the most a split can give: clusters of unanswerable queries, or of
    answerable ones that L0 does not make PRECISE. `graded` are the clusters that have a query
    graded HIGHLY_RELEVANT under the settings, by encoder.
    """

    split: str
    measure: str
    bound: float
    alone: tuple[int, ...]
    one_of_two: tuple[int, ...]
    available: int
    graded: Mapping[str, int]

    @property
    def supported(self) -> Literal["one of two", "alone", "no"]:
        """The most that the split's labels suffice for if none of them is an error."""
        if self.available >= self.one_of_two[0]:
            return "one of two"
        return "alone" if self.available >= self.alone[0] else "no"

    @property
    def name(self) -> str:
        """Split, measure and bound, for a reader."""
        sign = "<=" if self.measure == LEAK else ">="
        return f"{self.split}: {self.measure} {sign} {self.bound:.2f}"

    def __str__(self) -> str:
        return (
            f"{self.name} needs {self.alone[0]} "
            f"({self.one_of_two[0]} as one of two), the split has at most {self.available}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; `needed` is by use, for 0, 1, 2 and 3 errors."""
        return {
            "split": self.split,
            "measure": self.measure,
            "bound": self.bound,
            "needed": {"alone": list(self.alone), "one_of_two": list(self.one_of_two)},
            "available": self.available,
            "graded": dict(self.graded),
            "supported": self.supported,
        }


def claims(
    labelled: LabelledSet,
    judged: Mapping[str, Judged],
    level: Mapping[str, NDArray[np.int8]],
) -> tuple[Claim, ...]:
    """The usual claims for every split; `judged` and `level` (n,) by encoder."""
    found = []
    for split in labelled.splits:
        graded = {
            name: _clusters(
                labelled, own, split, np.asarray(level[name] == Level.HIGHLY_RELEVANT, np.bool_)
            )
            for name, own in judged.items()
        }
        first = next(iter(judged.values()))
        hits = _clusters(labelled, first, split, first.answerable & (first.l0_count != 1))
        nothing = _clusters(labelled, first, split, ~first.answerable)
        for measure, bound in CLAIMED:
            p = 1 - bound if measure == LEAK else bound
            found.append(
                Claim(
                    split=split,
                    measure=measure,
                    bound=bound,
                    alone=tuple(label_budget(p, ALONE, errors) for errors in ERRORS),
                    one_of_two=tuple(label_budget(p, ONE_OF_TWO, errors) for errors in ERRORS),
                    available=nothing if measure == LEAK else hits,
                    graded={} if measure == LEAK else graded,
                )
            )
    return tuple(found)


def _clusters(labelled: LabelledSet, judged: Judged, split: str, among: NDArray[np.bool_]) -> int:
    """Clusters of a split that have a query among those marked, which have shape (n,)."""
    return len(
        {
            int(cluster)
            for cluster, query, marked in zip(judged.cluster, judged.query, among, strict=True)
            if marked and labelled.queries[query].split == split
        }
    )
