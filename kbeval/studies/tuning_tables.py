"""The numbers behind the tuning pictures: costs over a grid, rates along a cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from kbeval.config import Normalization
from kbeval.evaluation.answers import reached
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.measures import levels
from kbeval.evaluation.query_table import OUTCOMES
from kbeval.evaluation.tuning.export import grade_mix
from kbeval.evaluation.tuning.grid import grid_matrices
from kbeval.evaluation.tuning.ladder import PreciseRule, ladder, largest_max_of
from kbeval.studies.tuning_files import told
from kbeval.studies.tuning_result import Tuned

STEPS = 200  # distances along a cut


def cost_by_max(
    judged: Judged,
    max_l2_distances: Sequence[float],
    thresholds: Sequence[float],
    costs: Costs | None = None,
    rule: PreciseRule = "unique",
) -> pd.DataFrame:
    """Mean cost a query for each max (columns) and reference threshold (rows).

    HIGHLY_RELEVANT is left at similarity 1, so that one cut moves alone: cells whose
    (1 - threshold) * max is the same say the same.
    """
    table = {
        limit: expected_costs(
            judged, [(limit, 1.0, threshold) for threshold in thresholds], costs, rule
        )
        for limit in max_l2_distances
    }
    return pd.DataFrame(table, index=pd.Index(thresholds, name="reference-threshold"))


def cost_by_thresholds(
    judged: Judged,
    max_l2_distance: float,
    thresholds: Sequence[float],
    costs: Costs | None = None,
    rule: PreciseRule = "unique",
) -> pd.DataFrame:
    """Mean cost a query for each highly-relevant (columns) and reference threshold (rows).

    NaN where reference is above highly-relevant: not valid.
    """
    table = pd.DataFrame(
        np.nan,
        index=pd.Index(thresholds, name="reference-threshold"),
        columns=pd.Index(thresholds, name="highly-relevant-threshold"),
    )
    for high in thresholds:
        below = [reference for reference in thresholds if reference <= high]
        settings = [(max_l2_distance, high, reference) for reference in below]
        table.loc[below, high] = expected_costs(judged, settings, costs, rule)
    return table


def expected_costs(
    judged: Judged, settings: ArrayLike, costs: Costs | None = None, rule: PreciseRule = "unique"
) -> NDArray[np.float64]:
    """Mean cost a query under each (max, highly-relevant, reference), of shape (m,).

    Raises `ConfigError` for the first setting that is not valid.
    """
    table = costs or Costs()
    rows = np.atleast_2d(np.asarray(settings, dtype=np.float64))
    largest = largest_max_of(judged, float(rows[:, 0].max()))
    matrices = grid_matrices(ladder(judged, precise_requires=rule, largest_max=largest), rows)
    paid = (matrices * table.scaled()).sum(axis=(1, 2))
    mean: NDArray[np.float64] = paid / (table.scale * len(judged))
    return mean


def reach_by_max(
    judged: Judged,
    normalization: Normalization,
    max_l2_distances: Sequence[float],
    rule: PreciseRule = "unique",
) -> pd.DataFrame:
    """The share of queries each level gets under each max, the thresholds left as they are."""
    mixes = {
        limit: grade_mix(
            levels(judged, normalization.model_copy(update={"max_l2_distance": limit}), rule)
        )
        for limit in max_l2_distances
    }
    return pd.DataFrame(mixes).T.rename_axis("max-l2-distance")


def rates_along_cut(judged: Judged, rule: PreciseRule = "unique") -> pd.DataFrame:
    """What each cut does if it lies at a distance, one row a distance.

    Of HIGHLY_RELEVANT: `precision`, `coverage` (with PRECISE), `false_closure` with the
    reference cut at the same place. Of REFERENCE: `found_rate` and `leak_rate`. NaN where
    nothing is counted.
    """
    placed = ladder(judged, precise_requires=rule)
    known = judged.distance[np.isfinite(judged.distance)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    distance = np.linspace(low, high, STEPS)
    near = judged.distance[:, None] <= distance  # (n, STEPS)
    closed = near & ~placed.precise[:, None]
    given = near | (judged.l0_count > 0)[:, None]
    answers, answerable = judged.worth == Worth.ANSWERS, judged.answerable
    false = np.stack([~reached(judged.tau, float(cut)) for cut in distance], axis=1)
    return pd.DataFrame(
        {
            "distance": distance,
            "precision": _share(closed & answers[:, None], closed),
            "coverage": _share(
                (closed | placed.precise[:, None])[answerable], np.full_like(near, True)[answerable]
            ),
            "false_closure": _share((closed & false)[answerable], closed[answerable]),
            "found_rate": _share(given[answerable], np.full_like(near, True)[answerable]),
            "leak_rate": _share(given[~answerable], np.full_like(near, True)[~answerable]),
        }
    )


def outcomes(judged: Judged) -> list[str]:
    """What each primary was worth, in the words of the query table."""
    return [OUTCOMES[Worth(worth)] for worth in judged.worth]


def before_after(tuned: Tuned) -> pd.DataFrame:
    """Every rate under the present settings and at the chosen cuts, held out."""
    rows = [
        {"name": name, "before": told(rate), "after": told(tuned.after.get(name))}
        for name, rate in tuned.before.items()
    ]
    return pd.DataFrame(rows)


def _share(held: NDArray[np.bool_], among: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Per column, of (n, steps): the share, NaN where nothing is counted."""
    count = among.sum(axis=0)
    share: NDArray[np.float64] = np.where(
        count > 0, held.sum(axis=0) / np.maximum(count, 1), np.nan
    )
    return share
