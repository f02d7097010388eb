"""Languages, kinds and domains as pictures: what each cut costs every part, wherever it lies."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbeval.evaluation.tuning.gains import FEWEST_OF_A_CLASS
from kbeval.evaluation.tuning.plateau import Cut
from kbeval.studies.drawing import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    SKY,
    VERMILION,
    chart_style,
    legible,
    new_figure,
)
from kbeval.studies.tuning_result import Tuned
from kbeval.studies.tuning_views import PartCurve, part_curves, separate_table

if TYPE_CHECKING:
    from kbeval.studies.drawing import Axes, Figure

COLOURS = (BLUE, ORANGE, SKY, VERMILION, "#009E73", "#CC79A7")  # Okabe and Ito
PALE = "#b8b8b8"
LEAST_TOP = 0.2  # look-ups; a curve that rises far above its own least leaves the picture
WIDTH = 46  # characters of a line beside the panels


def parts_chart(tuned: Tuned) -> Figure:
    """Draw the cost of each part along both cuts, its own best cuts (dots), and the common ones.

    A row for language, kind and domain, with the advice above it. Pale is a part that cannot have
    cuts of its own: fewer than 100 queries of a class, or unanswerable queries alone.
    """
    curves = part_curves(tuned)
    advice = separate_table(tuned).set_index("by")["advice"].to_dict()
    kinds = list(dict.fromkeys(curve.by for curve in curves))
    with chart_style():
        figure = new_figure(9.0, 0.8 + 2.6 * len(kinds))
        panels = figure.subplots(len(kinds), 2, squeeze=False, sharex="col")
        for row, by in zip(panels, kinds, strict=True):
            own = [curve for curve in curves if curve.by == by]
            _row(row, own, tuned, advice.get(by, "one part, nothing to tell apart"))
        for axes, level in zip(panels[-1], ("HIGHLY_RELEVANT", "REFERENCE"), strict=True):
            axes.set_xlabel(f"distance at which {level} ends")
        figure.suptitle(
            "Look-ups a query of each part, where the cuts were chosen: against never closing "
            "(left),\nagainst handing out nothing (right). Dashed: the common cut; dots: its own.",
            fontsize=10,
            x=0.01,
            ha="left",
        )
    return figure


def _row(panels: Sequence[Axes], curves: Sequence[PartCurve], tuned: Tuned, advice: str) -> None:
    common = (None, None) if tuned.choice is None else tuned.choice.distances
    colours = _colours(curves)
    for place, (axes, cut) in enumerate(zip(panels, common, strict=True)):
        for curve, colour in zip(curves, colours, strict=True):
            _line(axes, curve, place, colour)
        costs = [curve.costs[place] for curve in curves]
        least = min((float(cost.min()) for cost in costs if len(cost)), default=0.0)
        axes.set_ylim(min(1.2 * least, -0.02), max(-1.5 * least, LEAST_TOP))
        axes.axhline(0, color=FAINT, linewidth=0.6)
        if cut is not None and math.isfinite(cut):
            axes.axvline(cut, color=INK, linewidth=1.1, linestyle=(0, (4, 2)))
    title = panels[0].set_title(legible(f"{curves[0].by}: {advice}"), loc="left", fontsize=8)
    title.set_in_layout(False)
    _legend(panels[1], curves, colours)


def _legend(axes: Axes, curves: Sequence[PartCurve], colours: Sequence[str]) -> None:
    """The parts by colour, and all pale ones in one breath."""
    named = [
        (f"{curve.part}: {curve.answered} answered, {curve.not_answered} not", colour)
        for curve, colour in zip(curves, colours, strict=True)
        if not curve.note
    ]
    pale = [f"{c.part} ({c.answered}, {c.not_answered})" for c in curves if c.note]
    if pale:
        head = f"pale, fewer than {FEWEST_OF_A_CLASS} of a class: "
        lines = textwrap.wrap(head + ", ".join(pale) + " (answered, not)", WIDTH, max_lines=9)
        named += [("\n".join(lines), PALE)]
    handles = [axes.plot([], [], color=colour)[0] for _, colour in named]
    axes.legend(
        handles,
        [legible(text) for text, _ in named],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        frameon=False,
        fontsize=7,
    )


def _colours(curves: Sequence[PartCurve]) -> list[str]:
    """A colour for each part that could have cuts of its own, pale for the others."""
    large = [curve.part for curve in curves if not curve.note]
    return [
        PALE if curve.note else COLOURS[large.index(curve.part) % len(COLOURS)] for curve in curves
    ]


def _line(axes: Axes, curve: PartCurve, place: int, colour: str) -> None:
    cost = curve.costs[place]
    if not len(cost):
        return
    start = float(curve.distance[0])
    axes.step(
        [start, *curve.distance],
        [0.0, *cost],
        where="post",
        color=colour,
        linewidth=1.0 if curve.note else 1.6,
        zorder=1 if curve.note else 2,
    )
    if curve.own is not None and not curve.note:
        x, y = _at((curve.own.highly_relevant, curve.own.reference)[place], curve.distance, cost)
        axes.plot([x], [y], "o", color=colour, markersize=6, zorder=3)


def _at(cut: Cut, distance: NDArray[np.float64], cost: NDArray[np.float64]) -> tuple[float, float]:
    """Where a cut lies on its curve: left end if it is not used, right end if it has no limit."""
    accepted = int(np.searchsorted(distance, cut.distance, side="right"))
    x = min(max(cut.distance, float(distance[0])), float(distance[-1]))
    return x, 0.0 if accepted == 0 else float(cost[accepted - 1])
