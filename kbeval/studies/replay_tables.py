"""A stream of replayed sessions as small tables: what adds up while they pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import pandas as pd

from kbeval.evaluation.replaying.outcomes import Handed, SessionReplay
from kbeval.evaluation.replaying.policies import NO_MEMORY

NEW, ALIAS, AGAIN = "new", "same content, other path", "given before"


class Along:
    """The tokens that sessions were given up to each of their turns, by policy."""

    def __init__(self) -> None:
        self._tokens: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._running: Counter[int] = Counter()  # sessions that have such a turn
        self._sessions = 0

    def add(self, replayed: SessionReplay) -> None:
        """Count one session."""
        self._sessions += 1
        self._running.update(range(1, len(replayed.session.turns) + 1))
        for name, outcomes in replayed.outcomes.items():
            given = {turn: o.token_count for turn, o in enumerate(outcomes, start=1)}
            self._tokens[name].update(given)

    def table(self, policies: Iterable[str] | None = None) -> pd.DataFrame:
        """A row a policy and turn: sessions that have the turn, tokens so far, mean a session.

        A session that has ended keeps its sum, so that the last value is the mean of the whole.
        """
        rows = []
        for name in self._tokens if policies is None else policies:
            tokens, so_far = self._tokens[name], 0
            for turn in sorted(self._running):
                so_far += tokens[turn]
                rows.append((name, turn, self._running[turn], so_far / self._sessions))
        return pd.DataFrame(rows, columns=["policy", "turn", "sessions", "tokens_so_far"])


class Repeated:
    """Of the documents that are handed out without a memory, which the session had before."""

    def __init__(self) -> None:
        self._by_turn: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._by_domain: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, replayed: SessionReplay) -> None:
        """Count the documents of one session."""
        had: set[tuple[str, str]] = set()
        for turn, outcome in enumerate(replayed.outcomes[NO_MEMORY], start=1):
            for handed in outcome.handed:
                kind = _kind(handed, had)
                self._by_turn[turn][kind] += 1
                self._by_domain[handed.domain][kind] += 1
            had |= {(handed.path, handed.content) for handed in outcome.handed}

    def by_turn(self) -> pd.DataFrame:
        """A row a turn of the session: documents that are new, the same again, or an alias."""
        return _counts("turn", sorted(self._by_turn.items()))

    def by_domain(self, most: int = 12) -> pd.DataFrame:
        """The same by domain, most repeats first; domains after the first `most` in one row."""
        ordered = sorted(
            self._by_domain.items(), key=lambda row: (-row[1][AGAIN] - row[1][ALIAS], row[0])
        )
        rest = ordered[most:]
        if len(rest) > 1:
            together: Counter[str] = sum((counts for _, counts in rest), Counter())
            ordered = [*ordered[:most], (f"{len(rest)} others", together)]
        return _counts("domain", ordered)


def _kind(handed: Handed, had: set[tuple[str, str]]) -> str:
    if (handed.path, handed.content) in had:
        return AGAIN
    return ALIAS if any(content == handed.content for _, content in had) else NEW


def _counts(name: str, rows: Iterable[tuple[object, Counter[str]]]) -> pd.DataFrame:
    table = [(key, *(counts[kind] for kind in (NEW, ALIAS, AGAIN))) for key, counts in rows]
    return pd.DataFrame(table, columns=[name, NEW, ALIAS, AGAIN])
