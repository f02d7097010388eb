"""Stand-ins that mean something: an encoder that knows its vectors, and a base made of them."""

import numpy as np

from kbeval.config import Settings, load_settings
from kbeval.corpus.identity import content_hash
from kbeval.records import Corpus, Document
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.tool import KnowledgeTool


class TableEncoder:
    """Gives each text the vector it was told; for a document's passage, that of its title."""

    window = 512

    def __init__(self, vectors, name="table"):
        self.vectors = {text: np.asarray(v, np.float64) for text, v in vectors.items()}
        self.name = name
        self.dimension = len(next(iter(self.vectors.values())))
        self.fingerprint = f"{name}-{self.dimension}"
        self.calls = 0

    def encode(self, texts, kind):
        self.calls += 1
        rows = [self.vectors[text.split("\n")[0]] for text in texts]
        return np.array(rows, np.float32)

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]


def document(path, *, domain="ops", body="", **fields):
    """A document whose title is its path, so that a `TableEncoder` knows it."""
    return Document(
        path=path,
        title=path,
        body=body or f"Body of {path}.",
        domain=domain,
        content_hash=content_hash(path, body or f"Body of {path}."),
        **fields,
    )


def settings(**normalization):
    """Settings with the given keys below retrieval.normalization."""
    keys = {key.replace("_", "-"): value for key, value in normalization.items()}
    return load_settings({"retrieval": {"normalization": keys}})


def knowledge(documents, vectors, *, chosen=None, encoder=None):
    """A base over stand-in vectors: {path or query: vector}."""
    chosen = chosen or Settings()
    return Knowledge.build(
        Corpus("memory", tuple(documents)),
        encoder or TableEncoder(vectors),
        retrieval=chosen.retrieval,
        passage_tokens=128,
    )


def tool(documents, vectors, *, chosen=None, encoder=None, tracker=None):
    """The tool over such a base."""
    base = knowledge(documents, vectors, chosen=chosen, encoder=encoder)
    return KnowledgeTool(base, chosen, tracker)


def at_similarity(similarity):
    """A unit vector in the plane whose similarity to (1, 0) is this, under the defaults."""
    cosine = 1 - (2 * (1 - similarity)) ** 2 / 2
    return [cosine, float(np.sqrt(1 - cosine**2))]
