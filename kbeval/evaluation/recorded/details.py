"""What `retrieval_details` of a record tell: what was handed out, in which version, from where."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kbeval.evaluation.reading.values import RowProblem, shown

ID_KEYS = ("file_path", "filePath", "path", "id", "source")  # under which a document is named
MEMORY_KEYS = ("withheld", "content_changed", "retrieved_domains")  # filled by a memory only


def details_of(value: object) -> dict[str, Any]:
    """The details as a mapping, from a mapping or JSON text; numbers that are none become null.

    Nothing recorded is an empty mapping. Raises `RowProblem`.
    """
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, str):
        value = _parsed(value) if value.strip() else None
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RowProblem(f"retrieval_details are {shown(value)}; a JSON object is expected")
    return dict(value)


def paths_of(value: object) -> tuple[str, ...] | None:
    """Documents of a `returned` entry, the primary first, each once; None where there is none.

    A text names them separated by `|`, or is a JSON list; an empty one says that nothing was
    returned. A list holds ids, or mappings that name the document. Raises `RowProblem`.

    >>> paths_of("a.md | b.md"), paths_of('["a.md"]'), paths_of([{"file_path": "a.md"}])
    (('a.md', 'b.md'), ('a.md',), ('a.md',))
    """
    if isinstance(value, str):
        content = value.strip()
        value = _parsed(content) if content.startswith("[") else content.split("|")
        if isinstance(value, list):
            value = [entry for entry in value if not isinstance(entry, str) or entry.strip()]
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise RowProblem(f"the returned documents are {shown(value)}; a list of ids is expected")
    return tuple(dict.fromkeys(_document(entry) for entry in value))


def returned_of(
    details: Mapping[str, Any], level: str | None, reason: str | None
) -> tuple[str, ...] | None:
    """What a look-up handed out, as its details tell; None where they do not.

    The specs' own keys do not list documents, but say when there were none.
    """
    if isinstance(details.get("handed_out"), list):
        return paths_of(details["handed_out"])
    nothing = level == "NOT_FOUND" or reason == "ALL_RETRIEVED"
    return () if nothing else None


def handed_out(details: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The entries of the documents that were handed out, malformed ones passed over."""
    entries = details.get("handed_out")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            yield entry


def versions_of(details: Mapping[str, Any]) -> dict[str, str]:
    """The content hash of each document handed out, where recorded."""
    return {
        str(entry["file_path"]): str(entry["content_hash"])
        for entry in handed_out(details)
        if entry.get("file_path") and entry.get("content_hash")
    }


def texts_at(details: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts among the details, empty where it is absent or no such list."""
    entries = details.get(key)
    return tuple(e for e in entries if isinstance(e, str)) if isinstance(entries, list) else ()


def remembered(details: Mapping[str, Any], reason: str | None) -> bool | None:
    """Whether this look-up went through a session's memory; None where nothing tells.

    A memory names a reason, keeps documents back, or lists the domains that the session was
    given, this answer's included. So an answer with documents and without domains had none.
    """
    if reason or details.get("dedup_reason") or any(details.get(key) for key in MEMORY_KEYS):
        return True
    return False if details.get("handed_out") and details.get("retrieved_domains") == [] else None


_DECODER = json.JSONDecoder(parse_constant=lambda name: None)  # NaN and infinities


def _parsed(content: str) -> object:
    try:
        value: object = _DECODER.decode(content)
    except (ValueError, RecursionError):
        raise RowProblem("the text of a JSON column is no JSON") from None
    return value


def _document(entry: object) -> str:
    if isinstance(entry, dict):
        entry = entry.get(ID_KEYS[0]) or next((entry[k] for k in ID_KEYS if entry.get(k)), None)
    if isinstance(entry, int) and not isinstance(entry, bool):
        return str(entry)
    if not isinstance(entry, str) or not entry.strip():
        raise RowProblem("a returned document has no id")
    return entry.strip()
