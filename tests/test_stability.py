"""The stability range: every resample as if it were a set of its own, and its summary."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_world import A, N, R, W, judged_from, world

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import best_cuts, choose, hinges_on, sensitivity
from kbeval.evaluation.tuning.ladder import ladder, ladder_of
from kbeval.evaluation.tuning.plateau import cut_at
from kbeval.evaluation.tuning.stability import (
    ladder_order,
    resample_counts,
    resampled_cuts,
    stability,
    summary,
)
from kbeval.records import Level

INF = math.inf
OBJECTIVES = [
    Costs(),
    Costs(highly_relevant=(0.5, 0.5, 11, 11), reference=(0.5, 0.5, 2, 2)),
    "accuracy",
    "macro_f1",
    Constraints(precision=0.8, leak=0.3),
    Constraints(precision=0.9, false_closure=0.2),
]


def separately(tuned, objective, cluster, *, resamples, seed, largest_max=2.0):
    """Slow and obvious: the drawn queries as arrays of their own, through the front door."""
    order = ladder_order(tuned)
    rows = []
    for count in resample_counts(tuned, cluster, resamples=resamples, seed=seed):
        drawn = np.random.default_rng(9).permutation(np.repeat(order, count))
        own = ladder_of(
            tuned.distance[drawn],
            tuned.worth[drawn],
            precise=tuned.precise[drawn],
            exact=tuned.exact[drawn],
            tau=tuned.tau[drawn],
            largest_max=largest_max,
        )
        if isinstance(objective, str) and not (own.worth[~own.precise] == R).any():
            return None  # such a resample has no accuracy of its own
        found = best_cuts(own, objective)
        if isinstance(found, Infeasible):
            rows.append((math.nan, math.nan))
            continue
        high = cut_at(own, Level.HIGHLY_RELEVANT, found.highly_relevant)
        reference = cut_at(own, Level.REFERENCE, found.references(found.rungs[0]))
        rows.append((high.distance, reference.distance))
    return np.array(rows)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("cluster_size", [1, 4])
def test_a_resample_is_tuned_as_if_it_stood_alone(objective, cluster_size):
    judged = world(80, 5, cluster_size=cluster_size)
    tuned = ladder(judged)
    given = {"resamples": 25, "seed": 3}
    wanted = separately(tuned, objective, judged.cluster, **given)
    found = resampled_cuts(tuned, objective, judged.cluster, **given)
    assert np.array_equal(found, wanted, equal_nan=True)
    assert len(np.unique(found[:, 1])) > 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 25), st.integers(1, 3), st.sampled_from([0.7, 2.0]))
def test_small_sets_with_ties_and_shared_rungs_too(seed, n, cluster_size, largest_max):
    judged = world(n, seed, cluster_size=cluster_size, exact=0.3)
    tuned = ladder(judged, largest_max=largest_max)
    given = {"resamples": 5, "seed": seed}
    wanted = separately(tuned, Costs(), judged.cluster, largest_max=largest_max, **given)
    assert np.array_equal(resampled_cuts(tuned, Costs(), judged.cluster, **given), wanted)


def test_whole_clusters_are_drawn_as_many_as_there_are():
    judged = world(60, 1, cluster_size=3)
    tuned = ladder(judged)
    cluster = judged.cluster[ladder_order(tuned)]
    for count in resample_counts(tuned, judged.cluster, resamples=20, seed=0):
        for code in range(20):
            assert len(set(count[cluster == code].tolist())) == 1
        assert count.sum() == 60


def test_queries_are_drawn_with_replacement_evenly():
    tuned = ladder_of(np.arange(1, 11) / 10, [A] * 10)
    counts = np.array(list(resample_counts(tuned, np.arange(10), resamples=4000, seed=0)))
    assert np.abs(counts.mean(axis=0) - 1).max() < 0.08  # standard error .016
    assert counts.var(axis=0).mean() == pytest.approx(0.9, abs=0.05)


def test_order_statistics_by_hand():
    cuts = np.stack([np.arange(1, 41) / 100, np.arange(1, 41) / 10], axis=1)
    found = summary(np.random.default_rng(0).permutation(cuts), clusters=7, seed=1)
    high = found.highly_relevant
    assert (high.low, high.steady, high.high) == (0.01, 0.2, 0.39)
    assert found.ranges == {Level.HIGHLY_RELEVANT: (0.01, 0.39), Level.REFERENCE: (0.1, 3.9)}
    assert found.steady == (0.2, 2.0)
    assert str(high) == "HIGHLY_RELEVANT: stability range 0.01 to 0.39, steady 0.2"


def test_an_infinite_cut_is_a_place_not_a_number():
    cuts = np.array([[-INF, INF]] * 30 + [[0.5, 1.0]] * 10)
    found = summary(cuts, clusters=40, seed=0)
    assert (found.highly_relevant.low, found.highly_relevant.high) == (-INF, 0.5)
    assert str(found.highly_relevant).endswith("stability range not used to 0.5, steady not used")
    assert str(found.reference).endswith("stability range 1.0 to no limit, steady no limit")
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["cuts"]["REFERENCE"] == {
        "stability_range": [1.0, None],
        "steady": None,
        "not_used_count": 0,
        "no_limit_count": 30,
    }


def test_resamples_that_keep_no_constraint_are_counted():
    judged = judged_from([0.2, 0.3, 0.4, 0.5], [A, N, W, N])
    found = stability(judged, Constraints(precision=1.0), resamples=200)
    assert 0 < found.infeasible_count < 200
    assert found.highly_relevant.low >= 0.2
    never = stability(judged_from([0.2], [W]), Constraints(precision=0.5), resamples=10)
    assert (never.infeasible_count, never.steady, never.ranges) == (10, None, {})
    assert "no resample could be tuned" in str(never.highly_relevant)
    json.dumps(never.to_json(), allow_nan=False)


@pytest.mark.parametrize("seed", range(5))
def test_the_median_cuts_never_cross(seed):
    high, reference = stability(world(30, seed), Costs(), resamples=50).steady
    assert high <= reference


def test_the_range_holds_the_cut_of_the_whole_set_here():
    judged = world(400, 2)
    found = stability(judged, Costs(), resamples=300)
    chosen = choose(judged, Costs())
    for level, cut in zip(found.ranges, chosen.distances, strict=True):
        low, high = found.ranges[level]
        assert low <= cut <= high
        assert low < high
    assert hinges_on({"same": chosen}, found.ranges) == []
    told = hinges_on(sensitivity(judged, Costs()), {x: (9.0, 9.0) for x in found.ranges})
    assert len(told) == 6


def test_the_same_seed_gives_the_same_range():
    judged = world(50, 1)
    given = {"normalization": Normalization(), "resamples": 40}
    assert stability(judged, Costs(), seed=1, **given) == stability(
        judged, Costs(), seed=1, **given
    )
    assert stability(judged, Costs(), seed=1, **given) != stability(
        judged, Costs(), seed=2, **given
    )


def test_it_is_never_called_a_confidence_interval():
    found = stability(world(50, 1), Costs(), resamples=20)
    told = json.dumps(found.to_json()) + str(found.highly_relevant)
    assert "stability" in told
    assert "confidence" not in told


@pytest.mark.parametrize(
    ("judged", "objective", "resamples", "told"),
    [
        (judged_from([], []), Costs(), 10, "0 queries, 10 resamples: at least 1 of each"),
        (judged_from([0.1], [A]), Costs(), 0, "1 queries, 0 resamples"),
        (judged_from([0.1], [A]), "accuracy", 5, "accuracy cannot place two cuts"),
        (judged_from([0.1], [A]), "macro_f1", 5, "macro-F1 cannot place two cuts"),
        (judged_from([0.1], [A]), "speed", 5, "objective: got 'speed'"),
    ],
)
def test_what_cannot_be_resampled_is_named(judged, objective, resamples, told):
    with pytest.raises(ConfigError, match=told):
        stability(judged, objective, resamples=resamples)


@pytest.mark.slow
def test_the_range_misses_the_true_optimum_more_often_than_its_percentages_say():
    # one cut that pays where at least 9 in 10 answer, as HIGHLY_RELEVANT in place of REFERENCE
    truth = 0.5  # P(answers) falls in a straight line from 1 at 0.375 to .8 at .625
    covered = []
    for seed in range(250):
        rng = np.random.default_rng(seed)
        distance = np.round(rng.random(100), 6)
        right = rng.random(100) < np.clip(1 - 0.8 * (distance - 0.375), 0, 1)
        tuned = ladder_of(distance, np.where(right, A, W))
        cuts = resampled_cuts(tuned, Costs(), np.arange(100), resamples=200, seed=seed)
        low, high = np.sort(cuts[:, 0])[[4, 194]]
        covered.append(low <= truth <= high)
    assert 0.4 < np.mean(covered) < 0.85  # 2.5 to 97.5 % would be .95
