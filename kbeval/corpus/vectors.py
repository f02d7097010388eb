"""Vectors on their way in: checked once, and kept so that no text is embedded twice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.corpus.shards import Shards
from kbeval.errors import EncoderError, VectorError
from kbeval.records import Kind

if TYPE_CHECKING:
    from kbeval.corpus.encoder import Encoder

TOLERANCE = 1e-3  # of a norm
BATCH_TEXTS = 256  # texts embedded before they are written down
BATCH_CHARACTERS = 32_000

Progress = Callable[[int, int], object]


def checked_vectors(
    vectors: ArrayLike,
    names: Sequence[str],
    *,
    dimension: int,
    normalise: bool = False,
    encoder: str = "",
) -> NDArray[np.float32]:
    """Vectors of shape (n, dimension) as contiguous float32 of unit norm.

    One row may be 1-D; 64-bit and non-contiguous arrays are taken. `names` (n) are used in
    messages. With `normalise` the norm is set to 1, otherwise it must be 1 within 0.001.
    Raises `VectorError` for another width or count, NaN, infinity, zero, or another norm.

    >>> checked_vectors([0.6, 0.8], ["a.md"], dimension=2).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    rows = _as_rows(vectors, names, dimension=dimension, encoder=encoder)
    of = f" of {encoder}" if encoder else ""
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        at = int(np.argmin(finite))
        kind = "NaN" if np.isnan(rows[at]).any() else "infinity"
        raise VectorError(
            f"{names[at]}: the embedding{of} holds {kind}; every number must be finite"
        )
    norms = np.linalg.norm(rows, axis=1)  # (n,)
    if (norms == 0).any():
        at = int(np.argmin(norms))
        raise VectorError(f"{names[at]}: the embedding{of} is zero and has no direction")
    if normalise:
        rows = rows / norms[:, None]
    elif (wrong := np.abs(norms - 1.0) > TOLERANCE).any():
        at = int(np.argmax(wrong))
        raise VectorError(
            f"{names[at]}: embeddings{of} have norm {round(float(norms[at]), 4)}, "
            f"expected 1.0 (tolerance {TOLERANCE}); switch normalisation on"
        )
    return np.ascontiguousarray(rows, dtype=np.float32)


def _as_rows(
    vectors: ArrayLike, names: Sequence[str], *, dimension: int, encoder: str
) -> NDArray[np.float64]:
    of = f" of {encoder}" if encoder else ""
    try:
        rows = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError):
        raise VectorError(f"embeddings{of} are no table of numbers with one width") from None
    if rows.ndim == 1:
        rows = rows.reshape(1, -1) if rows.size else rows.reshape(0, dimension)
    if rows.ndim != 2 or rows.shape[0] != len(names):
        raise VectorError(
            f"embeddings{of} have shape {rows.shape}, expected ({len(names)}, {dimension})"
        )
    if rows.shape[0] and rows.shape[1] != dimension:
        raise VectorError(
            f"{names[0]}: the embedding{of} has {rows.shape[1]} numbers, expected {dimension}; "
            "rebuild the index or select the model it was built with"
        )
    return rows.reshape(-1, dimension)


def cache_folder() -> Path:
    """Where embeddings are kept: `KBEVAL_CACHE`, else the user's cache directory."""
    if named := os.environ.get("KBEVAL_CACHE"):
        return Path(named)
    from platformdirs import user_cache_path

    return user_cache_path("kbeval", appauthor=False)


class EmbeddingCache:
    """Embeddings on disk, keyed by the text, the encoder's fingerprint and the side.

    A text that is found needs no model. Raw vectors are kept; a `CentredEncoder` is centred
    after. Several processes and threads may share a folder.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = cache_folder() if folder is None else Path(folder)
        self._shards: dict[tuple[str, Kind], Shards] = {}
        self._lock = threading.Lock()

    def embed(
        self,
        encoder: Encoder,
        texts: Sequence[str],
        kind: Kind,
        *,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        """Vectors of the texts, of shape (n, d), encoding only those that are not kept yet.

        What was embedded is written every few hundred texts, so an interruption loses little.
        `progress(done, total)` counts the texts that had to be encoded. Raises `EncoderError`
        for a text that is empty or no text, `VectorError` for a vector that is wrong.
        """
        from kbeval.corpus.centres import CentredEncoder

        if isinstance(encoder, CentredEncoder):
            raw = self.embed(encoder.raw, texts, kind, progress=progress)
            return encoder.centred(raw, texts, kind)
        shards = self._shards_of(encoder, kind)
        keys = _keys(texts)
        rows = shards.rows(keys)
        if None in rows:
            shards.refresh()
            missing = {
                key: text for key, text in zip(keys, texts, strict=True) if key not in shards
            }
            self._encode(encoder, kind, shards=shards, missing=missing, progress=progress)
            rows = shards.rows(keys)
        return shards.gather(rows)

    def _encode(
        self,
        encoder: Encoder,
        kind: Kind,
        *,
        shards: Shards,
        missing: dict[bytes, str],
        progress: Progress | None,
    ) -> None:
        done = 0
        for batch in _batches(missing):
            texts = [missing[key] for key in batch]
            vectors = checked_vectors(
                encoder.encode(texts, kind),
                [shown(text) for text in texts],
                dimension=encoder.dimension,
                encoder=encoder.name,
            )
            shards.add(batch, vectors)
            done += len(batch)
            if progress is not None:
                progress(done, len(missing))

    def _shards_of(self, encoder: Encoder, kind: Kind) -> Shards:
        group = (encoder.fingerprint, kind)
        with self._lock:
            if group not in self._shards:
                digest = blake2b("|".join(group).encode(), digest_size=12).hexdigest()
                self._shards[group] = Shards(self.folder / f"{kind}-{digest}", encoder.dimension)
            return self._shards[group]


def shown(text: str, limit: int = 40) -> str:
    """A text as it is named in a message: quoted, on one line, its beginning.

    >>> shown("how do I")
    "'how do I'"
    """
    return repr(text if len(text) <= limit else text[:limit] + "…")


def _keys(texts: Sequence[str]) -> list[bytes]:
    if isinstance(texts, str):
        raise EncoderError("a list of texts is expected, found a single text")
    try:
        return [
            blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            for text in texts
        ]
    except AttributeError:
        at = next(i for i, text in enumerate(texts) if not isinstance(text, str))
        raise EncoderError(
            f"text {at} is of type {type(texts[at]).__name__}; a text is expected"
        ) from None


def _batches(missing: dict[bytes, str]) -> list[list[bytes]]:
    """Keys of texts of like length, the long ones first: running out of memory shows early."""
    order = iter(sorted(missing, key=lambda key: len(missing[key]), reverse=True))
    batches: list[list[bytes]] = []
    while first := list(islice(order, 1)):
        fits = BATCH_CHARACTERS // max(len(missing[first[0]]), 1)
        batches.append(first + list(islice(order, max(min(fits, BATCH_TEXTS) - 1, 0))))
    return batches
