"""From cuts to settings: the (max, highly-relevant, reference) triples that say the same.

Only two of the three knobs are free (design.md 12). Every triple is graded over the evidence with
the tool's own rule, and only those with identical levels are called equivalent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.judge import Judged
from kbeval.evaluation.measures import levels
from kbeval.evaluation.tuning.cuts import Choice, levels_at
from kbeval.evaluation.tuning.ladder import largest_max_of
from kbeval.evaluation.tuning.plateau import NO_LIMIT, Cut, decimal, finite
from kbeval.records import Level
from kbeval.retrieval.grading import DECIMALS, distance_to_cosine, l2_to_similarity


@dataclass(frozen=True, slots=True)
class Triple:
    """One way to write the cuts as settings, or why this max cannot express them (`refused`)."""

    max_l2_distance: float
    highly_relevant: float | None
    reference: float | None
    keeps: str  # what this max was chosen for
    refused: str = ""

    @property
    def equivalent(self) -> bool:
        """The evidence, graded anew with these settings, has the levels of the cuts."""
        return not self.refused

    def normalization(self, present: Normalization) -> Normalization:
        """The triple as settings, in the convention of the present ones.

        Raises `ConfigError` where a threshold is missing, because this max cannot express it.
        """
        if self.highly_relevant is None or self.reference is None:
            raise ConfigError(f"max-l2-distance {decimal(self.max_l2_distance)}: {self.refused}")
        return Normalization(
            distance=present.distance,
            max_l2_distance=self.max_l2_distance,
            highly_relevant_threshold=self.highly_relevant,
            reference_threshold=self.reference,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values under the yml's keys."""
        return {
            "max-l2-distance": self.max_l2_distance,
            "highly-relevant-threshold": self.highly_relevant,
            "reference-threshold": self.reference,
            "keeps": self.keeps,
            "equivalent": self.equivalent,
            "refused": self.refused,
        }


def triples(judged: Judged, choice: Choice, present: Normalization) -> tuple[Triple, ...]:
    """Ways to write the chosen cuts, first the one that keeps the present max.

    Then the range of unit vectors, the maxima under which the present thresholds stay, and the
    smallest max of one decimal that reaches the reference cut. Of equal maxima the first stands.
    """
    wanted = levels_at(judged, *choice.distances, choice.precise_requires)
    found: dict[float, Triple] = {}
    for limit, keeps in _maxima(judged, choice, present):
        if limit not in found:
            found[limit] = _triple(judged, choice, present, limit, keeps, wanted)
    return tuple(found.values())


def threshold(cut: Cut, max_l2_distance: float) -> float | None:
    """The similarity with fewest decimals that lies between what `cut` accepts and refuses.

    Of those the nearest to the middle. None if no threshold under this max can tell the two
    apart. A level that is not used gets 1.0, a cut that refuses nothing 0.0.
    """
    accepted, refused = cut.gap.accepted, cut.gap.refused
    if math.isinf(refused):
        return 1.0 if math.isinf(accepted) else 0.0
    low = float(l2_to_similarity(refused, max_l2_distance))  # must be refused
    if math.isinf(accepted):
        return 1.0 if low < 1.0 else None  # similarity 1 alone would still reach it
    high = float(l2_to_similarity(accepted, max_l2_distance))  # must be accepted
    if low >= high:
        return None
    middle = 1.0 - cut.distance / max_l2_distance
    return _shortest(low, high, middle if middle > low else (low + high) / 2)


def _shortest(low: float, high: float, wanted: float) -> float:
    """The number in (low, high] with fewest decimals, the nearest to `wanted`, then the greater."""
    for decimals in range(DECIMALS):
        steps = wanted * 10**decimals
        tried = [
            round(step / 10**decimals, decimals) for step in (math.floor(steps), math.ceil(steps))
        ]
        fitting = [t for t in tried if low < t <= high]
        if fitting:
            return float(min(fitting, key=lambda t: (round(abs(t - wanted), 9), -t)))
    return high


