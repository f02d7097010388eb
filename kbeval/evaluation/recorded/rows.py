"""Rows of `tool_invocation`, from a table's file or a database, as look-ups."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from kbeval.evaluation.queries import Turn
from kbeval.evaluation.reading.rows import TABLES, Names, Row, Rows, read_json_lines, read_table
from kbeval.evaluation.reading.values import RowProblem, text_of
from kbeval.evaluation.recorded.account import Account, tolerant
from kbeval.evaluation.recorded.details import details_of, paths_of, returned_of
from kbeval.evaluation.recorded.instants import instant_of
from kbeval.evaluation.recorded.turns import DETAILS, LookUp, query_in
from kbeval.store.reports import LOOKUP

ROW_NAMES: Names = {  # a field -> the columns it goes by; of several that are there the first
    "session_id": ("session_id", "session.id", "session"),
    "query": ("query",),
    "time": ("started_at", "asked_at", "time", "timestamp", "created_at"),
    "returned": ("returned", "returned_paths", "paths", "documents"),
    DETAILS: (DETAILS,),
    "tool_name": ("tool_name",),
    "relevance_level": ("relevance_level",),
    "dedup_reason": ("dedup_reason",),
    "duration_ms": ("duration_ms",),
}
NEEDED = ("session_id", "query")
KEPT = ("relevance_level", "dedup_reason", "duration_ms")  # in a turn's metadata, where recorded


def read_rows_file(path: Path, account: Account) -> Iterator[LookUp]:
    """Look-ups of a CSV, TSV or JSON-lines export, in its order. Raises `DatasetError`."""
    rows = _rows(path)
    for fault in rows.faults:
        account.refuse(fault)
    return look_ups(rows.rows, account)


def look_ups(rows: Iterable[Row], account: Account) -> Iterator[LookUp]:
    """Look-ups of rows whose fields have the names of `ROW_NAMES`.

    Calls of other tools are counted and passed over; a row that is none is a fault.
    """
    for row in rows:
        if (row.fields.get("tool_name") or LOOKUP) != LOOKUP:
            account.meet("other_tool", row.line)
            continue
        try:
            yield look_up_of(row.fields, row.line, account)
        except RowProblem as problem:
            account.leave_out("malformed", row.line, str(problem), remedy="it is left out")


def look_up_of(fields: Mapping[str, Any], place: int, account: Account) -> LookUp:
    """One row as a look-up; what is odd beside its session and query is told, not fatal.

    Raises `RowProblem` for a session id that is none.
    """
    session_id, (query, problem) = text_of(fields, "session_id"), query_in(fields, "query")
    kept = {key: fields[key] for key in KEPT if fields.get(key) not in (None, "")}
    read = partial(tolerant, place=place, account=account)
    details = read("unreadable_details", details_of, fields.get(DETAILS)) or {}
    returned = read("unnamed_documents", _returned, fields, details)
    time, offset = read("unreadable_time", instant_of, _time(fields)) or (None, None)
    kept |= {DETAILS: details} if details else {}
    turn = Turn(query, metadata=kept | {"row": place}, returned=returned, asked_at=time)
    return LookUp(turn, session_id or None, place, offset, problem)


def _returned(fields: Mapping[str, Any], details: Mapping[str, Any]) -> tuple[str, ...] | None:
    if fields.get("returned") is not None:
        return paths_of(fields["returned"])
    level, reason = (fields.get(key) or details.get(key) for key in KEPT[:2])
    return returned_of(details, level, reason)


def _time(fields: Mapping[str, Any]) -> object:
    """When it began; history from before that was recorded says when the row was written."""
    written = fields.get("time")
    return fields.get("created_at") if written in (None, "") else written


def _rows(path: Path) -> Rows:
    if path.suffix.lower() not in TABLES and starts_as_json(path):
        return read_json_lines(path, ROW_NAMES)
    with _long_cells():
        return read_table(path, ROW_NAMES, needed=NEEDED)


def starts_as_json(path: Path) -> bool:
    """Whether the file's first visible character opens a JSON object or list."""
    with path.open("rb") as file:
        start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith((b"{", b"["))


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let a cell be longer than the 131,072 characters that Python's reader takes by itself."""
    usual = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(usual)
