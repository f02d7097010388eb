"""Retrieval measures: names, ties, doubles, silence, and agreement with trec_eval (ME-01..04)."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from measure_oracle import World, evidence_of, random_world

from kbeval.errors import DatasetError
from kbeval.evaluation.judge import judge
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.evaluation.ranked import measure_results, retrieval_measures

CASES = Path(__file__).parent / "cases"
SETS = Path(__file__).resolve().parents[2] / "shared" / "data"


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def values(ranked, name):
    return dict(zip(ranked.query_ids, ranked.per_query[name].tolist(), strict=True))


def test_me01_ids_stay_text_and_zeros_stay_zeros():
    judgements = {
        row["query_id"]: {row["doc"]: int(row["grade"])} for row in rows(CASES / "ME-01/qrels.csv")
    }
    lines = (CASES / "ME-01/run.jsonl").read_text(encoding="utf-8").splitlines()
    results = {
        line["query_id"]: [(doc, np.float32(similarity)) for doc, similarity in line["results"]]
        for line in map(json.loads, lines)
    }
    got = measure_results(judgements, results)
    assert values(got, "R@1") == {"001": 1.0, "010": 0.0, "1e3": 1.0, "2.0": 1.0}
    assert (got.mean["R@1"].value, got.mean["R@1"].n, got.unknown) == (0.75, 4, ())


@pytest.mark.parametrize("variant", [0, 1, 2])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_me02_ties_count_in_the_order_shown(variant, order):
    case = json.loads((CASES / "ME-02/ties.json").read_text(encoding="utf-8"))
    want = case["variants"][variant]
    shuffled = [tuple(case["results"][i]) for i in order]
    got = measure_results({"q": want["relevant"]}, {"q": shuffled})
    assert got.per_query["RR@10"][0] == pytest.approx(want["reciprocal_rank"], abs=5e-5)
    assert got.tied == ("q",)


def test_me03_a_document_counts_once_and_no_measure_exceeds_1():
    case = json.loads((CASES / "ME-03/double.json").read_text(encoding="utf-8"))
    got = measure_results(
        {entry["query_id"]: entry["relevant"] for entry in case},
        {entry["query_id"]: entry["results"] for entry in case},
        names=["R@2", "AP", "nDCG@10", "P@2", "P@3"],
    )
    assert {name: value.tolist() for name, value in got.per_query.items()} == {
        "R@2": [1.0, 1.0],
        "AP": [1.0, 1.0],
        "nDCG@10": [1.0, 1.0],
        "P@2": [0.5, 1.0],
        "P@3": pytest.approx([1 / 3, 2 / 3]),
    }
    assert [str(fault) for fault in got.faults] == [
        "results: query 'q1' lists 'a.md' 2 times; it counts once",
        "judgements: query 'q2' lists 'a.md' 2 times; it counts once",
    ]
    assert {fault.severity for fault in got.faults} == {"warning"}


def test_me04_silence_counts_0_and_unknown_queries_are_listed():
    case = json.loads((CASES / "ME-04/run.json").read_text(encoding="utf-8"))
    got = measure_results(case["relevant"], case["results"], names=["R@3", "RR@10", "nDCG@10"])
    assert {name: (mean.value, mean.n) for name, mean in got.mean.items()} == {
        "R@3": (case["expect"]["recall@3"], case["expect"]["n"]),
        "RR@10": (case["expect"]["mrr"], case["expect"]["n"]),
        "nDCG@10": (0.75, 4),
    }
    assert (got.without_result, got.unknown) == (("q4",), ("q9",))
    assert got.to_json()["without_result"] == 1


def test_a_query_missing_from_the_results_counts_0_too():
    got = measure_results({"q": ["a"], "r": ["b"]}, {"q": ["a"]})
    assert values(got, "R@1") == {"q": 1.0, "r": 0.0} and got.without_result == ("r",)


def test_a_query_without_an_answer_is_left_out_and_named():
    got = measure_results({"q": {"a": 2}, "r": {"a": 1}}, {"q": ["a"]}, answers_from=2)
    assert (got.query_ids, got.without_answer) == (("q",), ("r",))
    assert [mean.value for mean in measure_results({}, {}).mean.values()] == [None] * 5


def test_graded_measures_worked_out_by_hand():
    got = measure_results(
        {"q": {"a": 2, "b": 1, "c": 2, "d": -1}}, {"q": ["d", "b", "a"]}, answers_from=2
    )
    assert {name: float(value[0]) for name, value in got.per_query.items()} == pytest.approx(
        {
            "R(rel=2)@1": 0.0,
            "R(rel=2)@5": 1 / 2,
            "R(rel=2)@10": 1 / 2,
            "RR(rel=2)@10": 1 / 3,
            "R@1": 0.0,
            "R@5": 2 / 3,
            "R@10": 2 / 3,
            "RR@10": 1 / 2,
            # gains 0, 1, 2 against the ideal 2, 2, 1
            "nDCG@10": (1 / np.log2(3) + 2 / 2) / (2 + 2 / np.log2(3) + 1 / 2),
        }
    )


@pytest.mark.parametrize(
    ("judgements", "results", "message"),
    [
        ({1: ["a"]}, {}, r"judgements: got 1; ids are text, exactly as typed"),
        ({"q": [7]}, {}, r"judgements of 'q': got 7; ids are text"),
        ({"q": ["a"]}, {2.0: ["a"]}, r"results: got 2\.0; ids are text"),
        ({"q": ["a"]}, {"q": [("a", float("nan"))]}, r"results of 'q': got \('a', nan\); a path"),
        ({"q": ["a"]}, {"q": [(7, 0.5)]}, r"results of 'q': got \(7, 0\.5\); a path or"),
        ({"q": ["a"]}, {"q": [("a", "high")]}, r"results of 'q': got \('a', 'high'\); a path"),
    ],
)
def test_ids_that_are_not_text_and_similarities_that_are_no_numbers_are_refused(
    judgements, results, message
):
    with pytest.raises(DatasetError, match=message):
        measure_results(judgements, results)


@pytest.mark.parametrize("name", ["recall", "R@", "R(rel=x)@5", "R"])
def test_an_unknown_measure_is_refused(name):
    with pytest.raises(DatasetError, match="names as in R@1, R@5, R@10, RR@10, nDCG@10"):
        measure_results({"q": ["a"]}, {"q": ["a"]}, names=[name])


def test_a_tie_matters_across_the_last_measured_rank_and_only_between_grades():
    shown = [(f"d{i:02}", 1 - i / 100 if i < 9 else 0.5) for i in range(14)]
    last, beyond = measure_results({"q": ["d13"]}, {"q": shown}), [(p, 0.9) for p, _ in shown]
    assert last.tied == ("q",)
    assert measure_results({"q": ["d03"]}, {"q": shown}).tied == ()
    every = {"q": [path for path, _ in shown]}
    assert measure_results(every, {"q": beyond}).tied == ()
    deep = [(f"d{i:02}", 1 - i / 100 if i < 11 else 0.5) for i in range(14)]
    assert measure_results({"q": ["d13"]}, {"q": deep}).tied == ()


def tool_order(case_paths, distance, exact, limit):
    ranked = sorted(case_paths, key=lambda path: (distance[path], path))
    first = [path for path in ranked if path in exact][: max(limit - 1, 1)]
    return first + [path for path in ranked if path not in first]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("ranking", ["l1", "tool"])
def test_both_rankings_agree_with_a_slow_count(ranking, limit):
    for seed in range(10):
        world = random_world(seed, needs=False)
        evidence = evidence_of(world)
        judged = judge(world.labelled, evidence, limit=limit)
        got = retrieval_measures(world.labelled, evidence, judged, ranking=ranking)
        want = {}
        for i, query in enumerate(world.labelled.queries):
            answers = {p for p, s in query.grades.items() if s >= 2}
            if query.answerable is False or not answers & set(world.paths):
                continue
            distance = dict(zip(world.paths, world.distance[i], strict=True))
            exact = {world.paths[d] for d in world.exact[i]} if ranking == "tool" else set()
            order = tool_order(world.paths, distance, exact, limit)
            ranks = [rank for rank, path in enumerate(order, 1) if path in answers]
            want[query.id] = (
                len([rank for rank in ranks if rank <= 5]) / len(answers),
                1 / min(ranks),
            )
        assert got.query_ids == tuple(want)
        found = zip(got.per_query["R(rel=2)@5"], got.per_query["RR(rel=2)@10"], strict=True)
        assert [*found] == [pytest.approx(pair) for pair in want.values()]


def test_rankings_differ_where_an_l0_match_comes_first():
    labelled = LabelledSet("w", "", (Query("q", "t", grades={"a": 1}),))
    world = World(["a", "b"], [[1.0, 0.5]], [{0}], labelled)
    evidence = evidence_of(world)
    judged = judge(labelled, evidence)
    by = {
        ranking: retrieval_measures(labelled, evidence, judged, ranking=ranking)
        for ranking in ("l1", "tool")
    }
    assert {name: ranked.mean["RR@10"].value for name, ranked in by.items()} == {
        "l1": 0.5,
        "tool": 1.0,
    }


def largest_difference(labelled, evidence):
    """Against pytrec_eval itself, fed with the same ranks: the largest difference per query."""
    import pytrec_eval

    got = retrieval_measures(labelled, evidence, judge(labelled, evidence))
    known = {query.id: query for query in labelled.queries}
    qrels = {q: {p: max(s, 0) for p, s in known[q].grades.items()} for q in got.query_ids}
    number = {query.id: i for i, query in enumerate(labelled.queries)}
    run = {
        q: {
            evidence.paths[doc]: float(-rank)
            for rank, doc in enumerate(evidence.l1_document[number[q]].tolist())
        }
        for q in got.query_ids
    }
    apart = []
    for rel, prefix in ((labelled.answers_from, f"(rel={labelled.answers_from})"), (1, "")):
        prefix = "" if rel == 1 else prefix
        evaluator = pytrec_eval.RelevanceEvaluator(
            qrels, {"recall_10", "ndcg_cut_10"}, relevance_level=rel
        )
        found = evaluator.evaluate(run)
        for name, key in ((f"R{prefix}@10", "recall_10"), ("nDCG@10", "ndcg_cut_10")):
            apart += [abs(found[q][key] - value) for q, value in values(got, name).items()]
    return len(apart), max(apart)


def test_recall_and_ndcg_are_those_of_trec_eval_on_random_rankings():
    count, apart = 0, 0.0
    for seed in range(10):
        world = random_world(seed, n=40, documents=16)
        compared, largest = largest_difference(world.labelled, evidence_of(world))
        count, apart = count + compared, max(apart, largest)
    assert count > 500 and apart < 1e-12


@pytest.mark.data
@pytest.mark.skipif(not SETS.is_dir(), reason="the evaluation sets are not beside the project")
def test_recall_and_ndcg_are_those_of_trec_eval_on_cranfields_labels():
    from kbeval.evaluation.readers import load_set

    labelled = load_set(SETS / "cranfield")
    lines = (SETS / "cranfield/corpus.jsonl").read_text(encoding="utf-8").splitlines()
    paths = [json.loads(line)["_id"] for line in lines]
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(len(paths) + len(labelled), 64))
    index = {path: i for i, path in enumerate(paths)}
    for i, query in enumerate(labelled.queries):  # a query lies near some of what it wants
        wanted = [index[p] for p, s in query.grades.items() if s > 0 and p in index]
        vectors[len(paths) + i] += 0.6 * vectors[wanted].sum(axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    documents, queries = vectors[: len(paths)], vectors[len(paths) :]
    distance = np.round(np.sqrt(np.maximum(2 - 2 * queries @ documents.T, 0)), 6)
    world = World(paths, distance.tolist(), [set()] * len(labelled), labelled)
    count, apart = largest_difference(labelled, evidence_of(world))
    assert count > 700 and apart < 1e-12
