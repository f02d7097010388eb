"""`lookup_knowledge`: the tool, its session memory, and what is recorded (FS-4, FS-6, REQ-01)."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from kbeval.config import Settings
from kbeval.corpus.tokens import Tokenizer, open_tokenizer
from kbeval.errors import ConfigError
from kbeval.records import Invocation, LookupResult
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.lookup import Lookup
from kbeval.retrieval.memory import open_tracker
from kbeval.retrieval.session import clear_at_end, current_session
from kbeval.retrieval.tracker import Claim, RetrievedDocTracker

log = logging.getLogger(__name__)

TOOL_NAME = "lookup_knowledge"


class KnowledgeTool:
    """The tool an agent calls. It keeps what each session was given and writes nothing to disk.

    `knowledge` may be replaced while look-ups run; each of them works on the one it began with.
    What a session remembers is up to `settings.session`: without a memory nothing is marked, passed
    over or listed as a domain. A `tracker` that is given keeps its own kind of session. The
    `tokenizer`, by default deepseek's, is for a horizon in tokens.
    Raises `ConfigError` if the settings and the knowledge base differ in distance or keys.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        settings: Settings | None = None,
        tracker: RetrievedDocTracker | None = None,
        *,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.settings = settings or Settings(retrieval=knowledge.retrieval)
        _check_same(self.settings, knowledge)
        self.knowledge = knowledge
        memory = self.settings.session
        self.tracker = open_tracker(memory) if tracker is None else tracker
        self.tokenizer = tokenizer
        if tokenizer is None and memory.horizon_tokens is not None:
            self.tokenizer = open_tokenizer()
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
        remembers = self.settings.session.memory == "documents"
        lookup = Lookup(
            query,
            session_id if remembers else None,
            knowledge=self.knowledge,
            tracker=self.tracker,
            settings=self.settings,
            tokenizer=self.tokenizer,
            redeliver=redeliver,
        )
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
            if self.sessionless_count == 1 and self.settings.session.memory != "none":
                log.warning("a look-up ran without a session: nothing is remembered for it")
        return session_id


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
