"""Knowledge bases kept in the cache, so that the same corpus is cut and embedded once."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence

from kbeval.config import Retrieval
from kbeval.corpus.encoders import Encoder
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import IndexFileError
from kbeval.records import Corpus
from kbeval.retrieval.embedding import Progress
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.saved import FORMAT, MANIFEST

log = logging.getLogger(__name__)


def kept_knowledge(
    corpus: Corpus,
    encoder: Encoder,
    *,
    cache: EmbeddingCache,
    retrieval: Retrieval | None = None,
    passage_tokens: int | None = None,
    centre: str | None = None,
    centre_queries: Sequence[str] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> Knowledge:
    """`Knowledge.build`, or the base that an earlier call with the same input left behind.

    Found again by corpus, encoder, passage length, centre and its queries; settings are not
    part of it. A damaged one is built anew, with a warning. A hit loads no model.
    """
    centre = profile_of(encoder.name).default_centre if centre is None else centre
    passage_tokens = passage_tokens or profile_of(encoder.name).passage_tokens
    facts = (
        str(FORMAT),
        corpus.fingerprint,
        encoder.fingerprint,
        str(passage_tokens),
        centre,
        *(centre_queries if centre == "passages+queries" else ()),
    )
    digest = hashlib.sha256("\x1f".join(facts).encode("utf-8", "surrogatepass")).hexdigest()[:24]
    name = re.sub(r"\W+", "-", encoder.name)
    folder = cache.folder / "indexes" / f"{name}-{digest}"
    if (folder / MANIFEST).is_file():
        try:
            return Knowledge.load(
                folder, encoder=encoder, retrieval=retrieval, cache=cache, threads=threads
            )
        except IndexFileError as error:
            log.warning("%s; built anew", error)
    knowledge = Knowledge.build(
        corpus,
        encoder,
        retrieval=retrieval,
        cache=cache,
        passage_tokens=passage_tokens,
        centre=centre,
        centre_queries=centre_queries,
        threads=threads,
        progress=progress,
    )
    knowledge.save(folder)
    return knowledge
