"""A stand-in encoder for tests and dry runs: not semantic, but texts sharing words are close."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.encoder import first_tokens, plain, readable
from kbeval.corpus.fingerprints import digest_of
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.vectors import checked_vectors, shown
from kbeval.records import Kind

_TOKEN = re.compile(r"[㐀-鿿豈-﫿]|[^\W_㐀-鿿豈-﫿]+|\S")
_COMMON_WORDS = """
    a an and are as at be by can do does for from how i if in is it me my of on or that the this
    to was what when where which who why will with you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_COMMON_CJK = frozenset("的了是在我有和就不人都一上也很到说要去你会着吗呢吧么什怎")


class HashingEncoder:
    """Hashed words, CJK characters and their pairs, and letter n-grams; needs no model.

    Not semantic: only spelling is compared, so no threshold tuned with it holds for a real
    encoder. Common words count little.
    """

    semantic = False

    def __init__(self) -> None:
        self.name = "hashing"
        self.profile = profile_of(self.name)
        self.dimension = int(self.profile.dimension or 0)
        self.window = int(self.profile.window or 0)
        self.fingerprint = digest_of(name=self.name, version=1, dimension=self.dimension)

    def encode(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Vectors of shape (n, 512); both sides are encoded alike."""
        cleaned = [
            first_tokens(text, self.window, lambda part: len(_TOKEN.findall(part)))
            for text in readable(texts, self.name)
        ]
        if not cleaned:
            return np.empty((0, self.dimension), dtype=np.float32)
        counts = self._vectorizer.transform(cleaned).toarray()
        return checked_vectors(
            counts,
            [shown(text) for text in cleaned],
            dimension=self.dimension,
            normalise=True,
            encoder=self.name,
        )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words, CJK characters and signs of each text."""
        return [len(_TOKEN.findall(plain(text))) for text in texts]

    @cached_property
    def _vectorizer(self) -> Any:  # noqa: ANN401
        from sklearn.feature_extraction.text import HashingVectorizer

        return HashingVectorizer(
            analyzer=features, n_features=self.dimension, alternate_sign=True, norm=None
        )


def features(text: str) -> list[str]:
    """What is hashed of a text; never empty for a text with a visible character.

    >>> features("Reset it")
    ['reset', 'reset', 'reset', '#res', '#ese', '#set', 'it']
    """
    tokens = _TOKEN.findall(text.casefold())
    words = [token for token in tokens if token[0].isalnum()] or tokens
    found: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if "㐀" <= word <= "\ufaff" and len(word) == 1:
            found.append(word)
            if before and "㐀" <= before <= "\ufaff" and not {before, word} & _COMMON_CJK:
                found += [before + word] * 2
        elif word in _COMMON:
            found.append(word)
        else:
            found += [word] * 3
            found += [f"#{word[at : at + 3]}" for at in range(len(word) - 2)]
    return found
