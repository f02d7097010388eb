"""A sweep as small multiples: one panel a metric, over one or two of the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kbeval.studies.drawing import (
    BLUE,
    FAINT,
    INK,
    chart_style,
    legible,
    new_figure,
    shades,
)
from kbeval.studies.sweep_table import AROUND, NOT_VALID

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = 6  # panels down; the rest is counted in the title
FACETS = 4  # panels across, one a combination of further parameters


def sweep_chart(table: pd.DataFrame, names: Sequence[str]) -> Figure | None:
    """Draw the metrics of a sweep's finished runs; None if there are none.

    `table` is that of `sweep_table`, `names` its parameters. The two with most values span a
    panel (one of them: dots over it), the others part the panels across. A combination that is
    not valid is hatched, one that did not finish has a cross; neither has a value.
    """
    metrics = _metrics(table, names)
    if not metrics:
        return None
    shown = metrics[:METRICS]
    counts = {name: len(set(table[name])) for name in names}
    varying = sorted((n for n in names if counts[n] > 1), key=lambda name: -counts[name])
    axes_of, others = sorted(varying[:2], key=list(names).index), varying[2:]
    facets = list(table.groupby(others, sort=False, dropna=False)) if others else [((), table)]
    drawn = facets[:FACETS]
    with chart_style():
        figure = new_figure(1.0 + 3.6 * len(drawn), 0.8 + 2.4 * len(shown))
        panels = figure.subplots(len(shown), len(drawn), squeeze=False)
        for row, metric in zip(panels, shown, strict=True):
            low, high = _limits(table[metric])
            for axes, (key, part) in zip(row, drawn, strict=True):
                _panel(axes, part, metric, axes_of, (low, high))
                said = ", ".join(f"{n} = {v}" for n, v in zip(others, key, strict=True))
                axes.set_title(legible(f"{metric}\n{said}" if said else metric), loc="left")
        figure.suptitle(_title(table, len(metrics), len(facets)), x=0.01, ha="left")
    return figure


def _metrics(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Columns with a number in a finished run, first those that differ between runs."""
    done = table[table["status"] == "ok"]
    found = [
        column
        for column in table.columns
        if column not in {*AROUND, *names} and done[column].notna().any()
    ]
    return sorted(found, key=lambda column: done[column].nunique() < 2)


def _limits(values: pd.Series[Any]) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.08 * (high - low) or 0.5
    return low - margin, high + margin


def _title(table: pd.DataFrame, metric_count: int, facet_count: int) -> str:
    counts = table["status"].value_counts()
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    more = []
    if metric_count > METRICS:
        more.append(f"{metric_count - METRICS} more metrics")
    if facet_count > FACETS:
        more.append(f"{facet_count - FACETS} more panels across")
    return f"Sweep: {said}" + (f"; {' and '.join(more)} in sweep.csv" if more else "")


def _panel(
    axes: Axes,
    part: pd.DataFrame,
    metric: str,
    names: Sequence[str],
    limits: tuple[float, float],
) -> None:
    if len(names) == 2:
        _grid(axes, part, metric, names)
        return
    name = names[0] if names else part.columns[0]
    places = np.arange(len(part))
    values = part[metric].to_numpy(dtype=np.float64, na_value=np.nan)
    axes.plot(places, values, "o-", color=BLUE, markersize=5, linewidth=1.2)
    for place, status in zip(places, part["status"], strict=True):
        if status != "ok":
            axes.annotate(
                "x" if status != NOT_VALID else "not valid",
                (float(place), 0.03),
                xycoords=("data", "axes fraction"),
                ha="center",
                color=FAINT,
                fontsize=8,
            )
    axes.set_ylim(*limits)
    axes.set_xticks(places, _names(part[name]), rotation=90 if len(part) > 6 else 0)
    axes.set_xlabel(legible(str(name)))
    axes.spines[["right", "top"]].set_visible(False)


def _grid(axes: Axes, part: pd.DataFrame, metric: str, names: Sequence[str]) -> None:
    """A heat map of the two parameters; each panel has shades of its own, numbers say what."""
    across, up = (list(dict.fromkeys(part[name])) for name in names)
    values = np.full((len(up), len(across)), np.nan)
    small = len(up) * len(across) <= 80
    for row in part.to_dict("records"):
        place = across.index(row[names[0]]), up.index(row[names[1]])
        if row["status"] == NOT_VALID:
            _hatch(axes, place)
        elif row["status"] != "ok" or not np.isfinite(row[metric]):
            axes.text(*place, "x", ha="center", va="center", color=FAINT, fontsize=9)
        else:
            values[place[1], place[0]] = row[metric]
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    axes.imshow(values, cmap=shades(), aspect="auto", origin="lower", vmin=low, vmax=high)
    for (y, x), value in np.ndenumerate(values):
        if np.isfinite(value) and small:
            ink = "white" if high > low and (value - low) / (high - low) > 0.75 else INK
            axes.text(x, y, f"{value:.3g}", ha="center", va="center", color=ink, fontsize=7)
    axes.set_xticks(range(len(across)), _names(across), rotation=90 if len(across) > 6 else 0)
    axes.set_yticks(range(len(up)), _names(up))
    axes.set_xlabel(legible(names[0]))
    axes.set_ylabel(legible(names[1]))
    axes.tick_params(length=0)


def _hatch(axes: Axes, place: tuple[int, int]) -> None:
    from matplotlib.patches import Rectangle

    corner = (place[0] - 0.5, place[1] - 0.5)
    axes.add_patch(
        Rectangle(corner, 1, 1, fill=False, hatch="////", edgecolor="#c9c9c9", linewidth=0)
    )


def _names(values: Sequence[object] | pd.Series[Any]) -> list[str]:
    texts = [legible(str(value)) for value in values]
    return [text if len(text) <= 18 else "…" + text[-17:] for text in texts]
