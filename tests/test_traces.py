"""Recorded look-ups become sessions: from databases, exported tables and retriever spans."""

import csv
import json
import sqlite3
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import document, settings, tool

from kbeval.config import load_settings
from kbeval.errors import DatabaseError, DatasetError
from kbeval.evaluation.queries import Turn
from kbeval.evaluation.reading.values import RowProblem
from kbeval.evaluation.recorded.account import Account
from kbeval.evaluation.recorded.flat import flat
from kbeval.evaluation.recorded.instants import instant_of
from kbeval.evaluation.recorded.loaded import is_cut
from kbeval.evaluation.recorded.opening import open_sessions
from kbeval.evaluation.recorded.rows import look_up_of
from kbeval.evaluation.recorded.turns import sessions_of
from kbeval.records import Invocation
from kbeval.retrieval.session import session_scope
from kbeval.store.database import open_database
from kbeval.store.export import export
from kbeval.store.invocations import save_invocations
from kbeval.store.migrations import upgrade

pytest_plugins = ["postgres"]

COLUMNS = ("session_id", "started_at", "query", "returned")


def minute(number):
    return f"2024-01-01T05:{number:02}:00+00:00"


def row(session_id="s1", query="how", started_at=None, returned='["a.md"]', **more):
    started_at = minute(0) if started_at is None else started_at
    return {
        "session_id": session_id,
        "started_at": started_at,
        "query": query,
        "returned": returned,
    } | more


def as_csv(folder, *rows):
    path = folder / "trace.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(k for r in rows for k in r)))
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_json_lines(folder, *rows):
    path = folder / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def as_sqlite(folder, *rows):
    """A table of another producer: the specs' columns, what was returned in the details."""
    path = folder / "trace.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE tool_invocation (session_id, started_at, query, retrieval_details)"
        )
        for one in rows:
            handed = [{"file_path": path} for path in json.loads(one["returned"])]
            values = [one["session_id"], one["started_at"], one["query"]]
            values.append(json.dumps({"handed_out": handed}))
            connection.execute("INSERT INTO tool_invocation VALUES (?, ?, ?, ?)", values)
    connection.close()
    return path


def as_spans(folder, *rows):
    path = folder / "spans.jsonl"
    spans = [
        span(r["session_id"], r["query"], json.loads(r["returned"]), r["started_at"]) for r in rows
    ]
    path.write_text("\n".join(map(json.dumps, spans)), encoding="utf-8")
    return path


def span(session_id, query, ids, start, kind="RETRIEVER"):
    """A span as OpenInference flattens it."""
    attributes = {"openinference.span.kind": kind, "input.value": query}
    if session_id is not None:
        attributes["session.id"] = session_id
    for place, path in enumerate(ids):
        attributes[f"retrieval.documents.{place}.document.id"] = path
        attributes[f"retrieval.documents.{place}.document.content"] = f"text of {path}"
    return {"name": "retrieve", "start_time": start, "attributes": attributes}


FORMS = [as_csv, as_json_lines, as_sqlite, as_spans]


def problems(loaded):
    return [fault.problem for fault in loaded.faults]


def queries(loaded):
    return {s.session_id: [turn.query for turn in s.turns] for s in loaded.sessions}


# every form alike


@pytest.mark.parametrize("form", FORMS)
def test_a_trace_becomes_sessions_in_the_order_of_time(tmp_path, form):
    rows = [
        row("s2", "b1", minute(3)),
        row("s1", "a2", minute(2), '["b.md", "a.md"]'),
        row("s1", "a1", minute(1)),
        row("s2", "b2", "2024-01-01T13:05:00+08:00", "[]"),
    ]
    loaded = open_sessions(form(tmp_path, *rows))
    assert queries(loaded) == {"s2": ["b1", "b2"], "s1": ["a1", "a2"]}
    last = loaded.sessions[1].turns[1]
    assert (last.returned, last.asked_at) == (
        ("b.md", "a.md"),
        datetime(2024, 1, 1, 5, 2, tzinfo=UTC),
    )
    assert loaded.sessions[0].turns[1].returned == ()
    assert loaded.sessions[0].turns[1].asked_at == datetime(2024, 1, 1, 5, 5, tzinfo=UTC)
    assert (loaded.left_out, loaded.counts) == ({}, {"out_of_order": 1, "other_zone": 1})


