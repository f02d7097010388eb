"""A knowledge base that can be asked: documents, exact keys, passages and their vectors.

`Knowledge` is frozen; `add` and `remove` give a new one that shares the vectors, so a look-up
under way never sees a half-changed base, and a document's identity is its path, never a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.config import Retrieval, load_settings
from kbeval.corpus.encoders import Encoder
from kbeval.corpus.identity import corpus_fingerprint
from kbeval.corpus.passages import cut_passages
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.vectors import EmbeddingCache, checked_vectors
from kbeval.errors import CorpusError
from kbeval.records import Corpus, Document, Evidence, Passage
from kbeval.retrieval.embedding import Progress, centred, embedded
from kbeval.retrieval.indexfile import (
    arrays,
    encoder_facts,
    encoder_files,
    encoder_of,
    json_lines,
    npz,
    rows,
)
from kbeval.retrieval.l0 import ExactKeys
from kbeval.retrieval.l1 import NearestPassages, default_threads, nearest_passages
from kbeval.retrieval.saved import read_file, read_manifest, write_index

COMPLETE = 50_000_000  # distances of a whole gathering up to which every document is ranked
DEPTH = 100  # nearest documents kept beyond that


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Facts:
    """What stays the same when documents come and go."""

    encoder: Encoder
    retrieval: Retrieval
    failed_count: int = 0  # documents that could not be loaded
    passage_tokens: int = 0
    cache: EmbeddingCache | None = None
    threads: int = 1  # native threads of a search over many queries


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Knowledge(_Facts):
    """Documents in the order of their paths, and what finds them.

    `passages` are sorted by document; `vectors` (p, d) are theirs. `failed_count` counts the
    documents that could not be loaded: every number that rests on this base rests on fewer.
    """

    documents: tuple[Document, ...]
    passages: tuple[Passage, ...]
    l0: ExactKeys
    l1: NearestPassages
    paths: tuple[str, ...]  # of the documents, in their order
    position: dict[str, int]  # path -> place in `documents`
    fingerprint: str  # of the corpus

    @classmethod
    def build(
        cls,
        corpus: Corpus,
        encoder: Encoder,
        *,
        retrieval: Retrieval | None = None,
        cache: EmbeddingCache | None = None,
        passage_tokens: int | None = None,
        centre: str | None = None,
        centre_queries: Sequence[str] = (),
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Knowledge:
        """Cut, embed and index a corpus.

        `passage_tokens` and the kind of `centre` default to the encoder's profile; the queries
        for the query side come from a dev split or a log, never from test (design.md 13).
        Raises `VectorError` naming the document whose vector is not finite, has no direction or
        another width or norm.
        """
        if passage_tokens is None:
            passage_tokens = profile_of(encoder.name).passage_tokens
        passage_tokens = min(passage_tokens, encoder.window)
        documents = tuple(sorted(corpus.documents, key=lambda document: document.path))
        passages = cut_passages(documents, encoder.count_tokens, passage_tokens=passage_tokens)
        encoder = centred(encoder, centre, passages, centre_queries, cache, progress)
        vectors = embedded(passages, documents, encoder, cache, progress)
        facts = _Facts(
            encoder=encoder,
            retrieval=retrieval or Retrieval(),
            failed_count=corpus.failed_count,
            passage_tokens=passage_tokens,
            cache=cache,
            threads=threads or default_threads(),
        )
        return _assembled(facts, documents, tuple(passages), vectors)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        encoder: Encoder | None = None,
        retrieval: Retrieval | None = None,
        cache: EmbeddingCache | None = None,
        threads: int | None = None,
    ) -> Knowledge:
        """Read a saved base, with its own settings unless others are given.

        Raises `IndexFileError` if it is damaged or belongs to another encoder.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        read = partial(read_file, folder, manifest)
        encoder = encoder_of(folder, manifest, encoder)
        documents = tuple(_document(row) for row in rows(read("documents.jsonl")))
        passages = tuple(Passage(**row) for row in rows(read("passages.jsonl")))
        vectors = arrays(read("vectors.npz"))["vectors"]
        facts = _Facts(
            encoder=encoder,
            retrieval=retrieval or load_settings({"retrieval": manifest["retrieval"]}).retrieval,
            failed_count=manifest["failed_count"],
            passage_tokens=manifest["passage_tokens"],
            cache=cache,
            threads=threads or default_threads(),
        )
        return _assembled(facts, documents, passages, vectors)

    def domain_counts(self) -> dict[str, int]:
        """Documents of each domain, in the order of the domains' names."""
        return dict(sorted(Counter(document.domain for document in self.documents).items()))

    def truncated(self) -> dict[str, tuple[int, int]]:
        """Documents of which the encoder does not read everything: (read, all) tokens."""
        window = self.encoder.window
        short: dict[str, tuple[int, int]] = {}
        for passage in self.passages:
            if passage.token_count > window:
                read, whole = short.get(self.documents[passage.document].path, (0, 0))
                short[self.documents[passage.document].path] = (
                    read + window,
                    whole + passage.token_count,
                )
        return short

    def embed_queries(
        self, queries: Sequence[str], *, progress: Progress | None = None, keep: bool = False
    ) -> NDArray[np.float32]:
        """Vectors of queries, (n, d); with `keep` through the cache, for sets asked again."""
        if keep and self.cache is not None:
            return self.cache.embed(self.encoder, queries, "query", progress=progress)
        return self._checked(self.encoder.encode(queries, "query"), queries)

    def gather(
        self,
        queries: Sequence[str],
        *,
        vectors: ArrayLike | None = None,
        depth: int | None = None,
        progress: Progress | None = None,
    ) -> Evidence:
        """What retrieval finds for n queries, before any threshold.

        `depth` bounds the L1 neighbours of each; by default every document is ranked while
        n x documents <= 5e7, else the nearest 100 (design.md 16). `vectors` (n, d) saves the
        encoding. Raises `VectorError` for a query whose embedding is invalid or of another width.
        """
        if vectors is None:
            rows = self.embed_queries(queries, progress=progress, keep=True)
        else:
            rows = self._checked(vectors, queries)
        return self.gather_checked(queries, rows, depth=depth)

    def gather_checked(
        self, queries: Sequence[str], vectors: NDArray[np.float32], *, depth: int | None = None
    ) -> Evidence:
        """`gather` for vectors (n, d) that `embed_queries` gave, which need no second check."""
        count = len(self.documents)
        if depth is None:
            depth = count if len(queries) * count <= COMPLETE else min(DEPTH, count)
        if 0 < count <= depth and len(queries) > 1:
            document, distance = self.l1.all_documents(vectors)
        else:
            threads = 1 if len(queries) == 1 else self.threads
            document, distance = self.l1.nearest(vectors, depth, threads=threads)
        matches = [
            self._exact(query, vector) for query, vector in zip(queries, vectors, strict=True)
        ]
        return Evidence(
            paths=self.paths,
            convention=self.l1.convention,
            l0_offset=np.cumsum([0, *(len(match) for match in matches)]),
            l0_document=np.array([d for match in matches for d, _ in match], np.int32),
            l0_distance=np.array([x for match in matches for _, x in match], np.float64),
            l1_document=document,
            l1_distance=distance,
            complete=depth >= count,
            query_truncated=self._truncated_queries(queries),
        )

    def nearest_passage(self, vector: NDArray[np.float32], path: str) -> str:
        """The text of a document's passage nearest to a query's vector (d,)."""
        return self.passages[self.l1.nearest_passage(vector, self.position[path])].text

    def add(self, documents: Iterable[Document], *, progress: Progress | None = None) -> Knowledge:
        """A base with these documents too; only they are embedded. A known path is replaced."""
        new = tuple(sorted(documents, key=lambda document: document.path))
        passages = cut_passages(new, self.encoder.count_tokens, passage_tokens=self.passage_tokens)
        vectors = embedded(passages, new, self.encoder, self.cache, progress)
        rest = self.remove({document.path for document in new} & self.position.keys())
        return _merged(rest, new, passages, vectors)

    def remove(self, paths: Collection[str]) -> Knowledge:
        """A base without these documents. Raises `CorpusError` for a path it does not hold."""
        gone = set(paths)
        if missing := gone - self.position.keys():
            raise CorpusError(
                f"{min(missing)}: no such document among the {len(self.documents)} held"
            )
        stays = [i for i, document in enumerate(self.documents) if document.path not in gone]
        place = {old: new for new, old in enumerate(stays)}
        kept = [i for i, passage in enumerate(self.passages) if passage.document in place]
        passages = (self.passages[i] for i in kept)
        return _assembled(
            self,
            tuple(self.documents[i] for i in stays),
            tuple(replace(passage, document=place[passage.document]) for passage in passages),
            self.l1.vectors[kept],
        )

    def save(self, folder: str | Path) -> None:
        """Write the whole base into a folder, all or nothing."""
        write_index(
            Path(folder),
            {
                "documents.jsonl": json_lines(map(asdict, self.documents)),
                "passages.jsonl": json_lines(map(asdict, self.passages)),
                "vectors.npz": npz({"vectors": self.l1.vectors}),
                **encoder_files(self.encoder),
            },
            {
                **encoder_facts(self.encoder),
                "corpus_fingerprint": self.fingerprint,
                "documents": len(self.documents),
                "passages": len(self.passages),
                "failed_count": self.failed_count,
                "passage_tokens": self.passage_tokens,
                "retrieval": self.retrieval.model_dump(by_alias=True, mode="json"),
            },
        )

    def _checked(self, vectors: ArrayLike, queries: Sequence[str]) -> NDArray[np.float32]:
        names = [f"query {query[:60]!r}" for query in queries]
        return checked_vectors(
            vectors, names, dimension=self.encoder.dimension, encoder=self.encoder.name
        )

    def _exact(self, query: str, vector: NDArray[np.float32]) -> list[tuple[int, float]]:
        """L0 matches of one query with their distances, nearest first, then by path."""
        matches = self.l0.matches(query)
        if not matches:
            return []
        distances = self.l1.distances_to(vector, matches).tolist()
        return sorted(zip(matches, distances, strict=True), key=lambda match: (match[1], match[0]))

    def _truncated_queries(self, queries: Sequence[str]) -> NDArray[np.bool_]:
        window = self.encoder.window
        truncated = np.zeros(len(queries), np.bool_)
        long = [
            i for i, query in enumerate(queries) if len(query.encode("utf-8", "replace")) > window
        ]
        if long:  # a token has at least one byte, so shorter queries need no counting
            counts = self.encoder.count_tokens([queries[i] for i in long])
            truncated[long] = np.array(counts) > window
        return truncated


