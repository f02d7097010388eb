"""Rows of CSV, TSV and JSON-lines files, exactly as typed and with their physical lines.

Nothing is guessed: a cell is text, and what cannot be read is a `Fault` or a `DatasetError`.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kbeval.errors import DatasetError
from kbeval.records import Fault

Names = Mapping[str, Sequence[str]]  # a field -> the column names it goes by, first one first

TABLES = (".csv", ".tsv")
JSON_LINES = (".jsonl", ".ndjson", ".json")
SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")


@dataclass(frozen=True, slots=True)
class Row:
    """One row; the keys of `fields` are field names where known, else the column's own name."""

    line: int  # physical line on which it starts, from 1
    number: int  # among the rows that are not empty, from 1
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one file, and what could not be read."""

    file: str
    columns: tuple[str, ...]  # as found; of a JSON-lines file the keys of all rows
    rows: tuple[Row, ...]
    faults: tuple[Fault, ...] = ()
    empty_count: int = 0  # rows or lines with nothing in them

    def has(self, name: str) -> bool:
        """Whether any row has the field `name`."""
        return any(name in row.fields for row in self.rows)


def read_rows(path: Path, names: Names, *, needed: Sequence[str] = ()) -> Rows:
    """Read a CSV, TSV or JSON-lines file; its ending says which it is.

    `needed` lists the fields without which a table cannot be used (in JSON lines a missing key
    is the fault of one row). Raises `DatasetError`.
    """
    ending = path.suffix.lower()
    if ending in SPREADSHEETS:
        raise DatasetError(f"{path}: a spreadsheet cannot be read; save it as CSV (UTF-8)")
    if ending in TABLES:
        return read_table(path, names, needed=needed)
    if ending in JSON_LINES:
        return read_json_lines(path, names)
    allowed = ", ".join((*TABLES, *JSON_LINES))
    raise DatasetError(f"{path}: the ending {ending!r} is not known; allowed are {allowed}")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file without its byte-order mark, line ends untouched."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"{path}: no such file") from None
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror})") from None
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DatasetError(f"{path}: the file is UTF-16; save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DatasetError(
            f"{path}:{line}: byte 0x{raw[error.start]:02x} at offset {error.start} is not UTF-8; "
            "save the file as UTF-8"
        ) from None


def read_table(path: Path, names: Names, *, needed: Sequence[str] = ()) -> Rows:
    """Read a table whose header decides the delimiter: comma, semicolon or tab.

    Blanks around header names and their case do not count; cells stay as typed. A row with
    nothing in it is skipped and counted, one with too few or too many cells is a fault.
    """
    text = read_text(path)
    lines = _table_rows(path, text, _delimiter(text, names))
    columns = next((tuple(cells) for _, cells in lines if not _blank(cells)), ())
    fields = _field_names(path, columns, names, needed)
    rows: list[Row] = []
    faults: list[Fault] = []
    empty_count = 0
    for line, cells in lines:
        if _blank(cells):
            empty_count += 1
            continue
        number = len(rows) + len(faults) + 1
        if len(cells) < len(fields) or not _blank(cells[len(fields) :]):
            problem = f"the row has {len(cells)} cells, the header {len(fields)}"
            remedy = "put a text that holds the delimiter between double quotes"
            faults.append(Fault(str(path), problem, remedy, line))
        else:
            rows.append(Row(line, number, dict(zip(fields, cells, strict=False))))
    return Rows(str(path), columns, tuple(rows), tuple(faults), empty_count)


def read_json_lines(path: Path, names: Names) -> Rows:
    """Read one JSON object a line; blank lines are skipped, any other line is a fault.

    Raises `DatasetError` for a JSON array.
    """
    text = read_text(path)
    if text.lstrip().startswith("["):
        raise DatasetError(f"{path}: this is a JSON array; one object per line is expected")
    rows: list[Row] = []
    faults: list[Fault] = []
    empty_count = number = 0
    for line, content in enumerate(text.removesuffix("\n").split("\n"), start=1):
        if not content.strip():
            empty_count += 1
            continue
        number += 1
        try:
            fields = parse_object(content)
        except ValueError as error:
            faults.append(Fault(str(path), str(error), line=line))
        else:
            rows.append(Row(line, number, _renamed(fields, names)))
    columns = tuple(dict.fromkeys(key for row in rows for key in row.fields))
    return Rows(str(path), columns, tuple(rows), tuple(faults), empty_count)


def parse_object(content: str) -> dict[str, Any]:
    """One JSON object, read strictly. Raises `ValueError` saying what is wrong, for the user."""
    value = parse_json(content)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is expected, found {content.strip()[:40]!r}")
    return value


def parse_json(content: str) -> object:
    """One JSON value; doubled keys, NaN and infinities are refused with `ValueError`."""
    try:
        value: object = json.loads(
            content,
            object_pairs_hook=_without_doubles,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
        if "\\u" in content:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} at column {error.colno}") from None
    except UnicodeEncodeError:
        raise ValueError("not valid JSON: half of a surrogate pair stands alone") from None
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None
    return value


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"the number {number} is out of range")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {double!r} is written twice; keep one")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not valid JSON: {name} is no JSON value; write a number or null")


def _renamed(fields: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """The same mapping under the fields' own names; of two names for a field the first counts."""
    chosen = {alias: name for name, alias in _choice(fields, names).items()}
    return {chosen.get(key, key): value for key, value in fields.items()}


def _choice(found: Mapping[str, Any] | Sequence[str], names: Names) -> dict[str, str]:
    first = (
        (name, next((a for a in aliases if a in found), None)) for name, aliases in names.items()
    )
    return {name: alias for name, alias in first if alias is not None}


def _table_rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DatasetError(
            f"{path}:{line}: the row that starts here cannot be read ({error}); "
            "close every double quote, and double those inside a cell"
        ) from None


def _delimiter(text: str, names: Names) -> str:
    """The delimiter under which the header holds most known names, then most columns."""
    known = {alias for aliases in names.values() for alias in aliases}

    def fit(delimiter: str) -> tuple[int, int]:
        reader = csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=delimiter)
        try:
            cells = next(reader, [])
        except csv.Error:
            return 0, 0
        return sum(_plain(cell) in known for cell in cells), len(cells)

    return max(",;\t", key=fit)


def _field_names(
    path: Path, columns: Sequence[str], names: Names, needed: Sequence[str]
) -> list[str]:
    """One distinct name for every column. Raises `DatasetError` for doubled or missing ones."""
    plain = [_plain(column) for column in columns]
    found = ", ".join(repr(column) for column in columns) or "none"
    choice = _choice(plain, names)
    for name in needed:
        if name not in choice:
            wanted = " or ".join(names[name])
            raise DatasetError(f"{path}: no column {wanted}; the columns found are {found}")
    chosen = {alias: name for name, alias in choice.items()}
    fields = [
        chosen.get(key, column.strip()) or f"column {place}"
        for place, (key, column) in enumerate(zip(plain, columns, strict=True), start=1)
    ]
    if double := next((name for name in fields if fields.count(name) > 1), None):
        raise DatasetError(f"{path}: two columns are named {double!r}; the columns are {found}")
    return fields


def _plain(column: str) -> str:
    return column.strip().casefold()


def _blank(cells: Sequence[str]) -> bool:
    return not any(cell.strip() for cell in cells)