BAD = [
    pytest.param(row(session_id=None), {"no_session": 1}, {}, id="a null session"),
    pytest.param(row(session_id=" "), {"no_session": 1}, {}, id="a blank session"),
    pytest.param(row(query=""), {"empty_query": 1}, {"cut_sessions": 1}, id="an empty query"),
    pytest.param(row(query=" \n"), {"empty_query": 1}, {"cut_sessions": 1}, id="a blank query"),
    pytest.param(row("s1", "first", minute(1)), {"duplicate": 1}, {}, id="a row written twice"),
    pytest.param(row(started_at=minute(0)), {}, {"out_of_order": 1}, id="out of order"),
    pytest.param(row(started_at="2024-01-01T05:09:00"), {}, {"naive_time": 1}, id="no zone"),
    pytest.param(
        row(started_at="2024-01-01T13:09:00+08:00"), {}, {"other_zone": 1}, id="other zone"
    ),
    pytest.param(row(started_at=""), {}, {"untimed": 1}, id="no time"),
    pytest.param(
        row(started_at="soon"), {}, {"unreadable_time": 1, "untimed": 1}, id="a time that is none"
    ),
    pytest.param(
        row(started_at=minute(9), query="x" * 1_000_000), {}, {"long_query": 1}, id="a megabyte"
    ),
    pytest.param(
        row(started_at=minute(9), returned='["x.md"]'), {}, {"unknown_documents": 1}, id="unknown"
    ),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("bad", "left_out", "counts"), BAD)
def test_every_bad_row_is_counted_with_a_reason_and_said_in_one_line(
    tmp_path, form, bad, left_out, counts
):
    good = [row("s1", "first", minute(1)), row("s1", "second", minute(2))]
    loaded = open_sessions(form(tmp_path, *good, bad), documents={"a.md"})
    assert (loaded.left_out, loaded.counts) == (left_out, counts)
    assert loaded.turn_count == 2 + (not left_out)
    assert len(loaded.faults) == max(1, len(set(counts) - {"cut_sessions"}))
    assert all("\n" not in str(fault) and len(str(fault)) < 300 for fault in loaded.faults)
    assert is_cut(loaded.sessions[0]) is ("empty_query" in left_out)


@pytest.mark.parametrize("form", FORMS)
def test_a_trace_of_which_nothing_can_be_used_says_why(tmp_path, form):
    rows = [row(None), row(""), row(query=" ")]
    with pytest.raises(DatasetError, match=r"0 sessions in .*trace|spans") as caught:
        open_sessions(form(tmp_path, *rows))
    assert "2 no_session, 1 empty_query" in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_no_fault_of_a_trace_holds_a_query_when_queries_are_hashed(tmp_path, form):
    secret = "my salary is 4711"
    rows = [row(query=secret, started_at=minute(1)), row(query="  "), row(None, secret)]
    rows += [row(query=secret * 1000, started_at="soon"), row(query=secret, started_at=secret)]
    loaded = open_sessions(form(tmp_path, *rows), hash_queries="salt")
    assert loaded.turn_count == 3
    assert "salary" not in " ".join(map(str, loaded.faults))


@given(st.permutations(range(6)))
def test_the_order_of_rows_changes_no_session(order):
    def sessions(places):
        account = Account("memory")
        rows = [
            {"session_id": f"s{place % 2}", "query": f"q{place}", "time": minute(place)}
            for place in places
        ]
        found = sessions_of((look_up_of(one, 1, account) for one in rows), account)
        return sorted(found, key=lambda session: session.session_id)

    assert sessions(order) == sessions(range(6))


