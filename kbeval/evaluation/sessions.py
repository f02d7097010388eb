"""Sessions from disk: one a line, each a sequence of look-ups with or without labels."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.reading.json_lines import JsonLine, iter_json_lines, json_line_at
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
ID_NAMES = ("session_id", "id", "_id")
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
    source may be a recorded trace, `open_sessions` is the door; `iter_sessions` keeps none.
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
    """All of `iter_sessions`, at once. Raises its `DatasetError`."""
    return tuple(iter_sessions(path, account))


def iter_sessions(path: str | Path, account: Account) -> Iterator[Session]:
    """The sessions of a file in its order, perhaps none, one line in memory at a time.

    What is left out or odd goes into `account` as it is met. Of sessions that have passed only
    a digest of the id and its place are kept, in all about 150 bytes: 15 MB for 100,000; faults
    are kept each by itself. Raises `DatasetError`, once that place is reached, for a file that
    cannot be read, and for a session id that stands for two sessions.
    """
    path, passed = Path(path), _Passed()
    for line in iter_json_lines(path):
        if isinstance(line, Fault):
            account.refuse(line)
            continue
        row = replace(line, fields=_named(line.fields))
        try:
            session_id = _id(row)
            if (place := passed.place(session_id)) is not None:
                _repeated(path, place, row, account)
                continue
            session = _session(session_id, row, account)
        except RowProblem as problem:
            lost = problem if isinstance(problem, _LeftOut) else _LeftOut("malformed", str(problem))
            account.leave_out(lost.reason, row.line, str(lost), count=lost.count)
        else:
            passed.add(session_id, row)
            yield session


class _Passed:
    """Where the sessions that have passed stood; their ids are kept as digests."""

    def __init__(self) -> None:
        self._ordinal: dict[bytes, int] = {}
        self._line = array("Q")  # by ordinal
        self._offset = array("Q")

    def add(self, session_id: str, row: JsonLine) -> None:
        self._ordinal[_digest(session_id)] = len(self._line)
        self._line.append(row.line)
        self._offset.append(row.offset)

    def place(self, session_id: str) -> tuple[int, int] | None:
        """Line and offset of the session; None if none of this id has passed."""
        ordinal = self._ordinal.get(_digest(session_id))
        return None if ordinal is None else (self._line[ordinal], self._offset[ordinal])


def _digest(session_id: str) -> bytes:
    return blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=12).digest()


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with the session's id under its own name; of several names the first counts."""
    found = next((name for name in ID_NAMES if name in fields), None)
    return {ID_NAMES[0] if key == found else key: value for key, value in fields.items()}


def _id(row: JsonLine) -> str:
    session_id = text_of(row.fields, "session_id")
    if not session_id:
        turns = row.fields.get("turns")
        count = len(turns) if isinstance(turns, list) and turns else 1
        raise _LeftOut("no_session", "the session has no session_id", count)
    return session_id


def _repeated(path: Path, place: tuple[int, int], other: JsonLine, account: Account) -> None:
    """Count a session that stands there again. Raises `DatasetError` if it is another one."""
    line, offset = place
    session = f"session {text_of(other.fields, 'session_id')!r}"
    if _named(json_line_at(path, offset)) != other.fields:
        raise DatasetError(
            f"{account.source}:{other.line}: {session} is another one than in line {line}; "
            "give each session an id of its own"
        )
    problem, count = f"{session} repeats line {line}", len(other.fields["turns"])
    account.leave_out(
        "duplicate",
        other.line,
        problem,
        remedy="counted once",
        count=count,
        severity="warning",
    )


def _session(session_id: str, row: JsonLine, account: Account) -> Session:
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
