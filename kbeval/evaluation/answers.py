"""What one query is handed in a fresh session, at every reference cut at once (method.md 1)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbeval.errors import DistanceError
from kbeval.records import Evidence
from kbeval.retrieval.ranking import places

ALWAYS, NEVER = -math.inf, math.inf  # the reach of what has a place at every cut, at none


class Answer(NamedTuple):
    """What one query is handed at each reference cut: a document stands from its `reach` on."""

    documents: list[int]  # the primary first
    reach: list[float]  # least reference cut with a place; ALWAYS for L0 matches and the primary
    distance: float  # the one that grades (method.md 1)
    primary_distance: float


def handed_out(evidence: Evidence, row: int, *, limit: int) -> Answer:
    """The documents of one answer in a fresh session, by the rule of `ranking.places`.

    At a reference cut D the answer holds the documents with reach <= D (and, at a level other
    than none, the primary). Raises `DistanceError` for an L0 match without a distance.
    """
    start, stop = evidence.l0_offset[row : row + 2].tolist()
    exact = evidence.l0_document[start:stop].tolist()
    exact_distance = evidence.l0_distance[start:stop].tolist()
    if not all(map(math.isfinite, exact_distance)):
        raise DistanceError(
            f"evidence row {row}: an L0 match has distance {exact_distance}; every L0 match "
            "needs a finite one (the index is damaged)"
        )
    head = zip(evidence.l1_document[row, :limit], evidence.l1_distance[row, :limit], strict=True)
    near = {int(doc): float(distance) for doc, distance in head if doc >= 0}
    documents = places(exact, near, limit=limit)
    placed = min(len(exact), max(limit - 1, 1))
    own = near | dict(zip(exact, exact_distance, strict=True))
    reach = [ALWAYS if i < max(placed, 1) else own[doc] for i, doc in enumerate(documents)]
    with_place = [own[doc] for doc in documents]
    return Answer(documents, reach, min(with_place, default=NEVER), (*with_place, NEVER)[0])


def reached(tau: NDArray[np.float64], reference_cut: float) -> NDArray[np.bool_]:
    """Whether the cut is at or beyond each `tau`; NEVER is not reached, not even by no cut (inf).

    >>> reached(np.array([ALWAYS, 0.5, NEVER]), math.inf).tolist()
    [True, True, False]
    """
    met: NDArray[np.bool_] = (tau <= reference_cut) & (tau < NEVER)
    return met
