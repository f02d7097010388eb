"""The two cuts: values worked out by hand, plateaus, settings to paste, verdicts."""

import math
import sqlite3
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from measure_oracle import Case, evidence_of, random_world

from kbeval.config import Normalization, load_settings
from kbeval.errors import ConfigError, DistanceError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Worth, judge
from kbeval.evaluation.measures import levels
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.evaluation.readers import load_set
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import (
    best_cuts,
    choose,
    doubtful,
    hinges_on,
    levels_at,
    one_class,
    sensitivity,
    share_weights,
)
from kbeval.evaluation.tuning.exact_first import first_place, nearest_worth
from kbeval.evaluation.tuning.export import (
    Triple,
    check_sql,
    grade_mix,
    threshold,
    triples,
    yml_fragment,
)
from kbeval.evaluation.tuning.ladder import ladder_of
from kbeval.evaluation.tuning.objectives import additive, additive_sums, macro_f1, strictest_pairs
from kbeval.evaluation.tuning.plateau import NO_LIMIT, NOT_USED, Cut, Interval, midway
from kbeval.records import Evidence, Level
from kbeval.retrieval.grading import l2_to_similarity

CASES = Path(__file__).parent / "cases"
A, R, W, N = Worth.ANSWERS, Worth.RELATED, Worth.WRONG, Worth.NOTHING
HIGH, REFERENCE = Level.HIGHLY_RELEVANT, Level.REFERENCE
INF = math.inf


def judged_of(rows, *, convention="l2", limit=3):
    """Judged queries from (distance, worth) rows without L0 matches, one document each."""
    paths = ("answer.md", "related.md", "other.md")
    document = {A: 0, R: 1, W: 2, N: 2}
    queries = tuple(
        Query(
            f"q{i}",
            "text",
            answerable=worth != N,
            grades={} if worth == N else {"answer.md": 2, "related.md": 1, "other.md": 0},
        )
        for i, (_, worth) in enumerate(rows)
    )
    evidence = Evidence(
        paths,
        convention,
        np.zeros(len(rows) + 1, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0),
        np.array([[document[worth]] for _, worth in rows], np.int32),
        np.array([[distance] for distance, _ in rows], np.float64),
    )
    return judge(LabelledSet("s", "", queries, answers_from=2), evidence, limit=limit)


# ------------------------------------------------------------------ by hand


def test_costs_by_hand():
    # Dh: 0.2 gains 1, 0.4 loses 4, 0.5 gains 1; Dr: gains 4, gains 2, gains 4, loses 1, 0.8 loses 2
    tuned = ladder_of([0.2, 0.4, 0.5, 0.7, 0.8], [A, R, A, W, N])
    found = best_cuts(tuned, Costs())
    assert found.pairs() == [(1, 3)]
    assert found.value == Fraction(0 + 0 + 1 + 1 + 0, 5)


def test_an_exact_match_counts_for_dh_only_and_precise_for_neither():
    tuned = ladder_of(
        [0.2, 0.3, 0.4], [A, W, A], precise=[False, True, False], exact=[True, False, False]
    )
    assert tuned.accepted.tolist() == [-INF, 0.2, 0.4]
    found = best_cuts(tuned, Costs())
    assert found.pairs() == [(2, 2)]
    assert found.value == Fraction(12, 3)  # the PRECISE one is wrong at every cut
    stay_open = best_cuts(tuned, replace(Costs(), highly_relevant=(9, 9, 9, 9)))
    assert stay_open.pairs() == [(0, 2)]  # REFERENCE: 1 + 12 + 1
    assert stay_open.value == Fraction(14, 3)


def test_accuracy_and_macro_f1_by_hand():
    tuned = ladder_of([0.1, 0.2, 0.3, 0.4, 0.5], [A, W, R, A, N])
    # Dh 0.1, Dr 0.3: A right, W at REFERENCE wrong, R right, A withheld wrong, N right
    assert best_cuts(tuned, "accuracy").value == Fraction(3, 5)
    # Dh 0.2, Dr 0.3: F1 of HIGHLY_RELEVANT 2/4, of REFERENCE 2/2, of none 2/4
    assert best_cuts(tuned, "macro_f1").value == Fraction(2, 3)
    assert best_cuts(tuned, "macro_f1").pairs() == [(2, 3)]


