"""Texts that say when to look something up: per document (REQ-02) and per domain (REQ-03)."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Annotated, Any

from pydantic import BaseModel, Field

from kbeval.domains.describe_prompts import document_prompt
from kbeval.domains.domain_text import DomainText, describe_domain
from kbeval.domains.llm import ConnectionFailed
from kbeval.domains.replies import Ask, Reply
from kbeval.domains.texts import clean
from kbeval.errors import LlmError
from kbeval.records import Document, Locale

__all__ = [
    "Batch",
    "DocumentFields",
    "DomainText",
    "Written",
    "describe_document",
    "describe_documents",
    "describe_domain",
]

log = logging.getLogger(__name__)

# the bounds go to servers that hold to a schema; a longer text is taken all the same
_ShortText = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": 40})]
_Covers = Field((), alias="covers", json_schema_extra={"minItems": 1, "maxItems": 8})
_When = Field("", alias="whenToRetrieve", json_schema_extra={"minLength": 1, "maxLength": 200})


class BothReply(BaseModel):
    """What the model is asked for when the author wrote neither field (REQ-02.3)."""

    covers: tuple[_ShortText, ...] = _Covers
    when_to_retrieve: str = _When


class CoversReply(BaseModel):
    """What the model is asked for when only the topics are missing."""

    covers: tuple[_ShortText, ...] = _Covers


class WhenReply(BaseModel):
    """What the model is asked for when only the sentence is missing."""

    when_to_retrieve: str = _When


_SCHEMAS: dict[tuple[str, ...], type[BaseModel]] = {
    ("covers", "when_to_retrieve"): BothReply,
    ("covers",): CoversReply,
    ("when_to_retrieve",): WhenReply,
}


@dataclass(frozen=True, slots=True)
class Written:
    """What the author wrote; it is never overwritten. Empty and None are missing."""

    covers: tuple[str, ...] = ()
    when_to_retrieve: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The fields that are to be generated."""
        blank = not (self.when_to_retrieve or "").strip()
        return ("covers",) * (not self.covers) + ("when_to_retrieve",) * blank


@dataclass(frozen=True, slots=True)
class DocumentFields:
    """The two fields of a document, and where they come from.

    `generated` are the fields the model wrote, `degraded` those it failed to write, each with
    its reason: they hold no topic, and the summary (REQ-02.6). The rest is the author's.
    """

    covers: tuple[str, ...]
    when_to_retrieve: str
    generated: tuple[str, ...] = ()
    degraded: Mapping[str, str] = field(default_factory=dict)
    unwrapped: bool = False  # the reply was more, or less, than valid JSON
    mended: tuple[str, ...] = ()  # fields whose type was wrong in the reply

    @property
    def failed(self) -> bool:
        """Whether something was asked for and nothing came."""
        return bool(self.degraded) and not self.generated


def describe_document(
    title: str,
    summary: str,
    body: str,
    *,
    author: Written,
    ask: Ask,
    locale: Locale = "zh",
) -> DocumentFields:
    """Have the missing fields written from title, summary and the body's first 1000 characters.

    With nothing missing the model is not asked. It never raises for a failure of the model: a
    field that cannot be had is degraded, with the reason.
    """
    missing = author.missing
    values: dict[str, Any] = {"covers": (), "when_to_retrieve": clean(summary)}
    values |= {name: getattr(author, name) for name in values if name not in missing}
    if not missing:
        return DocumentFields(**values)
    prompt = document_prompt(title, summary, body, asked=missing, locale=locale)
    try:
        reply: Reply[BaseModel] = ask(prompt, _SCHEMAS[missing])
    except LlmError as reason:
        log.info("%s: %s degraded: %s", title, ", ".join(missing), reason)
        return DocumentFields(**values, degraded=dict.fromkeys(missing, str(reason)))
    came = {name: getattr(reply.value, name) for name in missing if name not in reply.degraded}
    return DocumentFields(
        **(values | came),
        generated=tuple(came),
        degraded=dict(reply.degraded),
        unwrapped=reply.unwrapped,
        mended=reply.mended,
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """The fields of many documents, in the documents' order."""

    fields: tuple[DocumentFields, ...]

    @property
    def asked_count(self) -> int:
        """Documents for which the model was asked."""
        return sum(bool(one.generated or one.degraded) for one in self.fields)

    @property
    def degraded_count(self) -> int:
        """Documents of which at least one field is degraded."""
        return sum(bool(one.degraded) for one in self.fields)

    @property
    def failure(self) -> ConnectionFailed | None:
        """The error to end with when nothing came for any document that was asked about."""
        failed = [one for one in self.fields if one.failed]
        if not failed or len(failed) < self.asked_count:
            return None
        reasons = Counter(next(iter(one.degraded.values())) for one in failed)
        reason, count = reasons.most_common(1)[0]
        return ConnectionFailed(
            f"no field could be generated for any of {len(failed)} documents; "
            f"{count} of them: {reason}"
        )

    def raise_for_failure(self) -> None:
        """Raise `failure` if there is one; the fields are to be stored before."""
        if (failure := self.failure) is not None:
            raise failure


def describe_documents(
    documents: Sequence[Document],
    *,
    ask: Ask,
    locale: Locale = "zh",
    workers: int = 4,
    progress: Callable[[int, DocumentFields], None] | None = None,
) -> Batch:
    """Describe many documents, at most `workers` at a time.

    `progress` gets each document's position and fields as they come, in the calling thread, so
    that what is finished can be stored at once; an interrupt starts no further call.
    """
    described: dict[int, DocumentFields] = {}
    calls = [partial(_described, document, ask, locale) for document in documents]
    for position, fields in _as_they_come(calls, workers):
        described[position] = fields
        if progress is not None:
            progress(position, fields)
    return Batch(tuple(described[position] for position in range(len(documents))))


def _as_they_come(
    calls: Sequence[Callable[[], DocumentFields]], workers: int
) -> Iterator[tuple[int, DocumentFields]]:
    """Position and result of each call; the threads are daemons, so no exit waits for a model."""
    todo: SimpleQueue[int] = SimpleQueue()
    came: SimpleQueue[tuple[int, DocumentFields | BaseException]] = SimpleQueue()
    ended = threading.Event()

    def work() -> None:
        with suppress(Empty):
            while not ended.is_set():
                position = todo.get_nowait()
                try:
                    came.put((position, calls[position]()))
                except BaseException as error:
                    came.put((position, error))

    for position in range(len(calls)):
        todo.put(position)
    for _ in range(min(workers, len(calls))):
        threading.Thread(target=work, name="kbeval-describe", daemon=True).start()
    try:
        for _ in calls:
            position, result = came.get()
            if isinstance(result, BaseException):
                raise result
            yield position, result
    finally:
        ended.set()


def _described(document: Document, ask: Ask, locale: Locale) -> DocumentFields:
    return describe_document(
        document.title,
        document.summary,
        document.body,
        author=Written(document.covers, document.when_to_retrieve),
        ask=ask,
        locale=locale,
    )
