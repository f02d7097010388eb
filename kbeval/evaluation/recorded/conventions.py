"""Which distance a recorded tool used, before its numbers are compared with anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np

from kbeval.evaluation.queries import Session
from kbeval.evaluation.recorded.details import handed_out
from kbeval.evaluation.recorded.turns import DETAILS
from kbeval.records import Convention
from kbeval.retrieval.knowledge import Knowledge

CONVENTIONS: tuple[Convention, ...] = ("l2", "squared_l2")
LONGEST = 2.0  # the greatest plain distance of unit vectors; the squared one runs to 4
SLACK = 1e-3  # how far a recorded distance may lie from one computed again
FEWEST = 5  # pairs that must agree with a convention, and half of all that are compared
AGREEING = 0.95  # of the pairs that agree with either, the share that must agree with the one
ASKED = 2_000  # look-ups computed again, at most


@dataclass(frozen=True, slots=True)
class ConventionGuess:
    """What the recorded distances say; `convention` is None where they cannot tell.

    `shown_by` is what it rests on: `values` (some are beyond what a plain distance can be),
    `recomputed` (pairs of query and document computed again), `declared` (the record says so,
    and nothing shows otherwise), or "". `declared` is what all records that declare one agree
    on. `contradiction`: the record declares another convention than its numbers show. `counts`:
    `distances` recorded, `above_2`, `above_4`, `declared_l2`, `declared_squared_l2`; of
    recomputed pairs `pairs` that tell the two apart, `agree_l2`, `agree_squared_l2`, and those
    not compared because of `other_encoder`, `other_version` or `unknown_document`.
    """

    convention: Convention | None
    shown_by: Literal["values", "recomputed", "declared", ""]
    reason: str
    declared: Convention | None = None
    contradiction: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON keeps it."""
        return {
            "convention": self.convention,
            "shown_by": self.shown_by or None,
            "reason": self.reason,
            "declared": self.declared,
            "contradiction": self.contradiction,
            "counts": dict(self.counts),
        }


def infer_convention(
    sessions: Iterable[Session], knowledge: Knowledge | None = None
) -> ConventionGuess:
    """Tell the convention of the distances in `retrieval_details`, as far as they allow.

    A value above 2 is no plain distance of unit vectors. Where there is none, a knowledge base
    with the recorded encoder and documents allows to compute up to 2,000 look-ups again and to
    see which reading agrees. What the record declares is held against both.
    """
    counts: Counter[str] = Counter()
    waiting: list[tuple[str, Mapping[str, Any]]] = []
    for query, details in _recorded(sessions):
        _count(details, counts)
        if knowledge is not None and len(waiting) < ASKED and _comparable(details):
            waiting.append((query, details))
    if knowledge is not None and waiting:
        _recompute(waiting, knowledge, counts)
    declared = [name for name in CONVENTIONS if counts[f"declared_{name}"]]
    told = declared[0] if len(declared) == 1 else None
    found, shown_by, reason = _verdict(counts, declared, asked=knowledge is not None)
    contradiction = found is not None and told not in (None, found)
    if contradiction:
        reason += f", although the record declares {told}"
    return ConventionGuess(found, shown_by, reason, told, contradiction, dict(+counts))


Verdict = tuple[Convention | None, Literal["values", "recomputed", "declared", ""], str]


def _verdict(counts: Counter[str], declared: list[Convention], *, asked: bool) -> Verdict:
    """The first that holds."""
    if len(declared) > 1:
        told = " and ".join(f"{counts[f'declared_{name}']} {name}" for name in declared)
        return None, "", f"cannot be told: {told} are declared, take the record apart there"
    if counts["above_4"]:
        reason = f"{counts['above_4']} distances are above 4: no distances of unit vectors"
        return None, "", f"cannot be told: {reason}"
    if counts["above_2"]:
        reason = f"{counts['above_2']} distances are above 2, the greatest plain distance"
        return "squared_l2", "values", reason
    if name := _agreed(counts):
        agree, pairs = counts[f"agree_{name}"], counts["pairs"]
        return name, "recomputed", f"{agree} of {pairs} pairs computed again agree with {name}"
    unproved = _unproved(counts, asked=asked)
    if declared and counts["pairs"] < FEWEST:
        return declared[0], "declared", f"declared by the record, not proved: {unproved}"
    return None, "", f"cannot be told: {unproved}"