def test_the_largest_cut_that_holds_not_the_first_failure():
    tuned = ladder_of([0.1, 0.2, 0.3, 0.4, 0.5], [A, W, A, A, W])
    found = best_cuts(tuned, Constraints(precision=0.75))
    assert found.pairs() == [(4, 5)]  # precision at Dh is 1, 1/2, 2/3, 3/4, 3/5
    assert (found.value, found.second) == (Fraction(4, 5), 1)


def test_false_closure_is_judged_at_the_largest_reference_cut():
    # the first hint is true only from a reference cut of 0.6 on, the second never
    tuned = ladder_of([0.2, 0.3, 0.6, 0.9], [A, A, R, N], tau=[0.6, INF, -INF, -INF])
    assert best_cuts(tuned, Constraints(false_closure=0.0, leak=0.0)).rungs == (1, 3)
    found = best_cuts(tuned, Constraints(false_closure=0.5, leak=0.0))
    assert found.rungs == (3, 3)  # one of three hints is false
    assert found.value == 1


def test_equal_coverage_is_reached_at_the_strictest_cut():
    tuned = ladder_of([0.1, 0.2, 0.3], [A, N, N])
    found = best_cuts(tuned, Constraints(precision=0.3))
    assert found.highly_relevant.tolist() == [1, 2, 3]
    assert found.rungs == (1, 1)


@pytest.mark.parametrize(
    ("asked", "constraint", "best", "text"),
    [
        (
            Constraints(leak=0.2),
            "leak",
            Fraction(1, 2),
            "leak_rate <= 0.2 is never reached: best is 0.5000; exact matches alone (leak_floor) "
            "break it, no cut can mend that",
        ),
        (
            Constraints(precision=0.9),
            "precision",
            Fraction(2, 3),
            "precision[HIGHLY_RELEVANT] >= 0.9 is never reached: best is 0.6667 at distance 0.4",
        ),
        (
            Constraints(leak=0.5, false_closure=0.4),
            "false_closure",
            Fraction(2, 3),
            "false_closure_rate[HIGHLY_RELEVANT] <= 0.4 is never reached under leak_rate <= 0.5: "
            "best is 0.6667 at distance 0.4",
        ),
        (
            Constraints(precision=0.6, leak=0.5, reference_precision=0.9),
            "reference_precision",
            Fraction(0),
            "precision[REFERENCE] >= 0.9 is never reached under leak_rate <= 0.5, "
            "precision[HIGHLY_RELEVANT] >= 0.6: best is 0.0000 at distance 0.4",
        ),
    ],
)
def test_infeasible_names_the_constraint_and_the_best_value(asked, constraint, best, text):
    # exact at 0.9 with nothing to find; free: wrong, right, right, far nothing
    tuned = ladder_of(
        [0.9, 0.2, 0.3, 0.4, 1.2],
        [N, W, A, A, N],
        exact=[True, False, False, False, False],
        tau=[-INF, INF, INF, -INF, -INF],
    )
    found = best_cuts(tuned, asked)
    assert isinstance(found, Infeasible)
    assert (found.constraint, found.best, str(found)) == (constraint, best, text)
    assert found.leak_floor == Fraction(1, 2)
    assert found.to_json()["best"] == float(best)


def test_a_leak_cannot_be_shown_without_unanswerable_queries():
    found = best_cuts(ladder_of([0.1], [A]), Constraints(leak=0.1))
    assert str(found) == "leak_rate <= 0.1 cannot be shown: no unanswerable query"


# ------------------------------------------------------------------ ladder


