"""What the tables' rows have in common: keys, upserts, and times as they come back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbeval.errors import DatabaseError
from kbeval.store.plain import clean_text
from kbeval.store.times import utc

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

log = logging.getLogger(__name__)


def key(value: str, column: str) -> str:
    """The value, if it can be told apart after it was stored; `DatabaseError` otherwise."""
    if not value or clean_text(value, column, []) != value:
        raise DatabaseError(
            f"{column} {value!r}: a key must not be empty or hold NULs or lone surrogates"
        )
    return value


def upsert(
    connection: Connection,
    table: Table,
    row_key: Mapping[str, Any],
    *,
    changed: Mapping[str, Any],
    new: Mapping[str, Any],
) -> None:
    """Update the row of this key with `changed`, or insert it with `new` as well.

    Both the same in every database; of two transactions that insert one key, the second waits
    for the first and then updates its row.
    """
    from sqlalchemy.exc import IntegrityError

    update = table.update().values(**changed)
    for column, value in row_key.items():
        update = update.where(table.c[column] == value)
    if connection.execute(update).rowcount:
        return
    try:
        with connection.begin_nested():
            connection.execute(table.insert().values(**row_key, **changed, **new))
    except IntegrityError:
        if not connection.execute(update).rowcount:
            raise


def instant(value: str | datetime | None, where: str) -> datetime | None:
    """A stored time as aware UTC; one without a zone is taken as UTC, with a warning."""
    if value is None:
        return None
    try:
        time, naive = utc(value)
    except (ValueError, AttributeError) as error:
        raise DatabaseError(f"{where}: {value!r} is no ISO 8601 time") from error
    if naive:
        log.warning("%s: the time %s has no zone, taken as UTC", where, value)
    return time
