"""Probes: what is hidden, what is left, what leaks, and what may be said about it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from stand_ins import at_similarity, document, knowledge, settings

from kbeval.config import Settings
from kbeval.corpus.hashing import HashingEncoder
from kbeval.errors import DatasetError
from kbeval.evaluation.checking.duplicates import Relatives, near_pairs, relatives
from kbeval.evaluation.checking.hiding import hidden_evidence
from kbeval.evaluation.checking.probes import (
    Probe,
    ProbeLeak,
    leak_bounds,
    leak_on_probes,
    make_probes,
    probes_to_read,
    read_still_answerable,
    save_probes,
)
from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.evaluation.statistics import Rate
from kbeval.records import Corpus
from kbeval.retrieval.knowledge import Knowledge

NOTHING = Relatives((), (), {}, ())


def labelled(*queries):
    return LabelledSet("made", "", queries, answers_from=2, splits=("dev", "test"))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param({"a"}, {"a", "b", "c"}, id="declared, transitively"),
        pytest.param({"c"}, {"a", "b", "c"}, id="declared, in both directions"),
        pytest.param({"d"}, {"d", "e"}, id="near, but not the near ones of the near"),
        pytest.param({"e"}, {"d", "e", "f", "g"}, id="near, and what is declared for it"),
        pytest.param({"h"}, {"h", "i"}, id="equal text"),
        pytest.param({"z"}, {"z"}, id="nothing like it"),
    ],
)
def test_relatives_follow_declarations_all_the_way_and_nearness_one_step(start, expected):
    documents = [
        document("a"),
        document("b", metadata={"same_as": ["a", "c"]}),
        document("c"),
        document("d"),
        document("e"),
        document("f", metadata={"same_as": "g"}),
        document("g"),
        document("h", body="the  same\ntext"),
        document("i", body="the same text"),
        document("z"),
    ]
    alike = relatives(documents, [{("d", "e"): 0.96, ("e", "f"): 0.95}])
    assert alike.of(start) == expected


def test_relatives_name_what_does_not_exist_and_tell_declared_pairs_apart():
    documents = [
        document("a", metadata={"same_as": "b"}),
        document("b", metadata={"same_as": "gone.md"}),
        document("c", metadata={"same_as": "c"}),
    ]
    near = [{("a", "b"): 0.97, ("a", "c"): 0.95}, {("a", "c"): 0.99}]
    alike = relatives(documents, near)
    assert alike.declared == (("a", "b"),)
    assert alike.unknown == (("b", "gone.md"), ("c", "c"))
    assert alike.undeclared() == {("a", "c"): 0.99}


def test_documents_are_near_by_their_nearest_passages():
    rng = np.random.default_rng(4)
    vectors = {f"d{i}": v / np.linalg.norm(v) for i, v in enumerate(rng.normal(size=(9, 3)))}
    vectors["d9"] = vectors["d3"]
    base = knowledge([document(path) for path in vectors], vectors)
    expected = {
        (a, b): float(vectors[a] @ vectors[b])
        for a in vectors
        for b in vectors
        if a < b and vectors[a] @ vectors[b] >= 0.6
    }
    found = near_pairs(base, cosine=0.6)
    assert found == pytest.approx(expected, abs=1e-5)
    assert near_pairs(base)["d3", "d9"] == pytest.approx(1.0)


def test_one_passage_in_common_makes_two_long_documents_near():
    shared = "Restore the nightly backup of the billing database into a scratch instance. " * 4
    bodies = {"a": "Wake the phone tree. " * 20, "b": "Rotate the signing keys. " * 20}
    documents = [document(p, body=f"{text}\n\n{shared}") for p, text in bodies.items()]
    documents = [replace(d, title="") for d in documents]
    base = Knowledge.build(Corpus("memory", tuple(documents)), HashingEncoder(), passage_tokens=64)
    assert len(base.passages) > 2
    assert near_pairs(base)["a", "b"] == pytest.approx(1.0)


def test_a_probe_hides_every_positive_document_and_keeps_what_its_parent_is():
    query = Query(
        "q1", "how?", "dev", grades={"a": 2, "b": 1, "c": 0, "gone": 2}, need_id="n1", lang="en"
    )
    declined = Query("q2", "never", answerable=False)
    missing = Query("q3", "lost", grades={"gone": 2})
    everything = Query("q4", "all", grades=dict.fromkeys("abcd", 1))
    alike = Relatives((("b", "d"),), (), {}, ())
    made = make_probes(labelled(query, declined, missing, everything), list("abcde"), alike)
    assert [(probe.id, probe.hidden) for probe in made] == [
        ("q1:probe", ("a", "b", "d")),
        ("q4:probe", ("a", "b", "c", "d")),
    ]
    assert made[0].to_json() == {
        "_id": "q1:probe",
        "text": "how?",
        "metadata": {
            "split": "dev",
            "answerable": False,
            "kind": "probe",
            "nearness": "near",
            "parent": "q1",
            "hidden": ["a", "b", "d"],
            "lang": "en",
            "need_id": "n1",
        },
    }
    assert make_probes(labelled(everything), list("abcd"), alike) == ()


def test_probes_are_written_one_a_line(tmp_path):
    probes = [
        Probe("q1:probe", Query("q1", "如何？"), ("a",)),
        Probe("q2:probe", Query("q2", "x"), ()),
    ]
    path = save_probes(probes, tmp_path / "probes.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [probe.to_json() for probe in probes]
    assert "如何" in lines[0]


WORDS = ["pool", "rate", "limit", "backup", "restore", "key", "rotate", "tenant"]
WORDS += ["限流", "备份", "恢复", "租户", "连接池"]


def random_documents(rng, count):
    return [
        document(
            f"d{i:02}", body=" ".join(rng.choice(WORDS, 8)), keywords=tuple(rng.choice(WORDS, 2))
        )
        for i in range(count)
    ]


def test_hiding_equals_a_base_that_never_had_the_documents():
    rng = np.random.default_rng(11)
    documents = random_documents(rng, 24)
    documents += [document("long", keywords=("rate limit tenant", "备份恢复"))]
    queries = [" ".join(rng.choice(WORDS, 3)) for _ in range(30)]
    queries += ["about rate limit tenant", "怎样备份恢复", "d03"]
    hidden = [rng.choice([d.path for d in documents], rng.integers(0, 6)).tolist() for _ in queries]
    hidden[-3:] = [["long"], ["long", "d00"], ["d03", "no such path"]]
    encoder = HashingEncoder()
    base = Knowledge.build(Corpus("m", tuple(documents)), encoder)
    found = hidden_evidence(base, queries, hidden, limit=3)
    exposed = 0
    for i, (query, gone) in enumerate(zip(queries, hidden, strict=True)):
        left = tuple(d for d in documents if d.path not in gone)
        alone = Knowledge.build(Corpus("m", left), encoder).gather([query], depth=3)
        start, stop = found.l0_offset[i : i + 2]
        assert [found.paths[d] for d in found.l0_document[start:stop]] == [
            alone.paths[d] for d in alone.l0_document
        ]
        np.testing.assert_allclose(found.l0_distance[start:stop], alone.l0_distance, atol=2e-6)
        assert [found.paths[d] for d in found.l1_document[i]] == [
            alone.paths[d] for d in alone.l1_document[0]
        ]
        before = {base.paths[d] for d in base.gather([query]).l0_document}
        exposed += bool({alone.paths[d] for d in alone.l0_document} - before)
    assert exposed >= 2  # a shorter key matches again once the longer one is gone


def test_with_too_few_documents_left_the_places_are_empty():
    base = knowledge([document("a"), document("b")], {"a": [1, 0], "b": [0, 1], "q": [1, 0]})
    found = hidden_evidence(base, ["q"], [["a"]], limit=3)
    assert found.l1_document.tolist() == [[1, -1, -1]]
    assert found.l1_distance[0, 1:].tolist() == [np.inf, np.inf]


def probe(name, hidden, *, split="test", **fields):
    return Probe(f"{name}:probe", Query(name, name, split, grades={"a": 2}, **fields), hidden)


def test_leak_on_probes_grades_what_is_left():
    documents = [document("a"), document("b"), document("key", aliases=("magic",))]
    vectors = {
        "a": [1, 0, 0],
        "b": [*at_similarity(0.8), 0],
        "key": [0, 0, 1],
        "near a": [1, 0, 0],
        "far off": [0, -1, 0],
        "magic a": [0, -1, 0],
        "twice gone": [1, 0, 0],
    }
    probes = [
        probe("near a", ("a",)),  # b stands at 0.8: HIGHLY_RELEVANT
        probe("far off", ("a",)),  # nothing is near
        probe("magic a", ("a",)),  # one L0 match: PRECISE
        probe("twice gone", ("a", "b")),  # key is far off
        probe("near a", ("a",), split="dev"),
    ]
    base = knowledge(documents, vectors)
    found = leak_on_probes(probes, base, settings=Settings())
    assert {
        split: (leak.leak.value, leak.closed.value, leak.floor.value)
        for split, leak in found.items()
    } == {
        "test": (0.5, 0.5, 0.25),
        "dev": (1.0, 1.0, 0.0),
    }
    stricter = settings(highly_relevant_threshold=0.9, reference_threshold=0.7)
    again = leak_on_probes(probes, base, settings=stricter)["test"]
    assert (again.leak.value, again.closed.value) == (0.5, 0.25)
    assert leak_on_probes([], base) == {}


def test_the_interval_is_clustered_with_the_parents():
    vectors = {"a": [1, 0], "b": [1, 0], "c": [0, 1]}
    asked = {f"q{i}": ([1, 0] if i % 12 < 6 else [0, -1]) for i in range(48)}
    base = knowledge([document(path) for path in vectors], vectors | asked)
    alone = [probe(name, ("a", "c")) for name in asked]
    together = [probe(name, ("a", "c"), need_id=f"n{i // 4}") for i, name in enumerate(asked)]
    one, many = (leak_on_probes(probes, base)["test"].leak for probes in (alone, together))
    assert one.value == many.value == 0.5
    assert many.note == "approximate"  # 12 clusters
    assert many.high - many.low > one.high - one.low


@pytest.mark.parametrize(
    ("leak", "still", "expected"),
    [
        (0.5, 0.0, (0.5, 0.5)),
        (0.5, 0.2, (0.375, 0.625)),
        (0.1, 0.2, (0.0, 0.125)),
        (0.9, 0.2, (0.875, 1.0)),
        (0.3, 1.0, (0.0, 1.0)),
    ],
)
def test_bounds_of_the_true_leak_stay_between_0_and_1(leak, still, expected):
    assert leak_bounds(leak, still) == pytest.approx(expected)


def test_bounds_use_the_upper_bound_of_what_was_read():
    base = knowledge([document("a"), document("b")], {"a": [1, 0], "b": [1, 0], "q": [1, 0]})
    probes = [Probe(f"p{i}", Query(f"q{i}", "q", grades={"a": 2}), ("a",)) for i in range(50)]
    read = {f"p{i}": i < 2 for i in range(50)}
    found = leak_on_probes(probes, base, still_answerable=read)["test"]
    upper = 0.1371  # Clopper-Pearson for 2 of 50
    assert found.still_answerable.high == pytest.approx(upper, abs=1e-4)
    assert found.bounds == pytest.approx(((1 - upper) / (1 - upper), 1.0), abs=1e-3)
    assert leak_on_probes(probes, base)["test"].bounds is None
    none = ProbeLeak(*[Rate(None, None, None, 0)] * 3, still_answerable=found.still_answerable)
    assert none.bounds is None


def test_probes_to_read_are_drawn_once_a_cluster_and_seeded():
    probes = [probe(f"q{i}", (), need_id=f"n{i // 3}") for i in range(90)]
    drawn = probes_to_read(probes, count=20, seed=1)
    assert len({p.parent.cluster for p in drawn}) == len(drawn) == 20
    assert drawn == probes_to_read(probes[::-1], count=20, seed=1)
    assert drawn != probes_to_read(probes, count=20, seed=2)
    assert len(probes_to_read(probes, count=500)) == 30
    assert probes_to_read([], count=5) == ()


PROBES = [probe("q1", ()), probe("q2", ())]


def test_the_file_of_probes_read_by_hand_is_read(tmp_path):
    path = tmp_path / "probes-read.tsv"
    path.write_text("probe-id\tstill_answerable\nq1:probe\t1\nq2:probe\t\n", encoding="utf-8")
    assert read_still_answerable(path, PROBES) == {"q1:probe": True}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("q9:probe\t1", "p.tsv:2: probe 'q9:probe' is none of the 2 probes"),
        ("q1:probe\t2", "p.tsv:2: still_answerable is 2; 0 and 1 are allowed"),
        ("q1:probe\tyes", "p.tsv:2: "),
        ("q1:probe\t1\nq1:probe\t0", "p.tsv:3: probe 'q1:probe' is read twice"),
        ("q1:probe", "p.tsv:2: the row has 1 cells"),
    ],
)
def test_a_wrong_row_of_that_file_is_named(tmp_path, row, message):
    path = tmp_path / "p.tsv"
    path.write_text(f"probe-id\tstill_answerable\n{row}\n", encoding="utf-8")
    with pytest.raises(DatasetError) as error:
        read_still_answerable(path, PROBES)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