def test_distances_that_the_tool_cannot_tell_apart_share_a_rung():
    near = [0.4, 0.400001, 0.400002, 0.5]
    assert len(ladder_of(near, [A] * 4, largest_max=2.0).accepted) == 4
    assert len(ladder_of(near, [A] * 4, largest_max=1.0).accepted) == 5
    assert ladder_of([2.5, 3.0], [A, N], largest_max=2.0).accepted.tolist() == [-INF, 3.0]


@pytest.mark.parametrize("limit", [0.9, 1.0, 1.7, 2.0, 4.0])
def test_a_rung_holds_the_distances_of_one_similarity(limit):
    rng = np.random.default_rng(3)
    distance = np.round(np.concatenate([rng.random(300) * 1e-3 + 0.8, rng.random(50) * 3]), 6)
    tuned = ladder_of(distance, np.zeros(350, int), largest_max=limit)
    farthest = {float(l2_to_similarity(d, limit)): float(d) for d in np.sort(distance)}
    assert tuned.accepted.tolist() == [-INF, *sorted(farthest.values())]
    assert tuned.end[-1] == 350


def test_a_query_without_any_document_is_accepted_by_no_rung():
    tuned = ladder_of([0.3, INF], [A, N])
    assert tuned.order.tolist() == [0]
    assert best_cuts(tuned, Costs()).value == 0
    nothing = best_cuts(ladder_of([INF], [N]), Costs())
    assert nothing.pairs() == [(0, 0)]


def test_nan_in_the_evidence_is_an_error_that_names_it():
    with pytest.raises(DistanceError, match=r"distance at \(1,\) is nan"):
        ladder_of([0.1, math.nan], [A, A])


def test_rows_of_weights_are_solved_at_once():
    rng = np.random.default_rng(0)
    tuned = ladder_of(
        rng.integers(0, 9, 40) / 8, rng.integers(0, 4, 40), exact=rng.random(40) < 0.2
    )
    weights = rng.multinomial(40, [1 / 40] * 40, size=20)
    first, second = strictest_pairs(*additive_sums(tuned, Costs().scaled(), weights))
    alone = [additive(tuned, Costs().scaled(), weights=row).rungs for row in weights]
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == alone


@pytest.mark.parametrize("name", ["accuracy", "macro_f1"])
def test_binary_labels_cannot_place_two_cuts(name):
    with pytest.raises(ConfigError, match="0 primaries are related, so REFERENCE has no true mem"):
        best_cuts(ladder_of([0.1, 0.2], [A, N]), name)


def test_macro_f1_tries_only_ends_of_runs_and_lists_what_lies_between():
    # Dh 0.1: F1 1, 1/2, 1/2; Dh 0.3, in the run of exact matches: 1/2, 1, 1/2; between: less
    tuned = ladder_of(
        [0.1, 0.2, 0.3, 0.4, 0.5],
        [A, W, W, R, N],
        exact=[False, True, True, False, False],
    )
    assert macro_f1(tuned).pairs() == [(1, 4), (3, 4)]
    # exact matches do not move with Dr: every Dr within their run is as good
    without = ladder_of([0.1, 0.2, 0.3, 0.5], [R, W, W, N], exact=[False, True, True, False])
    assert macro_f1(without).pairs() == [(0, 1), (0, 2), (0, 3)]


# ------------------------------------------------------------------ plateau


def test_the_cut_stands_midway_and_its_plateau_and_the_others_are_listed():
    # related at HIGHLY_RELEVANT costs what it gains elsewhere: two places of equal value
    costs = Costs(reference=(1, 0, 2, 2), highly_relevant=(0, 1, 11, 11))
    judged = judged_of([(0.2, A), (0.4, R), (0.5, A), (0.8, N), (1.1, N)])
    choice = choose(judged, costs)
    assert choice.highly_relevant.gap == Interval(0.2, 0.4)
    assert choice.highly_relevant.distance == 0.3
    assert choice.highly_relevant.plateau == Interval(0.2, 0.4)
    assert choice.highly_relevant.others == (Interval(0.5, 0.8),)
    assert choice.reference.distance == 0.65
    told = choice.to_json(2.0)["cuts"]["HIGHLY_RELEVANT"]
    assert (told["distance"], told["similarity"], told["cosine"]) == (0.3, 0.85, 0.955)


