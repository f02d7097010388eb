"""What is wrong or odd about a labelled set, found in its labels, documents and sessions alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kbeval.evaluation.checking.duplicates import Relatives, declared_names
from kbeval.evaluation.checking.leaks import (
    across,
    contradictions,
    equal_texts,
    near_equal,
    shared_units,
)
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.evaluation.sessions import load_sessions
from kbeval.records import Corpus, Fault

EXAMPLES = 10  # of a finding that are kept
SESSIONS = "sessions.jsonl"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a set that its author should know; an `error` makes the set unfit.

    `examples` are the first ten of `count`.
    """

    check: str
    severity: Literal["error", "warning"]
    problem: str
    count: int = 1
    examples: tuple[str, ...] = ()


def label_findings(labelled: LabelledSet, corpus: Corpus, alike: Relatives) -> Iterator[Finding]:
    """Everything that needs no retrieval: loading, gold, copies, unanswerable, duplicates."""
    known = {document.path for document in corpus.documents}
    yield from _loading(labelled, corpus)
    yield from _gold(labelled, known)
    yield from _sessions(labelled, known)
    yield from _queries(labelled)
    yield from _unanswerable(labelled)
    yield from _documents(labelled, corpus, alike)


def finding_of(
    check: str, severity: Literal["error", "warning"], problem: str, examples: Sequence[object]
) -> Iterator[Finding]:
    """One finding over all that is wrong in the same way; none where nothing is."""
    if examples:
        shown = tuple(map(str, examples[:EXAMPLES]))
        yield Finding(check, severity, problem, len(examples), shown)


def _loading(labelled: LabelledSet, corpus: Corpus) -> Iterator[Finding]:
    def faults(of: Sequence[Fault], severity: str) -> list[Fault]:
        return [fault for fault in of if fault.severity == severity]

    lost, odd = faults(corpus.faults, "error"), faults(corpus.faults, "warning")
    yield from finding_of("documents_failed", "error", "documents cannot be loaded", lost)
    yield from finding_of("document_warnings", "warning", "documents are odd", odd)
    lost, odd = faults(labelled.faults, "error"), faults(labelled.faults, "warning")
    yield from finding_of("rows_rejected", "error", "rows of the labels cannot be used", lost)
    yield from finding_of("label_warnings", "warning", "rows of the labels are odd", odd)


def _gold(labelled: LabelledSet, known: set[str]) -> Iterator[Finding]:
    missing = [
        (f"{query.id}: {path}", score)
        for query in labelled.queries
        for path, score in query.grades.items()
        if path not in known
    ]
    gold = [name for name, score in missing if score > 0]
    other = [name for name, score in missing if score <= 0]
    yield from finding_of("gold_missing", "error", "relevant documents are not in the corpus", gold)
    problem = "documents judged not relevant are not in the corpus"
    yield from finding_of("judged_missing", "warning", problem, other)


def _sessions(labelled: LabelledSet, known: set[str]) -> Iterator[Finding]:
    """Sessions beside the set: their documents and queries exist."""
    file = Path(labelled.folder) / SESSIONS
    if not (labelled.folder and file.is_file()):
        return
    sessions, faults = load_sessions(file)
    lost = [fault for fault in faults if fault.severity == "error"]
    yield from finding_of("sessions_rejected", "error", "sessions or turns cannot be used", lost)
    named = [
        (f"{session.session_id}: {path}", path)
        for session in sessions
        for row in (session.relevant, *(turn.relevant for turn in session.turns))
        for path in row or ()
    ]
    gone = list(dict.fromkeys(where for where, path in named if path not in known))
    problem = "documents of sessions are not in the corpus"
    yield from finding_of("session_gold_missing", "error", problem, gone)
    ids = {query.id for query in labelled.queries}
    turns = [(session.session_id, turn.query_id) for session in sessions for turn in session.turns]
    strange = [f"{session}: {query}" for session, query in turns if query and query not in ids]
    problem = "turns of sessions name queries that are not loaded"
    yield from finding_of("session_query_unknown", "warning", problem, strange)


def _queries(labelled: LabelledSet) -> Iterator[Finding]:
    equal = equal_texts(labelled.queries)
    leaking = across(equal)
    problem = "texts stand in more than one split"
    yield from finding_of("equal_across_splits", "error", problem, _named(leaking))
    inside = {text: group for text, group in equal.items() if text not in leaking}
    problem = "texts stand in one split more than once"
    yield from finding_of("equal_in_split", "warning", problem, _named(inside))
    pairs = contradictions(equal, labelled.answers_from)
    shown = [f"{one.id} and {other.id}: {reason}" for one, other, reason in pairs]
    yield from finding_of("contradiction", "error", "equal texts have contrary labels", shown)
    for unit, groups in shared_units(labelled).items():
        problem = f"values of {unit} stand in more than one split"
        yield from finding_of(f"{unit}_across_splits", "error", problem, _named(groups))
    problem = "pairs of queries are spelled nearly alike in two splits: read them"
    near = near_equal(labelled.queries)
    yield from finding_of("near_equal_across_splits", "warning", problem, near)


def _named(groups: Mapping[str, Sequence[Query]]) -> list[str]:
    return [
        f"{key!r}: {', '.join(f'{query.id} ({query.split})' for query in group)}"
        for key, group in groups.items()
    ]


def _unanswerable(labelled: LabelledSet) -> Iterator[Finding]:
    if count := labelled.left_out.get("no_judgement", 0):
        problem = "queries have neither a relevant document nor `answerable: false`; left out"
        yield Finding("unlabelled", "warning", problem, count)
    declared = [query for query in labelled.queries if query.answerable is False]
    bare = [split for split in labelled.splits if split not in {q.split for q in declared}]
    problem = "splits declare no unanswerable query: no leak can be measured there"
    yield from finding_of("no_unanswerable", "warning", problem, bare)
    vague = [query.id for query in declared if not query.nearness]
    problem = "unanswerable queries say neither near nor far"
    yield from finding_of("nearness_unstated", "warning", problem, vague)


def _documents(labelled: LabelledSet, corpus: Corpus, alike: Relatives) -> Iterator[Finding]:
    unknown = [f"{path}: same_as {name}" for path, name in alike.unknown]
    problem = "same_as names no other document of the corpus"
    yield from finding_of("same_as_unknown", "error", problem, unknown)
    equal = [", ".join(group) for group in alike.equal]
    yield from finding_of("equal_content", "warning", "groups of documents have equal texts", equal)
    near = [f"{a} ~ {b} ({cosine:.3f})" for (a, b), cosine in alike.undeclared().items()]
    problem = "pairs of documents are near duplicates and not declared the same"
    yield from finding_of("near_documents", "warning", problem, near)
    pairs = [(d.path, name) for d in corpus.documents for name in declared_names(d)]
    apart = [
        f"{query.id}: {one} has score {query.grades[one]}, {other} {query.grades.get(other, '-')}"
        for query in labelled.queries
        for one, other in pairs
        if query.grades.get(one, 0) > max(query.grades.get(other, 0), 0)
    ]
    problem = "queries grade documents apart that are declared the same"
    yield from finding_of("same_as_graded_apart", "warning", problem, apart)
