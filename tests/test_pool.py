"""Pooling: what L0, the encoders and BM25 put on top, and how much of it is judged."""

import numpy as np
import pytest
from stand_ins import TableEncoder, document, knowledge

from kbeval.evaluation.checking.pool import (
    Pool,
    bm25_tops,
    judged_rates,
    judged_share,
    pool_of,
    pooled,
    unjudged_pairs,
    words,
)
from kbeval.evaluation.queries import Query

VECTORS = {"alpha": [1, 0], "beta": [0.8, 0.6], "gamma": [0, 1], "ask alpha": [0.6, 0.8]}
DOCUMENTS = [document("alpha"), document("beta"), document("gamma")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Restart NGINX", ["restart", "nginx"]),
        ("重启服务器", ["重启", "启服", "服务", "务器"]),
        ("重启nginx服务", ["重启", "nginx", "服务"]),
        ("库", ["库"]),
        ("ＡＰＩ－key_v2", ["api", "key", "v2"]),
        ("？！", []),
    ],
)
def test_words_are_folded_and_cut_where_the_script_changes(text, expected):
    assert words(text) == expected


def test_bm25_ranks_by_shared_words_and_ties_by_path():
    documents = [
        document("b", body="rate limit"),
        document("a", body="rate limit"),
        document("c", body="backup of a table and of a bucket"),
    ]
    tops = bm25_tops(documents, ["limit", "bucket", "nothing shared", "？"], depth=5)
    assert tops == (("a", "b"), ("c",), (), ())


def test_bm25_weighs_a_rare_word_above_a_common_one():
    documents = [document(f"d{i}", body="pool of workers") for i in range(4)]
    documents.append(document("d9", body="pgbouncer settings in full"))
    assert bm25_tops(documents, ["pool pgbouncer"], depth=1) == (("d9",),)


@pytest.mark.parametrize("bodies", [[], ["？", "！"]])
def test_bm25_without_any_word_ranks_nothing(bodies):
    documents = [document("？" * (i + 1), body=body) for i, body in enumerate(bodies)]
    assert bm25_tops(documents, ["rate limit"]) == ((),)


def test_a_pool_holds_the_top_of_l0_of_each_encoder_and_of_bm25():
    other = {**VECTORS, "ask alpha": [0.0, 1.0]}
    bases = [
        knowledge(DOCUMENTS, VECTORS, encoder=TableEncoder(VECTORS, "one")),
        knowledge(DOCUMENTS, other, encoder=TableEncoder(other, "two")),
    ]
    pool = pooled([Query("q1", "ask alpha")], bases, depth=2)
    assert pool.tops == {
        "l0": (("alpha",),),
        "one": (("beta", "gamma"),),
        "two": (("gamma", "beta"),),
        "bm25": (("alpha",),),
    }
    assert pool.pairs() == [("q1", "alpha"), ("q1", "beta"), ("q1", "gamma")]


def test_a_pool_of_deeper_evidence_is_the_same():
    base = knowledge(DOCUMENTS, VECTORS)
    queries = [Query("q1", "ask alpha"), Query("q2", "beta")]
    evidence = {"table": base.gather([q.text for q in queries], depth=3)}
    assert pool_of(queries, base.documents, evidence, depth=2) == pooled(queries, [base], depth=2)


POOL = Pool(
    ("q1", "q2"), {"l0": (("a",), ()), "bm25": (("a", "b"), ("c", "d")), "none": ((), ())}, 2
)
QUERIES = [Query("q1", "x", grades={"a": 2, "b": 0}), Query("q2", "y", grades={"d": 1})]


def test_judged_share_counts_documents_with_a_row_also_of_score_0():
    assert judged_share(POOL, QUERIES) == {"l0": (1, 1), "bm25": (3, 4), "none": (0, 0)}
    assert unjudged_pairs(POOL, QUERIES) == [("q2", "c")]
    assert POOL.only([1]).tops["bm25"] == (("c", "d"),)


def test_judged_rates_are_sums_over_sums_with_an_interval_over_clusters():
    rng = np.random.default_rng(3)
    shown = rng.integers(1, 6, size=60)
    judged = [int(rng.integers(0, n + 1)) for n in shown]
    tops = tuple(tuple(f"d{i}" for i in range(n)) for n in shown)
    queries = [
        Query(f"q{i}", "x", grades={f"d{j}": 0 for j in range(k)}, need_id=f"n{i // 2}")
        for i, k in enumerate(judged)
    ]
    found = judged_rates(Pool(tuple(q.id for q in queries), {"l1": tops}, 5), queries)["l1"]
    assert found.value == pytest.approx(sum(judged) / shown.sum())
    assert found.n == 60
    assert found.note == "approximate"  # 30 clusters, not 60
    assert found.low < found.value < found.high


def test_a_ranking_that_shows_nothing_has_no_rate():
    found = judged_rates(POOL, QUERIES)["none"]
    assert (found.value, found.n, found.note) == (None, 0, "the ranking shows no document")
