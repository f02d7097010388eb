"""Labelled sets in one file (CSV, TSV, JSON lines), or in two: queries and judgements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kbeval.errors import DatasetError
from kbeval.evaluation.reading.declaration import read_declaration
from kbeval.evaluation.reading.joining import Joined, joined
from kbeval.evaluation.reading.labels import QUERY_NAMES, doubled_fault, drafts_of
from kbeval.evaluation.reading.rows import Rows, read_rows
from kbeval.evaluation.reading.sources import (
    Source,
    placed,
    read_labels,
    refuse_own_labels,
    unknown_fault,
    unknown_queries,
)
from kbeval.records import Fault


def read_one_file(path: Path, split: str | None) -> Source:
    """Read a file of queries with their documents in the column `relevant`."""
    rows = read_rows(path, QUERY_NAMES, needed=("query", "relevant"))
    drafts, malformed = drafts_of(rows)
    together = joined(drafts)
    faults = (*malformed, *_repeated_texts(rows, together), *together.faults)
    source = Source(
        drafts=together.drafts,
        labels=together.labels,
        splits=(),
        form=together.form,
        faults=faults,
        left_out={"malformed": len(malformed), "duplicate": together.duplicate_count},
        counts={"empty_rows": rows.empty_count, "doubled_labels": together.doubled_count},
    )
    return _with_split(source, path, split)


def read_two_files(queries: Path, qrels: Path, split: str | None) -> Source:
    """Read queries and, from a file beside them, one judgement a row."""
    rows = read_rows(queries, QUERY_NAMES, needed=("id", "query"))
    refuse_own_labels(rows, qrels.name)
    drafts, malformed = drafts_of(rows)
    together = joined(drafts, long=False)
    labels, doubled = read_labels(qrels)
    unknown = unknown_queries(labels, drafts)
    beside = (*doubled_fault(doubled), *unknown_fault(unknown, queries.name))
    source = Source(
        drafts=together.drafts,
        labels=labels,
        splits=(),
        form="long",
        faults=(*malformed, *together.faults, *beside),
        declaration=read_declaration(queries.parent),
        left_out={"malformed": len(malformed), "duplicate": together.duplicate_count},
        counts={
            "empty_rows": rows.empty_count,
            "doubled_labels": len(doubled),
            "unknown_queries": len(unknown),
        },
    )
    return _with_split(source, queries.parent, split)


def _with_split(source: Source, path: Path, split: str | None) -> Source:
    """Choose by the column `split`; where it is absent or empty it is `test`."""
    drafts = [placed(draft, draft.declared_split or "test") for draft in source.drafts]
    splits = tuple(dict.fromkeys(draft.query.split for draft in drafts)) or ("test",)
    if split is not None and split not in splits:
        raise DatasetError(f"{path}: no split {split!r}; the splits are {', '.join(splits)}")
    chosen = tuple(draft for draft in drafts if split in (None, draft.query.split))
    counts = {**source.counts, "other_split": len(drafts) - len(chosen)}
    return replace(source, drafts=chosen, splits=splits, counts=counts)


def _repeated_texts(rows: Rows, together: Joined) -> list[Fault]:
    """Without ids, rows of one text stay apart: a long form that cannot be told from doubles."""
    texts = [draft.query.text for draft in together.drafts if draft.query.text.strip()]
    repeat_count = len(texts) - len(set(texts))
    if rows.has("id") or not repeat_count:
        return []
    problem = f"{repeat_count} rows repeat the text of another row, each counts as a query"
    remedy = "give the rows of one query the same id to join their documents"
    return [Fault(rows.file, problem, remedy, severity="warning")]
