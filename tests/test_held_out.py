"""Chosen here, reported there: dev and test, folds by group, and whether a cut pays at all."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_world import A, N, R, W, judged_from, world
from scipy.stats import t

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.measures import measure
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import choose, levels_at
from kbeval.evaluation.tuning.folds import (
    fold_numbers,
    group_codes,
    halves,
    in_sample,
    out_of_fold,
    part,
)
from kbeval.evaluation.tuning.gains import cut_pays, separate_cuts
from kbeval.evaluation.tuning.held_out import (
    HeldOut,
    NotHeldOut,
    averaged,
    cross_validated,
    dev_test,
    rates_of,
)
from kbeval.evaluation.tuning.targets import macro_f1_rate, target_accuracy
from kbeval.records import Level

INF = math.inf
HIGH, REFERENCE = Level.HIGHLY_RELEVANT, Level.REFERENCE
OBJECTIVES = [Costs(), "accuracy", "macro_f1", Constraints(precision=0.6, leak=0.6)]


def mean_cost(judged, high, reference, table=None):
    """One number a query, from the tool's own levels."""
    level = levels_at(judged, high, reference)
    return (table or Costs()).scaled()[level, judged.worth]


# ------------------------------------------------------------------ dev and test


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_cuts_from_dev_and_everything_else_from_test(objective):
    dev, test = world(200, 1), world(150, 2)
    found = dev_test(dev, test, objective)
    chosen = choose(dev, objective)
    assert found.choice.distances == chosen.distances
    level = levels_at(test, *chosen.distances)
    wanted = measure(test, level, reference_cut=chosen.distances[1])
    assert {name: found.rates[name] for name in rates_of(wanted)} == rates_of(wanted)
    assert found.measures.to_json() == wanted.to_json()
    assert (found.n, found.repetitions, found.notes[0]) == (
        150,
        0,
        "cuts from dev alone, every rate from test alone",
    )


def test_the_names_of_the_rates():
    found = dev_test(world(100, 1), world(100, 2), Costs())
    assert {"expected_cost", "leak_rate", "precision[HIGHLY_RELEVANT]"} <= set(found.rates)
    assert all(isinstance(rate, Rate) for rate in found.rates.values())


def test_the_optimism_gap_by_hand():
    dev = judged_from([0.2, 0.3, 0.5, 0.9], [A, A, W, N])  # Dh 0.3, Dr 0.3: 0 + 0 + 1 + 0
    test = judged_from([0.2, 0.25, 0.3, 0.9], [A, W, A, A])  # 0 + 11 + 0 + 5
    found = dev_test(dev, test, Costs())
    gap = found.gaps["expected_cost"]
    assert (gap.tuned, gap.held_out.value, gap.gap) == (0.25, 4.0, 3.75)
    better = found.gaps["precision[HIGHLY_RELEVANT]"]
    assert (better.tuned, better.gap) == (1.0, pytest.approx(1 / 3))
    assert found.gaps["coverage[HIGHLY_RELEVANT]"].gap == pytest.approx(
        2 / 3 - 3 / 4
    )  # test did better
    assert "leak_rate" not in found.gaps  # test has no unanswerable query
    assert "unanswerable_share" not in found.gaps  # no better direction


def test_test_has_no_part_in_the_choice():
    dev = world(100, 1)
    one, other = (dev_test(dev, world(80, seed), Costs()) for seed in (2, 3))
    assert one.choice.distances == other.choice.distances
    assert one.rates != other.rates


def test_infeasible_on_dev_is_the_answer():
    found = dev_test(judged_from([0.1], [W]), world(80, 1), Constraints(precision=0.9))
    assert isinstance(found, Infeasible)


@pytest.mark.parametrize(("name", "value"), [("convention", "squared_l2"), ("limit", 1)])
def test_dev_and_test_must_be_measured_alike(name, value):
    with pytest.raises(ConfigError, match=f"dev was judged with {name}"):
        dev_test(world(50, 1), judged_from([0.1], [A], **{name: value}), Costs())


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_what_is_held_out_is_plain_json(objective):
    for found in (
        dev_test(world(60, 1), world(60, 2), objective),
        cross_validated(world(60, 1), objective, repetitions=2),
    ):
        plain = json.loads(json.dumps(found.to_json(2.0), allow_nan=False))
        assert set(plain["cut_pays"]) == {"HIGHLY_RELEVANT", "REFERENCE"}
        assert plain["optimism"]["expected_cost"]["held_out"]["n"] == 60