# databases


def invocation(query, number, *, session_id="s1", tool_name="lookup_knowledge", **details):
    return Invocation(
        tool_name=tool_name,
        session_id=session_id,
        query=query,
        started_at=minute(number),
        duration_ms=1.5,
        relevance_level=details.pop("relevance_level", "REFERENCE"),
        dedup_reason=details.pop("dedup_reason", None),
        retrieval_details=details,
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path / 'trace.db'}"


def filled(url, *look_ups, revision="head"):
    engine = open_database(url)
    upgrade(engine, revision)
    save_invocations(engine, look_ups)
    engine.dispose()
    return url


def handed(*paths, **versions):
    return [{"file_path": path, "content_hash": versions.get(path[0])} for path in paths]


def test_fs6_look_ups_of_a_database_become_sessions(url):
    filled(
        url,
        invocation("second", 2, handed_out=handed("b.md", "a.md")),
        invocation("first", 1, handed_out=handed("a.md"), relevance_level="PRECISE"),
        invocation("lost", 3, session_id=None, handed_out=[]),
        invocation("an order", 4, tool_name="place_order"),
    )
    loaded = open_sessions(url)
    assert (loaded.form, loaded.left_out) == ("database", {"no_session": 1})
    assert loaded.counts == {"out_of_order": 1, "other_tool": 1}
    assert problems(loaded) == [
        "1 look-ups have no session id, the first in row 3",
        "1 look-ups stand after a later one of their session, the first in row 2",
    ]
    (session,) = loaded.sessions
    details = {"handed_out": [{"file_path": "a.md", "content_hash": None}]}
    assert session.turns[0] == Turn(
        "first",
        metadata={
            "relevance_level": "PRECISE",
            "duration_ms": 1.5,
            "retrieval_details": details,
            "row": 2,
        },
        returned=("a.md",),
        asked_at=datetime(2024, 1, 1, 5, 1, tzinfo=UTC),
    )
    assert session.turns[1].returned == ("b.md", "a.md")


def test_the_password_of_a_database_is_not_shown(postgres_url):
    filled(postgres_url, invocation("a", 1))
    with_password = postgres_url.replace("postgres@", "postgres:secret@")
    assert "secret" not in open_sessions(with_password).source


def test_history_from_before_v010_is_read(tmp_path, url):
    engine = open_database(url)
    upgrade(engine, "V009")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO tool_invocation (session_id, tool_name, query, created_at) VALUES "
            "('s1', 'lookup_knowledge', 'old', '2024-01-01T05:30:00+00:00')"
        )
    engine.dispose()
    (session,) = open_sessions(url).sessions
    assert session.turns == (
        Turn("old", metadata={"row": 1}, asked_at=datetime(2024, 1, 1, 5, 30, tzinfo=UTC)),
    )


def test_a_row_without_a_start_began_when_it_was_written(tmp_path):
    rows = [row("s1", "b", "", created_at=minute(2)), row("s1", "a", minute(1), created_at="")]
    loaded = open_sessions(as_csv(tmp_path, *rows))
    assert queries(loaded) == {"s1": ["a", "b"]}


