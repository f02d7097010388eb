"""The measures of method.md 3 against a slow oracle that hands out anew at every cut."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from measure_oracle import World, cases, evidence_of, random_world, share

from kbeval.config import Normalization
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Nearness, Worth, judge
from kbeval.evaluation.measures import cuts, levels, measure, reweighted
from kbeval.evaluation.misses import Cause, causes, near_cut
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.evaluation.statistics import Rate
from kbeval.records import Level

RULES = ["unique", "unique-and-nearest"]
SETTINGS = [  # distance, max, highly relevant, reference
    ("l2", 2.0, 0.75, 0.5),
    ("l2", 1.5, 0.5, 0.5),
    ("squared_l2", 4.0, 0.8, 0.6875),
    ("l2", 2.0, 1.0, 0.0),
    ("l2", 1.0, 0.9, 0.1),
]


def normalization(distance="l2", limit=2.0, high=0.75, reference=0.5):
    return Normalization(
        distance=distance,
        max_l2_distance=limit,
        highly_relevant_threshold=high,
        reference_threshold=reference,
    )


def measured(world, settings, *, limit=3, rule="unique", costs=None):
    judged = judge(world.labelled, evidence_of(world, convention=settings.distance), limit=limit)
    level = levels(judged, settings, rule)
    return judged, level, measure(judged, level, reference_cut=cuts(settings)[1], costs=costs)


def oracle(world, settings, *, limit, rule):
    high, reference = cuts(settings)
    every = cases(world, limit=limit, high=high, reference=reference)
    level = {c.query.id: c.level(rule) for c in every}
    answerable = [c for c in every if c.answerable]
    unanswerable = [c for c in every if not c.answerable]
    whole = [c for c in answerable if not c.partial()]
    closed = [c for c in answerable if level[c.query.id] >= 2]
    given = {c.query.id: c.given(rule) for c in every}

    def graded(x):
        return [c for c in every if level[c.query.id] == x]

    def answered(c):
        return any(c.grades.get(p, 0) >= c.answers_from for p in given[c.query.id])

    def leaks(rows):
        return share(rows, lambda c: level[c.query.id] > 0)

    def false_hints(rows, **reading):
        return share(rows, lambda c: not c.hint_true(given[c.query.id], **reading))

    def unjudged(c):
        return c.answerable and c.unjudged(c.primary)

    cost = Costs()
    return {
        "precision": [share(graded(x), lambda c: c.worth() == 3) for x in (3, 2, 1)],
        "precision_if_unjudged_answers": [
            share(graded(x), lambda c: c.worth() == 3 or unjudged(c)) for x in (3, 2, 1)
        ],
        "coverage": [share(answerable, lambda c: level[c.query.id] >= x) for x in (3, 2, 1)],  # noqa: B023
        "found_rate": share(answerable, lambda c: level[c.query.id] > 0),
        "missed_rate": share(whole, lambda c: level[c.query.id] == 0 and c.worth() == 3),
        "leak_rate": leaks(unanswerable),
        "leak_rate_near": leaks([c for c in unanswerable if c.query.nearness == "near"]),
        "leak_rate_far": leaks([c for c in unanswerable if c.query.nearness == "far"]),
        "closed_leak_rate": share(unanswerable, lambda c: level[c.query.id] >= 2),
        "leak_floor": share(unanswerable, lambda c: len(c.exact) > 0),
        "false_closure_rate": false_hints(closed),
        "false_closure_rate_if_unjudged_best": false_hints(closed, unjudged_best=True),
        "false_closure_rate_by_level": [
            false_hints([c for c in closed if level[c.query.id] == x]) for x in (3, 2)
        ],
        "better_exists": share(closed, lambda c: c.better_exists()),
        "expected_cost": float(
            np.mean([cost.cost(Level(level[c.query.id]), Worth(c.worth())) for c in every])
        ),
        "unjudged": share((c for c in answerable if given[c.query.id]), unjudged),
        "unanswerable_share": len(unanswerable) / len(every),
        "answered_anywhere": share(whole, answered),
        "complete": share(
            answerable, lambda c: bool(given[c.query.id]) and c.hint_true(given[c.query.id])
        ),
    }


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("settings", SETTINGS)
def test_every_measure_agrees_with_the_slow_oracle(settings, limit, rule):
    settings = normalization(*settings)
    for seed in range(6):
        labels = ("pooled", "complete")[seed // 2 % 2]
        world = random_world(seed, judged=labels, answers_from=1 + seed % 2)
        _, level, got = measured(world, settings, limit=limit, rule=rule)
        high, reference = cuts(settings)
        every = cases(world, limit=limit, high=high, reference=reference)
        assert level.tolist() == [c.level(rule) for c in every]
        for name, want in oracle(world, settings, limit=limit, rule=rule).items():
            found = getattr(got, name)
            value = found.value if isinstance(found, Rate) else [r.value for r in found.values()]
            assert value == pytest.approx(want), name
        matrix, near = np.zeros((4, 4), int), np.zeros((4, 3), int)
        for case, x in zip(every, level, strict=True):
            matrix[x, case.worth()] += 1
            if not case.answerable:
                near[x, Nearness[case.query.nearness.upper() or "UNSTATED"]] += 1
        assert got.level_matrix.tolist() == matrix.tolist()
        assert got.nearness_matrix.tolist() == near.tolist()
        supplement = [
            x in (1, 2) and min(map(c.distance.get, c.given(rule))) < c.distance[c.primary]
            for c, x in zip(every, level, strict=True)
        ]
        exact_only = [
            x == 1 and min(map(c.distance.get, c.given(rule))) > reference
            for c, x in zip(every, level, strict=True)
        ]
        l0_rule = np.zeros((4, 4), int)
        for case, x, alone in zip(every, level, exact_only, strict=True):
            l0_rule[x, case.worth()] += x == 3 or alone
        assert got.l0_matrix.tolist() == l0_rule.tolist()
        assert got.counts["graded_by_supplement"] == sum(
            s and not alone for s, alone in zip(supplement, exact_only, strict=True)
        )
        assert got.counts["tied_primary"] == sum(c.tied() for c in every)
        assert got.counts["partial"] == sum(c.partial() for c in every)


@pytest.mark.parametrize("seed", range(10))
def test_falseness_only_shrinks_and_leaks_only_grow_with_the_reference_cut(seed):
    world = random_world(seed)
    judged = judge(world.labelled, evidence_of(world))
    closed = judged.answerable & (judged.distance <= 0.5)
    false, leaked = [], []
    for reference in np.linspace(0.75, 0.0, 13):
        settings = normalization(reference=float(reference))
        level = levels(judged, settings)
        false.append(int((judged.hint_false(cuts(settings)[1]) & closed).sum()))
        leaked.append(int((level[~judged.answerable] > 0).sum()))
    assert false == sorted(false, reverse=True) and leaked == sorted(leaked)


def small(*queries, distance, exact=None, paths=("a", "b", "c", "d"), **about):
    exact = exact or [()] * len(distance)
    labelled = LabelledSet("w", "", queries, **({"answers_from": 2} | about))
    return World(list(paths), distance, [set(row) for row in exact], labelled)


FAR = [1.9, 1.9, 1.9, 1.9]


def six():
    """Worked out by hand: PRECISE right, HIGHLY_RELEVANT wrong, two leaks, a miss, a none."""
    return small(
        Query("precise", "t", grades={"a": 2}),
        Query("beaten", "t", grades={"b": 2, "a": 1}),
        Query("missed", "t", grades={"a": 2}),
        Query("near", "t", answerable=False, nearness="near"),
        Query("far", "t", answerable=False, nearness="far"),
        Query("quiet", "t", answerable=False),
        distance=[[1, 0.25, 1, 1], [0.25, 0.5, 2, 2], [1.5, 1.9, 2, 2], [0.5, 2, 2, 2], FAR, FAR],
        exact=[(0,), (), (), (), (1,), ()],
        left_out={"empty_text": 1},
    )


def test_six_queries_worked_out_by_hand():
    _, level, got = measured(six(), normalization())
    assert [Level(x).name for x in level] == [
        *("PRECISE", "HIGHLY_RELEVANT", "NOT_FOUND"),
        *("HIGHLY_RELEVANT", "PRECISE", "NOT_FOUND"),
    ]
    found = json.loads(json.dumps(got.to_json()))
    assert found["levels"] == {
        "PRECISE": {"answers": 1, "related": 0, "wrong": 0, "nothing": 1},
        "HIGHLY_RELEVANT": {"answers": 0, "related": 1, "wrong": 0, "nothing": 1},
        "REFERENCE": {"answers": 0, "related": 0, "wrong": 0, "nothing": 0},
        "NOT_FOUND": {"answers": 1, "related": 0, "wrong": 0, "nothing": 1},
    }
    assert found["nothing_by_nearness"]["PRECISE"] == {"unstated": 0, "near": 0, "far": 1}
    assert found["levels_by_l0_rule"]["PRECISE"]["nothing"] == 1
    values = {name: rate["value"] for name, rate in found.items() if "value" in _keys(rate)}
    assert values == {
        "found_rate": pytest.approx(2 / 3),
        "missed_rate": pytest.approx(1 / 3),
        "leak_rate": pytest.approx(2 / 3),
        "leak_rate_near": 1.0,
        "leak_rate_far": 1.0,
        "closed_leak_rate": pytest.approx(2 / 3),
        "leak_floor": pytest.approx(1 / 3),
        "false_closure_rate": 0.0,  # b is handed out beside a
        "false_closure_rate_if_unjudged_best": 0.0,
        "better_exists": 0.5,
        "expected_cost": pytest.approx((0 + 4 + 5 + 11 + 12 + 0) / 6),
        "unjudged": 0.0,
        "unanswerable_share": 0.5,
        "answered_anywhere": pytest.approx(2 / 3),
        "complete": pytest.approx(2 / 3),
    }
    assert found["precision"]["PRECISE"]["value"] == 0.5
    assert found["precision"]["REFERENCE"] == {
        **{"value": None, "low": None, "high": None, "n": 0},
        "note": "no query was graded REFERENCE",
    }
    assert found["coverage"]["HIGHLY_RELEVANT"]["n"] == 3
    assert (found["queries"], found["left_out"]) == (6, {"empty_text": 1})


def _keys(value):
    return value if isinstance(value, dict) else ()


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("leak_rate", "no unanswerable query"),
        ("leak_rate_near", "no unanswerable query is declared near"),
        ("closed_leak_rate", "no unanswerable query"),
        ("leak_floor", "no unanswerable query"),
        ("false_closure_rate", "no answerable query was closed"),
        ("better_exists", "no answerable query was closed"),
        ("unjudged", "nothing was handed out"),
    ],
)
def test_an_empty_denominator_has_no_value_and_says_why(name, note):
    world = small(Query("q", "t", grades={"a": 2}), distance=[FAR])
    found = getattr(measured(world, normalization())[2], name)
    assert found == Rate(None, None, None, 0, note)


def test_without_any_query_nothing_has_a_value():
    got = measured(small(distance=[]), normalization())[2]
    rates = [getattr(got, n) for n in ("found_rate", "expected_cost", "unanswerable_share")]
    assert [(r.value, r.n) for r in rates] == [(None, 0)] * 3


def test_unjudged_answers_open_the_bounds_and_may_leave_no_verdict():
    queries = [Query(f"q{i}", "t", grades={"d": 2}) for i in range(4)]
    # a is nearest and unjudged; the answer never gets a place.
    world = small(*queries, distance=[[0.25, 0.3, 0.4, 2.0]] * 4)
    got = measured(world, normalization())[2]
    high = Level.HIGHLY_RELEVANT
    assert (got.precision[high].value, got.precision_if_unjudged_answers[high].value) == (0.0, 1.0)
    assert (got.unjudged.value, got.unjudged_count[high]) == (1.0, 4)
    closure = got.false_closure_rate.value, got.false_closure_rate_if_unjudged_best.value
    assert closure == (1.0, 0.0) and not got.false_closure_settled
    complete = replace(world, labelled=replace(world.labelled, judged="complete"))
    got = measured(complete, normalization())[2]
    assert got.precision_if_unjudged_answers[high].value == 0.0
    assert got.unjudged.value == 0.0 and got.false_closure_settled


def test_intervals_follow_the_sessions():
    queries = [Query(f"q{i}", "t", grades={"a": 2}, session_id=f"s{i // 7}") for i in range(20 * 7)]
    distance = [[0.25 if i // 7 % 2 else 1.9, 2, 2, 2] for i in range(20 * 7)]
    got = measured(small(*queries, distance=distance), normalization())[2].found_rate
    alone = [replace(query, session_id=None) for query in queries]
    wilson = measured(small(*alone, distance=distance), normalization())[2].found_rate
    assert got.value == wilson.value == 0.5 and got.note == "approximate"
    assert got.high - got.low > 2.5 * (wilson.high - wilson.low)


def test_without_a_document_no_reference_threshold_makes_an_answer():
    world = small(Query("q", "t", answerable=False), distance=[[]], paths=())
    _, level, got = measured(world, normalization(reference=0.0))
    assert level.tolist() == [Level.NOT_FOUND] and got.leak_rate.value == 0.0


def test_a_document_without_a_place_is_missing_even_without_a_lower_limit():
    queries = [Query("q", "t", grades={"d": 2})]
    world = small(*queries, distance=[[0.1, 0.2, 0.3, 0.4]])
    got = measured(world, normalization(reference=0.0))[2]
    assert math.isinf(cuts(normalization(reference=0.0))[1])
    assert (got.false_closure_rate.value, got.complete.value) == (1.0, 0.0)


def test_another_convention_than_the_evidences_is_refused():
    judged = judge(six().labelled, evidence_of(six()))
    with pytest.raises(ConfigError, match="distance is 'squared_l2' but the evidence holds 'l2'"):
        levels(judged, normalization("squared_l2", 4.0))


def test_levels_and_a_cut_of_other_settings_are_refused():
    judged = judge(six().labelled, evidence_of(six()))
    with pytest.raises(ConfigError, match=r"reference cut 2\.0: 2 of 6 queries contradict it"):
        measure(judged, levels(judged, normalization()), reference_cut=2.0)


def test_a_share_of_unanswerable_queries_weighs_them_by_lambda():
    judged, level, _ = measured(six(), normalization())
    got = reweighted(judged, level, unanswerable_share=0.2)
    assert got["weight"] == 0.25  # .2 / .8 * 3 / 3
    assert got["precision"][Level.PRECISE].value == pytest.approx(1 / (1 + 0.25))
    assert got["precision"][Level.HIGHLY_RELEVANT].value == 0.0
    assert got["expected_cost"].value == pytest.approx((0 + 4 + 5 + 0.25 * 23) / (3 + 0.75))
    assert got["leak_rate"].value == pytest.approx(2 / 3)


@pytest.mark.parametrize("seed", range(5))
def test_the_share_that_the_set_has_changes_nothing(seed):
    world = random_world(seed, n=60)
    judged, level, plain = measured(world, normalization())
    got = reweighted(judged, level, unanswerable_share=plain.unanswerable_share.value)
    assert got["expected_cost"].value == pytest.approx(plain.expected_cost.value)
    for x, rate in plain.precision.items():
        assert got["precision"][x].value == pytest.approx(rate.value)
    without = reweighted(judged, level, unanswerable_share=0.0)
    assert without["expected_cost"].n == int(judged.answerable.sum())


@pytest.mark.parametrize("share_asked", [1.0, -0.1, 0.5])
def test_a_share_that_cannot_be_is_refused(share_asked):
    world = six() if share_asked != 0.5 else small(Query("q", "t", grades={"a": 2}), distance=[FAR])
    judged, level, _ = measured(world, normalization())
    with pytest.raises(ConfigError, match="unanswerable-share: got"):
        reweighted(judged, level, unanswerable_share=share_asked)


CAUSES = [
    ("", Query("q", "t", grades={"a": 2}), [0.2, 2, 2, 2], (), "right at a closed level"),
    ("", Query("q", "t", grades={"a": 2}), [0.8, 2, 2, 2], (), "right at REFERENCE"),
    ("", Query("q", "t", grades={"a": 1, "b": 2}), [0.8, 0.9, 2, 2], (), "related as REFERENCE"),
    ("", Query("q", "t", answerable=False), FAR, (), "rightly silent"),
    ("cut", Query("q", "t", grades={"a": 2}), [1.2, 2, 2, 2], (), "the cut withheld the answer"),
    ("cut", Query("q", "t", grades={"a": 1}), [1.2, 2, 2, 2], (), "withheld the best there is"),
    (
        "cut",
        Query("q", "t", grades={"a": 2, "b": 2}, needs=(("a",), ("b",))),
        *([0.2, 1.4, 2, 2], (), "the cut withheld a needed supplement"),
    ),
    ("l1_distance", Query("q", "t", grades={"b": 2}), [0.2, 0.3, 2, 2], (), "nearest is wrong"),
    ("l1_distance", Query("q", "t", grades={"b": 2}), [1.2, 1.3, 2, 2], (), "wrong and withheld"),
    ("l1_distance", Query("q", "t", grades={"a": 1}), [0.2, 2, 2, 2], (), "related, but closed"),
    ("l1_distance", Query("q", "t", answerable=False), [0.8, 2, 2, 2], (), "a leak by distance"),
    (
        "l1_distance",
        Query("q", "t", grades={"a": 2, "d": 2}, needs=(("a",), ("d",))),
        *([0.2, 0.3, 0.4, 0.5], (), "a needed supplement never gets a place"),
    ),
    ("l0_rule", Query("q", "t", grades={"b": 2}), [1, 0.2, 2, 2], (0,), "PRECISE, not answering"),
    ("l0_rule", Query("q", "t", grades={"c": 2}), [1, 0.9, 0.2, 2], (0, 1), "took the place"),
    ("l0_rule", Query("q", "t", answerable=False), FAR, (0,), "a PRECISE leak"),
    ("l0_rule", Query("q", "t", answerable=False), FAR, (0, 1), "a leak without any similarity"),
    ("l0_rule", Query("q", "t", grades={"a": 1}), [0.2, 2, 2, 2], (0,), "related, but PRECISE"),
    ("not_in_corpus", Query("q", "t", grades={"gone": 2, "b": 1}), [0.2, 1, 2, 2], (), "gone"),
]


@pytest.mark.parametrize(
    ("cause", "query", "distance", "exact"),
    [pytest.param(*row, id=name) for *row, name in CAUSES],
)
def test_each_fault_has_a_cause(cause, query, distance, exact):
    world = small(query, distance=[distance], exact=[exact])
    judged, level, _ = measured(world, normalization())
    assert causes(judged, level, reference_cut=cuts(normalization())[1]).tolist() == [cause]


def test_a_document_that_was_cut_or_lies_beyond_the_depth_is_the_cause():
    world = small(Query("q", "t", grades={"d": 2}), distance=[[0.2, 0.3, 0.4, 0.5]])
    level = np.array([Level.HIGHLY_RELEVANT])
    for judged in (
        judge(world.labelled, evidence_of(world, depth=3)),
        judge(world.labelled, evidence_of(world), embedded_whole=[True, True, True, False]),
    ):
        assert causes(judged, level, reference_cut=1.0).tolist() == [Cause.TRUNCATION]


@pytest.mark.parametrize("seed", range(10))
def test_what_costs_nothing_has_no_cause_and_every_leak_has_one(seed):
    world = random_world(seed, needs=False, answers_from=1)
    judged, level, _ = measured(world, normalization())
    found = causes(judged, level, reference_cut=cuts(normalization())[1])
    silent = ~judged.answerable & (level == Level.NOT_FOUND)
    assert set(found[silent]) <= {""}
    assert "" not in set(found[~judged.answerable & (level > Level.NOT_FOUND)])
    wrong = judged.answerable & (judged.worth == Worth.WRONG)
    assert "" not in set(found[wrong])


def test_a_distance_within_rounding_of_a_cut_is_marked():
    distances = [0.499998, 0.500002, 0.500003, 0.499997, 1.0, 0.5]
    queries = [Query(f"q{i}", "t", grades={"a": 2}) for i in range(6)]
    exact = [(), (), (), (), (), (0,)]
    world = small(*queries, distance=[[d, 2, 2, 2] for d in distances], exact=exact)
    judged, level, _ = measured(world, normalization())
    marked = near_cut(judged, level, 0.5, 1.0, math.inf)
    assert marked.tolist() == [True, True, False, False, True, False]
    assert not near_cut(judged, level).any()
