"""From similarity to probability: fitted on dev, shown on test, queries without L0 matches."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_world import A, N, R, W, judged_from, world
from scipy.special import expit, logit

from kbeval.errors import ConfigError
from kbeval.evaluation.statistics import wilson
from kbeval.evaluation.tuning.calibration import NotCalibrated, calibrate, reliability


def logistic_world(n, seed, *, slope=12.0, middle=0.6, **columns):
    """P(answers) is a logistic curve of the similarity under max 2."""
    rng = np.random.default_rng(seed)
    similarity = np.round(rng.random(n), 6)
    right = rng.random(n) < expit(slope * (similarity - middle))
    return judged_from(2 * (1 - similarity), np.where(right, A, W), **columns)


def test_the_logistic_curve_is_found_again():
    found = calibrate(logistic_world(4000, 1), logistic_world(4000, 2), method="logistic")
    assert found.slope == pytest.approx(12, rel=0.1)
    assert -found.intercept / found.slope == pytest.approx(0.6, abs=0.01)
    assert found.probability([0.6, 0.8]).tolist() == pytest.approx(expit([0.0, 2.4]), abs=0.03)
    assert found.max_l2_distance == 2.0


def test_the_logistic_fit_is_that_of_maximum_likelihood():
    # two similarities: the curve passes through both shares
    near = np.repeat([0.4, 0.8], 50)
    right = np.r_[np.arange(50) < 10, np.arange(50) < 40]
    dev = judged_from(2 * (1 - near), np.where(right, A, W))
    found = calibrate(dev, dev)
    assert found.probability([0.4, 0.8]).tolist() == pytest.approx([0.2, 0.8], abs=1e-3)
    slope = (logit(0.8) - logit(0.2)) / 0.4
    assert found.slope == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize(("n", "method"), [(999, "logistic"), (1000, "isotonic")])
def test_isotonic_from_a_thousand_queries_on(n, method):
    assert calibrate(logistic_world(n, 1), logistic_world(50, 2)).method == method


def test_isotonic_by_hand():
    # shares 0/1, 1/1, 0/1 at .2, .4, .6 pool to 1/2 from .4 on; .8 is 1
    dev = judged_from(2 * (1 - np.array([0.2, 0.4, 0.6, 0.8])), [W, A, W, A])
    found = calibrate(dev, dev, method="isotonic")
    foretold = found.probability([0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0])
    assert foretold.tolist() == pytest.approx([0, 0, 0.25, 0.5, 0.5, 0.5, 0.75, 1, 1])


def test_brier_by_hand():
    dev = judged_from(2 * (1 - np.array([0.2, 0.4, 0.6, 0.8])), [W, A, W, A])
    test = judged_from(2 * (1 - np.array([0.2, 0.4, 0.6, 0.8])), [W, W, A, N])
    found = calibrate(dev, test, method="isotonic")
    assert found.base_rate == 0.5
    assert found.brier.value == pytest.approx((0 + 0.25 + 0.25 + 1) / 4)
    assert found.brier_difference.value == pytest.approx((0 + 0.25 + 0.25 + 1) / 4 - 0.25)
    assert found.brier.note == "too few queries"


def test_a_curve_that_says_something_beats_the_base_rate():
    found = calibrate(logistic_world(600, 1), logistic_world(600, 2))
    assert found.brier_difference.high < 0
    assert found.brier.low < found.brier.value < found.brier.high


def test_intervals_are_those_of_clusters():
    cluster = np.repeat(np.arange(60), 10)
    alone = calibrate(logistic_world(600, 1), logistic_world(600, 2))
    doubled = logistic_world(60, 2)
    rows = np.repeat(np.arange(60), 10)
    same = judged_from(doubled.distance[rows], doubled.worth[rows], cluster=cluster)
    found = calibrate(logistic_world(600, 1), same)
    assert found.brier.n == alone.brier.n == 600
    assert found.brier.high - found.brier.low > 2 * (alone.brier.high - alone.brier.low)


def test_only_queries_without_an_exact_match_and_with_a_document_count():
    free = judged_from([0.2, 0.4, 0.9, 1.2], [A, A, W, A])
    mixed = judged_from(
        [0.2, 0.1, 0.4, 0.9, math.inf, 1.2], [A, W, A, W, W, A], l0_count=[0, 1, 0, 0, 0, 0]
    )
    assert calibrate(mixed, mixed).to_json() == calibrate(free, free).to_json()
    assert calibrate(mixed, mixed).dev_n == 4


def test_related_wrong_and_nothing_are_no_answers():
    dev = judged_from([0.2, 0.4, 0.6, 0.8], [A, R, W, N])
    assert calibrate(dev, dev).base_rate == 0.25


@pytest.mark.parametrize(
    ("dev", "test", "told"),
    [
        ([(0.2, A), (0.3, A)], [(0.2, A)], "of 2 dev queries without an L0 match all is answered"),
        ([(0.2, W)], [(0.2, A)], "of 1 dev queries without an L0 match none is answered"),
        ([], [(0.2, A)], "of 0 dev queries without an L0 match none is answered"),
        ([(0.2, W), (0.3, A)], [], "no test query without an L0 match to show it on"),
    ],
)
def test_one_class_is_said_not_fitted(dev, test, told):
    parts = [judged_from([d for d, _ in rows], [w for _, w in rows]) for rows in (dev, test)]
    found = calibrate(*parts)
    assert isinstance(found, NotCalibrated)
    assert str(found) == f"not calibrated: {told}"
    assert found.to_json() == {"not_calibrated": told}


def test_perfect_separation_stays_finite_and_silent(recwarn):
    dev = judged_from([0.1, 0.2, 0.3, 1.0, 1.1, 1.2], [A, A, A, W, W, W])
    found = calibrate(dev, dev)
    assert math.isfinite(found.slope)
    assert found.probability([0.95, 0.4]).round(2).tolist() == [1.0, 0.0]
    assert not recwarn.list


def test_one_similarity_for_all_foretells_the_base_rate():
    dev = judged_from([0.5] * 10, [A] * 3 + [W] * 7)
    assert calibrate(dev, dev).probability(0.75) == pytest.approx(0.3, abs=1e-3)


def test_two_conventions_are_not_mixed():
    with pytest.raises(ConfigError, match="dev was judged in l2, test in squared_l2"):
        calibrate(judged_from([0.2, 0.4], [A, W]), judged_from([0.2], [A], convention="squared_l2"))


@pytest.mark.parametrize(
    ("n", "bins"), [(29, 1), (59, 1), (60, 2), (299, 9), (300, 10), (1000, 10)]
)
def test_ten_bins_of_thirty_or_fewer_bins(n, bins):
    near = np.random.default_rng(1).permutation(np.arange(n) / n)
    found = reliability(near, near, near > 0.5)
    sizes = [part.came.n for part in found]
    assert (len(sizes), sum(sizes)) == (bins, n)
    assert max(sizes) - min(sizes) <= 1
    assert [part.low for part in found] == sorted(part.low for part in found)


def test_a_bin_by_hand():
    near = np.arange(30) / 100
    (found,) = reliability(near, np.full(30, 0.25), np.arange(30) < 6)
    assert (found.low, found.high, found.foretold) == (0.0, 0.29, 0.25)
    assert (found.came.value, found.came.low, found.came.high) == (0.2, *wilson(6, 30))


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.31, 0.32, 0.5]), min_size=1, max_size=400))
def test_queries_of_one_similarity_stay_in_one_bin(near):
    near = np.array(near)
    found = reliability(near, near, near > 0.3)
    assert sum(part.came.n for part in found) == len(near)
    assert all(a.high < b.low for a, b in pairwise(found))
    assert len(found) == 1 or min(part.came.n for part in found) >= 30


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(["logistic", "isotonic"]))
def test_a_nearer_document_is_never_foretold_less_when_isotonic_and_always_in_range(seed, method):
    found = calibrate(world(60, seed), world(40, seed + 1), method=method)
    if isinstance(found, NotCalibrated):
        return
    foretold = found.probability(np.linspace(0, 1, 101))
    assert ((foretold >= 0) & (foretold <= 1)).all()
    if method == "isotonic":
        assert (np.diff(foretold) >= 0).all()
    json.dumps(found.to_json(), allow_nan=False)


def test_test_has_no_part_in_the_curve():
    dev = logistic_world(200, 1)
    one, other = (calibrate(dev, logistic_world(100, seed)) for seed in (2, 3))
    assert (one.slope, one.intercept, one.base_rate) == (
        other.slope,
        other.intercept,
        other.base_rate,
    )
    assert one.brier != other.brier