def test_a_table_of_another_producer_serves_with_uuids_and_broken_details(postgres_url):
    engine = open_database(postgres_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE tool_invocation (session_id uuid, query text, time timestamp, "
            "retrieval_details text)"
        )
        connection.exec_driver_sql(
            "INSERT INTO tool_invocation VALUES "
            "('6f1c0f2e-0000-4000-8000-000000000001', 'a', '2024-01-01 05:30:00', '{broken'), "
            "('6f1c0f2e-0000-4000-8000-000000000001', 'b', '2024-01-01 05:31:00', '[1]'), "
            "('6f1c0f2e-0000-4000-8000-000000000001', 'c', null, '{\"handed_out\": [{}]}')"
        )
    engine.dispose()
    loaded = open_sessions(postgres_url)
    assert queries(loaded) == {"6f1c0f2e-0000-4000-8000-000000000001": ["a", "b", "c"]}
    assert {turn.returned for turn in loaded.sessions[0].turns} == {None}
    assert loaded.counts == {
        "unreadable_details": 2,
        "unnamed_documents": 1,
        "untimed": 1,
        "naive_time": 2,
    }
    assert "row 2: retrieval_details are a list; a JSON object is expected" in problems(loaded)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE other (a)", r"x\.db: no such table: tool_invocation$"),
        (
            "CREATE TABLE tool_invocation (session_id, created_at)",
            "has no column query; it has session_id, created_at",
        ),
        (
            "CREATE TABLE tool_invocation (session_id, query)",
            "has no column started_at or asked_at or time or timestamp or created_at; it has ses",
        ),
    ],
)
def test_a_database_without_look_ups_is_refused_in_one_line(tmp_path, statement, message):
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(DatabaseError, match=message) as caught:
        open_sessions(path)
    assert "\n" not in str(caught.value)


def test_a_sqlite_trace_is_not_written_to_and_must_be_there(tmp_path):
    path = as_sqlite(tmp_path, row())
    before = path.read_bytes()
    path.chmod(0o444)
    assert len(open_sessions(path)) == len(open_sessions(f"sqlite:///{path}")) == 1
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["trace.db"]
    with pytest.raises(DatabaseError, match=r"gone\.db: no such database"):
        open_sessions(f"sqlite:///{tmp_path / 'gone.db'}")
    with pytest.raises(DatabaseError, match="the URL cannot be read"):
        open_sessions("postgres//://x")


def test_a_sqlite_file_with_marks_in_its_name_is_read(tmp_path):
    path = as_sqlite(tmp_path, row())
    for name in ("a b.db", "100%.db", "so?.db", "a#1.db", "知识.db"):
        assert len(open_sessions(path.rename(tmp_path / name))) == 1
        path = tmp_path / name


def test_the_tools_own_record_comes_back_as_what_it_handed_out(url, tmp_path):
    vectors = {"a.md": [1, 0], "b.md": [0.9, 0.43588989], "q": [1, 0], "far": [-1, 0]}
    asked = tool(
        [document("a.md"), document("b.md")], vectors, chosen=settings(reference_threshold=0.5)
    )
    with session_scope("s1"):
        done = [asked.lookup_knowledge(query) for query in ("q", "q", "far")]
    filled(url, *(invocation for _, invocation in done))
    loaded = open_sessions(url, documents=asked.knowledge.position)
    assert [turn.returned for turn in loaded.sessions[0].turns] == [("a.md", "b.md"), (), ()]
    assert (loaded.recorded_memory, loaded.faults) == ("documents", ())
    assert not is_cut(loaded.sessions[0])
    engine = open_database(url)
    for form in ("csv", "jsonl"):
        export(engine, tmp_path / form, form=form)
        again = open_sessions(tmp_path / form, documents=asked.knowledge.position)
        assert (again.form, again.faults) == ("rows", ())
        assert [t.returned for t in again.sessions[0].turns] == [("a.md", "b.md"), (), ()]
        assert [t.asked_at for t in again.sessions[0].turns] == [
            t.asked_at for t in loaded.sessions[0].turns
        ]
    engine.dispose()


@pytest.mark.parametrize("memory", ["documents", "none"])
def test_the_tools_own_record_tells_its_memory_after_one_look_up(tmp_path, memory):
    chosen = load_settings({"session": {"memory": memory}})
    asked = tool([document("a.md")], {"a.md": [1, 0], "q": [1, 0]}, chosen=chosen)
    engine = filled(f"sqlite:///{tmp_path / 'x.db'}", asked.lookup_knowledge("q", "s1")[1])
    assert open_sessions(engine).recorded_memory == memory


# what the details tell


