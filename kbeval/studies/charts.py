"""Table -> Figure. Nothing is computed here but bins; no pyplot, so no state and no backend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.errors import ConfigError
from kbeval.records import Convention
from kbeval.retrieval.grading import distance_to_cosine
from kbeval.studies.drawing import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    SKY,
    VERMILION,
    chart_style,
    finite_number,
    legible,
    new_figure,
    shades,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTCOMES = {"right": BLUE, "related": SKY, "wrong": VERMILION, "unanswerable": ORANGE}
PROMISED = {  # what a level says of its answers (method.md 4, target level)
    "PRECISE": ("answers",),
    "HIGHLY_RELEVANT": ("answers",),
    "REFERENCE": ("related",),
    "NOT_FOUND": ("wrong", "nothing (near)", "nothing (far)", "nothing"),
}


def level_matrix(table: pd.DataFrame) -> Figure:
    """Draw the level matrix: counts, and each cell's share of its row as shade.

    Rows are levels from PRECISE down, columns what the primary was worth. Outlined is what the
    level promises. A level that no query got says so.
    """
    counts = table.to_numpy(dtype=np.int64)  # (levels, worths)
    with chart_style():
        figure = new_figure(1.6 + 1.25 * counts.shape[1], 1.3 + 0.62 * counts.shape[0])
        axes = figure.add_subplot()
        totals = counts.sum(axis=1)
        shares = counts / np.maximum(totals, 1)[:, None]
        axes.imshow(shares, cmap=shades(), vmin=0, vmax=1, aspect="auto")
        for (row, column), count in np.ndenumerate(counts):
            _cell(axes, (row, column), int(count), float(shares[row, column]))
            if str(table.columns[column]) in PROMISED.get(str(table.index[row]), ()):
                _outline(axes, row, column)
        _matrix_labels(axes, table, totals)
        axes.set_title(f"What each level was worth, {counts.sum()} queries", loc="left", pad=28)
        figure.supxlabel(
            "outlined: what the level promises", fontsize=8, color=FAINT, x=0.98, ha="right"
        )
    return figure


def distance_histograms(
    distance: ArrayLike,
    outcome: Sequence[str],
    *,
    cuts: Mapping[str, float],
    convention: Convention,
) -> Figure:
    """Draw the distances that grade, one small histogram an outcome, with the cuts through all.

    `distance` of shape (n,) is in `convention`; the upper axis gives the cosine of unit vectors.
    `outcome` says for each query right, related, wrong or unanswerable. Infinite distances and
    NaN (no neighbour) are counted in the label and not drawn, nor is a cut that is not finite.
    Raises `ConfigError` for another outcome or another length.
    """
    values = np.asarray(distance, dtype=np.float64)  # (n,)
    kinds = np.asarray(outcome, dtype=object)  # (n,)
    _check_outcomes(values, kinds)
    finite = values[np.isfinite(values)]
    drawn = {name: cut for name, cut in cuts.items() if math.isfinite(cut)}
    reach = [*finite.tolist(), *drawn.values()] or [0.0, 2.0]
    margin = max(0.04 * (max(reach) - min(reach)), 0.01)
    low, high = max(0.0, min(reach) - margin), max(reach) + margin
    present = [kind for kind in OUTCOMES if (kinds == kind).any()] or ["right"]
    with chart_style():
        figure = new_figure(7.2, 1.5 + 0.8 * len(present))
        panels = figure.subplots(len(present), 1, sharex=True, squeeze=False)[:, 0]
        for axes, kind in zip(panels, present, strict=True):
            histogram(axes, values[kinds == kind], kind, np.linspace(low, high, 49))
            for cut in drawn.values():
                axes.axvline(cut, color=INK, linewidth=1.1, linestyle=(0, (4, 2)))
        panels[-1].set_xlim(low, high)
        panels[-1].set_xlabel(
            f"distance ({convention}), smaller is closer; each panel has its own height"
        )
        _cosine_axis(panels[0], convention)
        _cut_names(panels[0], drawn)
        figure.suptitle(
            f"Distance that grades, by what the primary was worth, {len(values)} queries",
            x=0.01,
            ha="left",
        )
    return figure


def rates_chart(rates: pd.DataFrame) -> Figure:
    """Draw rates as dots with their intervals; value, interval and n stand beside each.

    `rates` has the columns name, value, low, high, n and perhaps note, one row a rate, in the
    order to draw. A missing value (its denominator is empty) is said in words, those of the note
    if there is one; a missing interval leaves the dot alone.
    """
    rows = rates.to_dict("records")
    with chart_style():
        figure = new_figure(10.0, 1.0 + 0.3 * max(len(rows), 1))
        axes = figure.add_subplot()
        for place, row in enumerate(rows):
            _rate(axes, place, row)
        axes.set_yticks(range(len(rows)), [legible(str(row["name"])) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks((0.0, 0.25, 0.5, 0.75, 1.0))
        axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.set_title("Rates with 95 % intervals", loc="left")
    return figure


def _cell(axes: Axes, place: tuple[int, int], count: int, share: float) -> None:
    row, column = place
    ink = "white" if share > 0.75 else INK if count else FAINT
    axes.text(column, row - 0.1, str(count), ha="center", va="center", color=ink, fontsize=11)
    if count:
        axes.text(
            column, row + 0.25, f"{share:.0%}", ha="center", va="center", color=ink, fontsize=8
        )


def _outline(axes: Axes, row: int, column: int) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor=INK, linewidth=1.2)
    )


def _matrix_labels(axes: Axes, table: pd.DataFrame, totals: NDArray[np.int64]) -> None:
    axes.set_xticks(range(table.shape[1]), [legible(str(name)) for name in table.columns])
    said = [f"n = {total}" if total else "no query" for total in totals]
    names = [f"{legible(str(name))}\n{n}" for name, n in zip(table.index, said, strict=True)]
    axes.set_yticks(range(table.shape[0]), names)
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.set_xticks(np.arange(0.5, table.shape[1] - 1), minor=True)
    axes.set_yticks(np.arange(0.5, table.shape[0] - 1), minor=True)
    axes.grid(which="minor", color="#d9d9d9", linewidth=1)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_color("#d9d9d9")


def _check_outcomes(values: NDArray[np.float64], kinds: NDArray[np.object_]) -> None:
    if values.shape != kinds.shape:
        raise ConfigError(
            f"{len(values)} distances and {len(kinds)} outcomes; as many are expected"
        )
    for kind in kinds:
        if kind not in OUTCOMES:
            raise ConfigError(f"outcome {kind!r} is none of {', '.join(OUTCOMES)}")


def histogram(
    axes: Axes, values: NDArray[np.float64], kind: str, edges: NDArray[np.float64]
) -> None:
    """Draw one outcome's distances; those without a neighbour are counted beside it."""
    finite = values[np.isfinite(values)]
    axes.hist(finite, bins=edges.tolist(), color=OUTCOMES[kind], edgecolor="white", linewidth=0.4)
    unseen = len(values) - len(finite)
    label = f"{kind}\nn = {len(values)}" + (f"\n({unseen} without neighbour)" if unseen else "")
    axes.text(-0.015, 0.35, label, transform=axes.transAxes, ha="right", va="center", fontsize=9)
    axes.set_yticks([])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.margins(y=0.12)


