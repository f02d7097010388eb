"""Open the database: SQLite in a file by default, any SQLAlchemy URL, PostgreSQL among them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from kbeval.errors import DatabaseError
from kbeval.store.plain import json_text, read_json

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry, Pool, PoolProxiedConnection

WAIT_MS = 5_000  # how long a statement waits for another process
_BEGIN = "kbeval_begin"  # execution option: how a transaction begins in SQLite
_engines: WeakSet[Engine] = WeakSet()
_inherited: list[Pool] = []  # in a forked child: kept, so that nothing closes them


def open_database(url: str | Path, *, must_exist: bool = False) -> Engine:
    """An engine on a SQLite file (a path) or a SQLAlchemy URL.

    Nothing is read or written yet: a new file appears with the first `upgrade`. SQLite runs with
    write-ahead logging, foreign keys, full durability and a wait of 5 s for other writers.
    Raises `DatabaseError` for a URL or folder that cannot be, for a missing driver, and, with
    `must_exist`, for a missing file.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    address = _address(url)
    options: dict[str, Any] = {"json_serializer": json_text, "json_deserializer": read_json}
    if address.get_backend_name() == "sqlite":
        _check_file(address, must_exist)
    else:
        options |= {"pool_pre_ping": True, "pool_timeout": WAIT_MS // 1000}
    if address.get_backend_name() == "postgresql":
        options["connect_args"] = {
            "connect_timeout": WAIT_MS // 1000,
            "tcp_user_timeout": WAIT_MS,
            "options": "-c timezone=UTC",
        }
    try:
        engine = create_engine(address, **options)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise DatabaseError(f"{_shown(address)}: {_first_line(error)}") from error
    _listen(engine)
    return engine


@contextmanager
def reading(bind: Engine | Connection) -> Iterator[Connection]:
    """A connection that sees one state of the database and holds up nobody.

    A connection that is given is used as it is. Database errors come out as `DatabaseError`.
    """
    from sqlalchemy import Connection

    with _one_line(bind):
        if isinstance(bind, Connection):
            yield bind
        else:
            with bind.connect() as connection:
                yield connection


@contextmanager
def writing(bind: Engine | Connection, *, wait_ms: int = WAIT_MS) -> Iterator[Connection]:
    """One transaction that writes: kept whole at the end, or not at all.

    It takes its place among the writers at once, so that it never fails half-way because another
    wrote in between, and waits at most `wait_ms` for them. A connection that is given stays in
    its own transaction. Database errors come out as `DatabaseError`.
    """
    from sqlalchemy import Connection

    with _one_line(bind):
        if isinstance(bind, Connection):
            yield bind
        else:
            with bind.connect() as connection:
                _begin_writing(connection, wait_ms)
                with connection.begin():
                    _wait_for_locks(connection, wait_ms)
                    yield connection


def file_of(engine: Engine) -> Path | None:
    """The file of a SQLite database, None for a server or a database in memory."""
    return _file(engine.url)


def name_of(engine: Engine) -> str:
    """The database as a user knows it: its path, or its URL without the password."""
    return _shown(engine.url)


def reason_of(error: BaseException) -> str:
    """The database's own words for what went wrong, in one line."""
    return _first_line(getattr(error, "orig", None) or error)


def _address(url: str | Path) -> URL:
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    if isinstance(url, Path) or "://" not in url:
        return URL.create("sqlite", database=str(Path(url).expanduser().absolute()))
    try:
        address = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise DatabaseError(
            "database: the URL cannot be read; allowed are a file name and URLs such as "
            "sqlite:///kbeval.db and postgresql://user@host/name"
        ) from error
    if address.drivername in {"postgresql", "postgres"}:
        address = address.set(drivername="postgresql+psycopg")
    return address


def _file(address: URL) -> Path | None:
    name = address.database
    if address.get_backend_name() != "sqlite" or not name or name == ":memory:":
        return None
    if name.startswith("file:"):
        name = name.removeprefix("file:").split("?")[0]
    return Path(name)


def _check_file(address: URL, must_exist: bool) -> None:
    file = _file(address)
    if file is None:
        return
    if file.is_dir():
        raise DatabaseError(f"{file}: is a folder, a database is a file")
    if not file.parent.is_dir():
        raise DatabaseError(f"{file}: the folder {file.parent} does not exist")
    if must_exist and not file.exists():
        raise DatabaseError(f"{file}: no such database; `kbeval db upgrade` makes one")


def _listen(engine: Engine) -> None:
    """Prepare every connection, and begin transactions as they are asked for."""
    from sqlalchemy import event

    _engines.add(engine)
    if engine.dialect.name != "sqlite":
        return

    def on_connect(raw: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        _prepare(raw)

    def on_checkout(
        raw: DBAPIConnection, record: ConnectionPoolEntry, proxy: PoolProxiedConnection
    ) -> None:
        _set_wait(raw, WAIT_MS)

    def on_begin(connection: Connection) -> None:
        mode = connection.get_execution_options().get(_BEGIN, "DEFERRED")
        connection.exec_driver_sql(f"BEGIN {mode}")

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "checkout", on_checkout)
    event.listen(engine, "begin", on_begin)


def _leave_to_the_parent() -> None:
    """In a forked child: never use, nor even close, the parent's connections."""
    for engine in list(_engines):
        _inherited.append(engine.pool)
        engine.dispose(close=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _prepare(raw: DBAPIConnection) -> None:
    """Set up one SQLite connection; transactions begin and end only where we say so."""
    raw.isolation_level = None
    cursor = raw.cursor()
    cursor.execute("PRAGMA busy_timeout = 0")
    with suppress(sqlite3.DatabaseError):  # read-only or just locked: it works without as well
        cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _set_wait(raw: DBAPIConnection | PoolProxiedConnection, wait_ms: int) -> None:
    cursor = raw.cursor()  # past the engine, which would begin a transaction
    cursor.execute(f"PRAGMA busy_timeout = {wait_ms}")
    cursor.close()


def _begin_writing(connection: Connection, wait_ms: int) -> None:
    if connection.dialect.name == "sqlite":
        _set_wait(connection.connection, wait_ms)
        connection.execution_options(**{_BEGIN: "IMMEDIATE"})


def _wait_for_locks(connection: Connection, wait_ms: int) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {wait_ms}")


@contextmanager
def _one_line(bind: Engine | Connection) -> Iterator[None]:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        reason = reason_of(error)
        absent = ("no such table", "no such column", "has no column", "does not exist")
        remedy = "; run `kbeval db upgrade`" if any(words in reason for words in absent) else ""
        raise DatabaseError(f"{_shown(bind.engine.url)}: {reason}{remedy}") from error


def _shown(address: URL) -> str:
    return str(_file(address) or address.render_as_string(hide_password=True))


def _first_line(error: object) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
