"""One row for each look-up: what is written, what is cleaned, what comes back (FS-6)."""

import dataclasses
import json
import logging
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import at_similarity, document, tool

from kbeval.errors import DatabaseError
from kbeval.records import Invocation, Level
from kbeval.store.database import open_database, reading, writing
from kbeval.store.invocations import (
    StoredInvocation,
    invocation_row,
    read_invocations,
    save_invocation,
    save_invocations,
)
from kbeval.store.migrations import upgrade
from kbeval.store.plain import clean_text, plain

pytest_plugins = ["postgres"]

CASES = Path(__file__).parent / "cases"
STARTED = "2024-01-01T05:30:00+00:00"
DETAILS = {
    "l1_top_similarity": 0.8,
    "relevance_level": "HIGHLY_RELEVANT",
    "completeness_hint": "当前结果已高度相关",
    "retrieved_domains": ["api", "运维"],
    "dedup_reason": "PARTIAL",
    "handed_out": [{"file_path": "a.md", "similarity": 0.8}, {"file_path": "文档.md"}],
}


def invocation(**fields):
    """A look-up with these fields."""
    given = {
        "tool_name": "lookup_knowledge",
        "session_id": "s1",
        "query": "怎么扩容",
        "started_at": STARTED,
        "duration_ms": 1.5,
        "relevance_level": "HIGHLY_RELEVANT",
        "dedup_reason": "PARTIAL",
        "retrieval_details": DETAILS,
        "claim": object(),
    }
    return Invocation(**(given | fields))


def scalars(engine, statement):
    with reading(engine) as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def test_fs6_a_look_up_comes_back_as_it_was_saved(database):
    before = datetime.now(UTC)
    row_id = save_invocation(database, invocation())
    (found,) = read_invocations(database)
    assert before - timedelta(milliseconds=1) <= found.created_at <= datetime.now(UTC)
    assert dataclasses.replace(found, created_at=None) == StoredInvocation(
        id=row_id,
        session_id="s1",
        tool_name="lookup_knowledge",
        query="怎么扩容",
        started_at=datetime(2024, 1, 1, 5, 30, tzinfo=UTC),
        created_at=None,
        duration_ms=1.5,
        relevance_level="HIGHLY_RELEVANT",
        dedup_reason="PARTIAL",
        retrieval_details=DETAILS,
    )
    assert found.returned_paths == ("a.md", "文档.md")


def test_fs6_the_columns_are_written_under_the_specs_names(database):
    save_invocation(database, invocation())
    assert scalars(
        database, "SELECT tool_name, session_id, relevance_level, dedup_reason FROM tool_invocation"
    ) == [("lookup_knowledge", "s1", "HIGHLY_RELEVANT", "PARTIAL")]


def test_fs6_the_tools_own_look_ups_are_kept_whole(database):
    vectors = {"a.md": at_similarity(0.9), "near": [1.0, 0.0], "far": [-1.0, 0.0]}
    knowing = tool([document("a.md", domain="api")], vectors)
    done = [knowing.lookup_knowledge(q, "s1")[1] for q in ("near", "near", "far")]
    save_invocations(database, done)
    found = read_invocations(database)
    assert [(row.relevance_level, row.dedup_reason) for row in found] == [
        ("HIGHLY_RELEVANT", None),
        (None, "ALL_RETRIEVED"),
        ("NOT_FOUND", None),
    ]
    for row, said in zip(found, done, strict=True):
        assert row.retrieval_details == json.loads(json.dumps(said.retrieval_details))
        assert {
            "l1_top_similarity",
            "relevance_level",
            "completeness_hint",
            "retrieved_domains",
            "dedup_reason",
        } <= set(row.retrieval_details)
    assert [row.returned_paths for row in found] == [("a.md",), (), ()]


def test_chinese_is_stored_readable(database):
    save_invocation(database, invocation())
    ((text,),) = scalars(database, "SELECT CAST(retrieval_details AS TEXT) FROM tool_invocation")
    assert "当前结果已高度相关" in text


def values_of_db_03():
    """The case's records with the Python values that its texts name."""
    records = json.loads((CASES / "DB-03" / "details.json").read_text(encoding="utf-8"))
    meant = {
        "NaN (float)": math.nan,
        "Infinity (float)": math.inf,
        "numpy.float32(0.5)": np.float32(0.5),
        "numpy.bool_(True)": np.bool_(True),
        "date 2024-01-02": date(2024, 1, 2),
    }
    return [
        {k: meant.get(v, v) if isinstance(v, str) else v for k, v in record.items()}
        for record in records
    ]


