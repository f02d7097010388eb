"""The text of a domain: when to look there, and where it borders on its neighbours (REQ-03)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from kbeval.domains.describe_prompts import domain_prompt
from kbeval.domains.replies import Ask
from kbeval.domains.texts import first_sentence
from kbeval.errors import LlmError
from kbeval.records import Document, Locale

log = logging.getLogger(__name__)


class DomainReply(BaseModel):
    """What the model is asked for about a domain."""

    when_to_retrieve: str = Field(
        alias="whenToRetrieve", json_schema_extra={"minLength": 1, "maxLength": 400}
    )


@dataclass(frozen=True, slots=True)
class DomainText:
    """What the planner is told about a domain; `degraded` is the reason the text is not new.

    `shortened` says what of the documents the model was not shown, because they are too many.
    """

    when_to_retrieve: str
    description: str
    degraded: str = ""
    shortened: str = ""
    unwrapped: bool = False  # the reply was more, or less, than valid JSON


def describe_domain(
    domain: str,
    documents: Sequence[Document],
    neighbours: Mapping[str, str],
    *,
    former: str,
    ask: Ask,
    description: str = "",
    locale: Locale = "zh",
) -> DomainText:
    """Have a domain's text written from its documents, against its neighbours.

    `documents` carry the fields as they now are, `neighbours` maps other domains to their
    texts, `former` is the domain's text so far, `description` that of `domains.yml`; without
    one it is the text's first sentence. A failure keeps the former text, with the reason. A
    domain without documents has no text, and the model is not asked (design.md 9).
    """
    if not documents:
        return DomainText("", description)
    prompt, shortened = domain_prompt(domain, documents, neighbours, locale=locale)
    degraded, unwrapped = "", False
    try:
        reply = ask(prompt, DomainReply)
        text, unwrapped = reply.value.when_to_retrieve, reply.unwrapped
    except LlmError as reason:
        log.warning("domain %s keeps its former text: %s", domain, reason)
        text, degraded = former, str(reason)
    return DomainText(text, description or first_sentence(text), degraded, shortened, unwrapped)
