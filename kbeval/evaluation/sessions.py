"""Sessions from disk: one a line, each a sequence of look-ups with or without labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.reading.rows import Row, read_json_lines
from kbeval.evaluation.reading.values import RowProblem, answerable_of, shown, text_of
from kbeval.records import Fault

SESSION_NAMES = {"session_id": ("session_id", "id", "_id"), "turns": ("turns",)}
TURN_KEYS = {"query", "query_id", "relevant", "answerable"}


def load_sessions(
    path: str | Path, *, strict: bool = False
) -> tuple[tuple[Session, ...], tuple[Fault, ...]]:
    """Load `sessions.jsonl`, or that file of a folder, in its order.

    A turn or a session that cannot be used is a fault with its line, the rest is loaded. Raises
    `DatasetError` for a session id that stands for two sessions, for a file without a session,
    and with `strict` for the first fault that lost something.
    """
    path = Path(path)
    rows = read_json_lines(path / "sessions.jsonl" if path.is_dir() else path, SESSION_NAMES)
    faults = list(rows.faults)
    found: dict[str, tuple[int, Session]] = {}
    for row in rows.rows:
        try:
            session, odd = _session(row, rows.file)
        except RowProblem as problem:
            faults.append(Fault(rows.file, str(problem), line=row.line))
            continue
        line, first = found.setdefault(session.session_id, (row.line, session))
        if line != row.line:
            odd = [_repeated(first, session, rows.file, lines=(line, row.line))]
        faults += odd
    faults.sort(key=lambda fault: fault.line or 0)
    errors = [fault for fault in faults if fault.severity == "error"]
    if strict and errors:
        raise DatasetError(str(errors[0]))
    if not found:
        raise DatasetError(f"0 sessions in {rows.file}" + (f"; {errors[0]}" if errors else ""))
    return tuple(session for _, session in found.values()), tuple(faults)


def _repeated(first: Session, other: Session, file: str, *, lines: tuple[int, int]) -> Fault:
    where = f"session {other.session_id!r}"
    if first != other:
        raise DatasetError(
            f"{file}:{lines[1]}: {where} is another one than in line {lines[0]}; "
            "give each session an id of its own"
        )
    problem = f"{where} repeats line {lines[0]}"
    return Fault(file, problem, "counted once", lines[1], "warning")


def _session(row: Row, file: str) -> tuple[Session, list[Fault]]:
    session_id = text_of(row.fields, "session_id")
    if not session_id:
        raise RowProblem("the session has no session_id")
    turns = row.fields.get("turns")
    if not isinstance(turns, list):
        raise RowProblem(f"session {session_id!r}: turns is {shown(turns)}; a list is expected")
    kept: list[Turn] = []
    faults: list[Fault] = []
    for place, turn in enumerate(turns, start=1):
        where = f"session {session_id!r}, turn {place}"
        try:
            loaded, odd = _turn(turn)
        except RowProblem as problem:
            faults.append(Fault(file, f"{where}: {problem}", "the turn is left out", row.line))
        else:
            kept.append(loaded)
            faults += [Fault(file, f"{where}: {o}", "", row.line, "warning") for o in odd]
    if not kept:
        first = faults[0].problem.removeprefix(f"session {session_id!r}, ") if faults else ""
        why = f"; {first}" if first else ""
        raise RowProblem(f"session {session_id!r} has no usable turn{why}")
    own = {"session_id", "turns", "relevant"}
    metadata = _metadata(row.fields, own)
    relevant = _relevant(row.fields.get("relevant"))
    return Session(session_id, tuple(kept), relevant, metadata), faults


def _turn(turn: object) -> tuple[Turn, list[str]]:
    """A turn and what is odd about it; labels that contradict each other are taken off."""
    if not isinstance(turn, Mapping):
        raise RowProblem(f"{shown(turn)} is no turn; a mapping with a query is expected")
    query = turn.get("query")
    if not isinstance(query, str) or not query.strip():
        empty = isinstance(query, str)
        raise RowProblem("the query is empty" if empty else f"the query is {shown(query)}")
    relevant, answerable = _relevant(turn.get("relevant")), answerable_of(turn.get("answerable"))
    odd = []
    if answerable is False and relevant:
        odd.append("it is declared unanswerable but names documents; its labels are not used")
        relevant, answerable = None, None
    metadata = _metadata(turn, TURN_KEYS)
    query_id = text_of(turn, "query_id") or None
    return Turn(query, query_id, relevant, answerable, metadata), odd


def _metadata(fields: Mapping[str, Any], own: Collection[str]) -> dict[str, Any]:
    """What is no field of the record; `metadata` is unfolded, as in queries."""
    rest = {key: value for key, value in fields.items() if key not in own}
    nested = rest.pop("metadata", None)
    return rest | (nested if isinstance(nested, dict) else {})


def _relevant(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(d, str) and d.strip() for d in value):
        raise RowProblem(f"relevant is {shown(value)}; a list of documents' ids is expected")
    return tuple(dict.fromkeys(value))
