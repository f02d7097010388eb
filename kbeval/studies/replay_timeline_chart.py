"""One session as a picture: a row a turn, a column a policy, a mark a document."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

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
from kbeval.studies.replay_rows import CERTAIN, POSSIBLE
from kbeval.studies.terminal import shortened

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TURNS = 30  # drawn; the title counts the rest
QUERY = 34  # characters of a query beside its row
STEP = 0.27  # inches from one document to the next
LEVELS = {"PRECISE": BLUE, "HIGHLY_RELEVANT": SKY, "REFERENCE": ORANGE}
HARM = {POSSIBLE: "#fde3d5", CERTAIN: "#f7b79b"}


def timeline_chart(table: pd.DataFrame) -> Figure:
    """Draw the table of `timeline`.

    A number is a document: filled where it is handed out, pale where the session had it, crossed
    out where it is withheld, with a dark frame where it answers the turn.
    """
    turns = list(dict.fromkeys(table["turn"]))
    policies = list(dict.fromkeys(table["policy"]))
    drawn = table[table["turn"].isin(turns[:TURNS])]
    widest = max((len(r) for r in drawn["documents"] + drawn["withheld"]), default=1)
    cell = STEP * max(widest, 3) + 0.75  # inches
    height = 0.34 * min(len(turns), TURNS)
    with chart_style():
        figure = new_figure(2.9 + cell * len(policies), 1.3 + height)
        axes = figure.add_subplot()
        axes.set_xlim(0, cell * len(policies))
        axes.set_ylim(min(len(turns), TURNS) + 0.5, 0.5)
        for row in drawn.to_dict("records"):
            _cell(axes, row, policies.index(row["policy"]) * cell, cell)
        _frame(axes, drawn, policies, cell)
        more = f"; {len(turns) - TURNS} more are in turns.csv" if len(turns) > TURNS else ""
        figure.suptitle(
            f"A session under each policy, {len(turns)} turns{more}; grey: tokens",
            x=0.01,
            ha="left",
        )
        _legend(figure)
    return figure


def _cell(axes: Axes, row: Mapping[Hashable, Any], left: float, width: float) -> None:
    from matplotlib.patches import Rectangle

    turn, level = row["turn"], LEVELS.get(row["level"])
    if row["harm"] in HARM:
        axes.add_patch(
            Rectangle((left, turn - 0.5), width, 1, facecolor=HARM[row["harm"]], zorder=0)
        )
    if level is not None:
        axes.plot([left + 0.07] * 2, [turn - 0.36, turn + 0.36], color=level, linewidth=3)
    elif not row["documents"] and not row["withheld"]:
        axes.text(left + 0.15, turn, row["level"], color=FAINT, fontsize=7.5, va="center")
    for place, number in enumerate((*row["documents"], *row["withheld"])):
        _document(axes, row, number, left + 0.26 + place * STEP)
    axes.text(
        left + width - 0.1,
        turn,
        f"{row['tokens']:,}",
        ha="right",
        va="center",
        fontsize=7.5,
        color=FAINT,
    )


def _document(axes: Axes, row: Mapping[Hashable, Any], number: int, x: float) -> None:
    from matplotlib.patches import Rectangle

    turn = row["turn"]
    handed, again = number in row["documents"], number in row["again"]
    answers = number in row["answering"]
    face = "white" if not handed else "#c6dff0" if again else BLUE
    edge = INK if answers else (FAINT if not handed else face)
    axes.add_patch(
        Rectangle(
            (x - 0.11, turn - 0.34),
            0.22,
            0.68,
            facecolor=face,
            edgecolor=edge,
            linewidth=1.6 if answers else 0.7,
        )
    )
    ink = "white" if handed and not again else INK if handed else FAINT
    axes.text(x, turn, str(number), ha="center", va="center", fontsize=7.5, color=ink)
    if not handed:
        axes.plot([x - 0.11, x + 0.11], [turn + 0.34, turn - 0.34], color=VERMILION, linewidth=1)


def _frame(axes: Axes, table: pd.DataFrame, policies: list[str], cell: float) -> None:
    queries = table.drop_duplicates("turn")
    names = [
        f"{_readable(row['query'])}  {row['turn']}"
        for row in queries[["turn", "query"]].to_dict("records")
    ]
    axes.set_yticks(list(queries["turn"]), names, fontsize=8)
    axes.set_xticks(
        [cell * (place + 0.5) for place in range(len(policies))],
        [legible(name) for name in policies],
    )
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    for place in range(1, len(policies)):
        axes.axvline(cell * place, color="#d9d9d9", linewidth=1)
    for turn in queries["turn"]:
        axes.axhline(turn + 0.5, color="#eeeeee", linewidth=0.8, zorder=0)
    axes.spines[:].set_color("#d9d9d9")


def _readable(query: str) -> str:
    """The start of a query; nothing where no font here can draw most of it."""
    text = legible(shortened(" ".join(query.split()), QUERY))
    return "" if text.count("□") > len(text) / 2 else text


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks = [
        Patch(facecolor=BLUE, label="handed out"),
        Patch(facecolor="#c6dff0", label="handed out again"),
        Patch(facecolor="white", edgecolor=VERMILION, hatch="//", label="withheld"),
        Patch(facecolor="white", edgecolor=INK, linewidth=1.6, label="answers the turn"),
        Patch(facecolor=HARM[POSSIBLE], label="no answer, unless still in context"),
        Patch(facecolor=HARM[CERTAIN], label="no answer"),
        *(Line2D([], [], color=colour, linewidth=3, label=name) for name, colour in LEVELS.items()),
    ]
    figure.legend(
        handles=marks,
        loc="outside lower left",
        ncols=5,
        frameon=False,
        fontsize=8,
        handlelength=1.2,
    )
