"""What one session was given: marks, claims of them, and claims taken back (design.md 5, 6)."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
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
    although it had the same. `domains` are the session's after the claim, as first seen. The rest
    is for `take_back`. (A tuple because a frozen dataclass takes a third of a claim's time.)
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


class Session:
    """The documents one session was given; the domains are derived from them.

    A mark is the candidate that was given; of equal ones each is an object of its own, so that a
    claim knows its marks by identity. `lock` guards the fields from `given` on.
    """

    __slots__ = ("born", "domains", "given", "lock", "queued", "undone", "used", "withdrawn")

    def __init__(self, stamp: int) -> None:
        self.lock = threading.Lock()
        self.born = self.queued = self.used = stamp
        self.given: dict[str, Candidate] = {}
        self.domains: dict[str, None] | None = {}  # None: to be derived again
        self.undone: dict[int, None] = {}  # stamps of claims taken back
        self.withdrawn: dict[int, tuple[Candidate, Candidate | None]] = {}  # below a later mark

    def choose(
        self, exact: Sequence[Candidate], near: Sequence[Candidate], limit: int
    ) -> tuple[list[Candidate], tuple[Candidate, ...]]:
        """What the session does not have and gets a place; what it has and is passed over."""
        given = self.given
        if not given:
            return places(exact, near, limit=limit), ()
        passed: dict[str, Candidate] = {}

        def known(candidate: Candidate) -> bool:
            path, _, content_hash = candidate
            mark = given.get(path)
            if mark is None or not same_version(mark, content_hash):
                return False
            passed[path] = candidate
            return True

        taken = places(exact, near, limit=limit, given=known)
        if len(exact) >= limit:  # `places` may have left L0 matches without a look
            last = taken[-1][0] if len(taken) >= limit else None
            ranked = takewhile(lambda candidate: candidate[0] != last, chain(exact, near))
            passed = {candidate[0]: candidate for candidate in ranked if known(candidate)}
        return taken, tuple(passed.values())

    def mark_fresh(
        self, plan: Mapping[str, Candidate], handed: Sequence[Candidate]
    ) -> tuple[str, ...] | None:
        """Mark `handed` and return the domains; None if any document of the plan was given."""
        given = self.given
        if not given.keys().isdisjoint(plan):
            return None
        domains = self.seen_domains() if self.domains is None else self.domains
        for candidate in handed:
            path, domain, _ = candidate
            given[path] = candidate
            domains[domain] = None
        return tuple(domains)

    def mark(self, taken: Sequence[Candidate], handed_count: int) -> dict[str, Replaced]:
        """Mark the first `handed_count` of `taken`; returns those given before, by path."""
        given, domains, moved = self.given, self.seen_domains(), False
        replaced = {}
        for position, candidate in enumerate(taken):
            path, domain, content_hash = candidate
            former = given.get(path)
            if former is not None:
                candidate = Candidate(path, domain, content_hash)
                replaced[path] = Replaced(former, candidate)
            if position >= handed_count:
                continue
            given[path] = candidate
            domains[domain] = None
            moved |= former is not None and former.domain != domain
        if moved:
            self.domains = None
        return replaced

    def undo(self, claim: Claim) -> None:
        """Take a claim's marks away; what they replaced comes back."""
        if claim.stamp < self.born or claim.stamp in self.undone:
            return
        self.undone[claim.stamp] = None
        for candidate in claim.taken[: claim.handed_count]:
            former, mark = claim.replaced.get(candidate.path, (None, candidate))
            self._unmark(mark, former)
        self.domains = None

    def _unmark(self, mark: Candidate, former: Candidate | None) -> None:
        """Undo one mark; below a later one it is noted, so that undoing that one skips it."""
        if self.given.get(mark.path) is not mark:
            self.withdrawn[id(mark)] = (mark, former)
            return
        while former is not None and id(former) in self.withdrawn:
            former = self.withdrawn.pop(id(former))[1]
        if former is None:
            del self.given[mark.path]
        else:
            self.given[mark.path] = former

    def seen_domains(self) -> dict[str, None]:
        """The domains in the order first seen."""
        if self.domains is None:
            self.domains = dict.fromkeys(mark.domain for mark in self.given.values())
        return self.domains


def same_version(before: Candidate, content_hash: str | None) -> bool:
    """What was given before is this version; None stands for any."""
    return content_hash is None or before[2] is None or before[2] == content_hash


def given_before(
    taken: Sequence[Candidate], replaced: Mapping[str, Replaced]
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """Those of `taken` that were given before: in the same version, in another version."""
    met = [candidate for candidate in taken if candidate.path in replaced]
    again = tuple(c for c in met if same_version(replaced[c.path].former, c.content_hash))
    return again, tuple(candidate for candidate in met if candidate not in again)
