"""Tuning as pictures: costs over the knobs, rates along a cut, foretold against what came."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kbeval.evaluation.tuning.calibration import Calibration, NotCalibrated
from kbeval.studies.drawing import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    SKY,
    VERMILION,
    chart_style,
    new_figure,
)
from kbeval.studies.tuning_result import Tuned

if TYPE_CHECKING:
    import pandas as pd

    from kbeval.studies.drawing import Axes, Figure

LINES = {  # a column of `rates_along_cut` -> its colour
    "precision": BLUE,
    "coverage": SKY,
    "false_closure": VERMILION,
    "found_rate": BLUE,
    "leak_rate": ORANGE,
}
PANELS = (
    ("HIGHLY_RELEVANT", ("precision", "coverage", "false_closure")),
    ("REFERENCE", ("found_rate", "leak_rate")),
)
LEVELS = {"PRECISE": BLUE, "HIGHLY_RELEVANT": SKY, "REFERENCE": ORANGE, "NOT_FOUND": "#d9d9d9"}


def max_heat(table: pd.DataFrame, *, cuts: Sequence[float]) -> Figure:
    """Draw the cost over max-l2-distance and reference threshold, and where decisions are equal.

    `table` is that of `cost_by_max`. Along each line (1 - threshold) * max is one of `cuts`: the
    same answers to every query, in other words of the settings.
    """
    with chart_style():
        figure = new_figure(7.2, 4.4)
        axes = figure.add_subplot()
        _heat(figure, axes, table)
        limits = np.linspace(float(table.columns[0]), float(table.columns[-1]), 200)
        for cut in cuts:
            axes.plot(limits, 1 - cut / limits, color="white", linewidth=1.1)
            inside = [(x, 1 - cut / x) for x in limits if 0.04 < 1 - cut / x < 0.96]
            if inside:
                x, y = inside[len(inside) * 2 // 3]
                name = axes.text(x, y, f"{cut:g}", fontsize=8, ha="center", va="center")
                name.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.5})
        axes.set_ylim(float(table.index[0]), float(table.index[-1]))
        axes.set_xlabel("max-l2-distance; on a white line every cut distance is the same")
        axes.set_ylabel("reference-threshold")
        axes.set_title("Mean cost a query: three knobs, two degrees of freedom", loc="left")
    return figure


def reach_chart(table: pd.DataFrame) -> Figure:
    """Draw the share of queries that each level gets, along max-l2-distance."""
    with chart_style():
        figure = new_figure(7.2, 3.2)
        axes = figure.add_subplot()
        names = [str(name) for name in table.columns]
        shares = [table[name].to_numpy() for name in table.columns]
        colours = [LEVELS[name] for name in names]
        axes.stackplot(table.index.to_numpy(), shares, labels=names, colors=colours)
        axes.set_ylim(0, 1)
        axes.set_xlim(float(table.index[0]), float(table.index[-1]))
        axes.set_xlabel("max-l2-distance, thresholds as they are")
        axes.set_title("How far each level reaches, share of queries", loc="left")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    return figure


def cost_surface(table: pd.DataFrame, tuned: Tuned) -> Figure:
    """Draw the cost over both thresholds, with optimum, plateau, stability range and defaults.

    `table` is that of `cost_by_thresholds`; pale cells are not valid.
    """
    limit, present = tuned.ask.present.max_l2_distance, tuned.ask.present
    with chart_style():
        figure = new_figure(6.4, 5.2)
        axes = figure.add_subplot()
        axes.set_facecolor("#efefef")
        _heat(figure, axes, table)
        axes.text(
            0.25, 0.75, "not valid:\nreference above\nhighly-relevant", color=FAINT, ha="center"
        )
        here = (present.highly_relevant_threshold, present.reference_threshold)
        axes.plot(*here, "s", color=INK, markersize=7, label="present settings")
        if tuned.choice is not None:
            _ranges(axes, tuned, limit)
        axes.set_xlabel(f"highly-relevant-threshold (max-l2-distance {limit:g})")
        axes.set_ylabel("reference-threshold")
        axes.set_title("Mean cost a query where the cuts were chosen", loc="left")
        axes.legend(loc="upper left", frameon=False, fontsize=8)
    return figure


def along_cut_chart(table: pd.DataFrame, *, cuts: Mapping[str, float]) -> Figure:
    """Draw what each cut does wherever it lies; `table` is that of `rates_along_cut`."""
    with chart_style():
        figure = new_figure(7.2, 5.0)
        panels = figure.subplots(2, 1, sharex=True)
        for axes, (level, names) in zip(panels, PANELS, strict=True):
            for name in names:
                axes.plot(table["distance"], table[name], color=LINES[name], label=name)
            cut = cuts.get(level, math.inf)
            if math.isfinite(cut):
                axes.axvline(cut, color=INK, linewidth=1.1, linestyle=(0, (4, 2)))
            axes.set_ylim(-0.02, 1.02)
            axes.set_title(f"if the cut of {level} lies here (dashed: chosen)", loc="left")
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
        panels[-1].set_xlabel("distance")
    return figure


def reliability_chart(found: Calibration | NotCalibrated) -> Figure:
    """Draw what was foretold against what came, with intervals; or why there is nothing to draw."""
    with chart_style():
        figure = new_figure(4.6, 4.4)
        axes = figure.add_subplot()
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
        if isinstance(found, NotCalibrated):
            axes.text(0.5, 0.6, str(found), ha="center", fontsize=8, wrap=True)
        else:
            for part in found.bins:
                came = part.came
                ends = [end for end in (came.low, came.high) if end is not None]
                axes.plot([part.foretold] * len(ends), ends, color=SKY, linewidth=4)
                axes.plot([part.foretold], [float(came.value or 0.0)], "o", color=BLUE)
        axes.set_xlabel("foretold: the nearest document answers")
        axes.set_ylabel("came, with 95 % interval")
        axes.set_title("Is similarity a probability once calibrated?", loc="left")
    return figure


def _heat(figure: Figure, axes: Axes, table: pd.DataFrame) -> None:
    columns, rows = (np.asarray(axis, dtype=np.float64) for axis in (table.columns, table.index))
    shown = np.ma.masked_invalid(table.to_numpy(dtype=np.float64))
    mesh = axes.pcolormesh(columns, rows, shown, cmap="viridis_r", shading="nearest")
    figure.colorbar(mesh, ax=axes, label="look-ups lost a query, fewer is better")


def _ranges(axes: Axes, tuned: Tuned, limit: float) -> None:
    """The chosen pair; bars: how far resamples move it; the thin box: of equal value."""
    choice, stable = tuned.choice, tuned.stability
    if choice is None:
        return
    high, reference = (_similar(cut, limit) for cut in choice.distances)
    if stable is not None:
        across = _span(stable.highly_relevant.low, stable.highly_relevant.high, limit)
        upright = _span(stable.reference.low, stable.reference.high, limit)
        axes.plot(across, [reference] * 2, color=VERMILION, linewidth=2, label="stability range")
        axes.plot([high] * 2, upright, color=VERMILION, linewidth=2)
    left, right = choice.highly_relevant.plateau.similarity(limit)
    bottom, top = choice.reference.plateau.similarity(limit)
    axes.fill_between([left, right], bottom, top, color=ORANGE, alpha=0.6, label="of equal value")
    axes.plot([high], [reference], "*", color=VERMILION, markersize=13, label="chosen")


def _span(low: float | None, high: float | None, limit: float) -> list[float]:
    return [_similar(end, limit) for end in (low, high) if end is not None]


def _similar(distance: float, limit: float) -> float:
    """The similarity of a cut, also of one that accepts nothing or everything."""
    return min(max(1 - distance / limit, 0.0), 1.0)
