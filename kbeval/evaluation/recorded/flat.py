"""Spans of OpenTelemetry as flat mappings, in whichever of the usual nestings they were written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
RESOURCES = ("resourceSpans", "resource_spans")
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue", "bytesValue")


def spans_in(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The spans of an OTLP export request, or the value itself where it is no request."""
    resources = next((value[key] for key in RESOURCES if key in value), None)
    if resources is None:
        yield value
        return
    for resource in _mappings(resources):
        for scope in _mappings(next((resource[key] for key in SCOPES if key in resource), None)):
            yield from _mappings(scope.get("spans"))


def flat(span: Mapping[str, Any]) -> dict[str, Any]:
    """One key for each value: `attributes.retrieval.documents.0.document.id`.

    Nested mappings, lists, flattened keys and OTLP's lists of `{key, value}` come out alike.

    >>> flat({"attributes": [{"key": "session.id", "value": {"stringValue": "s1"}}]})
    {'attributes.session.id': 's1'}
    >>> flat({"attributes": {"session": {"id": "s1"}}})
    {'attributes.session.id': 's1'}
    """
    found: dict[str, Any] = {}
    waiting: list[tuple[str, Any]] = [("", span)]
    while waiting:
        name, value = waiting.pop()
        value = _plain(value)
        if isinstance(value, Mapping):
            waiting += [(f"{name}.{key}" if name else str(key), v) for key, v in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{name}.{place}", entry) for place, entry in enumerate(value)]
        else:
            found[name] = value
    return found


def _plain(value: object) -> object:
    """A value without OTLP's wrapping."""
    if isinstance(value, list) and value and all(_is_pair(entry) for entry in value):
        return {str(entry["key"]): entry["value"] for entry in value}
    if isinstance(value, Mapping) and len(value) == 1:
        (name, inner), *_ = value.items()
        if name in _VALUES:
            return inner
        if name == "arrayValue" and isinstance(inner, Mapping):
            return inner.get("values") or []
        if name == "kvlistValue" and isinstance(inner, Mapping):
            return _plain(inner.get("values") or [])
    return value


def _is_pair(entry: object) -> bool:
    return isinstance(entry, Mapping) and set(entry) == {"key", "value"}


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    yield from (
        (entry for entry in value if isinstance(entry, Mapping)) if isinstance(value, list) else ()
    )
