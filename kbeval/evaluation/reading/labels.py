"""One row -> one query or one judgement, with the place it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import Query
from kbeval.evaluation.reading.rows import Row, Rows
from kbeval.evaluation.reading.values import (
    RowProblem,
    answerable_of,
    integer_of,
    needs_of,
    pairs_of,
    shown,
    text_of,
)
from kbeval.records import Fault

QUERY_NAMES = {
    "id": ("id", "query_id", "query-id", "_id"),
    "query": ("query", "text"),
    "relevant": ("relevant",),
}
LABEL_NAMES = {
    "query": ("query-id", "query_id", "query", "qid"),
    "document": ("corpus-id", "corpus_id", "doc", "doc_id", "doc-id", "document"),
    "grade": ("score", "grade"),
}


class Label(NamedTuple):
    """One judgement and where it stands."""

    query: str
    document: str
    grade: int
    file: str
    line: int


Labels = Mapping[str, Mapping[str, Label]]  # query -> document -> label


@dataclass(frozen=True, slots=True)
class Draft:
    """A query as its row gives it.

    Its `answerable` is None where the row declares nothing; its labels stand in `pairs` (a table
    of its own may hold more). `split` is "" where the row names none.
    """

    file: str
    line: int
    query: Query
    pairs: tuple[tuple[str, int], ...] = ()
    declared_split: str = ""


def drafts_of(rows: Rows) -> tuple[list[Draft], list[Fault]]:
    """The queries of a file. Without any id the numbers of the rows are the ids."""
    numbered = not rows.has("id")
    drafts: list[Draft] = []
    faults = list(rows.faults)
    for row in rows.rows:
        try:
            drafts.append(_draft(row, rows.file, numbered=numbered))
        except RowProblem as problem:
            faults.append(Fault(rows.file, str(problem), line=row.line))
    return drafts, faults


def labels_of(rows: Rows) -> Iterable[Label]:
    """The judgements of a qrels file. Raises `DatasetError` for the first that is wrong."""
    if rows.faults:
        raise DatasetError(str(rows.faults[0]))
    for row in rows.rows:
        query, document, grade = (row.fields[name] for name in LABEL_NAMES)
        try:
            if not (query.strip() and document.strip()):
                raise RowProblem("the id of the query or of the document is empty")
            yield Label(query, document, integer_of(grade), rows.file, row.line)
        except RowProblem as problem:
            raise DatasetError(f"{rows.file}:{row.line}: {problem}") from None


def collected(labels: Iterable[Label]) -> tuple[dict[str, dict[str, Label]], list[Label]]:
    """Labels by query and document, and those that repeat an earlier one.

    Raises `DatasetError` where one pair has two grades.
    """
    found: dict[str, dict[str, Label]] = {}
    doubled: list[Label] = []
    for label in labels:
        first = found.setdefault(label.query, {}).setdefault(label.document, label)
        if first is label:
            continue
        if first.grade != label.grade:
            raise DatasetError(
                f"{label.file}:{label.line}: query {label.query!r} and document "
                f"{label.document!r} have score {label.grade} here and {first.grade} in line "
                f"{first.line}; one pair has one score"
            )
        doubled.append(label)
    return found, doubled


def doubled_fault(doubled: Sequence[Label]) -> list[Fault]:
    """One warning for all labels that repeat an earlier one; empty if there are none."""
    if not doubled:
        return []
    first = doubled[0]
    problem = (
        f"{len(doubled)} labels repeat an earlier one and are counted once, the first for query "
        f"{first.query!r} and document {first.document!r}"
    )
    return [Fault(first.file, problem, line=first.line, severity="warning")]


def _draft(row: Row, file: str, *, numbered: bool) -> Draft:
    nested = row.fields.get("metadata")
    inner = nested if isinstance(nested, Mapping) else {}
    own = {"id", "query", "relevant", "grade"} | (
        {"metadata"} if isinstance(nested, Mapping) else set()
    )
    fields = {key: value for key, value in row.fields.items() if key not in own} | dict(inner)
    text = _query_text(row.fields)
    pairs = _with_grade(pairs_of(row.fields.get("relevant")), row.fields.get("grade"))
    answerable = answerable_of(fields.get("answerable"))
    query = Query(
        id=str(row.number) if numbered else _id(row.fields),
        text=text,
        answerable=False if answerable is None and pairs == () else answerable,
        needs=needs_of(fields.get("needs")),
        kind=text_of(fields, "kind"),
        lang=text_of(fields, "lang"),
        domain=text_of(fields, "domain"),
        need_id=text_of(fields, "need_id") or None,
        session_id=text_of(fields, "session_id") or None,
        metadata=fields,
    )
    return Draft(file, row.line, query, pairs or (), text_of(fields, "split"))


def _id(fields: Mapping[str, Any]) -> str:
    found = text_of(fields, "id")
    if not found:
        raise RowProblem("the row has no id; give every row one, or none")
    return found


def _query_text(fields: Mapping[str, Any]) -> str:
    if "query" not in fields:
        raise RowProblem("the row has no query (or text)")
    text = fields["query"]
    if not isinstance(text, str):
        raise RowProblem(f"the query is {shown(text)}; a text is expected")
    return text


def _with_grade(
    pairs: tuple[tuple[str, int], ...] | None, grade: object
) -> tuple[tuple[str, int], ...] | None:
    """A column `grade` grades the one document of its row."""
    if not pairs or grade is None or (isinstance(grade, str) and not grade.strip()):
        return pairs
    if len(pairs) > 1:
        raise RowProblem(f"grade {grade!r} stands beside {len(pairs)} documents; one is expected")
    return ((pairs[0][0], integer_of(grade)),)
