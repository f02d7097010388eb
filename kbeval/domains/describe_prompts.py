"""The prompts of `describe`: instructions from files, material from documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template

from kbeval.corpus.fields import one_line
from kbeval.domains.texts import clean, excerpt
from kbeval.records import Document, Locale

BODY_CHARACTERS = 1000  # REQ-02.2
DOMAIN_CHARACTERS = 24_000  # of the documents' lines in the prompt of one domain
NEIGHBOUR_CHARACTERS = 8_000  # of the neighbours' lines
_LINE_CHARACTERS = 160  # of a document's or neighbour's sentence, once there are too many
_KEYS = {"covers": "covers", "when_to_retrieve": "whenToRetrieve"}


def document_prompt(
    title: str, summary: str, body: str, *, asked: Sequence[str], locale: Locale = "zh"
) -> str:
    """The prompt for one document; only the fields in `asked` are asked for."""
    keys = [f'- "{_KEYS[name]}"' for name in asked]
    lines = [
        line
        for line in _prompt("document", locale).splitlines()
        if not line.startswith('- "') or line.startswith(tuple(keys))
    ]
    return Template("\n".join(lines)).substitute(
        title=one_line(clean(title)),
        summary=clean(summary).strip(),
        body=excerpt(clean(body).strip(), BODY_CHARACTERS),
    )


def domain_prompt(
    domain: str,
    documents: Sequence[Document],
    neighbours: Mapping[str, str],
    *,
    locale: Locale = "zh",
) -> tuple[str, str]:
    """The prompt for one domain, and what of its documents had to be left out ("" is nothing)."""
    others = {name: text for name, text in neighbours.items() if name != domain and text.strip()}
    lines, shortened = _document_lines(documents)
    prompt = Template(_prompt("domain", locale)).substitute(
        domain=domain,
        count=len(documents),
        documents="\n".join(lines),
        shortened=f"({shortened})" if shortened else "",
        neighbours="\n".join(_neighbour_lines(others)) or "-",
    )
    return prompt, shortened


@cache
def _prompt(name: str, locale: Locale) -> str:
    path = Path(__file__).parent / "prompts" / f"describe-{name}.{locale}.md"
    return path.read_text(encoding="utf-8")


def _whole(document: Document) -> str:
    line = _named(document)
    return f"{line} | {one_line(document.when_to_retrieve)}" if document.when_to_retrieve else line


def _cut(document: Document) -> str:
    line = _named(document)
    when = excerpt(one_line(document.when_to_retrieve or ""), _LINE_CHARACTERS)
    return f"{line} | {when}" if when else line


def _named(document: Document) -> str:
    topics = ", ".join(document.covers)
    return f"- {one_line(document.title)}" + (f" [{topics}]" if topics else "")


def _titled(document: Document) -> str:
    return f"- {one_line(document.title)}"


_DETAILS: tuple[tuple[Callable[[Document], str], str], ...] = (
    (_whole, ""),
    (_cut, "long when_to_retrieve cut"),
    (_named, "without when_to_retrieve"),
    (_titled, "titles only"),
)


def _document_lines(documents: Sequence[Document]) -> tuple[list[str], str]:
    """One line per document, in the most detail that fits; at last every n-th title."""
    lines: list[str] = []
    for line_of, shortened in _DETAILS:
        lines = [clean(line_of(document)) for document in documents]
        if sum(map(len, lines)) <= DOMAIN_CHARACTERS:
            return lines, shortened
    step = -(-sum(map(len, lines)) // DOMAIN_CHARACTERS)
    shown = [excerpt(line, DOMAIN_CHARACTERS) for line in lines[::step]]
    return shown, f"titles of {len(shown)} of {len(documents)} documents"


def _neighbour_lines(neighbours: Mapping[str, str]) -> list[str]:
    lines = [f"- {name}: {clean(one_line(text))}" for name, text in neighbours.items()]
    if sum(map(len, lines)) <= NEIGHBOUR_CHARACTERS:
        return lines
    each = max(40, min(_LINE_CHARACTERS, NEIGHBOUR_CHARACTERS // len(lines)))
    return [excerpt(line, each) for line in lines]