def test_adjacent_cuts_of_equal_value_are_one_plateau_and_the_strictest_is_taken():
    costs = Costs(reference=(1, 0, 1, 1))  # a wrong one costs as much given as withheld
    choice = choose(judged_of([(0.2, A), (0.4, W), (0.6, W), (0.9, N)]), costs)
    assert choice.reference.gap == Interval(0.2, 0.4)
    assert choice.reference.plateau == Interval(0.2, 0.9)
    assert choice.reference.others == ()


def test_a_cut_is_told_in_three_units_and_never_rounded_away():
    cut = Cut(HIGH, Interval(1.2509, 1.250918), Interval(1.2509, 1.250918))
    assert cut.describe("l2", 2.0) == (
        "HIGHLY_RELEVANT: distance <= 1.250909 (l2), similarity >= 0.374546 of max 2.0, "
        "cosine >= 0.2176"
    )
    assert "(squared_l2), similarity >= 0.687273 of max 4.0, cosine >= 0.3745" in cut.describe(
        "squared_l2", 4.0
    )
    unused = Cut(HIGH, Interval(-INF, 0.3), Interval(-INF, 0.3))
    assert unused.describe("l2", 2.0) == "HIGHLY_RELEVANT: this level is not used"


@pytest.mark.parametrize(
    ("gap", "middle"),
    [
        (Interval(0.5, 0.6), 0.55),
        (Interval(0.5, 0.500001), 0.5),
        (Interval(0.5, 0.500003), 0.500001),
        (Interval(-INF, 0.3), -INF),
        (Interval(0.3, INF), INF),
    ],
)
def test_midway_never_reaches_the_refused_end(gap, middle):
    assert midway(gap) == middle


@pytest.mark.parametrize(
    ("gap", "limit", "written"),
    [
        (Interval(0.5, 0.6), 2.0, 0.73),  # no single decimal; 0.72 is as near, but laxer
        (Interval(0.4, 0.6), 2.0, 0.8),  # 0.8 is accepted, 0.7 would be refused
        (Interval(0.6, 0.8), 2.0, 0.7),
        (Interval(0.500002, 0.500004), 2.0, 0.749999),
        (Interval(0.0, 0.1), 2.0, 1.0),
        (Interval(-INF, 0.4), 2.0, 1.0),
        (Interval(-INF, 0.0), 2.0, None),  # similarity 1 cannot be refused
        (Interval(1.3, INF), 2.0, 0.0),
        (Interval(1.3, 1.4), 1.2, None),  # both have similarity 0
        (Interval(1.0, 1.4), 1.1, 0.05),  # what lies beyond max is refused by any threshold above 0
    ],
)
def test_a_threshold_is_written_with_the_fewest_decimals_that_fall_between(gap, limit, written):
    assert threshold(Cut(HIGH, gap, gap), limit) == written


# ------------------------------------------------------------------ export


def test_the_present_max_comes_first_and_a_max_below_the_cut_is_refused():
    judged = judged_of([(0.3, A), (0.5, W), (0.9, R), (1.2, A), (1.5, N), (1.6, N)])
    choice = choose(judged, Costs())
    assert choice.distances == (0.4, 1.35)
    first, *others = triples(judged, choice, Normalization())
    assert first == Triple(2.0, 0.8, 0.3, "the present max-l2-distance")
    assert all(t.equivalent for t in others)
    assert [t.max_l2_distance for t in others] == [1.4]
    refused, *_ = triples(judged, choice, Normalization(max_l2_distance=1.1))
    assert refused.refused == (
        "max-l2-distance 1.1 is below the REFERENCE cut 1.35: every distance from 1.1 on has "
        "similarity 0"
    )
    with pytest.raises(ConfigError, match="below the REFERENCE cut"):
        refused.normalization(Normalization())


