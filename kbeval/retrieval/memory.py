"""The session memory that the settings ask for."""

from __future__ import annotations

from functools import partial

from kbeval.config import Session as SessionSettings
from kbeval.retrieval.horizon import Horizon, TurnSession
from kbeval.retrieval.tracker import RetrievedDocTracker


def open_tracker(settings: SessionSettings) -> RetrievedDocTracker:
    """A tracker whose sessions remember as `known_by` and the horizons say.

    The defaults have the quicker kind of session. `memory` and `mark` are the caller's part: a
    `KnowledgeTool` without a memory does not ask its tracker, and says what is to be marked.
    """
    horizon = Horizon(settings.horizon_turns, settings.horizon_tokens)
    if settings.known_by == "version" and horizon == Horizon():
        return RetrievedDocTracker(settings.max_sessions)
    new_session = partial(TurnSession, known_by=settings.known_by, horizon=horizon)
    return RetrievedDocTracker(settings.max_sessions, new_session)
