"""Retriever spans of OpenInference as look-ups: JSON lines of spans, or OTLP exports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kbeval.evaluation.queries import Turn
from kbeval.evaluation.reading.rows import parse_json, read_text
from kbeval.evaluation.reading.values import RowProblem, text_of
from kbeval.evaluation.recorded.account import Account, tolerant
from kbeval.evaluation.recorded.flat import RESOURCES, flat, spans_in
from kbeval.evaluation.recorded.instants import instant_of
from kbeval.evaluation.recorded.turns import LookUp, query_in

RETRIEVER = "RETRIEVER"
KIND = ("openinference.span.kind", "span_kind")
SESSION = ("session.id",)
TRACE = ("traceId", "trace_id", "context.trace_id", "context.traceId")
BEGAN = ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime")
NAMED = ("file_path", "path", "source", "file_name")  # in a document's metadata
_DOCUMENT = re.compile(r"retrieval\.documents\.(\d{1,9})\.(?:document\.)?(.+)")

Attributes = Mapping[str, Any]


def looks_like_span(value: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a span, or a request that holds some."""
    keys = set(value)
    nested = any(key in keys for key in ("attributes", *RESOURCES, *KIND))
    return nested or any(key.startswith(("attributes.", "openinference.")) for key in keys)


def read_spans(path: Path, account: Account) -> Iterator[LookUp]:
    """The retriever spans of a file as look-ups; spans of other kinds are counted.

    A span without a session takes that of its trace, where another span of it names one. Raises
    `DatasetError` for a file that cannot be read.
    """
    by_trace: dict[Any, Any] = {}
    retrievers: list[tuple[int, Attributes]] = []
    for place, nested in _spans(path, account):
        span = _attributes(nested)
        if (session := _first(span, SESSION)) and (trace := _first(span, TRACE)):
            by_trace.setdefault(trace, session)
        if str(_first(span, KIND) or "").upper() == RETRIEVER:
            retrievers.append((place, span))
        else:
            account.meet("other_spans", place)
    named = any(_documents(span) for _, span in retrievers)
    for place, retriever in retrievers:
        session = _first(retriever, SESSION) or by_trace.get(_first(retriever, TRACE))
        try:
            yield _look_up(retriever, session, place, account=account, documents=named)
        except RowProblem as problem:
            account.leave_out("malformed", place, str(problem), remedy="it is left out")


def _look_up(
    span: Attributes, session: object, place: int, *, account: Account, documents: bool
) -> LookUp:
    """One retriever span; `documents` says whether spans of this file name what they returned."""
    read = partial(tolerant, place=place, account=account)
    session_id = text_of({"session.id": session}, "session.id")
    query, problem = query_in({"input.value": _query(span)}, "input.value")
    returned = read("unnamed_documents", _returned, span) if documents else None
    time, offset = read("unreadable_time", instant_of, _first(span, BEGAN)) or (None, None)
    turn = Turn(query, metadata={"row": place}, returned=returned, asked_at=time)
    return LookUp(turn, session_id or None, place, offset, problem)


def _spans(path: Path, account: Account) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Every span with the line it stands on."""
    for line, value, problem in _values(read_text(path)):
        objects = value if isinstance(value, list) else [value]
        for one in objects:
            if problem or not (isinstance(one, Mapping) and looks_like_span(one)):
                what = problem or "this is no span: it has no attributes"
                account.leave_out("malformed", line, what, remedy="it is left out")
            else:
                yield from ((line, span) for span in spans_in(one))


def _values(text: str) -> Iterator[tuple[int, object, str]]:
    """Line, JSON value and problem of each line, or of the whole text where that is one value."""
    lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if len(lines) > 1 and lines[0][1].strip() in ("{", "["):
        lines = [(lines[0][0], text)]
    for number, content in lines:
        try:
            yield number, parse_json(content), ""
        except ValueError as error:
            yield number, None, str(error)


def _attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    """The span's values by name; lists that were kept as JSON text are opened."""
    values = flat(span)
    for key in [key for key in values if key.endswith("retrieval.documents")]:
        if isinstance(values[key], str):
            values |= flat({key: _json(values.pop(key))})
    return {key.removeprefix("attributes."): value for key, value in values.items()}


def _query(span: Attributes) -> object:
    """The text that was looked up; of an input in JSON its query."""
    value = span.get("input.value")
    if isinstance(value, str) and "json" in str(span.get("input.mime_type", "")):
        inner = _json(value)
        if isinstance(inner, Mapping):
            keys = ("query", "input", "question", "str_or_query_bundle")
            return next((inner[k] for k in keys if isinstance(inner.get(k), str)), value)
        return inner if isinstance(inner, str) else value
    return value


def _returned(span: Attributes) -> tuple[str, ...]:
    documents = _documents(span)
    return tuple(dict.fromkeys(_id(documents[place]) for place in sorted(documents)))


def _documents(span: Attributes) -> dict[int, dict[str, Any]]:
    """The fields of each document by its place in the answer."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in span.items():
        if match := _DOCUMENT.fullmatch(key):
            found.setdefault(int(match[1]), {})[match[2]] = value
    return found


def _id(document: Mapping[str, Any]) -> str:
    """Its id, else what its metadata name it. Raises `RowProblem`."""
    metadata = document.get("metadata")
    inner = _json(metadata) if isinstance(metadata, str) else None
    named = inner if isinstance(inner, Mapping) else {}
    candidates = [document.get("id"), *(document.get(f"metadata.{key}") for key in NAMED)]
    candidates += [named.get(key) for key in NAMED]
    found = next((str(value) for value in candidates if value not in (None, "")), "")
    if not found:
        raise RowProblem("a returned document has neither an id nor a path in its metadata")
    return found


def _json(text: str) -> object:
    try:
        return parse_json(text)
    except ValueError:
        return text


def _first(span: Attributes, names: tuple[str, ...]) -> Any:  # noqa: ANN401
    return next((span[name] for name in names if span.get(name) not in (None, "")), None)