OBJECTIVES = [Costs(), Constraints(precision=0.5), Constraints(leak=0.5), "accuracy"]


@hypothesis_settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["l2", "squared_l2"]),
    st.sampled_from([0.4, 0.75, 1.0, 1.5, 2.0, 4.0]),
    st.sampled_from(["unique", "unique-and-nearest"]),
    st.sampled_from(OBJECTIVES),
)
def test_every_equivalent_triple_gives_the_levels_of_the_cuts(
    seed, convention, limit, rule, objective
):
    world = random_world(seed, n=20)
    judged = judge(world.labelled, evidence_of(world, convention=convention))
    present = Normalization(distance=convention, max_l2_distance=limit)
    if objective == "accuracy" and not (judged.worth[judged.l0_count != 1] == R).any():
        return
    choice = choose(judged, objective, normalization=present, precise_requires=rule)
    if isinstance(choice, Infeasible):
        return
    wanted = levels_at(judged, *choice.distances, rule).tolist()
    every = triples(judged, choice, present)
    assert every[0].max_l2_distance == limit
    if not (judged.distance == 0).any():
        assert any(t.equivalent for t in every)
    for t in every:
        if not t.equivalent:
            continue
        assert levels(judged, t.normalization(present), rule).tolist() == wanted
        pasted = yaml.safe_load(yml_fragment(choice, t, present, reasons=["a reason"]))
        retrieval = load_settings(pasted).retrieval
        if not choice.one_class:
            assert levels(judged, retrieval.normalization, rule).tolist() == wanted
        assert retrieval.l0.precise_requires == rule


def test_the_yml_holds_its_reasons_as_comments():
    judged = judged_of([(0.3, A), (0.5, W), (0.9, R), (1.2, A), (1.5, N)])
    choice = choose(judged, Costs())
    first = triples(judged, choice, Normalization())[0]
    assert yml_fragment(choice, first, Normalization(), reasons=["dev of set s, 5 queries"]) == (
        "# dev of set s, 5 queries\n"
        "retrieval:\n"
        "  normalization:\n"
        "    distance: l2\n"
        "    max-l2-distance: 2.0  # the present max-l2-distance\n"
        "    highly-relevant-threshold: 0.8  # distance <= 0.4, cosine >= 0.9200; above 0.75 up "
        "to 0.85 is of equal value\n"
        "    reference-threshold: 0.3  # distance <= 1.35, cosine >= 0.0887; above 0.25 up to 0.4 "
        "is of equal value\n"
        "  l0:\n"
        "    precise-requires: unique\n"
    )


def test_a_level_that_is_not_used_and_a_cut_without_a_limit_are_said_so():
    judged = judged_of([(0.3, W), (0.5, A), (0.9, A), (1.2, A)])
    choice = choose(judged, Costs())
    assert (choice.highly_relevant.note, choice.reference.note) == (NOT_USED, NO_LIMIT)
    first = triples(judged, choice, Normalization())[0]
    assert (first.highly_relevant, first.reference, first.equivalent) == (1.0, 0.0, True)
    text = yml_fragment(choice, first, Normalization())
    assert (
        f"highly-relevant-threshold: 1.0  # {NOT_USED}; 1.0 accepts a distance of 0 alone "
        "(up to 0.000001), the nearest seen is 0.3\n"
    ) in text
    assert (
        f"reference-threshold: 0.0  # {NO_LIMIT}; 0.0 accepts every distance, the farthest seen "
        "is 1.2\n"
    ) in text
    told = choice.to_json(2.0)["cuts"]
    assert (told["HIGHLY_RELEVANT"]["distance"], told["REFERENCE"]["similarity"]) == (None, None)


