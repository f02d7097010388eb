"""The fields a document may declare, checked in one place for front matter and BEIR metadata.

A field is text or a list of texts; everything else an author writes is kept as metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kbeval.records import Fault

TEXT_FIELDS = ("title", "summary", "category", "when_to_retrieve")
LIST_FIELDS = ("keywords", "tags", "aliases", "covers")
KNOWN_FIELDS = TEXT_FIELDS + LIST_FIELDS
_SPELLINGS = {"whenToRetrieve": "when_to_retrieve"}  # the specs write both
_ONE_LINE = ("title", "category")
_COMMA_SEPARATED = ("keywords", "tags")  # an alias or a covered topic may hold a comma
_COMMAS = re.compile("[,，、]")


class Rejected(Exception):
    """An item that cannot be taken: what is wrong and what to do; the reader makes it a `Fault`."""

    def __init__(self, problem: str, remedy: str = "", line: int | None = None) -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.line = problem, remedy, line


@dataclass(frozen=True, slots=True)
class Entry:
    """One key and its value as written: text, None, a list, a mapping or a JSON number."""

    key: str
    value: Any
    line: int | None = None  # physical line, from 1


def checked_fields(entries: Iterable[Entry], file: str) -> tuple[dict[str, Any], list[Fault]]:
    """Known fields as text or tuple of texts, the rest as written; and what was wrong (REQ-05).

    A field that is empty is absent. One text for a list field is one entry; for `keywords` and
    `tags` it is split at commas. A key written twice is a warning: lists are merged, of texts
    the first is kept. A wrong type is an error. `whenToRetrieve` is `when_to_retrieve`.
    """
    fields: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, written in _by_name(entries).items():
        lines = [entry.line for entry in written]
        if len(written) > 1:
            faults.append(_twice(name, lines, file))
        elif near := _near_miss(name):
            problem = f"key {name!r} is kept as metadata, not read as a field"
            faults.append(Fault(file, problem, f"write {near!r}", lines[0], "warning"))
        try:
            value, empty_count = _value(name, [entry.value for entry in written])
        except Rejected as wrong:
            faults.append(Fault(file, wrong.problem, wrong.remedy, lines[0]))
            continue
        if empty_count:
            problem = f"{name} has {empty_count} empty entr{'y' if empty_count == 1 else 'ies'}"
            faults.append(Fault(file, problem, "remove or fill it", lines[0], "warning"))
        if value or name not in KNOWN_FIELDS:
            fields[name] = value
    return fields, faults


def text_value(name: str, value: Any) -> str:  # noqa: ANN401
    """The value of a text field, without blanks around it; None is empty, a whole number its text.

    Raises `Rejected` for a list, a mapping, a fraction or a truth value.

    >>> text_value("title", " Rate limits "), text_value("title", None)
    ('Rate limits', '')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None or isinstance(value, str):
        text = (value or "").strip()
        return one_line(text) if name in _ONE_LINE else text
    raise Rejected(f"{name} is {kind_of(value)}; one text is expected", f"put the {name} in quotes")


def kind_of(value: Any) -> str:  # noqa: ANN401
    """What a value is, in the user's words, for the message that refuses it."""
    kinds = {bool: "a truth value", int: "a number", float: "a number", str: "a text"}
    return ({type(None): "missing", list: "a list"} | kinds).get(type(value), "a mapping")


def one_line(text: str) -> str:
    r"""The text with its line breaks, and the blanks around them, turned into single blanks.

    >>> one_line("Rate  limits\n  per tenant ")
    'Rate  limits per tenant'
    """
    return " ".join(line for part in text.splitlines() if (line := part.strip()))


def _by_name(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    by_name: dict[str, list[Entry]] = {}
    for entry in entries:
        by_name.setdefault(_SPELLINGS.get(entry.key, entry.key), []).append(entry)
    return by_name


def _value(name: str, written: list[Any]) -> tuple[Any, int]:
    """The value of a field and the number of its empty entries; the first text wins."""
    if name in TEXT_FIELDS:
        return next(filter(None, [text_value(name, value) for value in written]), ""), 0
    if name not in LIST_FIELDS:
        return written[0], 0
    texts = [text for value in written for text in _texts(name, value)]
    return tuple(dict.fromkeys(filter(None, texts))), texts.count("")


def _texts(name: str, value: Any) -> list[str]:  # noqa: ANN401
    """The entries of a list field, empty ones as empty texts. Raises `Rejected`."""
    if isinstance(value, str) and value.strip():
        parts = _COMMAS.split(value) if name in _COMMA_SEPARATED else [value]
        return [part for text in parts if (part := one_line(text))]
    if value is None or isinstance(value, str):
        return []
    if not isinstance(value, list):
        raise Rejected(
            f"{name} is {kind_of(value)}; a list of texts is expected",
            "write one entry a line, each after '- '",
        )
    for entry in value:
        if not isinstance(entry, (str, int, type(None))) or isinstance(entry, bool):
            raise Rejected(
                f"{name} has the entry {repr(entry)[:60]}, {kind_of(entry)}; a text is expected",
                "put the entry in quotes",
            )
    return ["" if entry is None else one_line(str(entry)) for entry in value]


def _twice(name: str, lines: list[int | None], file: str) -> Fault:
    numbers = [str(line) for line in lines]
    where = f"on lines {', '.join(numbers[:-1])} and {numbers[-1]}"
    taken = "the lists are taken together" if name in LIST_FIELDS else "the first value is taken"
    problem = f"key {name!r} is written {len(lines)} times, {where}; {taken}"
    return Fault(file, problem, "merge them into one", lines[-1], "warning")


def _near_miss(name: str) -> str | None:
    """The known field that a key seems to mean: `Title`, `when-to-retrieve`."""
    if name in KNOWN_FIELDS:
        return None
    plain = re.sub(r"[-_ ]", "", name).casefold()
    return next((known for known in KNOWN_FIELDS if known.replace("_", "") == plain), None)
