"""Paired differences over clusters: the sign-flip test, its power, Holm (method.md 9)."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbeval.errors import ConfigError
from kbeval.evaluation.paired import Paired, detectable, holm, paired_difference, sign_flip
from kbeval.evaluation.statistics import Rate, mean_interval


def by_enumeration(sums):
    """The slow way: every assignment of signs to whole clusters."""
    sums = list(sums)
    signs = list(itertools.product((1, -1), repeat=len(sums)))
    flipped = [abs(sum(s * x for s, x in zip(sign, sums, strict=True))) for sign in signs]
    return sum(total >= abs(sum(sums)) - 1e-9 for total in flipped) / len(signs)


@pytest.mark.parametrize(
    ("difference", "cluster", "p"),
    [
        ([1, 1, 1, 1, 1, 1], None, 2 / 64),
        ([1, 1, 1, 1, 1], None, 2 / 32),
        ([3, 1], None, 1 / 2),  # of +-3 +-1 two of four reach 4
        ([1, -1], None, 1.0),
        ([0, 0, 0], None, 1.0),
        ([2, 1, 1, -1], None, 8 / 16),  # of +2+-1+-1+-1 four of eight reach 3
        ([1] * 8, [0, 0, 0, 0, 1, 1, 1, 1], 2 / 4),  # eight queries are two sessions
        ([1, -1, 2, -2, 5], [0, 0, 1, 1, 2], 1.0),  # two sessions cancel within, one is left
    ],
)
def test_a_p_worked_out_by_hand(difference, cluster, p):
    assert sign_flip(difference, cluster) == pytest.approx(p)


def test_up_to_thirteen_clusters_that_differ_the_p_is_that_of_every_assignment():
    rng = np.random.default_rng(4)
    for count in range(1, 14):
        sums = np.round(rng.normal(0.3, 1, count), 1)
        assert sign_flip(sums) == by_enumeration(sums[sums != 0])


def test_clusters_that_do_not_differ_change_nothing():
    moved = [1.5, 0.25, 0.5, -0.25, 2.0]
    assert sign_flip(moved + [0.0] * 500) == sign_flip(moved) == by_enumeration(moved)


def test_beyond_thirteen_clusters_the_draws_come_near_the_enumeration():
    rng = np.random.default_rng(8)
    sums = np.round(rng.normal(0.4, 1, 16), 2)
    exact, drawn = by_enumeration(sums), sign_flip(sums)
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 9_999))
    assert (drawn * 10_000).is_integer()  # (b + 1) / (9,999 + 1)


def test_a_p_of_draws_is_never_zero():
    assert sign_flip(np.ones(200)) == 1 / 10_000
    assert sign_flip(np.ones(200), draws=99) == 1 / 100


values = st.lists(st.integers(-40, 40).map(lambda x: x / 8), min_size=1, max_size=40)


@settings(deadline=None, max_examples=60)
@given(difference=values, seed=st.integers(0, 5))
def test_swapping_the_runs_leaves_the_p(difference, seed):
    cluster = [i // 2 for i in range(len(difference))]
    turned = [-x for x in difference]
    p = sign_flip(difference, cluster, draws=199, seed=seed)
    assert sign_flip(turned, cluster, draws=199, seed=seed) == p
    assert 0 < p <= 1


@settings(deadline=None, max_examples=60)
@given(difference=values, factor=st.sampled_from([0.001, 0.1, 3.0, 1e6]))
def test_the_unit_of_a_difference_leaves_the_p(difference, factor):
    scaled = [x * factor for x in difference]
    assert sign_flip(scaled, draws=199) == sign_flip(difference, draws=199)


def rejections(rng, *, sessions, size, shared, trials):
    """The share of true nulls rejected at 5 %, flipping queries and flipping sessions."""
    cluster = np.arange(sessions * size) // size
    found = np.zeros(2)
    for trial in range(trials):
        own = rng.normal(0, math.sqrt(1 - shared), sessions * size)
        value = own + rng.normal(0, math.sqrt(shared), sessions)[cluster]
        for way, unit in enumerate((None, cluster)):
            found[way] += sign_flip(value, unit, draws=999, seed=trial) <= 0.05
    return found / trials


@pytest.mark.slow
def test_flipping_queries_finds_what_sessions_made_and_flipping_sessions_does_not():
    """method.md 9, measured: with ICC 0.2 and 7 a session 18 % in place of 5 %."""
    rng = np.random.default_rng(11)
    queries, sessions = rejections(rng, sessions=40, size=7, shared=0.2, trials=1000)
    assert 0.15 < queries < 0.22
    assert 0.035 < sessions < 0.065


@pytest.mark.slow
def test_a_difference_as_large_as_the_detectable_one_is_found_in_four_of_five_samples():
    rng = np.random.default_rng(12)
    error = 1 / math.sqrt(100)
    found = [
        sign_flip(rng.normal(detectable(error), 1, 100), draws=999, seed=trial) <= 0.05
        for trial in range(600)
    ]
    assert 0.75 < np.mean(found) < 0.85


@pytest.mark.parametrize(("tests", "factor"), [(1, 2.80), (4, 3.34)])
def test_the_detectable_effect_is_that_of_the_method(tests, factor):
    assert detectable(1.0, tests=tests) == pytest.approx(factor, abs=0.005)
    assert detectable(0.25, tests=tests) == pytest.approx(factor / 4, abs=0.005)


def test_a_paired_mean_worked_out_by_hand():
    # Forty queries, half better by 1 and half equal: mean 0.5, residuals 1/2,
    # se = sqrt(40/39 * 40/4) / 40 = 0.080064; detectable 2.801585 of it.
    found = paired_difference([1.0, 0.0] * 20)
    assert found.difference == mean_interval([1.0, 0.0] * 20)
    assert found.detectable == pytest.approx(2.801585 * 0.080064, abs=1e-5)
    assert (found.clusters, found.differing_clusters, found.differing_rows) == (40, 20, 20)
    assert found.p == 1 / 10_000
    assert found.note == ""


def test_the_spread_is_that_of_clusters_not_of_queries():
    value = np.repeat([1.0, -1.0] * 10, 5)
    alone, together = (
        paired_difference(value),
        paired_difference(value, np.repeat(np.arange(20), 5)),
    )
    assert together.detectable / alone.detectable == pytest.approx(
        math.sqrt(5) * math.sqrt((20 / 19) / (100 / 99)), rel=1e-9
    )


def test_the_rows_that_would_bring_it_to_a_margin_grow_with_the_square():
    found = paired_difference([1.0, 0.0] * 20)
    assert found.rows_for(found.detectable) == 40
    assert found.rows_for(found.detectable / 3) == 360
    assert found.rows_for(0.0) is None


@pytest.mark.parametrize(
    ("difference", "cluster", "p", "note"),
    [
        ([0.0] * 60, None, 1.0, "0 of 60 differ; at most 0.05 would (95 %)"),
        (
            [1.0] * 5 + [0.0] * 20,
            None,
            2 / 32,
            "5 of 25 clusters differ; fewer than 6 cannot give p below 0.05",
        ),
        (
            [1.0, 0.0] * 12,
            [i // 6 for i in range(24)],
            2 / 16,
            "4 of 4 clusters differ; fewer than 6 cannot give p below 0.05",
        ),
        ([], None, None, ""),
    ],
    ids=["nothing differs", "five differ", "four sessions", "no query"],
)
def test_where_nothing_could_be_found_it_says_so(difference, cluster, p, note):
    found = paired_difference(difference, cluster)
    assert (found.p, found.note) == (p, note)
    if not any(difference) or cluster:
        assert found.detectable is None


def test_what_rounding_leaves_is_no_difference():
    noise = 0.1 + 0.2 - 0.3
    found = paired_difference([1.0] * 7 + [noise] * 30 + [1.0, -1.0 + noise], [*range(37), 37, 37])
    assert (found.differing_rows, found.differing_clusters) == (9, 7)
    assert found.p == 2 / 2**7


def test_a_constant_difference_has_a_p_and_no_spread():
    found = paired_difference([0.5] * 30)
    assert found.p == 1 / 10_000
    assert (found.difference.value, found.difference.low, found.detectable) == (0.5, None, None)


def test_plain_values_hold_everything():
    found = Paired(Rate(0.1, 0.0, 0.2, 100), 0.04, 0.14, 100, 60, 61).to_json()
    assert found == {
        "difference": {"value": 0.1, "low": 0.0, "high": 0.2, "n": 100},
        "p": 0.04,
        "detectable": 0.14,
        "clusters": 100,
        "differing_clusters": 60,
        "differing": 61,
        "note": "",
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (([1.0, math.nan],), "difference 1 is not finite"),
        (([1.0, 2.0], [1]), r"shape \(2,\), clusters \(1,\)"),
        (([[1.0]],), r"shape \(1, 1\)"),
    ],
)
def test_what_is_no_paired_difference_is_refused(arguments, told):
    for way in (sign_flip, paired_difference):
        with pytest.raises(ConfigError, match=told):
            way(*arguments)


def test_no_draw_is_refused():
    with pytest.raises(ConfigError, match="draws 0"):
        sign_flip([1.0], draws=0)
    with pytest.raises(ConfigError, match="tests 0"):
        paired_difference([1.0], tests=0)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=8))
def test_holm_keeps_the_order_and_never_lowers_a_p(chances):
    adjusted = holm(chances)
    known = [(p, q) for p, q in zip(chances, adjusted, strict=True) if p is not None]
    assert [p is None for p in chances] == [q is None for q in adjusted]
    assert all(round(p, 12) <= q <= min(1.0, p * len(known)) + 1e-12 for p, q in known)
    ordered = [q for _, q in sorted(known)]
    assert ordered == sorted(ordered)
