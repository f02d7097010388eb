"""Encoders compared, as pictures: coverage at one precision, and distances on axes of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kbeval.studies.charts import OUTCOMES, histogram
from kbeval.studies.drawing import (
    BLUE,
    FAINT,
    INK,
    SKY,
    chart_style,
    legible,
    new_figure,
)
from kbeval.studies.tuning_result import Tuned, Tuning
from kbeval.studies.tuning_tables import outcomes

if TYPE_CHECKING:
    import pandas as pd

    from kbeval.studies.drawing import Axes, Figure

LEVELS = ("HIGHLY_RELEVANT", "REFERENCE")


def coverage_chart(table: pd.DataFrame) -> Figure:
    """Draw each encoder's coverage at one precision; `table` is that of `coverage_table`.

    Beside each dot stands the precision that came out; the grey tick is what PRECISE covers. A
    precision that no cut keeps is a row that says never; one unlike the others' is marked.
    """
    rows = table.to_dict("records")
    wanted = list(dict.fromkeys(row["wanted"] for row in rows))
    with chart_style():
        figure = new_figure(10.0, 1.3 + 0.34 * (len(rows) + len(wanted)))
        axes = figure.add_subplot()
        names: dict[float, str] = {}
        for i, row in enumerate(rows):
            place = i + wanted.index(row["wanted"])  # an empty line between the precisions
            names[place] = f"precision {row['wanted']:g}   {legible(str(row['encoder']))}"
            _coverage(axes, place, row)
        axes.set_yticks(list(names), list(names.values()))
        axes.set_ylim(max(names) + 0.7, -0.7)
        axes.set_xlim(-0.02, 1.02)
        axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.set_xlabel(
            "share of answerable queries graded HIGHLY_RELEVANT or better, held out;"
            " grey tick: PRECISE alone"
        )
        axes.set_title("Coverage where each encoder keeps the same precision", loc="left")
    return figure


def distances_by_encoder(tuning: Tuning) -> Figure:
    """Draw the distances that grade, a column an encoder, each on an axis of its own.

    Rows are what the primary was worth; dashed are the cuts of that encoder. A place on one
    column's axis means nothing on another's.
    """
    kinds = {tuned.encoder: np.array(outcomes(tuned.parts.reported)) for tuned in tuning.tuned}
    present = [kind for kind in OUTCOMES if any((k == kind).any() for k in kinds.values())]
    with chart_style():
        figure = new_figure(1.6 + 3.9 * len(tuning.tuned), 1.7 + 0.8 * len(present))
        panels = figure.subplots(len(present), len(tuning.tuned), sharex="col", squeeze=False)
        for column, tuned in zip(panels.T, tuning.tuned, strict=True):
            _column(column, tuned, present, kinds[tuned.encoder])
        figure.suptitle(
            "Distance that grades, by what the primary was worth; each encoder on its own axis",
            x=0.01,
            ha="left",
        )
    return figure


def _coverage(axes: Axes, place: float, row: dict[Any, Any]) -> None:
    if not _empty(row["coverage_floor"]):
        axes.plot([row["coverage_floor"]], [place], "|", color=FAINT, markersize=14)
    known = not _empty(row["coverage"])
    if not known:
        said = f"never {row['wanted']:g}" if not row["reached"] else "no answerable query"
    else:
        if not _empty(row["coverage_low"]):
            ends = [row["coverage_low"], row["coverage_high"]]
            axes.plot(ends, [place] * 2, color=SKY, linewidth=4, solid_capstyle="butt")
        axes.plot([row["coverage"]], [place], "o", color=BLUE, markersize=6, clip_on=False)
        said = f"{row['coverage']:.3f};  precision that came out {_precision(row)}"
    axes.annotate(
        said,
        (1.03, place),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=8.5,
        color=INK if known else FAINT,
    )


def _precision(row: dict[Any, Any]) -> str:
    if _empty(row["precision"]):
        return "unknown, none was graded"
    text = f"{row['precision']:.3f}"
    if not _empty(row["precision_low"]):
        text += f" [{row['precision_low']:.3f}, {row['precision_high']:.3f}]"
    marks = [f"; short of {row['wanted']:g}"] * row["fell_short"]
    return "".join([f"{text} n = {row['graded']}", *marks, *["; not matched"] * row["not_matched"]])


def _column(column: Any, tuned: Tuned, present: list[str], kinds: Any) -> None:  # noqa: ANN401
    distance = tuned.parts.reported.distance
    known = distance[np.isfinite(distance)]
    cuts = () if tuned.choice is None else tuned.choice.distances
    drawn = [(level, cut) for level, cut in zip(LEVELS, cuts, strict=False) if math.isfinite(cut)]
    reach = [*known.tolist(), *(cut for _, cut in drawn)] or [0.0, 2.0]
    margin = max(0.04 * (max(reach) - min(reach)), 0.01)
    edges = np.linspace(max(0.0, min(reach) - margin), max(reach) + margin, 37)
    for axes, kind in zip(column, present, strict=True):
        histogram(axes, distance[kinds == kind], kind, edges)
        for _, cut in drawn:
            axes.axvline(cut, color=INK, linewidth=1.1, linestyle=(0, (4, 2)))
    named = ", ".join(f"{level} {cut:.3f}" for level, cut in drawn) or "no cut in use"
    column[0].set_title(f"{legible(tuned.encoder)}\n{named}", loc="left", fontsize=9.5)
    column[-1].set_xlabel(
        f"distance of {legible(tuned.encoder)} ({tuned.parts.reported.convention})"
    )


def _empty(value: float | None) -> bool:
    return value is None or math.isnan(value)
