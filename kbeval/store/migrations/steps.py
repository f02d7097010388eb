"""What the migrations are made of: each makes only what is missing (DB-02)."""

from __future__ import annotations

import logging
from typing import Any

from alembic import context, op
from sqlalchemy import Column, Inspector, Integer, Numeric, String, func, inspect, select
from sqlalchemy import column as named_column
from sqlalchemy import table as named_table
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import JSON, DateTime, Float, TypeEngine

from kbeval.errors import DatabaseError
from kbeval.store.schema import UtcTime

log = logging.getLogger(__name__)


def make_table(name: str, *columns: Column[Any] | SchemaItem) -> None:
    """Create the table, or add what is missing to the one that is there."""
    if not _inspector().has_table(name):
        op.create_table(name, *columns)
        return
    for column in columns:
        if isinstance(column, Column):
            add_column(name, column)


def add_column(table: str, column: Column[Any]) -> None:
    """Add the column; where it is there already, check its type."""
    found = {c["name"]: c for c in _inspector().get_columns(table)}.get(column.name)
    if found is not None:
        if not _fits(found["type"], column.type):
            raise DatabaseError(
                f"{table}.{column.name} is there with type {found['type']}, "
                f"it has to be {column.type.compile(op.get_bind().dialect)}"
            )
        return
    if column.primary_key:
        raise DatabaseError(f"{table} is there without the column {column.name}, its key")
    op.add_column(table, Column(column.name, column.type, nullable=True))


def add_index(name: str, table: str, *columns: str, unique: bool = False) -> None:
    """Create the index unless there is one of that name."""
    if name not in {index["name"] for index in _inspector().get_indexes(table)}:
        op.create_index(name, table, list(columns), unique=unique)


def drop_index(name: str, table: str) -> None:
    """Drop the index."""
    op.drop_index(name, table)


def drop_column(table: str, column: str) -> None:
    """Drop the column and say how many values went with it."""
    rows = named_table(table, named_column(column))
    count = op.get_bind().scalar(select(func.count(rows.c[column])))
    op.drop_column(table, column)
    _gone(f"{table}.{column}: {count} values")


def drop_table(table: str) -> None:
    """Drop the table if it is empty; rows are never dropped."""
    count = op.get_bind().scalar(select(func.count()).select_from(named_table(table)))
    if count:
        raise DatabaseError(
            f"{table} holds {count} rows, which a downgrade keeps; export and delete them first"
        )
    op.drop_table(table)
    _gone(f"{table}: the empty table")


def set_foreign_version(before: int, after: int) -> None:
    """Tell a foreign `schema_version` table of one number that this step was done.

    Otherwise the program it belongs to would add the same columns once more and fail.
    """
    inspector = _inspector()
    if not inspector.has_table("schema_version"):
        return
    types = {c["name"]: c["type"] for c in inspector.get_columns("schema_version")}
    rows = named_table("schema_version", named_column("version"))
    is_number = isinstance(types.get("version"), Integer)
    if not is_number or op.get_bind().scalars(select(rows.c.version)).all() != [before]:
        log.warning("schema_version is not just the number %d: it is left as it is", before)
        return
    op.execute(rows.update().values(version=after))


def _gone(what: str) -> None:
    context.config.attributes.setdefault("gone", []).append(what)


def _inspector() -> Inspector:
    return inspect(op.get_bind())  # a new one each time: inspectors remember


def _fits(found: TypeEngine[Any], wanted: TypeEngine[Any]) -> bool:
    """Whether a column that is there can serve as the wanted one."""
    if isinstance(wanted, String) and wanted.length is not None:
        return isinstance(found, String) and found.length == wanted.length
    if isinstance(wanted, Integer | Float):
        return isinstance(found, Integer | Numeric | Float)
    texts: tuple[type[TypeEngine[Any]], ...] = (String,)
    if isinstance(wanted, UtcTime):
        texts = (String, DateTime)
    elif isinstance(wanted, JSON):
        texts = (String, JSON)
    return isinstance(found, texts)
