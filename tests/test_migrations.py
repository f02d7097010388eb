"""From V001 to V010 and back: no row is lost, whatever interrupts it (FS-6, DB-02)."""

import json
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from kbeval.errors import DatabaseError
from kbeval.store import schema
from kbeval.store.database import open_database, reading, writing
from kbeval.store.migrations import REVISIONS, current, downgrade, upgrade

pytest_plugins = ["postgres"]

HALF = Path(__file__).parent / "cases" / "DB-02" / "half.sql"
GROUPS = (  # FS-6, verbatim
    "SELECT relevance_level, COUNT(*) FROM tool_invocation "
    "WHERE tool_name='lookup_knowledge' GROUP BY relevance_level"
)
UPGRADE = """
import json, sys
from kbeval.store.database import open_database
from kbeval.store.migrations import upgrade
engine = open_database(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(upgrade(engine)))
"""
KILLED = """
import os, signal, sys
from kbeval.store.database import open_database
from kbeval.store.migrations import steps, upgrade
add = steps.add_column
def add_and_die(table, column):
    add(table, column)
    if column.name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
steps.add_column = add_and_die
upgrade(open_database(sys.argv[1]))
"""


def run_sql(engine, *statements):
    with writing(engine) as connection:
        return [connection.exec_driver_sql(statement) for statement in statements]


def rows(engine, statement):
    with reading(engine) as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def history(engine, count=3):
    """A database at V009 with look-ups, and a user's view on them."""
    upgrade(engine, "V009")
    insert = (
        "INSERT INTO tool_invocation (session_id, tool_name, query, created_at, retrieval_details)"
        " VALUES ('s1', 'lookup_knowledge', 'q{}', '2024-01-01T05:30:00Z', '{{}}')"
    )
    run_sql(
        engine,
        *(insert.format(i) for i in range(count)),
        "CREATE VIEW mine AS SELECT session_id, COUNT(*) AS n FROM tool_invocation "
        "GROUP BY session_id",
    )


def columns(engine, table="tool_invocation"):
    return {c["name"]: c for c in sa.inspect(engine).get_columns(table)}


def half(path):
    raw = sqlite3.connect(path)
    raw.executescript(HALF.read_text(encoding="utf-8"))
    raw.close()
    return open_database(path)


def test_an_empty_database_comes_up_in_ten_steps_and_a_second_run_has_nothing_to_do(engine):
    assert current(engine) is None
    assert upgrade(engine) == REVISIONS
    assert current(engine) == "V010"
    assert upgrade(engine) == ()


def test_the_migrated_tables_are_those_of_the_schema(database):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with reading(database) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []


@pytest.mark.parametrize(
    ("name", "length"),
    [
        pytest.param("relevance_level", 20, id="FS-6: relevance_level VARCHAR(20) nullable"),
        pytest.param("dedup_reason", 32, id="FS-6: dedup_reason VARCHAR(32) nullable"),
    ],
)
def test_the_new_columns_are_what_the_spec_says(database, name, length):
    column = columns(database)[name]
    assert isinstance(column["type"], sa.VARCHAR)
    assert (column["type"].length, column["nullable"]) == (length, True)


def test_v010_keeps_the_history_with_null_and_the_users_view(engine):
    history(engine)
    before = rows(engine, "SELECT id, session_id, query, created_at FROM tool_invocation")
    assert upgrade(engine) == ("V010",)
    assert rows(engine, "SELECT id, session_id, query, created_at FROM tool_invocation") == before
    assert rows(engine, GROUPS) == [(None, 3)]
    assert rows(engine, "SELECT * FROM mine") == [("s1", 3)]


def test_a_program_that_only_knows_v009_still_writes_and_reads(engine):
    history(engine)
    upgrade(engine)
    run_sql(
        engine,
        "INSERT INTO tool_invocation (session_id, tool_name, query, created_at) "
        "VALUES ('s2', 'lookup_knowledge', 'q', '2024-01-02T00:00:00Z')",
    )
    assert rows(engine, "SELECT session_id FROM tool_invocation WHERE session_id = 's2'")
    assert rows(engine, GROUPS) == [(None, 4)]


def test_of_two_processes_one_upgrades_and_the_other_finds_it_done(engine, url):
    history(engine)
    engine.dispose()
    both = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADE, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    said = sorted(process.communicate(timeout=60)[0] for process in both)
    assert [json.loads(line) for line in said] == [["V010"], []]
    assert [process.returncode for process in both] == [0, 0]
    assert rows(engine, GROUPS) == [(None, 3)]


