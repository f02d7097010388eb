"""Recording never breaks a look-up, and what could not be recorded is counted (DB-01)."""

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from kbeval.records import Invocation
from kbeval.store.database import open_database, reading
from kbeval.store.invocations import read_invocations, save_invocation
from kbeval.store.migrations import current, downgrade, upgrade
from kbeval.store.recorder import MAX_REASONS, Recorder
from kbeval.store.reports import grade_distribution

pytest_plugins = ["postgres"]

TESTS = Path(__file__).parent
PROCESSES, THREADS, LOOK_UPS = 2, 16, 50
WORKER = """
import json, logging, os, sys, threading
from stand_ins import at_similarity, document, tool
from kbeval.store.database import open_database
from kbeval.store.recorder import Recorder

url, name, threads, look_ups, user = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
documents = [document(f"{i}.md") for i in range(3)]
vectors = {d.path: at_similarity(0.9 - i / 10) for i, d in enumerate(documents)}
knowing = tool(documents, {**vectors, "q": [1.0, 0.0]})
logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("kbeval.store").addHandler(handler)
recorder = Recorder(open_database(url))
if user:  # who may not even read Python's own files: what is needed later is imported before
    import sqlalchemy.dialects.sqlite, kbeval.store.schema
    os.setgid(user)
    os.setuid(user)
failed = []

def work(thread, part):
    for i in range(look_ups // 2):
        try:
            result, invocation = knowing.lookup_knowledge("q", f"{name}-{thread}-{part}-{i}")
            assert result.found
            recorder.save(invocation)
        except Exception as error:
            failed.append(repr(error))

for part in range(2):
    print("ready", flush=True)
    sys.stdin.readline()
    recorder.engine.dispose()  # a connection that is open keeps its right to write
    pool = [threading.Thread(target=work, args=(t, part)) for t in range(threads)]
    [t.start() for t in pool]
    [t.join() for t in pool]
print(json.dumps([recorder.saved_count, recorder.lost_count, recorder.summary(), logged, failed]))
"""


def invocation(query="q"):
    return Invocation(
        tool_name="lookup_knowledge",
        session_id="s",
        query=query,
        started_at="2024-01-01T05:30:00Z",
        duration_ms=1.0,
        relevance_level="PRECISE",
        dedup_reason=None,
        retrieval_details={},
    )


class Workers:
    """Processes that look up and record in two halves."""

    def __init__(self, url, user):
        numbers = [str(n) for n in (THREADS, LOOK_UPS, user)]
        self.all = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, url, f"p{i}", *numbers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": str(TESTS)},
            )
            for i in range(PROCESSES)
        ]
        self.wait()

    def wait(self):
        for worker in self.all:
            assert worker.stdout.readline() == "ready\n"

    def go(self):
        for worker in self.all:
            worker.stdin.write("\n")
            worker.stdin.flush()

    def results(self):
        return [json.loads(worker.communicate(timeout=120)[0]) for worker in self.all]

    def stop(self):
        for worker in self.all:
            worker.kill()
            worker.communicate()


