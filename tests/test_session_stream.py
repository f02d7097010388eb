"""Written sessions as a stream: one line at a time, faults as they are met, repeats noticed."""

import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.reading.json_lines import JsonLine, iter_json_lines, json_line_at
from kbeval.evaluation.reading.rows import read_json_lines
from kbeval.evaluation.recorded.account import Account
from kbeval.evaluation.sessions import iter_sessions, load_sessions
from kbeval.records import Fault
from kbeval.studies import replaying

HANDBOOK = Path(__file__).resolve().parents[1] / "datasets" / "handbook"
LINES = st.sampled_from(
    [
        b"",
        b" \t",
        b'{"a": 1}',
        b'  {"a": [1, "\xe8\xaf\x8d"]}\r',
        b'{"a": "b\\nc"}',
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b'{"a": ',
        b"[1]",
        b"7",
        b"\x85\xe8"[1:] + b"\xaf\x8d",
        b'{"a": "\xff"}',
    ]
)


def written(folder, *lines, name="sessions.jsonl"):
    path = folder / name
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def session(session_id, *queries, **fields):
    return {"session_id": session_id, "turns": [{"query": query} for query in queries], **fields}


def ids(sessions):
    return [one.session_id for one in sessions]


# lines


@given(st.lists(LINES, max_size=6), st.sampled_from([b"", b"\xef\xbb\xbf"]), st.booleans())
def test_lines_one_by_one_are_those_of_the_whole_file(tmp_path_factory, lines, mark, ended):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    raw = b"\n".join(lines) + (b"\n" if ended else b"")
    path.write_bytes(mark + raw)
    try:
        whole = read_json_lines(path, {})
    except DatasetError as error:
        whole = str(error)
    try:
        found = list(iter_json_lines(path))
    except DatasetError as error:
        if "JSON array" in str(error):  # met before a later line is found not to be UTF-8
            assert "JSON array" in str(whole) or "UTF-8" in str(whole)
        elif not mark:  # else the whole file's error names a byte three before it
            assert str(error) == whole
        return
    rows = [one for one in found if isinstance(one, JsonLine)]
    assert [(row.line, row.fields) for row in rows] == [(r.line, r.fields) for r in whole.rows]
    assert tuple(one for one in found if isinstance(one, Fault)) == whole.faults
    assert [json_line_at(path, row.offset) for row in rows] == [row.fields for row in rows]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"\xef\xbb\xbf{}\n\n {\xff", r":3: byte 0xff at offset 9 is not UTF-8; save the file"),
        (b"\xff\xfe{\x00", "the file is UTF-16; save it as UTF-8"),
        (b"\n\n  [\n1]", "this is a JSON array; one object per line is expected"),
    ],
)
def test_a_file_that_is_no_json_lines_is_named(tmp_path, raw, problem):
    (tmp_path / "a.jsonl").write_bytes(raw)
    with pytest.raises(DatasetError, match=problem):
        list(iter_json_lines(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(("name", "problem"), [("b.jsonl", "no such file"), (".", "Is a direc")])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, problem):
    with pytest.raises(DatasetError, match=problem):
        next(iter_json_lines(tmp_path / name))


def test_a_line_that_changed_under_the_reader_is_named(tmp_path):
    path = written(tmp_path, "{}", "{}")
    with pytest.raises(DatasetError, match="changed while it was read"):
        json_line_at(path, 1)


# sessions


def test_faults_and_counts_come_as_they_are_met(tmp_path):
    path = written(tmp_path, session("s1", "a", " "), "{", session("s2", "b"), session("s1", "a"))
    account = Account(str(path))
    stream = iter_sessions(path, account)
    assert next(stream).session_id == "s1"
    assert dict(account.left_out) == {"empty_query": 1}
    assert next(stream).session_id == "s2"
    assert dict(account.left_out) == {"empty_query": 1, "malformed": 1}
    with pytest.raises(DatasetError, match="jsonl:4: session 's1' is another one than in line 1"):
        next(stream)


def test_a_session_that_stands_there_again_is_counted_once(tmp_path):
    first = session("词", "a", "b", split="test")
    again = {"split": "test", "turns": first["turns"], "id": "词"}  # other order, other name
    path = written(tmp_path, session("s0", "x"), "", first, again, "", first)
    account = Account(str(path))
    assert ids(iter_sessions(path, account)) == ["s0", "词"]
    assert dict(account.left_out) == {"duplicate": 4}
    assert [(fault.line, fault.problem) for fault in account.faults()] == [
        (4, "session '词' repeats line 3"),
        (6, "session '词' repeats line 3"),
    ]


def test_an_id_whose_session_was_left_out_is_still_free(tmp_path):
    path = written(tmp_path, session("s"), session("s", "a"))
    account = Account(str(path))
    assert ids(iter_sessions(path, account)) == ["s"]
    assert dict(account.left_out) == {"malformed": 1}


def test_the_stream_gives_what_loading_gives():
    account = Account(str(HANDBOOK / "sessions.jsonl"))
    sessions, faults = load_sessions(HANDBOOK)
    assert tuple(iter_sessions(HANDBOOK / "sessions.jsonl", account)) == sessions
    assert account.faults() == faults


def test_what_is_kept_of_a_session_does_not_grow_with_it(tmp_path):
    path = written(tmp_path, *(session(f"s{n}", f"{n} " * 2000) for n in range(1000)))
    tracemalloc.start()
    try:
        count = sum(1 for _ in iter_sessions(path, Account(str(path))))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 1000
    assert peak < path.stat().st_size / 10


def test_queries_of_a_log_are_embedded_some_at_a_time_and_once(monkeypatch):
    asked = []
    knowledge = SimpleNamespace(
        documents=("a document",), embed_queries=lambda queries, **_: asked.append(queries)
    )
    sessions = [Session("s1", tuple(map(Turn, "abca"))), Session("s2", tuple(map(Turn, "b de")))]
    monkeypatch.setattr(replaying, "AT_ONCE", 2)
    loaded = SimpleNamespace(sessions=sessions)
    replaying._embed_ahead(SimpleNamespace(loaded=loaded, knowledge=knowledge), None)
    assert asked == [["a", "b"], ["c", "d"], ["e"]]
