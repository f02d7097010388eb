"""Where no cut pays: the constant that does as well, as a cut that can be written and graded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kbeval.evaluation.tuning.constraints import Constraints
from kbeval.evaluation.tuning.cuts import Choice
from kbeval.evaluation.tuning.gains import CONSTANTS, Pays
from kbeval.evaluation.tuning.plateau import NOT_USED, Cut, Interval
from kbeval.records import Level
from kbeval.studies.tuning_parts import Ask, Parts


def with_constants(choice: Choice, pays: Mapping[Level, Pays], parts: Parts, ask: Ask) -> Choice:
    """The choice with the best constant in place of each cut that does not pay when held out.

    Under constraints a cut stays: what it must keep was asked, whatever it costs. So does one for
    which the labels give no ground, and one whose constant would cross the other cut.
    """
    cuts = {cut.level: cut for cut in (choice.highly_relevant, choice.reference)}
    nearest, farthest = _ends(parts)
    constants: dict[Level, str] = {}
    tried = {} if isinstance(ask.objective, Constraints) or nearest > farthest else pays
    for level, found in tried.items():
        if found.pays is not False or level in choice.one_class:
            continue
        never = found.best_constant == CONSTANTS[level][0]
        gap = Interval(-math.inf, nearest) if never else Interval(farthest, math.inf)
        cut = Cut(level, gap, gap)
        if cut.note == cuts[level].note:
            continue  # the best cut is that constant itself
        if not _crossed(cuts | {level: cut}):
            cuts[level] = cut
            constants[level] = (
                f"no cut pays on queries held out, so the constant {found.best_constant!r} is used"
            )
    high, reference = (
        replace(cut, gap=Interval(-math.inf, min(cut.gap.refused, nearest)))
        if cut.note == NOT_USED
        else cut
        for cut in (cuts[Level.HIGHLY_RELEVANT], cuts[Level.REFERENCE])
    )
    return replace(choice, highly_relevant=high, reference=reference, constants=constants)


def _ends(parts: Parts) -> tuple[float, float]:
    """The nearest and the farthest distance of all labels, that choose and that report."""
    both = np.concatenate([parts.chosen_on.distance, parts.reported.distance])
    free = np.concatenate([judged.l0_count != 1 for judged in (parts.chosen_on, parts.reported)])
    known = both[np.isfinite(both) & free]
    return float(known.min(initial=math.inf)), float(known.max(initial=-math.inf))


def _crossed(cuts: Mapping[Level, Cut]) -> bool:
    return cuts[Level.HIGHLY_RELEVANT].distance > cuts[Level.REFERENCE].distance
