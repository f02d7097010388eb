"""Values as JSON keeps them: finite numbers, clean text, ISO times; what had to change is noted."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

from kbeval.store.times import utc, utc_text

log = logging.getLogger(__name__)

Notes = list[str]
REPLACEMENT = "\ufffd"
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def plain(value: Mapping[str, Any], name: str = "") -> tuple[dict[str, Any], Notes]:
    """The mapping with nothing in it that JSON or a database cannot keep, and what changed.

    Numbers that are not finite become None; numpy values plain numbers and lists; dates and
    times ISO text; lone surrogates and NULs U+FFFD. Each note names the key.

    >>> plain({"l1_top_similarity": float("nan"), "found": np.bool_(True)})
    ({'l1_top_similarity': None, 'found': True}, ['l1_top_similarity not finite'])
    """
    if _is_plain(value):
        return dict(value), []
    notes: Notes = []
    return _mapping(value, name, notes), notes


def clean_text(text: str, name: str, notes: Notes) -> str:
    r"""The text with lone surrogates and NULs replaced by U+FFFD; split pairs are joined.

    >>> notes = []
    >>> clean_text("a\0b\ud800", "query", notes), notes
    ('a�b�', ['query: 2 characters replaced'])
    """
    if text.isascii() and "\0" not in text:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    clean = joined.replace("\0", REPLACEMENT)
    count = clean.count(REPLACEMENT) - text.count(REPLACEMENT)
    if count:
        notes.append(f"{name}: {count} character{'s' * (count > 1)} replaced")
    return clean


def json_text(value: object) -> str:
    """Readable JSON text; raises `ValueError` for numbers that are not finite."""
    return _ENCODER.encode(value)


def read_json(text: str | bytes) -> object:
    """JSON from the database; what others wrote wrongly is kept, marked and logged."""
    try:
        return json.loads(text, parse_constant=lambda name: None)
    except ValueError:
        log.warning("a JSON column holds text that is no JSON: %.80r", text)
        return {"unreadable": str(text)}


def _is_plain(value: object) -> bool:
    try:
        text = json_text(value)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return "\\u0000" not in text


def _value(value: object, name: str, notes: Notes) -> object:
    if value is None or isinstance(value, bool):
        return value
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value, name, notes)
    notes.append(f"{name} kept as text, it was of type {type(value).__name__}")
    return clean_text(str(value), name, notes)


def _mapping(value: Mapping[Any, Any], name: str, notes: Notes) -> dict[str, Any]:
    plain_value = {}
    for key, item in value.items():
        text = clean_text(str(key), f"{name} key", notes)
        plain_value[text] = _value(item, f"{name}.{text}" if name else text, notes)
    return plain_value


def _sequence(value: Iterable[object], name: str, notes: Notes) -> list[object]:
    items = sorted(value, key=str) if isinstance(value, Set) else value
    return [_value(item, f"{name}[{i}]", notes) for i, item in enumerate(items)]


def _number(value: float, name: str, notes: Notes) -> float | None:
    if math.isfinite(value):
        return float(value)
    notes.append(f"{name} not finite")
    return None


def _instant(value: datetime, name: str, notes: Notes) -> str:
    instant, naive = utc(value)
    if naive:
        notes.append(f"{name} had no zone, taken as UTC")
    return utc_text(instant)


_CONVERSIONS: tuple[tuple[type | tuple[type, ...], Callable[[Any, str, Notes], Any]], ...] = (
    (Enum, lambda value, name, notes: _value(value.value, name, notes)),
    (np.datetime64, lambda value, name, notes: str(value)),
    (np.generic, lambda value, name, notes: _value(value.item(), name, notes)),
    (np.ndarray, lambda value, name, notes: _value(value.tolist(), name, notes)),
    (str, clean_text),
    (int, lambda value, name, notes: int(value)),
    ((float, Decimal), _number),
    (datetime, _instant),
    ((date, time), lambda value, name, notes: value.isoformat()),
    (Mapping, _mapping),
    ((list, tuple, Set), _sequence),
    (PurePath, lambda value, name, notes: clean_text(value.as_posix(), name, notes)),
    (bytes, lambda value, name, notes: clean_text(value.decode("utf-8", "replace"), name, notes)),
)
