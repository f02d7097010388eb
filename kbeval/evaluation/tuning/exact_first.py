"""What L0 does to the verdicts, apart from the cuts: the price of the first place.

L0 is taken as it is (no cut moves PRECISE), so its price is shown beside the cuts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.queries import LabelledSet
from kbeval.records import Evidence


@dataclass(frozen=True, slots=True)
class FirstPlace:
    """The price of putting the L0 match first, at the levels that were given.

    Over queries with an L0 match whose nearest document is another one.
    """

    moved_count: int  # queries whose first document is not the nearest one
    lost: int  # the nearest document answers, the L0 match does not
    gained: int  # the other way round
    price: Fraction  # mean cost per query of all, less what the nearest first would have cost

    def to_json(self) -> dict[str, Any]:
        """Plain values; a positive price is what L0 in front costs."""
        return {
            "moved": self.moved_count,
            "lost": self.lost,
            "gained": self.gained,
            "price": float(self.price),
        }


def first_place(
    judged: Judged,
    level: NDArray[np.int8],
    labelled: LabelledSet,
    evidence: Evidence,
    costs: Costs,
) -> FirstPlace:
    """What the L0 match in the first place costs against the nearest document there.

    `level` (n,) are the levels given; they stay, only the first document changes.
    """
    nearest = nearest_worth(judged, labelled, evidence)
    moved = _moved(judged, evidence)
    scaled = costs.scaled()
    paid = scaled[level, judged.worth] - scaled[level, nearest]
    answers, would = judged.worth == Worth.ANSWERS, nearest == Worth.ANSWERS
    return FirstPlace(
        moved_count=int(moved.sum()),
        lost=int((moved & would & ~answers).sum()),
        gained=int((moved & answers & ~would).sum()),
        price=Fraction(int(paid[moved].sum()), costs.scale * max(len(judged), 1)),
    )


def nearest_worth(judged: Judged, labelled: LabelledSet, evidence: Evidence) -> NDArray[np.int8]:
    """What each query's nearest document is worth, of shape (n,)."""
    moved = _moved(judged, evidence)
    worth = judged.worth.copy()
    for q in np.flatnonzero(moved & judged.answerable):
        query = labelled.queries[judged.query[q]]
        score = query.grades.get(evidence.paths[evidence.l1_document[judged.row[q], 0]], 0)
        if score >= labelled.answers_from:
            worth[q] = Worth.ANSWERS
        else:
            worth[q] = Worth.RELATED if score > 0 else Worth.WRONG
    return worth


def _moved(judged: Judged, evidence: Evidence) -> NDArray[np.bool_]:
    """Whether a document nearer than the first L0 match was put behind it, of shape (n,)."""
    if not evidence.l1_distance.shape[1]:
        return np.zeros(len(judged), dtype=np.bool_)
    nearest = evidence.l1_distance[judged.row, 0]
    moved: NDArray[np.bool_] = (judged.l0_count > 0) & (nearest < judged.primary_distance)
    return moved
