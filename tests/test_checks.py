"""Checking a labelled set: every fault is found, and a set without one is fit."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import document, knowledge
from stand_ins import settings as tool_settings

from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.sources import open_corpus
from kbeval.evaluation.checking.checks import check_set, counts_by_split
from kbeval.evaluation.checking.leaks import (
    across,
    contradictions,
    equal_texts,
    letter_grams,
    near_equal,
    shared_units,
)
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.evaluation.readers import load_set
from kbeval.records import Corpus, Fault
from kbeval.retrieval.knowledge import Knowledge

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SETS = sorted(path.parent for path in SHARED.glob("*/queries.jsonl"))
TOPICS = Path(__file__).parents[1] / "datasets/python-topics"


def made(*queries, **facts):
    given = {"folder": "", "splits": ("dev", "test"), "answers_from": 2, **facts}
    return LabelledSet("made", queries=queries, **given)


def query(name, text, split="test", **fields):
    return Query(name, text, split, **{"grades": {"a": 2}, **fields})


# --- queries


def test_texts_are_equal_after_folding_and_leak_only_across_splits():
    queries = [
        query("q1", "Reset the KEY"),
        query("q2", " reset  the key", "dev"),
        query("q3", "重启ＡＰＩ"),
        query("q4", "重启api"),
        query("q5", "another"),
    ]
    equal = equal_texts(queries)
    assert {text: [q.id for q in group] for text, group in equal.items()} == {
        "reset the key": ["q1", "q2"],
        "重启api": ["q3", "q4"],
    }
    assert list(across(equal)) == ["reset the key"]


def test_needs_sessions_and_topics_belong_to_one_split():
    labelled = made(
        query("q1", "a", "dev", need_id="n1", metadata={"topic": "tls"}),
        query("q2", "b", "test", need_id="n1", metadata={"topic": "quota"}),
        query("q3", "c", "dev", session_id="s1", metadata={"topic": "quota"}),
        query("q4", "d", "test", session_id="s2", metadata={"topic": None}),
        query("q5", "e", "test"),
    )
    found = {
        unit: {key: [q.id for q in group] for key, group in groups.items()}
        for unit, groups in shared_units(labelled).items()
    }
    assert found == {
        "need_id": {"n1": ["q1", "q2"]},
        "session_id": {},
        "topic": {"quota": ["q2", "q3"]},
    }


def test_near_equal_texts_of_two_splits_are_found_nearest_first():
    queries = [
        query("d1", "How do I rotate the TLS certificate?", "dev"),
        query("d2", "连接池应该设多大才合适？", "dev"),
        query("d3", "rate limit per tenant", "dev"),
        query("t1", "how do I rotate the TLS certificate"),
        query("t2", "How do I rotate the TLS certificates?"),
        query("t3", "连接池应该设多大合适？"),
        query("t4", "rate limit of one key"),
        query("t5", "Rate limit per tenant"),  # equal, so not among the near ones
    ]
    found = [(pair.one, pair.other) for pair in near_equal(queries)]
    assert found == [("d1", "t1"), ("d1", "t2"), ("d2", "t3")]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.text("ab 限流?", max_size=8), st.sampled_from(["dev", "test", "more"])),
        max_size=12,
    )
)
def test_near_equal_equals_a_slow_comparison_of_all_pairs(rows):
    queries = [query(f"q{i:02}", text, split) for i, (text, split) in enumerate(rows)]
    expected = set()
    for one in queries:
        for other in queries:
            a, b = set(letter_grams(one.text)), set(letter_grams(other.text))
            alike = bool(a or b) and 2 * len(a & b) / (len(a) + len(b)) >= 0.8
            same = " ".join(one.text.split()) == " ".join(other.text.split())
            if one.split < other.split and alike and not same:
                expected.add((one.id, other.id))
    assert {(pair.one, pair.other) for pair in near_equal(queries)} == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({}, {"answerable": False, "grades": {}}, ["only one of them is declared unanswerable"]),
        ({"grades": {"a": 2}}, {"grades": {"a": 1, "b": 2}}, ["document 'a' has score 2 and 1"]),
        ({"grades": {"a": 2}}, {"grades": {"b": 2}}, []),
        ({"grades": {"a": 2, "b": 1}}, {"grades": {"a": 2, "b": 0}}, []),
        ({"session_id": "s"}, {"answerable": False, "grades": {}}, []),
    ],
)
def test_equal_texts_with_contrary_labels_are_named(one, other, expected):
    group = equal_texts([query("q1", "x", **one), query("q2", "X", **other)])
    assert [reason for _, _, reason in contradictions(group, 2)] == expected


# --- the whole check

VECTORS = {"a": [1, 0, 0], "b": [0, 1, 0], "c": [0, 0, 1], "ask": [1, 0, 0], "else": [0, 0.6, 0.8]}


def checked(*queries, documents=None, faults=(), chosen=None, **facts):
    documents = documents or [document(path) for path in "abc"]
    texts = {q.text: VECTORS.get(q.text, [0.6, 0.8, 0]) for q in queries}
    paths = {d.path: VECTORS[d.path] for d in documents}
    base = knowledge(documents, texts | paths)
    corpus = Corpus("memory", tuple(documents), faults)
    return check_set(made(*queries, **facts), corpus, [base], settings=chosen)


def problems(check):
    return {finding.check: finding.severity for finding in check.findings}


DECLARED = (
    Query("u1", "nothing here", "dev", answerable=False, nearness="near"),
    Query("u2", "nor there", "test", answerable=False, nearness="far"),
)


def test_a_sound_set_is_fit_and_only_told_what_it_cannot_support():
    check = checked(query("q1", "ask"), query("q2", "else", "dev"), *DECLARED, judged="complete")
    assert check.fit
    assert problems(check) == {"label_budget": "warning"}
    assert check.judged == {}


@pytest.mark.parametrize(
    ("arguments", "facts", "expected"),
    [
        pytest.param([query("q1", "ask", grades={"gone": 2})], {}, "gold_missing", id="gold"),
        pytest.param(
            [query("q1", "ask"), query("q2", "ASK", "dev")], {}, "equal_across_splits", id="copy"
        ),
        pytest.param(
            [query("q1", "ask", need_id="n"), query("q2", "else", "dev", need_id="n")],
            {},
            "need_id_across_splits",
            id="need",
        ),
        pytest.param(
            [query("q1", "ask"), query("q2", "Ask", grades={"a": 0, "b": 2})],
            {},
            "contradiction",
            id="contradiction",
        ),
        pytest.param(
            [query("q1", "ask")],
            {"documents": [document("a", metadata={"same_as": "nowhere"})]},
            "same_as_unknown",
            id="same_as",
        ),
        pytest.param(
            [query("q1", "ask")],
            {"faults": (Fault("x.md", "cannot be read"),)},
            "documents_failed",
            id="document",
        ),
    ],
)
def test_what_is_wrong_makes_a_set_unfit(arguments, facts, expected):
    check = checked(*arguments, *DECLARED, judged="complete", **facts)
    assert not check.fit
    assert [f.check for f in check.findings if f.severity == "error"] == [expected]
    assert check.findings[0].count == len(check.findings[0].examples) == 1


@pytest.mark.parametrize(
    ("arguments", "facts", "expected"),
    [
        pytest.param(
            [query("q1", "ask", grades={"a": 2, "gone": 0})], {}, "judged_missing", id="0"
        ),
        pytest.param([query("q1", "ask"), query("q2", "ASK")], {}, "equal_in_split", id="copy"),
        pytest.param(
            [query("q1", "ask")], {"left_out": {"no_judgement": 3}}, "unlabelled", id="unlabelled"
        ),
        pytest.param(
            [query("u3", "ask", answerable=False, grades={})],
            {},
            "nearness_unstated",
            id="nearness",
        ),
        pytest.param(
            [query("q1", "ask")],
            {"documents": [document("a", body="x y"), document("b", body="x  y")]},
            "equal_content",
            id="equal content",
        ),
        pytest.param(
            [query("q1", "ask", grades={"a": 2, "b": 1})],
            {"documents": [document("a", metadata={"same_as": "b"}), document("b")]},
            "same_as_graded_apart",
            id="grades of translations",
        ),
    ],
)
def test_what_is_only_odd_is_a_warning(arguments, facts, expected):
    check = checked(*arguments, *DECLARED, judged="complete", **facts)
    assert check.fit
    assert problems(check) == {expected: "warning", "label_budget": "warning"}


def test_a_split_without_an_unanswerable_query_and_near_documents_are_told():
    documents = [document("a"), document("b"), document("c")]
    vectors = {"a": [1, 0], "b": [0.96, 0.28], "c": [0, 1], "ask": [1, 0]}
    base = knowledge(documents, vectors)
    labelled = made(query("q1", "ask"), judged="complete")
    check = check_set(labelled, Corpus("memory", tuple(documents)), [base])
    found = {finding.check: finding.examples for finding in check.findings}
    assert found["no_unanswerable"] == ("dev", "test")
    assert found["near_documents"] == ("a ~ b (0.960)",)
    assert check.near_documents == {"table": 1}


def test_judged_at_5_tells_answerable_queries_from_others():
    check = checked(query("q1", "ask", grades={"a": 2, "b": 0}), *DECLARED, judged="pooled")
    assert check.judged["answerable"]["table"].value == pytest.approx(2 / 3)
    assert check.judged["unanswerable"]["table"].value == 0
    assert check.unjudged == (("q1", "c"), *((u, d) for u in ("u1", "u2") for d in ("b", "a", "c")))
    assert problems(check)["unjudged"] == "warning"


def test_the_label_budget_counts_clusters_that_can_be_graded():
    queries = [query(f"q{i}", "ask", need_id=f"n{i // 2}") for i in range(150)]
    queries += [query("exact", "a"), query("far", "else")]  # PRECISE; graded below the cut
    queries += [Query(f"u{i}", "else", "test", answerable=False) for i in range(60)]
    check = checked(
        *queries, judged="complete", chosen=tool_settings(highly_relevant_threshold=0.9)
    )
    claims = {(c.split, c.measure, c.bound): c for c in check.claims}
    precision = claims["test", "precision[HIGHLY_RELEVANT]", 0.95]
    assert (precision.available, precision.graded) == (76, {"table": 75})
    assert (precision.alone, precision.one_of_two) == ((59, 93, 124, 153), (72, 110, 142, 173))
    assert precision.supported == "one of two"
    leak = claims["test", "leak_rate", 0.05]
    assert (leak.available, leak.supported, leak.graded) == (60, "alone", {})
    assert claims["dev", "precision[HIGHLY_RELEVANT]", 0.90].supported == "no"
    assert (
        str(leak) == "test: leak_rate <= 0.05 needs 59 (72 as one of two), the split has at most 60"
    )


def test_counts_are_by_split_kind_and_language():
    labelled = made(
        query("q1", "x", kind="terse", lang="zh"),
        query("q2", "y", lang="en", need_id="n"),
        *DECLARED,
    )
    assert counts_by_split(labelled)["test"] == {
        "queries": 3,
        "clusters": 3,
        "answerable": 2,
        "unanswerable": 1,
        "unanswerable_near": 0,
        "unanswerable_far": 1,
        "unanswerable_unstated": 0,
        "kinds": {"terse": 1, "unstated": 2},
        "languages": {"en": 1, "unstated": 1, "zh": 1},
    }


def test_documents_and_queries_of_sessions_exist(tmp_path):
    (tmp_path / "sessions.jsonl").write_text(
        '{"session_id": "s1", "turns": [{"query": "ask", "relevant": ["a", "gone"]},'
        ' {"query": "else", "query_id": "q9", "relevant": ["b"]}, {"query": ""}]}\n'
    )
    check = checked(query("q1", "ask"), *DECLARED, judged="complete", folder=str(tmp_path))
    found = {finding.check: finding for finding in check.findings}
    assert found["session_gold_missing"].examples == ("s1: gone",)
    assert found["session_query_unknown"].examples == ("s1: q9",)
    assert found["sessions_rejected"].count == 1
    assert not check.fit


def test_python_topics_is_fit():
    corpus = open_corpus(TOPICS)
    base = Knowledge.build(corpus, open_encoder("hashing"))
    check = check_set(load_set(TOPICS), corpus, [base])
    assert check.fit, check.findings
    assert check.relatives.equal == (("else", "if"),)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not SETS, reason="the evaluation sets are not beside the project")
@pytest.mark.parametrize("folder", SETS, ids=lambda path: path.name)
def test_the_check_runs_on_every_set(folder):
    corpus, labelled = open_corpus(folder), load_set(folder)
    base = Knowledge.build(corpus, open_encoder("hashing"))
    check = check_set(labelled, corpus, [base])
    assert sum(counts["queries"] for counts in check.counts.values()) == len(labelled)
    wrong = {finding.check for finding in check.findings if finding.severity == "error"}
    several = {"crosswoz_zh", "mtrag"}  # turns that are asked in dialogues of both splits
    assert wrong == ({"equal_across_splits"} if folder.name in several else set())
