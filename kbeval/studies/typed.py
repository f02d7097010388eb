"""A value as the type that a notebook declares for it, or a refusal that says what is expected."""

from __future__ import annotations

import ast
import datetime
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from kbeval.studies.spelled import plain, spelling

SCALARS = ("str", "int", "float", "bool", "Path")
KINDS = (*SCALARS, "dict", "list", *(f"list[{kind}]" for kind in SCALARS), "any")
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def kind_of(value: object) -> str:
    """The kind a default value declares; None declares nothing and is `any`.

    >>> kind_of(0.5), kind_of([1, 2.5]), kind_of(["a"]), kind_of([]), kind_of(None)
    ('float', 'list[float]', 'list[str]', 'list', 'any')
    """
    if isinstance(value, (list, tuple)):
        kinds = {kind_of(item) for item in value}
        if kinds == {"int", "float"}:
            return "list[float]"
        return f"list[{kinds.pop()}]" if len(kinds) == 1 and kinds <= set(SCALARS) else "list"
    name = type(value).__name__
    return name if name in KINDS else "any"


def kind_of_annotation(node: ast.expr) -> str | None:
    """The kind an annotation declares (`X | None` declares X); None if it is not understood.

    >>> [kind_of_annotation(ast.parse(text, mode="eval").body)
    ...     for text in ("str | None", "list[float]", "'Path'", "complex")]
    ['str', 'list[float]', 'Path', None]
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return kind_of_annotation(ast.parse(node.value, mode="eval").body)
        except SyntaxError:
            return None
    text = re.sub(r"^(typing\.)?Optional\[(.*)\]$", r"\2", ast.unparse(node))
    name = re.sub(r"\s*\|\s*None$|^None\s*\|\s*", "", text)
    name = re.sub(r"^dict\[.*\]$", "dict", name)
    name = {"object": "any", "Any": "any"}.get(name, name)
    return name if name in KINDS else None


def typed(value: object, kind: str) -> object:
    """`value` as plain Python of the declared kind; null stays null (PM-01).

    Text is never read as anything but what is declared. Numpy scalars and arrays are accepted.
    Raises `ValueError` with the words for what was expected.

    >>> typed("1e5", "str"), typed("1e5", "float"), typed("False", "bool"), typed("1,2", "list")
    ('1e5', 100000.0, False, ['1', '2'])
    """
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if value is None:
        return None
    if kind.startswith("list"):
        return _list(value, kind[5:-1] or "any")
    return _CONVERSIONS[kind](value)


def _list(value: object, kind: str) -> list[object]:
    value = spelling(value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")] if value.strip() else []
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"a list of {kind} values")
    return [typed(item, kind) for item in value]


def _text(value: object) -> str:
    value = spelling(value)
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError("text (str)")


def _whole(value: object) -> int:
    value = spelling(value)
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("a whole number (int)")


def _number(value: object) -> float:
    value = spelling(value)
    if isinstance(value, str) and "_" not in value:
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ValueError("a finite number (float)")


def _flag(value: object) -> bool:
    word = str(spelling(value)).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError("true or false (bool)")


def _mapping(value: object) -> dict[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            value = None
    if not isinstance(value, Mapping):
        raise ValueError("a mapping (dict), on the command line as JSON")
    return {_text(key): _anything(item) for key, item in value.items()}


def _anything(value: object) -> object:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, (list, tuple)):
        return [_anything(item) for item in value]
    value = plain(value)
    if isinstance(value, (datetime.date, Path)):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("finite numbers")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise ValueError("text, numbers, flags, lists or mappings")


_CONVERSIONS: dict[str, Callable[[object], object]] = {
    "str": _text,
    "Path": _text,
    "int": _whole,
    "float": _number,
    "bool": _flag,
    "dict": _mapping,
    "any": _anything,
}
