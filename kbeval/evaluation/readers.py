"""The way in for labelled sets: from disk to a `LabelledSet`, and what to say about it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.evaluation.reading.beir import read_beir
from kbeval.evaluation.reading.declaration import Declaration
from kbeval.evaluation.reading.labels import Draft, Label
from kbeval.evaluation.reading.rows import TABLES
from kbeval.evaluation.reading.sources import Source
from kbeval.evaluation.reading.tables import read_one_file, read_two_files
from kbeval.records import Fault


def load_set(path: str | Path, *, split: str | None = None, strict: bool = False) -> LabelledSet:
    """Load a labelled set: a folder in the layout of BEIR, a folder of two tables, or one file.

    `split` chooses one; None takes all that the set lists. Queries that cannot be used are left
    out and counted. Raises `DatasetError` for labels that contradict each other, an id with two
    texts, a split that does not exist, a set without a usable query, and with `strict` for the
    first row that is not loaded.
    """
    path = Path(path)
    source = _read(path, split)
    queries, left_out, faults = _usable(source)
    errors = [fault for fault in faults if fault.severity == "error"]
    if strict and errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise DatasetError(f"{errors[0]}{more}")
    if not queries:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        first = f"; {errors[0]}" if errors else ""
        raise DatasetError(f"0 queries in {path}" + (f": {reasons}" if reasons else "") + first)
    told = source.declaration
    return LabelledSet(
        name=told.name or (path.stem if path.is_file() else path.resolve().name),
        folder=str(path),
        queries=queries,
        answers_from=told.answers_from,
        answers_from_declared=told.answers_from_declared,
        judged=told.judged,
        splits=source.splits,
        languages=tuple(told.languages) or tuple(dict.fromkeys(q.lang for q in queries if q.lang)),
        labelled_by=told.labelled_by,
        form=source.form,
        faults=tuple(faults),
        left_out=left_out,
        fingerprint=_fingerprint(queries, told),
        corpus=told.corpus,
        counts={name: count for name, count in source.counts.items() if count},
    )


def summary(labelled: LabelledSet) -> dict[str, Any]:
    """What was loaded and what was not, as plain values.

    `several_top` counts queries without `needs` that have several documents of their highest
    score; `partial` those that no document answers in full (method.md 2).
    """
    answerable = [query for query in labelled.queries if query.answerable]
    best = [max(query.grades.values()) for query in answerable]
    tops = [list(q.grades.values()).count(top) for q, top in zip(answerable, best, strict=True)]
    return {
        "name": labelled.name,
        "form": labelled.form,
        "splits": list(labelled.splits),
        "answers_from": labelled.answers_from,
        "answers_from_declared": labelled.answers_from_declared,
        "judged": labelled.judged,
        "loaded": len(labelled),
        "rejected": labelled.rejected_count,
        "left_out": dict(labelled.left_out),
        "expects_nothing": len(labelled) - len(answerable),
        "partial": sum(top < labelled.answers_from for top in best),
        "several_top": sum(
            count > 1 and not q.needs for q, count in zip(answerable, tops, strict=True)
        ),
        "warnings": sum(fault.severity == "warning" for fault in labelled.faults),
        **labelled.counts,
    }


def describe(labelled: LabelledSet) -> str:
    """A few lines for the user: loaded, rejected, left out, and what the labels rest on."""
    found = summary(labelled)
    left_out = [f"{count} {reason}" for reason, count in labelled.left_out.items()]
    counts = [f"{count} {name}" for name, count in labelled.counts.items()]
    answers = f"a document answers from score {labelled.answers_from}"
    if not labelled.answers_from_declared:
        answers = "every positive score answers (answers_from is not declared)"
    lines = [
        f"{labelled.name} ({labelled.form}): "
        f"{found['loaded']} loaded, {found['rejected']} rejected",
        f"left out: {', '.join(left_out) or 'none'}",
        f"{found['expects_nothing']} expect nothing, {found['partial']} partial, "
        f"{found['several_top']} with several top documents and no needs",
        f"{answers}; judged: {labelled.judged}",
    ]
    if counts:
        lines.append(f"also met: {', '.join(counts)}")
    return "\n".join([*lines, *(str(fault) for fault in labelled.faults)])


def _read(path: Path, split: str | None) -> Source:
    if path.is_file():
        return read_one_file(path, split)
    if not path.is_dir():
        raise DatasetError(f"{path}: no such file or folder")
    if (path / "queries.jsonl").is_file() and (path / "qrels").is_dir():
        return read_beir(path, split)
    queries, qrels = (_table_named(path, name) for name in ("queries", "qrels"))
    if queries is None or qrels is None:
        raise DatasetError(
            f"{path}: no labelled set; a folder holds queries.jsonl and qrels/SPLIT.tsv, or "
            "queries.csv and qrels.csv; for a set in one file name the file"
        )
    return read_two_files(queries, qrels, split)


def _table_named(folder: Path, name: str) -> Path | None:
    paths = (folder / f"{name}{ending}" for ending in TABLES)
    return next((path for path in paths if path.is_file()), None)


def _usable(source: Source) -> tuple[tuple[Query, ...], dict[str, int], list[Fault]]:
    """The queries with their labels, those left out by reason, and all faults of the set."""
    left_out = {"empty_text": 0, "no_judgement": 0, **source.left_out}
    queries: list[Query] = []
    faults = list(source.faults)
    for draft in source.drafts:
        labels = source.labels.get(draft.query.id, {})
        _check_contradiction(draft, labels.values(), source.declaration.answers_from)
        if not draft.query.text.strip():
            left_out["empty_text"] += 1
            faults.append(
                Fault(draft.file, f"query {draft.query.id!r}: the text is empty", line=draft.line)
            )
        elif draft.query.answerable is not False and not any(x.grade > 0 for x in labels.values()):
            left_out["no_judgement"] += 1
        else:
            query, odd = _labelled(draft, labels, source.declaration)
            queries.append(query)
            faults += odd
    faults.sort(key=lambda fault: (fault.file, fault.line or 0))
    return tuple(queries), {name: count for name, count in left_out.items() if count}, faults


def _check_contradiction(draft: Draft, labels: Iterable[Label], answers_from: int) -> None:
    """Raise `DatasetError` if a query that is declared unanswerable has a document that answers."""
    wrong = next((label for label in labels if label.grade >= answers_from), None)
    if draft.query.answerable is False and wrong is not None:
        raise DatasetError(
            f"{wrong.file}:{wrong.line}: query {wrong.query!r} is declared unanswerable, but "
            f"document {wrong.document!r} has score {wrong.grade}; allowed is a score below "
            f"answers_from {answers_from}"
        )


def _labelled(
    draft: Draft, labels: Mapping[str, Label], told: Declaration
) -> tuple[Query, list[Fault]]:
    """The query with its grades and nearness, and warnings about what its row says of them."""
    query = draft.query
    answerable = query.answerable is not False
    grades = {document: label.grade for document, label in labels.items()}
    kind = query.kind
    if not (kind or answerable):
        kind = str(query.metadata.get("answerability") or "")
    stated = query.metadata.get("nearness")
    nearness = "" if answerable else told.nearness(kind, stated)
    problems = []
    if nearness is None:
        problems.append(f"nearness {stated!r} is none of near, far; it is left empty")
    if unjudged := [d for need in query.needs for d in need if grades.get(d, 0) <= 0]:
        problems.append(f"needs name {unjudged[0]!r}, which has no positive score")
    labelled = replace(
        query, answerable=answerable, grades=grades, kind=kind, nearness=nearness or ""
    )
    return labelled, [
        Fault(draft.file, f"query {query.id!r}: {problem}", line=draft.line, severity="warning")
        for problem in problems
    ]


def _fingerprint(queries: Sequence[Query], told: Declaration) -> str:
    """A hash over ids, texts and labels, and what gives the labels their meaning."""
    rows = sorted(
        [
            query.id,
            query.text,
            query.answerable,
            query.nearness,
            sorted(query.grades.items()),
            query.needs,
            query.cluster,
        ]
        for query in queries
    )
    content = json.dumps([told.answers_from, told.judged, rows], ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()
