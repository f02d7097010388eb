"""What an encoder is, and the texts it can read (design.md 13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbeval.errors import EncoderError
from kbeval.records import Kind


class Encoder(Protocol):
    """Turns texts into unit vectors; opening one loads no model, encoding does."""

    @property
    def name(self) -> str:
        """The name it is opened by."""

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""

    @property
    def window(self) -> int:
        """Tokens of a text that are read, prompt and special tokens not counted."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the vectors may change; taken from files."""

    def encode(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Vectors of shape (n, dimension), finite and of unit norm; the first window is read."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text alone, without prompt and special tokens."""


def plain(text: str) -> str:
    """A text as every encoder can read it: NUL becomes a blank, a lone surrogate a "?".

    A NUL would end the text inside an engine written in C.
    """
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def readable(texts: Sequence[object], encoder: str) -> list[str]:
    """The texts made `plain`.

    Raises `EncoderError` naming the
    first text that is empty or no text at all.
    """
    if isinstance(texts, str):
        raise EncoderError(f"encoder {encoder}: a list of texts is expected, found a single text")
    cleaned: list[str] = []
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            kind = type(text).__name__
            raise EncoderError(f"encoder {encoder}: text {at} is of type {kind}; text is expected")
        text = plain(text)
        if not text.strip():
            raise EncoderError(
                f"encoder {encoder}: text {at} is empty; it would get a vector of noise"
            )
        cleaned.append(text)
    return cleaned


def first_tokens(text: str, limit: int, count: Callable[[str], int]) -> str:
    """The longest beginning of a text of at most `limit` tokens, found by halving.

    >>> first_tokens("one two three four", 2, lambda text: len(text.split())).split()
    ['one', 'two']
    """
    if len(text.encode()) <= limit or count(text) <= limit:  # a token has a byte at least
        return text
    low, high = 0, len(text)  # text[:low] fits, text[:high] does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(text[:middle]) <= limit else (low, middle)
    return text[:low]
