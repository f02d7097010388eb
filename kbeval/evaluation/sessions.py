"""Sessions from disk: one a line, each a sequence of look-ups with or without labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.reading.rows import Row, read_json_lines
from kbeval.evaluation.reading.values import (
    RowProblem,
    answerable_of,
    needs_of,
    shown,
    text_of,
)
from kbeval.evaluation.recorded.account import Account
from kbeval.evaluation.recorded.instants import instant_of
from kbeval.evaluation.recorded.turns import LookUp, in_order
from kbeval.records import Fault

SESSIONS = "sessions.jsonl"
SESSION_NAMES = {"session_id": ("session_id", "id", "_id"), "turns": ("turns",)}
TIMES = ("asked_at", "time")
TURN_KEYS = {"query", "query_id", "relevant", "answerable", "needs", "returned", "changed", *TIMES}


class _LeftOut(RowProblem):
    """Why a turn or a session is left out, and the reason under which it is counted."""

    def __init__(self, reason: str, problem: str, count: int = 1) -> None:
        super().__init__(problem)
        self.reason = reason
        self.count = count  # look-ups that go with it


def load_sessions(
    path: str | Path, *, strict: bool = False
) -> tuple[tuple[Session, ...], tuple[Fault, ...]]:
    """Load `sessions.jsonl`, or that file of a folder, in its order.

    A turn or a session that cannot be used is a fault with its line, the rest is loaded. Raises
    `DatasetError` for a session id that stands for two sessions, for a file without a session,
    and with `strict` for the first fault that lost something. Where counts are wanted, or the
    source may be a recorded trace, `open_sessions` is the door.
    """
    path = Path(path)
    path = path / SESSIONS if path.is_dir() else path
    account = Account(str(path))
    sessions = sessions_in(path, account)
    faults = account.faults()
    errors = [fault for fault in faults if fault.severity == "error"]
    if strict and errors:
        raise DatasetError(str(errors[0]))
    if not sessions:
        raise DatasetError(f"0 sessions in {path}" + (f"; {errors[0]}" if errors else ""))
    return sessions, faults


def sessions_in(path: Path, account: Account) -> tuple[Session, ...]:
    """The sessions of a file in its order, perhaps none; what is left out is in `account`.

    Raises `DatasetError` for a file that cannot be read, and for a session id that stands for
    two sessions.
    """
    rows = read_json_lines(path, SESSION_NAMES)
    for fault in rows.faults:
        account.refuse(fault)
    found: dict[str, tuple[Row, Session]] = {}
    for row in rows.rows:
        try:
            session_id = _id(row)
            if session_id in found:
                _repeated(found[session_id][0], row, account)
            else:
                found[session_id] = row, _session(session_id, row, account)
        except RowProblem as problem:
            lost = problem if isinstance(problem, _LeftOut) else _LeftOut("malformed", str(problem))
            account.leave_out(lost.reason, row.line, str(lost), count=lost.count)
    return tuple(session for _, session in found.values())


def _id(row: Row) -> str:
    session_id = text_of(row.fields, "session_id")
    if not session_id:
        turns = row.fields.get("turns")
        count = len(turns) if isinstance(turns, list) and turns else 1
        raise _LeftOut("no_session", "the session has no session_id", count)
    return session_id


def _repeated(first: Row, other: Row, account: Account) -> None:
    session = f"session {text_of(other.fields, 'session_id')!r}"
    if first.fields != other.fields:
        raise DatasetError(
            f"{account.source}:{other.line}: {session} is another one than in line {first.line}; "
            "give each session an id of its own"
        )
    problem, count = f"{session} repeats line {first.line}", len(other.fields["turns"])
    account.leave_out(
        "duplicate",
        other.line,
        problem,
        remedy="counted once",
        count=count,
        severity="warning",
    )


def _session(session_id: str, row: Row, account: Account) -> Session:
    """One session; a turn that cannot be used costs that turn, and marks the session as cut."""
    turns = row.fields.get("turns")
    where = f"session {session_id!r}"
    if not isinstance(turns, list):
        raise _LeftOut("malformed", f"{where}: turns is {shown(turns)}; a list is expected")
    own = Account(account.source)
    read = [
        _look_up(turn, session_id, f"{where}, turn {place}", line=row.line, account=own)
        for place, turn in enumerate(turns, start=1)
    ]
    kept = [look_up for look_up in read if look_up is not None]
    if not kept:
        first = own.faults()[0].problem.removeprefix(f"{where}, ") if turns else ""
        why = f"; {first}" if first else ""
        reason = next(iter(own.left_out), "malformed")
        raise _LeftOut(reason, f"{where} has no usable turn{why}", max(1, len(turns)))
    metadata = _metadata(row.fields, {"session_id", "turns", "relevant"})
    metadata |= {"cut": True} if own.left_out else {}
    relevant = _ids(row.fields.get("relevant"), "relevant")
    session = Session(session_id, tuple(in_order(kept, own)), relevant, metadata)
    account.add(own)
    return session


def _look_up(
    turn: object, session_id: str, where: str, *, line: int, account: Account
) -> LookUp | None:
    """One turn, None if it cannot be used; labels that contradict each other are taken off."""
    try:
        loaded = _turn(turn)
    except RowProblem as problem:
        reason = problem.reason if isinstance(problem, _LeftOut) else "malformed"
        account.leave_out(reason, line, f"{where}: {problem}", remedy="the turn is left out")
        return None
    if loaded.answerable is False and (loaded.relevant or loaded.needs):
        odd = "it is declared unanswerable but names documents; its labels are not used"
        account.meet("contradictory_labels", line, f"{where}: {odd}")
        loaded = replace(loaded, relevant=None, answerable=None, needs=())
    time, offset = None, None
    try:
        time, offset = instant_of(_written_time(turn))
    except RowProblem as problem:
        account.meet("unreadable_time", line, f"{where}: {problem}")
    return LookUp(replace(loaded, asked_at=time), session_id, line, offset)


def _turn(turn: object) -> Turn:
    """A turn without its time."""
    if not isinstance(turn, Mapping):
        raise RowProblem(f"{shown(turn)} is no turn; a mapping with a query is expected")
    query = turn.get("query")
    if not isinstance(query, str) or not query.strip():
        empty = isinstance(query, str)
        problem = "the query is empty" if empty else f"the query is {shown(query)}"
        raise _LeftOut("empty_query" if empty or query is None else "malformed", problem)
    return Turn(
        query,
        text_of(turn, "query_id") or None,
        _ids(turn.get("relevant"), "relevant"),
        answerable_of(turn.get("answerable")),
        _metadata(turn, TURN_KEYS),
        needs_of(turn.get("needs")),
        returned=_ids(turn.get("returned"), "returned"),
        changed=_ids(turn.get("changed"), "changed") or (),
    )


def _written_time(turn: object) -> object:
    fields = turn if isinstance(turn, Mapping) else {}
    return next((fields[name] for name in TIMES if fields.get(name) is not None), None)


def _metadata(fields: Mapping[str, Any], own: Collection[str]) -> dict[str, Any]:
    """What is no field of the record; `metadata` is unfolded, as in queries."""
    rest = {key: value for key, value in fields.items() if key not in own}
    nested = rest.pop("metadata", None)
    return rest | (nested if isinstance(nested, dict) else {})


def _ids(value: object, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(d, str) and d.strip() for d in value):
        raise RowProblem(f"{name} is {shown(value)}; a list of documents' ids is expected")
    return tuple(dict.fromkeys(value))
