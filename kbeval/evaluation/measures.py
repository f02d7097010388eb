"""What was graded, and were the hints true: the measures of method.md 3 at one pair of cuts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.answers import reached
from kbeval.evaluation.costs import COLUMNS, Costs
from kbeval.evaluation.judge import Judged, Nearness, Worth
from kbeval.evaluation.statistics import Rate, cluster_rate, mean_interval, rate
from kbeval.records import Level
from kbeval.retrieval.grading import cut_distance, grade, l2_to_similarity

CLOSED = (Level.PRECISE, Level.HIGHLY_RELEVANT)
GIVEN = (*CLOSED, Level.REFERENCE)
SETTLED = 0.05  # false closure is not settled where its two bounds differ by more


@dataclass(frozen=True, slots=True, eq=False)
class Measures:
    """The measures of method.md 3, each with interval and n; names as in `evaluate --json`.

    Matrices count queries, indexed `[level, worth]`. A mapping by level holds one rate a level.
    """

    level_matrix: NDArray[np.int64]  # (4, 4)
    l0_matrix: NDArray[np.int64]  # (4, 4), those whose level the L0 rule decided
    nearness_matrix: NDArray[np.int64]  # (4, 3), `nothing` by Nearness
    unjudged_count: Mapping[Level, int]  # answers whose primary has no judgement, wrong above
    precision: Mapping[Level, Rate]  # unjudged primaries are wrong
    precision_if_unjudged_answers: Mapping[Level, Rate]
    coverage: Mapping[Level, Rate]
    found_rate: Rate
    missed_rate: Rate
    leak_rate: Rate
    leak_rate_near: Rate
    leak_rate_far: Rate
    closed_leak_rate: Rate
    leak_floor: Rate
    false_closure_rate: Rate  # unjudged documents that were handed out count as 0
    false_closure_rate_if_unjudged_best: Rate
    false_closure_rate_by_level: Mapping[Level, Rate]
    better_exists: Rate
    expected_cost: Rate
    unjudged: Rate
    unanswerable_share: Rate
    answered_anywhere: Rate
    complete: Rate
    counts: Mapping[str, int]
    left_out: Mapping[str, int]

    @property
    def false_closure_settled(self) -> bool:
        """Whether the two readings of unjudged documents agree within 0.05."""
        high, low = self.false_closure_rate.value, self.false_closure_rate_if_unjudged_best.value
        return high is None or low is None or high - low <= SETTLED

    def to_json(self) -> dict[str, Any]:
        """Plain values for `evaluate --json`: a rate is value, low, high, n."""
        matrices = {"level_matrix", "l0_matrix", "nearness_matrix"}
        plain = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return {
            "queries": int(self.level_matrix.sum()),
            "levels": _table(self.level_matrix),
            "levels_by_l0_rule": _table(self.l0_matrix),
            "nothing_by_nearness": {
                level.name: {
                    near.name.lower(): int(self.nearness_matrix[level, near]) for near in Nearness
                }
                for level in reversed(Level)
            },
            "false_closure_settled": self.false_closure_settled,
        } | {name: value for name, value in plain.items() if name not in matrices}


def levels(
    judged: Judged,
    normalization: Normalization,
    precise_requires: Literal["unique", "unique-and-nearest"] = "unique",
) -> NDArray[np.int8]:
    """Grade every judged query by the tool's own rule, of shape (n,) (FS-2).

    Without any document there is nothing to hand out: NOT_FOUND. Raises `ConfigError` if the
    evidence was measured in another convention than the settings'.
    """
    if normalization.distance != judged.convention:
        raise ConfigError(
            f"retrieval.normalization.distance is {normalization.distance!r} but the evidence "
            f"holds {judged.convention!r} distances; both must be the same"
        )
    graded = grade(
        judged.l0_count,
        judged.l0_handed_count,
        l2_to_similarity(judged.distance, normalization.max_l2_distance),
        highly_relevant=normalization.highly_relevant_threshold,
        reference=normalization.reference_threshold,
        l0_may_be_precise=judged.unique_is_nearest | (precise_requires == "unique"),
    )
    return np.where(judged.primary < 0, np.int8(Level.NOT_FOUND), graded)


def cuts(normalization: Normalization) -> tuple[float, float]:
    """The two cut distances of the settings: of HIGHLY_RELEVANT and of REFERENCE, inclusive.

    >>> cuts(Normalization())
    (0.5, 1.000001)
    """
    limit = normalization.max_l2_distance
    return (
        cut_distance(normalization.highly_relevant_threshold, limit),
        cut_distance(normalization.reference_threshold, limit),
    )


def measure(
    judged: Judged, level: NDArray[np.int8], *, reference_cut: float, costs: Costs | None = None
) -> Measures:
    """Measure one grading of the judged queries (method.md 3).

    `level` has shape (n,) and comes from `levels`; `reference_cut` is the distance of the same
    settings' REFERENCE (`cuts`), which decides the supplements. Raises `ConfigError` if the two
    contradict each other.
    """
    _check_cut(judged, level, reference_cut)
    costs = costs or Costs()
    given, closed = level > Level.NOT_FOUND, level >= Level.HIGHLY_RELEVANT
    answerable, worth = judged.answerable, judged.worth
    unanswerable, whole = ~answerable, answerable & ~judged.partial
    answers = worth == Worth.ANSWERS
    false_hint = judged.hint_false(reference_cut)
    no_leak, no_closure = "no unanswerable query", "no answerable query was closed"
    near, far = (unanswerable & (judged.nearness == near) for near in (Nearness.NEAR, Nearness.FAR))

    def share(success: NDArray[np.bool_], among: NDArray[np.bool_], empty: str = "") -> Rate:
        return rate(success[among], judged.cluster[among], empty=empty)

    def precision(right: NDArray[np.bool_]) -> dict[Level, Rate]:
        return {x: share(right, level == x, f"no query was graded {x.name}") for x in GIVEN}

    closed_answerable = closed & answerable
    return Measures(
        level_matrix=_matrix(level, worth, np.full(len(judged), True)),
        l0_matrix=_matrix(level, worth, by_l0_rule(judged, level, reference_cut)),
        nearness_matrix=_matrix(level, judged.nearness, unanswerable)[:, : len(Nearness)],
        unjudged_count={x: int((judged.primary_unjudged & (level == x)).sum()) for x in Level},
        precision=precision(answers),
        precision_if_unjudged_answers=precision(answers | judged.primary_unjudged),
        coverage={x: share(level >= x, answerable, "no answerable query") for x in GIVEN},
        found_rate=share(given, answerable, "no answerable query"),
        missed_rate=share(~given & answers, whole, "no query that a document answers"),
        leak_rate=share(given, unanswerable, no_leak),
        leak_rate_near=share(given, near, f"{no_leak} is declared near"),
        leak_rate_far=share(given, far, f"{no_leak} is declared far"),
        closed_leak_rate=share(closed, unanswerable, no_leak),
        leak_floor=share(judged.l0_count > 0, unanswerable, no_leak),
        false_closure_rate=share(false_hint, closed_answerable, no_closure),
        false_closure_rate_if_unjudged_best=share(
            ~reached(judged.tau_if_unjudged_best, reference_cut), closed_answerable, no_closure
        ),
        false_closure_rate_by_level={
            x: share(false_hint, answerable & (level == x), f"{no_closure} as {x.name}")
            for x in CLOSED
        },
        better_exists=share(judged.better_exists, closed_answerable, no_closure),
        expected_cost=mean_interval(
            _cost(judged, level, costs), judged.cluster, bounds=costs.bounds, empty="no query"
        ),
        unjudged=share(judged.primary_unjudged, answerable & given, "nothing was handed out"),
        unanswerable_share=share(unanswerable, np.full(len(judged), True), "no query"),
        answered_anywhere=share(
            given & reached(judged.tau_answer, reference_cut),
            whole,
            "no query that a document answers",
        ),
        complete=share(given & ~false_hint, answerable, "no answerable query"),
        counts=_counts(judged, level, reference_cut),
        left_out=dict(judged.left_out),
    )


def by_l0_rule(judged: Judged, level: NDArray[np.int8], reference_cut: float) -> NDArray[np.bool_]:
    """Whether an L0 match, not a distance, decided the level; of shape (n,)."""
    exact_only = (level == Level.REFERENCE) & ~reached(judged.distance, reference_cut)
    decided: NDArray[np.bool_] = (level == Level.PRECISE) | exact_only
    return decided


def reweighted(
    judged: Judged,
    level: NDArray[np.int8],
    *,
    unanswerable_share: float,
    costs: Costs | None = None,
) -> dict[str, Any]:
    """precision, expected_cost and leak_rate as if this share of queries were unanswerable.

    Each unanswerable query weighs s / (1 - s) * |A| / |U| (method.md 3), so precision becomes
    a / (a + e + lambda u). leak_rate is a share of the unanswerable ones alone and does not
    move; it stands here so that the three are read together. Rates are those of weighted rows
    with the interval over clusters. Raises `ConfigError` for a share outside [0, 1), or above
    0 without unanswerable queries, or without answerable ones.
    """
    costs = costs or Costs()
    answerable_count = int(judged.answerable.sum())
    count = len(judged) - answerable_count
    share = unanswerable_share
    if not 0 <= share < 1 or (share > 0 and not count) or not answerable_count:
        raise ConfigError(
            f"unanswerable-share: got {share} for {answerable_count} answerable and {count} "
            "unanswerable queries; a number from 0 to below 1 is expected, and queries of both "
            "kinds unless it is 0"
        )
    each = share / (1 - share) * answerable_count / count if count else 0.0
    weight = np.where(judged.answerable, 1.0, each)
    answers, u = judged.worth == Worth.ANSWERS, ~judged.answerable
    return {
        "unanswerable_share": share,
        "weight": each,
        "precision": {
            x: cluster_rate(
                weight * (answers & (level == x)),
                weight * (level == x),
                judged.cluster,
                empty=f"no query was graded {x.name}",
            )
            for x in GIVEN
        },
        "expected_cost": mean_interval(
            _cost(judged, level, costs),
            judged.cluster,
            weights=weight,
            bounds=costs.bounds,
            empty="no query",
        ),
        "leak_rate": rate(
            level[u] > Level.NOT_FOUND, judged.cluster[u], empty="no unanswerable query"
        ),
    }


def _check_cut(judged: Judged, level: NDArray[np.int8], reference_cut: float) -> None:
    by_distance = (judged.l0_count == 0) & (judged.primary >= 0)
    wrong = by_distance & ((level > Level.NOT_FOUND) != reached(judged.distance, reference_cut))
    if level.shape != (len(judged),) or wrong.any():
        raise ConfigError(
            f"levels of shape {level.shape} were not graded at reference cut {reference_cut}: "
            f"{int(wrong.sum())} of {len(judged)} queries contradict it; take both from the "
            "same settings"
        )


def _cost(judged: Judged, level: NDArray[np.int8], costs: Costs) -> NDArray[np.float64]:
    cost: NDArray[np.float64] = costs.scaled()[level, judged.worth] / costs.scale
    return cost


def _matrix(
    level: NDArray[np.int8], column: NDArray[np.int8], among: NDArray[np.bool_]
) -> NDArray[np.int64]:
    matrix = np.zeros((len(Level), len(Worth)), dtype=np.int64)
    np.add.at(matrix, (level[among], column[among]), 1)
    return matrix


def _counts(judged: Judged, level: NDArray[np.int8], reference_cut: float) -> dict[str, int]:
    by_distance = (level > Level.NOT_FOUND) & ~by_l0_rule(judged, level, reference_cut)
    return {
        "graded_by_supplement": int((by_distance & judged.graded_by_supplement).sum()),
        "tied_primary": int(judged.tied_primary.sum()),
        "partial": int(judged.partial.sum()),
        "several_top": int(judged.several_top.sum()),
        "truncated_evidence": int(judged.gold_truncated.sum()),
        "missing_gold": int(judged.missing_gold_count.sum()),
        "outside": judged.outside_count,
    }


def _table(matrix: NDArray[np.int64]) -> dict[str, dict[str, int]]:
    return {
        level.name: {worth.name.lower(): int(matrix[level, worth]) for worth in COLUMNS}
        for level in reversed(Level)
    }


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Rate):
        return value.to_json()
    if isinstance(value, Mapping):
        return {getattr(key, "name", key): _plain(entry) for key, entry in value.items()}
    return value
