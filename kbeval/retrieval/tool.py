"""`lookup_knowledge`: gather, rank, claim, grade, answer, in this order (design.md 3)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbeval.config import Settings
from kbeval.errors import ConfigError
from kbeval.records import (
    Document,
    Invocation,
    Level,
    LookupResult,
    PrimaryResult,
    SupplementResult,
)
from kbeval.retrieval.answer import HINTS, already_retrieved, message
from kbeval.retrieval.details import base_details, dedup_reason, match_details
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.matches import Match, Matches, level_of, matches_of
from kbeval.retrieval.ranking import places
from kbeval.retrieval.session import clear_at_end, current_session
from kbeval.retrieval.tracker import Claim, RetrievedDocTracker

log = logging.getLogger(__name__)

TOOL_NAME = "lookup_knowledge"


class KnowledgeTool:
    """The tool an agent calls. It keeps what each session was given and writes nothing to disk.

    `knowledge` may be replaced while look-ups run; each of them works on the one it began with.
    Raises `ConfigError` if the settings and the knowledge base differ in distance or keys.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        settings: Settings | None = None,
        tracker: RetrievedDocTracker | None = None,
    ) -> None:
        self.settings = settings or Settings(retrieval=knowledge.retrieval)
        _check_same(self.settings, knowledge)
        self.knowledge = knowledge
        self.tracker = tracker or RetrievedDocTracker(self.settings.session.max_sessions)
        self.sessionless_count = 0  # look-ups that had no session, hence no memory
        clear_at_end(self.tracker)

    def lookup_knowledge(
        self, query: str, session_id: str | None = None, *, redeliver: bool = False
    ) -> tuple[LookupResult, Invocation]:
        """Answer one query and say what to record about it.

        The session is the argument, else that of the enclosing `session_scope`; without one the
        session filter is skipped (REQ-01.1). With `redeliver` the caller asks for documents that
        were given before. An exception takes back what was claimed; a caller that fails later
        calls `take_back`. Raises `VectorError` for a query whose embedding is invalid.
        """
        started, clock = datetime.now(UTC), time.perf_counter()
        session_id = self._session(session_id)
        lookup = _Lookup(self, query, session_id, redeliver)
        try:
            outcome = lookup.outcome()
        except BaseException:
            lookup.take_back()
            raise
        invocation = Invocation(
            tool_name=TOOL_NAME,
            session_id=session_id,
            query=query,
            started_at=started.isoformat(),
            duration_ms=(time.perf_counter() - clock) * 1000,
            relevance_level=outcome.level,
            dedup_reason=outcome.reason,
            retrieval_details=outcome.details,
            claim=lookup.claim,
        )
        return outcome.result, invocation

    def take_back(self, invocation: Invocation) -> None:
        """Forget that this look-up handed anything out, because it never reached the agent."""
        if invocation.session_id is not None and isinstance(invocation.claim, Claim):
            self.tracker.take_back(invocation.session_id, invocation.claim)

    def _session(self, session_id: str | None) -> str | None:
        session_id = current_session() if session_id is None else session_id
        if session_id is None:
            self.sessionless_count += 1
            if self.sessionless_count == 1:
                log.warning("a look-up ran without a session: nothing is remembered for it")
        return session_id


class _Outcome(NamedTuple):
    """The result, and the columns of its record."""

    result: LookupResult
    level: str | None
    reason: str | None
    details: dict[str, Any]


