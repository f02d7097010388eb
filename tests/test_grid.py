"""A whole grid of settings at once, equal in every cell to grading each setting."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from measure_oracle import evidence_of, random_world

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.judge import Worth, judge
from kbeval.evaluation.measures import levels
from kbeval.evaluation.tuning.grid import accepted_counts, grid_matrices
from kbeval.evaluation.tuning.ladder import ladder, ladder_of

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("rule", ["unique", "unique-and-nearest"])
@pytest.mark.parametrize("convention", ["l2", "squared_l2"])
@pytest.mark.parametrize("seed", range(4))
def test_every_cell_equals_grading_that_setting(seed, convention, rule):
    world = random_world(seed, n=40)
    judged = judge(world.labelled, evidence_of(world, convention=convention), limit=1 + seed % 3)
    steps = np.round(np.linspace(0, 1, 9), 3)
    grid = [
        (limit, high, reference)
        for limit, high, reference in product((0.3, 0.7, 1.0, 1.7, 2.0, 4.0), steps, steps)
        if reference <= high
    ]
    found = grid_matrices(ladder(judged, precise_requires=rule), grid)
    for matrix, (limit, high, reference) in zip(found, grid, strict=True):
        setting = Normalization(
            distance=convention,
            max_l2_distance=limit,
            highly_relevant_threshold=float(high),
            reference_threshold=float(reference),
        )
        wanted = np.zeros((4, 4), int)
        np.add.at(wanted, (levels(judged, setting, rule), judged.worth), 1)
        assert matrix.tolist() == wanted.tolist()


def test_counts_hold_to_the_last_decimal():
    rng = np.random.default_rng(5)
    tuned = ladder_of(np.round(rng.random(3000) * 2.2, 6), np.zeros(3000, int))
    near = tuned.distance[tuned.order]
    limit, threshold = np.round(rng.random((2, 400)), 6)
    limit += 0.2
    found = accepted_counts(tuned, limit, threshold)
    slow = [
        int((np.round(1 - np.minimum(near, m) / m, 6) >= t).sum())
        for m, t in zip(limit, threshold, strict=True)
    ]
    assert found.tolist() == slow


def test_th01_ten_similarities_on_the_grid_are_accepted_ten_nine_to_one():
    similarity = np.array(json.loads((CASES / "TH-01" / "sweep.json").read_text())["similarities"])
    tuned = ladder_of((1 - similarity) * 2, [Worth.ANSWERS] * 10)
    grid = [(2.0, t / 100, t / 100) for t in range(50, 100, 5)]
    found = grid_matrices(tuned, grid)
    assert found[:, 2, Worth.ANSWERS].tolist() == list(range(10, 0, -1))


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ((2.0, 0.6, 0.8), r"setting \(2.0, 0.6, 0.8\) .* is not valid"),
        ((0.0, 0.6, 0.5), "max > 0"),
        ((2.0, 1.1, 0.5), "highly-relevant <= 1"),
        ((2.0, float("nan"), 0.5), "is not valid"),
        ((2.0, 0.5), r"settings of shape \(1, 2\)"),
    ],
)
def test_a_setting_that_is_not_valid_is_refused(setting, text):
    with pytest.raises(ConfigError, match=text):
        grid_matrices(ladder_of([0.1], [3]), [setting])
