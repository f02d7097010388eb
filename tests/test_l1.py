"""Nearest passages: exact, ordered, in the configured convention (design.md 1, 2; VS-01..06)."""

import dataclasses
import json
import threading
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kbeval.errors import DistanceError, IndexFileError
from kbeval.retrieval import l1
from kbeval.retrieval.grading import distance_to_cosine, l2_to_similarity
from kbeval.retrieval.l1 import from_engine, nearest_passages, prove_engine

CASES = Path(__file__).parent / "cases"


def unit(rng, *shape):
    rows = rng.normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def oracle(vectors, document, count, query, convention):
    """Every document by (rounded distance, position), in double precision, one by one."""
    found = []
    for doc in range(count):
        gaps = vectors[document == doc].astype(np.float64) - query.astype(np.float64)
        squared = float((gaps**2).sum(axis=1).min())
        found.append((round(squared**0.5 if convention == "l2" else squared, 6), doc))
    return sorted(found)


def random_base(seed, *, convention="l2", dimension=16):
    """Passages of 60 documents with many exact ties: some vectors stand in several documents."""
    rng = np.random.default_rng(seed)
    vectors = unit(rng, 150, dimension)
    for _ in range(20):
        vectors[rng.integers(150)] = vectors[rng.integers(150)]
    document = np.sort(np.concatenate([np.arange(60), rng.integers(0, 60, 90)])).astype(np.int32)
    return rng, nearest_passages(vectors, document, 60, convention=convention)


@pytest.mark.parametrize("convention", ["l2", "squared_l2"])
@pytest.mark.parametrize("k", [1, 3, 10, 60])
def test_search_equals_the_oracle_alone_and_in_a_batch(convention, k):
    rng, base = random_base(k, convention=convention)
    queries = np.concatenate([unit(rng, 40, 16), base.vectors[:10]])
    document, distance = base.nearest(queries, k)
    everything, distances = base.all_documents(queries)
    for i, query in enumerate(queries):
        expected = oracle(base.vectors, base.document, 60, query, convention)[:k]
        assert list(zip(distance[i], document[i], strict=True)) == expected
        assert list(zip(distances[i, :k], everything[i, :k], strict=True)) == expected
        alone = base.nearest(queries[i : i + 1], k)
        assert list(zip(alone[1][0], alone[0][0], strict=True)) == expected


@pytest.mark.parametrize(("block", "piece"), [(1, 1), (500, 7), (10**6, 149), (10**6, 150)])
def test_all_documents_are_the_same_in_pieces_of_any_size(monkeypatch, block, piece):
    rng, base = random_base(11)
    queries = unit(rng, 9, 16)
    monkeypatch.setattr(l1, "BLOCK", block)
    monkeypatch.setattr(l1, "PIECE", piece)
    document, distance = base.all_documents(queries)
    for i, query in enumerate(queries):
        expected = oracle(base.vectors, base.document, 60, query, "l2")
        assert list(zip(distance[i], document[i], strict=True)) == expected


def test_threads_and_a_batch_of_several_parts_change_nothing(monkeypatch):
    rng, base = random_base(12)
    queries = unit(rng, 50, 16)
    expected = base.nearest(queries, 7)
    monkeypatch.setattr(l1, "PART", 3)
    monkeypatch.setattr(l1, "BATCH", 20)
    found = base.nearest(queries, 7, threads=2)
    assert (found[0] == expected[0]).all()
    assert (found[1] == expected[1]).all()


class FindsLittle:
    """An engine that finds nothing but the passage 3, as an approximate one may."""

    def search(self, queries, k):
        raw = np.full((len(queries), k), np.finfo(np.float32).max, np.float32)
        found = np.full((len(queries), k), -1, np.int64)
        raw[:, 0], found[:, 0] = 0.5, 3
        return raw, found


def test_places_that_an_engine_leaves_empty_hold_minus_one_and_inf():
    rng, base = random_base(13)
    base = dataclasses.replace(base, engine=FindsLittle())
    queries = unit(rng, 2, 16)
    document, distance = base.nearest(queries, 3)
    own = int(base.document[3])
    assert document.tolist() == [[own, -1, -1]] * 2
    near = [round(float(np.linalg.norm(base.vectors[3].astype(float) - q)), 6) for q in queries]
    assert distance.tolist() == [[x, np.inf, np.inf] for x in near]
    alone = [base.nearest(query[None], 3) for query in queries]
    assert [row[0][0].tolist() for row in alone] == document.tolist()
    assert [row[1][0].tolist() for row in alone] == distance.tolist()


def test_a_search_leaves_the_engines_block_size_as_it_was():
    rng, base = random_base(14)
    faiss.cvar.distance_compute_blas_database_bs = 777
    try:
        base.nearest(unit(rng, 3, 16), 2)
        assert faiss.cvar.distance_compute_blas_database_bs == 777
    finally:
        faiss.cvar.distance_compute_blas_database_bs = 1024


@given(st.integers(0, 10_000), st.integers(1, 12))
@hypothesis_settings(max_examples=30, deadline=None)
def test_a_deeper_search_begins_with_the_shallower_one(seed, k):
    rng, base = random_base(seed, dimension=4)
    queries = unit(rng, 5, 4)
    shallow, deep = base.nearest(queries, k), base.nearest(queries, k + 7)
    assert (shallow[0] == deep[0][:, :k]).all()
    assert (shallow[1] == deep[1][:, :k]).all()


