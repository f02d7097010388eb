"""Which session was given which document (FS-3, REQ-01, design.md 5 and 6)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Literal

from kbeval.corpus.identity import normalised_path
from kbeval.errors import ConfigError
from kbeval.retrieval.lasting import LastingSession
from kbeval.retrieval.marks import NONE_REPLACED, Candidate, Claim, Session
from kbeval.retrieval.ranking import places

__all__ = ["Candidate", "Claim", "RetrievedDocTracker"]

log = logging.getLogger(__name__)

_bare = tuple.__new__  # makes a named tuple in half the time of its own constructor


class RetrievedDocTracker:
    """Remember which documents and domains each session was given (FS-3).

    A session maps documents to marks, and the domains are read off them, so the two layers cannot
    disagree. Every operation on a session is atomic; sessions do not wait for each other: only
    opening, clearing and evicting one takes the common lock, for a moment.

    At most `max_sessions` are kept. Beyond it the one idle longest leaves (counted in
    `evicted_count`, logged at 1, 10, 100, ...) and starts empty should it come back; what a claim
    in flight does to a session that leaves or is cleared meanwhile leaves with it. A session of 20
    documents takes 1 to 4 kB (less when candidates are shared), so the default bound is 40 MB.

    What a session remembers, and for how long, is up to what `new_session` makes of a stamp:
    `open_tracker` chooses it by the settings.
    """

    def __init__(
        self, max_sessions: int = 10_000, new_session: Callable[[int], Session] = LastingSession
    ) -> None:
        if max_sessions < 1:
            raise ConfigError(f"session.max-sessions is {max_sessions}; 1 or more is allowed")
        self.max_sessions = max_sessions
        self.evicted_count = 0
        self._new_session = new_session
        self._sessions: dict[str, Session] = {}
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
            session.give(Candidate(path, domain, content_hash), stamp)

    def is_doc_retrieved(
        self, session_id: str, file_path: str, content_hash: str | None = None
    ) -> bool:
        """The session was given this document, in this version; None asks for any (FS-3).

        Raises `CorpusError` for a path that leaves the root.
        """
        session = self._known(session_id)
        opaque = session is not None and session.has_path(file_path)
        path = file_path if opaque else normalised_path(file_path)
        return session is not None and session.knows(Candidate(path, "", content_hash))

    def knows(self, session_id: str, candidate: Candidate) -> bool:
        """A look-up of the session would pass this document over; its path is taken as it is."""
        session = self._known(session_id)
        return session is not None and session.knows(candidate)

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
        """How many documents the session was given, and has not forgotten."""
        session = self._known(session_id)
        return 0 if session is None else session.given_count()

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
        session = self._sessions.get(session_id) or self._open(session_id)
        if len(exact) < limit:  # then `places` looks at every L0 match
            plan = tuple(places(exact, near, limit=limit) if exact else near[:limit])
            if claim := self._claim_plan(session, plan, mark == "all"):
                return claim
        with session.lock:
            stamp = session.used = next(self._clock)
            return session.claim(
                exact,
                near,
                stamp=stamp,
                limit=limit,
                mark_all=mark == "all",
                redeliver=redeliver,
            )

    def handed_out(self, session_id: str, claim: Claim, token_count: int) -> None:
        """Say how many tokens the answer of this claim has, for a horizon that counts them."""
        session = self._known(session_id)
        if session is not None:
            with session.lock:
                session.handed_out(claim.stamp, token_count)

    def take_back(self, session_id: str, claim: Claim) -> None:
        """Undo what a claim marked, for an answer that was never delivered.

        Documents it marked because their content had changed get their former mark back. What was
        marked since by others stays; a session that was cleared or left meanwhile is not touched.
        """
        session = self._known(session_id)
        if session is not None:
            with session.lock:
                session.undo(claim)

    def _claim_plan(
        self, session: Session, plan: tuple[Candidate, ...], mark_all: bool
    ) -> Claim | None:
        """Claim what an empty session would be given, or None if this one has any of it.

        If it has none, nothing is passed over on the way, so that is its answer as well: the
        most frequent case, and the cheapest.
        """
        fresh = {candidate[0]: candidate for candidate in plan}
        if len(fresh) < len(plan):  # two versions of a document
            return None
        handed = plan if mark_all else plan[:1]
        with session.lock:
            stamp = session.used = next(self._clock)
            domains = session.mark_fresh(fresh, handed)
        if domains is None:
            return None
        fields = (plan, handed, (), (), (), domains, stamp, len(handed), NONE_REPLACED, ())
        return _bare(Claim, fields)

    def _known(self, session_id: str) -> Session | None:
        session = self._sessions.get(session_id)
        if session is not None:
            session.used = next(self._clock)
        return session

    def _session(self, session_id: str) -> Session:
        return self._sessions.get(session_id) or self._open(session_id)

    def _open(self, session_id: str) -> Session:
        evicted = 0
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                if len(self._sessions) >= self.max_sessions:
                    evicted = self._evict()
                session = self._sessions[session_id] = self._new_session(next(self._clock))
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
