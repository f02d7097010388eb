"""Labels against evidence, before any cut (method.md 1 to 3)."""

import math
from collections import Counter

import numpy as np
import pytest
from measure_oracle import Case, World, cases, evidence_of, random_world

from kbeval.errors import DatasetError, DistanceError
from kbeval.evaluation.answers import handed_out, reached
from kbeval.evaluation.judge import Nearness, Worth, judge
from kbeval.evaluation.queries import LabelledSet, Query

GRID = [*np.arange(-1, 15) / 4, math.inf]  # every cut at which anything can change, and beyond
SEEDS = range(12)


def world(*queries, distance, exact=None, paths=("a", "b", "c", "d"), **about):
    about = {"answers_from": 2} | about
    rows = [list(row) for row in distance]
    exact = [set(row) for row in exact] if exact else [set() for _ in rows]
    return World(list(paths), rows, exact, LabelledSet("w", "", queries, **about))


def judged(of, *, limit=3, depth=None, **more):
    return judge(of.labelled, evidence_of(of, depth=depth), limit=limit, **more)


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("labels", ["pooled", "complete"])
def test_judging_agrees_with_the_slow_oracle(limit, labels):
    for seed in SEEDS:
        random = random_world(seed, judged=labels, answers_from=1 + seed % 2)
        got = judged(random, limit=limit)
        want = cases(random, limit=limit)
        assert [random.labelled.queries[i].id for i in got.query] == [c.query.id for c in want]
        assert got.answerable.tolist() == [c.answerable for c in want]
        assert got.worth.tolist() == [c.worth() for c in want]
        assert got.partial.tolist() == [c.partial() for c in want]
        assert got.l0_count.tolist() == [len(c.exact) for c in want]
        assert [random.paths[p] for p in got.primary] == [c.primary for c in want]
        assert got.primary_distance.tolist() == [c.distance[c.primary] for c in want]
        assert got.distance.tolist() == [
            min(c.distance[path] for path in c.handed(math.inf)) for c in want
        ]
        assert got.better_exists.tolist() == [c.better_exists() for c in want]
        assert got.tied_primary.tolist() == [c.tied() for c in want]
        assert got.primary_unjudged.tolist() == [
            c.answerable and c.unjudged(c.primary) for c in want
        ]
        assert got.unique_is_nearest.tolist() == [
            len(c.exact) == 1 and c.distance[c.exact[0]] == min(c.distance.values()) for c in want
        ]
        left = Counter(Case(random, i, limit=limit).left_out() for i in range(25))
        assert got.left_out == {reason: n for reason, n in left.items() if reason}


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("labels", ["pooled", "complete"])
def test_each_tau_is_the_least_reference_cut_at_which_it_holds(limit, labels):
    for seed in SEEDS:
        random = random_world(seed, judged=labels, answers_from=1 + seed % 2)
        got = judged(random, limit=limit)
        for i, case in enumerate(cases(random, limit=limit)):
            if not case.answerable:
                continue
            for cut in GRID:
                handed = case.handed(cut)
                if case.primary not in handed:
                    continue  # nothing is handed out: no hint is given
                answered = any(case.grades.get(path, 0) >= case.answers_from for path in handed)
                assert case.hint_true(handed) == (not got.hint_false(cut)[i])
                assert (
                    case.hint_true(handed, unjudged_best=True)
                    == reached(got.tau_if_unjudged_best, cut)[i]
                )
                assert answered == reached(got.tau_answer, cut)[i]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_answer_at_a_cut_is_the_documents_whose_reach_is_below_it(limit):
    for seed in SEEDS:
        random = random_world(seed)
        evidence = evidence_of(random, depth=limit)
        for row in range(25):
            case = Case(random, row, limit=limit)
            answer = handed_out(evidence, row, limit=limit)
            for cut in GRID:
                handed = case.handed(cut)
                reached = [
                    random.paths[doc]
                    for doc, reach in zip(answer.documents, answer.reach, strict=True)
                    if reach <= cut
                ]
                assert reached == (handed or [case.primary])


def test_a_hand_worked_query():
    # "a" matches at L0 far away; "b" is nearest and related; "c" answers; "d" is too far.
    query = Query("q", "t", grades={"c": 2, "b": 1, "a": 0}, session_id="s")
    one = judged(world(query, distance=[[1.5, 0.5, 0.75, 1.0]], exact=[[0]]))
    assert (one.primary[0], one.primary_distance[0], one.distance[0]) == (0, 1.5, 0.5)
    assert (one.worth[0], one.tau[0], one.tau_answer[0]) == (Worth.WRONG, 0.75, 0.75)
    assert one.better_exists[0] and not one.unique_is_nearest[0]
    assert one.graded_by_supplement[0]
    assert one.tau_if_unjudged_best[0] == 0.75  # d, unjudged, has no place
    alone = judged(world(query, distance=[[1.5, 0.5, 0.75, 1.0]], exact=[[0]]), limit=1)
    assert (alone.distance[0], alone.tau[0], alone.graded_by_supplement[0]) == (
        1.5,
        math.inf,
        False,
    )


def test_an_equally_near_unique_match_counts_as_nearest():
    query = Query("q", "t", grades={"b": 2})
    got = judged(world(query, distance=[[0.5, 0.5, 1, 1]], exact=[[1]]))
    assert got.unique_is_nearest.tolist() == [True]


