"""One cell or JSON value -> what it means: every value checked, nothing guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kbeval.evaluation.reading.rows import parse_json

ANSWERS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,9}(\.0*)?\s*")
_GRADED = re.compile(r"(?s)(.*[^\s:])\s*:([+-]?[0-9]{1,2}(?:\.[0-9]+)?)")


class RowProblem(ValueError):
    """Why one row cannot be used; its text becomes the problem of a `Fault`."""


def pairs_of(value: object) -> tuple[tuple[str, int], ...] | None:
    """The documents and grades of a `relevant` entry; None where there is no entry.

    A text names documents separated by `|`, blanks around each do not count; a text that starts
    as a JSON list or mapping is read as such. `document:grade` gives a grade, which is 1
    otherwise: what follows the last colon must be a number of one or two digits, so that
    `host:8080` is a document. A document that itself ends so is written with its grade
    (`a:1:2`) or in a mapping (`{"a:1": 2}`). An empty text or list says "nothing".

    >>> pairs_of("docs/a.md:2|docs/b.md")
    (('docs/a.md', 2), ('docs/b.md', 1))
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _text_pairs(value)
    if isinstance(value, Mapping):
        return tuple((_document(doc), integer_of(grade)) for doc, grade in value.items())
    if isinstance(value, list):
        return tuple(_graded(_document(entry)) for entry in value)
    raise RowProblem(f"relevant is {shown(value)}; a text, a list or a mapping is expected")


def text_of(fields: Mapping[str, Any], key: str) -> str:
    """A text, or the digits of a whole number; "" where it is absent, null or blank."""
    value = fields.get(key)
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise RowProblem(f"{key} is {shown(value)}; a text is expected")
    return value if value.strip() else ""


def answerable_of(value: object) -> bool | None:
    """The declared answerability; None where nothing is declared."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().casefold()
        if not word:
            return None
        if word in ANSWERS:
            return ANSWERS[word]
    raise RowProblem(f"answerable is {shown(value)}; allowed are true and false")


def shown(value: object) -> str:
    """A value for a message: shortened, with the word for its type where it is no text."""
    words: dict[type, str] = {bool: "", int: "the number ", float: "the number "}
    if value is None:
        return "null"
    if isinstance(value, (list, Mapping)):
        return "a list" if isinstance(value, list) else "a mapping"
    text = repr(value)
    return words.get(type(value), "") + (text if len(text) <= 60 else text[:57] + "...")


def needs_of(value: object) -> tuple[tuple[str, ...], ...]:
    """Groups of ids, of each of which one is needed (method.md 2); () where there are none."""
    if isinstance(value, str):
        value = _json(value, "needs") if value.strip() else None
    if value is None:
        return ()
    groups: list[Any] = value if isinstance(value, list) else [value]
    for group in groups:
        if not isinstance(group, list) or not group or not all(isinstance(i, str) for i in group):
            raise RowProblem(
                f"needs holds {shown(group)}; allowed are groups of ids: [[id, id], [id]]"
            )
    return tuple(tuple(dict.fromkeys(group)) for group in groups)


def _text_pairs(cell: str) -> tuple[tuple[str, int], ...]:
    content = cell.strip()
    if re.match(r"\{|\[\s*[\"\]]", content):
        return pairs_of(_json(content, "relevant")) or ()
    entries = [entry.strip() for entry in cell.split("|")]
    found = tuple(_graded(entry) for entry in entries if entry)
    if content and not found:
        raise RowProblem(
            f"relevant {cell!r} holds separators only; name a document or leave it empty"
        )
    return found


def _graded(entry: str) -> tuple[str, int]:
    match = _GRADED.fullmatch(entry)
    return (match[1], integer_of(match[2])) if match else (entry, 1)


def _document(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RowProblem(f"relevant holds {shown(value)}; the id of a document is a text")
    return value


def _json(content: str, name: str) -> object:
    try:
        return parse_json(content)
    except ValueError as error:
        raise RowProblem(f"{name} {content[:40]!r}: {error}") from None


def integer_of(value: object) -> int:
    """A score: a whole number, also written as `1.0`."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value.split(".")[0])
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    raise RowProblem(f"score {shown(value)} is no whole number")
