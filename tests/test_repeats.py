"""What look-ups repeat, and which distance a record was made with."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from stand_ins import TableEncoder, document, knowledge, settings, tool

from kbeval.config import load_settings
from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.recorded import repeats as room
from kbeval.evaluation.recorded.conventions import infer_convention
from kbeval.evaluation.recorded.repeats import find_repeats
from kbeval.evaluation.sessions import load_sessions
from kbeval.retrieval.l0 import fold
from kbeval.retrieval.session import session_scope

CASES = Path(__file__).parent / "cases"
HANDBOOK = Path(__file__).resolve().parents[1] / "datasets" / "handbook"
ANGLE = {0: [1, 0], 10: [0.984808, 0.173648], 20: [0.939693, 0.34202], 90: [0, 1]}


def session(session_id, *turns):
    """Turns as a query, or a query and what was returned."""
    pairs = [turn if isinstance(turn, tuple) else (turn, None) for turn in turns]
    return Session(session_id, tuple(Turn(query, returned=docs) for query, docs in pairs))


def encoder(**degrees):
    return TableEncoder({name: ANGLE[angle] for name, angle in degrees.items()})


# repeats


def test_an_exact_repeat_is_one_after_folding_and_within_its_session():
    found = find_repeats(
        [session("s1", "How To", "why", "how  to", "ＨＯＷ to"), session("s2", "why")]
    )
    assert found.exact_of.tolist() == [-1, -1, 0, 0, -1]
    assert found.session.tolist() == [0, 0, 0, 0, 1]
    assert (found.exact.value, found.exact.n) == (0.4, 5)
    assert np.isnan(found.cosine).all()
    assert (found.near_repeats.value, found.near_repeats.note) == (None, "no encoder was given")


def test_a_near_repeat_is_no_exact_one_and_names_the_nearest():
    table = encoder(a=0, b=10, c=90, d=20, A=0)
    found = find_repeats([session("s1", "a", "b", "c", "d", "A")], encoder=table, near=0.98)
    assert found.exact_of.tolist() == [-1, -1, -1, -1, 0]
    assert found.near_of.tolist() == [-1, 0, -1, 1, -1]
    assert np.isnan(found.cosine[0])
    assert found.cosine[1:].round(3).tolist() == [0.985, 0.174, 0.985, 1.0]
    assert found.near_repeats.value == 0.4


def test_the_cut_of_a_near_repeat_is_inclusive():
    table = TableEncoder({"a": [1, 0], "b": [0.6, 0.8]})
    for near, count in [(0.6, 1), (0.600001, 0)]:
        found = find_repeats([session("s1", "a", "b")], encoder=table, near=near)
        assert (found.near_of >= 0).sum() == count


def test_the_same_documents_are_the_same_set_and_nothing_is_no_set():
    turns = [
        ("a", ("x", "y")),
        ("b", ("y", "x")),
        ("c", ("x", "z")),
        ("d", ()),
        ("e", ()),
        ("f", None),
    ]
    found = find_repeats([session("s1", *turns), session("s2", ("a", ("x", "y")))])
    assert found.documents_of.tolist() == [-1, 0, -1, -1, -1, -1, -1]
    assert found.returned_count.tolist() == [2, 2, 2, 0, 0, -1, 2]
    assert found.returned_again_count.tolist() == [0, 2, 1, 0, 0, -1, 0]
    assert (found.same_documents.value, found.same_documents.n) == (1 / 6, 6)
    assert (found.overlap.value, found.overlap.n) == (3 / 8, 4)


def test_a_document_that_a_memory_kept_back_was_met_again():
    withheld = {"retrieval_details": {"withheld": ["x", "y"]}}
    turns = (
        Turn("a", returned=("x", "y")),
        Turn("b", returned=("z",), metadata=withheld),
        Turn("c", returned=("w",), metadata={"retrieval_details": {"withheld": []}}),
        Turn("d", metadata=withheld),  # what it returned is not recorded
        Turn("e", returned=("x", "u")),
    )
    found = find_repeats([Session("s1", turns)])
    assert found.withheld_count.tolist() == [0, 2, 0, -1, 0]
    assert (found.documents_again.value, found.documents_again.n) == (0.5, 4)
    assert found.same_documents.value == 0


def test_a_record_without_answers_or_without_look_ups_has_no_rates():
    found = find_repeats([session("s1", "a", "b")])
    assert (found.overlap.value, found.overlap.note) == (None, "no look-up says what it returned")
    assert (found.same_documents.value, found.same_documents.n) == (None, 0)
    nothing = find_repeats([], encoder=encoder(a=0))
    assert (len(nothing), nothing.exact.value, nothing.near_repeats.note) == (0, None, "no look-up")
    assert nothing.to_json()["sessions"] == 0


def test_intervals_are_over_sessions():
    sessions = [session(f"s{i}", "a", *["a"] * (i % 3), "b") for i in range(40)]
    found = find_repeats(sessions)
    assert (found.exact.n, found.exact.note) == (sum(2 + i % 3 for i in range(40)), "")
    assert found.exact.low < found.exact.value < found.exact.high
    assert find_repeats(sessions[:9]).exact.note == "too few sessions"


def test_json_has_every_share_with_its_interval():
    facts = find_repeats(
        [session("s1", ("a", ("x",)), ("a", ("x",)))], encoder=encoder(a=0)
    ).to_json()
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["look_ups"], facts["sessions"], facts["encoder"]) == (2, 1, "table")
    names = ("exact", "near", "same_documents", "overlap", "documents_again")
    assert [facts[name]["value"] for name in names] == [0.5, 0.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("near", [1.1, -1.5, float("nan")])
def test_a_cosine_that_is_none_is_refused(near):
    with pytest.raises(ConfigError, match=r"near is .*; a cosine from -1 to 1 is allowed"):
        find_repeats([], near=near)


def test_each_text_is_encoded_once_and_kept(tmp_path):
    table = encoder(a=0, b=10)
    sessions = [session("s1", "a", "b", "a"), session("s2", "a")]
    cache = EmbeddingCache(tmp_path)
    first = find_repeats(sessions, encoder=table, cache=cache)
    again = find_repeats(iter(sessions), encoder=table, cache=cache)
    assert table.calls == 1
    assert first.cosine.tolist()[1:3] == again.cosine.tolist()[1:3]


def test_a_stream_is_taken_in_blocks(monkeypatch):
    monkeypatch.setattr(room, "BLOCK", 4)
    taken, encoded = [], []

    class Watching(TableEncoder):
        def encode(self, texts, kind):
            encoded.append((len(texts), len(taken)))
            return super().encode(texts, kind)

    def stream():
        for i in range(6):
            taken.append(i)
            yield session(f"s{i}", "a", "b")

    find_repeats(stream(), encoder=Watching({"a": [1, 0], "b": [0, 1]}))
    assert encoded == [(2, 2), (2, 4), (2, 6)]  # texts, sessions taken so far


def slowly(sessions, vectors, near):
    """One look-up after the other, pair by pair."""
    rows = []
    for number, one in enumerate(sessions):
        for at, turn in enumerate(one.turns):
            before = one.turns[:at]
            exact = [i for i, t in enumerate(before) if fold(t.query) == fold(turn.query)]
            cosines = [float(np.dot(vectors[t.query], vectors[turn.query])) for t in before]
            cosines = [round(cosine, 6) for cosine in cosines]
            best = max(cosines, default=np.nan)
            nearest = cosines.index(best) if before and best >= near and not exact else -1
            same = [
                i
                for i, t in enumerate(before)
                if t.returned and turn.returned and set(t.returned) == set(turn.returned)
            ]
            given_before = {d for t in before for d in t.returned or ()}
            told = turn.returned is not None
            rows.append(
                (
                    number,
                    exact[0] if exact else -1,
                    nearest,
                    best,
                    same[0] if same else -1,
                    len(set(turn.returned)) if told else -1,
                    len(set(turn.returned) & given_before) if told else -1,
                )
            )
    return rows


QUERIES = ["a", "A", "b", "c", "d"]
TURNS = st.tuples(
    st.sampled_from(QUERIES),
    st.none() | st.lists(st.sampled_from("xyz"), max_size=3, unique=True).map(tuple),
)


@given(st.lists(st.lists(TURNS, max_size=8), max_size=4), st.sampled_from([-1.0, 0.0, 0.7, 1.0]))
@hypothesis_settings(deadline=None)
def test_the_arrays_say_what_a_slow_loop_says(rows, near):
    sessions = [session(f"s{i}", *turns) for i, turns in enumerate(rows)]
    exact = {"a": [1, 0], "A": [1, 0], "b": [0.6, 0.8], "c": [0, 1], "d": [-1, 0]}
    found = find_repeats(sessions, encoder=TableEncoder(exact), near=near)
    vectors = {name: np.array(v, np.float32).astype(float) for name, v in exact.items()}
    columns = [found.session, found.exact_of, found.near_of, found.cosine]
    columns += [found.documents_of, found.returned_count, found.returned_again_count]
    expected = np.array(slowly(sessions, vectors, near), float).reshape(-1, 7)
    assert np.array_equal(np.column_stack(columns).astype(float), expected, equal_nan=True)


def test_a_long_session_is_compared_piece_by_piece():
    rng = np.random.default_rng(0)
    texts = [f"q{i}" for i in range(2 * room.ROWS + 7)]
    raw = rng.normal(size=(len(texts), 8))
    table = TableEncoder(dict(zip(texts, raw / np.linalg.norm(raw, axis=1)[:, None], strict=True)))
    found = find_repeats([session("s1", *texts)], encoder=table, near=0.8)
    vectors = {text: table.encode([text], "query")[0].astype(float) for text in texts}
    expected = slowly([session("s1", *texts)], vectors, 0.8)
    assert found.near_of.tolist() == [row[2] for row in expected]
    assert 50 < (found.near_of >= 0).sum() < len(texts) - 50


def test_the_handbooks_repeats_are_found_with_a_stand_in(tmp_path):
    sessions, _ = load_sessions(HANDBOOK)
    found = find_repeats(sessions, encoder=open_encoder("hashing"), cache=EmbeddingCache(tmp_path))
    assert len(found) == 647
    kinds = np.array([turn.metadata["kind"] for one in sessions for turn in one.turns])
    repeats = found.exact_of >= 0
    assert set(kinds[repeats]) <= {"repeat", "rephrase"}
    assert found.cosine[kinds == "repeat"].mean() > np.nanmean(found.cosine[kinds == "new_need"])


# conventions


def recorded(*details, query="q"):
    """A session of one look-up for each of these details."""
    turns = tuple(Turn(query, metadata={"retrieval_details": one}) for one in details)
    return [Session("s1", turns)]


def distances(*values, **more):
    return {"handed_out": [{"file_path": "a.md", "distance": value} for value in values]} | more


@pytest.mark.parametrize(
    ("details", "convention", "shown_by", "reason"),
    [
        ([distances(0.4, 2.5)], "squared_l2", "values", "1 distances are above 2"),
        (
            [{"l1_top_similarity": 0.25, "max_l2_distance": 4.0}],
            "squared_l2",
            "values",
            "1 distances are above 2",
        ),
        ([distances(0.4, 2.0)], None, "", "cannot be told: no distance is above 2, and there is"),
        ([distances(0.4, 2.0000001)], None, "", "cannot be told"),
        ([{"l1_top_similarity": 0.0, "max_l2_distance": 4.0}], None, "", "no distances are rec"),
        ([distances(2.5, 17.0)], None, "", "cannot be told: 1 distances are above 4"),
        ([{}], None, "", "cannot be told: no distances are recorded"),
        ([], None, "", "cannot be told: no distances are recorded"),
        ([distances(0.4, distance="l2")], "l2", "declared", "declared by the record, not proved"),
        ([distances(0.4, distance="cosine")], None, "", "cannot be told"),
        ([distances("0.4", None, True, float("nan"))], None, "", "no distances are recorded"),
        (
            [distances(0.4, distance="l2"), distances(3.0, distance="squared_l2")],
            None,
            "",
            "cannot be told: 1 l2 and 1 squared_l2 are declared",
        ),
    ],
)
def test_the_numbers_of_a_record_tell_its_convention_or_that_they_do_not(
    details, convention, shown_by, reason
):
    guess = infer_convention(recorded(*details))
    assert (guess.convention, guess.shown_by) == (convention, shown_by)
    assert guess.reason.startswith(reason) or reason in guess.reason
    assert not guess.contradiction
    assert json.loads(json.dumps(guess.to_json()))["convention"] == convention


def test_numbers_that_contradict_what_is_declared_are_believed_and_said():
    guess = infer_convention(recorded(distances(0.4, 3.0, distance="l2")))
    assert (guess.convention, guess.declared, guess.contradiction) == ("squared_l2", "l2", True)
    assert guess.reason.endswith("although the record declares l2")


def looked_up(convention, limit=4.0):
    """What the tool itself records under a convention, over VS-02's vectors."""
    angles = json.loads((CASES / "VS-02/angles.json").read_text(encoding="utf-8"))
    vectors = {entry["doc"]: entry["vector"] for entry in angles["docs"]}
    names = sorted(vectors)
    vectors["q"] = angles["query"]
    chosen = load_settings(
        {
            "retrieval": {
                "limit": 10,
                "normalization": {
                    "distance": convention,
                    "max-l2-distance": limit,
                    "highly-relevant-threshold": 0.5,
                    "reference-threshold": 0.1,
                },
            }
        }
    )
    asked = tool([document(name) for name in names], vectors, chosen=chosen)
    with session_scope("s1"):
        details = dict(asked.lookup_knowledge("q")[1].retrieval_details)
    return details, [document(name) for name in names], vectors


