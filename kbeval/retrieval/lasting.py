"""The session memory as REQ-01 has it: marks, and claims taken back exactly (design.md 5, 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kbeval.retrieval.marks import Candidate, Claim, Replaced, Session, same_version
from kbeval.retrieval.ranking import places


class LastingSession(Session):
    """A session that forgets nothing, and knows a document by path and content (the default).

    It maps documents to marks; the domains are derived from them.

    A mark is the candidate that was given; of equal ones each is an object of its own, so that a
    claim knows its marks by identity. `lock` guards the fields from `given` on.
    """

    __slots__ = ("domains", "given", "undone", "withdrawn")

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.given: dict[str, Candidate] = {}
        self.domains: dict[str, None] | None = {}  # None: to be derived again
        self.undone: dict[int, None] = {}  # stamps of claims taken back
        self.withdrawn: dict[int, tuple[Candidate, Candidate | None]] = {}  # below a later mark

    def knows(self, candidate: Candidate) -> bool:
        """A look-up would pass this document over."""
        mark = self.given.get(candidate[0])
        return mark is not None and same_version(mark, candidate[2])

    def has_path(self, path: str) -> bool:
        """Some version of the document at this path was given."""
        return path in self.given

    def given_count(self) -> int:
        """How many documents a look-up may have to pass over."""
        return len(self.given)

    def give(self, candidate: Candidate, stamp: int) -> None:
        """Mark a document outside any look-up."""
        self.mark([candidate], 1)

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
        """Take what gets a place and is not known, and mark it; `lock` is held."""
        withheld: tuple[Candidate, ...] = ()
        if redeliver:
            taken = places(exact, near, limit=limit)
        else:
            taken, withheld = self.choose(exact, near, limit)
        handed_count = len(taken) if mark_all else min(1, len(taken))
        replaced = self.mark(taken, handed_count)
        domains = tuple(self.seen_domains())
        answer = tuple(taken)
        marked = answer[:handed_count]
        if not replaced:
            return Claim(answer, marked, withheld, (), (), domains, stamp, handed_count)
        again, changed = given_before(answer, replaced)
        marked = tuple(candidate for candidate in marked if candidate not in again)
        return Claim(
            answer, marked, withheld, changed, again, domains, stamp, handed_count, replaced
        )

    def passing(self, passed: dict[str, Candidate]) -> Callable[[Candidate], bool]:
        """`knows`, which also writes down in `passed` what it was asked for and knew."""
        given = self.given

        def known(candidate: Candidate) -> bool:
            path, _, content_hash = candidate
            mark = given.get(path)
            if mark is None or not same_version(mark, content_hash):
                return False
            passed[path] = candidate
            return True

        return known

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


def given_before(
    taken: Sequence[Candidate], replaced: Mapping[str, Replaced]
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """Those of `taken` that were given before: in the same version, in another version."""
    met = [candidate for candidate in taken if candidate.path in replaced]
    again = tuple(c for c in met if same_version(replaced[c.path].former, c.content_hash))
    return again, tuple(candidate for candidate in met if candidate not in again)
