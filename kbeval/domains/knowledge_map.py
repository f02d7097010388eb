"""Domains and their documents as one short YAML text for the planner (REQ-04, design.md 11).

The planner sees nothing else of the knowledge base, so the text is written here line by line:
characters as they are, one line per value, no anchors, every cut marked.
"""

from __future__ import annotations

import json
import logging
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kbeval.errors import ConfigError
from kbeval.records import Document

log = logging.getLogger(__name__)

TOP_KEY = "available_knowledge_domains"
SMALL = 6  # documents up to which the map stays below SMALL_BUDGET, whatever the setting
SMALL_BUDGET = 999  # characters: REQ-04 asks for less than 1000
DEFAULT_BUDGET = 8000  # characters, for more documents

# What a plain scalar would turn into something else: a number, a date, a truth value, null.
_TYPED = re.compile(r"[-+.\d][-+.:\w ]*|true|false|yes|no|on|off|y|n|null|~|=|<<", re.I | re.A)
_INDICATOR = re.compile(r"[-?:,\[\]{}#&*!|>'\"%@`]|.*?(?::(?: |\Z)| #)")
_FLOW_INDICATOR = re.compile(r"[,\[\]{}?]")
_UNREADABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class MapDocument:
    """What the planner learns of a document."""

    title: str
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MapDomain:
    """What the planner learns of a domain: what is in it and when to look there."""

    domain_id: str
    description: str = ""
    when_to_retrieve: str = ""
    documents: tuple[MapDocument, ...] = ()


class DomainText(Protocol):
    """Anything with the two texts of a domain, a row of `knowledge_domain` for instance."""

    @property
    def description(self) -> str | None:
        """What the domain holds."""

    @property
    def when_to_retrieve(self) -> str | None:
        """Which steps need it."""


def map_domains(
    documents: Iterable[Document], texts: Mapping[str, DomainText]
) -> tuple[MapDomain, ...]:
    """The domains that have documents, by id, their documents by path; a missing text is empty.

    The order does not depend on that of `documents`, so that an upload moves nothing in the map.
    """
    members: dict[str, list[Document]] = {}
    for document in documents:
        members.setdefault(document.domain, []).append(document)
    return tuple(
        MapDomain(
            domain_id=domain_id,
            description=(text.description if text else None) or "",
            when_to_retrieve=(text.when_to_retrieve if text else None) or "",
            documents=tuple(
                MapDocument(document.title, document.covers)
                for document in sorted(members[domain_id], key=lambda document: document.path)
            ),
        )
        for domain_id in sorted(members)
        for text in [texts.get(domain_id)]
    )


def knowledge_map(domains: Sequence[MapDomain], *, budget: int | None = None) -> str:
    """The map as YAML under `available_knowledge_domains`, in the order given (REQ-04).

    Domains without documents are left out; without any domain the text is empty. Up to six
    documents it has less than 1000 characters, else at most `budget` (None is 8000; a budget
    below 1000 holds for any number). What does not fit is cut as little as possible (design.md
    11): first every document keeps the same number of covers and `…+N` counts the rest, then
    the documents of as few domains as can be become their number. Raises `ConfigError` with the
    excess if that is not enough.

    >>> print(knowledge_map([MapDomain("api", "APIs", "", (MapDocument("Limits", ("quota",)),))]))
    available_knowledge_domains:
    - domain_id: api
      description: APIs
      when_to_retrieve: ""
      documents:
      - title: Limits
        covers: [quota]
    """
    limit = _limit(domains, budget)
    written = [_written(domain) for domain in domains if domain.documents]
    if not written:
        return ""
    room = limit - len(f"{TOP_KEY}:") - len(written)  # a line break stands before each block
    counted = _counted(written, room=room, limit=limit)
    keep = _keep(written, counted, room)
    blocks = [_block(domain, None if i in counted else keep) for i, domain in enumerate(written)]
    return "\n".join([f"{TOP_KEY}:", *blocks])


def domain_block(domain: MapDomain) -> str:
    """One domain's part of the map before any cut; its length is what the domain costs."""
    return _block(_written(domain), _most_covers([domain]))