def test_the_sql_sets_the_grades_seen_beside_those_expected():
    level = np.array([3, 2, 2, 0], np.int8)
    assert grade_mix(level) == {
        "PRECISE": 0.25,
        "HIGHLY_RELEVANT": 0.5,
        "REFERENCE": 0.0,
        "NOT_FOUND": 0.25,
    }
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE tool_invocation (tool_name, relevance_level, started_at)")
    rows = [("PRECISE", 1), ("HIGHLY_RELEVANT", 1), ("NOT_FOUND", 2), (None, 5)]
    for name, count in rows:
        row = ("lookup_knowledge", name, "2026-02-01T00:00:00")
        base.executemany("INSERT INTO tool_invocation VALUES (?, ?, ?)", [row] * count)
    base.execute("INSERT INTO tool_invocation VALUES ('other', 'PRECISE', '2026-02-01T00:00:00')")
    assert base.execute(check_sql(level)).fetchall() == [
        ("PRECISE", 0.25, 1, 0.25),
        ("HIGHLY_RELEVANT", 0.5, 1, 0.25),
        ("REFERENCE", 0.0, 0, 0.0),
        ("NOT_FOUND", 0.25, 2, 0.5),
    ]
    later = base.execute(check_sql(level, since="2026-03-01T00:00:00")).fetchall()
    assert [row[2:] for row in later] == [(0, None)] * 4
    with pytest.raises(ConfigError, match="since: got"):
        check_sql(level, since="'; DROP TABLE tool_invocation; --")


# ------------------------------------------------------------------ verdicts


def from_similarities(name):
    """The labelled file of TH-04, whose similarities stand in a column of their own."""
    labelled = load_set(CASES / "TH-04" / f"{name}.csv")
    similarity = np.array([float(q.metadata["similarity"]) for q in labelled.queries])
    worth = [A if q.answerable else N for q in labelled.queries]
    return judged_of([((1 - s) * 2.0, w) for s, w in zip(similarity, worth, strict=True)])


def test_th04_without_a_query_without_an_answer_no_lower_limit_is_chosen():
    judged = from_similarities("all-positive")
    choice = choose(judged, Costs())
    why = "no query without an answer in this set; a lower limit cannot be chosen"
    assert choice.one_class == {REFERENCE: why}
    assert choice.reference.plateau.similarity(2.0) == (0.0, 0.55)
    text = yml_fragment(choice, triples(judged, choice, Normalization())[0], Normalization())
    assert f"# reference-threshold stays 0.5: {why}" in text
    assert set(load_settings(yaml.safe_load(text)).retrieval.normalization.model_fields_set) == {
        "distance",
        "max_l2_distance",
    }


def test_th04_without_any_answer_precision_and_recall_are_not_defined():
    judged = from_similarities("all-negative")
    choice = choose(judged, Costs())
    assert list(choice.one_class) == [HIGH]
    assert "not defined (0 relevant)" in choice.one_class[HIGH]
    assert choice.reference.plateau.similarity(2.0) == (0.61, 1.0)
    asked = choose(judged, Constraints(precision=0.9))
    assert asked.best == 0


def test_one_class_looks_at_queries_without_an_exact_match_only():
    tuned = ladder_of([0.2, 0.3], [A, W], exact=[False, True])
    assert list(one_class(tuned)) == [REFERENCE]
    assert one_class(ladder_of([0.2, 0.3], [A, W])) == {}


def test_the_nearest_wrong_and_the_farthest_right_are_named():
    judged = judged_of([(0.5, W), (0.2, N), (0.1, A), (0.9, A), (0.3, R), (INF, N)])
    found = doubtful(judged, 2)
    assert found["nearest_wrong"].tolist() == [1, 0]
    assert found["farthest_right"].tolist() == [3, 2]


@pytest.mark.parametrize(
    ("a", "u", "factor", "share"),
    [(3, 1, 2, 0.5), (3, 1, Fraction(1, 2), 0.125), (5, 4, 2, 8 / 9), (70, 30, 1, 0.3)],
)
def test_weights_change_the_share_of_unanswerable_queries(a, u, factor, share):
    answerable = np.array([True] * a + [False] * u)
    weights = share_weights(answerable, Fraction(factor))
    assert weights[~answerable].sum() / weights.sum() == pytest.approx(share)


