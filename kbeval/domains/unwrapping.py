"""The JSON object in a model's reply: bare, fenced, in prose, after thinking, slightly broken."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

MAX_CHARACTERS = 200_000  # of a reply; a longer one is a model that ran away
_TAG = r"(?:think|thinking|thought|reasoning|analysis)"
_OPEN = re.compile(rf"<\s*{_TAG}\s*>", re.IGNORECASE)
_CLOSE = re.compile(rf"<\s*/\s*{_TAG}\s*>", re.IGNORECASE)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
_NOT_JSON = (ValueError, RecursionError)


class NoObject(Exception):
    """A reply without an object that could be meant; its text is the reason."""


def unwrap(
    text: str, keys: Collection[str], *, cut_off: bool = False
) -> tuple[dict[str, Any], bool]:
    """The object meant by a reply, and whether the reply was more or less than that object.

    Valid JSON is taken as it is. Otherwise a leading thinking part goes, and of the objects that
    remain the one with most of `keys` is meant, the last of equals; a broken one is repaired
    where it is complete. Raises `NoObject`; with `cut_off` (the model ran out of tokens) too.
    """
    if len(text) > MAX_CHARACTERS:
        raise NoObject(f"reply of {len(text)} characters")
    try:
        whole = _DECODER.decode(text.strip())
    except _NOT_JSON:
        whole = None
    if isinstance(whole, str):
        return unwrap(whole, keys, cut_off=cut_off)[0], True
    if isinstance(whole, dict | list):
        found = _meant(_flat(whole), keys)
        return found, found is not whole
    return _meant(_in_prose(text, cut_off=cut_off), keys), True


def plain_key(key: str) -> str:
    """A key as it is compared: `whenToRetrieve` and `when_to_retrieve` are one."""
    return re.sub(r"[-_ ]", "", key).casefold()


def _meant(objects: list[dict[str, Any]], keys: Collection[str]) -> dict[str, Any]:
    """The object with most of the keys, the last of equals, looked for one level deep as well."""
    if not objects:
        raise NoObject("no JSON object in the reply")
    wanted = {plain_key(key) for key in keys}
    inner = [value for one in objects for value in one.values() if isinstance(value, dict)]
    for candidates in (objects, inner):
        counts = [len(wanted & {plain_key(key) for key in one}) for one in candidates]
        if any(counts):
            return candidates[len(counts) - 1 - counts[::-1].index(max(counts))]
    if not any(objects):
        raise NoObject("empty object")
    found = ", ".join(repr(key)[:40] for key in list(objects[-1])[:5])
    raise NoObject(f"none of the keys {', '.join(keys)} in the reply (found {found})")


def _flat(whole: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    return [one for one in (whole if isinstance(whole, list) else [whole]) if isinstance(one, dict)]


def _in_prose(text: str, *, cut_off: bool) -> list[dict[str, Any]]:
    """The objects outside the thinking part, in their order."""
    text = _after_leading_thinking(text.strip("\ufeff \t\r\n"))
    spans = list(_objects(text, cut_off=cut_off))
    ends = [
        close.end()
        for close in _CLOSE.finditer(text)
        if not any(start <= close.start() < end for start, end, _ in spans)
    ]
    answers = [found for start, _, found in spans if start >= max(ends, default=0)]
    if not answers and "{" in text:
        raise NoObject("reply cut off" if cut_off else "no complete JSON object in the reply")
    if not answers:
        raise NoObject(f"no JSON object in the reply ({text[:60]!r})")
    return answers


def _after_leading_thinking(text: str) -> str:
    while opened := _OPEN.match(text):
        closed = _CLOSE.search(text, opened.end())
        if closed is None:
            raise NoObject("thinking without an end")
        text = text[closed.end() :].lstrip()
    return text


def _objects(text: str, *, cut_off: bool) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Start, end and value of each outermost object; one that never closes ends the search.

    Of a reply that was cut off nothing is repaired: its end would be invented.
    """
    start = text.find("{")
    while start >= 0:
        try:
            found, end = _DECODER.raw_decode(text, start)
        except _NOT_JSON:
            ended = None if cut_off else _closing_brace(text, start)
            if ended is None:
                return
            found, end = _repaired(text[start:ended]), ended
        if isinstance(found, dict):
            yield start, end, found
        start = text.find("{", end)


def _closing_brace(text: str, start: int) -> int | None:
    """The end of the braces that open at `start`, None where they never close."""
    depth = 0
    for token in _STRING.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end()
    return None


def _repaired(piece: str) -> Any:  # noqa: ANN401
    import json_repair

    try:
        return json_repair.loads(piece, skip_json_loads=True)
    except _NOT_JSON:
        return None