@contextlib.contextmanager
def a_reader(engine):
    """Read the distribution in a loop, as a notebook may; what it saw, in the order it saw it."""
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            seen.append(sum(grade_distribution(engine).values()))
            stop.wait(0.01)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def shared(request):
    """A database that another user may write, its URL, that user, and how to make it read-only."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
        name = url.rsplit("/", 1)[1]

        def freeze():
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")

        engine = open_database(url)
        upgrade(engine)
        yield engine, url, 0, freeze
        engine.dispose()
        return
    from postgres import quick_folder  # a plugin of pytest, which has to load it first

    folder = quick_folder()
    file, user = folder / "kbeval.db", 0
    engine = open_database(file)
    upgrade(engine)
    engine.dispose()
    if os.geteuid() == 0:  # for root no file is read-only
        user = 65534
        folder.chmod(0o777)
        os.chown(file, user, user)

    def freeze():
        engine.dispose()
        os.chown(file, os.geteuid(), os.getegid())
        file.chmod(0o444)

    yield engine, str(file), user, freeze
    engine.dispose()
    shutil.rmtree(folder)


BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


@pytest.mark.parametrize("shared", BOTH, indirect=True)
def test_db_01_many_writers_lose_nothing_while_a_reader_loops(shared):
    engine, url, user, _ = shared
    workers = Workers(url, user)
    try:
        with a_reader(engine) as seen:
            workers.go()
            workers.wait()
            workers.go()
            results = workers.results()
    finally:
        workers.stop()
    half = THREADS * LOOK_UPS
    assert results == [[half, 0, f"{half} look-ups recorded", [], []]] * PROCESSES
    assert seen == sorted(seen)
    found = read_invocations(engine)
    assert len(found) == PROCESSES * half == 1600
    assert set(Counter(row.session_id for row in found).values()) == {1}
    assert all(row.returned_paths == ("0.md", "1.md", "2.md") for row in found)


@pytest.mark.parametrize("shared", BOTH, indirect=True)
def test_db_01_a_database_made_read_only_in_the_middle_loses_records_but_no_look_up(shared):
    engine, url, user, freeze = shared
    workers = Workers(url, user)
    try:
        workers.go()
        workers.wait()
        freeze()
        workers.go()
        results = workers.results()
    finally:
        workers.stop()
    half = THREADS * LOOK_UPS // 2
    for saved, lost, summary, logged, failed in results:
        assert (saved, lost, failed) == (half, half, [])
        assert summary.startswith(f"{half} look-ups recorded, {half} not recorded ({half} x ")
        assert "read-only" in summary or "readonly" in summary
        assert len(logged) == 1
        assert logged[0].startswith("a look-up was answered but not recorded: ")
    assert len(read_invocations(engine)) == PROCESSES * half


@contextlib.contextmanager
def locked(url):
    """Somebody holds the table; nobody else writes."""
    if "://" in url:
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE tool_invocation IN ACCESS EXCLUSIVE MODE")
            yield
            other.rollback()
        return
    other = sqlite3.connect(url, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    yield
    other.execute("ROLLBACK")
    other.close()


def test_a_locked_database_costs_the_record_not_the_look_up(database, url, caplog):
    recorder = Recorder(database, wait=0.2)
    with locked(url):
        assert [recorder.save(invocation()) for _ in range(2)] == [False, False]
    assert recorder.save(invocation("after"))
    assert (recorder.saved_count, recorder.lost_count) == (1, 2)
    assert [row.query for row in read_invocations(database)] == ["after"]
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1
    assert "lock" in recorder.summary()


def test_a_short_lock_is_waited_for(database, url):
    recorder = Recorder(database, wait=30)
    holding, done = threading.Event(), threading.Event()

    def hold():
        with locked(url):
            holding.set()
            done.wait(0.3)

    other = threading.Thread(target=hold)
    other.start()
    holding.wait()
    assert recorder.save(invocation())
    done.set()
    other.join()
    assert recorder.summary() == "1 look-ups recorded"


def test_waiting_in_the_queue_is_bounded_as_well(database):
    recorder = Recorder(database, wait=0.1)
    with recorder._queue:
        assert not recorder.save(invocation())
    assert recorder.summary().endswith("other look-ups are still waiting)")


def test_a_database_that_was_never_upgraded_costs_the_records(engine, caplog):
    assert current(engine) is None
    recorder = Recorder(engine)
    assert not recorder.save(invocation())
    assert not recorder.save(invocation())
    assert "2 not recorded" in recorder.summary()
    assert caplog.text.count("kbeval db upgrade") == 1


def test_a_program_ahead_of_its_database_costs_the_records(database):
    downgrade(database, "V009")
    recorder = Recorder(database)
    assert not recorder.save(invocation())
    assert "relevance_level" in recorder.summary()


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("postgresql://nobody@127.0.0.1:9/none", id="a server that is not there"),
        pytest.param("{folder}/gone.db", id="a file that is not there"),
    ],
)
def test_a_missing_database_costs_the_records_and_is_not_made(tmp_path, url):
    recorder = Recorder(open_database(url.format(folder=tmp_path)))
    assert not recorder.save(invocation())
    assert recorder.lost_count == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_removed_in_the_middle_is_noticed_and_a_new_one_is_taken(tmp_path):
    file = tmp_path / "k.db"
    engine = open_database(file)
    upgrade(engine)
    recorder = Recorder(engine)
    assert recorder.save(invocation("first"))
    for part in tmp_path.iterdir():
        part.unlink()
    assert not recorder.save(invocation("lost"))
    assert "No such file" in recorder.summary()
    upgrade(open_database(file))
    assert recorder.save(invocation("second"))
    assert [row.query for row in read_invocations(open_database(file))] == ["second"]


@pytest.mark.parametrize(
    "content", [pytest.param(b"no database at all" * 100, id="text"), pytest.param(b"", id="empty")]
)
def test_a_file_that_is_no_database_costs_the_records(tmp_path, content):
    file = tmp_path / "k.db"
    file.write_bytes(content)
    recorder = Recorder(open_database(file))
    assert not recorder.save(invocation())
    assert recorder.lost_count == 1


def test_a_record_that_cannot_be_written_costs_only_itself(database):
    recorder = Recorder(database)
    circular = {}
    circular["self"] = circular
    assert not recorder.save(dataclasses.replace(invocation(), started_at="never"))
    assert not recorder.save(dataclasses.replace(invocation(), retrieval_details=circular))
    assert not recorder.save(dataclasses.replace(invocation(), tool_name=None))
    assert not recorder.save(None)
    assert recorder.save(invocation())
    assert (recorder.saved_count, recorder.lost_count, len(recorder.reasons)) == (1, 4, 4)


def test_the_reasons_told_apart_are_bounded(database):
    recorder = Recorder(database)
    for i in range(MAX_REASONS + 5):
        recorder.save(dataclasses.replace(invocation(), started_at=f"never {i}"))
    assert recorder.lost_count == sum(recorder.reasons.values()) == MAX_REASONS + 5
    assert recorder.reasons["other reasons"] == 5


FORKING = """
import os, sys, threading
sys.path.insert(0, sys.argv[2])
from test_store_recorder import invocation
from kbeval.store.database import open_database
from kbeval.store.recorder import Recorder
recorder = Recorder(open_database(sys.argv[1]))
assert recorder.save(invocation("parent"))
recorder._queue.acquire()  # as another thread might, at the moment of the fork
child = os.fork()
if child == 0:
    done = all(recorder.save(invocation(f"child {i}")) for i in range(20))
    os._exit(0 if done else 1)
