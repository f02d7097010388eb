"""Which session was given which document (FS-3, REQ-01, design.md 5 and 6)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, count, takewhile
from types import MappingProxyType
from typing import Literal, NamedTuple

from kbeval.corpus.identity import normalised_path
from kbeval.errors import ConfigError
from kbeval.retrieval.ranking import places

log = logging.getLogger(__name__)


class Candidate(NamedTuple):
    """A document that matches; `path` is its identity, as the corpus has it."""

    path: str
    domain: str
    content_hash: str | None = None  # None: any version


class _Replaced(NamedTuple):
    """A document that was given before: the mark found there, and the one put in its place."""

    former: Candidate
    mark: Candidate


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
    replaced: Mapping[str, _Replaced] = MappingProxyType({})  # by path


class _Session:
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
            if mark is None or not _same_version(mark, content_hash):
                return False
            passed[path] = candidate
            return True

        taken = places(exact, near, limit=limit, given=known)
        if len(exact) >= limit:  # `places` may have left L0 matches without a look
            last = taken[-1][0] if len(taken) >= limit else None
            ranked = takewhile(lambda candidate: candidate[0] != last, chain(exact, near))
            passed = {candidate[0]: candidate for candidate in ranked if known(candidate)}
        return taken, tuple(passed.values())

    def mark(self, taken: Sequence[Candidate], handed_count: int) -> dict[str, _Replaced]:
        """Mark the first `handed_count` of `taken`; returns those given before, by path."""
        given, domains, moved = self.given, self.seen_domains(), False
        replaced = {}
        for position, candidate in enumerate(taken):
            path, domain, content_hash = candidate
            former = given.get(path)
            if former is not None:
                candidate = Candidate(path, domain, content_hash)
                replaced[path] = _Replaced(former, candidate)
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


def _same_version(before: Candidate, content_hash: str | None) -> bool:
    return content_hash is None or before[2] is None or before[2] == content_hash


class RetrievedDocTracker:
    """Remember which documents and domains each session was given (FS-3).

    A session maps documents to marks, and the domains are read off them, so the two layers cannot
    disagree. Every operation on a session is atomic; sessions do not wait for each other: only
    opening, clearing and evicting one takes the common lock, for a moment.

    At most `max_sessions` are kept. Beyond it the one idle longest leaves (counted in
    `evicted_count`, logged at 1, 10, 100, ...) and starts empty should it come back; what a claim
    in flight does to a session that leaves or is cleared meanwhile leaves with it. A session of 20
    documents takes 1 to 4 kB (less when candidates are shared), so the default bound is 40 MB.
    """

    def __init__(self, max_sessions: int = 10_000) -> None:
        if max_sessions < 1:
            raise ConfigError(f"session.max-sessions is {max_sessions}; 1 or more is allowed")
        self.max_sessions = max_sessions
        self.evicted_count = 0
        self._sessions: dict[str, _Session] = {}
        self._clock = count(1)
        self._idle: list[tuple[int, str]] = []  # a heap of (`queued`, session id), lazily updated
        self._lock = threading.Lock()  # guards changes of the three above

    def __len__(self) -> int:
        """How many sessions are remembered."""
        return len(self._sessions)

    def mark_retrieved(
        self, session_id: str, domain: str, file_path: str, content_hash: str | None = None
    ) -> None:
        """Record a document and its domain as given (FS-3); the last mark of a document holds.

        Any spelling of the path will do (SM-01). Without a hash the mark stands for every version.
        Raises `CorpusError` for a path that leaves the root.
        """
        path = normalised_path(file_path)
        session = self._session(session_id)
        with session.lock:
            session.used = next(self._clock)
            session.mark([Candidate(path, domain, content_hash)], 1)

    def is_doc_retrieved(
        self, session_id: str, file_path: str, content_hash: str | None = None
    ) -> bool:
        """The session was given this document, in this version; None asks for any (FS-3).

        Raises `CorpusError` for a path that leaves the root.
        """
        session = self._known(session_id)
        given = {} if session is None else session.given
        before = given.get(file_path) or given.get(normalised_path(file_path))
        return before is not None and _same_version(before, content_hash)

    def is_already_retrieved(self, session_id: str, file_path: str) -> bool:
        """The older name of `is_doc_retrieved` (FS-3)."""
        return self.is_doc_retrieved(session_id, file_path)

    def is_domain_retrieved(self, session_id: str, domain: str) -> bool:
        """The session was given a document of this domain (FS-3)."""
        return domain in self.get_retrieved_domains(session_id)

    def get_retrieved_domains(self, session_id: str) -> tuple[str, ...]:
        """The domains of the documents given, in the order first seen, each once (FS-3)."""
        session = self._known(session_id)
        if session is None:
            return ()
        with session.lock:
            return tuple(session.seen_domains())

    def given_count(self, session_id: str) -> int:
        """How many documents the session was given."""
        session = self._known(session_id)
        return 0 if session is None else len(session.given)

    def clear_session(self, session_id: str) -> None:
        """Forget everything about a session (FS-3, REQ-01.5); unknown ids are fine."""
        with self._lock:
            self._sessions.pop(session_id, None)
            if len(self._idle) > 2 * len(self._sessions) + 64:
                self._idle = [(session.queued, key) for key, session in self._sessions.items()]
                heapify(self._idle)

    def claim(
        self,
        session_id: str,
        exact: Sequence[Candidate],
        near: Sequence[Candidate],
        *,
        limit: int,
        mark: Literal["all", "primary"] = "all",
        redeliver: bool = False,
    ) -> Claim:
        """Take up to `limit` documents the session does not have, and mark them, in one step.

        `exact` are the L0 matches, `near` the L1 documents at or above reference, nearest first;
        who gets a place is the rule of `places`. `mark="primary"` marks only the first one (where
        supplements carry a passage, not the whole text). With `redeliver` nothing is passed over.
        """
        session = self._session(session_id)
        withheld: tuple[Candidate, ...] = ()
        with session.lock:
            stamp = session.used = next(self._clock)
            if redeliver:
                taken = places(exact, near, limit=limit)
            else:
                taken, withheld = session.choose(exact, near, limit)
            handed_count = len(taken) if mark == "all" else min(1, len(taken))
            replaced = session.mark(taken, handed_count)
            domains = tuple(session.seen_domains())
        answer = tuple(taken)
        marked = answer[:handed_count]
        if not replaced:
            return Claim(answer, marked, withheld, (), (), domains, stamp, handed_count)
        again, changed = _given_before(answer, replaced)
        marked = tuple(candidate for candidate in marked if candidate not in again)
        return Claim(
            answer, marked, withheld, changed, again, domains, stamp, handed_count, replaced
        )

    def take_back(self, session_id: str, claim: Claim) -> None:
        """Undo what a claim marked, for an answer that was never delivered.

        Documents it marked because their content had changed get their former mark back. What was
        marked since by others stays; a session that was cleared or left meanwhile is not touched.
        """
        session = self._known(session_id)
        if session is not None:
            with session.lock:
                session.undo(claim)

    def _known(self, session_id: str) -> _Session | None:
        session = self._sessions.get(session_id)
        if session is not None:
            session.used = next(self._clock)
        return session

    def _session(self, session_id: str) -> _Session:
        return self._sessions.get(session_id) or self._open(session_id)

    def _open(self, session_id: str) -> _Session:
        evicted = 0
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                if len(self._sessions) >= self.max_sessions:
                    evicted = self._evict()
                session = self._sessions[session_id] = _Session(next(self._clock))
                heappush(self._idle, (session.queued, session_id))
        if evicted and evicted == 10 ** (len(str(evicted)) - 1):
            log.warning(
                "session memory is full (session.max-sessions %d), sessions forgotten so far: %d",
                self.max_sessions,
                evicted,
            )
        return session

    def _evict(self) -> int:
        """Forget the session idle longest; entries of the heap that are out of date are renewed."""
        while True:
            queued, session_id = self._idle[0]
            session = self._sessions.get(session_id)
            if session is None or session.queued != queued:  # cleared since
                heappop(self._idle)
            elif session.used != queued:
                session.queued = session.used
                heapreplace(self._idle, (session.queued, session_id))
            else:
                heappop(self._idle)
                del self._sessions[session_id]
                self.evicted_count += 1
                return self.evicted_count


def _given_before(
    taken: Sequence[Candidate], replaced: Mapping[str, _Replaced]
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """Those of `taken` that were given before: in the same version, in another version."""
    met = [candidate for candidate in taken if candidate.path in replaced]
    again = tuple(c for c in met if _same_version(replaced[c.path].former, c.content_hash))
    return again, tuple(candidate for candidate in met if candidate not in again)
