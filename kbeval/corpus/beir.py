"""Documents from the corpus.jsonl of a BEIR set; a bad line costs that line (design.md 9, 14)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbeval.corpus.fields import Entry, Rejected, checked_fields, kind_of, one_line, text_value
from kbeval.corpus.identity import UNCATEGORIZED, check_text, declared_document
from kbeval.errors import CorpusError
from kbeval.records import Document, Fault


def beir_documents(path: Path) -> Iterator[tuple[Document | None, tuple[Fault, ...]]]:
    """The documents of a corpus.jsonl. Raises `CorpusError` if it cannot be read at all."""
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
    if content.lstrip().startswith(b"["):
        raise CorpusError(f"{path}: this is a JSON array; one object per line is expected")
    seen: dict[str, int] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            document, faults = _document(_json_object(line), str(path), number)
            if document and (first := seen.setdefault(document.path, number)) != number:
                problem = f"_id {document.path!r} stands on line {first} already"
                raise Rejected(problem, "give every document an _id of its own")
        except Rejected as wrong:
            yield None, (Fault(str(path), wrong.problem, wrong.remedy, number),)
        else:
            yield document, faults


def _document(
    record: dict[str, Any], file: str, line: int
) -> tuple[Document | None, tuple[Fault, ...]]:
    """One document of a line; the set's own `_id` is its path, as it stands."""
    id_, title, body = _identity(record)
    declared = record.get("metadata") or {}
    if not isinstance(declared, dict):
        raise Rejected(
            f"metadata is {kind_of(declared)}; an object is expected", "write {} for none"
        )
    own = ("_id", "title", "text", "metadata")
    kept = {name: value for name, value in record.items() if name not in own} | declared
    domain = one_line(text_value("domain", kept.pop("domain", None)))
    known = {name: value for name, value in kept.items() if name != "title"}
    fields, faults = checked_fields((Entry(*pair, line) for pair in known.items()), file)
    if any(fault.severity == "error" for fault in faults):
        return None, tuple(faults)
    unread = ("title", "category") if domain else ("title",)
    aside = {name: kept[name] for name in unread if name in kept}
    document = declared_document(
        fields,
        path=id_,
        title=title,
        body=body,
        domain=domain or fields.get("category", UNCATEGORIZED),
    )
    return replace(document, metadata={**document.metadata, **aside}), tuple(faults)


def _identity(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """Id, title and text of a line, the text exactly as written. Raises `Rejected`."""
    id_, title, body = (record.get(name) for name in ("_id", "title", "text"))
    if not isinstance(id_, (str, int)) or isinstance(id_, bool):
        raise Rejected(f"_id is {kind_of(id_)}; a text is expected", "give the document an _id")
    if not str(id_).strip():
        raise Rejected("_id is empty", "give the document an _id")
    if not isinstance(body, (str, type(None))):
        raise Rejected(f"text is {kind_of(body)}; a text is expected", "put it in quotes")
    title, body = text_value("title", title), body or ""
    if not title and not body.strip():
        raise Rejected("neither title nor text", "write one of them, or remove the line")
    return str(id_), title, body


def _json_object(line: bytes) -> dict[str, Any]:
    """The object on one line. Raises `Rejected`: not UTF-8, not JSON, a key twice, NaN."""
    try:
        record = json.loads(
            line.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        problem = f"not UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
        raise Rejected(problem, "save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        problem = f"not valid JSON: {error.msg} at column {error.colno}"
        raise Rejected(problem, "write one object per line") from None
    except (ValueError, RecursionError):
        raise Rejected("a number or a nesting beyond all bounds", "write it as a text") from None
    if not isinstance(record, dict):
        raise Rejected(f"the line is {kind_of(record)}", "write one object per line")
    if b"\\u" in line:
        check_text(json.dumps(record, ensure_ascii=False), "the line")
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Rejected(f"key {twice!r} is written twice", "keep one of them")
    return record


def _no_constant(name: str) -> Any:  # noqa: ANN401
    raise Rejected(f"{name} is not valid JSON", "write null or a number")