def test_need_groups_wait_for_the_last_of_them_and_lose_missing_documents():
    both = Query("both", "t", grades={"b": 2, "d": 2}, needs=(("b", "gone"), ("d",)))
    one = Query("one", "t", grades={"c": 2, "gone": 2}, needs=(("c",), ("gone",)))
    distance = [[1, 0.25, 2, 0.5], [1, 0.25, 0.5, 2]]
    got = judged(world(both, one, distance=distance))
    assert got.tau.tolist() == [0.5, 0.5]
    assert got.missing_gold_count.tolist() == [0, 1]
    assert got.several_top.tolist() == [False, False]


def test_a_query_whose_answer_left_the_corpus_is_partial_and_says_so():
    got = judged(world(Query("q", "t", grades={"gone": 2, "b": 1}), distance=[[1, 0.5, 2, 2]]))
    assert (got.partial[0], got.best_missing[0], got.worth[0]) == (True, True, Worth.RELATED)
    assert got.tau[0] == -math.inf


def test_left_out_queries_are_counted_by_reason_on_top_of_the_sets_own():
    queries = [
        Query("no row", "t"),
        Query("flagless", "t", answerable=None),
        Query("only zeros", "t", grades={"a": 0}),
        Query("gone", "t", grades={"gone": 2}),
        Query("kept", "t", grades={"a": 2}),
        Query("other split", "t", grades={"a": 2}),
    ]
    of = world(*queries, distance=[[0, 1, 2, 2]], left_out={"empty_text": 2, "no_judgement": 1})
    got = judge(of.labelled, evidence_of(of), [0, 0, 0, 0, 0, -1])
    assert got.left_out == {"empty_text": 2, "no_judgement": 4, "gold_not_in_corpus": 1}
    assert (len(got), got.outside_count, got.query.tolist()) == (1, 1, [4])


def test_unanswerable_queries_are_worth_nothing_whatever_they_get():
    query = Query("q", "t", answerable=False, grades={"a": 1}, nearness="near")
    got = judged(world(query, distance=[[0, 1, 2, 2]]))
    assert (got.worth[0], got.nearness[0]) == (Worth.NOTHING, Nearness.NEAR)
    assert not (got.partial[0] or got.primary_unjudged[0] or got.better_exists[0])


def test_an_answer_to_an_unanswerable_query_is_refused():
    query = Query("q7", "t", answerable=False, grades={"a": 2})
    with pytest.raises(DatasetError, match=r"query 'q7' is declared unanswerable but .* score 2"):
        judged(world(query, distance=[[0, 1, 2, 2]]))


def test_an_l0_match_without_a_distance_is_an_error():
    of = world(Query("q", "t", grades={"a": 2}), distance=[[math.inf, 1, 2, 2]], exact=[[0]])
    with pytest.raises(DistanceError, match="row 0: an L0 match has distance"):
        judged(of)


@pytest.mark.parametrize("position", [[0, 1], [5], [[0]]])
def test_positions_that_do_not_fit_are_refused(position):
    of = world(Query("q", "t", grades={"a": 2}), distance=[[0, 1, 2, 2]])
    with pytest.raises(DatasetError, match="1 queries do not fit to evidence of 1 rows"):
        judge(of.labelled, evidence_of(of), position)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_evidence_as_deep_as_the_answer_gives_the_same_judgement_but_says_what_it_cannot_see(limit):
    for seed in SEEDS:
        random = random_world(seed)
        full, short = judged(random, limit=limit), judged(random, limit=limit, depth=limit)
        for name in ("worth", "distance", "primary", "tau", "tau_answer", "tau_if_unjudged_best"):
            assert getattr(full, name).tolist() == getattr(short, name).tolist(), name
        assert not full.gold_truncated.any()
        beyond = []
        for case in cases(random, limit=limit):
            seen = set(case._sorted(case.distance)[:limit]) | set(case.exact)
            best = max(case.in_corpus.values(), default=0)
            groups = [[p for p in g if p in case.distance] for g in case.query.needs]
            top = [p for p, s in case.in_corpus.items() if s == best]
            wanted = [group for group in groups if group] or [top]
            beyond.append(case.answerable and any(not set(g) & seen for g in wanted))
        assert short.gold_truncated.tolist() == beyond


def test_a_needed_document_that_was_not_embedded_whole_is_marked():
    queries = (Query("q", "t", grades={"a": 2}), Query("r", "t", grades={"b": 2}))
    of = world(*queries, distance=[[0, 1, 2, 2]] * 2)
    whole = [True, False, True, True]
    assert judged(of, embedded_whole=whole).gold_cut.tolist() == [False, True]


def test_an_empty_knowledge_base_finds_nothing():
    of = world(Query("q", "t", answerable=False), distance=[[]], paths=())
    got = judged(of)
    assert (got.primary[0], got.distance[0], got.primary_distance[0]) == (-1, math.inf, math.inf)


def test_no_query_at_all_is_an_empty_judgement():
    assert len(judged(world(distance=[]))) == 0


def test_clusters_are_sessions_then_needs_then_the_query_itself():
    queries = (
        Query("q", "t", grades={"a": 2}, session_id="s"),
        Query("r", "t", grades={"a": 2}, need_id="s"),
        Query("u", "t", grades={"a": 2}, session_id="s", need_id="other"),
        Query("s", "t", grades={"a": 2}),
    )
    code = judged(world(*queries, distance=[[0, 1, 2, 2]] * 4)).cluster
    assert code[0] == code[2] and len(set(code.tolist())) == 3
