"""Written sessions: their fields, what is left out, and the one door to sessions of any form."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import LabelledSet, Query, Session, Turn
from kbeval.evaluation.recorded.loaded import LoadedSessions, is_cut
from kbeval.evaluation.recorded.names import QueryNames, hidden, hidden_text
from kbeval.evaluation.recorded.opening import form_of, open_sessions
from kbeval.evaluation.sessions import load_sessions

CASES = Path(__file__).parent / "cases"
SETS = Path(__file__).resolve().parents[2] / "shared" / "data"
HANDBOOK = Path(__file__).resolve().parents[1] / "datasets" / "handbook"
real_sets = pytest.mark.skipif(not SETS.is_dir(), reason="the evaluation sets are not there")


def written(folder, *lines, name="sessions.jsonl"):
    path = folder / name
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines),
        encoding="utf-8",
    )
    return path


def session(session_id, *turns, **fields):
    return {"session_id": session_id, "turns": list(turns), **fields}


def at(minute, **fields):
    """A turn asked at this minute of an hour."""
    return {"query": f"q{minute}", "asked_at": f"2024-01-01T05:{minute:02}:00Z"} | fields


def problems(loaded):
    return [fault.problem for fault in loaded.faults]


# fields


def test_a_turn_carries_its_needs_what_was_returned_and_when(tmp_path):
    turn = {
        "query": "how",
        "relevant": ["a", "b"],
        "answerable": True,
        "needs": [["a", "b"], ["c"]],
        "returned": ["c", "a", "c"],
        "asked_at": "2024-01-01T13:30:00+08:00",
        "changed": ["a"],
        "grades": {"a": 2},
    }
    loaded = open_sessions(written(tmp_path, session("s1", turn, {"query": "why"})))
    assert loaded.sessions[0].turns == (
        Turn(
            "how",
            relevant=("a", "b"),
            answerable=True,
            metadata={"grades": {"a": 2}},
            needs=(("a", "b"), ("c",)),
            returned=("c", "a"),
            asked_at=datetime(2024, 1, 1, 5, 30, tzinfo=UTC),
            changed=("a",),
        ),
        Turn("why"),
    )


def test_returned_nothing_is_not_returned_unknown(tmp_path):
    turns = [{"query": "a", "returned": []}, {"query": "b", "returned": None}, {"query": "c"}]
    loaded = open_sessions(written(tmp_path, session("s1", *turns)))
    assert [turn.returned for turn in loaded.sessions[0].turns] == [(), None, None]


def test_db04_turns_are_replayed_by_their_instants(tmp_path):
    rows = [json.loads(line) for line in (CASES / "DB-04/times.jsonl").read_text().splitlines()]
    order = rows.pop()["expect_order"]
    turns = [{"query": row["id"], "time": row["at"]} for row in rows]
    loaded = open_sessions(written(tmp_path, session("s1", *turns)))
    assert [turn.query for turn in loaded.sessions[0].turns] == order
    assert loaded.counts == {"out_of_order": 2, "naive_time": 1, "other_zone": 2}
    assert problems(loaded) == [
        "2 look-ups stand after a later one of their session, the first in line 1",
        "1 times have no zone, the first in line 1",
        "2 times are in other zones than UTC, the first in line 1",
    ]
    assert {fault.severity for fault in loaded.faults} == {"warning"}


def test_with_a_time_missing_the_order_of_the_file_holds(tmp_path):
    turns = [at(2), {"query": "when"}, at(1), at(3, asked_at="soon")]
    loaded = open_sessions(written(tmp_path, session("s1", *turns)))
    assert [turn.query for turn in loaded.sessions[0].turns] == ["q2", "when", "q1", "q3"]
    assert loaded.counts == {"unreadable_time": 1, "untimed": 2}
    assert problems(loaded) == [
        "2 look-ups have no time, the first in line 1",
        "session 's1', turn 4: the time 'soon' cannot be read; ISO 8601 is expected, "
        "as 2024-01-01T05:30:00Z",
    ]


@pytest.mark.parametrize(
    ("turns", "kept", "duplicates"),
    [
        ([at(1), at(1)], 1, 1),
        ([at(1), at(1), at(1), at(2)], 2, 2),
        ([at(1), at(1, query="other")], 2, 0),
        ([at(1, returned=["a"]), at(1, returned=["b"])], 2, 0),
        ([{"query": "a"}, {"query": "a"}], 2, 0),  # a repeat, as far as anyone can tell
    ],
)
def test_a_turn_written_twice_is_counted_once(tmp_path, turns, kept, duplicates):
    loaded = open_sessions(written(tmp_path, session("s1", *turns)))
    assert loaded.turn_count == kept
    assert loaded.left_out == ({"duplicate": duplicates} if duplicates else {})


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("needs", [["a"], []], "needs holds a list; allowed are groups of ids: [[id, id], [id]]"),
        ("returned", "a", "returned is 'a'; a list of documents' ids is expected"),
        ("returned", ["a", None], "returned is a list; a list of documents' ids is expected"),
        ("changed", {"a": 1}, "changed is a mapping; a list of documents' ids is expected"),
    ],
)
def test_a_field_of_another_shape_costs_its_turn_and_marks_the_session(
    tmp_path, field, value, problem
):
    turns = [{"query": "a", field: value}, {"query": "b"}]
    loaded = open_sessions(written(tmp_path, session("s1", *turns), session("s2", turns[1])))
    assert [is_cut(session) for session in loaded.sessions] == [True, False]
    assert (loaded.left_out, loaded.counts) == ({"malformed": 1}, {"cut_sessions": 1})
    assert problems(loaded) == [f"session 's1', turn 1: {problem}"]


def test_labels_that_contradict_each_other_are_taken_off_with_their_needs(tmp_path):
    turn = {"query": "a", "answerable": False, "needs": [["d"]]}
    loaded = open_sessions(written(tmp_path, session("s1", turn)))
    assert loaded.sessions[0].turns == (Turn("a"),)
    assert loaded.counts == {"contradictory_labels": 1}


@pytest.mark.parametrize(
    ("fields", "cut"),
    [
        ({"complete": False}, True),
        ({"cut": True}, True),
        ({"metadata": {"cut": True}}, True),
        ({"complete": True}, False),
        ({"cut": False}, False),
        ({}, False),
    ],
)
def test_a_session_cut_in_the_middle_is_kept_and_counted(tmp_path, fields, cut):
    loaded = open_sessions(written(tmp_path, session("s1", {"query": "a"}, **fields)))
    assert is_cut(loaded.sessions[0]) is cut
    assert loaded.counts.get("cut_sessions", 0) == cut


def test_every_look_up_that_is_left_out_has_a_reason(tmp_path):
    path = written(
        tmp_path,
        session("s1", {"query": "a"}, {"query": "  "}, {"query": None}, {"query": 7}, "x"),
        session("s1", {"query": "a"}, {"query": "  "}, {"query": None}, {"query": 7}, "x"),
        session(None, {"query": "a"}, {"query": "b"}),
        session("", {"query": "a"}),
        session("s2", {"query": ""}, {"query": ""}),
        session("s3"),
        {"session_id": "s4", "turns": 3},
        session(4.5, {"query": "a"}),
        "",
        "not json",
    )
    loaded = open_sessions(path, form="sessions")
    assert [s.session_id for s in loaded.sessions] == ["s1"]
    assert loaded.left_out == {
        "empty_query": 4,
        "malformed": 6,  # 7, "x", s3, s4, 4.5 and the last line
        "duplicate": 5,
        "no_session": 3,
    }
    assert [fault.line for fault in loaded.faults] == [1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 10]


def test_a_query_of_a_megabyte_is_kept_and_named(tmp_path):
    long = "词" * 1_000_000
    loaded = open_sessions(written(tmp_path, session("s1", {"query": long})))
    assert loaded.sessions[0].turns[0].query == long
    assert [str(fault).rpartition(":1: ")[2] for fault in loaded.faults] == [
        "query of 1,000,000 characters; it is kept"
    ]


# the door


def test_the_door_and_the_loader_give_the_same_sessions(tmp_path):
    path = written(tmp_path, session("s1", {"query": "a"}), session("s2", {"query": "b"}))
    loaded = open_sessions(tmp_path)
    assert loaded == LoadedSessions(loaded.sessions, source=str(path))
    assert load_sessions(path) == (loaded.sessions, loaded.faults)
    assert (len(loaded), loaded.turn_count, loaded.recorded_memory) == (2, 2, "unknown")


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.jsonl", '{"session_id": "s", "turns": []}', "sessions"),
        ("a.jsonl", '\n\nbroken\n{"session_id": "s", "turns": []}', "sessions"),
        ("a.jsonl", '\ufeff{"session_id": "s", "query": "q"}', "rows"),
        ("a.csv", "session_id,query\n", "rows"),
        ("a.tsv", "session_id\tquery\n", "rows"),
        ("a.jsonl", '{"attributes": {}, "name": "x"}', "spans"),
        ("a.jsonl", '{"attributes.session.id": "s"}', "spans"),
        ("a.json", '{"resourceSpans": []}', "spans"),
        ("a.json", '{\n "resourceSpans": []\n}', "spans"),
        ("a.db", "SQLite format 3\0", "database"),
        ("a.jsonl", "", "sessions"),
        ("a.jsonl", "broken", "sessions"),
    ],
)
def test_the_content_tells_the_form(tmp_path, name, text, form):
    assert form_of(written(tmp_path, text, name=name)) == form


def test_a_url_is_a_database_and_a_folder_is_what_it_holds(tmp_path):
    assert form_of("postgresql://user@host/name") == "database"
    with pytest.raises(DatasetError, match=r"holds none of sessions\.jsonl, tool_invocation\.json"):
        form_of(tmp_path)
    written(tmp_path, "session_id,query", name="tool_invocation.csv")
    assert form_of(tmp_path) == "rows"
    written(tmp_path, session("s1", {"query": "a"}))
    assert form_of(tmp_path) == "sessions"


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ([], {}, r"^0 sessions in .*s\.jsonl: it is empty$"),
        (["{"], {"form": "sessions"}, r"0 sessions in .*: 1 malformed; .*s\.jsonl:1: not valid"),
        ([session("", {"query": "a"})], {}, "1 no_session; .*the session has no session_id"),
        ([session("s", {"query": "a"})], {"form": "tapes"}, "form 'tapes' is none of sessions, da"),
        (["[1, 2]"], {"form": "sessions"}, "this is a JSON array; one object per line"),
    ],
)
def test_a_source_without_a_session_is_refused_in_one_line(tmp_path, lines, options, message):
    with pytest.raises(DatasetError, match=message) as caught:
        open_sessions(written(tmp_path, *lines, name="s.jsonl"), **options)
    assert "\n" not in str(caught.value)


def test_a_file_that_tells_nothing_or_is_not_there_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="the content does not tell its form; name one of sess"):
        open_sessions(written(tmp_path, "hello", name="a.txt"))
    with pytest.raises(DatasetError, match="no such file"):
        open_sessions(tmp_path / "nowhere.jsonl")


# documents and labels


def test_unknown_documents_are_named_counted_and_kept(tmp_path):
    turns = [
        {"query": "a", "returned": ["./docs//a.md", "gone.md", "../out.md"], "relevant": ["b.md"]},
        {"query": "b", "returned": ["docs/a.md", "gone.md"], "needs": [["b.md"], ["c.md"]]},
    ]
    path = written(tmp_path, session("s1", *turns, relevant=["d.md"]))
    loaded = open_sessions(path, documents=["docs/a.md", "b.md"])
    assert [turn.returned for turn in loaded.sessions[0].turns] == [
        ("docs/a.md", "gone.md", "../out.md"),
        ("docs/a.md", "gone.md"),
    ]
    assert loaded.unknown_documents == ("d.md", "gone.md", "../out.md", "c.md")
    assert loaded.counts == {"respelled_documents": 1, "unknown_documents": 4}
    assert problems(loaded) == [
        "4 documents are not in the corpus: document 'd.md', document 'gone.md', "
        "document '../out.md', document 'c.md'"
    ]


def test_a_turn_whose_answers_are_all_missing_from_the_corpus_stays_without_labels(tmp_path):
    turns = [
        {"query": "a", "relevant": ["gone.md"]},
        {"query": "b", "needs": [["gone.md"], ["too.md"]]},
        {"query": "c", "relevant": ["gone.md", "b.md"]},
        {"query": "d", "relevant": [], "answerable": False},
    ]
    loaded = open_sessions(written(tmp_path, session("s1", *turns)), documents=["b.md"])
    told = [(turn.relevant, turn.answerable, turn.needs) for turn in loaded.sessions[0].turns]
    assert told[:2] == [(None, None, ())] * 2
    assert told[2][0] == ("gone.md", "b.md")
    assert told[3][:2] == ((), False)
    assert loaded.counts == {"gold_not_in_corpus": 2, "unknown_documents": 2}
    assert problems(loaded)[0] == (
        "2 look-ups are labelled with documents of which the corpus has none"
    )


def test_labels_are_joined_by_folded_text_and_counted(tmp_path):
    queries = (
        Query("q1", "How do I  restore?", grades={"b": 1, "a": 2, "c": 2}, needs=(("a",), ("c",))),
        Query("q2", "weather", answerable=False),
        Query("q3", "scale", grades={"a": 2}),
        Query("q4", "SCALE", grades={"b": 2}),
        Query("q5", "unlabelled", answerable=None),
    )
    texts = ["how do i restore?", "Weather", "scale", "unlabelled", "never asked"]
    turns = [{"query": text} for text in texts]
    turns.append({"query": "weather", "relevant": ["own"]})
    path = written(tmp_path, session("s1", *turns))
    loaded = open_sessions(path, labels=LabelledSet("set", "", queries, answers_from=2))
    first, second, *rest = loaded.sessions[0].turns
    assert first == Turn(
        "how do i restore?",
        "q1",
        ("a", "c"),
        True,
        {"grades": {"b": 1, "a": 2, "c": 2}},
        needs=(("a",), ("c",)),
    )
    assert second == Turn("Weather", "q2", (), False, {"grades": {}})
    assert rest == [Turn(text) for text in texts[2:]] + [Turn("weather", relevant=("own",))]
    assert loaded.counts == {"labelled_turns": 2, "ambiguous_labels": 1}


# queries that must not be kept in clear


def test_a_name_is_the_same_for_equal_texts_and_hangs_on_the_salt():
    names, other = QueryNames.hashing(), QueryNames.hashing()
    assert names.shown("how") == names.shown("how") != names.shown("why")
    assert names.shown("how") != other.shown("how")
    assert QueryNames.hashing("x").shown("how") == QueryNames.hashing("x").shown("how")
    assert QueryNames.hashing("x").shown("how") != QueryNames.hashing("").shown("how")
    assert len(names.shown("how")) == len("sha256:") + 16
    assert names.shown("\ud800") != names.shown("\ud801")
    assert "salt" not in repr(QueryNames.hashing("secret"))


SECRET = "my salary is 4711"


def test_hidden_sessions_hold_no_query_and_keep_their_labels():
    turn = Turn(
        SECRET,
        "q1",
        ("a",),
        True,
        {"kind": "repeat", "note": SECRET, "retrieval_details": {"q": SECRET}, "row": 3},
        returned=("a",),
    )
    sessions = (Session("s1", (turn,), metadata={"task": SECRET, "split": "dev", "cut": True}),)
    names = QueryNames.hashing()
    (safe,) = hidden(sessions, names)
    assert "salary" not in repr(safe)
    assert safe == Session(
        "s1",
        (
            Turn(
                names.shown(SECRET),
                "q1",
                ("a",),
                True,
                {"kind": "repeat", "row": 3},
                returned=("a",),
            ),
        ),
        metadata={"split": "dev", "cut": True},
    )
    assert hidden(sessions, QueryNames()) == sessions


@pytest.mark.parametrize(
    ("told", "safe"),
    [
        ("the query is 'my salary'", "the query is '…'"),
        ("""found "it's mine", not 'x'""", "found '…', not '…'"),
        (r"found 'it\'s \"mine\"' here", "found '…' here"),
        ("cut 'in the middle...", "cut '…'"),
        (
            "the query is the number 4711.5; a text is expected",
            "the query is a number; a text is expected",
        ),
        ("session 's1', turn 2: 'a' is no turn", "session 's1', turn 2: '…' is no turn"),
        ("1 documents: document 'a.md'", "1 documents: document 'a.md'"),
        ("nothing is quoted", "nothing is quoted"),
    ],
)
def test_a_message_keeps_nothing_quoted_but_sessions_and_documents(told, safe):
    assert hidden_text(told) == safe


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([session("s1", {"query": "a"}, SECRET)], id="a turn that is a text"),
        pytest.param([session("s1", {"query": "a"}), json.dumps(SECRET)], id="a line that is one"),
        pytest.param([session("s1", {"query": "a"}), f"{SECRET} {{"], id="a line that is none"),
        pytest.param([session("s1", {"query": "a", "asked_at": SECRET})], id="as a time"),
        pytest.param([session("s1", {"query": "a"}, {"query": "b", "needs": SECRET})], id="needs"),
        pytest.param([session("s1", {"query": "a"}, {"query": "b", SECRET: 1})], id="as a key"),
        pytest.param([f'{{"{SECRET}": 1, "{SECRET}": 1}}'], id="no session at all"),
    ],
)
def test_no_fault_holds_a_query_when_queries_are_hashed(tmp_path, lines):
    path = written(tmp_path, *lines)
    try:
        loaded = open_sessions(path, form="sessions", hash_queries=True)
    except DatasetError as error:
        assert "salary" not in str(error)
        return
    told = " ".join(map(str, loaded.faults))
    assert "salary" not in told
    assert "salary" not in repr(hidden(loaded.sessions, loaded.names))
    assert loaded.names.hashed


# the real sets


@pytest.mark.data
@real_sets
@pytest.mark.parametrize(
    ("name", "sessions", "turns"),
    [("crosswoz_zh", 995, 7028), ("mtrag", 20, 159), ("tau_banking_kb", 80, 974)],
)
def test_the_real_sessions_open_whole_and_name_known_documents(name, sessions, turns):
    lines = (SETS / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line)["_id"] for line in lines]
    loaded = open_sessions(SETS / name, documents=documents)
    assert (len(loaded), loaded.turn_count) == (sessions, turns)
    assert (loaded.faults, loaded.left_out, loaded.counts) == ((), {}, {})


def test_the_handbooks_sessions_open_whole():
    loaded = open_sessions(HANDBOOK)
    assert (len(loaded), loaded.turn_count) == (84, 647)
    assert (loaded.faults, loaded.left_out, loaded.counts) == ((), {}, {})