def test_db_03_what_json_cannot_keep_is_null_and_the_record_says_so(database):
    normal, nan, infinity, numpy = values_of_db_03()
    save_invocations(
        database, [invocation(retrieval_details=d) for d in (normal, nan, infinity, numpy)]
    )
    assert [row.retrieval_details for row in read_invocations(database)] == [
        normal,
        {"l1_top_similarity": None, "notes": ["l1_top_similarity not finite"]},
        {"l1_top_similarity": None, "notes": ["l1_top_similarity not finite"]},
        {"l1_top_similarity": 0.5, "found": True, "indexed_on": "2024-01-02"},
    ]
    key = (
        "json_extract(retrieval_details, '$.l1_top_similarity')"
        if database.dialect.name == "sqlite"
        else "CAST(retrieval_details ->> 'l1_top_similarity' AS FLOAT)"
    )
    found = scalars(database, f"SELECT {key} FROM tool_invocation ORDER BY id")
    assert found == [(0.8,), (None,), (None,), (0.5,)]


@pytest.mark.parametrize(
    ("value", "kept", "notes"),
    [
        pytest.param(np.int64(3), 3, [], id="numpy integer"),
        pytest.param(np.float64("nan"), None, ["x not finite"], id="numpy NaN"),
        pytest.param(np.array([1.0, -np.inf]), [1.0, None], ["x[1] not finite"], id="array"),
        pytest.param({"y": [math.nan]}, {"y": [None]}, ["x.y[0] not finite"], id="nested"),
        pytest.param({1: np.int8(2)}, {"1": 2}, [], id="a key that is no text"),
        pytest.param({"b", "a"}, ["a", "b"], [], id="set"),
        pytest.param((1, (2,)), (1, (2,)), [], id="tuples that are plain stay"),
        pytest.param(np.datetime64("2024-01-02"), "2024-01-02", [], id="numpy date"),
        pytest.param(time(1, 2), "01:02:00", [], id="time of day"),
        pytest.param(Level.PRECISE, 3, [], id="enum"),
        pytest.param(PurePosixPath("a/b.md"), "a/b.md", [], id="path"),
        pytest.param(b"a\xff", "a\ufffd", [], id="bytes"),
        pytest.param(
            datetime(2024, 1, 1, 13, 30, tzinfo=timezone(timedelta(hours=8))),
            "2024-01-01T05:30:00.000000Z",
            [],
            id="a time with a zone",
        ),
        pytest.param(
            datetime(2024, 1, 1),
            "2024-01-01T00:00:00.000000Z",
            ["x had no zone, taken as UTC"],
            id="a time without a zone",
        ),
        pytest.param("a\0", "a\ufffd", ["x: 1 character replaced"], id="NUL"),
        pytest.param("\ud800a\udc00", "\ufffda\ufffd", ["x: 2 characters replaced"], id="halves"),
        pytest.param("\ud83d\ude00", "😀", [], id="a pair written as two halves is joined"),
        pytest.param("a\\u0000", "a\\u0000", [], id="a backslash is no NUL"),
        pytest.param(1j, "1j", ["x kept as text, it was of type complex"], id="anything else"),
    ],
)
def test_values_become_what_json_keeps(value, kept, notes):
    assert plain({"x": value}) == ({"x": kept}, notes)


@pytest.mark.parametrize("field", ["query", "session_id", "tool_name"])
def test_nuls_and_lone_surrogates_are_replaced_and_marked(database, field):
    save_invocation(database, invocation(**{field: "问\ud800\0"}))
    (found,) = read_invocations(database)
    assert getattr(found, field) == "问\ufffd\ufffd"
    assert found.retrieval_details["notes"] == [f"{field}: 2 characters replaced"]


def test_notes_of_the_tool_come_before_ours(database):
    save_invocation(
        database,
        invocation(duration_ms=math.nan, retrieval_details={"notes": ["first"]}),
    )
    (found,) = read_invocations(database)
    assert found.duration_ms is None
    assert found.retrieval_details == {"notes": ["first", "duration_ms not finite"]}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(st.characters()), anything, max_size=4))
@settings(max_examples=200, deadline=None)
def test_whatever_comes_in_is_json_that_any_reader_takes_and_plain_stays_plain(details):
    kept, _ = plain(details)
    text = json.dumps(kept, allow_nan=False, ensure_ascii=False)
    assert "\0" not in text
    text.encode()
    assert plain(kept) == (kept, [])


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_clean_text_leaves_clean_text_alone(text):
    notes = []
    assert (clean_text(text, "x", notes), notes) == (text, [])


def case_db_04():
    lines = (CASES / "DB-04" / "times.jsonl").read_text(encoding="utf-8").splitlines()
    *times, expected = map(json.loads, lines)
    return times, expected["expect_order"]


def test_db_04_look_ups_come_back_in_the_order_of_their_instants_with_a_zone(database, caplog):
    times, order = case_db_04()
    save_invocations(database, [invocation(query=t["id"], started_at=t["at"]) for t in times])
    assert "2024-01-01T05:31:00 has no zone, taken as UTC" in caplog.text
    found = read_invocations(database, session_id="s1")
    assert [row.query for row in found] == order
    assert {row.started_at.utcoffset() for row in found} == {timedelta(0)}
    at = {row.query: row for row in found}
    assert at["t1"].started_at == datetime(2024, 1, 1, 5, 30, tzinfo=UTC)
    assert at["t3"].retrieval_details["notes"] == ["started_at had no zone, taken as UTC"]
    assert "notes" not in at["t1"].retrieval_details


