"""What `evaluate` prints: header, level matrix, rates, retrieval, and the costliest queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kbeval.evaluation.costs import Costs
from kbeval.evaluation.evaluation import Evaluation
from kbeval.retrieval.grading import distance_to_cosine
from kbeval.studies.terminal import SHOWN, counted, some

QUERY_CELLS = 150  # columns of a query's text before it is shortened
COUNTS = {  # a key of summary["counts"] -> what it counts
    "graded_by_supplement": "were graded by a supplement that is nearer than the first document",
    "tied_primary": "have a tie at rank 1 between documents of different worth",
    "partial": "have only related documents (partial)",
    "several_top": "have several best documents and no stated needs: one of them is enough",
    "truncated_evidence": "need a document beyond the depth of the evidence",
}
DISTANCES = {"l2": "l2 (Euclidean)", "squared_l2": "squared_l2 (squared Euclidean)"}


def print_evaluation(evaluation: Evaluation, *, worst: int = 10) -> None:
    """The result of an evaluation: header, matrix, rates, retrieval, worst queries."""
    console = Console()
    console.print(Text(evaluation.headline(), style="bold"))
    for line in _header(evaluation):
        console.print(_hanging(line))
    console.print(Columns([_matrix(evaluation), _precise_rules(evaluation)], padding=(0, 4)))
    console.print(_rates(evaluation))
    if "reweighted" in evaluation.summary:
        console.print(_reweighted(evaluation.summary["reweighted"]))
    console.print(_retrieval(evaluation.summary["retrieval"]))
    for column, groups in evaluation.summary["groups"].items():
        console.print(_groups(column, groups))
    console.print(Text("≈ approximate: few queries or sessions; - nothing to count", style="dim"))
    console.print(Text("what the costs in use say", style="italic"))
    for consequence in Costs.from_mapping(evaluation.summary["costs"]).break_evens():
        console.print(_hanging(str(consequence)))
    if worst and len(table := evaluation.worst(worst)):
        console.print(Text(f"the costliest {_queries(len(table))}", style="italic"))
        for row in table.to_dict("records"):
            _print_query(console, row)


def _print_query(console: Console, row: Mapping[Any, Any]) -> None:
    """One query that went wrong: what was asked, what came, what was expected."""
    expected = some(str(row["expected"]).split("|")) if row["expected"] else "nothing"
    got = row["primary"] or "nothing"
    console.print(_hanging(f"{row['query_id']}  {_fitted(str(row['text']), QUERY_CELLS)!r}"))
    console.print(
        Padding(
            Text(
                f"{row['level']} at {row['similarity']:.3f}, {row['outcome']}, "
                f"cause {row['cause']}\nfirst {got}; expected {expected}"
            ),
            (0, 0, 0, 4),
        )
    )


def _header(evaluation: Evaluation) -> Iterator[str]:
    """What the numbers rest on, and what was lost on the way, a line each."""
    s = evaluation.summary
    left_out = ", ".join(f"{count} {reason}" for reason, count in s["left_out"].items() if count)
    yield (
        f"{s['documents']} documents ({s['documents_failed']} failed to load); {s['queries']} "
        f"queries judged, {s['queries_rejected']} rejected; left out: {left_out or 'none'}"
    )
    yield (
        f"centre {s['centre']}; passages of {s['passage_tokens']} tokens; labels {s['labels']}, "
        f"answers from score {s['answers_from']}"
        + ("" if s["answers_from_declared"] else " (not declared: every positive score answers)")
    )
    yield from _cuts(evaluation)
    if not s["semantic"]:
        yield f"{s['encoder']} is a stand-in that only compares spelling: not semantic"
    yield from _notes(s)
    faults = [*s["corpus_faults"], *s["label_faults"]]
    yield from (f"fault: {fault}" for fault in faults[:SHOWN])
    if len(faults) > SHOWN:
        yield f"and {counted(len(faults) - SHOWN, 'more fault')} (evaluation.json has all)"


def _cuts(evaluation: Evaluation) -> Iterator[str]:
    """Each cut as distance, similarity and cosine, and the convention (design.md 1)."""
    normalization = evaluation.summary["settings"]["retrieval"]["normalization"]
    convention = evaluation.convention
    yield f"distance {DISTANCES[convention]}, max-l2-distance {normalization['max-l2-distance']:g}"
    for level, distance in evaluation.cuts.items():
        threshold = normalization[f"{level.lower().replace('_', '-')}-threshold"]
        cosine = float(distance_to_cosine(distance, convention))
        finite = 0 <= distance < float("inf")
        place = f"distance <= {distance:g}, cosine >= {cosine:.4f}" if finite else "no limit"
        yield f"cut of {level}: similarity >= {threshold:g}, {place}"


def _notes(summary: Mapping[str, Any]) -> Iterator[str]:
    counts = summary["counts"]
    yield from (f"{_queries(counts[key])} {text}" for key, text in COUNTS.items() if counts[key])
    if counts["missing_gold"]:
        yield f"{counted(counts['missing_gold'], 'labelled document')} not in the corpus"
    if summary["near_cut"]:
        yield f"{_queries(summary['near_cut'])} within the rounding of a cut"
    if summary["queries_truncated"]:
        yield f"{_queries(summary['queries_truncated'])} longer than the encoder's window"
    if causes := summary["causes"]:
        yield "faults by cause: " + ", ".join(f"{cause} {count}" for cause, count in causes.items())
    short = summary["truncated_documents"]
    if short:
        named = [f"{path} ({read} of {whole} tokens)" for path, (read, whole) in short.items()]
        yield f"{counted(len(short), 'document')} not embedded whole: {some(named)}"


def _matrix(evaluation: Evaluation) -> Table:
    table = Table(title="verdict by what the first document was worth", title_justify="left")
    table.add_column("level", no_wrap=True)
    for column in evaluation.matrix.columns:
        table.add_column(str(column), justify="right")
    for row in evaluation.matrix.itertuples():
        table.add_row(*map(str, row))
    return table


def _precise_rules(evaluation: Evaluation) -> Table:
    rules = evaluation.summary["both_precise_rules"]
    table = Table(title="PRECISE under both rules of precise-requires", title_justify="left")
    for column in ("", *rules):
        table.add_column(column)
    table.add_row("graded", *(str(row["graded"]) for row in rules.values()))
    for name in ("precision", "expected_cost"):
        table.add_row(name, *(_rate(row[name]) for row in rules.values()))
    return table


def _rates(evaluation: Evaluation) -> Table:
    table = _rate_table("were the verdicts and hints true")
    for row in evaluation.rates.to_dict("records"):
        table.add_row(_beneath(str(row["name"])), _rate(row))
    for name in ("expected_cost", "unjudged", "unanswerable_share"):
        table.add_row(name, _rate(evaluation.summary[name]))
    return table


def _beneath(name: str) -> str:
    """The other bound of a rate stands below it under a short name."""
    if name.startswith("precision_if_unjudged_answers"):
        return "  if unjudged documents answer"
    return "  if unjudged are best" if name == "false_closure_rate_if_unjudged_best" else name


def _reweighted(facts: Mapping[str, Any]) -> Table:
    table = _rate_table(
        f"as if {facts['unanswerable_share']:g} of the queries were unanswerable "
        f"(each weighs {facts['weight']:.3g})"
    )
    for level, row in facts["precision"].items():
        table.add_row(f"precision[{level}]", _rate(row))
    for name in ("expected_cost", "leak_rate"):
        table.add_row(name, _rate(facts[name]))
    return table


def _retrieval(rankings: Mapping[str, Any]) -> Table:
    table = Table(title="retrieval, before any cut", title_justify="left")
    table.add_column("measure", no_wrap=True)
    for name in rankings:
        table.add_column({"l1": "by distance alone (l1)", "tool": "as handed out (tool)"}[name])
    for measure, first in next(iter(rankings.values())).items():
        if isinstance(first, Mapping):
            table.add_row(measure, *(_rate(rows[measure]) for rows in rankings.values()))
    return table


def _groups(column: str, groups: Mapping[str, Any]) -> Table:
    """The measures of each kind or language; values only, the intervals are in the JSON."""
    names = ("recall_at_5", "answered", "found_rate", "leak_rate")
    table = Table(title=f"per {column}", title_justify="left")
    for name in (column, "queries", *names):
        table.add_column(name, justify="left" if name == column else "right")
    for value, measured in groups.items():
        cells = [measured[name]["value"] for name in names]
        shown = ("-" if cell is None else f"{cell:.2f}" for cell in cells)
        table.add_row(value, str(measured["queries"]), *shown)
    return table


def _rate_table(title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("measure", no_wrap=True)
    table.add_column("value [95 %] n")
    return table


def _rate(rate: Mapping[Any, Any]) -> str:
    if rate["value"] is None or pd.isna(rate["value"]):
        return f"- ({rate.get('note') or 'nothing to count'})"
    if rate["low"] is None or pd.isna(rate["low"]):
        return f"{rate['value']:.3f} n={rate['n']} ({rate.get('note', '')})"
    about = "≈" if rate.get("note") == "approximate" else ""
    return f"{rate['value']:.3f} {about}[{rate['low']:.3f}, {rate['high']:.3f}] n={rate['n']}"


def _queries(count: int) -> str:
    return f"{count} {'query' if count == 1 else 'queries'}"


def _hanging(text: str) -> Table:
    """Text whose further lines are set in, so that each entry begins at the margin."""
    bullet = Table.grid(padding=0)
    bullet.add_column(width=2)
    bullet.add_column(overflow="fold")
    bullet.add_row("- ", Text(text))
    return bullet


def _fitted(text: str, cells: int) -> str:
    """At most so many columns of a terminal; a Chinese character takes two."""
    if cell_len(text) <= cells:
        return text
    while cell_len(text) >= cells:
        text = text[: max(len(text) - max((cell_len(text) - cells) // 2, 1), 0)]
    return text + "…"
