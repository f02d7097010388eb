"""What the command line prints: tables on a terminal, and the same facts as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.columns import Columns
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kbeval.corpus.centres import CentredEncoder
from kbeval.corpus.documents import summary
from kbeval.evaluation.evaluation import Evaluation
from kbeval.records import Corpus, Invocation, LookupResult
from kbeval.retrieval.answer import result_json
from kbeval.retrieval.knowledge import Knowledge

SHOWN = 5  # examples of a list before it is counted


def index_facts(knowledge: Knowledge, corpus: Corpus) -> dict[str, Any]:
    """What was indexed, and what is worth knowing about it."""
    keys = knowledge.l0.summary()
    encoder = knowledge.encoder
    return {
        "documents": len(knowledge.documents),
        "failed": corpus.failed_count,
        "faults": [str(fault) for fault in corpus.faults],
        "domains": knowledge.domain_counts(),
        "passages": len(knowledge.passages),
        "passage_tokens": knowledge.passage_tokens,
        "truncated": {path: list(read) for path, read in knowledge.truncated().items()},
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        "centre": encoder.centre.kind if isinstance(encoder, CentredEncoder) else "none",
        "convention": knowledge.l1.convention,
        "threads": knowledge.threads,
        "keys": keys.key_count,
        "shared_keys": {key: list(paths) for key, paths in keys.shared.items()},
        "short_keys": list(keys.too_short),
        "corpus_fingerprint": knowledge.fingerprint,
    }


def index_text(knowledge: Knowledge, corpus: Corpus) -> str:
    """The same for a reader."""
    facts = index_facts(knowledge, corpus)
    lines = [
        summary(corpus),
        f"{facts['passages']} passages of at most {facts['passage_tokens']} tokens in "
        f"{len(facts['domains'])} domains; encoder {facts['encoder']}, centre {facts['centre']}, "
        f"distance {facts['convention']}, {facts['threads']} threads",
        f"{facts['keys']} exact keys",
    ]
    if isinstance(knowledge.encoder, CentredEncoder):
        centre = knowledge.encoder.centre
        lines += [f"centre {' '.join(key)}: {source}" for key, source in centre.sources.items()]
        lines += [f"note: {note}" for note in centre.notes]
    shared = [f"{key!r} ({len(paths)})" for key, paths in facts["shared_keys"].items()]
    if shared:
        lines.append(f"keys that several documents share: {_some(shared)}")
    if facts["short_keys"]:
        short = [repr(key) for key in facts["short_keys"]]
        lines.append(f"keys too short to count inside a query: {_some(short)}")
    for path, (read, whole) in facts["truncated"].items():
        lines.append(f"{path}: embedded {read} of {whole} tokens")
    if facts["truncated"]:
        lines.append(f"{len(facts['truncated'])} documents are not embedded whole")
    return "\n".join(lines)


def lookup_json(result: LookupResult, invocation: Invocation) -> dict[str, Any]:
    """One look-up: what the model gets, and what is recorded."""
    return {
        "result": result_json(result),
        "relevance_level": invocation.relevance_level,
        "dedup_reason": invocation.dedup_reason,
        "duration_ms": round(invocation.duration_ms, 3),
        "retrieval_details": dict(invocation.retrieval_details),
    }


def print_lookup(result: LookupResult, invocation: Invocation) -> None:
    """What the model gets, and beside it why."""
    console = Console()
    model = result_json(result)
    for document in [model["primary"], *model["supplements"]]:
        if document is not None:
            document["content"] = _shortened(document["content"], 400)
    left = Panel(Text(json.dumps(model, ensure_ascii=False, indent=1)), title="what the model gets")
    right = Panel(_why(invocation), title="why")
    wide = console.width >= 120
    if wide:
        grid = Table.grid(expand=True)
        grid.add_column(ratio=3)
        grid.add_column(ratio=2)
        grid.add_row(left, right)
        console.print(grid)
    else:
        console.print(Group(left, right))


def print_evaluation(evaluation: Evaluation, *, worst: int = 10) -> None:
    """The result of an evaluation: header, matrix, rates, retrieval, worst queries."""
    console = Console()
    console.print(Text(evaluation.headline(), style="bold"))
    console.print(Text(_header(evaluation)))
    console.print(Columns([_matrix(evaluation), _precise_rules(evaluation)], padding=(0, 4)))
    console.print(_rates(evaluation))
    console.print(_retrieval(evaluation.summary["retrieval"]))
    if worst and len(table := evaluation.worst(worst)):
        console.print(Text(f"the {len(table)} costliest queries", style="italic"))
        for row in table.to_dict("records"):
            console.print(_query(row))


def _query(row: Mapping[Any, Any]) -> Text:
    """One query that went wrong: what was asked, what came, what was expected."""
    expected = _some(str(row["expected"]).split("|")) if row["expected"] else "nothing"
    return Text(
        f"{row['query_id']}  {_shortened(str(row['text']), 100)!r}\n"
        f"    {row['level']} at {row['similarity']:.3f}, {row['outcome']}, cause {row['cause']}: "
        f"got {row['primary']}, expected {expected}"
    )


def _why(invocation: Invocation) -> Text:
    details = invocation.retrieval_details
    lines = [
        f"level {invocation.relevance_level}, dedup {invocation.dedup_reason or '-'}, "
        f"{invocation.duration_ms:.1f} ms",
    ]
    if "handed_out" in details:
        lines += [
            f"L0 matches {details['l0_match_count']}; matching documents "
            f"{details['matching_before_session_filter']}, after the session filter "
            f"{details['matching_after_session_filter']}",
            f"nearest similarity {details['l1_top_similarity']}, fresh "
            f"{details['l1_top_fresh_similarity']} (thresholds "
            f"{details['highly_relevant_threshold']} / {details['reference_threshold']}, "
            f"{details['distance']}, max {details['max_l2_distance']})",
        ]
        lines += [
            f"{row['source'].upper()} {row['file_path']}: distance {row['distance']:.6f}, "
            f"similarity {row['similarity']:.6f}"
            for row in details["handed_out"]
        ]
        lines += [f"withheld: {path}" for path in details["withheld"]]
    return Text("\n".join(lines))


def _header(evaluation: Evaluation) -> str:
    s = evaluation.summary
    cuts = ", ".join(f"{name} to {distance:g}" for name, distance in evaluation.cuts.items())
    left_out = ", ".join(f"{count} {reason}" for reason, count in s["left_out"].items() if count)
    lines = [
        f"{s['documents']} documents ({s['documents_failed']} failed to load), "
        f"{s['queries']} queries, left out: {left_out or 'none'}",
        f"centre {s['centre']}; passages of {s['passage_tokens']} tokens; distance "
        f"{s['convention']}; cuts: {cuts}; labels {s['labels']}, "
        f"answers from score {s['answers_from']}"
        + ("" if s["answers_from_declared"] else " (not declared: every positive score answers)"),
    ]
    if not s["semantic"]:
        lines.append(f"{s['encoder']} is a stand-in that only compares spelling: not semantic")
    lines += [f"truncated: {path}" for path in list(s["truncated_documents"])[:SHOWN]]
    faults = [*s["corpus_faults"], *s["label_faults"]]
    lines += [f"fault: {fault}" for fault in faults[:SHOWN]]
    if len(faults) > SHOWN:
        lines.append(f"and {len(faults) - SHOWN} more faults (evaluation.json has all)")
    return "\n".join(lines)


def _matrix(evaluation: Evaluation) -> Table:
    return _frame(evaluation.matrix.reset_index(names="level"), "level by worth of the primary")


def _precise_rules(evaluation: Evaluation) -> Table:
    table = Table(title="PRECISE under both rules", title_justify="left")
    for column in ("precise-requires", "graded", "precision", "expected cost"):
        table.add_column(column)
    for rule, row in evaluation.summary["both_precise_rules"].items():
        table.add_row(
            rule, str(row["graded"]), _rate(row["precision"]), _rate(row["expected_cost"])
        )
    return table


def _rates(evaluation: Evaluation) -> Table:
    table = Table(title="were the verdicts and hints true", title_justify="left")
    for column in ("measure", "value [95 %] n"):
        table.add_column(column)
    for row in evaluation.rates.to_dict("records"):
        table.add_row(str(row["name"]), _rate(row))
    for name in ("expected_cost", "unjudged", "unanswerable_share"):
        table.add_row(name, _rate(evaluation.summary[name]))
    return table


def _retrieval(rankings: Mapping[str, Any]) -> Table:
    table = Table(title="retrieval, before any cut", title_justify="left")
    table.add_column("measure")
    named = {name: rows for name, rows in rankings.items() if isinstance(rows, Mapping)}
    for name in named:
        table.add_column(name)
    for measure in next(iter(named.values()), {}):
        cells = [rows.get(measure) for rows in named.values()]
        if all(isinstance(cell, Mapping) for cell in cells):
            table.add_row(measure, *(_rate(cell) for cell in cells if cell is not None))
    return table


def _rate(rate: Mapping[Any, Any]) -> str:
    if rate["value"] is None or pd.isna(rate["value"]):
        return f"- ({rate.get('note') or 'nothing to count'})"
    if rate["low"] is None or pd.isna(rate["low"]):
        return f"{rate['value']:.3f} n={rate['n']} ({rate.get('note', '')})"
    return f"{rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}] n={rate['n']}"


def _frame(frame: pd.DataFrame, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in frame.columns:
        table.add_column(str(column), overflow="fold")
    for row in frame.itertuples(index=False):
        table.add_row(*(_shortened(str(cell), 60) for cell in row))
    return table


def _some(items: list[str]) -> str:
    shown = ", ".join(items[:SHOWN])
    return shown + (f" and {len(items) - SHOWN} more" if len(items) > SHOWN else "")


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
