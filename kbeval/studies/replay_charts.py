"""Memory policies as pictures: what each saves and what it hides."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbeval.studies.chart_labels import Marked, places_for
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
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GOOD = "#009E73"
COLOURS = (INK, BLUE, VERMILION, GOOD, ORANGE, "#CC79A7", SKY, "#7a6a00")  # Okabe and Ito
SAVED = "saved_once_per_session"
SAVED_ENDS = (f"{SAVED}_from", f"{SAVED}_to")
AXES_INCHES = (7.3, 3.8)  # of `saved_against_hidden`, roughly; where labels are placed


def saved_against_hidden(table: pd.DataFrame) -> Figure:
    """Draw what each policy saves against what it hides, with intervals: right and low is better.

    `table` is `compared` of the ledger: a row a policy. A bar reaches from the lower to the upper
    bound of harm, its thin line over both intervals. Without labels savings stand alone.
    """
    rows = _equal_together(table.to_dict("records"))
    if all(finite_number(row["harm_high"]) is None for row in rows):
        return _saved_alone(rows)
    with chart_style():
        figure = new_figure(8.0, 4.7)
        axes = figure.add_subplot()
        across, up = _limits(rows)
        axes.set_xlim(*across)
        axes.set_ylim(*up)
        axes.axvline(0, color="#d9d9d9", linewidth=1, zorder=0)
        for row, colour in zip(rows, _colours(len(rows)), strict=True):
            _policy(axes, row, colour)
        _name_policies(axes, rows, across, up)
        axes.set_ylabel("answerable turns harmed")
        axes.yaxis.set_major_formatter(percent_label)
        _saved_axis(axes, "Saved against hidden, a point a policy", "better: right and low  ↘")
        _note(figure, "bar: from what the agent cannot have to what may still be in its context; ")
    return figure


def horizon_chart(table: pd.DataFrame) -> Figure:
    """Draw saving and harm over how many turns a document is remembered.

    `table` is `by_horizon` of the ledger, shortest first, with the column horizon.
    """
    names = [legible(str(name)) for name in table["horizon"]]
    places = range(len(names))
    with chart_style():
        figure = new_figure(7.2, 5.0)
        above, below = figure.subplots(2, 1, sharex=True)
        for place, row in zip(places, table.to_dict("records"), strict=True):
            _interval(above, place, row, (SAVED, *SAVED_ENDS), BLUE)
            _harm(below, place, row, VERMILION)
        above.yaxis.set_major_formatter(count_label)
        below.yaxis.set_major_formatter(percent_label)
        above.set_title("net tokens saved a session", loc="left", fontsize=9.5)
        harmed = "answerable turns harmed, from lower to upper bound"
        below.set_title(harmed, loc="left", fontsize=9.5)
        below.set_xticks(places, names)
        below.set_xlabel("turns until a document may come again")
        below.set_xlim(-0.6, len(names) - 0.4)
        for axes in (above, below):
            axes.spines[["right", "top"]].set_visible(False)
            axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
            axes.set_axisbelow(True)
        figure.suptitle("How long should a session remember?", x=0.01, ha="left")
    return figure


def _saved_alone(rows: Sequence[Mapping[Hashable, Any]]) -> Figure:
    """Savings without harm, a line a policy: there is nothing to set them against."""
    with chart_style():
        figure = new_figure(8.0, 1.5 + 0.35 * len(rows))
        axes = figure.add_subplot()
        axes.axvline(0, color="#d9d9d9", linewidth=1, zorder=0)
        for place, (row, colour) in enumerate(zip(rows, _colours(len(rows)), strict=True)):
            ends = _values([row], SAVED_ENDS)
            axes.plot(ends, [place] * len(ends), color=colour, linewidth=1.4)
            axes.plot([row[SAVED]], [place], "o", color=colour, markersize=6)
        axes.set_yticks(range(len(rows)), [legible(str(row["policy"])) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        _saved_axis(axes, "Saved, a point a policy; harm is unknown: no labels", "better: right  →")
        _note(figure, "")
    return figure


def _saved_axis(axes: Axes, title: str, better: str) -> None:
    axes.set_xlabel("net tokens saved a session, each handed out once")
    axes.xaxis.set_major_formatter(count_label)
    axes.spines[["right", "top"]].set_visible(False)
    axes.set_title(title, loc="left")
    axes.set_title(better, loc="right", fontsize=9.5, color=GOOD)


def percent_label(value: float, place: object) -> str:
    """A tick's share in percent; nothing below 0, where no share is.

    >>> percent_label(0.005, None), percent_label(0.3, None), percent_label(-0.01, None)
    ('0.5%', '30%', '')
    """
    return f"{100 * value:.4g}%" if value >= 0 else ""


def count_label(value: float, place: object) -> str:
    """A tick's number with its thousands parted."""
    return f"{value:,.0f}"