def _agreed(counts: Counter[str]) -> Convention | None:
    """The convention with which the pairs computed again agree."""
    either = sum(counts[f"agree_{name}"] for name in CONVENTIONS)
    for name in CONVENTIONS:
        agree = counts[f"agree_{name}"]
        if agree >= max(FEWEST, counts["pairs"] / 2) and agree >= AGREEING * either:
            return name
    return None


def _unproved(counts: Counter[str], *, asked: bool) -> str:
    """Why the numbers alone tell nothing."""
    if not counts["distances"]:
        return "no distances are recorded"
    if counts["pairs"] >= FEWEST:
        agree = ", ".join(f"{counts[f'agree_{name}']} with {name}" for name in CONVENTIONS)
        return f"of {counts['pairs']} pairs computed again too few agree ({agree})"
    if asked:
        return f"only {counts['pairs']} pairs of query and document could be compared"
    return "no distance is above 2, and there is no knowledge base to compute pairs again"


def _recorded(sessions: Iterable[Session]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for session in sessions:
        for turn in session.turns:
            details = turn.metadata.get(DETAILS)
            if isinstance(details, Mapping):
                yield turn.query, details


def _count(details: Mapping[str, Any], counts: Counter[str]) -> None:
    declared = details.get("distance")
    if declared in CONVENTIONS:
        counts[f"declared_{declared}"] += 1
    for distance in _distances(details):
        counts["distances"] += 1
        counts["above_4"] += distance > LONGEST**2 + SLACK
        counts["above_2"] += distance > LONGEST + SLACK


def _distances(details: Mapping[str, Any]) -> Iterator[float]:
    """Those recorded, and the one that the best similarity stands for, unless it was clipped."""
    for entry in handed_out(details):
        if (distance := _number(entry.get("distance"))) is not None:
            yield distance
    similarity = _number(details.get("l1_top_similarity"))
    limit = _number(details.get("max_l2_distance"))
    if similarity is not None and limit is not None and 0 < similarity <= 1:
        yield (1 - similarity) * limit


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value):
        return float(value)
    return None


def _comparable(details: Mapping[str, Any]) -> bool:
    return any(_number(entry.get("distance")) is not None for entry in handed_out(details))


def _recompute(
    waiting: list[tuple[str, Mapping[str, Any]]], knowledge: Knowledge, counts: Counter[str]
) -> None:
    """Count the pairs that tell the conventions apart, and with which of them they agree."""
    same = [
        (query, details)
        for query, details in waiting
        if details.get("encoder") in (None, knowledge.encoder.fingerprint)
    ]
    counts["other_encoder"] += len(waiting) - len(same)
    if not same:
        return
    vectors = knowledge.embed_queries([query for query, _ in same], keep=True)
    for vector, (_, details) in zip(vectors, same, strict=True):
        for path, distance in _pairs(details, knowledge, counts):
            near = float(knowledge.l1.distances_to(vector, [knowledge.position[path]])[0])
            squared = near if knowledge.l1.convention == "squared_l2" else near**2
            gaps = np.abs(np.array([np.sqrt(squared), squared]) - distance)
            if abs(np.sqrt(squared) - squared) <= 2 * SLACK:
                continue  # at 0 and at 1 the two are one
            counts["pairs"] += 1
            if gaps.min() <= SLACK:
                counts[f"agree_{CONVENTIONS[int(gaps.argmin())]}"] += 1


def _pairs(
    details: Mapping[str, Any], knowledge: Knowledge, counts: Counter[str]
) -> Iterator[tuple[str, float]]:
    """Documents of one look-up that are still the same, with the recorded distance."""
    for entry in handed_out(details):
        path, distance = entry.get("file_path"), _number(entry.get("distance"))
        if distance is None:
            continue
        place = knowledge.position.get(str(path))
        if place is None:
            counts["unknown_document"] += 1
            continue
        version = knowledge.documents[place].content_hash
        if entry.get("content_hash") not in (None, version):
            counts["other_version"] += 1
            continue
        yield str(path), distance
