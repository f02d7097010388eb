"""Rows that share an id: equal ones count once, long form is joined, the rest is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kbeval.errors import DatasetError
from kbeval.evaluation.reading.labels import Draft, Label, Labels, collected, doubled_fault
from kbeval.records import Fault


@dataclass(frozen=True, slots=True)
class Joined:
    """One draft for every id, in the order of the file, and the labels of their rows."""

    drafts: tuple[Draft, ...]
    labels: Labels
    form: str  # "long" where rows were joined, else "wide"
    faults: tuple[Fault, ...]
    duplicate_count: int  # rows that equal an earlier one
    doubled_count: int  # labels that repeat an earlier one


def joined(drafts: Iterable[Draft], *, long: bool = True) -> Joined:
    """Bring the rows of one id together.

    A row equal to an earlier one is counted once, with a warning. With `long`, rows of one id and
    text that name further documents are one query. Raises `DatasetError` for an id with two
    texts, for rows that contradict each other, and for one pair with two grades.
    """
    by_id: dict[str, list[Draft]] = {}
    faults: list[Fault] = []
    for draft in drafts:
        rows = by_id.setdefault(draft.query.id, [])
        equal = next((row for row in rows if _equal(row, draft)), None)
        if equal is not None:
            problem = f"the row repeats line {equal.line} (query {draft.query.id!r})"
            faults.append(Fault(draft.file, problem, "counted once", draft.line, "warning"))
            continue
        if rows:
            _check_same_query(rows[0], draft, long=long)
        rows.append(draft)
    duplicate_count = len(faults)
    labels, doubled = collected(
        Label(row.query.id, document, grade, row.file, row.line)
        for rows in by_id.values()
        for row in rows
        for document, grade in row.pairs
    )
    faults += [*_spacing_faults([rows[0] for rows in by_id.values()]), *doubled_fault(doubled)]
    form = "long" if any(len(rows) > 1 for rows in by_id.values()) else "wide"
    merged = tuple(_merged(rows) for rows in by_id.values())
    return Joined(merged, labels, form, tuple(faults), duplicate_count, len(doubled))


def _equal(one: Draft, other: Draft) -> bool:
    return replace(one, line=0) == replace(other, line=0)


def _check_same_query(first: Draft, other: Draft, *, long: bool) -> None:
    one, two = first.query, other.query
    where = f"{other.file}:{other.line}: query id {two.id!r}"
    if one.text != two.text:
        raise DatasetError(
            f"{where} stands for {two.text!r} here and for {one.text!r} in line {first.line}; "
            "give each query an id of its own"
        )
    if not long:
        raise DatasetError(
            f"{where} is already in line {first.line}, with other metadata; keep one of them"
        )
    names = ("answerable", "needs", "kind", "lang", "domain", "need_id", "session_id")
    differing = [name for name in names if getattr(one, name) != getattr(two, name)]
    if first.declared_split != other.declared_split:
        differing.append("split")
    if differing:
        raise DatasetError(
            f"{where} has another {' and '.join(differing)} than in line {first.line}; "
            "rows of one query differ in their documents only"
        )


def _merged(rows: Sequence[Draft]) -> Draft:
    """The first row with the metadata that all rows agree on."""
    first = rows[0]
    if len(rows) == 1:
        return first
    shared = {
        key: value
        for key, value in first.query.metadata.items()
        if all(row.query.metadata.get(key) == value for row in rows[1:])
    }
    return replace(first, query=replace(first.query, metadata=shared))


def _spacing_faults(drafts: Sequence[Draft]) -> list[Fault]:
    """A warning for every id that differs from an earlier one by blanks around it only."""
    trimmed: dict[str, Draft] = {}
    faults = []
    for draft in drafts:
        first = trimmed.setdefault(draft.query.id.strip(), draft)
        if first is not draft:
            problem = (
                f"the ids {draft.query.id!r} and {first.query.id!r} (line {first.line}) are the "
                "same after trimming; they are taken as two queries"
            )
            faults.append(Fault(draft.file, problem, "rename one", draft.line, "warning"))
    return faults
