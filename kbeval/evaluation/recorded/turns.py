"""From single look-ups to sessions: ordered by time, counted once, what is missing marked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.reading.values import RowProblem, text_of
from kbeval.evaluation.recorded.account import Account
from kbeval.evaluation.recorded.details import (
    remembered,
    texts_at,
    versions_of,
)
from kbeval.evaluation.recorded.instants import EPOCH
from kbeval.evaluation.recorded.loaded import Memory

LONG_QUERY = 10_000  # characters from which a query is named: beyond any encoder's window
DETAILS = "retrieval_details"  # the key of a turn's metadata that keeps them


@dataclass(frozen=True, slots=True)
class LookUp:
    """One look-up as its source tells it; its query may be empty, its session unknown."""

    turn: Turn
    session_id: str | None
    place: int  # physical line of a file, id of a row
    offset: timedelta | None = None  # from UTC, as the time was written
    problem: str = ""  # why its query is none


def query_in(fields: Mapping[str, Any], key: str) -> tuple[str, str]:
    """The query among the fields, "" where there is none, and why what is there is none."""
    try:
        return text_of(fields, key), ""
    except RowProblem as problem:
        return "", str(problem)


@dataclass(slots=True)
class _Open:
    """A session while it is read."""

    look_ups: list[LookUp] = field(default_factory=list)
    cut: bool = False


def sessions_of(look_ups: Iterable[LookUp], account: Account) -> tuple[Session, ...]:
    """Sessions in the order in which the source first names them.

    Look-ups without a session or a query are left out, each with its reason in `account`; a
    session that loses one is marked `cut`, as is one whose beginning was not recorded.
    """
    opened: dict[str, _Open] = {}
    for look_up in look_ups:
        if look_up.session_id is None:
            account.leave_out("no_session", look_up.place)
            continue
        session = opened.setdefault(look_up.session_id, _Open())
        if look_up.turn.query.strip():
            session.look_ups.append(look_up)
        else:
            session.cut = True
            reason = "malformed" if look_up.problem else "empty_query"
            why = f"session {look_up.session_id!r}: {look_up.problem or 'the query is empty'}"
            account.leave_out(reason, look_up.place, why, remedy="it is left out")
    return tuple(
        _session(session_id, session, account)
        for session_id, session in opened.items()
        if session.look_ups
    )


def in_order(look_ups: Sequence[LookUp], account: Account, *, recorded: bool = False) -> list[Turn]:
    """The turns of one session by instant, then as they stand; equal ones once.

    `recorded` look-ups should have a time; in a written session only some without one are odd.

    Where a look-up has no time, the session keeps the order of its source. Two look-ups are one
    if time, query and returned documents are equal; without times nothing tells a repeat from a
    doubled row, and both stay.
    """
    kept = _each_once(look_ups, account)
    for look_up in kept:
        _meet(look_up, account)
    untimed = [look_up for look_up in kept if look_up.turn.asked_at is None]
    if not untimed:
        _count_late(kept, account)
        kept.sort(key=_instant)
    elif recorded or len(untimed) < len(kept):
        account.meet("untimed", untimed[0].place, count=len(untimed))
    return [look_up.turn for look_up in kept]


def memory_of(sessions: Iterable[Session]) -> Memory:
    """What the recorded tool remembered of a session, as far as the record tells.

    `documents` where any look-up shows a memory at work; else `none` where one shows that there
    was none, or a session was given an unchanged document twice; else `unknown`.
    """
    memory: Memory = "unknown"
    for session in sessions:
        given: set[str] = set()
        for turn in session.turns:
            details = turn.metadata.get(DETAILS) or {}
            shows = remembered(details, turn.metadata.get("dedup_reason"))
            if shows:
                return "documents"
            if shows is False or given & set(turn.returned or ()) - set(turn.changed):
                memory = "none"
            given.update(turn.returned or ())
    return memory


def _session(session_id: str, session: _Open, account: Account) -> Session:
    turns = _with_changes(in_order(session.look_ups, account, recorded=True))
    changed_count = sum(len(turn.changed) for turn in turns)
    if changed_count:
        account.meet("changed_documents", session.look_ups[0].place, count=changed_count)
    cut = session.cut or _begins_late(turns)
    return Session(session_id, tuple(turns), metadata={"cut": True} if cut else {})


def _meet(look_up: LookUp, account: Account) -> None:
    """What is odd about one look-up that is kept."""
    length = len(look_up.turn.query)
    if length >= LONG_QUERY:
        problem = f"query of {length:,} characters"
        account.meet("long_query", look_up.place, problem, remedy="it is kept")
    if look_up.turn.asked_at is not None and look_up.offset != timedelta(0):
        account.meet("naive_time" if look_up.offset is None else "other_zone", look_up.place)


def _instant(look_up: LookUp) -> datetime:
    return look_up.turn.asked_at or EPOCH


def _count_late(look_ups: Sequence[LookUp], account: Account) -> None:
    latest = accumulate(map(_instant, look_ups), max)
    for look_up, late in zip(look_ups, latest, strict=True):
        if _instant(look_up) < late:
            account.meet("out_of_order", look_up.place)


def _each_once(look_ups: Iterable[LookUp], account: Account) -> list[LookUp]:
    seen: set[object] = set()
    kept: list[LookUp] = []
    for look_up in look_ups:
        turn = look_up.turn
        key = (turn.asked_at, turn.query, turn.returned)
        if turn.asked_at is not None and key in seen:
            account.leave_out("duplicate", look_up.place)
        else:
            seen.add(key)
            kept.append(look_up)
    return kept


def _with_changes(turns: Iterable[Turn]) -> list[Turn]:
    """The turns with `changed`: documents given before in the session, with another hash."""
    known: dict[str, str] = {}
    told: list[Turn] = []
    for turn in turns:
        details = turn.metadata.get(DETAILS) or {}
        versions = versions_of(details)
        changed = [
            path for path, version in versions.items() if known.get(path, version) != version
        ]
        changed += [*turn.changed, *texts_at(details, "content_changed")]
        known |= versions
        told.append(replace(turn, changed=tuple(dict.fromkeys(changed))))
    return told


def _begins_late(turns: Iterable[Turn]) -> bool:
    """Whether a document was withheld that no recorded turn before had handed out."""
    given: set[str] = set()
    for turn in turns:
        if turn.returned is None:
            return False
        withheld = texts_at(turn.metadata.get(DETAILS) or {}, "withheld")
        if not given.issuperset(withheld):
            return True
        given.update(turn.returned)
    return False
