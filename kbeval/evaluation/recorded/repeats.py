"""Look-ups that repeat an earlier one of their session: in text, in meaning, in documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.encoder import Encoder
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError
from kbeval.evaluation.queries import Session
from kbeval.evaluation.recorded.details import texts_at
from kbeval.evaluation.recorded.turns import DETAILS
from kbeval.evaluation.statistics import Rate, cluster_rate, rate
from kbeval.retrieval.l0 import fold

NEAR = 0.95  # cosine from which two queries are near
BLOCK = 4096  # look-ups embedded before their vectors are let go
ROWS = 256  # look-ups compared at a time with all before them

EMPTY = np.empty(0, np.int64)
NOT_ENCODED = "no encoder was given"
NOT_RECORDED = "no look-up says what it returned"


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """For n look-ups, session after session, what each of them repeats.

    `*_of` hold the place, among the look-ups of the session, of the earlier look-up that is
    repeated (the first such), -1 for none. A near repeat is no exact one: its cosine to an
    earlier query is `near` or more, and the nearest one, the first of several, is the one named.
    Without an encoder `cosine` is NaN throughout. The same documents are the same non-empty set,
    in any order. Counts of documents are -1 where the record does not say what was returned.
    Under a memory a document is seldom returned again: then `withheld_count` tells.
    """

    session: NDArray[np.int64]  # (n,), place of the session among all
    exact_of: NDArray[np.int64]  # (n,)
    near_of: NDArray[np.int64]  # (n,)
    cosine: NDArray[np.float64]  # (n,), the greatest to an earlier query; NaN for a first one
    documents_of: NDArray[np.int64]  # (n,)
    returned_count: NDArray[np.int64]  # (n,)
    returned_again_count: NDArray[np.int64]  # (n,), those an earlier look-up had returned
    withheld_count: NDArray[np.int64]  # (n,), kept back because given before, as recorded
    near: float = NEAR
    encoder: str = ""  # its name, empty where none was given

    @property
    def exact(self) -> Rate:
        """Share of all look-ups whose folded text was asked before in the session."""
        return rate(self.exact_of >= 0, self.session, empty="no look-up")

    @property
    def near_repeats(self) -> Rate:
        """Share of all look-ups that are a near repeat and no exact one."""
        if not self.encoder:
            return Rate(None, None, None, 0, NOT_ENCODED)
        return rate(self.near_of >= 0, self.session, empty="no look-up")

    @property
    def same_documents(self) -> Rate:
        """Share of recorded answers that are, as a set, those of an earlier look-up."""
        told = self.returned_count >= 0
        return rate(self.documents_of[told] >= 0, self.session[told], empty=NOT_RECORDED)

    @property
    def overlap(self) -> Rate:
        """Share of returned documents that the session had been given before."""
        told = self.returned_count > 0
        again, count = self.returned_again_count[told], self.returned_count[told]
        return cluster_rate(again, count, self.session[told], empty=NOT_RECORDED)

    @property
    def documents_again(self) -> Rate:
        """Share of recorded answers that met a document the session had been given before.

        Returned again or withheld for that reason: it holds with and without a memory.
        """
        told = self.returned_count >= 0
        again = (self.returned_again_count[told] > 0) | (self.withheld_count[told] > 0)
        return rate(again, self.session[told], empty=NOT_RECORDED)

    def __len__(self) -> int:
        return len(self.session)

    def to_json(self) -> dict[str, Any]:
        """The shares with their intervals over sessions, and what they rest on."""
        return {
            "look_ups": len(self),
            "sessions": int(self.session[-1]) + 1 if len(self) else 0,
            "near_cosine": self.near,
            "encoder": self.encoder or None,
            "exact": self.exact.to_json(),
            "near": self.near_repeats.to_json(),
            "same_documents": self.same_documents.to_json(),
            "overlap": self.overlap.to_json(),
            "documents_again": self.documents_again.to_json(),
        }


def find_repeats(
    sessions: Iterable[Session],
    *,
    encoder: Encoder | None = None,
    cache: EmbeddingCache | None = None,
    near: float = NEAR,
) -> Repeats:
    """What each look-up repeats of its own session; other sessions play no part.

    Sessions may come as a stream: vectors are kept for some thousand look-ups at a time. With a
    `cache` no text is embedded twice. Raises `ConfigError` unless -1 <= near <= 1.
    """
    if not -1 <= near <= 1:
        raise ConfigError(f"near is {near}; a cosine from -1 to 1 is allowed")
    found = _Columns()
    for block in _blocks(sessions):
        vectors = None if encoder is None else _vectors(block, encoder, cache)
        begin = 0
        for session in block:
            end = begin + len(session.turns)
            found.add(session, None if vectors is None else vectors[begin:end], near)
            begin = end
    return found.repeats(near, encoder.name if encoder is not None else "")


_COLUMNS = tuple(name for name in Repeats.__dataclass_fields__ if name not in ("near", "encoder"))


@dataclass(slots=True)
class _Columns:
    """The columns of `Repeats` while they grow, one array a session."""

    session_count: int = 0
    columns: dict[str, list[NDArray[Any]]] = field(
        default_factory=lambda: {name: [] for name in _COLUMNS}
    )

    def add(self, session: Session, vectors: NDArray[np.float32] | None, near: float) -> None:
        n = len(session.turns)
        exact_of = _first_places([fold(turn.query) for turn in session.turns])
        near_of, cosine = np.full(n, -1), np.full(n, np.nan)
        if vectors is not None:
            near_of, cosine = _nearest_before(vectors)
            near_of[(cosine < near) | (exact_of >= 0) | (near_of < 0)] = -1
        documents = _documents(session)
        values = {"exact_of": exact_of, "near_of": near_of, "cosine": cosine, **documents}
        values["session"] = np.full(n, self.session_count)
        for name, value in values.items():
            self.columns[name].append(value)
        self.session_count += 1

    def repeats(self, near: float, encoder: str) -> Repeats:
        columns = {name: np.concatenate([EMPTY, *parts]) for name, parts in self.columns.items()}
        return Repeats(**columns, near=near, encoder=encoder)


def _blocks(sessions: Iterable[Session]) -> Iterator[list[Session]]:
    """Sessions together until they hold enough look-ups."""
    block: list[Session] = []
    count = 0
    for session in sessions:
        block.append(session)
        count += len(session.turns)
        if count >= BLOCK:
            yield block
            block, count = [], 0
    if block:
        yield block


def _vectors(
    block: Sequence[Session], encoder: Encoder, cache: EmbeddingCache | None
) -> NDArray[np.float32]:
    """Unit vectors of all queries of the block, (n, d); each text is encoded once."""
    texts = [turn.query for session in block for turn in session.turns]
    place = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    if cache is not None:
        vectors = cache.embed(encoder, list(place), "query")
    else:
        vectors = encoder.encode(list(place), "query")
    return vectors[[place[text] for text in texts]]


def _first_places(keys: Sequence[object]) -> NDArray[np.int64]:
    """Where each key stood first, (n,); -1 for a key that is new, and for None."""
    first: dict[object, int] = {}
    places = [-1 if key is None else first.setdefault(key, at) for at, key in enumerate(keys)]
    return np.array([-1 if at == place else place for at, place in enumerate(places)], np.int64)


def _nearest_before(
    vectors: NDArray[np.float32],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nearest earlier row of each of n rows, and the cosine; -1 and NaN for the first."""
    n = len(vectors)
    wide = vectors.astype(np.float64)
    nearest, cosine = np.full(n, -1), np.full(n, np.nan)
    for begin in range(0, n, ROWS):
        end = min(begin + ROWS, n)
        near = np.round(wide[begin:end] @ wide[:end].T, 6)  # (rows, end)
        near[np.arange(end) >= np.arange(begin, end)[:, None]] = -np.inf
        nearest[begin:end] = near.argmax(axis=1)
        cosine[begin:end] = near.max(axis=1)
    nearest[:1], cosine[:1] = -1, np.nan
    return nearest, cosine


def _documents(session: Session) -> dict[str, NDArray[np.int64]]:
    """Of each look-up: whose set it returned, how many, how many again, how many not."""
    given: set[str] = set()
    counts: list[tuple[int, int, int]] = []
    for turn in session.turns:
        returned = set(turn.returned or ())
        withheld = len(texts_at(turn.metadata.get(DETAILS) or {}, "withheld"))
        told = turn.returned is not None
        counts.append((len(returned), len(returned & given), withheld) if told else (-1, -1, -1))
        given |= returned
    sets = [frozenset(turn.returned) if turn.returned else None for turn in session.turns]
    columns = np.array(counts, np.int64).reshape(-1, 3)
    return {
        "documents_of": _first_places(sets),
        "returned_count": columns[:, 0],
        "returned_again_count": columns[:, 1],
        "withheld_count": columns[:, 2],
    }
