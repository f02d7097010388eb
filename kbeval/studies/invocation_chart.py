"""The recorded look-ups as one picture: grades, what the memory did, documents that came again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from kbeval.studies.drawing import Axes, Figure

_LEVELS: dict[str | None, str] = {
    "PRECISE": BLUE,
    "HIGHLY_RELEVANT": SKY,
    "REFERENCE": ORANGE,
    "NOT_FOUND": VERMILION,
    None: FAINT,
}
_NAMES: dict[str, dict[str | None, str]] = {
    "level": {None: "no level"},
    "reason": {None: "memory changed nothing"},
}
SHOWN = 10  # documents
LABEL = 40  # characters of a path that are shown, its end


def invocation_chart(
    grades: Mapping[str | None, int],
    reasons: Mapping[str | None, int],
    repeated: Mapping[str, int],
) -> Figure:
    """Draw three lists of bars: look-ups by level, by dedup reason, documents by times kept back.

    `grades` and `reasons` are those of `store.reports`, where None is no value; of `repeated`
    (path -> look-ups that kept it back) the first ten are drawn.
    """
    levels = {name: grades[name] for name in _LEVELS if name in grades} | dict(grades)
    shown = dict(list(repeated.items())[:SHOWN])
    heights = [max(len(part), 1) for part in (levels, reasons, shown)]
    total = sum(grades.values())
    with chart_style():
        figure = new_figure(7.2, 1.6 + 0.34 * sum(heights))
        panels = figure.subplots(3, 1, height_ratios=heights)
        _bars(panels[0], _named(levels, "level"), [_LEVELS.get(name, INK) for name in levels])
        panels[0].set_title(f"{total} look-ups by relevance level", loc="left")
        _bars(panels[1], _named(reasons, "reason"), [SKY] * len(reasons))
        panels[1].set_title("by what the session memory did", loc="left")
        _bars(panels[2], {_end(path): n for path, n in shown.items()}, [ORANGE] * len(shown))
        panels[2].set_title("documents kept back, by look-ups", loc="left")
    return figure


def _named(counts: Mapping[str | None, int], kind: str) -> dict[str, int]:
    return {_NAMES[kind].get(name, str(name)): count for name, count in counts.items()}


def _end(path: str) -> str:
    return legible(path if len(path) <= LABEL else "…" + path[-LABEL:])


def _bars(axes: Axes, counts: Mapping[str, int], colours: list[str]) -> None:
    """One bar a name, the first on top, with its count beside it."""
    places = range(len(counts))
    drawn = axes.barh(places, list(counts.values()), color=colours, height=0.7)
    axes.bar_label(drawn, padding=3, fontsize=8)
    axes.set_yticks(places, list(counts))
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.xaxis.set_visible(False)
    if not counts:
        axes.text(0, 0, "none", color=FAINT, va="center", transform=axes.transAxes)
        axes.yaxis.set_visible(False)