# ------------------------------------------------------------------ folds


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(10, 90), st.integers(1, 4), st.integers(2, 5))
def test_folds_hold_whole_groups_and_like_shares(seed, n, size, folds):
    judged = world(n, seed, cluster_size=size)
    code = group_codes(judged)
    numbers = fold_numbers(code, judged.answerable, folds=folds, repetitions=3, seed=seed)
    for number in numbers:
        assert {len(set(number[code == c].tolist())) for c in np.unique(code)} == {1}
        groups = [len(np.unique(code[number == fold])) for fold in range(folds)]
        assert max(groups) - min(groups) <= 1
        if size == 1:
            for kind in (judged.answerable, ~judged.answerable):
                counts = [int((kind & (number == fold)).sum()) for fold in range(folds)]
                assert max(counts) - min(counts) <= 2


def test_repetitions_differ_and_a_seed_repeats_them():
    judged = world(50, 1)
    numbers = fold_numbers(judged.cluster, judged.answerable, repetitions=10)
    assert len({row.tobytes() for row in numbers}) == 10
    again = fold_numbers(judged.cluster, judged.answerable, repetitions=10)
    assert np.array_equal(numbers, again)


@pytest.mark.parametrize(("folds", "repetitions"), [(1, 10), (5, 0)])
def test_folds_are_at_least_two(folds, repetitions):
    with pytest.raises(ConfigError, match=f"folds {folds}, repetitions {repetitions}: at least 2"):
        cross_validated(world(20, 1), Costs(), folds=folds, repetitions=repetitions)


def test_a_test_part_without_queries_has_rates_without_values():
    found = dev_test(world(50, 1), judged_from([], []), Costs())
    assert {rate.value for rate in found.rates.values()} == {None}
    assert found.gaps == {}
    assert {pays.pays for pays in found.pays.values()} == {None}
    json.dumps(found.to_json(2.0), allow_nan=False)


def test_halves_by_group():
    judged = world(101, 1, cluster_size=3)
    proposes = halves(judged)
    assert not set(judged.cluster[proposes]) & set(judged.cluster[~proposes])
    assert abs(int(proposes.sum()) - 50) <= 4
    assert len(part(judged, proposes)) + len(part(judged, ~proposes)) == 101


def test_a_part_keeps_its_rows():
    judged = world(30, 1)
    near = judged.distance < 0.8
    own = part(judged, near)
    assert own.distance.tolist() == judged.distance[near].tolist()
    assert (own.limit, own.convention) == (judged.limit, judged.convention)
    assert choose(own, Costs()).value == choose(judged, Costs(), among=near).value


def test_a_group_holds_whole_clusters():
    judged = judged_from([0.1, 0.2, 0.3], [A, A, W], cluster=[4, 4, 5])
    assert group_codes(judged, ["x", "x", "x"]).tolist() == [0, 0, 0]
    with pytest.raises(ConfigError, match=r"cluster 4 .* has queries in 2 groups"):
        group_codes(judged, ["x", "y", "y"])
    with pytest.raises(ConfigError, match=r"groups have shape \(2,\); \(3,\) is expected"):
        group_codes(judged, ["x", "y"])


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_every_query_is_graded_with_cuts_it_had_no_part_in(objective):
    judged = world(80, 3, cluster_size=2)
    numbers = fold_numbers(judged.cluster, judged.answerable, repetitions=2)
    found = out_of_fold(judged, objective, numbers)
    for repetition, number in enumerate(numbers):
        for q in range(80):
            chosen = choose(judged, objective, among=number != number[q])
            if isinstance(chosen, Infeasible):
                assert found.highly_relevant[repetition, q] == -INF
                continue
            pair = (found.highly_relevant[repetition, q], found.reference[repetition, q])
            assert pair == chosen.distances
    assert found.training_count == 10


