"""What a document says between two of its changes, wherever in a session an answer shows it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from kbeval.evaluation.queries import Session
from kbeval.evaluation.replaying.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class Versions:
    """The contents of the documents of one session, so far as its answers tell."""

    changes: Mapping[str, Sequence[int]]  # path -> the turns before which it changed, in order
    known: Mapping[tuple[str, int], Set[str]]  # path, changes before -> names of contents

    def contents(self, path: str, turn: int) -> Set[str]:
        """What the document says at the turn: one content, or none where no answer shows it."""
        return self.known.get((path, _version(self.changes, path, turn)), frozenset())


def versions_of(session: Session, *courses: Sequence[Outcome]) -> Versions:
    """The versions that the answers of `courses` show; each has one outcome a turn."""
    changes: dict[str, list[int]] = defaultdict(list)
    for turn, asked in enumerate(session.turns):
        for path in dict.fromkeys(asked.changed):
            changes[path].append(turn)
    known: dict[tuple[str, int], set[str]] = defaultdict(set)
    for outcomes in courses:
        for turn, outcome in enumerate(outcomes):
            for handed in outcome.handed:
                known[handed.path, _version(changes, handed.path, turn)].add(handed.content)
    return Versions(dict(changes), dict(known))


def _version(changes: Mapping[str, Sequence[int]], path: str, turn: int) -> int:
    return bisect_right(changes.get(path, ()), turn)
