"""The domains as pictures: what each costs in the map, and which say nearly the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbeval.studies.drawing import (
    BLUE,
    FAINT,
    ORANGE,
    SKY,
    chart_style,
    legible,
    new_figure,
)

if TYPE_CHECKING:
    import pandas as pd

    from kbeval.studies.drawing import Axes, Figure

SHOWN = 30  # domains, or pairs, before the rest is counted in the title


def map_lengths_chart(lengths: pd.DataFrame) -> Figure:
    """Draw a bar a domain: the characters of its own text, and of its documents' list.

    `lengths` is that of a `DomainReport`; beyond 30 domains the longest are drawn.
    """
    shown = lengths.head(SHOWN)
    with chart_style():
        figure = new_figure(7.2, 1.3 + 0.26 * max(len(shown), 1))
        axes = figure.add_subplot()
        rest = shown["characters"] - shown["text"]
        names = [
            f"{legible(name)} ({count})"
            for name, count in zip(shown["domain"], shown["documents"], strict=True)
        ]
        axes.barh(range(len(shown)), shown["text"], color=BLUE, label="when to retrieve")
        axes.barh(range(len(shown)), rest, left=shown["text"], color=SKY, label="all else")
        _finish(axes, names, f"characters in the map before any cut{_more(lengths)}")
        axes.set_xlabel("characters; in brackets: documents")
        if len(shown):
            axes.legend(loc="lower right", frameon=False, fontsize=8)
    return figure


def overlap_chart(overlaps: pd.DataFrame) -> Figure:
    """Draw the pairs of domains whose texts are nearest, by cosine.

    `overlaps` is that of a `DomainReport`; pairs compared by their titles are orange.
    """
    shown = overlaps.head(SHOWN)
    with chart_style():
        figure = new_figure(7.2, 1.3 + 0.26 * max(len(shown), 1))
        axes = figure.add_subplot()
        colours = [BLUE if kind == "text" else ORANGE for kind in shown["compared"]]
        names = [
            f"{legible(one)} / {legible(other)}"
            for one, other in zip(shown["domain"], shown["other"], strict=True)
        ]
        axes.barh(range(len(shown)), shown["cosine"], color=colours)
        _finish(axes, names, f"domains that say nearly the same{_more(overlaps)}")
        axes.set_xlabel("cosine of the texts; orange: of titles, for want of a text")
    return figure


def _more(table: pd.DataFrame) -> str:
    hidden = len(table) - SHOWN
    return f", the first {SHOWN} of {len(table)}" if hidden > 0 else ""


def _finish(axes: Axes, names: list[str], title: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_title(title, loc="left")
    if not names:
        axes.text(0.5, 0.5, "none", color=FAINT, ha="center", transform=axes.transAxes)
