"""Intervals of rates and means, and the label budget (method.md 6, 7)."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, t

from kbeval.errors import ConfigError
from kbeval.evaluation.statistics import (
    Rate,
    clopper_pearson,
    cluster_rate,
    label_budget,
    label_budget_for_power,
    mean_interval,
    rate,
    wilson,
)


@pytest.mark.parametrize(
    ("success_count", "n", "low", "high"),
    [  # Newcombe (1998), Statistics in Medicine 17, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_intervals(success_count, n, low, high):
    assert np.round(wilson(success_count, n), 4).tolist() == [low, high]


@pytest.mark.parametrize(
    ("success_count", "n", "low", "high"),
    [  # the same table, method 5
        (81, 263, 0.2527, 0.3676),
        (15, 148, 0.0578, 0.1617),
        (0, 20, 0.0, 0.1684),
        (1, 29, 0.0009, 0.1776),
    ],
)
def test_clopper_pearson_gives_the_published_intervals(success_count, n, low, high):
    assert np.round(clopper_pearson(success_count, n), 4).tolist() == [low, high]


def test_clopper_pearson_of_all_or_none_is_a_power():
    assert clopper_pearson(0, 12) == (0.0, pytest.approx(1 - 0.025 ** (1 / 12)))
    assert clopper_pearson(12, 12) == (pytest.approx(0.025 ** (1 / 12)), 1.0)


@pytest.mark.parametrize("interval", [wilson, clopper_pearson])
def test_no_row_says_nothing(interval):
    assert interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("interval", [wilson, clopper_pearson])
@settings(deadline=None)
@given(n=st.integers(1, 500), share=st.floats(0, 1))
def test_an_interval_holds_its_share_and_mirrors(interval, n, share):
    k = round(n * share)
    low, high = interval(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert interval(n - k, n) == pytest.approx((1 - high, 1 - low), abs=1e-12)


@settings(deadline=None)
@given(n=st.integers(1, 200), share=st.floats(0, 1))
def test_clopper_pearsons_ends_leave_the_tails_they_promise(n, share):
    k = round(n * share)
    low, high = clopper_pearson(k, n)
    assert k == 0 or binom.sf(k - 1, n, low) == pytest.approx(0.025, rel=1e-6)
    assert k == n or binom.cdf(k, n, high) == pytest.approx(0.025, rel=1e-6)


def test_a_rate_without_rows_has_no_value_and_says_why():
    assert rate([], empty="no unanswerable query") == Rate(
        None, None, None, 0, "no unanswerable query"
    )
    assert cluster_rate([1, 2], [0, 0], [0, 1], empty="none") == Rate(None, None, None, 0, "none")


def test_a_rate_of_single_rows_is_wilsons():
    success = [True, False, True, True]
    assert rate(success, [3, 1, 2, 0]) == rate(success) == Rate(0.75, *wilson(3, 4), 4)


def test_a_clustered_rate_worked_out_by_hand():
    # Ten sessions of two rows: five with both right, five with none. r = 1/2, N = 20,
    # residuals s - r n = +-1, so se = sqrt(10/9 * 10) / 20 = 1/6, t(9) = 2.262157.
    success = [True, True, False, False] * 5
    got = rate(success, np.arange(20) // 2)
    assert (got.value, got.n, got.note) == (0.5, 20, "approximate")
    assert (got.low, got.high) == pytest.approx((0.5 - 2.262157 / 6, 0.5 + 2.262157 / 6), abs=1e-6)


def test_a_ratio_over_clusters_agrees_with_the_slow_formula():
    rng = np.random.default_rng(3)
    for _ in range(50):
        cluster = rng.integers(0, 45, 200)
        denominator = rng.integers(0, 3, 200).astype(float)
        numerator = denominator * rng.random(200)
        pairs = {}
        for s, n, g in zip(numerator, denominator, cluster, strict=True):
            if n > 0:
                a, b = pairs.get(g, (0.0, 0.0))
                pairs[g] = (a + s, b + n)
        total = sum(b for _, b in pairs.values())
        r = sum(a for a, _ in pairs.values()) / total
        count = len(pairs)
        spread = sum((a - r * b) ** 2 for a, b in pairs.values())
        half = t.ppf(0.975, count - 1) * math.sqrt(count / (count - 1) * spread) / total
        got = cluster_rate(numerator, denominator, cluster)
        assert (got.value, got.low, got.high) == pytest.approx((r, r - half, r + half))
        assert got.n == (denominator > 0).sum()


@pytest.mark.parametrize(
    ("clusters", "note", "has_interval"),
    [
        (9, "too few sessions", False),
        (10, "approximate", True),
        (39, "approximate", True),
        (40, "", True),
    ],
)
def test_few_sessions_are_marked_and_fewer_give_no_interval(clusters, note, has_interval):
    cluster = np.repeat(np.arange(clusters), 3)
    got = rate(np.arange(3 * clusters) % 7 < 3, cluster)
    assert (got.note, got.low is not None) == (note, has_interval)
    assert got.n == 3 * clusters


@pytest.mark.parametrize("success", [True, False])
def test_all_or_none_counts_sessions_not_rows(success):
    got = rate([success] * 120, np.arange(120) // 3)
    assert (got.value, got.low, got.high) == (float(success), *clopper_pearson(40 * success, 40))


def test_a_clustered_interval_stays_within_0_and_1():
    success = np.zeros(40, dtype=bool)
    success[:3] = True
    got = rate(success, np.arange(40) // 2)
    assert got.low == 0.0 and got.high > got.value


def test_a_mean_worked_out_by_hand():
    # Sixteen values, half 1 and half 3: mean 2, residuals +-1, se = sqrt(16/15 * 16) / 16.
    half = 2.131450 * math.sqrt(16 / 15) / 4  # t(15)
    got = mean_interval([1, 3] * 8)
    assert (got.value, got.n, got.note) == (2.0, 16, "approximate")
    assert (got.low, got.high) == pytest.approx((2 - half, 2 + half), abs=1e-6)


def test_the_mean_of_clustered_costs_is_wider_than_that_of_rows():
    cost, cluster = np.repeat(np.arange(50) % 5, 4), np.repeat(np.arange(50), 4)
    rows, sessions = mean_interval(cost), mean_interval(cost, cluster)
    assert rows.value == sessions.value
    assert sessions.high - sessions.low > 1.9 * (rows.high - rows.low)


@pytest.mark.parametrize(
    ("values", "bounds", "low", "high"),
    [
        ([2.5] * 50, None, None, None),
        ([0.5] * 50, (0.0, 1.0), None, None),
        ([0.0] * 50, (0.0, 1.0), *clopper_pearson(0, 50)),
        ([1.0] * 50, (0.0, 1.0), *clopper_pearson(50, 50)),
    ],
)
def test_values_without_spread_never_get_an_interval_of_no_width(values, bounds, low, high):
    got = mean_interval(values, bounds=bounds)
    assert (got.value, got.low, got.high) == (values[0], low, high)
    assert got.note == ("all are equal: no spread" if low is None else "")


def test_weights_shift_the_mean_and_rows_of_no_weight_do_not_count():
    got = mean_interval([1.0, 2.0, 9.0] * 20, weights=[3.0, 1.0, 0.0] * 20)
    assert (got.value, got.n) == (1.25, 40)
    assert mean_interval([], empty="no query") == Rate(None, None, None, 0, "no query")


def test_a_rate_prints_value_interval_and_n():
    assert str(Rate(0.5, 0.25, 0.75, 8)) == "0.500 [0.250, 0.750] 8"
    assert str(Rate(None, None, None, 0, "no query")) == "- [-, -] 0 (no query)"
    assert Rate(None, None, None, 0, "no query").to_json() == {
        "value": None,
        "low": None,
        "high": None,
        "n": 0,
        "note": "no query",
    }


BUDGET = [  # method.md 6, "Label budget"
    (0.90, 0.05, [29, 46, 61, 76]),
    (0.90, 0.025, [36, 54, 70, 85]),
    (0.95, 0.05, [59, 93, 124, 153]),
    (0.95, 0.025, [72, 110, 142, 173]),
    (0.98, 0.05, [149, 236, 313, 386]),
    (0.98, 0.025, [183, 277, 359, 436]),
]


@pytest.mark.parametrize(("p", "delta", "least"), BUDGET)
def test_the_label_budget_is_that_of_the_method(p, delta, least):
    assert [label_budget(p, delta, errors) for errors in range(4)] == least


@pytest.mark.parametrize(
    ("p", "truth", "alone", "one_of_two"),
    [(0.90, 0.95, 203, 255), (0.90, 0.97, 89, 114), (0.95, 0.98, 286, 338), (0.95, 0.99, 124, 173)],
)
def test_the_label_budget_for_power_is_that_of_the_method(p, truth, alone, one_of_two):
    assert label_budget_for_power(p, 0.05, truth) == alone
    assert label_budget_for_power(p, 0.025, truth) == one_of_two


def test_no_error_allowed_is_a_power_of_the_claim():
    for p in (0.5, 0.8, 0.9, 0.99):
        assert label_budget(p, 0.05, 0) == math.ceil(math.log(0.05) / math.log(p))


def test_from_the_budget_for_power_on_the_chance_to_pass_stays():
    n = label_budget_for_power(0.9, 0.05, 0.97)
    chance = []
    for size in range(n - 1, n + 200):
        passing = [e for e in range(40) if binom.cdf(e, size, 0.1) <= 0.05]
        chance.append(binom.cdf(max(passing), size, 0.03))
    assert chance[0] < 0.8 <= min(chance[1:])


@pytest.mark.parametrize("arguments", [(1.0, 0.05, 0), (0.9, 0.0, 0), (0.9, 0.05, -1)])
def test_a_claim_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(ConfigError, match="got"):
        label_budget(*arguments)


def test_power_is_refused_when_the_truth_does_not_exceed_the_claim():
    with pytest.raises(ConfigError, match=r"truth 0\.9 must lie between the claim 0\.9 and 1"):
        label_budget_for_power(0.9, 0.05, 0.9)


def _covered(rng, sessions, *, size=7, p=0.8, icc=0.2):
    """Beta-binomial sessions: does the t interval hold p, does Wilson's over rows?"""
    scale = (1 - icc) / icc
    chance = rng.beta(p * scale, (1 - p) * scale, sessions)
    success = (rng.random((sessions, size)) < chance[:, None]).ravel()
    clustered = rate(success, np.repeat(np.arange(sessions), size))
    ignored = rate(success)
    return [x.low <= p <= x.high for x in (clustered, ignored)]


@pytest.mark.slow
@pytest.mark.parametrize(("sessions", "least"), [(20, 0.88), (80, 0.91)])
def test_the_cluster_interval_covers_where_wilson_over_rows_does_not(sessions, least):
    rng = np.random.default_rng(11)
    clustered, ignored = np.mean([_covered(rng, sessions) for _ in range(2000)], axis=0)
    assert least <= clustered <= 0.97
    assert ignored <= 0.85


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 15)), min_size=1, max_size=80))
def test_a_rate_never_lies_outside_its_interval(rows):
    success, cluster = zip(*rows, strict=True)
    got = rate(success, cluster)
    assert got.value == pytest.approx(np.mean(success)) and got.n == len(rows)
    if got.low is not None:
        assert 0 <= got.low <= got.value <= got.high <= 1
