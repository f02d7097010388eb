"""What every form of a labelled set on disk is read into, and what the forms share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kbeval.errors import DatasetError
from kbeval.evaluation.reading.declaration import Declaration
from kbeval.evaluation.reading.labels import LABEL_NAMES, Draft, Label, Labels, collected, labels_of
from kbeval.evaluation.reading.rows import Rows, read_rows
from kbeval.records import Fault


@dataclass(frozen=True, slots=True)
class Source:
    """A set as read: the queries of the chosen splits, and labels not yet applied to them."""

    drafts: tuple[Draft, ...]  # each with its split
    labels: Labels
    splits: tuple[str, ...]  # all there are, chosen or not
    form: str  # beir, wide, long
    faults: tuple[Fault, ...]
    declaration: Declaration = field(default_factory=Declaration)
    left_out: Mapping[str, int] = field(default_factory=dict)  # so far: malformed, duplicate
    counts: Mapping[str, int] = field(default_factory=dict)


def read_labels(path: Path) -> tuple[dict[str, dict[str, Label]], list[Label]]:
    """The judgements of a qrels file, and the rows that repeat one. Raises `DatasetError`."""
    return collected(labels_of(read_rows(path, LABEL_NAMES, needed=tuple(LABEL_NAMES))))


def refuse_own_labels(rows: Rows, beside: str) -> None:
    """Raise `DatasetError` if queries bring labels although others stand beside them."""
    if rows.has("relevant"):
        raise DatasetError(
            f"{rows.file}: there are labels in 'relevant' and in {beside}; keep them in one place"
        )


def unknown_queries(labels: Labels, drafts: Iterable[Draft]) -> list[Label]:
    """The first label of each judged query that the file of queries does not hold."""
    known = {draft.query.id for draft in drafts}
    return [next(iter(row.values())) for query, row in labels.items() if query not in known]


def unknown_fault(unknown: list[Label], queries: str) -> list[Fault]:
    """One warning for all judged queries that are not in the file of queries."""
    if not unknown:
        return []
    first = unknown[0]
    problem = f"{len(unknown)} judged queries are not in {queries}, the first is {first.query!r}"
    return [Fault(first.file, problem, "they are left out", first.line, "warning")]


def placed(draft: Draft, split: str) -> Draft:
    """The draft as a query of `split`."""
    return replace(draft, query=replace(draft.query, split=split))