def test_counts_are_pooled_over_folds_then_divided():
    judged = world(120, 4)
    found = cross_validated(judged, Costs(), repetitions=1, seed=5)
    numbers = fold_numbers(group_codes(judged), judged.answerable, repetitions=1, seed=5)
    closed = right = leaked = false = cost = 0
    for fold in range(5):
        held = numbers[0] == fold
        high, reference = choose(judged, Costs(), among=~held).distances
        own = part(judged, held)
        level = levels_at(own, high, reference)
        closed += int((level == HIGH).sum())
        right += int(((level == HIGH) & (own.worth == A)).sum())
        leaked += int(((level > 0) & ~own.answerable).sum())
        false += int(((level == HIGH) & own.answerable & own.hint_false(reference)).sum())
        cost += int(Costs().scaled()[level, own.worth].sum())
    assert found.rates["precision[HIGHLY_RELEVANT]"].value == pytest.approx(right / closed)
    assert found.rates["leak_rate"].value == pytest.approx(leaked / (~judged.answerable).sum())
    answered = found.rates["false_closure_rate_by_level[HIGHLY_RELEVANT]"]
    assert answered.value == pytest.approx(false / answered.n)
    assert found.rates["expected_cost"].value == pytest.approx(cost / 120)


def test_repetitions_are_averaged_and_marked_approximate():
    judged = world(120, 4)
    found = cross_validated(judged, Costs(), repetitions=3, seed=5)
    numbers = fold_numbers(group_codes(judged), judged.answerable, repetitions=3, seed=5)
    held = out_of_fold(judged, Costs(), numbers)
    costs = [
        np.mean([mean_cost(judged, h, r)[q] for q, (h, r) in enumerate(zip(*row, strict=True))])
        for row in zip(held.highly_relevant, held.reference, strict=True)
    ]
    cost = found.rates["expected_cost"]
    assert cost.value == pytest.approx(np.mean(costs))
    assert cost.note == "approximate"
    assert cost.low < cost.value < cost.high


def test_the_exported_cuts_are_those_of_all_queries_and_it_is_said():
    judged = world(100, 1)
    found = cross_validated(judged, Costs(), repetitions=2)
    assert found.choice.distances == choose(judged, Costs()).distances
    assert found.notes[0].startswith("the exported cuts come from all queries")
    assert found.measures is None


