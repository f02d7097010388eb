"""Why a query went wrong, and which queries a rounding could turn (method.md 3)."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.answers import NEVER
from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.measures import by_l0_rule
from kbeval.records import Level

ROUNDING = 2e-6  # a distance this near to a cut could fall on its other side elsewhere


class Cause(StrEnum):
    """What to look at first when a query went wrong."""

    NONE = ""  # nothing went wrong
    NOT_IN_CORPUS = "not_in_corpus"  # the best documents of the labels are missing
    L0_RULE = "l0_rule"  # an L0 match took the primary's place, or alone decided the level
    TRUNCATION = "truncation"  # what is needed was not embedded whole, or lies beyond the depth
    CUT = "cut"  # the right document was there, the cut kept it (or a needed supplement) back
    L1_DISTANCE = "l1_distance"  # the nearest document is wrong, or too near for what it is


def causes(judged: Judged, level: NDArray[np.int8], *, reference_cut: float) -> NDArray[np.object_]:
    """The `Cause` of each query's fault, of shape (n,); the first that holds.

    A fault is: an unanswerable query that was given something; an answerable one whose primary
    is neither an answer nor the best there is (related at REFERENCE is the right verdict), or is
    only related at a closed level; a best primary that was withheld; a closed level whose hint
    is false.
    """
    given, closed = level > Level.NOT_FOUND, level >= Level.HIGHLY_RELEVANT
    leaked = ~judged.answerable & given
    best = judged.answerable & ~judged.better_exists & (judged.worth > Worth.WRONG)
    answers = judged.worth == Worth.ANSWERS
    fair = (judged.worth == Worth.RELATED) & (level == Level.REFERENCE)
    misplaced = judged.answerable & ~best & ~answers & ~fair
    overrated = judged.answerable & ~answers & closed
    false_hint = judged.answerable & closed & judged.hint_false(reference_cut)
    l0_level = by_l0_rule(judged, level, reference_cut)
    l0_first = judged.l0_count > 0
    lost = judged.gold_truncated | judged.gold_cut
    table = [
        (misplaced & judged.best_missing, Cause.NOT_IN_CORPUS),
        (misplaced & l0_first, Cause.L0_RULE),
        ((leaked | overrated) & l0_level, Cause.L0_RULE),
        ((misplaced | false_hint) & lost, Cause.TRUNCATION),
        ((best | answers) & ~given, Cause.CUT),
        (false_hint & ~misplaced & (judged.tau < NEVER), Cause.CUT),
        (misplaced | leaked | overrated | false_hint, Cause.L1_DISTANCE),
    ]
    holds, cause = zip(*table, strict=True)
    found: NDArray[np.object_] = np.select(holds, [np.array(c, object) for c in cause], Cause.NONE)
    return found


def near_cut(judged: Judged, level: NDArray[np.int8], *cut: float) -> NDArray[np.bool_]:
    """Whether the distance that grades lies within 2e-6 of a cut, of shape (n,); not if PRECISE."""
    apart = np.abs(judged.distance[:, None] - np.array([c for c in cut if np.isfinite(c)]))
    near: NDArray[np.bool_] = (apart <= ROUNDING + 1e-9).any(axis=1) & (level != Level.PRECISE)
    return near
