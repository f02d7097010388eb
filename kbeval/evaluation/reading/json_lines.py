"""A JSON-lines file of any length: one object after the other, one line in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kbeval.errors import DatasetError
from kbeval.evaluation.reading.rows import parse_object
from kbeval.records import Fault

_MARK = b"\xef\xbb\xbf"  # a byte-order mark, which may stand before the first line


@dataclass(frozen=True, slots=True)
class JsonLine:
    """One line that holds a JSON object."""

    line: int  # physical line, from 1
    offset: int  # byte of the file at which it starts
    fields: dict[str, Any]


def iter_json_lines(path: Path) -> Iterator[JsonLine | Fault]:
    """Every line of a UTF-8 file in its order; blank lines are passed over.

    A line that holds no JSON object is a `Fault`. Raises `DatasetError`, once that place is
    reached, for a file that cannot be read, is not UTF-8, or holds a JSON array.
    """
    first = True
    for line, offset, raw in _raw_lines(path):
        content = _text(path, raw, line=line, offset=offset)
        if not content.strip():
            continue
        if first and content.lstrip().startswith("["):
            raise DatasetError(f"{path}: this is a JSON array; one object per line is expected")
        first = False
        try:
            yield JsonLine(line, offset, parse_object(content))
        except ValueError as error:
            yield Fault(str(path), str(error), line=line)


def json_line_at(path: Path, offset: int) -> dict[str, Any]:
    """The object that `iter_json_lines` found at this byte. Raises `DatasetError`."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return parse_object(file.readline().decode("utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: changed while it was read ({error})") from None


def _raw_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Line, offset and bytes of every line, without the mark in front and the line's end."""
    try:
        with path.open("rb") as file:
            offset = _begin(path, file)
            for line, raw in enumerate(file, start=1):
                yield line, offset, raw.removesuffix(b"\n")
                offset += len(raw)
    except FileNotFoundError:
        raise DatasetError(f"{path}: no such file") from None
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror})") from None


def _begin(path: Path, file: BinaryIO) -> int:
    """The offset of the first line, at which the file then stands. Raises `DatasetError`."""
    start = file.read(len(_MARK))
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DatasetError(f"{path}: the file is UTF-16; save it as UTF-8")
    return file.seek(len(_MARK) if start == _MARK else 0)


def _text(path: Path, raw: bytes, *, line: int, offset: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path}:{line}: byte 0x{raw[error.start]:02x} at offset {offset + error.start} is not "
            "UTF-8; save the file as UTF-8"
        ) from None
