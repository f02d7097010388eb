"""Languages, kinds and domains apart: what a cut costs each, its own best, and the advice.

Curves and own cuts are of the labels that choose; costs before and after are held out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kbeval.errors import ConfigError
from kbeval.evaluation.measures import levels
from kbeval.evaluation.tuning.cuts import Choice, choose
from kbeval.evaluation.tuning.gains import FEWEST_OF_A_CLASS, part_sizes
from kbeval.evaluation.tuning.held_out import HeldOut
from kbeval.evaluation.tuning.ladder import ladder
from kbeval.evaluation.tuning.objectives import additive_sums
from kbeval.evaluation.tuning.plateau import decimal
from kbeval.studies.tuning_files import told
from kbeval.studies.tuning_parts import SEPARATE, cost_of, part_names
from kbeval.studies.tuning_result import Tuned

COLUMNS = ["by", "part", "answered", "not_answered", "own_highly_relevant", "own_reference", "note"]


@dataclass(frozen=True, slots=True, eq=False)
class PartCurve:
    """What either cut adds to the mean cost of one part's queries, wherever it lies.

    k distances at which a cut accepts one more query, nearest first. `answered` and
    `not_answered` count queries whose level rests on distance; `note` says why the part cannot
    have cuts of its own, empty where it could. `own` are its best cuts; None: it has none.
    """

    by: str
    part: str
    answered: int
    not_answered: int
    distance: NDArray[np.float64]  # (k,)
    close: NDArray[np.float64]  # (k,), against never closing
    give: NDArray[np.float64]  # (k,), against handing out nothing
    own: Choice | None
    note: str

    @property
    def costs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both curves, of HIGHLY_RELEVANT and of REFERENCE."""
        return self.close, self.give


def part_curves(tuned: Tuned) -> list[PartCurve]:
    """The curves of every language, kind and domain of the choosing labels."""
    judged = tuned.parts.chosen_on
    found = []
    for by in SEPARATE:
        names = part_names(tuned.parts, judged, by)
        sizes = part_sizes(judged, names)
        found += [_curve(tuned, by, name, names == name, size) for name, size in sizes.items()]
    return found


def part_table(tuned: Tuned) -> pd.DataFrame:
    """One row a part: its queries, its own best cuts as distances, its cost before and after.

    The costs are means over the reported queries, held out; NaN where the part has none there.
    """
    rows = [
        (c.by, c.part, c.answered, c.not_answered, *_own_cuts(c), c.note)
        for c in part_curves(tuned)
    ]
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.merge(cost_by_part(tuned), on=["by", "part"], how="outer", sort=False)


def cost_by_part(tuned: Tuned) -> pd.DataFrame:
    """Per language, kind and domain: queries, and mean cost before and after, held out.

    NaN where nothing could be held out.
    """
    judged = tuned.parts.reported
    present = levels(judged, tuned.ask.present, tuned.ask.present_rule)
    before = cost_of(judged, present, tuned.ask.costs)
    held = tuned.held
    after = held.cost if isinstance(held, HeldOut) else np.full(len(judged), np.nan)
    tables = [
        pd.DataFrame({"by": by, "part": part_names(tuned.parts, judged, by)}).assign(
            before=before, after=after
        )
        for by in SEPARATE
    ]
    grouped = pd.concat(tables).groupby(["by", "part"], sort=True)
    return grouped.agg(
        queries=("before", "size"), before=("before", "mean"), after=("after", "mean")
    ).reset_index()


def separate_table(tuned: Tuned) -> pd.DataFrame:
    """The gain of cuts apart, out of fold, and the advice; a row for language, kind and domain.

    `apparent` is the gain on the queries that tuned the cuts, `lower` the lower end of the gain
    adjusted for everything tried (Holm).
    """
    rows = [
        (one.by, told(one.gain), one.apparent, one.lower, str(one).partition(": ")[2])
        for one in tuned.separate
    ]
    for line in tuned.not_separated:
        by, _, why = line.partition(": ")
        rows.append((by, "-", None, None, why))
    return pd.DataFrame(rows, columns=["by", "gain", "apparent", "lower", "advice"])


def _curve(
    tuned: Tuned, by: str, name: str, among: NDArray[np.bool_], size: tuple[int, int]
) -> PartCurve:
    costs = tuned.ask.costs
    rungs = ladder(tuned.parts.chosen_on, precise_requires=tuned.rule, among=among)
    close, give = (
        sums[1:] / (costs.scale * len(rungs)) for sums in additive_sums(rungs, costs.scaled())
    )
    answerable = bool(tuned.parts.chosen_on.answerable[among].any())
    return PartCurve(
        by=by,
        part=name,
        answered=size[0],
        not_answered=size[1],
        distance=rungs.accepted[1:],
        close=close,
        give=give,
        own=_own(tuned, among),
        note=_note(size, answerable=answerable),
    )


def _note(size: tuple[int, int], *, answerable: bool) -> str:
    if not answerable:
        return "unanswerable queries alone: no look-up can know the part"
    return f"fewer than {FEWEST_OF_A_CLASS} of a class" if min(size) < FEWEST_OF_A_CLASS else ""


def _own(tuned: Tuned, among: NDArray[np.bool_]) -> Choice | None:
    try:
        found = choose(
            tuned.parts.chosen_on,
            tuned.ask.objective,
            normalization=tuned.ask.present,
            precise_requires=tuned.rule,
            among=among,
        )
    except ConfigError:  # its labels cannot serve the objective
        return None
    return found if isinstance(found, Choice) else None


def _own_cuts(curve: PartCurve) -> Iterator[str]:
    """Both own cuts as distances, or why there is no number."""
    if curve.own is None:
        yield from ("cannot be tuned", "cannot be tuned")
        return
    for cut in (curve.own.highly_relevant, curve.own.reference):
        no_ground = cut.level in curve.own.one_class
        yield "one class: no ground" if no_ground else cut.note or decimal(cut.distance)