def test_db_04_sqlite_keeps_utc_text_whose_order_is_the_order_of_time(tmp_path):
    engine = open_database(tmp_path / "k.db")
    upgrade(engine)
    times, order = case_db_04()
    save_invocations(engine, [invocation(query=t["id"], started_at=t["at"]) for t in times])
    found = scalars(engine, "SELECT query, started_at FROM tool_invocation ORDER BY started_at")
    assert [query for query, _ in found] == order
    assert dict(found)["t1"] == "2024-01-01T05:30:00.000000Z"


def test_history_of_another_program_is_read_with_its_own_times(tmp_path, caplog):
    engine = open_database(tmp_path / "half.db")
    half = (CASES / "DB-02" / "half.sql").read_text(encoding="utf-8")
    with writing(engine) as connection:
        for statement in half.split(";")[:-1]:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(
            "INSERT INTO tool_invocation (tool_name, retrieval_details, created_at) VALUES "
            "('lookup_knowledge', '{\"a\": NaN}', '2024-01-01 05:29:00'), "
            "('lookup_knowledge', 'no json', '2024-01-01T13:32:00+08:00')"
        )
    upgrade(engine)
    save_invocation(engine, invocation(query="new"))
    found = read_invocations(engine)
    assert [(row.query, row.started_at.minute, row.retrieval_details) for row in found] == [
        (None, 29, {"a": None}),
        ("scale out", 30, {}),
        ("new", 30, DETAILS),
        ("restore", 31, {}),
        (None, 32, {"unreadable": "no json"}),
    ]
    assert [row.duration_ms for row in found] == [None, None, 1.5, None, None]
    assert "has no zone, taken as UTC" in caplog.text
    assert "text that is no JSON" in caplog.text


@pytest.mark.parametrize("started", ["yesterday", "", None, 5])
def test_a_start_that_is_no_time_is_an_error(started):
    with pytest.raises(DatabaseError) as error:
        invocation_row(invocation(started_at=started))
    assert str(error.value) == (
        f"started_at: {started!r} is no ISO 8601 time, such as 2024-01-01T05:30:00Z"
    )


def test_many_equal_many_single_ones_and_batches_lose_nothing(database):
    many = [invocation(query=f"q{i}", duration_ms=float(i)) for i in range(25)]
    assert save_invocations(database, iter(many), batch=7) == 25
    for one in many:
        save_invocation(database, one)
    found = [dataclasses.replace(row, id=0, created_at=None) for row in read_invocations(database)]
    assert len(found) == 50
    assert found[:25] == found[25:]
    assert save_invocations(database, []) == 0


def test_a_batch_that_fails_keeps_those_before_and_says_how_many(database):
    many = [invocation(query=f"q{i}") for i in range(6)]
    many[4] = invocation(tool_name=None)
    with pytest.raises(DatabaseError, match="; 4 look-ups were saved before"):
        save_invocations(database, many, batch=2)
    assert [row.query for row in read_invocations(database)] == ["q0", "q1", "q2", "q3"]


def test_a_connections_own_transaction_decides_what_is_kept(database):
    with pytest.raises(RuntimeError), writing(database) as connection:
        save_invocation(connection, invocation())
        assert len(read_invocations(connection)) == 1
        raise RuntimeError("the caller failed")
    assert read_invocations(database) == ()


def test_look_ups_are_read_by_session_and_by_tool(database):
    save_invocations(
        database,
        [
            invocation(session_id=session, tool_name=name)
            for session, name in [("a", "x"), ("a", "y"), ("b", "x"), (None, "x")]
        ],
    )
    by = {"session_id": "a"}, {"tool_name": "x"}, {"session_id": "a", "tool_name": "y"}, {}
    assert [len(read_invocations(database, **chosen)) for chosen in by] == [2, 3, 1, 4]


def test_a_database_that_was_never_upgraded_says_what_to_do(engine):
    for use in (lambda: save_invocation(engine, invocation()), lambda: read_invocations(engine)):
        with pytest.raises(DatabaseError) as error:
            use()
        assert str(error.value).endswith("; run `kbeval db upgrade`")
        assert "\n" not in str(error.value)


def test_the_password_is_never_shown(caplog):
    caplog.set_level(logging.DEBUG)
    engine = open_database("postgresql://someone:secret@127.0.0.1:9/none")
    with pytest.raises(DatabaseError) as error:
        read_invocations(engine)
    assert "secret" not in str(error.value) + caplog.text
    assert str(error.value).startswith("postgresql+psycopg://someone:***@127.0.0.1:9/none: ")
