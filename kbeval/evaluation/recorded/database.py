"""Rows of a database that holds `tool_invocation`, whoever wrote it and at any version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbeval.errors import DatabaseError
from kbeval.evaluation.reading.rows import Row
from kbeval.evaluation.recorded.rows import NEEDED, ROW_NAMES
from kbeval.store.database import name_of, open_database, reading

TABLE = "tool_invocation"


def read_database(source: str | Path) -> tuple[str, list[Row]]:
    """The database's name, without a password, and its rows in the order of their ids.

    Only `session_id`, `query` and a time are needed: history from before V010 and tables of
    others serve as well. A SQLite file is opened for reading only. Raises `DatabaseError`.
    """
    engine = open_database(read_only(source))
    name = name_of(engine)
    try:
        with reading(engine) as connection:
            streaming = connection.execution_options(yield_per=1000)
            result = streaming.exec_driver_sql(f"SELECT * FROM {TABLE}")
            names = _names(list(result.keys()), name)
            rows = [_row(row, names, place) for place, row in enumerate(result.mappings(), 1)]
    except DatabaseError as error:
        raise DatabaseError(str(error).split("; run `kbeval")[0]) from error
    finally:
        engine.dispose()
    return name, sorted(rows, key=lambda row: row.line)


def _row(row: Any, names: dict[str, str], place: int) -> Row:  # noqa: ANN401
    fields = {names[column]: value for column, value in row.items() if column in names}
    number = fields.pop("id", None)
    if not isinstance(fields["session_id"], (str, int, type(None))):  # a uuid
        fields["session_id"] = str(fields["session_id"])
    return Row(number if isinstance(number, int) else place, place, fields)


def _names(columns: list[str], source: str) -> dict[str, str]:
    """Column -> field; `created_at` keeps its name beside `started_at`, to stand in for it."""
    found = {
        name: next((alias for alias in aliases if alias in columns), None)
        for name, aliases in ROW_NAMES.items()
    }
    for name in (*NEEDED, "time"):
        if found[name] is None:
            wanted, there = " or ".join(ROW_NAMES[name]), ", ".join(columns)
            raise DatabaseError(f"{source}: {TABLE} has no column {wanted}; it has {there}")
    names = {column: column for column in ("id", "created_at") if column in columns}
    return names | {column: name for name, column in found.items() if column is not None}


def read_only(source: str | Path) -> str | Path:
    """A URL that opens a SQLite file for reading only; every other source as it is.

    Raises `DatabaseError` for a missing file.
    """
    text = str(source)
    name = text.removeprefix("sqlite:///")
    if "://" in name or name.startswith((":memory:", "file:")) or set("?#%") & set(name):
        return source
    if not Path(name).is_file():
        raise DatabaseError(f"{name}: no such database")
    return f"sqlite:///file:{Path(name).absolute()}?mode=ro&uri=true"
