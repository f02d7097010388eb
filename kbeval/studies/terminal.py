"""What `index` and `lookup` print: text for a reader, and the same facts as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kbeval.corpus.centres import CentredEncoder
from kbeval.corpus.documents import summary
from kbeval.corpus.passages import shortened_titles
from kbeval.records import Corpus, Invocation, LookupResult
from kbeval.retrieval.answer import result_json
from kbeval.retrieval.knowledge import Knowledge

SHOWN = 5  # examples of a list before it is counted
CONTENT = 400  # characters of a document that the terminal shows


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
        "shortened_titles": [
            knowledge.documents[position].path
            for position in shortened_titles(knowledge.documents, knowledge.passages)
        ],
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
        f"{counted(facts['passages'], 'passage')} of at most {facts['passage_tokens']} tokens, "
        f"{counted(facts['keys'], 'exact key')}; "
        f"domains: {some([f'{name} ({n})' for name, n in facts['domains'].items()])}",
        f"encoder {facts['encoder']}, centre {facts['centre']}, distance {facts['convention']}, "
        f"{counted(facts['threads'], 'thread')}",
    ]
    if isinstance(knowledge.encoder, CentredEncoder):
        centre = knowledge.encoder.centre
        lines += [f"centre {' '.join(key)}: {source}" for key, source in centre.sources.items()]
        lines += [f"note: {note}" for note in centre.notes]
    shared = [f"{key!r} ({len(paths)})" for key, paths in facts["shared_keys"].items()]
    if shared:
        lines.append(f"keys that several documents share: {some(shared)}")
    if facts["short_keys"]:
        short = [repr(key) for key in facts["short_keys"]]
        lines.append(f"keys too short to count inside a query: {some(short)}")
    for path, (read, whole) in facts["truncated"].items():
        lines.append(f"{path}: embedded {read} of {whole} tokens")
    if facts["truncated"]:
        lines.append(f"{counted(len(facts['truncated']), 'document')} not embedded whole")
    if facts["shortened_titles"]:
        lines.append(
            f"titles too long to stand whole in their passages: {some(facts['shortened_titles'])}"
        )
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
    """What the model gets (long contents shortened here), and beside it why."""
    console = Console()
    model = result_json(result)
    for document in [model["primary"], *model["supplements"]]:
        if document is not None:
            document["content"] = shortened(document["content"], CONTENT)
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


def _why(invocation: Invocation) -> Text:
    details = invocation.retrieval_details
    lines = [
        f"level {invocation.relevance_level}, dedup {invocation.dedup_reason or '-'}, "
        f"{invocation.duration_ms:.1f} ms",
    ]
    if details.get("query_truncated"):
        lines.append("the query is longer than the encoder's window: only its first part was read")
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


def some(items: Sequence[str]) -> str:
    """The first of a list, and how many more there are."""
    shown = ", ".join(items[:SHOWN])
    return shown + (f" and {len(items) - SHOWN} more" if len(items) > SHOWN else "")


def shortened(text: str, length: int) -> str:
    """At most `length` characters, the cut marked."""
    return text if len(text) <= length else text[: length - 1] + "…"


def counted(count: int, noun: str) -> str:
    """The count with its noun.

    >>> counted(1, "thread"), counted(2, "thread")
    ('1 thread', '2 threads')
    """
    return f"{count} {noun}" + ("" if count == 1 else "s")
