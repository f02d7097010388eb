"""Documents, domains, reports and export; how a database is opened (REQ-02, REQ-03, FS-6)."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from kbeval.errors import DatabaseError
from kbeval.records import Invocation
from kbeval.store.database import file_of, name_of, open_database, reading, writing
from kbeval.store.documents import (
    StoredDocument,
    delete_document,
    get_document,
    list_documents,
    upsert_document,
)
from kbeval.store.domains import (
    StoredDomain,
    get_domain,
    list_domains,
    recount_domain,
    upsert_domain,
)
from kbeval.store.export import export
from kbeval.store.invocations import save_invocations
from kbeval.store.migrations import upgrade
from kbeval.store.reports import (
    RepeatedDocument,
    dedup_reasons,
    grade_distribution,
    top_repeated_documents,
)

pytest_plugins = ["postgres"]

GROUPS = (  # FS-6, verbatim
    "SELECT relevance_level, COUNT(*) FROM tool_invocation "
    "WHERE tool_name='lookup_knowledge' GROUP BY relevance_level"
)


def add(bind, path, *, category="api", title="Title", content_hash="h", **metadata):
    upsert_document(
        bind, path, title=title, category=category, metadata=metadata, content_hash=content_hash
    )


# documents ------------------------------------------------------------------------------------


def test_req02_a_documents_row_comes_back_as_it_was_written(database):
    before = datetime.now(UTC)
    add(database, "a.md", title="限流", covers=["每租户"], whenToRetrieve="限流时")
    found = get_document(database, "a.md")
    assert before <= found.created_at == found.updated_at <= datetime.now(UTC)
    assert found == StoredDocument(
        file_path="a.md",
        title="限流",
        category="api",
        metadata={"covers": ["每租户"], "whenToRetrieve": "限流时"},
        content_hash="h",
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def test_a_document_written_again_keeps_its_row_and_its_birth(database):
    add(database, "a.md", covers=["old"])
    first = get_document(database, "a.md")
    add(database, "a.md", title="New", category="ops", content_hash="h2", covers=["new"])
    again = get_document(database, "a.md")
    assert len(list_documents(database)) == 1
    assert (again.title, again.category, again.content_hash) == ("New", "ops", "h2")
    assert again.metadata == {"covers": ["new"]}
    assert again.created_at == first.created_at
    assert again.updated_at >= first.updated_at


def test_documents_are_listed_by_path_all_or_by_category(database):
    for path, category in [("b.md", "api"), ("B.md", "ops"), ("文.md", "api"), ("a.md", "api")]:
        add(database, path, category=category)
    assert [d.file_path for d in list_documents(database)] == ["B.md", "a.md", "b.md", "文.md"]
    api = [d.file_path for d in list_documents(database, category="api")]
    assert api == ["a.md", "b.md", "文.md"]
    assert list_documents(database, category="none") == ()


def test_a_document_is_deleted_once(database):
    add(database, "a.md")
    assert [delete_document(database, "a.md") for _ in range(2)] == [True, False]
    assert get_document(database, "a.md") is None


def test_metadata_that_json_cannot_keep_is_noted(database):
    add(database, "a.md", weight=float("nan"), title="T\0")
    found = get_document(database, "a.md")
    assert found.title == "T\ufffd"
    assert found.metadata == {
        "weight": None,
        "notes": ["weight not finite", "title: 1 character replaced"],
    }


@pytest.mark.parametrize("path", ["", "a\0.md", "a\udcff.md"])
def test_a_path_that_no_database_keeps_is_an_error(database, path):
    with pytest.raises(DatabaseError, match="a key must not be empty or hold NULs"):
        add(database, path)


def test_an_upload_is_all_or_nothing(database):
    with pytest.raises(RuntimeError), writing(database) as connection:
        add(connection, "a.md")
        upsert_domain(connection, "api", when_to_retrieve="text")
        assert recount_domain(connection, "api") == 1
        raise RuntimeError("a later step failed")
    assert list_documents(database) == ()
    assert list_domains(database) == ()


def test_threads_that_write_one_document_leave_one_row(database):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: add(database, "a.md", title=f"T{i}"), range(24)))
    assert len(list_documents(database)) == 1


# domains --------------------------------------------------------------------------------------


def test_req03_a_domain_is_written_by_its_id(database):
    upsert_domain(database, "api", description="接口", when_to_retrieve="查接口", document_count=3)
    found = get_domain(database, "api")
    assert found == StoredDomain("api", "接口", "查接口", 3, found.updated_at)
    assert found.updated_at.tzinfo is UTC


def test_req03_what_is_not_given_keeps_the_last_record_and_is_empty_without_one(database):
    upsert_domain(database, "api")
    fresh = get_domain(database, "api")
    assert (fresh.description, fresh.when_to_retrieve, fresh.document_count) == ("", "", 0)
    upsert_domain(database, "api", when_to_retrieve="first", document_count=2)
    upsert_domain(database, "api", description="later")
    kept = get_domain(database, "api")
    assert (kept.description, kept.when_to_retrieve, kept.document_count) == ("later", "first", 2)
    upsert_domain(database, "api", when_to_retrieve="")
    assert get_domain(database, "api").when_to_retrieve == ""


def test_vs_03_the_count_follows_the_documents(database):
    for name in "abcd":
        add(database, f"{name}.md")
    upsert_domain(database, "api")
    steps = [
        lambda: None,
        lambda: delete_document(database, "b.md"),
        lambda: add(database, "e.md"),
        lambda: delete_document(database, "a.md"),
    ]
    counts = []
    for step in steps:
        step()
        assert recount_domain(database, "api") == get_domain(database, "api").document_count
        counts.append(get_domain(database, "api").document_count)
    assert counts == [4, 3, 4, 3]


def test_a_document_that_moves_counts_in_its_new_domain(database):
    add(database, "a.md", category="api")
    for domain in ("api", "ops"):
        upsert_domain(database, domain)
    add(database, "a.md", category="ops")
    assert [recount_domain(database, domain) for domain in ("api", "ops", "none")] == [0, 1, 0]
    assert {d.domain_id: d.document_count for d in list_domains(database)} == {"api": 0, "ops": 1}


def test_uploads_into_one_domain_at_once_are_all_counted(database):
    def upload(i):
        with writing(database) as connection:
            add(connection, f"{i}.md")
            upsert_domain(connection, "api")
            recount_domain(connection, "api")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(upload, range(24)))
    assert get_domain(database, "api").document_count == 24


# reports --------------------------------------------------------------------------------------


def look_ups():
    """Session, level, reason, handed out, withheld."""
    table = [
        ("s1", "PRECISE", None, ["a.md", "b.md"], []),
        ("s1", None, "ALL_RETRIEVED", [], ["a.md", "b.md"]),
        ("s1", "REFERENCE", "PARTIAL", ["c.md"], ["a.md"]),
        ("s2", "PRECISE", None, ["a.md"], []),
        ("s2", None, "ALL_RETRIEVED", [], ["a.md"]),
        (None, "NOT_FOUND", None, [], []),
    ]
    for session, level, reason, handed, withheld in table:
        yield Invocation(
            tool_name="lookup_knowledge",
            session_id=session,
            query="q",
            started_at="2024-01-01T00:00:00Z",
            duration_ms=1.0,
            relevance_level=level,
            dedup_reason=reason,
            retrieval_details={
                "handed_out": [{"file_path": path} for path in handed],
                "withheld": withheld,
            },
        )


@pytest.fixture
def recorded(database):
    save_invocations(database, look_ups())
    with writing(database) as connection:
        connection.exec_driver_sql(
            "INSERT INTO tool_invocation (tool_name, created_at) VALUES "
            "('other_tool', '2024-01-01T00:00:00Z'), ('lookup_knowledge', '2024-01-01T00:00:00Z')"
        )
    return database


def test_fs6_the_specs_query_and_the_report_say_the_same(recorded):
    with reading(recorded) as connection:
        found = {level: count for level, count in connection.exec_driver_sql(GROUPS)}
    assert found == {None: 3, "PRECISE": 2, "REFERENCE": 1, "NOT_FOUND": 1}
    report = grade_distribution(recorded)
    assert report == found
    assert list(report) == [None, "PRECISE", "NOT_FOUND", "REFERENCE"]
    assert grade_distribution(recorded, tool_name="other_tool") == {None: 1}


def test_dedup_reasons_are_counted(recorded):
    assert dedup_reasons(recorded) == {None: 4, "ALL_RETRIEVED": 2, "PARTIAL": 1}


def test_the_documents_kept_back_most_often_come_first(recorded):
    assert top_repeated_documents(recorded) == (
        RepeatedDocument("a.md", withheld_count=3, handed_count=2, session_count=2),
        RepeatedDocument("b.md", withheld_count=1, handed_count=1, session_count=1),
    )
    assert [d.file_path for d in top_repeated_documents(recorded, limit=1)] == ["a.md"]


# export ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_export_writes_every_row_and_column_of_the_three_tables(recorded, tmp_path, form):
    add(recorded, "文.md", covers=["限流"])
    upsert_domain(recorded, "api", when_to_retrieve="多行\n文本")
    counts = export(recorded, tmp_path / "out", form=form)
    assert counts == {"api_document": 1, "knowledge_domain": 1, "tool_invocation": 8}
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"{table}.{form}" for table in sorted(counts)]
    rows = {table: read(tmp_path / "out" / f"{table}.{form}") for table in counts}
    assert {table: len(found) for table, found in rows.items()} == counts
    assert rows["knowledge_domain"][0]["when_to_retrieve"] == "多行\n文本"
    assert plain_json(rows["api_document"][0]["metadata"]) == {"covers": ["限流"]}
    first = rows["tool_invocation"][0]
    assert plain_json(first["retrieval_details"])["handed_out"][0] == {"file_path": "a.md"}
    assert first["started_at"] == "2024-01-01T00:00:00.000000Z"
    assert first["relevance_level"] == "PRECISE"
    assert rows["tool_invocation"][-1]["relevance_level"] in (None, "")
    assert next(iter(first)) == "id"


def read(file):
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def plain_json(value):
    return json.loads(value) if isinstance(value, str) else value


def test_an_export_that_fails_leaves_no_file_and_says_what_to_do(engine, tmp_path):
    with pytest.raises(DatabaseError, match="kbeval db upgrade"):
        export(engine, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_export_in_an_unknown_form_is_an_error(database, tmp_path):
    with pytest.raises(DatabaseError) as error:
        export(database, tmp_path, form="xml")
    assert str(error.value) == "export: form 'xml' is none of jsonl, csv"


def test_an_export_into_a_file_is_an_error(database, tmp_path):
    (tmp_path / "out").write_text("here already", encoding="utf-8")
    with pytest.raises(DatabaseError, match="File exists"):
        export(database, tmp_path / "out")


# opening --------------------------------------------------------------------------------------


def test_sqlite_runs_with_a_write_ahead_log_foreign_keys_and_full_durability(tmp_path):
    engine = open_database(tmp_path / "k.db")
    upgrade(engine)
    pragmas = "journal_mode", "foreign_keys", "synchronous", "busy_timeout"
    with reading(engine) as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]
    assert found == ["wal", 1, 2, 5000]


def test_a_path_a_text_and_a_url_name_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "k %20?.db"
    names = [file, str(file), "k %20?.db"]
    assert {file_of(open_database(name)) for name in names} == {file}
    assert file_of(open_database(f"sqlite:///{tmp_path}/u.db")) == tmp_path / "u.db"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        pytest.param("{folder}", "is a folder, a database is a file", id="a folder"),
        pytest.param("{folder}/no/k.db", "the folder {folder}/no does not exist", id="no folder"),
        pytest.param("{folder}/k.db", "no such database; `kbeval db upgrade`", id="no file"),
        pytest.param("nonsense://x/y", "nonsense", id="a dialect nobody knows"),
        pytest.param("://", "the URL cannot be read; allowed are", id="no URL"),
        pytest.param("postgresql://h:port/x", "the URL cannot be read", id="a port that is none"),
    ],
)
def test_what_cannot_be_opened_is_one_line(tmp_path, url, says):
    with pytest.raises(DatabaseError) as error:
        open_database(url.format(folder=tmp_path), must_exist=True)
    assert says.format(folder=tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_database_is_one_line(tmp_path):
    file = tmp_path / "k.db"
    file.write_text("just a text, and a long one\n" * 100, encoding="utf-8")
    with pytest.raises(DatabaseError) as error:
        upgrade(open_database(file))
    assert str(error.value) == f"{file}: file is not a database"


def test_readers_see_one_state_and_hold_up_no_writer(database):
    add(database, "a.md")
    with reading(database) as connection:
        assert len(list_documents(connection)) == 1
        add(database, "b.md")
        if database.dialect.name == "sqlite":
            assert len(list_documents(connection)) == 1
    assert len(list_documents(database)) == 2


def test_a_database_is_named_without_its_password():
    engine = open_database("postgres://me:secret@host/name")
    assert name_of(engine) == "postgresql+psycopg://me:***@host/name"
    assert file_of(engine) is None