def _cosine_axis(axes: Axes, convention: Convention) -> None:
    def cosine(distance: ArrayLike) -> NDArray[np.float64]:
        return distance_to_cosine(distance, convention)

    def distance(cosine: ArrayLike) -> NDArray[np.float64]:
        squared = np.maximum(2.0 * (1.0 - np.asarray(cosine, dtype=np.float64)), 0.0)
        back: NDArray[np.float64] = np.sqrt(squared) if convention == "l2" else squared
        return back

    upper = axes.secondary_xaxis("top", functions=(cosine, distance))
    upper.set_xlabel("cosine", fontsize=8.5)
    upper.tick_params(labelsize=8.5)


def _cut_names(axes: Axes, cuts: Mapping[str, float]) -> None:
    """Name each cut at its line: the nearer to its left, the farther to its right, if they fit."""
    axes.set_ylim(top=axes.get_ylim()[1] * 1.45)  # room for the names
    low, high = axes.get_xlim()
    ordered = sorted(cuts.items(), key=lambda item: item[1])
    used: set[bool] = set()
    for place, (name, cut) in enumerate(ordered):
        across = (cut - low) / (high - low)
        left = across > (0.3 if place < len(ordered) - 1 else 0.7)
        axes.annotate(
            f"{legible(name)} {cut:.3g}",
            (cut, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if left else 4, -14 if left in used else -3),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top",
            fontsize=8,
        )
        used.add(left)


def _rate(axes: Axes, place: int, row: Mapping[Any, Any]) -> None:
    value, low, high = (finite_number(row[key]) for key in ("value", "low", "high"))
    if value is None:
        said = legible(str(row.get("note") or f"no value (n = {row['n']})"))
    else:
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=SKY, linewidth=4, solid_capstyle="butt")
            said = f"{value:.3f} [{low:.3f}, {high:.3f}]  n = {row['n']}"
        else:
            said = f"{value:.3f} (no interval)  n = {row['n']}"
        axes.plot([value], [place], "o", color=BLUE, markersize=6, clip_on=False)
    axes.annotate(
        said,
        (1.03, place),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=8.5,
        color=INK if value is not None else FAINT,
    )
