"""The generated fields and texts, from a model or, where none is configured, marked as missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kbeval.domains.describe import (
    Batch,
    DocumentFields,
    Written,
    describe_document,
    describe_documents,
)
from kbeval.domains.domain_text import DomainText, describe_domain
from kbeval.domains.llm import ConnectionFailed, Llm
from kbeval.domains.texts import first_sentence
from kbeval.records import Document, Locale
from kbeval.service.stored import Entry, filled

NO_LLM = "no LLM configured"
WORKERS = 4  # documents described at a time

Came = Callable[[int, DocumentFields], None]


@dataclass(frozen=True, slots=True)
class Describer:
    """Writes what authors left out, in the language of `locale`; without `llm` nothing is asked.

    `descriptions` are those of domains.yml.
    """

    llm: Llm | None
    locale: Locale
    descriptions: Mapping[str, str]

    def one(self, document: Document) -> DocumentFields:
        """The two fields of a document as its author wrote it."""
        if self.llm is None:
            return undescribed(document)
        author = Written(document.covers, document.when_to_retrieve)
        return describe_document(
            document.title,
            document.summary,
            document.body,
            author=author,
            ask=self.llm.ask,
            locale=self.locale,
        )

    def many(self, documents: Sequence[Document], came: Came) -> Batch:
        """The fields of many documents; `came` gets each as it comes, in the calling thread."""
        if self.llm is not None:
            return describe_documents(
                documents,
                ask=self.llm.ask,
                locale=self.locale,
                workers=WORKERS,
                progress=came,
            )
        fields = tuple(undescribed(document) for document in documents)
        for position, one in enumerate(fields):
            came(position, one)
        return Batch(fields)

    def domain_text(
        self,
        domain: str,
        documents: Sequence[Document],
        neighbours: Mapping[str, str],
        *,
        former: str,
    ) -> DomainText:
        """The text of a domain; a failure keeps the former one, with the reason."""
        description = self.descriptions.get(domain, "")
        if not documents:
            return DomainText("", description)
        if self.llm is None:
            return DomainText(former, description or first_sentence(former), NO_LLM)
        return describe_domain(
            domain,
            documents,
            neighbours,
            former=former,
            ask=self.llm.ask,
            description=description,
            locale=self.locale,
        )

    def ask_again(self) -> None:
        """A new batch asks a model that had stopped answering once more."""
        if self.llm is not None:
            self.llm.reset()

    def failure(self, batch: Batch, texts: Sequence[DomainText]) -> ConnectionFailed | None:
        """The error to end with when the model was asked and nothing came of it (design.md 10)."""
        if self.llm is None:
            return None
        if batch.asked_count:
            return batch.failure
        failed = [text.degraded for text in texts if text.degraded]
        if not failed or any(text.when_to_retrieve and not text.degraded for text in texts):
            return None
        return ConnectionFailed(
            f"no text could be generated for any of {len(failed)} domains: {failed[0]}"
        )


def undescribed(document: Document) -> DocumentFields:
    """The author's fields; what is missing is degraded, without a call."""
    author = Written(document.covers, document.when_to_retrieve)
    when = document.summary if "when_to_retrieve" in author.missing else document.when_to_retrieve
    return DocumentFields(
        covers=document.covers,
        when_to_retrieve=when or "",
        degraded=dict.fromkeys(author.missing, NO_LLM),
    )


def renewed(former: Entry, fields: DocumentFields) -> Entry:
    """The entry with new fields; what the model wrote before stays where it failed this time."""
    new = filled(former.written, fields)
    kept = [name for name in new.degraded or () if name in former.generated]
    if not kept:
        return new
    values = {name: getattr(former.document, name) for name in kept}
    covers = values.get("covers", new.document.covers)
    when = values.get("when_to_retrieve", new.document.when_to_retrieve)
    return filled(
        former.written,
        DocumentFields(
            covers=covers,
            when_to_retrieve=when or "",
            generated=tuple(dict.fromkeys((*new.generated, *kept))),
            degraded={k: v for k, v in (new.degraded or {}).items() if k not in kept},
        ),
    )
