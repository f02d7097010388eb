"""A replay along its sessions, as pictures: tokens, repeats, and what obeying would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kbeval.evaluation.replaying.policies import NO_MEMORY
from kbeval.studies.drawing import (
    BLUE,
    ORANGE,
    chart_style,
    legible,
    new_figure,
)
from kbeval.studies.replay_charts import COLOURS, count_label, percent_label
from kbeval.studies.replay_tables import AGAIN, ALIAS, NEW

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HANDED = {NEW: "#c9c9c9", ALIAS: ORANGE, AGAIN: BLUE}


def along_chart(table: pd.DataFrame) -> Figure:
    """Draw the tokens that a session was given up to each of its turns, a line a policy.

    `table` is `Along.table`: policy, turn, sessions still running, tokens a session so far.
    """
    with chart_style():
        figure = new_figure(8.0, 4.2)
        axes = figure.add_subplot()
        groups = _equal_together(table)
        for (name, part), colour in zip(groups.items(), COLOURS * len(groups), strict=False):
            style = (0, (4, 2)) if name == NO_MEMORY else "-"
            axes.plot(
                part["turn"],
                part["tokens_so_far"],
                color=colour,
                linewidth=1.6,
                linestyle=style,
                label=f"{legible(name)}: {part['tokens_so_far'].iloc[-1]:,.0f}",
            )
        axes.set_xlim(left=1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(count_label)
        axes.set_xlabel("turn; a session that has ended keeps its sum")
        axes.set_ylabel("tokens handed out so far, mean a session")
        axes.spines[["right", "top"]].set_visible(False)
        axes.set_title("Tokens along the session", loc="left")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8.5)
    return figure


def repeats_chart(by_turn: pd.DataFrame, by_domain: pd.DataFrame) -> Figure:
    """Draw of what the documents handed out without a memory consist, by turn and by domain.

    Both tables are of `Repeated`: turn or domain, and a count for each of `HANDED`.
    """
    with chart_style():
        figure = new_figure(9.0, 1.6 + 0.3 * max(len(by_domain), 8))
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        _stack(left, by_turn, "turn")
        left.set_xlabel("turn")
        left.set_ylabel("documents handed out")
        left.set_xlim(left=0.4)
        left.xaxis.get_major_locator().set_params(integer=True)
        _stack_across(right, by_domain, "domain")
        right.set_xlabel("documents handed out")
        figure.suptitle("What comes again when nothing is remembered", x=0.01, ha="left")
        figure.legend(
            *left.get_legend_handles_labels(), loc="outside lower right", ncols=3, frameon=False
        )
    return figure


def obedience_chart(table: pd.DataFrame) -> Figure:
    """Draw what an executor that obeys would not ask and would miss, over how often it obeys.

    `table` is `obedience_table`: policy, obedience, and for `avoided` (share of the look-ups) and
    `harmed` (share of the turns that no memory answers) the mean over draws with its interval.
    """
    panels = {"avoided": "look-ups not made", "harmed": "answered turns harmed"}
    with chart_style():
        figure = new_figure(7.6, 3.6)
        for axes, (name, title) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            groups = table.groupby("policy", sort=False)
            for (policy, part), colour in zip(groups, COLOURS[1:] * len(groups), strict=False):
                level = part["obedience"].to_numpy(dtype=float)
                ends = (part[f"{name}_{end}"].to_numpy(dtype=float) for end in ("from", "to"))
                axes.fill_between(level, *ends, color=colour, alpha=0.18, linewidth=0)
                axes.plot(level, part[name], "o-", color=colour, label=legible(str(policy)))
            axes.set_title(title, loc="left", fontsize=9.5)
            axes.set_xlabel("probability that it obeys")
            axes.set_xlim(-0.03, 1.03)
            axes.set_ylim(0, max(0.05, axes.get_ylim()[1]))
            axes.yaxis.set_major_formatter(percent_label)
            axes.spines[["right", "top"]].set_visible(False)
        if len(table):
            figure.axes[0].legend(frameon=False, fontsize=8.5, loc="upper left")
        none = "" if len(table) else "; no policy here has such an executor"
        figure.suptitle(
            f"If the executor obeyed: a sensitivity, not a saving{none}", x=0.01, ha="left"
        )
    return figure


def _equal_together(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The lines by their names; equal lines are one, under all their names."""
    lines: dict[tuple[float, ...], tuple[list[str], pd.DataFrame]] = {}
    for name, part in table.groupby("policy", sort=False):
        names, _ = lines.setdefault(tuple(part["tokens_so_far"]), ([], part))
        names.append(str(name))
    return {" = ".join(names): part for names, part in lines.values()}


def _stack(axes: Axes, table: pd.DataFrame, name: str) -> None:
    bottom = np.zeros(len(table))
    for kind, colour in HANDED.items():
        counts = table[kind].to_numpy(dtype=float)
        axes.bar(table[name], counts, bottom=bottom, color=colour, label=kind, width=0.85)
        bottom += counts
    axes.spines[["right", "top"]].set_visible(False)


def _stack_across(axes: Axes, table: pd.DataFrame, name: str) -> None:
    left = np.zeros(len(table))
    places = np.arange(len(table))
    for kind, colour in HANDED.items():
        counts = table[kind].to_numpy(dtype=float)
        axes.barh(places, counts, left=left, color=colour, height=0.75)
        left += counts
    axes.set_yticks(places, [legible(str(domain)) for domain in table[name]])
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines[["right", "top", "left"]].set_visible(False)
