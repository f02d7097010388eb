"""Bring a database to another version: V001 to V010, numbered as the specs number them (FS-6).

Every step makes only what is missing and refuses what is there with another type. So a database
that was left half-way, or whose tables come from the specs' own production, is taken over by the
same steps, and a second run finds nothing to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.errors import DatabaseError
from kbeval.store.database import name_of, reading, writing

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection, Engine

HEAD = "V010"
REVISIONS = tuple(f"V{number:03}" for number in range(1, 11))
UPGRADE_WAIT_MS = 60_000  # for another process that is at it
_LOCK_KEY = 7_390_051_842  # PostgreSQL's advisory lock of kbeval's migrations
_one_at_a_time = threading.Lock()  # Alembic keeps its context in module globals


def current(engine: Engine) -> str | None:
    """The version the database is at, None if kbeval never upgraded it."""
    from alembic.migration import MigrationContext

    with reading(engine) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: Engine, revision: str = "head") -> tuple[str, ...]:
    """Bring the database up to `revision`; returns the steps it took, none if it was there.

    All steps stand or fall together. Of two processes one does it, the other waits and finds it
    done. No row is touched. Raises `DatabaseError`, also for a database that is newer than this
    program and for columns that are there with another type.
    """
    wanted = _known(HEAD if revision == "head" else revision)
    if _position(engine, current(engine)) >= _position(engine, wanted):
        return ()

    def run(config: Config, here: str | None) -> tuple[str, ...]:
        from alembic import command

        first, last = _position(engine, here), _position(engine, wanted)
        if first < last:
            command.upgrade(config, wanted)
        return REVISIONS[first:last]

    return _migrated(engine, run)


def downgrade(engine: Engine, revision: str) -> tuple[str, ...]:
    """Take the database back to `revision` ("base": to none); returns what went, in words.

    Rows stay: columns go with what they held (a line says how many values), a table goes only if
    it is empty. Raises `DatabaseError` if a table would have to go with its rows or something,
    such as a view, rests on a column.
    """
    wanted = None if revision == "base" else _known(revision)

    def run(config: Config, here: str | None) -> tuple[str, ...]:
        from alembic import command

        gone: list[str] = []
        config.attributes["gone"] = gone
        if _position(engine, wanted) < _position(engine, here):
            command.downgrade(config, wanted or "base")
        return tuple(gone)

    return _migrated(engine, run)


def _migrated(
    engine: Engine, run: Callable[[Config, str | None], tuple[str, ...]]
) -> tuple[str, ...]:
    """Run in one transaction, alone among threads and processes."""
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    with _one_at_a_time, writing(engine, wait_ms=UPGRADE_WAIT_MS) as connection:
        _wait_for_others(connection)
        config.attributes["connection"] = connection
        here = MigrationContext.configure(connection).get_current_revision()
        try:
            return run(config, here)
        except CommandError as error:
            raise DatabaseError(f"{name_of(engine)}: {error}") from error


def _wait_for_others(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")


def _known(revision: str) -> str:
    if revision not in REVISIONS:
        raise DatabaseError(f"revision {revision!r} is unknown; known are V001 to {HEAD} and head")
    return revision


def _position(engine: Engine, revision: str | None) -> int:
    """How many steps lead to a revision."""
    if revision is None:
        return 0
    if revision not in REVISIONS:
        raise DatabaseError(
            f"{name_of(engine)}: is at version {revision}, which is newer than this kbeval; "
            f"it knows V001 to {HEAD}"
        )
    return REVISIONS.index(revision) + 1