@pytest.mark.parametrize("convention", ["l2", "squared_l2"])
@pytest.mark.parametrize("opened_as", ["l2", "squared_l2"])
def test_vs02_pairs_computed_again_tell_the_convention(convention, opened_as):
    details, documents, vectors = looked_up(convention)
    details = {key: details[key] for key in ("handed_out", "l1_top_similarity")}
    pairs = [d for d in details["handed_out"] if d["distance"] <= 2]  # none that tells by itself
    base = knowledge(documents, vectors, chosen=settings(distance=opened_as))
    guess = infer_convention(recorded(*[{"handed_out": pairs}] * 3), base)
    assert (guess.convention, guess.shown_by) == (convention, "recomputed"), guess
    assert guess.counts[f"agree_{convention}"] == guess.counts["pairs"] >= 5


def test_pairs_of_another_encoder_or_version_or_corpus_are_not_compared():
    details, documents, vectors = looked_up("l2")
    base = knowledge(documents[:-1], vectors)
    other = [entry | {"content_hash": "0" * 64} for entry in details["handed_out"]]
    rows = [{"handed_out": other}, details | {"encoder": "another", "distance": "cosine"}]
    rows.append({"handed_out": [{"file_path": documents[-1].path, "distance": 1.5}]})
    guess = infer_convention(recorded(*rows), base)
    assert (guess.convention, guess.shown_by) == (None, "")
    assert guess.reason == "cannot be told: only 0 pairs of query and document could be compared"
    assert {k: v for k, v in guess.counts.items() if k.startswith(("other", "unknown"))} == {
        "other_encoder": 1,
        "other_version": 4,
        "unknown_document": 2,
    }


def test_pairs_that_agree_with_neither_reading_tell_nothing():
    details, documents, vectors = looked_up("l2")
    shifted = [
        {"file_path": entry["file_path"], "distance": entry["distance"] + 0.05}
        for entry in details["handed_out"]
        if entry["distance"] < 1.9
    ]
    base = knowledge(documents, vectors)
    guess = infer_convention(recorded(*[{"handed_out": shifted, "distance": "l2"}] * 5), base)
    assert (guess.convention, guess.shown_by) == (None, "")
    assert "too few agree (0 with l2, 0 with squared_l2)" in guess.reason
