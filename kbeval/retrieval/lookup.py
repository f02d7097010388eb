"""One look-up under way: gather, rank, claim, grade, answer, in this order (design.md 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbeval.config import Settings
from kbeval.corpus.tokens import Tokenizer
from kbeval.records import Document, Level, LookupResult, PrimaryResult, SupplementResult
from kbeval.retrieval.answer import HINTS, already_retrieved, message
from kbeval.retrieval.details import base_details, dedup_reason, horizon_details, match_details
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.matches import Match, Matches, level_of, matches_of
from kbeval.retrieval.ranking import places
from kbeval.retrieval.tokens import result_tokens
from kbeval.retrieval.tracker import Claim, RetrievedDocTracker


class Outcome(NamedTuple):
    """The result, and the columns of its record."""

    result: LookupResult
    level: str | None
    reason: str | None
    details: dict[str, Any]


class Lookup:
    """One look-up under way: what it works on, and what it has claimed so far."""

    def __init__(
        self,
        query: str,
        session_id: str | None,
        *,
        knowledge: Knowledge,
        tracker: RetrievedDocTracker,
        settings: Settings,
        tokenizer: Tokenizer | None,
        redeliver: bool,
    ) -> None:
        self.query = query
        self.session_id = session_id  # None: nothing is remembered or passed over
        self.knowledge = knowledge
        self.tracker = tracker
        self.settings = settings
        self.retrieval = settings.retrieval
        self.tokenizer = tokenizer
        self.redeliver = redeliver
        self.claim: Claim | None = None

    def outcome(self) -> Outcome:
        """Look it up; after an exception `take_back` is due."""
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
        details |= {"query_truncated": truncated} | self._horizon(result)
        return Outcome(result, name, reason, details)

    def take_back(self) -> None:
        """Leave the session as if this look-up had not been."""
        if self.claim is not None and self.session_id is not None:
            self.tracker.take_back(self.session_id, self.claim)
        self.claim = None

    def _claimed(self, vectors: NDArray[np.float32]) -> tuple[Matches, Claim, bool]:
        """Claim up to `limit` fresh documents, looking deeper until they are found or none is.

        Among the `limit` + given nearest at least `limit` are fresh, so one pass is enough
        unless another thread of the session claims some in between, or copies are known by
        their content.
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
            mark="all" if self._marks_all() else "primary",
            redeliver=self.redeliver,
        )

    def _marks_all(self) -> bool:
        """Only a document whose whole text is handed out is ever marked (design.md 4)."""
        return self.settings.session.mark == "all" and self.retrieval.supplement_content == "full"

    def _horizon(self, result: LookupResult) -> dict[str, Any]:
        """What is recorded in a session that forgets; it is told the size of the answer."""
        if self.session_id is None or self.claim is None or not self.settings.session.forgets:
            return {}
        token_count = None
        if self.tokenizer is not None and self.settings.session.horizon_tokens is not None:
            token_count = result_tokens(result, self.tokenizer).total
            self.tracker.handed_out(self.session_id, self.claim, token_count)
        return horizon_details(self.claim, token_count)

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
            candidate = match.candidate
            if candidate.path in taken or not self.tracker.knows(self.session_id, candidate):
                return match
        return None

    def _nothing(self, name: str) -> Outcome:
        """There was nothing to look up, or nowhere; no document is claimed."""
        domains: tuple[str, ...] = ()
        if self.session_id is not None:
            if self.settings.session.forgets:  # a look-up all the same: it ages what was given
                self.claim = self.tracker.claim(self.session_id, (), (), limit=1)
            domains = self.tracker.get_retrieved_domains(self.session_id)
        result = LookupResult(
            found=False,
            message=message(self.settings.locale, name),
            retrieved_domains_this_session=domains,
        )
        level = Level.NOT_FOUND.name
        details = self._base(result, level, None) | {"reason": name} | self._horizon(result)
        return Outcome(result, level, None, details)

    def _base(self, result: LookupResult, level: str | None, reason: str | None) -> dict[str, Any]:
        return base_details(
            result,
            level,
            reason,
            normalization=self.retrieval.normalization,
            encoder=self.knowledge.encoder.fingerprint,
        )
