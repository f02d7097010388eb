"""Certified cuts as a choice that can be written as settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kbeval.evaluation.tuning.cuts import Choice
from kbeval.evaluation.tuning.ladder import ladder, largest_max_of
from kbeval.evaluation.tuning.plateau import Cut, Interval
from kbeval.records import Level
from kbeval.studies.tuning_parts import Ask, Parts
from kbeval.studies.tuning_result import Tuned


def certified_choice(choice: Choice, cuts: tuple[float, float], parts: Parts, ask: Ask) -> Choice:
    """The certified pair in place of the tuned one.

    Each cut lies between the last distance it accepts and the first it refuses, of all labels
    that chose or confirmed: within it no labelled query changes its level.
    """
    placed = [_cut(level, cut, parts, ask) for level, cut in zip(_LEVELS, cuts, strict=True)]
    return replace(
        choice,
        objective=f"certified: {choice.objective}",
        highly_relevant=placed[0],
        reference=placed[1],
    )


_LEVELS = (Level.HIGHLY_RELEVANT, Level.REFERENCE)


def certified_together(tuned: Sequence[Tuned]) -> tuple[Tuned, ...]:
    """Each encoder's certificate, told of the others that the same labels certified."""
    names = tuple(one.encoder for one in tuned if one.certificate is not None)
    if len(names) < 2:
        return tuple(tuned)
    return tuple(
        one
        if one.certificate is None
        else replace(one, certificate=replace(one.certificate, beside=names))
        for one in tuned
    )


def _cut(level: Level, distance: float, parts: Parts, ask: Ask) -> Cut:
    limit = ask.present.max_l2_distance
    accepted, refused = -np.inf, np.inf
    for judged in (parts.chosen_on, parts.reported):
        rungs = ladder(judged, largest_max=largest_max_of(judged, limit))
        near = np.sort(rungs.distance[np.isfinite(rungs.distance)])
        below, above = near[near <= distance], near[near > distance]
        accepted = max(accepted, float(below[-1]) if len(below) else -np.inf)
        refused = min(refused, float(above[0]) if len(above) else np.inf)
    gap = Interval(accepted, refused)
    return Cut(level, gap, gap)
