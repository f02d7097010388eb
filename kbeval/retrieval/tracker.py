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
    handed_count: int = 0  # so many of `taken` carry this claim's stamp
    former: Mapping[str, tuple[Candidate, int]] = MappingProxyType({})  # what stood before, by path


class _Session:
    """The documents one session was given; the domains are derived from them.

    `given` holds what the last mark of a document said, `stamps` which claim or call made it (every
    one has its own number). `lock` guards these and what follows them.
    """

    __slots__ = ("born", "domains", "given", "lock", "queued", "stamps", "used", "withdrawn")

    def __init__(self, stamp: int) -> None:
        self.lock = threading.Lock()
        self.born = self.queued = self.used = stamp
        self.given: dict[str, Candidate] = {}
        self.stamps: dict[str, int] = {}
        self.domains: tuple[str, ...] | None = ()  # None: to be derived again
        self.withdrawn: dict[tuple[str, int], tuple[Candidate, int] | None] = {}

    def choose(
        self, exact: Sequence[Candidate], near: Sequence[Candidate], limit: int
    ) -> tuple[list[Candidate], tuple[Candidate, ...]]:
        """What the session does not have and gets a place; what it has and is passed over."""
        given = self.given
        if not given:
            return places(exact, near, limit=limit), ()
        passed: dict[str, Candidate] = {}

        def known(candidate: Candidate) -> bool:
            before = given.get(candidate[0])
            if before is None or not _same_version(before, candidate[2]):
                return False
            passed[candidate[0]] = candidate
            return True

        taken = places(exact, near, limit=limit, given=known)
        if len(exact) >= limit:  # `places` may have left L0 matches without a look
            last = taken[-1][0] if len(taken) >= limit else None
            ranked = takewhile(lambda candidate: candidate[0] != last, chain(exact, near))
            passed = {candidate[0]: candidate for candidate in ranked if known(candidate)}
        return taken, tuple(passed.values())

    def mark(
        self, taken: Sequence[Candidate], stamp: int, handed_count: int
    ) -> dict[str, tuple[Candidate, int]]:
        """Mark the first `handed_count` of `taken`; returns what all of it met, by path."""
        given, stamps, domains = self.given, self.stamps, self.domains
        met = {}
        for position, candidate in enumerate(taken):
            path, domain, _ = candidate
            former = given.get(path)
            if former is not None:
                met[path] = (former, stamps[path])
            if position >= handed_count:
                continue
            if former is not None and former.domain != domain:
                domains = None
            elif domains is not None and domain not in domains:
                domains = (*domains, domain)
            given[path] = candidate
            stamps[path] = stamp
        self.domains = domains
        return met

    def unmark(self, path: str, stamp: int, former: tuple[Candidate, int] | None) -> None:
        """Undo one mark; below a later one it is noted, so that undoing that one skips it."""
        if path not in self.given:
            return
        if self.stamps[path] != stamp:
            self.withdrawn[path, stamp] = former
            return
        while former is not None and (path, former[1]) in self.withdrawn:
            former = self.withdrawn.pop((path, former[1]))
        if former is None:
            del self.given[path], self.stamps[path]
        else:
            self.given[path], self.stamps[path] = former
        self.domains = None

    def seen_domains(self) -> tuple[str, ...]:
        """The domains in the order first seen, each once."""
        if self.domains is None:
            self.domains = tuple(dict.fromkeys(before.domain for before in self.given.values()))
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
    documents takes about 5 kB, so the default bound is about 50 MB.
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
            stamp = session.used = next(self._clock)
            session.mark([Candidate(path, domain, content_hash)], stamp, 1)

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
            return session.seen_domains()

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
            handed_count = len(taken) if mark == "all" else 1
            former = session.mark(taken, stamp, handed_count)
            domains = session.seen_domains()
        answer = tuple(taken)
        marked = answer[:handed_count]
        changed: tuple[Candidate, ...] = ()
        again: tuple[Candidate, ...] = ()
        if former:
            met = [candidate for candidate in answer if candidate[0] in former]
            again = tuple(c for c in met if _same_version(former[c.path][0], c.content_hash))
            changed = tuple(candidate for candidate in met if candidate not in again)
            marked = tuple(candidate for candidate in marked if candidate not in again)
        return Claim(answer, marked, withheld, changed, again, domains, stamp, handed_count, former)

    def take_back(self, session_id: str, claim: Claim) -> None:
        """Undo what a claim marked, for an answer that was never delivered.

        Documents it marked because their content had changed get their former mark back. What was
        marked since by others stays; a session that was cleared or left meanwhile is not touched.
        """
        session = self._known(session_id)
        if session is None:
            return
        with session.lock:
            if claim.stamp > session.born:
                for path, _, _ in claim.taken[: claim.handed_count]:
                    session.unmark(path, claim.stamp, claim.former.get(path))

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
