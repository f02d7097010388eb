"""The session a look-up belongs to, carried by a context variable (design.md 7, REQ-01)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar
from weakref import WeakSet

from kbeval.retrieval.tracker import RetrievedDocTracker

P = ParamSpec("P")
R = TypeVar("R")


_current: ContextVar[str | None] = ContextVar("kbeval_session", default=None)
_holders: dict[str, int] = {}  # session id -> open scopes
_trackers: WeakSet[RetrievedDocTracker] = WeakSet()
_lock = threading.Lock()


@contextmanager
def session_scope(session_id: str, *, keep: bool = False) -> Iterator[str]:
    """Make every look-up inside belong to this session.

    When the last scope of a session closes, the session ends for good: what it was given is
    forgotten (REQ-01.5). With `keep=True` it lives on, as between two requests of one chat.
    """
    with _lock:
        _holders[session_id] = _holders.get(session_id, 0) + 1
    token = _current.set(session_id)
    try:
        yield session_id
    finally:
        _current.reset(token)
        _leave(session_id, keep)


def current_session() -> str | None:
    """The session of the innermost open scope, None outside of any."""
    return _current.get()


def clear_at_end(tracker: RetrievedDocTracker) -> None:
    """Have this tracker forget every session that ends from now on."""
    with _lock:
        _trackers.add(tracker)


def in_session(function: Callable[P, R]) -> Callable[P, R]:
    """Carry the caller's session into a thread pool or executor, which would lose it.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with session_scope("s1"), ThreadPoolExecutor() as pool:
    ...     pool.submit(in_session(current_session)).result()
    's1'
    """
    session_id = _current.get()

    @wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _current.set(session_id)
        try:
            return function(*args, **kwargs)
        finally:
            _current.reset(token)

    return carried


def _leave(session_id: str, keep: bool) -> None:
    with _lock:
        _holders[session_id] -= 1
        ended = _holders[session_id] == 0 and not keep
        if _holders[session_id] == 0:
            del _holders[session_id]
        trackers = list(_trackers) if ended else []
    for tracker in trackers:
        tracker.clear_session(session_id)
