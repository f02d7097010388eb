"""From what the tool returned to an `Outcome`: who was handed what, in how many tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kbeval.corpus.tokens import Tokenizer
from kbeval.evaluation.replaying.outcomes import Handed, Outcome
from kbeval.records import Invocation, LookupResult, PrimaryResult, SupplementResult
from kbeval.retrieval.tokens import result_tokens

DOCUMENTS = 65_536  # whose tokens are counted once
FRAMES = 8_192  # answers without their documents, the same


class Answered:
    """Outcomes as one tokenizer counts them, the same as `result_tokens`.

    Documents come again and again, so their count is kept by what they are made of, which spares
    writing their JSON.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._frame_tokens = lru_cache(FRAMES)(self._count_frame)
        self._document_tokens = lru_cache(DOCUMENTS)(self._count_document)

    def outcome(
        self, result: LookupResult, invocation: Invocation, *, passages: bool = False
    ) -> Outcome:
        """What the model was given, and what the record says; supplements may be `passages`."""
        details = invocation.retrieval_details
        handed = self._handed(result, details.get("handed_out", ()), passages)
        frame = self._frame_tokens(
            result.found,
            result.message,
            result.relevance_level,
            result.completeness_hint,
            result.retrieved_domains_this_session,
        )
        return Outcome(
            level=invocation.relevance_level,
            reason=invocation.dedup_reason,
            handed=handed,
            withheld=tuple(details.get("withheld", ())),
            domains=result.retrieved_domains_this_session,
            token_count=frame + sum(document.token_count for document in handed),
        )

    def _handed(
        self, result: LookupResult, rows: Sequence[dict[str, str]], passages: bool
    ) -> tuple[Handed, ...]:
        if result.primary is None:
            return ()
        documents: tuple[PrimaryResult | SupplementResult, ...]
        documents = (result.primary, *result.supplements)
        return tuple(
            Handed(
                document.file_path,
                document.domain,
                row["content_hash"] or document.file_path,
                self._document_tokens(
                    document.file_path, document.title, document.domain, document.content
                ),
                document.content if passages and place else None,
            )
            for place, (document, row) in enumerate(zip(documents, rows, strict=True))
        )

    def _count_frame(
        self,
        found: bool,
        message: str,
        level: str | None,
        hint: str | None,
        domains: tuple[str, ...],
    ) -> int:
        primary = PrimaryResult("", "", "", "") if found else None  # its braces count
        frame = LookupResult(found, message, primary, (), level, hint, domains)
        return result_tokens(frame, self.tokenizer).frame

    def _count_document(self, *parts: str) -> int:
        alone = LookupResult(True, "", PrimaryResult(*parts))
        return result_tokens(alone, self.tokenizer).documents[0]
