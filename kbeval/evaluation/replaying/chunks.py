"""Sessions in chunks: each chunk's queries searched once, then played in this process or others."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError
from kbeval.evaluation.queries import Session
from kbeval.evaluation.replaying.recalled import (
    RecalledKnowledge,
    Remembered,
    recalled,
    remember,
    without_encoder,
)
from kbeval.retrieval.embedding import Progress
from kbeval.retrieval.knowledge import Knowledge

T = TypeVar("T")
Play = Callable[[RecalledKnowledge, Session], T]  # one session over a base that remembers
MakePlay = Callable[[Knowledge], Play[T]]  # done once in each process; must be picklable

CHUNK = 256  # look-ups searched at a time, by the session
LONG = 16_000  # so many characters of a query weigh as much as one look-up more
AHEAD = 2  # chunks a process has waiting


def play_sessions(
    make_play: MakePlay[T],
    sessions: Iterable[Session],
    knowledge: Knowledge,
    *,
    limit: int,
    jobs: int = 1,
    keep: bool = False,
    progress: Progress | None = None,
    cache: EmbeddingCache | None = None,
) -> Iterator[tuple[Session, T]]:
    """Every session with what `play` makes of it, lazily and in order, whatever `jobs` is.

    Queries are embedded, through `cache` or else the base's own, and searched here; only playing
    is spread over processes. `limit` is the greatest number of documents in one answer.
    `progress(done, total)` counts sessions; total is 0 where their number is not known. Raises
    `ConfigError` for fewer than one job.
    """
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}; 1 or more is allowed")
    if cache is not None:
        knowledge = replace(knowledge, cache=cache)
    chunks = ((chunk, _remembered(knowledge, chunk, limit, keep)) for chunk in _chunks(sessions))
    played = (
        _alone(make_play, knowledge, chunks)
        if jobs == 1
        else _spread(make_play, knowledge, chunks, jobs)
    )
    return _counted(played, len(sessions) if isinstance(sessions, Sized) else 0, progress)


def _counted(
    played: Iterator[tuple[Session, T]], total: int, progress: Progress | None
) -> Iterator[tuple[Session, T]]:
    for done, one in enumerate(played, start=1):
        yield one
        if progress is not None:
            progress(done, total)


def _chunks(sessions: Iterable[Session]) -> Iterator[list[Session]]:
    chunk: list[Session] = []
    weight = 0
    for session in sessions:
        chunk.append(session)
        weight += sum(1 + len(turn.query) // LONG for turn in session.turns)
        if weight >= CHUNK or len(chunk) >= CHUNK:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


def _remembered(
    knowledge: Knowledge, chunk: Sequence[Session], limit: int, keep: bool
) -> Remembered:
    longest = max(len(session.turns) for session in chunk)
    queries = [turn.query for session in chunk for turn in session.turns]
    return remember(knowledge, queries, depth=limit * (longest + 1) + 1, keep=keep)


Chunks = Iterator[tuple[list[Session], Remembered]]


def _alone(
    make_play: MakePlay[T], knowledge: Knowledge, chunks: Chunks
) -> Iterator[tuple[Session, T]]:
    play = make_play(knowledge)
    for chunk, remembered in chunks:
        base = recalled(knowledge, remembered)
        for session in chunk:
            yield session, play(base, session)


def _spread(
    make_play: MakePlay[T], knowledge: Knowledge, chunks: Chunks, jobs: int
) -> Iterator[tuple[Session, T]]:
    """In rounds of a few chunks a process, so that as little waits as with one."""
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    shared = _pickled(make_play, knowledge, jobs)
    with (
        TemporaryDirectory() as folder,
        Parallel(n_jobs=jobs, batch_size=1, max_nbytes=None) as pool,
    ):
        file = Path(folder) / "base.pickle"
        file.write_bytes(shared)
        while due := list(islice(chunks, AHEAD * jobs)):
            rounds = pool(delayed(_play_chunk)(str(file), *chunk) for chunk in due)
            for (chunk, _), played in zip(due, rounds, strict=True):
                yield from zip(chunk, played, strict=True)


def _pickled(make_play: MakePlay[T], knowledge: Knowledge, jobs: int) -> bytes:
    """What every process works with, but for the chunks. Raises `ConfigError`."""
    try:
        return pickle.dumps((make_play, without_encoder(knowledge)))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"jobs is {jobs}, but the tokenizer cannot be sent to other processes ({error}); "
            "give its name, or allow one job"
        ) from None


def _play_chunk(file: str, chunk: Sequence[Session], remembered: Remembered) -> list[Any]:
    knowledge, play = _opened(file)
    base = recalled(knowledge, remembered)
    return [play(base, session) for session in chunk]


@lru_cache(maxsize=1)
def _opened(file: str) -> tuple[Knowledge, Play[Any]]:
    make_play, knowledge = pickle.loads(Path(file).read_bytes())
    return knowledge, make_play(knowledge)