def scalar(text: str, *, flow: bool = False) -> str:
    """A text as a YAML scalar on one line: plain where that reads back equal, else quoted.

    `flow` is for an item of a list in brackets, where commas and brackets need quotes too.

    >>> [scalar("限流 v2"), scalar("a, b"), scalar("a, b", flow=True), scalar("no"), scalar("1.10")]
    ['限流 v2', 'a, b', '"a, b"', '"no"', '"1.10"']
    """
    plain = text and text == text.strip() and text.isprintable()
    if (
        plain
        and not _TYPED.fullmatch(text)
        and not _INDICATOR.match(text)
        and not (flow and _FLOW_INDICATOR.search(text))
    ):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNREADABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _written(domain: MapDomain) -> MapDomain:
    """The same domain with every text as it will stand in the map."""
    return MapDomain(
        scalar(domain.domain_id),
        scalar(domain.description),
        scalar(domain.when_to_retrieve),
        tuple(
            MapDocument(
                scalar(document.title), tuple(scalar(cover, flow=True) for cover in document.covers)
            )
            for document in domain.documents
        ),
    )


def _limit(domains: Sequence[MapDomain], budget: int | None) -> int:
    """The most characters the whole text may have."""
    budget = DEFAULT_BUDGET if budget is None else budget
    if budget < 1:
        raise ConfigError(f"knowledge map: budget {budget}; at least 1 character is expected")
    small = sum(len(domain.documents) for domain in domains) <= SMALL
    return min(budget, SMALL_BUDGET) if small else budget


def _block(domain: MapDomain, keep: int | None) -> str:
    """The lines of a written domain: `keep` covers a document, or None for the count alone."""
    lines = [
        f"- domain_id: {domain.domain_id}",
        f"  description: {domain.description}",
        f"  when_to_retrieve: {domain.when_to_retrieve}",
    ]
    if keep is None:
        return "\n".join([*lines, f"  documents: {len(domain.documents)}"])
    lines.append("  documents:")
    for document in domain.documents:
        lines.append(f"  - title: {document.title}")
        lines.append(f"    covers: [{_covers(document.covers, keep)}]")
    return "\n".join(lines)


def _covers(covers: Sequence[str], keep: int) -> str:
    """The first `keep` covers and how many more; all of them where that is no longer."""
    whole = ", ".join(covers)
    cut = ", ".join([*covers[:keep], f"…+{len(covers) - keep}"])
    return whole if len(covers) <= keep or len(whole) <= len(cut) else cut


def _counted(domains: Sequence[MapDomain], *, room: int, limit: int) -> frozenset[int]:
    """Positions of the domains whose documents are only counted: as few as can be.

    The longest lists go first, and the last one to go is the shortest that is enough.
    """
    heads = [len(_block(domain, None)) for domain in domains]
    saving = {i: len(_block(domain, 0)) - heads[i] for i, domain in enumerate(domains)}
    over = sum(heads) + sum(saving.values()) - room
    counted: set[int] = set()
    while over > 0 and saving:
        enough = [i for i in saving if saving[i] >= over]
        chosen = (
            min(enough, key=saving.__getitem__) if enough else max(saving, key=saving.__getitem__)
        )
        over -= saving.pop(chosen)
        counted.add(chosen)
    if over > 0:
        longest = max(domains, key=lambda domain: len(_block(domain, None)))
        way = "shorten" if limit == SMALL_BUDGET else "allow more or shorten"
        raise ConfigError(
            f"knowledge map: {limit + over} characters with every document list cut to a count, "
            f"{over} more than the {limit} allowed; {way} the domain texts "
            f"(the longest are those of {longest.domain_id}, {max(heads)} characters)"
        )
    if counted:
        log.info("knowledge map: only the number of documents in %d domains", len(counted))
    return frozenset(counted)


def _keep(domains: Sequence[MapDomain], counted: frozenset[int], room: int) -> int:
    """The most covers that every listed document may keep; the size only grows with it."""
    listed = [domain for i, domain in enumerate(domains) if i not in counted]
    room -= sum(len(_block(domains[i], None)) for i in counted)
    most = _most_covers(listed)
    keep = bisect_right(
        range(most + 1), room, key=lambda keep: sum(len(_block(domain, keep)) for domain in listed)
    )
    if keep <= most:
        log.info("knowledge map: at most %d of up to %d covers a document", keep - 1, most)
    return keep - 1


def _most_covers(domains: Iterable[MapDomain]) -> int:
    counts = (len(document.covers) for domain in domains for document in domain.documents)
    return max(counts, default=0)
