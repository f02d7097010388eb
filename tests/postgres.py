"""A PostgreSQL server of the tests' own on 127.0.0.1, and in it an empty database for each test.

The programs come from the `pgserver` wheel or from Debian's package. PostgreSQL refuses to run as
root: then it runs as `nobody`. Everything lies in one temporary folder, which goes at the end.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

SETTINGS = [
    "fsync=off",
    "shared_buffers=16MB",
    "max_connections=60",
    "dynamic_shared_memory_type=mmap",
]


def programs():
    """The folder of initdb and postgres, None where there is none."""
    found = importlib.util.find_spec("pgserver")
    folders = []
    if found is not None and found.origin:
        folders.append(Path(found.origin).parent / "pginstall" / "bin")
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def postgres_server():
    """The server's URL, without a database's name."""
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL: neither the pgserver wheel nor /usr/lib/postgresql is there")
    home = Path(tempfile.mkdtemp(prefix="kbeval-postgres-"))
    user = {}
    if os.geteuid() == 0:
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        shutil.chown(home, "nobody", "nogroup")
    server = None
    try:
        server, url = start(folder, home, user)
        yield url
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)  # at once: nothing of it is kept
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        shutil.rmtree(home, ignore_errors=True)


def start(folder, home, user):
    initdb = [folder / "initdb", "-D", home / "data", "-U", "postgres", "--auth=trust"]
    options = ["--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
    subprocess.run(
        [*initdb, *options], check=True, capture_output=True, cwd=home, env={"LC_ALL": "C"}, **user
    )
    port = free_port()
    command = [folder / "postgres", "-D", home / "data", "-h", "127.0.0.1", "-p", str(port)]
    command += ["-k", ""]
    for setting in SETTINGS:
        command += ["-c", setting]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=home, env={"LC_ALL": "C"}, **user
        )
    address = f"postgresql://postgres@127.0.0.1:{port}"
    for _ in range(300):
        try:
            psycopg.connect(f"{address}/postgres", connect_timeout=2).close()
            return server, address
        except psycopg.OperationalError:
            if server.poll() is not None:
                break
            time.sleep(0.1)
    server.kill()
    server.wait()
    raise RuntimeError(f"PostgreSQL does not start: {(home / 'log').read_text()[-2000:]}")


@pytest.fixture
def postgres_url(postgres_server):
    """The URL of a database that was emptied."""
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'kb'").fetchone():
            connection.execute("CREATE DATABASE kb")
        connection.execute("ALTER DATABASE kb RESET ALL")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'kb'"
        )
    with psycopg.connect(f"{postgres_server}/kb", autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return f"{postgres_server}/kb"


def quick_folder():
    """A new folder, in memory where that is there: a durable commit costs milliseconds on disk."""
    memory = Path("/dev/shm")
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2e8
    return Path(tempfile.mkdtemp(prefix="kbeval-", dir=memory if roomy else None))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    """A new, empty database of either kind."""
    if request.param == "postgresql":
        yield request.getfixturevalue("postgres_url")
        return
    folder = quick_folder()
    yield str(folder / "kbeval.db")
    shutil.rmtree(folder)


@pytest.fixture
def engine(url):
    """An engine on it, disposed of at the end."""
    from kbeval.store.database import open_database

    opened = open_database(url)
    yield opened
    opened.dispose()


@pytest.fixture
def database(engine):
    """An engine on a database at the newest version."""
    from kbeval.store.migrations import upgrade

    upgrade(engine)
    return engine