@pytest.mark.parametrize(("clusters", "held"), [(9, False), (10, True)])
def test_fewer_than_ten_groups_cannot_be_held_out(clusters, held):
    judged = world(60, 1, cluster_size=-(-60 // clusters))
    groups = judged.cluster % clusters
    found = cross_validated(judged, Costs(), groups=groups, repetitions=1)
    assert isinstance(found, HeldOut) is held
    if not held:
        assert str(found) == "cannot be held out: 9 groups, at least 10 are needed"
        assert found.to_json() == {"not_held_out": "9 groups, at least 10 are needed", "groups": 9}


def test_a_training_part_without_a_grade_is_said():
    judged = judged_from(np.linspace(0.1, 1, 20), [R, *[A, W] * 9, A])
    found = cross_validated(judged, "accuracy")
    assert isinstance(found, NotHeldOut)
    assert "a training part cannot be tuned: objective: accuracy cannot place two cuts" in str(
        found
    )


def test_trainings_that_keep_no_constraint_leave_the_level_unused_and_are_counted():
    worth = np.where(np.arange(40) < 3, A, np.where(np.arange(40) % 2, W, N))
    judged = judged_from(np.r_[0.3, 0.1, 0.2, np.linspace(0.15, 1, 37)], worth)
    asked = Constraints(precision=1.0)
    found = cross_validated(judged, asked, repetitions=4)
    assert found.training_count == 20
    assert 0 <= found.infeasible_count < 20
    never = judged_from(np.r_[0.1, np.linspace(0.2, 1, 39)], np.r_[A, np.full(39, W)])
    lost = cross_validated(never, asked, repetitions=4)
    assert lost.infeasible_count == 4  # the fold that holds the only answer, in each repetition
    assert lost.notes[1].startswith("in 4 of 20 trainings no pair of cuts keeps the constraints")


@pytest.mark.parametrize(
    ("rates", "wanted"),
    [
        ([Rate(0.2, 0.1, 0.3, 10)] * 2, Rate(0.2, 0.1, 0.3, 10, "approximate")),
        (
            [Rate(0.2, 0.0, 0.4, 10), Rate(None, None, None, 0, "none"), Rate(0.4, 0.2, 0.6, 12)],
            Rate(0.3, 0.1, 0.5, 11, "approximate; 1 of 3 repetitions are empty"),
        ),
        ([Rate(None, None, None, 0, "none")] * 2, Rate(None, None, None, 0, "none")),
        (
            [Rate(0.2, None, None, 8, "too few queries"), Rate(0.4, 0.2, 0.6, 12)],
            Rate(0.3, None, None, 10, "too few queries"),
        ),
    ],
)
def test_the_mean_of_repetitions(rates, wanted):
    found = averaged(rates)
    assert (found.n, found.note) == (wanted.n, wanted.note)
    for ours, theirs in ((found.value, wanted.value), (found.low, wanted.low)):
        assert ours is theirs is None or ours == pytest.approx(theirs)


# ------------------------------------------------------------------ accuracy and macro-F1


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(12, 60), st.integers(1, 3))
def test_accuracy_and_macro_f1_are_those_that_were_tuned(seed, n, size):
    judged = world(n, seed, cluster_size=size)
    if not (judged.worth[judged.l0_count != 1] == R).any():
        return
    for objective, rate_of in (("accuracy", target_accuracy), ("macro_f1", macro_f1_rate)):
        chosen = choose(judged, objective)
        found = rate_of(judged, levels_at(judged, *chosen.distances))
        assert found.value == pytest.approx(float(chosen.value))
        if found.low is not None:
            assert 0 <= found.low <= found.value <= found.high <= 1


def test_macro_f1_resamples_whole_clusters():
    judged = world(40, 1)
    rows = np.repeat(np.arange(40), 5)
    same = judged_from(judged.distance[rows], judged.worth[rows], cluster=rows)
    apart = judged_from(judged.distance[rows], judged.worth[rows])
    levels = [levels_at(x, 0.6, 0.9) for x in (same, apart)]
    wide, narrow = (macro_f1_rate(x, y) for x, y in zip((same, apart), levels, strict=True))
    assert wide.value == narrow.value
    assert wide.high - wide.low > 1.8 * (narrow.high - narrow.low)


# ------------------------------------------------------------------ does a cut pay


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(10, 60))
def test_a_gain_is_the_difference_of_two_gradings(seed, n):
    judged = world(n, seed)
    high, reference = 0.7, 1.0
    found = cut_pays(judged, np.full((1, n), high), np.full((1, n), reference), Costs())
    here = mean_cost(judged, high, reference).mean()
    never = mean_cost(judged, -INF, reference).mean() - here
    assert found[HIGH].over["never closed"].value == pytest.approx(never)
    all_closed = mean_cost(judged, INF, INF).mean() - mean_cost(judged, high, INF).mean()
    assert found[HIGH].over["always closed"].value == pytest.approx(all_closed)
    everything = mean_cost(judged, high, INF).mean() - here
    assert found[REFERENCE].over["everything handed out"].value == pytest.approx(everything)
    nothing = mean_cost(judged, -INF, -INF) - mean_cost(judged, -INF, reference)
    assert found[REFERENCE].over["nothing handed out"].value == pytest.approx(nothing.mean())


def test_cuts_pay_where_distance_tells_and_not_where_it_does_not():
    told = world(400, 1, spread=0.1, related=0.0)
    found = cross_validated(told, Costs(), repetitions=2)
    assert [pays.pays for pays in found.pays.values()] == [True, True]
    rng = np.random.default_rng(0)
    blind = judged_from(np.round(rng.random(400), 3), rng.choice([0, 1, 3], 400))
    found = cross_validated(blind, Costs(), repetitions=2)
    assert [pays.pays for pays in found.pays.values()] == [False, False]
    assert found.notes[1].startswith("HIGHLY_RELEVANT: no cut pays; gain over 'never closed'")
    assert found.notes[2].startswith("REFERENCE: no cut pays; gain over 'everything handed out'")