def _colours(count: int) -> Sequence[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(count)]


def _equal_together(rows: Sequence[Mapping[Hashable, Any]]) -> list[dict[Hashable, Any]]:
    """The rows that have a saving; those of equal saving and harm are one, under all names."""
    found: dict[tuple[Any, ...], dict[Hashable, Any]] = {}
    for row in rows:
        if finite_number(row[SAVED]) is None:
            continue
        key = tuple(finite_number(row[name]) for name in (SAVED, "harm_low", "harm_high"))
        same = found.setdefault(key, {**row, "policy": ""})
        same["policy"] += f" = {row['policy']}" if same["policy"] else row["policy"]
    return list(found.values())


def _limits(
    rows: Sequence[Mapping[Hashable, Any]],
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ends of both axes with room for labels; the whole of every interval is inside."""
    across = [0.0, *_values(rows, (SAVED, *SAVED_ENDS))]
    up = [0.02, *_values(rows, ("harm_high", "harm_high_to"))]
    width = max(across) - min(across) or 1.0
    return (
        (min(across) - 0.06 * width, max(across) + 0.16 * width),
        (-0.05 * max(up), 1.12 * max(up)),
    )


def _values(rows: Sequence[Mapping[Hashable, Any]], names: Sequence[str]) -> list[float]:
    found = (finite_number(row[name]) for row in rows for name in names)
    return [value for value in found if value is not None]


def _policy(axes: Axes, row: Mapping[Hashable, Any], colour: str) -> None:
    """A policy: its saving across, its harm upwards."""
    low, high = (finite_number(row[end]) for end in SAVED_ENDS)
    harm = finite_number(row["harm_high"]) or 0.0
    if low is not None and high is not None:
        axes.plot([low, high], [harm, harm], color=colour, linewidth=1.4)
    _harm(axes, float(row[SAVED]), row, colour)


def _harm(axes: Axes, x: float, row: Mapping[Hashable, Any], colour: str) -> None:
    """A thick bar between the bounds, a thin line over their intervals, a dot on the upper."""
    lower, upper = finite_number(row["harm_low"]), finite_number(row["harm_high"])
    ends = [finite_number(row["harm_low_from"]), finite_number(row["harm_high_to"])]
    known = [end for end in ends if end is not None]
    if len(known) == 2:
        axes.plot([x, x], known, color=colour, linewidth=1.0, alpha=0.7)
    if lower is not None and upper is not None:
        axes.plot(
            [x, x], [lower, upper], color=colour, linewidth=5, alpha=0.45, solid_capstyle="butt"
        )
    axes.plot([x], [upper or 0.0], "o", color=colour, markersize=6, clip_on=False, zorder=3)


def _interval(
    axes: Axes, x: float, row: Mapping[Hashable, Any], names: Sequence[str], colour: str
) -> None:
    value, low, high = (finite_number(row[name]) for name in names)
    if value is None:
        return
    if low is not None and high is not None:
        axes.plot([x, x], [low, high], color=SKY, linewidth=4, solid_capstyle="butt")
    axes.plot([x], [value], "o", color=colour, markersize=6, zorder=3)


def _name_policies(
    axes: Axes,
    rows: Sequence[Mapping[Hashable, Any]],
    across: tuple[float, float],
    up: tuple[float, float],
) -> None:
    """Each policy's name near its point, none over another."""
    marked = []
    for row in rows:
        x, y = float(row[SAVED]), finite_number(row["harm_high"]) or 0.0
        xs = [x, *_values([row], SAVED_ENDS)]
        ys = [y, *_values([row], ("harm_low", "harm_low_from", "harm_high_to"))]
        marked.append(
            Marked(
                legible(str(row["policy"])),
                *(_inches(at, across, AXES_INCHES[0]) for at in (x, min(xs), max(xs))),
                *(_inches(at, up, AXES_INCHES[1]) for at in (y, min(ys), max(ys))),
            )
        )
    for mark, (dx, dy), colour in zip(
        marked, places_for(marked, AXES_INCHES), _colours(len(rows)), strict=True
    ):
        at = [mark.x / AXES_INCHES[0], mark.y / AXES_INCHES[1]]
        axes.annotate(
            mark.text,
            (at[0], at[1]),
            xycoords="axes fraction",
            xytext=(dx * 72, dy * 72),
            textcoords="offset points",
            ha="left" if dx > 0 else "right",
            va="center",
            fontsize=8.5,
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkB": 4},
        )


def _inches(value: float, limits: tuple[float, float], length: float) -> float:
    return (value - limits[0]) / (limits[1] - limits[0]) * length


def _note(figure: Figure, text: str) -> None:
    figure.supxlabel(
        text + "thin lines: 95 % over sessions", fontsize=8, color=FAINT, x=0.98, ha="right"
    )