def _maxima(judged: Judged, choice: Choice, present: Normalization) -> list[tuple[float, str]]:
    """The maxima to try, and what each is for."""
    high, reference = choice.distances
    largest = largest_max_of(judged, present.max_l2_distance)
    tried = [(present.max_l2_distance, "the present max-l2-distance")]
    tried.append((largest_max_of(judged), "the whole range of distances"))
    for cut, distance, stays in (
        (choice.highly_relevant, high, present.highly_relevant_threshold),
        (choice.reference, reference, present.reference_threshold),
    ):
        if stays < 1 and math.isfinite(distance) and distance > 0:
            room = (cut.gap.accepted / (1 - stays), cut.gap.refused / (1 - stays))
            limit = _shortest(*room, distance / (1 - stays))
            tried.append((limit, f"{_key(cut)} {decimal(stays)}"))
    if math.isfinite(reference) and reference > 0:
        limit = math.ceil(round(reference * 10, DECIMALS)) / 10
        tried.append((limit, "the smallest max of one decimal that reaches the reference cut"))
    return [(limit, keeps) for limit, keeps in tried if 0 < limit <= largest]


def _triple(
    judged: Judged,
    choice: Choice,
    present: Normalization,
    limit: float,
    keeps: str,
    wanted: NDArray[np.int8],
) -> Triple:
    cuts = (choice.highly_relevant, choice.reference)
    high, reference = (threshold(cut, limit) for cut in cuts)
    for cut, value in zip(cuts, (high, reference), strict=True):
        if value is None:
            return Triple(limit, high, reference, keeps, _why(cut, limit))
    triple = Triple(limit, high, reference, keeps)
    graded = levels(judged, triple.normalization(present), choice.precise_requires)
    different = int((graded != wanted).sum())
    if different:
        refused = f"graded anew, {different} of {len(judged)} queries have another level"
        return Triple(limit, high, reference, keeps, refused)
    return triple


def _why(cut: Cut, limit: float) -> str:
    """Why no threshold under this max expresses a cut."""
    if math.isinf(cut.gap.accepted):
        return f"a distance of {decimal(cut.gap.refused)} has similarity 1 and cannot be refused"
    accepted, refused, most = (decimal(x) for x in (cut.gap.accepted, cut.gap.refused, limit))
    if cut.gap.accepted >= limit:
        return (
            f"max-l2-distance {most} is below the {cut.level.name} cut {decimal(cut.distance)}: "
            f"every distance from {most} on has similarity 0"
        )
    return (
        f"under max-l2-distance {most} distances {accepted} and {refused} have the same similarity"
    )


def _key(cut: Cut) -> str:
    high = cut.level == Level.HIGHLY_RELEVANT
    return "highly-relevant-threshold" if high else "reference-threshold"


def yml_fragment(
    choice: Choice, triple: Triple, present: Normalization, *, reasons: Sequence[str] = ()
) -> str:
    """Settings ready to paste, with the reasons as comments. `triple` must be equivalent.

    A level for which the labels give no ground keeps its present threshold, and so does one that
    would cross it: their lines are comments. A level that is not used, or has no limit, is written
    as a threshold that does just that.
    """
    kept = {
        Level.HIGHLY_RELEVANT: present.highly_relevant_threshold,
        Level.REFERENCE: present.reference_threshold,
    }
    written = triple.normalization(present)
    cuts = {
        choice.highly_relevant: written.highly_relevant_threshold,
        choice.reference: written.reference_threshold,
    }
    open_ = {cut.level: value for cut, value in cuts.items() if cut.level not in choice.one_class}
    both = kept | open_
    crossed = both[Level.REFERENCE] > both[Level.HIGHLY_RELEVANT]
    lines = [f"# {line}" for reason in reasons for line in str(reason).splitlines()]
    lines += ["retrieval:", "  normalization:", f"    distance: {choice.convention}"]
    lines.append(f"    max-l2-distance: {decimal(triple.max_l2_distance)}  # {triple.keeps}")
    for cut, value in cuts.items():
        why = choice.one_class.get(cut.level)
        if why is None and crossed:
            why = f"{decimal(value)} would cross the other threshold, for which there is no ground"
        if why is None:
            told = _reason(cut, choice, triple.max_l2_distance)
            lines.append(f"    {_key(cut)}: {decimal(value)}  # {told}")
        else:
            lines.append(f"    # {_key(cut)} stays {decimal(kept[cut.level])}: {why}")
    lines += ["  l0:", f"    precise-requires: {choice.precise_requires}"]
    return "\n".join(lines) + "\n"