def _assembled(
    facts: _Facts,
    documents: tuple[Document, ...],
    passages: tuple[Passage, ...],
    vectors: NDArray[np.float32],
) -> Knowledge:
    """Index documents that stand in the order of their paths, passages in that of documents."""
    position = {document.path: i for i, document in enumerate(documents)}
    if len(position) < len(documents):
        twice = Counter(document.path for document in documents).most_common(1)[0][0]
        raise CorpusError(f"{twice}: two documents have this path; every path is given once")
    if mute := set(range(len(documents))) - {passage.document for passage in passages}:
        raise CorpusError(f"{documents[min(mute)].path}: no title and no text; nothing to index")
    return Knowledge(
        **{field.name: getattr(facts, field.name) for field in fields(_Facts)},
        documents=documents,
        passages=passages,
        l0=ExactKeys(documents, facts.retrieval.l0),
        l1=nearest_passages(
            vectors,
            np.array([passage.document for passage in passages], np.int32),
            len(documents),
            convention=facts.retrieval.normalization.distance,
        ),
        paths=tuple(position),
        position=position,
        fingerprint=corpus_fingerprint(documents),
    )


def _merged(
    rest: Knowledge,
    new: tuple[Document, ...],
    new_passages: Sequence[Passage],
    new_vectors: NDArray[np.float32],
) -> Knowledge:
    """Two sets of documents without a common path as one, in the order of paths."""
    together = (*rest.documents, *new)
    order = sorted(range(len(together)), key=lambda i: together[i].path)
    place = {old: at for at, old in enumerate(order)}
    shift = len(rest.documents)
    passages = [replace(p, document=place[p.document]) for p in rest.passages]
    passages += [replace(p, document=place[p.document + shift]) for p in new_passages]
    by_document = sorted(range(len(passages)), key=lambda i: passages[i].document)  # stable
    return _assembled(
        rest,
        tuple(together[i] for i in order),
        tuple(passages[i] for i in by_document),
        np.concatenate([rest.l1.vectors, new_vectors])[by_document],
    )


def _document(row: dict[str, Any]) -> Document:
    """A document from its JSON, lists turned back into tuples."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Document(**values)