def test_distances_to_chosen_documents_are_those_of_the_search():
    rng, base = random_base(3)
    query = unit(rng, 16)
    document, distance = base.nearest(query[None], 60)
    assert (base.distances_to(query, document[0].tolist()) == distance[0]).all()
    for doc in (0, 7, 59):
        passage = base.nearest_passage(query, doc)
        assert base.document[passage] == doc


def test_vs01_no_neighbour_beyond_the_documents_there_are():
    case = json.loads((CASES / "VS-01" / "two-docs.json").read_text())
    vectors = np.array(list(case["docs"].values()), np.float32)
    base = nearest_passages(vectors, np.arange(2, dtype=np.int32), 2)
    document, distance = base.nearest(np.array([case["query"]], np.float32), case["k"])
    names = list(case["docs"])
    assert [names[i] for i in document[0]] == case["expect"]
    assert distance[0].tolist() == [0.0, round(2**0.5, 6)]


def test_vs02_both_readings_of_the_same_vectors():
    case = json.loads((CASES / "VS-02" / "angles.json").read_text())
    vectors = np.array([row["vector"] for row in case["docs"]], np.float32)
    query = np.array([case["query"]], np.float32)
    for convention, reading in (("l2", "euclidean"), ("squared_l2", "squared")):
        base = nearest_passages(
            vectors, np.arange(len(vectors), dtype=np.int32), len(vectors), convention=convention
        )
        document, distance = base.nearest(query, len(vectors))
        assert document[0].tolist() == [0, 1, 2, 3, 4]
        assert distance[0] == pytest.approx([row[reading] for row in case["docs"]], abs=1e-4)
        similarity = [row[f"similarity_if_{reading}"] for row in case["docs"]]
        assert l2_to_similarity(distance[0]) == pytest.approx(similarity, abs=1e-4)
        cosine = [row["cosine"] for row in case["docs"]]
        assert distance_to_cosine(distance[0], convention) == pytest.approx(cosine, abs=1e-4)


def test_cosine_of_08_is_similarity_0684_or_0800():
    query, vector = np.array([[1, 0]], np.float32), np.array([[0.8, 0.6]], np.float32)
    similarity = {
        convention: l2_to_similarity(
            nearest_passages(vector, np.zeros(1, np.int32), 1, convention=convention).nearest(
                query, 1
            )[1]
        ).item()
        for convention in ("l2", "squared_l2")
    }
    assert similarity == {"l2": 0.683772, "squared_l2": 0.8}


def test_an_engine_proves_its_distance():
    prove_engine(faiss.IndexFlatL2(2))
    with pytest.raises(IndexFileError, match="metric is METRIC_INNER_PRODUCT; METRIC_L2"):
        prove_engine(faiss.IndexFlatIP(2))
    with pytest.raises(IndexFileError, match="METRIC_INNER_PRODUCT"):
        nearest_passages(
            np.eye(3, dtype=np.float32),
            np.arange(3, dtype=np.int32),
            3,
            make_engine=faiss.IndexFlatIP,
        )


def test_an_engine_of_another_kind_may_find_fewer():
    rng = np.random.default_rng(0)
    vectors = unit(rng, 200, 8)
    base = nearest_passages(
        vectors,
        np.arange(200, dtype=np.int32),
        200,
        make_engine=lambda d: faiss.IndexHNSWFlat(d, 16),
    )
    document, distance = base.nearest(unit(rng, 5, 8), 3)
    assert (np.diff(distance, axis=1) >= 0).all()
    assert document.shape == (5, 3)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(-1e-7, 1.0, id="TH-02: rounding noise"),
        pytest.param(-0.2, None, id="TH-02: negative"),
        pytest.param(0, 1.0, id="TH-02: zero"),
        pytest.param(4, 0.0, id="TH-02: 2 squared"),
        pytest.param(9, 0.0, id="TH-02: 3 squared"),
        pytest.param(3.4028235e38, "no neighbour", id="TH-02: padding"),
        pytest.param(float("inf"), "no neighbour", id="TH-02: infinity"),
        pytest.param(float("nan"), None, id="TH-02: NaN"),
        pytest.param("0.5", None, id="TH-02: text"),
        pytest.param(True, None, id="TH-02: true"),
        pytest.param(None, None, id="TH-02: null"),
    ],
)
def test_th02_a_foreign_engines_values(value, expected):
    if expected is None:
        with pytest.raises(DistanceError, match=r"^a\.md: .*expected"):
            from_engine([value], ["a.md"])
        return
    found = from_engine([value], ["a.md"])
    if expected == "no neighbour":
        assert found == {}
    else:
        assert l2_to_similarity(found["a.md"]) == expected


def test_vs06_searches_from_many_threads_equal_those_in_turn():
    rng = np.random.default_rng(1)
    base = nearest_passages(unit(rng, 500, 64), np.arange(500, dtype=np.int32), 500)
    queries = unit(rng, 8, 50, 64)
    serial = [[base.nearest(q[None], 5) for q in block] for block in queries]
    threaded = [None] * 8

    def search(number):
        threaded[number] = [base.nearest(q[None], 5) for q in queries[number]]

    threads = [threading.Thread(target=search, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(serial, threaded, strict=True):
        for (documents, distances), (same, too) in zip(one, other, strict=True):
            assert (documents == same).all()
            assert (distances == too).all()