def test_a_cut_that_is_its_own_best_constant_does_not_pay():
    judged = judged_from(np.linspace(0.1, 0.9, 40), np.full(40, A))
    found = dev_test(judged, judged, Costs()).pays
    assert [found[level].pays for level in (HIGH, REFERENCE)] == [False, False]
    assert found[HIGH].best_constant == "always closed"
    assert found[HIGH].over["always closed"].value == 0


def test_too_few_clusters_cannot_tell_whether_a_cut_pays():
    judged = judged_from([0.1, 0.2, 0.3, 0.9, 1.0], [A, A, A, N, N])
    found = dev_test(judged, judged, Costs()).pays[REFERENCE]
    assert found.pays is None
    assert str(found).startswith("REFERENCE: too few to tell if a cut pays")


def test_gains_are_averaged_over_repetitions():
    judged = world(50, 1)
    cuts = np.stack([np.full(50, 0.5), np.full(50, 0.9)])
    both = cut_pays(judged, cuts, cuts, Costs())
    each = [cut_pays(judged, row[None], row[None], Costs()) for row in cuts]
    for level in (HIGH, REFERENCE):
        for name, gain in both[level].over.items():
            values = [one[level].over[name].value for one in each]
            assert gain.value == pytest.approx(np.mean(values))


# ------------------------------------------------------------------ separate cuts


def two_languages(n, *, shift, seed=0):
    """In the second language every distance is greater by `shift`."""
    rng = np.random.default_rng(seed)
    worth = rng.choice([N, W, A, A], n)
    lang = np.where(np.arange(n) % 2, "zh", "en")
    near = np.where(worth == A, 0.5, 0.9) + rng.normal(0, 0.12, n)
    return judged_from(np.round(near + shift * (lang == "zh"), 4).clip(0), worth), lang


def test_separate_cuts_are_advised_where_they_pay():
    judged, lang = two_languages(1000, shift=0.4)
    (found,) = separate_cuts(judged, {"language": lang}, Costs(), repetitions=2)
    assert found.advised
    assert found.lower > 0
    assert found.too_small == ()
    assert str(found).startswith("language: separate cuts pay, gain ")
    sizes = {
        name: tuple(
            int(((lang == name) & np.isin(judged.worth, kinds)).sum()) for kinds in ([A], [W, N])
        )
        for name in ("en", "zh")
    }
    assert dict(found.parts) == sizes


def test_one_pair_is_kept_where_there_is_no_difference():
    judged, lang = two_languages(1000, shift=0.0)
    (found,) = separate_cuts(judged, {"language": lang}, Costs(), repetitions=2)
    assert not found.advised
    assert str(found).startswith("language: keep one pair of cuts; gain ")
    assert found.apparent >= 0


def test_a_gain_on_too_few_queries_is_shown_not_advised():
    judged, lang = two_languages(300, shift=0.4)
    (found,) = separate_cuts(judged, {"language": lang}, Costs(), repetitions=2)
    assert found.lower > 0
    assert not found.advised
    assert "fewer than 100 queries of a class in 'en', 'zh'" in str(found)


def test_the_gain_is_that_of_cuts_from_the_other_folds():
    judged, lang = two_languages(200, shift=0.3)
    (found,) = separate_cuts(judged, {"language": lang}, Costs(), repetitions=1, seed=3)
    numbers = fold_numbers(group_codes(judged), judged.answerable, repetitions=1, seed=3)
    gains = np.zeros(200)
    for fold in range(5):
        held = numbers[0] == fold
        for name in ("en", "zh"):
            own = lang == name
            one = choose(judged, Costs(), among=~held).distances
            two = choose(judged, Costs(), among=~held & own).distances
            rows = held & own
            gains[rows] = (mean_cost(judged, *one) - mean_cost(judged, *two))[rows]
    assert found.gain.value == pytest.approx(gains.mean())
    everyone = in_sample(judged, Costs())
    assert everyone.highly_relevant[0, 0] == choose(judged, Costs()).distances[0]


