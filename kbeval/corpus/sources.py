"""Where a corpus comes from: a folder, or a loader that a data set names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kbeval.config import read_yml
from kbeval.corpus.documents import load_corpus
from kbeval.corpus.topics import load_topics
from kbeval.errors import CorpusError
from kbeval.records import Corpus

LOADERS: dict[str, Callable[[], Corpus]] = {"python-topics": load_topics}


def open_corpus(path: str | Path, *, strict: bool = False) -> Corpus:
    """The corpus of a markdown folder, a BEIR folder, or a data set.

    A data set without documents of its own names them in `dataset.yml`: `corpus:` is a loader
    (`python-topics`) or a folder, relative to the file. Raises `CorpusError`.
    """
    folder = Path(path)
    card = folder / "dataset.yml"
    named = read_yml(card).get("corpus") if card.is_file() else None
    if named is None:
        return load_corpus(folder, strict=strict)
    if named in LOADERS:
        return LOADERS[named]()
    if isinstance(named, str) and (folder / named).is_dir():
        return load_corpus(folder / named, strict=strict)
    raise CorpusError(
        f"{card}: corpus {named!r} is neither a folder beside it nor one of {', '.join(LOADERS)}"
    )
