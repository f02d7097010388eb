"""The few sessions of a replay that are kept whole: asked for, or where policies differ most."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import count

import pandas as pd

from kbeval.errors import DatasetError
from kbeval.evaluation.ledger.lines import SessionLines
from kbeval.evaluation.replaying.outcomes import SessionReplay
from kbeval.studies.replay_rows import session_rows
from kbeval.studies.replay_timeline import documents_of, timeline

MOST = 20  # sessions kept because policies differ
COLUMNS = ("session_id", "turns", "harm_differs", "tokens_differ")


@dataclass(frozen=True, slots=True, eq=False)
class KeptSession:
    """One session under every policy; `differences` are those of harm and of tokens."""

    replayed: SessionReplay
    lines: Mapping[str, SessionLines]
    differences: tuple[int, int]

    def timeline(self, shown: Callable[[str], str] = str) -> pd.DataFrame:
        """Turn by turn and policy against policy."""
        return timeline(self.replayed, self.lines, shown=shown)

    def documents(self) -> pd.DataFrame:
        """The documents that the timeline numbers."""
        return documents_of(self.replayed)


class Keeper:
    """Keeps the sessions `wanted` by id, and the `MOST` where policies differ most.

    First counts by how many turns the policies' harm differs, then the spread of their tokens;
    of equals the first stays. Only `policies` are compared (None: all).
    """

    def __init__(
        self,
        wanted: Collection[str] = (),
        *,
        policies: Collection[str] | None = None,
        most: int = MOST,
    ) -> None:
        self._wanted = frozenset(wanted)
        self._policies = policies
        self._asked: dict[str, KeptSession] = {}
        self._most = most
        self._heap: list[tuple[tuple[int, int, int], KeptSession]] = []
        self._number = count()

    def add(self, replayed: SessionReplay, lines: Mapping[str, SessionLines]) -> None:
        """Keep the session if it is wanted, or among the most different so far."""
        session = KeptSession(replayed, lines, self._differences(replayed, lines))
        session_id = replayed.session.session_id
        if session_id in self._wanted:
            self._asked[session_id] = session
        rank = (*session.differences, -next(self._number))
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, (rank, session))
        elif rank > self._heap[0][0]:
            heapq.heapreplace(self._heap, (rank, session))

    def _differences(
        self, replayed: SessionReplay, lines: Mapping[str, SessionLines]
    ) -> tuple[int, int]:
        """By how many turns the policies' harm differs, and by how many tokens their answers."""
        found = [
            (row["harmed_at_most"], row["tokens"])
            for row in session_rows(replayed, lines)
            if self._policies is None or row["policy"] in self._policies
        ]
        harm, tokens = zip(*found, strict=True)
        return max(harm) - min(harm), max(tokens) - min(tokens)

    def sessions(self) -> dict[str, KeptSession]:
        """By id: the most different first, then those asked for.

        Raises `DatasetError` for one asked for that did not come.
        """
        missing = sorted(self._wanted - set(self._asked))
        if missing:
            raise DatasetError(f"session {missing[0]!r} is not among the sessions replayed")
        ordered = [
            session for _, session in sorted(self._heap, key=lambda one: one[0], reverse=True)
        ]
        return {one.replayed.session.session_id: one for one in ordered} | self._asked


def most_different(sessions: Mapping[str, KeptSession]) -> pd.DataFrame:
    """A row a session: how far the policies differ, what each saves and how many turns it harms."""
    rows = []
    for session_id, session in sessions.items():
        harm, tokens = session.differences
        own = {row["policy"]: row for row in session_rows(session.replayed, session.lines)}
        turns = len(session.replayed.session.turns)
        rows.append(
            dict(zip(COLUMNS, (session_id, turns, harm, tokens), strict=True))
            | {f"saved, {name}": row["saved"] for name, row in own.items()}
            | {f"harmed, {name}": row["harmed_at_most"] for name, row in own.items()}
        )
    return pd.DataFrame(rows)
