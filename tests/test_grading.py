"""Distance to similarity to level: TH-01, TH-02, and the properties every caller rests on."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.errors import DistanceError
from kbeval.records import Level
from kbeval.retrieval.grading import (
    checked_distance,
    cut_distance,
    distance_to_cosine,
    grade,
    l2_to_similarity,
)

CASES = Path(__file__).parent / "cases"
BOUNDARY = json.loads((CASES / "TH-01/boundary.json").read_text(encoding="utf-8"))
SWEEP = json.loads((CASES / "TH-01/sweep.json").read_text(encoding="utf-8"))
DISTANCES = json.loads((CASES / "TH-02/distances.json").read_text(encoding="utf-8"))

distances = st.floats(0, 5, allow_nan=False)
limits = st.floats(0.01, 16, allow_nan=False)
thresholds = st.floats(0, 1, allow_nan=False)


# TH-01


@pytest.mark.parametrize("row", BOUNDARY, ids=lambda row: f"{row['l2']} as {row['dtype']}")
def test_th01_a_similarity_on_the_threshold_counts(row):
    distance = np.array([row["l2"]], row["dtype"])
    similarity = l2_to_similarity(distance)
    level = grade(0, 0, similarity, highly_relevant=row["hi"], reference=row["ref"])
    assert similarity.tolist() == [row["similarity"]]
    assert [Level(code).name for code in level] == [row["grade"] or "NOT_FOUND"]


def test_th01_ten_decimal_thresholds_count_ten_to_one():
    grid = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
    assert grid == SWEEP["similarities"]
    levels = grade(0, 0, np.array(SWEEP["similarities"])[:, None], highly_relevant=grid)
    assert (levels == Level.HIGHLY_RELEVANT).sum(axis=0).tolist() == SWEEP["hits_at_or_above"]


def test_th01_a_drifting_grid_is_rounded_before_it_is_compared():
    drifting = np.arange(0.5, 0.96, 0.05)
    assert drifting.tolist() != SWEEP["similarities"]  # 0.7500000000000002 and the like
    levels = grade(0, 0, np.array(SWEEP["similarities"])[:, None], highly_relevant=drifting)
    assert (levels == Level.HIGHLY_RELEVANT).sum(axis=0).tolist() == SWEEP["hits_at_or_above"]


def test_th01_the_sweeps_column_is_the_graders_own_row():
    similarity = np.array(SWEEP["similarities"])
    swept = grade(0, 0, similarity[:, None], highly_relevant=similarity)[:, 5]
    assert swept.tolist() == grade(0, 0, similarity, highly_relevant=0.75).tolist()


# TH-02


def written(value):
    return {"Infinity (float)": math.inf, "NaN (float)": math.nan}.get(value, value)


@pytest.mark.parametrize("row", DISTANCES, ids=lambda row: str(row["l2"]))
@pytest.mark.parametrize("form", [lambda x: x, lambda x: [x], lambda x: [0.5, x]])
def test_th02_no_similarity_outside_its_range(row, form):
    value = form(written(row["l2"]))
    if row["expect"] == "error":
        for function in (l2_to_similarity, checked_distance):
            with pytest.raises(DistanceError, match="expected"):
                function(value)
        return
    similarity = np.atleast_1d(l2_to_similarity(value))
    # a place without a neighbour yields no row (see the index tests); as a number it is 0
    assert similarity[-1] == (0.0 if row["expect"] == "no neighbour" else row["expect"])
    assert ((similarity >= 0) & (similarity <= 1)).all()


@pytest.mark.parametrize(
    ("distance", "said"),
    [
        pytest.param([0.1, 0.2, -0.2], r"\(2,\) is -0.2", id="position and value"),
        pytest.param([[0.1, 0.2], [math.nan, 0.3]], r"\(1, 0\) is nan", id="two axes"),
        pytest.param(np.array([0.1, -0.2], np.float32), r"\(1,\) is -0.2", id="float32"),
        pytest.param(np.array([True, False]), "not a number", id="an array of booleans"),
        pytest.param([0.5, True], "True", id="True among numbers"),
        pytest.param([1, True], "True", id="True among whole numbers"),
        pytest.param((0.5, False), "False", id="False in a tuple"),
        pytest.param(np.array(["0.5"]), "0.5", id="an array of text"),
        pytest.param(["0.5", 0.5], "0.5", id="text among numbers"),
        pytest.param([None, 0.5], "None", id="null among numbers"),
        pytest.param(np.array([0.5, None], object), "None", id="an array of objects"),
        pytest.param(1j, "1j", id="a complex number"),
        pytest.param(-2e-6, "-2e-06", id="just beyond the noise"),
    ],
)
def test_th02_what_is_no_distance_is_refused_and_named(distance, said):
    with pytest.raises(DistanceError, match=said):
        checked_distance(distance)


@pytest.mark.parametrize("noise", [-1e-7, -1e-6, np.float32(-1e-7), -0.0])
def test_th02_rounding_noise_below_zero_is_zero(noise):
    assert checked_distance(noise) == 0
    assert not np.signbit(checked_distance(noise))
    assert l2_to_similarity(noise) == 1


def test_distances_are_rounded_to_six_decimals_before_anything_else():
    assert checked_distance([0.1234564, 0.1234566]).tolist() == [0.123456, 0.123457]
    assert checked_distance(np.float32(0.6)) == 0.6
    assert l2_to_similarity(np.float32(0.6)) == 0.7
    assert checked_distance([0.5 + 1e-8, 0.5 - 1e-8]).tolist() == [0.5, 0.5]  # ST-03


# shapes and conventions


def test_distances_broadcast_against_limits():
    similarity = l2_to_similarity(np.array([0.0, 0.75, 1.5])[:, None], [1.5, 2.0, 3.0])
    assert similarity.tolist() == [[1.0, 1.0, 1.0], [0.5, 0.625, 0.75], [0.0, 0.25, 0.5]]


def test_grade_broadcasts_queries_against_settings():
    levels = grade(
        np.array([0, 1, 2])[:, None],
        np.array([0, 1, 2])[:, None],
        np.array([0.6, 0.6, 0.1])[:, None],
        highly_relevant=[0.75, 0.6],
        reference=[0.5, 0.6],
    )
    assert levels.tolist() == [[1, 2], [3, 3], [1, 1]]
    assert levels.dtype == np.int8


def test_a_match_that_may_not_be_precise_is_graded_by_its_similarity_reference_at_least():
    levels = grade([1, 1, 1], [1, 1, 1], [0.8, 0.6, 0.1], l0_may_be_precise=[False] * 3)
    assert levels.tolist() == [Level.HIGHLY_RELEVANT, Level.REFERENCE, Level.REFERENCE]


def test_nothing_in_nothing_out():
    assert l2_to_similarity(np.empty((0, 3))).shape == (0, 3)
    assert checked_distance(np.empty(0)).shape == (0,)
    assert grade(np.empty(0), np.empty(0), np.empty(0)).tolist() == []


def test_the_cosine_of_both_conventions():
    cosine = np.array([1.0, 0.8, 0.5, 0.0, -1.0])
    squared = 2 - 2 * cosine  # of two unit vectors
    np.testing.assert_allclose(distance_to_cosine(squared, "squared_l2"), cosine, atol=1e-12)
    np.testing.assert_allclose(distance_to_cosine(np.sqrt(squared), "l2"), cosine, atol=1e-12)


def test_cosine_08_is_0684_by_distance_and_0800_by_its_square():
    assert l2_to_similarity(math.sqrt(0.4)) == 0.683772
    assert l2_to_similarity(0.4) == 0.8


# properties


@given(st.lists(distances, min_size=1, max_size=30), limits)
def test_a_smaller_distance_is_never_less_similar(values, limit):
    similarity = l2_to_similarity(sorted(values), limit)
    assert (np.diff(similarity) <= 0).all()
    assert ((similarity >= 0) & (similarity <= 1)).all()


@given(st.lists(distances, min_size=1, max_size=30), limits, thresholds, thresholds)
def test_a_batch_is_graded_as_its_members_are(values, limit, one, other):
    low, high = sorted((one, other))
    counts = np.arange(len(values)) % 3
    batch = grade(
        counts, counts, l2_to_similarity(values, limit), highly_relevant=high, reference=low
    )
    single = [
        int(
            grade(count, count, l2_to_similarity(value, limit), highly_relevant=high, reference=low)
        )
        for count, value in zip(counts, values, strict=True)
    ]
    assert batch.tolist() == single


@given(st.lists(distances, min_size=2, max_size=30), st.integers(0, 3), st.booleans())
def test_a_smaller_distance_never_lowers_the_level(values, l0_count, may_be_precise):
    similarity = l2_to_similarity(sorted(values))
    levels = grade(l0_count, l0_count, similarity, l0_may_be_precise=may_be_precise)
    assert (np.diff(levels) <= 0).all()


@given(
    thresholds.map(lambda threshold: round(threshold, 6)),
    limits,
    st.lists(distances, max_size=20),
    st.integers(-3, 3),
)
def test_the_cut_distance_agrees_with_the_threshold(threshold, limit, values, near):
    cut = cut_distance(threshold, limit)
    around = [cut + near * 1e-6] if math.isfinite(cut) and cut + near * 1e-6 >= 0 else []
    distance = checked_distance([*values, *around, 0.0, limit])
    by_cut = distance <= cut
    by_threshold = l2_to_similarity(distance, limit) >= threshold
    assert by_cut.tolist() == by_threshold.tolist()


@pytest.mark.parametrize(
    ("threshold", "limit", "cut"),
    [
        pytest.param(0.75, 2.0, 0.5, id="the specs' highly relevant"),
        pytest.param(0.5, 2.0, 1.000001, id="0.4999995 rounds up to the threshold"),
        pytest.param(0.5, 1.5, 0.75, id="another maximum"),
        pytest.param(1.0, 2.0, 1e-6, id="0.9999995 rounds up to 1"),
        pytest.param(0.0, 2.0, math.inf, id="no threshold, no cut"),
    ],
)
def test_cut_distances_worked_out_by_hand(threshold, limit, cut):
    assert cut_distance(threshold, limit) == cut