def details_row(query, number, **details):
    level = details.pop("relevance_level", None)
    reason = details.pop("dedup_reason", None)
    return {
        "session_id": "s1",
        "query": query,
        "started_at": minute(number),
        "relevance_level": level,
        "dedup_reason": reason,
        "retrieval_details": json.dumps(details),
    }


def test_a_document_whose_hash_changed_is_told_at_its_turn(tmp_path):
    rows = [
        details_row("1", 1, handed_out=handed("a.md", "b.md", a="1", b="1")),
        details_row("2", 2, handed_out=handed("a.md", "b.md", a="1", b="2")),
        details_row("3", 3, handed_out=handed("b.md", "c.md", b="2", c="9")),
        details_row("4", 4, handed_out=handed("b.md", b="1"), content_changed=["b.md", "c.md"]),
        details_row("5", 5, handed_out=[{"file_path": "a.md"}]),
    ]
    loaded = open_sessions(as_csv(tmp_path, *rows))
    assert [turn.changed for turn in loaded.sessions[0].turns] == [
        (),
        ("b.md",),
        (),
        ("b.md", "c.md"),
        (),
    ]
    assert loaded.counts == {"changed_documents": 3}


@pytest.mark.parametrize(
    ("rows", "memory"),
    [
        ([{"dedup_reason": "PARTIAL"}], "documents"),
        ([{}, {"withheld": ["a.md"]}], "documents"),
        ([{}, {"withheld": [], "content_changed": []}], "unknown"),
        ([{"handed_out": handed("a.md"), "retrieved_domains": ["ops"]}], "documents"),
        ([{"handed_out": handed("a.md"), "retrieved_domains": []}], "none"),
        ([{"handed_out": [], "retrieved_domains": []}], "unknown"),
        ([{"handed_out": handed("a.md")}, {"handed_out": handed("a.md")}], "none"),
        ([{"handed_out": handed("a.md", a="1")}, {"handed_out": handed("a.md", a="2")}], "unknown"),
        ([{"handed_out": handed("a.md")}, {"handed_out": handed("b.md")}], "unknown"),
        ([{}], "unknown"),
    ],
)
def test_the_recorded_memory_is_told_where_the_record_tells_it(tmp_path, rows, memory):
    rows = [details_row("q", place, **details) for place, details in enumerate(rows)]
    assert open_sessions(as_csv(tmp_path, *rows)).recorded_memory == memory


@pytest.mark.parametrize(
    ("details", "returned"),
    [
        ({"handed_out": handed("b.md", "a.md")}, ("b.md", "a.md")),
        ({"handed_out": []}, ()),
        ({"relevance_level": "NOT_FOUND"}, ()),
        ({"dedup_reason": "ALL_RETRIEVED"}, ()),
        ({"relevance_level": "PRECISE"}, None),
        ({}, None),
    ],
)
def test_the_specs_own_keys_tell_what_was_returned_only_where_it_was_nothing(
    tmp_path, details, returned
):
    loaded = open_sessions(as_csv(tmp_path, details_row("q", 1, **details)))
    assert loaded.sessions[0].turns[0].returned == returned


@pytest.mark.parametrize(
    ("first", "second", "cut"),
    [
        ({"handed_out": handed("a.md")}, {"handed_out": [], "withheld": ["a.md"]}, False),
        ({"handed_out": handed("a.md")}, {"handed_out": [], "withheld": ["b.md"]}, True),
        ({"handed_out": [], "withheld": ["a.md"]}, {"handed_out": handed("b.md")}, True),
        ({}, {"handed_out": [], "withheld": ["a.md"]}, False),  # what came first is not known
    ],
)
def test_a_session_that_began_before_the_record_is_marked_as_cut(tmp_path, first, second, cut):
    rows = [details_row("1", 1, **first), details_row("2", 2, **second)]
    loaded = open_sessions(as_csv(tmp_path, *rows))
    assert is_cut(loaded.sessions[0]) is cut
    assert loaded.counts.get("cut_sessions", 0) == cut


# tables


