"""From passages to vectors: through the cache where there is one, centred where asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.centres import CentredEncoder, fit_centre, with_centre
from kbeval.corpus.encoders import Encoder
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.vectors import EmbeddingCache, checked_vectors
from kbeval.records import Document, Kind, Passage

Progress = Callable[[int, int], object]


def embedded(
    passages: Sequence[Passage],
    documents: Sequence[Document],
    encoder: Encoder,
    cache: EmbeddingCache | None,
    progress: Progress | None,
) -> NDArray[np.float32]:
    """Vectors of passages (p, d), checked once."""
    texts = [passage.text for passage in passages]
    names = [documents[passage.document].path for passage in passages]
    if not texts:
        return np.empty((0, encoder.dimension), np.float32)
    if cache is None:
        vectors = encoder.encode(texts, "passage")
    else:
        vectors = cache.embed(encoder, texts, "passage", progress=progress)
    return checked_vectors(vectors, names, dimension=encoder.dimension, encoder=encoder.name)


def centred(
    encoder: Encoder,
    kind: str | None,
    passages: Sequence[Passage],
    queries: Sequence[str],
    cache: EmbeddingCache | None,
    progress: Progress | None,
) -> Encoder:
    """The encoder with the centre that is asked for, or that its profile asks for."""
    kind = profile_of(encoder.name).default_centre if kind is None else kind
    if kind == "none" or isinstance(encoder, CentredEncoder):
        return encoder
    texts: dict[Kind, list[str]] = {
        "passage": [passage.text for passage in passages],
        "query": list(queries) if kind == "passages+queries" else [],
    }
    raw = {
        side: cache.embed(encoder, own, side, progress=progress)
        if cache is not None
        else encoder.encode(own, side)
        for side, own in texts.items()
        if own
    }
    centre = fit_centre(
        encoder,
        kind,
        passage_vectors=raw.get("passage"),
        passage_texts=texts["passage"],
        query_vectors=raw.get("query"),
        query_texts=texts["query"],
    )
    return with_centre(encoder, centre)