def _reason(cut: Cut, choice: Choice, limit: float) -> str:
    if cut.note:
        why = choice.constants.get(cut.level)
        return f"{cut.note}; {_open_end(cut, limit)}" + (f"; {why}" if why else "")
    low, high = cut.plateau.similarity(limit)
    cosine = float(distance_to_cosine(cut.distance, choice.convention))
    return (
        f"distance <= {decimal(cut.distance)}, cosine >= {cosine:.4f}; "
        f"above {decimal(low)} up to {decimal(high)} is of equal value"
    )


def _open_end(cut: Cut, limit: float) -> str:
    """What the threshold of an open end does, and how near the labels came to its edge."""
    if cut.note == NO_LIMIT:
        return f"0.0 accepts every distance, the farthest seen is {decimal(cut.gap.accepted)}"
    reach = decimal(limit * 0.5 * 10.0**-DECIMALS)
    seen = finite(cut.gap.refused)
    nearest = "" if seen is None else f", the nearest seen is {decimal(seen)}"
    return f"1.0 accepts a distance of 0 alone (up to {reach}){nearest}"


def grade_mix(level: NDArray[np.int8]) -> dict[str, float]:
    """The share of each level, with the names that `tool_invocation` holds."""
    count = np.bincount(level, minlength=len(Level)) / max(len(level), 1)
    return {x.name: float(count[x]) for x in reversed(Level)}


def check_sql(level: NDArray[np.int8], *, since: str | None = None) -> str:
    """SQL over `tool_invocation` that sets the grades seen beside the expected mix.

    `level` (n,) is what the chosen settings give on the labelled set. `since` (ISO 8601, UTC)
    starts with the deployment. Rows without a level (everything was given before) do not count.
    A labelled set's mix is not traffic: a difference says "other", not "worse". Raises
    `ConfigError` for a `since` that is no time.
    """
    if since is not None and not _is_time(since):
        raise ConfigError(f"since: got {since!r}; a time such as 2026-01-31T12:00:00 is expected")
    when = f"\n    AND started_at >= '{since}'" if since else ""
    expected = " UNION ALL\n  ".join(
        f"SELECT '{name}' AS relevance_level, {share:.6f} AS expected_share"
        for name, share in grade_mix(level).items()
    )
    return f"""\
-- Grades after deployment beside those of the {len(level)} labelled queries.
-- A labelled set's mix is not traffic: a difference says "other", not "worse".
WITH expected AS (
  {expected}
), seen AS (
  SELECT relevance_level, COUNT(*) AS n
  FROM tool_invocation
  WHERE tool_name = 'lookup_knowledge'
    AND relevance_level IS NOT NULL{when}
  GROUP BY relevance_level
)
SELECT expected.relevance_level,
       expected.expected_share,
       COALESCE(seen.n, 0) AS seen_count,
       COALESCE(seen.n, 0) * 1.0 / NULLIF((SELECT SUM(n) FROM seen), 0) AS seen_share
FROM expected
LEFT JOIN seen ON seen.relevance_level = expected.relevance_level;
"""


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