@pytest.mark.parametrize(
    ("cell", "returned"),
    [
        ("a.md", ("a.md",)),
        (" a.md | b.md|a.md", ("a.md", "b.md")),
        ('["a|b.md", "c.md"]', ("a|b.md", "c.md")),
        ('[{"file_path": "a.md"}, {"id": 7}]', ("a.md", "7")),
        ("", ()),
        ("[]", ()),
    ],
)
def test_a_cell_of_returned_documents_is_read(tmp_path, cell, returned):
    loaded = open_sessions(as_csv(tmp_path, row(returned=cell)))
    assert loaded.sessions[0].turns[0].returned == returned


@pytest.mark.parametrize("cell", ["[1.5]", "[{}]", '[""', "[null]"])
def test_a_cell_that_names_no_documents_leaves_them_unknown(tmp_path, cell):
    loaded = open_sessions(as_csv(tmp_path, row(returned=cell)))
    assert loaded.sessions[0].turns[0].returned is None
    assert loaded.counts == {"unnamed_documents": 1}
    assert len(loaded.faults) == 1


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("session_id,created_at,query,returned_paths", "s1,2024-01-01T05:00:00Z,how,a.md"),
        ("\ufeffSession_ID;Time;Query;Paths", "s1;2024-01-01 05:00:00+00;how;a.md"),
        ("query\tdocuments\tsession.id\ttimestamp", "how\ta.md\ts1\t1704085200"),
        ("id,session_id,query,started_at,returned", "7,s1,how,1704085200000,a.md"),
    ],
)
def test_header_names_decide(tmp_path, header, line):
    path = tmp_path / "x.csv"
    path.write_text(f"{header}\r\n{line}\r\n", encoding="utf-8")
    loaded = open_sessions(path)
    assert loaded.sessions[0].turns == (
        Turn(
            "how",
            metadata={"row": 2},
            returned=("a.md",),
            asked_at=datetime(2024, 1, 1, 5, tzinfo=UTC),
        ),
    )
    assert loaded.faults == ()


def test_a_table_without_a_needed_column_names_those_it_has(tmp_path):
    path = as_csv(tmp_path, {"session": "s1", "question": "how"})
    with pytest.raises(DatasetError, match="no column query; the columns found are 'session', 'q"):
        open_sessions(path)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (["two", "queries"], "session 's1': query is a list; a text is expected"),
        (1.5, "session 's1': query is the number 1.5; a text is expected"),
    ],
)
def test_a_query_that_is_no_text_leaves_a_gap_in_its_session(tmp_path, query, problem):
    loaded = open_sessions(as_json_lines(tmp_path, row(), row(query=query)))
    assert (loaded.left_out, loaded.counts) == ({"malformed": 1}, {"cut_sessions": 1})
    assert problems(loaded) == [problem]


def test_a_session_id_that_is_no_text_costs_its_row(tmp_path):
    loaded = open_sessions(as_json_lines(tmp_path, row(), row(["s1"]), row(7)))
    assert (loaded.left_out, list(queries(loaded))) == ({"malformed": 1}, ["s1", "7"])


def test_lines_that_cannot_be_read_are_named_and_counted(tmp_path):
    path = tmp_path / "x.csv"
    lines = ["session_id,query,returned", "s1,how,a.md", "s1,too,many,cells", "s1", "", "s1,why,"]
    path.write_text("\n".join(lines), encoding="utf-8")
    loaded = open_sessions(path)
    assert (loaded.left_out, queries(loaded)) == ({"malformed": 2}, {"s1": ["how", "why"]})
    assert [fault.line for fault in loaded.faults] == [None, 3, 4]
    assert problems(loaded)[0] == "2 look-ups have no time, the first in line 2"


def test_reading_a_long_cell_leaves_pythons_own_limit_alone(tmp_path):
    limit = csv.field_size_limit()
    open_sessions(as_csv(tmp_path, row(query="x" * 1_000_000)))
    assert csv.field_size_limit() == limit