def test_a_share_that_cannot_be_doubled_is_said_so():
    judged = judged_of([(0.2, A), (0.4, N), (0.6, N)])
    found = sensitivity(judged, Costs())
    assert found["share_doubled"] == "2 of 3 queries are unanswerable: 2 times that is no share"
    assert found["share_halved"].distances[1] == 0.3
    only = sensitivity(judged_of([(0.2, A)]), Costs())
    assert only["share_halved"] == (
        "1 answerable and 0 unanswerable queries: there is no share to change"
    )


def test_a_cut_that_leaves_its_stability_range_names_the_assumption():
    # halved, a needless document is worth the answers behind it
    judged = judged_of([(0.2, A), (0.4, N), (0.5, N), (0.6, N), (0.7, A), (0.9, A), (1.2, N)])
    found = sensitivity(judged, Costs())
    assert choose(judged, Costs()).reference.distance == 1.05
    assert found["share_doubled"] == "4 of 7 queries are unanswerable: 2 times that is no share"
    many = sensitivity(judged_of([(0.2, A)] * 9 + [(0.4, N)] * 3 + [(0.7, A)] * 2), Costs())
    assert many["share_halved"].reference.note == NO_LIMIT
    assert many["share_doubled"].reference.distance == 0.3
    stable = {REFERENCE: (0.5, INF)}
    assert hinges_on(many, stable) == ["share_doubled: REFERENCE at distance 0.3"]


def test_unjudged_primaries_can_be_left_out():
    judged = judged_of([(0.2, A), (0.4, W), (0.5, A), (0.9, N)])
    unjudged = replace(judged, primary_unjudged=np.array([False, True, False, False]))
    assert choose(unjudged, Costs()).highly_relevant.distance == 0.3
    assert sensitivity(unjudged, Costs())["unjudged_left_out"].highly_relevant.distance == 0.7


# ------------------------------------------------------------------ L0 apart


@pytest.mark.parametrize("seed", range(8))
def test_the_price_of_the_first_place_agrees_with_a_slow_count(seed):
    world = random_world(seed, n=40)
    evidence = evidence_of(world)
    judged = judge(world.labelled, evidence)
    costs, level = Costs(), levels_at(judged, 0.5, 1.0)
    price, moved, lost, gained = Fraction(0), 0, 0, 0
    for q, x in enumerate(level):
        case = Case(world, int(judged.query[q]), limit=3)
        nearest = min(case.distance.values())
        if not case.exact or case.distance[case.primary] <= nearest:
            assert nearest_worth(judged, world.labelled, evidence)[q] == judged.worth[q]
            continue
        first = next(p for p in case._sorted(case.distance))
        score = case.grades.get(first, 0)
        worth = A if score >= case.answers_from else R if score > 0 else W
        worth = worth if case.answerable else N
        moved += 1
        lost += worth == A != case.worth()
        gained += case.worth() == A != worth
        price += Fraction(costs.cost(Level(x), Worth(case.worth())) - costs.cost(Level(x), worth))
    found = first_place(judged, level, world.labelled, evidence, costs)
    assert (found.moved_count, found.lost, found.gained) == (moved, lost, gained)
    assert found.price == price / len(judged)


# ------------------------------------------------------------------ wrong use


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Constraints(), "constraints: none is asked"),
        (lambda: Constraints(precision=95), r"constraints.precision: got 95; a rate from 0 to 1"),
        (lambda: Constraints(leak=math.nan), "constraints.leak: got nan"),
        (lambda: best_cuts(ladder_of([0.1], [A]), "f1"), "objective: got 'f1'; allowed are costs"),
        (
            lambda: choose(judged_of([(0.1, A)]), Costs(), among=np.array([False])),
            "0 queries to tune on",
        ),
    ],
)
def test_wrong_use_is_refused_in_one_line(call, text):
    with pytest.raises(ConfigError, match=text):
        call()