recorder._queue.release()
assert all(recorder.save(invocation(f"parent {i}")) for i in range(20))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_records_through_connections_of_its_own(database, url):
    database.dispose()
    subprocess.run([sys.executable, "-c", FORKING, url, str(TESTS)], check=True, timeout=60)
    queries = {row.query for row in read_invocations(database)}
    assert queries == {"parent", *(f"{who} {i}" for who in ("parent", "child") for i in range(20))}


DYING = """
import sys
sys.path.insert(0, sys.argv[2])
from test_store_recorder import invocation
from kbeval.store.database import open_database
from kbeval.store.invocations import save_invocation
engine = open_database(sys.argv[1])
while True:
    print(save_invocation(engine, invocation()), flush=True)
"""


def test_a_saved_row_survives_the_kill_of_its_process(database, url):
    database.dispose()
    dying = subprocess.Popen(
        [sys.executable, "-c", DYING, url, str(TESTS)], stdout=subprocess.PIPE, text=True
    )
    said = [int(dying.stdout.readline()) for _ in range(20)]
    dying.send_signal(signal.SIGKILL)
    said += [int(line) for line in dying.communicate(timeout=60)[0].splitlines()]
    with reading(database) as connection:
        kept = [row.id for row in read_invocations(connection)]
    assert kept[: len(said)] == said
    assert len(kept) <= len(said) + 1  # written, but not yet said


def test_save_invocation_takes_a_recorder(database):
    recorder = Recorder(database)
    assert save_invocation(recorder, invocation()) is None
    assert recorder.saved_count == 1
    assert len(read_invocations(database)) == 1