def test_holm_asks_more_of_each_the_more_is_tried():
    judged, lang = two_languages(400, shift=0.3)
    noise = np.random.default_rng(1).choice(["a", "b"], 400)
    (alone,) = separate_cuts(judged, {"language": lang}, Costs(), repetitions=1)
    both = separate_cuts(judged, {"kind": noise, "language": lang}, Costs(), repetitions=1)
    kind, language = both
    assert language.gain == alone.gain
    error = (alone.gain.high - alone.gain.value) / t.ppf(0.975, 399)
    assert alone.lower == pytest.approx(alone.gain.low)
    assert language.lower == pytest.approx(alone.gain.value - t.ppf(1 - 0.0125, 399) * error)
    assert kind.lower <= 0  # the second step, at the whole 2.5 %


def test_one_part_is_nothing_to_separate():
    judged, _ = two_languages(60, shift=0.0)
    (found,) = separate_cuts(judged, {"domain": ["all"] * 60}, Costs(), repetitions=1)
    assert (found.gain.value, found.advised) == (0, False)
    assert str(found) == "domain: one part, nothing to separate"
    json.dumps(found.to_json(), allow_nan=False)


def test_a_part_that_cannot_be_tuned_keeps_the_cuts_of_all():
    judged = judged_from(np.linspace(0.1, 1, 60), [A, R, W] * 20, cluster=np.arange(60), l0_count=0)
    lone = np.where(judged.worth == R, "related", "other")
    (found,) = separate_cuts(judged, {"kind": lone}, "accuracy", repetitions=1)
    assert found.parts == {"other": (20, 20), "related": (0, 0)}
    assert found.gain.n == 60


def test_names_for_every_query_are_expected():
    with pytest.raises(ConfigError, match=r"language: \(2,\) names of parts for 20 queries"):
        separate_cuts(world(20, 1), {"language": ["zh", "en"]}, Costs())


def test_a_present_maximum_is_heeded_everywhere():
    judged = world(60, 1)
    far = Normalization(max_l2_distance=3.0)
    found = cross_validated(judged, Costs(), normalization=far, repetitions=1)
    assert found.choice.distances == choose(judged, Costs(), normalization=far).distances


# ------------------------------------------------------------------ simulations


def big_world(n, seed):
    """Three grades, much overlap, distances without ties."""
    rng = np.random.default_rng(seed)
    worth = rng.choice([0, 1, 2, 3], n, p=[0.2, 0.2, 0.2, 0.4])
    near = rng.normal(np.array([1.1, 1.0, 0.85, 0.6])[worth], 0.25)
    return judged_from(np.round(np.clip(near, 0, 2), 6), worth)


@pytest.mark.slow
def test_optimism_shrinks_with_more_labels():
    test = big_world(20_000, 10**6)
    gaps = []
    for n in (60, 200, 600, 2000):
        told = [choose(big_world(n, seed), Costs()) for seed in range(100)]
        held = [mean_cost(test, *chosen.distances).mean() for chosen in told]
        gaps.append(np.mean(held) - np.mean([float(chosen.value) for chosen in told]))
    assert all(more > fewer for more, fewer in pairwise(gaps))
    assert 0.1 < gaps[0] < 0.5
    assert 0 < gaps[3] < 0.06


@pytest.mark.slow
def test_folds_estimate_what_the_procedure_achieves():
    test = big_world(20_000, 10**6)
    found = [cross_validated(big_world(200, seed), Costs(), repetitions=2) for seed in range(60)]
    foretold = np.mean([row.rates["expected_cost"].value for row in found])
    achieved = np.mean([mean_cost(test, *row.choice.distances).mean() for row in found])
    apparent = np.mean([row.gaps["expected_cost"].tuned for row in found])
    assert abs(foretold - achieved) < 0.08  # four fifths of the labels: a little worse
    assert achieved - apparent > 0.05


@pytest.mark.slow
def test_groups_without_a_difference_seem_to_gain_and_lose_out_of_fold():
    apparent, gains, advised = [], [], 0
    for seed in range(30):
        judged = big_world(600, seed)
        kinds = np.random.default_rng(seed + 10**6).choice(list("abcd"), 600)
        (found,) = separate_cuts(judged, {"kind": kinds}, Costs(), repetitions=2)
        apparent.append(found.apparent)
        gains.append(found.gain.value)
        advised += found.advised or (found.lower or 0) > 0
    assert np.mean(apparent) > 0.03
    assert np.mean(gains) < 0
    assert advised <= 2