# times


@pytest.mark.parametrize(
    "written",
    [
        "2024-01-01T05:30:00Z",
        "2024-01-01 05:30:00+00",
        "2024-01-01T13:30:00.000000+08:00",
        "2024-01-01T05:30:00.000000000Z",
        " 2024-01-01T05:30:00 ",
        1704087000,
        1704087000.0,
        1704087000000,
        "1704087000000000",
        1704087000000000000,
        datetime(2024, 1, 1, 13, 30, tzinfo=timezone(timedelta(hours=8))),
        datetime(2024, 1, 1, 5, 30),
    ],
)
def test_every_way_to_write_a_time_is_one_instant(written):
    assert instant_of(written)[0] == datetime(2024, 1, 1, 5, 30, tzinfo=UTC)


def test_nanoseconds_are_kept_to_the_microsecond():
    assert instant_of("1704087000123456789")[0] == datetime(2024, 1, 1, 5, 30, 0, 123457, UTC)


@pytest.mark.parametrize(
    "written",
    [
        "soon",
        "20240101",
        0,
        -5,
        True,
        [1],
        "2024-13-01",
        "9999-12-31T23:59:59-10:00",
        1e300,
        "9" * 99,
    ],
)
def test_what_is_no_time_is_refused_with_its_value(written):
    with pytest.raises(RowProblem, match=r"the time .* cannot be read; ISO 8601 is expected"):
        instant_of(written)


# spans


OTLP = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "x"}}]},
            "scopeSpans": [
                {
                    "scope": {"name": "openinference"},
                    "spans": [
                        {
                            "traceId": "t1",
                            "spanId": "1",
                            "name": "agent",
                            "startTimeUnixNano": "1704085200000000000",
                            "attributes": [
                                {
                                    "key": "openinference.span.kind",
                                    "value": {"stringValue": "AGENT"},
                                },
                                {"key": "session.id", "value": {"stringValue": "s1"}},
                            ],
                        },
                        {
                            "traceId": "t1",
                            "spanId": "2",
                            "parentSpanId": "1",
                            "name": "retrieve",
                            "startTimeUnixNano": "1704085200000000000",
                            "attributes": [
                                {
                                    "key": "openinference.span.kind",
                                    "value": {"stringValue": "RETRIEVER"},
                                },
                                {"key": "input.value", "value": {"stringValue": "how"}},
                                {
                                    "key": "retrieval.documents.1.document.id",
                                    "value": {"stringValue": "b.md"},
                                },
                                {
                                    "key": "retrieval.documents.0.document.id",
                                    "value": {"stringValue": "a.md"},
                                },
                                {
                                    "key": "retrieval.documents.0.document.score",
                                    "value": {"doubleValue": 0.5},
                                },
                            ],
                        },
                    ],
                }
            ],
        }
    ]
}
NESTED = {
    "name": "retrieve",
    "start_time": "2024-01-01T05:00:00Z",
    "attributes": {
        "openinference": {"span": {"kind": "RETRIEVER"}},
        "session": {"id": "s1"},
        "input": {"value": '{"query": "how", "k": 3}', "mime_type": "application/json"},
        "retrieval": {
            "documents": [
                {"document": {"id": "a.md", "content": "A", "metadata": {"source": "other"}}},
                {"document": {"content": "B", "metadata": {"file_path": "b.md"}}},
            ]
        },
    },
}
DATA_FRAME = {  # a row of Phoenix's table of spans
    "context.trace_id": "t1",
    "span_kind": "RETRIEVER",
    "start_time": 1704085200000,
    "attributes.session.id": "s1",
    "attributes.input.value": "how",
    "attributes.retrieval.documents": [
        {"document.id": "a.md", "document.content": "A"},
        {"document.id": None, "document.metadata": '{"source": "b.md"}'},
    ],
}
TEXT = DATA_FRAME | {
    "attributes.retrieval.documents": json.dumps(DATA_FRAME["attributes.retrieval.documents"])
}
ARRAYS = {
    "startTimeUnixNano": 1704085200000000000,
    "attributes": [
        {"key": "openinference.span.kind", "value": {"stringValue": "RETRIEVER"}},
        {"key": "session.id", "value": {"stringValue": "s1"}},
        {"key": "input.value", "value": {"stringValue": "how"}},
        {
            "key": "retrieval.documents",
            "value": {
                "arrayValue": {
                    "values": [
                        {
                            "kvlistValue": {
                                "values": [
                                    {"key": "document.id", "value": {"stringValue": path}},
                                    {"key": "document.rank", "value": {"intValue": "1"}},
                                ]
                            }
                        }
                        for path in ("a.md", "b.md")
                    ]
                }
            },
        },
    ],
}


