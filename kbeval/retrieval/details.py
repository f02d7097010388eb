"""`retrieval_details`: what is recorded about a look-up beside its level (FS-6, design.md 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbeval.config import Normalization
from kbeval.records import Level, LookupResult
from kbeval.retrieval.matches import Match, Matches
from kbeval.retrieval.tracker import Claim


def base_details(
    result: LookupResult,
    level: str | None,
    reason: str | None,
    *,
    normalization: Normalization,
    encoder: str,
) -> dict[str, Any]:
    """The five keys of FS-6 and the settings that the level rests on."""
    return {
        "l1_top_similarity": None,
        "relevance_level": level,
        "completeness_hint": result.completeness_hint,
        "retrieved_domains": list(result.retrieved_domains_this_session),
        "dedup_reason": reason,
        "distance": normalization.distance,
        "max_l2_distance": normalization.max_l2_distance,
        "highly_relevant_threshold": normalization.highly_relevant_threshold,
        "reference_threshold": normalization.reference_threshold,
        "encoder": encoder,
    }


def match_details(
    matches: Matches,
    claim: Claim,
    handed: Sequence[Match],
    level: Level,
    *,
    fresh: Match | None,
    reference: float,
) -> dict[str, Any]:
    """What matched, what was handed out and what the session filter kept back.

    `fresh` is the nearest document that the session did not have before this look-up.
    `exact_only` marks a REFERENCE that rests on an L0 match alone.
    """
    exact = {match.document.path for match in matches.exact}
    best = max((match.similarity for match in handed), default=0.0)
    count = matches.count()
    return {
        "l1_top_similarity": matches.nearest[0].similarity,
        "l1_top_fresh_similarity": None if fresh is None else fresh.similarity,
        "l0_match_count": len(exact),
        "exact_only": level is Level.REFERENCE and best < reference,
        "matching_before_session_filter": count,
        "matching_after_session_filter": count - len(claim.withheld),
        "handed_out": [
            {
                "file_path": match.document.path,
                "distance": match.distance,
                "similarity": match.similarity,
                "source": "l0" if match.document.path in exact else "l1",
                "content_hash": match.document.content_hash,
            }
            for match in handed
        ],
        "withheld": [candidate.path for candidate in claim.withheld],
        "content_changed": [candidate.path for candidate in claim.content_changed],
    }


def horizon_details(claim: Claim | None, token_count: int | None) -> dict[str, Any]:
    """What a session that forgets adds: what came again, and the size of this answer if counted."""
    again = () if claim is None else claim.beyond_horizon
    details: dict[str, Any] = {"beyond_horizon": [candidate.path for candidate in again]}
    return details if token_count is None else details | {"token_count": token_count}


def dedup_reason(claim: Claim) -> str | None:
    """Why the session filter changed this answer; the first that holds (design.md 5)."""
    table = [
        (claim.redelivered, "REQUESTED"),
        (claim.withheld and not claim.taken, "ALL_RETRIEVED"),
        (claim.withheld, "PARTIAL"),
        (claim.content_changed, "CONTENT_CHANGED"),
    ]
    return next((reason for holds, reason in table if holds), None)
