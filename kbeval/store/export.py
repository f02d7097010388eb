"""The three tables as files that need no database: JSON lines or CSV."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from kbeval.errors import DatabaseError
from kbeval.store.database import reading
from kbeval.store.plain import json_text, plain, read_json

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, RowMapping

Row = Mapping[str, Any]
TABLES = ("api_document", "knowledge_domain", "tool_invocation")
JSON_COLUMNS = {"metadata", "retrieval_details"}


def export(
    engine: Engine | Connection, folder: Path, *, form: Literal["jsonl", "csv"] = "jsonl"
) -> dict[str, int]:
    """Write every column of the three tables to `folder`; the rows of each.

    All three files show one state of the database; each appears whole or not at all. CSV keeps
    JSON as text and writes NULL as an empty field. Raises `DatabaseError`.
    """
    write = _FORMS.get(form)
    if write is None:
        raise DatabaseError(f"export: form {form!r} is none of {', '.join(_FORMS)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with reading(engine) as connection:
            _one_state(connection)
            return {table: _export(connection, table, folder, form, write) for table in TABLES}
    except OSError as error:
        raise DatabaseError(f"{folder}: {error.strerror or error}") from error


def _one_state(connection: Connection) -> None:
    if connection.dialect.name == "postgresql" and not connection.in_transaction():
        connection.execution_options(isolation_level="REPEATABLE READ")


def _export(connection: Connection, table: str, folder: Path, form: str, write: _Writer) -> int:
    from sqlalchemy import text

    key = "domain_id" if table == "knowledge_domain" else "id"
    statement = text(f"SELECT * FROM {table} ORDER BY {key}")
    part = folder / f".{table}.{form}.{os.getpid()}.part"
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            result = connection.execute(statement, execution_options={"yield_per": 1000})
            count = write(file, list(result.keys()), map(_plain_row, result.mappings()))
        part.replace(folder / f"{table}.{form}")
    finally:
        part.unlink(missing_ok=True)
    return count


def _plain_row(row: RowMapping) -> Row:
    """The row as JSON keeps it; JSON that came as text is read."""
    read = {
        name: read_json(value) if name in JSON_COLUMNS and isinstance(value, str) else value
        for name, value in row.items()
    }
    return plain(read)[0]


def _jsonl(file: TextIO, names: list[str], rows: Iterable[Row]) -> int:
    count = 0
    for row in rows:
        file.write(json_text(row) + "\n")
        count += 1
    return count


def _csv(file: TextIO, names: list[str], rows: Iterable[Row]) -> int:
    writer = csv.writer(file)
    writer.writerow(names)
    count = 0
    for row in rows:
        values = (row[name] for name in names)
        writer.writerow([json_text(v) if isinstance(v, dict | list) else v for v in values])
        count += 1
    return count


_Writer = Callable[[TextIO, list[str], Iterable[Row]], int]
_FORMS: dict[str, _Writer] = {"jsonl": _jsonl, "csv": _csv}