@pytest.mark.parametrize("column", ["relevance_level", "dedup_reason"])
def test_a_kill_between_the_steps_leaves_nothing_half_done(engine, url, column):
    history(engine)
    engine.dispose()
    killed = subprocess.run([sys.executable, "-c", KILLED, url, column], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert current(engine) == "V009"
    assert not {"relevance_level", "dedup_reason"} & set(columns(engine))
    assert upgrade(engine) == ("V010",)
    assert rows(engine, GROUPS) == [(None, 3)]


def test_db_02_a_half_done_migration_of_another_program_is_finished(tmp_path):
    engine = half(tmp_path / "half.db")
    old = "SELECT id, session_id, tool_name, query, created_at FROM tool_invocation"
    before = rows(engine, old)
    assert upgrade(engine)[-1] == "V010"
    assert current(engine) == "V010"
    assert rows(engine, "SELECT version FROM schema_version") == [(10,)]
    assert rows(engine, old) == before
    assert rows(engine, "SELECT relevance_level, dedup_reason FROM tool_invocation") == [
        (None, None),
        (None, None),
    ]
    assert rows(engine, GROUPS) == [(None, 2)]
    found = columns(engine)
    assert [found[n]["type"].length for n in ("relevance_level", "dedup_reason")] == [20, 32]
    assert upgrade(engine) == ()


def test_db_02_the_tables_of_the_specs_own_production_are_taken_over(engine):
    run_sql(
        engine,
        "CREATE TABLE schema_version (version INTEGER NOT NULL)",
        "INSERT INTO schema_version VALUES (9)",
        "CREATE TABLE tool_invocation (id INTEGER PRIMARY KEY, session_id VARCHAR(64), "
        "tool_name VARCHAR(64) NOT NULL, query TEXT, retrieval_details TEXT, "
        "created_at TEXT NOT NULL)",
        "INSERT INTO tool_invocation VALUES "
        "(7, 's', 'lookup_knowledge', 'q', '{}', '2024-01-01T05:30:00Z')",
    )
    assert upgrade(engine) == REVISIONS
    assert rows(engine, "SELECT version FROM schema_version") == [(10,)]
    assert rows(engine, GROUPS) == [(None, 1)]
    assert rows(engine, "SELECT id, query FROM tool_invocation") == [(7, "q")]


def test_a_version_table_that_is_not_one_number_is_left_as_it_is(engine, caplog):
    run_sql(
        engine,
        "CREATE TABLE schema_version (version INTEGER NOT NULL)",
        "INSERT INTO schema_version VALUES (8), (9)",
    )
    assert upgrade(engine) == REVISIONS
    assert rows(engine, "SELECT version FROM schema_version ORDER BY 1") == [(8,), (9,)]
    assert "schema_version is not just the number 9" in caplog.text


@pytest.mark.parametrize("kind", ["VARCHAR(10)", "VARCHAR(255)", "TEXT", "INTEGER"])
def test_a_column_of_that_name_with_another_type_is_an_error_and_changes_nothing(engine, kind):
    history(engine)
    run_sql(engine, f"ALTER TABLE tool_invocation ADD COLUMN dedup_reason {kind}")
    with pytest.raises(DatabaseError) as error:
        upgrade(engine)
    assert "tool_invocation.dedup_reason is there with type" in str(error.value)
    assert "it has to be VARCHAR(32)" in str(error.value)
    assert current(engine) == "V009"
    assert "relevance_level" not in columns(engine)


def test_a_table_without_its_key_is_an_error(engine):
    run_sql(engine, "CREATE TABLE tool_invocation (number INTEGER)")
    with pytest.raises(DatabaseError, match="without the column id, its key"):
        upgrade(engine)


def test_a_downgrade_keeps_the_rows_and_says_what_goes(engine):
    history(engine)
    upgrade(engine)
    run_sql(engine, "UPDATE tool_invocation SET relevance_level = 'PRECISE' WHERE query = 'q1'")
    assert downgrade(engine, "V009") == (
        "tool_invocation.dedup_reason: 0 values",
        "tool_invocation.relevance_level: 1 values",
    )
    assert current(engine) == "V009"
    assert rows(engine, "SELECT * FROM mine") == [("s1", 3)]
    assert upgrade(engine) == ("V010",)
    assert rows(engine, GROUPS) == [(None, 3)]


def test_a_downgrade_never_drops_a_table_with_rows(engine):
    history(engine)
    run_sql(engine, "DROP VIEW mine")
    with pytest.raises(DatabaseError, match="tool_invocation holds 3 rows"):
        downgrade(engine, "base")
    assert current(engine) == "V009"
    assert len(rows(engine, "SELECT * FROM tool_invocation")) == 3


def test_an_empty_database_goes_all_the_way_back(database):
    gone = downgrade(database, "base")
    assert gone[-1] == "api_document: the empty table"
    assert current(database) is None
    assert upgrade(database) == REVISIONS


def test_a_view_on_a_column_that_would_go_stops_the_downgrade(engine):
    upgrade(engine)
    run_sql(engine, "CREATE VIEW levels AS SELECT relevance_level FROM tool_invocation")
    with pytest.raises(DatabaseError, match=r"levels|depend"):
        downgrade(engine, "V009")
    assert current(engine) == "V010"


@pytest.mark.parametrize("revision", ["V011", "9", "", "V1"])
def test_an_unknown_revision_is_an_error_that_names_the_known(engine, revision):
    with pytest.raises(DatabaseError) as error:
        upgrade(engine, revision)
    assert str(error.value) == (
        f"revision {revision!r} is unknown; known are V001 to V010 and head"
    )


def test_a_database_of_a_newer_program_is_left_alone(database):
    run_sql(database, "UPDATE alembic_version SET version_num = 'V011'")
    for change in (upgrade, lambda engine: downgrade(engine, "V009")):
        with pytest.raises(DatabaseError, match="is at version V011, which is newer"):
            change(database)


def test_an_upgrade_to_where_it_is_or_below_does_nothing(database):
    assert upgrade(database, "V009") == ()
    assert current(database) == "V010"
    assert downgrade(database, "V010") == ()


def test_threads_of_one_process_upgrade_once(engine):
    upgrade(engine, "V009")
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: upgrade(engine), range(4)))
    assert sorted(done) == [(), (), (), ("V010",)]
