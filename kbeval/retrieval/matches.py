"""One query's evidence as ranked matches, before the session filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kbeval.config import Normalization
from kbeval.records import Document, Evidence, Level
from kbeval.retrieval.grading import DECIMALS, grade, l2_to_similarity
from kbeval.retrieval.tracker import Candidate

GRADED = 4096  # answers whose level is kept, about 300 bytes each


@dataclass(frozen=True, slots=True)
class Match:
    """A document that retrieval found, with its distance in the configured convention."""

    document: Document
    distance: float
    similarity: float

    @property
    def candidate(self) -> Candidate:
        """The document as the session memory knows it."""
        return Candidate(self.document.path, self.document.domain, self.document.content_hash)


@dataclass(frozen=True, slots=True)
class Matches:
    """What was found for one query. L0 matches may stand in `near` and `nearest` again."""

    exact: tuple[Match, ...]  # L0, nearest first
    near: tuple[Match, ...]  # L1 at or above reference, nearest first
    nearest: tuple[Match, ...]  # L1 whatever its distance, nearest first
    exhausted: bool  # every document at or above reference is in `near`

    @property
    def first(self) -> Match | None:
        """The primary of a fresh session; None if nothing matches."""
        return next(iter(self.exact or self.near), None)

    def count(self) -> int:
        """Distinct documents that match, at L0 or L1."""
        return len({match.document.path for match in (*self.exact, *self.near)})


def matches_of(
    evidence: Evidence, documents: Sequence[Document], normalization: Normalization
) -> Matches:
    """The matches of evidence for a single query, over the base's documents."""
    similar = l2_to_similarity(
        np.concatenate([evidence.l0_distance, evidence.l1_distance[0]]),
        normalization.max_l2_distance,
    ).tolist()
    distances = [*evidence.l0_distance.tolist(), *evidence.l1_distance[0].tolist()]
    positions = [*evidence.l0_document.tolist(), *evidence.l1_document[0].tolist()]
    found = [
        Match(documents[position], distance, similarity)
        for position, distance, similarity in zip(positions, distances, similar, strict=True)
        if position >= 0
    ]
    exact = tuple(found[: len(evidence.l0_document)])
    nearest = tuple(found[len(exact) :])
    reference = round(normalization.reference_threshold, DECIMALS)
    near = tuple(match for match in nearest if match.similarity >= reference)
    exhausted = len(near) < len(nearest) or len(nearest) == len(documents)
    return Matches(exact, near, nearest, exhausted)


def level_of(
    matches: Matches,
    handed: Sequence[Match],
    normalization: Normalization,
    *,
    precise_requires: str,
) -> Level:
    """The level of an answer that hands out these documents (FS-2, design.md 3)."""
    exact = {match.document.path for match in matches.exact}
    nearest = bool(exact) and matches.exact[0].distance <= matches.nearest[0].distance
    return _level(
        len(exact),
        sum(match.document.path in exact for match in handed),
        max((match.similarity for match in handed), default=-1.0),
        highly_relevant=normalization.highly_relevant_threshold,
        reference=normalization.reference_threshold,
        l0_may_be_precise=precise_requires == "unique" or nearest,
    )


@lru_cache(maxsize=GRADED)
def _level(
    l0_count: int,
    l0_handed_count: int,
    similarity: float,
    *,
    highly_relevant: float,
    reference: float,
    l0_may_be_precise: bool,
) -> Level:
    """`grade` of one answer; policies that are replayed side by side mostly ask the same."""
    level = grade(
        l0_count,
        l0_handed_count,
        similarity,
        highly_relevant=highly_relevant,
        reference=reference,
        l0_may_be_precise=l0_may_be_precise,
    )
    return Level(int(level))