@pytest.mark.parametrize(
    ("value", "others"),
    [(OTLP, 1), (NESTED, 0), (DATA_FRAME, 0), (TEXT, 0), (ARRAYS, 0)],
    ids=["otlp", "nested", "data frame", "documents as text", "arrays"],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_retriever_span_is_a_look_up_however_it_is_nested(tmp_path, value, others, indent):
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(value, indent=indent), encoding="utf-8")
    loaded = open_sessions(path)
    assert (loaded.form, loaded.faults) == ("spans", ())
    assert loaded.counts == ({"other_spans": others} if others else {})
    (session,) = loaded.sessions
    assert session.turns == (
        Turn(
            "how",
            metadata={"row": 1},
            returned=("a.md", "b.md"),
            asked_at=datetime(2024, 1, 1, 5, tzinfo=UTC),
        ),
    )


def test_a_list_of_spans_is_read_when_the_form_is_named(tmp_path):
    path = tmp_path / "spans.json"
    path.write_text(json.dumps([NESTED, DATA_FRAME | {"start_time": 1704085260000}]))
    assert open_sessions(path, form="spans").turn_count == 2


def test_spans_of_other_kinds_are_counted_and_broken_lines_named(tmp_path):
    path = tmp_path / "spans.jsonl"
    lines = [
        json.dumps(span("s1", "how", ["a.md"], minute(1))),
        json.dumps(span("s1", "say it", [], minute(2), kind="LLM")),
        json.dumps({"attributes": {"http.method": "GET"}}),
        "{broken",
        json.dumps({"message": "no span"}),
        "3",
        json.dumps(span("s1", ["two", "queries"], ["a.md"], minute(3))),
        json.dumps(span("s1", "why", [None], minute(4))),
        json.dumps(span("s1", "nothing there", [], minute(5))),
        json.dumps({"attributes": [{"key": ["no", "text"], "value": {"stringValue": "x"}}]}),
    ]
    path.write_text("\n".join(lines))
    loaded = open_sessions(path)
    assert [(turn.query, turn.returned) for turn in loaded.sessions[0].turns] == [
        ("how", ("a.md",)),
        ("why", None),
        ("nothing there", ()),
    ]
    assert loaded.left_out == {"malformed": 3, "empty_query": 1}
    assert loaded.counts == {"other_spans": 3, "unnamed_documents": 1, "cut_sessions": 1}
    assert [fault.line for fault in loaded.faults] == [4, 5, 6, 7, 8]


def test_where_no_span_names_documents_nobody_recorded_them(tmp_path):
    path = as_spans(tmp_path, row(returned="[]"), row(query="why", returned="[]"))
    assert [turn.returned for turn in open_sessions(path).sessions[0].turns] == [None, None]


def test_flattening_keeps_every_value_and_stops_at_no_depth():
    deep = value = {}
    for _ in range(5000):
        value["a"] = {}
        value = value["a"]
    value["b"] = 1
    assert list(flat(deep).values()) == [1]
    assert flat({"a": [{"b": 1}, 2], "c": {}, "d": {"e": None}}) == {
        "a.0.b": 1,
        "a.1": 2,
        "d.e": None,
    }
