"""Replayed look-ups as rows of `tool_invocation`, apart from those of the running tool."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbeval.errors import DatabaseError
from kbeval.evaluation.recorded.names import QueryNames
from kbeval.evaluation.replaying.outcomes import Handed, Outcome, SessionReplay
from kbeval.records import Invocation
from kbeval.store.database import name_of
from kbeval.store.invocations import BATCH, read_invocations, save_invocations

if TYPE_CHECKING:
    from kbeval.service.binds import Engine

TOOL_NAME = "replay"  # reports about the tool ask for another name


class ReplayedRows:
    """Saves sessions as they pass, `BATCH` look-ups to a transaction; `close` saves the rest.

    A session's id has the policy's name in front. Skipped look-ups were never made: no row.
    """

    def __init__(self, engine: Engine, names: QueryNames) -> None:
        self.saved_count = 0
        self._engine = engine
        self._names = names
        self._began = datetime.now(UTC)
        self._waiting: list[Invocation] = []

    def add(self, replayed: SessionReplay) -> None:
        """Take in one session under every policy. Raises `DatabaseError` if it is there."""
        if not self.saved_count and not self._waiting:
            self._refuse_second(replayed)
        self._waiting += self._invocations(replayed)
        if len(self._waiting) >= BATCH:
            self.close()

    def close(self) -> None:
        """Save what waits."""
        waiting, self._waiting = self._waiting, []
        self.saved_count += save_invocations(self._engine, waiting)

    def _invocations(self, replayed: SessionReplay) -> Iterator[Invocation]:
        session = replayed.session
        for policy, outcomes in replayed.outcomes.items():
            for place, (turn, outcome) in enumerate(zip(session.turns, outcomes, strict=True)):
                if outcome.skipped:
                    continue
                yield Invocation(
                    tool_name=TOOL_NAME,
                    session_id=replayed_id(policy, session.session_id),
                    query=self._names.shown(turn.query),
                    started_at=(turn.asked_at or self._began).isoformat(),
                    duration_ms=0.0,
                    relevance_level=outcome.level,
                    dedup_reason=outcome.reason,
                    retrieval_details=_details(outcome)
                    | {"policy": policy, "session": session.session_id, "turn": place + 1},
                )

    def _refuse_second(self, replayed: SessionReplay) -> None:
        for policy in replayed.outcomes:
            session_id = replayed_id(policy, replayed.session.session_id)
            if read_invocations(self._engine, session_id=session_id, tool_name=TOOL_NAME):
                raise DatabaseError(
                    f"{name_of(self._engine)}: holds a replay of session {session_id!r} already; "
                    f"give another database, or delete its rows with tool_name {TOOL_NAME!r}"
                )


def replayed_id(policy: str, session_id: str) -> str:
    """The session id under which a policy's look-ups are stored.

    >>> replayed_id("documents, 8 turns", "s1")
    'documents, 8 turns/s1'
    """
    return f"{policy}/{session_id}"


def _details(outcome: Outcome) -> dict[str, Any]:
    """What a replay knows of a look-up, under the keys of the running tool."""
    return {
        "relevance_level": outcome.level,
        "retrieved_domains": list(outcome.domains),
        "dedup_reason": outcome.reason,
        "handed_out": [_handed(handed) for handed in outcome.handed],
        "withheld": list(outcome.withheld),
        "tokens": outcome.token_count,
    }


def _handed(handed: Handed) -> dict[str, Any]:
    return {"file_path": handed.path, "tokens": handed.token_count}
