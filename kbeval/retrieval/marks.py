"""What one session was given: candidates, claims of them, a session (design.md 5, 6)."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, takewhile
from types import MappingProxyType
from typing import NamedTuple

from kbeval.retrieval.ranking import places


class Candidate(NamedTuple):
    """A document that matches; `path` is its identity, as the corpus has it."""

    path: str
    domain: str
    content_hash: str | None = None  # None: any version


class Replaced(NamedTuple):
    """A document that was given before: the mark found there, and the one put in its place."""

    former: Candidate
    mark: Candidate


NONE_REPLACED: Mapping[str, Replaced] = MappingProxyType({})


class Claim(NamedTuple):
    """What one look-up may hand out, and what it changed in the session's memory.

    `taken` is the answer, the primary first. `marked` are those of it that are newly marked.
    `withheld` are the candidates passed over because the session has them, by rank (L0 matches
    first), each once: those that rank before the last one taken when the answer is full, else all.
    `content_changed` were taken because what was given before had another hash, `redelivered`
    although it had the same, `beyond_horizon` because the session has forgotten them. `domains` are
    the session's after the claim, as first seen. The rest is for `take_back`. (A tuple because a
    frozen dataclass takes a third of a claim's time.)
    """

    taken: tuple[Candidate, ...] = ()
    marked: tuple[Candidate, ...] = ()
    withheld: tuple[Candidate, ...] = ()
    content_changed: tuple[Candidate, ...] = ()
    redelivered: tuple[Candidate, ...] = ()
    domains: tuple[str, ...] = ()
    stamp: int = 0
    handed_count: int = 0  # so many of `taken` were marked, again or for the first time
    replaced: Mapping[str, Replaced] = NONE_REPLACED  # by path
    beyond_horizon: tuple[Candidate, ...] = ()


class Session(ABC):
    """What one session was given; `claim` is what a look-up may hand out of it, and marks that.

    The tracker holds `lock` around every call but `knows`, `has_path` and `given_count`, and keeps
    the stamps: of opening, of the last use, and of the use it is queued under.
    """

    __slots__ = ("born", "lock", "queued", "used")

    def __init__(self, stamp: int) -> None:
        self.lock = threading.Lock()
        self.born = self.queued = self.used = stamp

    @abstractmethod
    def knows(self, candidate: Candidate) -> bool:
        """A look-up would pass this document over."""

    @abstractmethod
    def has_path(self, path: str) -> bool:
        """Some version of the document at this path was given."""

    @abstractmethod
    def given_count(self) -> int:
        """How many documents a look-up may have to pass over."""

    @abstractmethod
    def seen_domains(self) -> Iterable[str]:
        """The domains of what the session has, in the order first seen, each once."""

    @abstractmethod
    def give(self, candidate: Candidate, stamp: int) -> None:
        """Mark a document outside any look-up."""

    @abstractmethod
    def claim(
        self,
        exact: Sequence[Candidate],
        near: Sequence[Candidate],
        *,
        stamp: int,
        limit: int,
        mark_all: bool,
        redeliver: bool,
    ) -> Claim:
        """Take what gets a place and is not known, and mark it, or the first one only."""

    @abstractmethod
    def undo(self, claim: Claim) -> None:
        """Take a claim back; one that was taken back, or is of a former session, is passed over."""

    @abstractmethod
    def passing(self, passed: dict[str, Candidate]) -> Callable[[Candidate], bool]:
        """`knows`, which also writes down in `passed` what it was asked for and knew."""

    def mark_fresh(
        self, plan: Mapping[str, Candidate], handed: Sequence[Candidate]
    ) -> tuple[str, ...] | None:
        """A short way of `claim`, where there is one.

        Marks `handed` and returns the domains; None if any document of the plan was given.
        """
        return None

    def handed_out(self, stamp: int, token_count: int) -> None:
        """Told the size of an answer; only a session with a horizon in tokens wants to know."""
        return  # the others let it pass

    def choose(
        self, exact: Sequence[Candidate], near: Sequence[Candidate], limit: int
    ) -> tuple[list[Candidate], tuple[Candidate, ...]]:
        """What the session does not know and gets a place; what it knows and is passed over."""
        passed: dict[str, Candidate] = {}
        known = self.passing(passed)
        taken = places(exact, near, limit=limit, given=known)
        if len(exact) >= limit:  # `places` may have left L0 matches without a look
            last = taken[-1][0] if len(taken) >= limit else None
            ranked = takewhile(lambda candidate: candidate[0] != last, chain(exact, near))
            passed = {candidate[0]: candidate for candidate in ranked if known(candidate)}
        return taken, tuple(passed.values())


def same_version(before: Candidate, content_hash: str | None) -> bool:
    """What was given before is this version; None stands for any."""
    return content_hash is None or before[2] is None or before[2] == content_hash
