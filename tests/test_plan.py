"""How many labels a claim needs: the table of method.md 6, design effects, and the verdict."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from kbeval.errors import ConfigError
from kbeval.evaluation.tuning.plan import (
    design_effect,
    label_plan,
    measured_design_effect,
    too_few_labels,
)


@pytest.mark.parametrize(
    ("precision", "alone", "shared", "power"),
    [
        (0.9, [29, 46, 61, 76], [36, 54, 70, 85], {0.95: (203, 255), 0.97: (89, 114)}),
        (0.95, [59, 93, 124, 153], [72, 110, 142, 173], {0.98: (286, 338), 0.99: (124, 173)}),
        (0.98, [149, 236, 313, 386], [183, 277, 359, 436], None),
    ],
)
def test_the_plan_gives_the_table_of_the_method(precision, alone, shared, power):
    plan = label_plan(precision, 0.95)
    assert [need.errors for need in plan.by_errors] == [0, 1, 2, 3]
    assert [need.alone for need in plan.by_errors] == alone
    assert [need.shared for need in plan.by_errors] == shared
    if power:
        assert {need.truth: (need.alone, need.shared) for need in plan.by_truth} == power


def test_a_leak_is_the_precision_of_withholding():
    plan = label_plan(leak=0.1)
    assert plan.claim == "leak <= 0.1"
    assert [need.alone for need in plan.by_errors] == [29, 46, 61, 76]


def test_other_claims_get_truths_of_half_and_a_fifth_of_their_errors():
    assert [need.truth for need in label_plan(0.8).by_truth] == [0.9, 0.96]


@pytest.mark.parametrize(
    ("coverage", "confirming_share", "effect", "queries"),
    [
        (1.0, 1.0, 1.0, 72),
        (0.4, 0.5, 1.0, 360),
        (0.4, 0.5, 2.2, 792),
        (0.7, 0.5, 1.0, 206),  # 205.7
        (None, 0.5, 1.0, None),
    ],
)
def test_queries_to_label_by_hand(coverage, confirming_share, effect, queries):
    plan = label_plan(0.95, coverage=coverage, confirming_share=confirming_share, effect=effect)
    assert plan.queries(72) == queries
    row = plan.to_json()["by_errors"][0]
    assert (row["one_of_several"], row["queries_one_of_several"]) == (72, queries)


def test_a_single_claim_is_not_divided():
    assert all(need.alone == need.shared for need in label_plan(0.9, claims=1).by_errors)


@given(
    st.sampled_from([0.7, 0.8, 0.9, 0.95]),
    st.sampled_from([0.8, 0.9, 0.95]),
    st.integers(1, 4),
)
def test_every_budget_is_the_least_that_passes(precision, confidence, claims):
    for need in label_plan(precision, confidence, claims=claims).by_errors:
        for n, delta in ((need.alone, 1 - confidence), (need.shared, (1 - confidence) / claims)):
            passes = [binom.cdf(need.errors, m, 1 - precision) <= delta + 1e-12 for m in (n - 1, n)]
            assert passes == [False, True]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"precision": 1.0}, "plan: precision is 1.0; a number above 0 and below 1 is expected"),
        ({"precision": 0.9, "confidence": 0}, "plan: confidence is 0; a number above 0"),
        ({}, "got precision None and leak None; exactly one of the two is expected"),
        ({"precision": 0.9, "leak": 0.1}, "exactly one of the two is expected"),
        ({"precision": 0.9, "coverage": 0.0}, "plan: coverage is 0.0"),
        ({"precision": 0.9, "effect": 0.5}, "design effect 0.5: both must be at least 1"),
        ({"precision": 0.9, "truths": [0.8]}, "truth 0.8 must lie between the claim 0.9 and 1"),
    ],
)
def test_a_number_outside_its_range_is_named(asked, told):
    with pytest.raises(ConfigError, match=told.replace("(", r"\(")):
        label_plan(**asked)


@pytest.mark.parametrize(
    ("per_cluster", "icc", "effect"), [(1, 0.5, 1.0), (7, 0.0, 1.0), (7, 0.2, 2.2), (5, 1.0, 5.0)]
)
def test_the_design_effect_by_hand(per_cluster, icc, effect):
    assert design_effect(per_cluster, icc) == effect


@pytest.mark.parametrize(("per_cluster", "icc"), [(0.5, 0.1), (3, -0.1), (3, 1.1), (np.inf, 0.1)])
def test_no_design_effect_outside_its_range(per_cluster, icc):
    with pytest.raises(ConfigError, match="design effect"):
        design_effect(per_cluster, icc)


def test_a_measured_design_effect_is_near_to_that_of_its_cause():
    rng = np.random.default_rng(3)
    cluster = np.repeat(np.arange(2000), 5)
    own = rng.random(2000)[cluster] < 0.5
    success = np.where(rng.random(len(cluster)) < np.sqrt(0.3), own, rng.random(len(cluster)) < 0.5)
    assert measured_design_effect(success, cluster) == pytest.approx(design_effect(5, 0.3), rel=0.1)
    assert measured_design_effect(success, rng.permutation(cluster)) == pytest.approx(1, rel=0.1)


def test_no_design_effect_without_spread_or_clusters():
    assert measured_design_effect([1, 1], [0, 1]) is None
    assert measured_design_effect([0, 1], [0, 0]) is None
    assert measured_design_effect([], []) is None


def test_too_few_labels_says_how_many_there_should_be():
    found = too_few_labels(31, precision=0.95)
    assert str(found) == (
        "59 queries graded HIGHLY_RELEVANT without an error support precision >= 0.95 alone, "
        "72 as one of 2 claims; you have 31"
    )
    assert (
        str(too_few_labels(20, leak=0.1, claims=1))
        == "29 unanswerable queries without an error support leak <= 0.1 alone; you have 20"
    )
    assert too_few_labels(71, precision=0.95) is not None
    assert too_few_labels(72, precision=0.95) is None
    assert too_few_labels(59, precision=0.95, claims=1) is None


def test_a_plan_is_plain_json():
    plan = json.loads(json.dumps(label_plan(0.95, coverage=0.5).to_json()))
    assert plan["by_truth"][0] == {
        "truth": 0.98,
        "alone": 286,
        "one_of_several": 338,
        "queries_alone": 1144,
        "queries_one_of_several": 1352,
    }
    assert json.loads(json.dumps(too_few_labels(3, leak=0.1).to_json()))["have"] == 3