class _Lookup:
    """One look-up under way: what it works on, and what it has claimed so far."""

    def __init__(
        self, tool: KnowledgeTool, query: str, session_id: str | None, redeliver: bool
    ) -> None:
        self.knowledge = tool.knowledge
        self.tracker = tool.tracker
        self.settings = tool.settings
        self.retrieval = tool.settings.retrieval
        self.query = query
        self.session_id = session_id
        self.redeliver = redeliver
        self.claim: Claim | None = None

    def outcome(self) -> _Outcome:
        if not self.query.strip():
            return self._nothing("empty_query")
        if not self.knowledge.documents:
            return self._nothing("empty_index")
        vectors = self.knowledge.embed_queries([self.query])
        matches, claim, truncated = self._claimed(vectors)
        known = {match.document.path: match for match in (*matches.near, *matches.exact)}
        handed = [known[candidate.path] for candidate in claim.taken]
        normalization = self.retrieval.normalization
        level = level_of(
            matches, handed, normalization, precise_requires=self.retrieval.l0.precise_requires
        )
        reason = dedup_reason(claim)
        name = None if reason == "ALL_RETRIEVED" else level.name
        result = self._result(matches, claim, handed, level, vectors[0])
        details = self._base(result, name, reason) | match_details(
            matches,
            claim,
            handed,
            level,
            fresh=self._nearest_fresh(matches, claim),
            reference=normalization.reference_threshold,
        )
        return _Outcome(result, name, reason, details | {"query_truncated": truncated})

    def take_back(self) -> None:
        if self.claim is not None and self.session_id is not None:
            self.tracker.take_back(self.session_id, self.claim)
        self.claim = None

    def _claimed(self, vectors: NDArray[np.float32]) -> tuple[Matches, Claim, bool]:
        """Claim up to `limit` fresh documents, looking deeper until they are found or none is.

        Among the `limit` + given nearest at least `limit` are fresh, so one pass is enough
        unless another thread of the session claims some in between.
        """
        limit = self.retrieval.limit
        depth = limit + 1
        if self.session_id is not None:
            depth += self.tracker.given_count(self.session_id)
        while True:
            evidence = self.knowledge.gather_checked([self.query], vectors, depth=depth)
            matches = matches_of(evidence, self.knowledge.documents, self.retrieval.normalization)
            self.claim = claim = self._claim(matches)
            if len(claim.taken) == limit or matches.exhausted:
                cut = evidence.query_truncated
                return matches, claim, bool(cut is not None and cut[0])
            self.take_back()
            depth *= 4

    def _claim(self, matches: Matches) -> Claim:
        exact = [match.candidate for match in matches.exact]
        near = [match.candidate for match in matches.near]
        if self.session_id is None:
            return Claim(taken=tuple(places(exact, near, limit=self.retrieval.limit)))
        return self.tracker.claim(
            self.session_id,
            exact,
            near,
            limit=self.retrieval.limit,
            mark="all" if self.retrieval.supplement_content == "full" else "primary",
            redeliver=self.redeliver,
        )

    def _result(
        self,
        matches: Matches,
        claim: Claim,
        handed: Sequence[Match],
        level: Level,
        vector: NDArray[np.float32],
    ) -> LookupResult:
        locale = self.settings.locale
        withheld = [candidate.path for candidate in claim.withheld]
        if not handed:
            nothing = message(locale, "nothing_similar")
            return LookupResult(
                found=False,
                message=already_retrieved(locale, withheld) if withheld else nothing,
                retrieved_domains_this_session=claim.domains,
            )
        first = matches.first
        replaced = first is not None and first.document.path in withheld
        primary = handed[0].document
        return LookupResult(
            found=True,
            message=message(locale, "primary_withheld", path=first.document.path)
            if first is not None and replaced
            else "",
            primary=PrimaryResult(primary.path, primary.title, primary.domain, primary.body),
            supplements=tuple(self._supplement(match.document, vector) for match in handed[1:]),
            relevance_level=level.name,
            completeness_hint=HINTS[locale][level],
            retrieved_domains_this_session=claim.domains,
        )

    def _supplement(self, document: Document, vector: NDArray[np.float32]) -> SupplementResult:
        content = document.body
        if self.retrieval.supplement_content == "passage":
            content = self.knowledge.nearest_passage(vector, document.path)
        return SupplementResult(document.path, document.title, document.domain, content)

    def _nearest_fresh(self, matches: Matches, claim: Claim) -> Match | None:
        """The nearest document that the session had not been given before this look-up."""
        if self.session_id is None:
            return matches.nearest[0]
        taken = {c.path for c in claim.taken} - {c.path for c in claim.redelivered}
        for match in matches.nearest:
            path, version = match.document.path, match.document.content_hash
            if path in taken or not self.tracker.is_doc_retrieved(self.session_id, path, version):
                return match
        return None

    def _nothing(self, name: str) -> _Outcome:
        """There was nothing to look up, or nowhere; nothing is claimed."""
        domains: tuple[str, ...] = ()
        if self.session_id is not None:
            domains = self.tracker.get_retrieved_domains(self.session_id)
        result = LookupResult(
            found=False,
            message=message(self.settings.locale, name),
            retrieved_domains_this_session=domains,
        )
        level = Level.NOT_FOUND.name
        return _Outcome(result, level, None, self._base(result, level, None) | {"reason": name})

    def _base(self, result: LookupResult, level: str | None, reason: str | None) -> dict[str, Any]:
        return base_details(
            result,
            level,
            reason,
            normalization=self.retrieval.normalization,
            encoder=self.knowledge.encoder.fingerprint,
        )


def _check_same(settings: Settings, knowledge: Knowledge) -> None:
    """Distances and keys were fixed when the base was built; the rest may change freely."""
    chosen, built = settings.retrieval, knowledge.retrieval
    if chosen.normalization.distance != built.normalization.distance:
        raise ConfigError(
            f"retrieval.normalization.distance: got {chosen.normalization.distance!r}, but the "
            f"index holds {built.normalization.distance!r}; build or load it with these settings"
        )
    keys = {"fields", "min_cjk_length", "min_length"}
    if chosen.l0.model_dump(include=keys) != built.l0.model_dump(include=keys):
        raise ConfigError(
            "retrieval.l0: other keys than the index was built with; "
            "build or load it with these settings"
        )
