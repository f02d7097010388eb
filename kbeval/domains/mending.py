"""Right keys, wrong types: each field of a found object is mended alone, or reported (LJ-02)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from kbeval.corpus.fields import kind_of, one_line
from kbeval.domains.texts import clean
from kbeval.domains.unwrapping import plain_key

_COMMAS = re.compile(r"[,，、;；\n]")
_BULLET = re.compile(r"^[-*•]\s+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_QUOTED_LIST = re.compile(rf"\s*(?:{_QUOTED.pattern})(?:\s*[,，]\s*(?:{_QUOTED.pattern}))*\s*")
_JOINT = "；"


class Mended(NamedTuple):
    """The values that could be had, by field; the fields that were changed; why others failed."""

    values: dict[str, Any]
    mended: tuple[str, ...]
    degraded: dict[str, str]


class _Unusable(Exception):
    """A value of which no text can be made; its text is the reason."""


def reply_keys(schema: type[BaseModel]) -> tuple[str, ...]:
    """The keys the model is asked for: the fields' aliases where they have one."""
    return tuple(field.alias or name for name, field in schema.model_fields.items())


def mend(found: Mapping[str, Any], schema: type[BaseModel]) -> Mended:
    """Make each value fit its field: texts of a list, one text, anything else as pydantic reads it.

    A text for a list is read as a list or split at commas; nested lists are flattened one level;
    numbers become text; empty entries go; a list for a text is joined. What still does not fit
    is left out with a reason, as is a text without a letter or digit.
    """
    by_key = {plain_key(key): value for key, value in found.items()}
    values, mended, degraded = dict[str, Any](), list[str](), dict[str, str]()
    for name, field in schema.model_fields.items():
        key = next((k for k in _spellings(name, field) if k in by_key), None)
        if key is None:
            degraded[name] = "missing in the reply"
            continue
        try:
            values[name] = _fitting(by_key[key], field)
        except _Unusable as wrong:
            degraded[name] = str(wrong)
            continue
        if values[name] != _as_read(by_key[key]):
            mended.append(name)
    degraded |= _rejected(values, schema)
    kept = {name: value for name, value in values.items() if name not in degraded}
    return Mended(kept, tuple(name for name in mended if name in kept), degraded)


def _spellings(name: str, field: FieldInfo) -> list[str]:
    return [plain_key(field.alias or name), plain_key(name)]


def _as_read(value: Any) -> Any:  # noqa: ANN401
    return tuple(value) if isinstance(value, list) else value


def _rejected(values: Mapping[str, Any], schema: type[BaseModel]) -> dict[str, str]:
    """The fields whose mended value still breaks a rule of the schema."""
    by_key = {field.alias or name: name for name, field in schema.model_fields.items()}
    try:
        schema.model_validate({key: values[n] for key, n in by_key.items() if n in values})
    except ValidationError as error:
        return {
            by_key[str(fault["loc"][0])]: one_line(fault["msg"])
            for fault in error.errors()
            if fault["loc"] and by_key.get(str(fault["loc"][0])) in values
        }
    return {}


def _fitting(value: Any, field: FieldInfo) -> Any:  # noqa: ANN401
    if get_origin(field.annotation) in (list, tuple):
        return _texts(value)
    return _sentence(value) if field.annotation is str else value


def _texts(value: Any) -> tuple[str, ...]:  # noqa: ANN401
    entries = list(dict.fromkeys(filter(None, map(_text, _flattened(_listed(value))))))
    if not entries:
        raise _Unusable("no entry")
    return tuple(entries)


def _sentence(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, list):
        value = _JOINT.join(dict.fromkeys(filter(None, map(_text, value))))
    text = _text(value)
    if not text:
        raise _Unusable("empty")
    return text


def _listed(value: Any) -> list[Any]:  # noqa: ANN401
    """A list; one text is read as the list it shows, or split at its commas."""
    if isinstance(value, list):
        return value
    text = value.strip() if isinstance(value, str) else _text(value)
    if text.startswith("[") and text.endswith("]"):
        try:
            return list(json.loads(text))
        except (ValueError, RecursionError):
            text = text[1:-1]
        if _QUOTED_LIST.fullmatch(text):
            return [quoted[1:-1] for quoted in _QUOTED.findall(text)]
    return [_BULLET.sub("", part.strip()).strip("'\"“”‘’") for part in _COMMAS.split(text)]


def _flattened(entries: Iterable[Any]) -> list[Any]:
    return [part for one in entries for part in (one if isinstance(one, list) else [one])]


def _text(value: Any) -> str:  # noqa: ANN401
    """One line of text; empty for null and for what holds no letter or digit."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise _Unusable(f"{kind_of(value)} where a text is due")
    text = "" if value is None else one_line(clean(str(value)))
    return text if any(character.isalnum() for character in text) else ""
