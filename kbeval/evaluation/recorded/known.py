"""Documents that a record names, held against those of the corpus."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from kbeval.corpus.identity import normalised_path
from kbeval.errors import CorpusError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.recorded.account import Account

NAMED = 5  # unknown documents that a message lists


def with_known_documents(
    sessions: Iterable[Session], documents: Collection[str], account: Account
) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    """Sessions whose returned documents are spelled as the corpus does; the unknown documents.

    A path that the corpus knows in its normalised spelling gets that one (SM-01), any other is
    kept as it is; both are counted. A turn of whose labelled documents the corpus has none stays
    without labels and is counted as `gold_not_in_corpus` (method.md 2): nothing could answer it.
    """
    known = documents if isinstance(documents, (set, frozenset)) else set(documents)
    respelled: dict[str, str] = {}

    def spelled(path: str) -> str:
        if path in known:
            return path
        if path not in respelled:
            respelled[path] = _normalised(path) if _normalised(path) in known else path
        return respelled[path]

    def spelled_all(turn: Turn) -> Turn:
        if turn.returned is None:
            return turn
        returned = tuple(dict.fromkeys(map(spelled, turn.returned)))
        return replace(turn, returned=returned, changed=tuple(map(spelled, turn.changed)))

    def labelled_within(turn: Turn) -> Turn:
        labelled = set(_labelled(turn))
        if not labelled or not known.isdisjoint(labelled):
            return turn
        account.meet("gold_not_in_corpus", None)
        return replace(turn, relevant=None, answerable=None, needs=())

    told = tuple(replace(s, turns=tuple(map(spelled_all, s.turns))) for s in sessions)
    account.counts["respelled_documents"] += sum(new != old for old, new in respelled.items())
    unknown = tuple(dict.fromkeys(path for s in told for path in _named(s) if path not in known))
    _tell(unknown, account)
    within = tuple(replace(s, turns=tuple(map(labelled_within, s.turns))) for s in told)
    return within, unknown


def _tell(unknown: Sequence[str], account: Account) -> None:
    if unknown:
        account.counts["unknown_documents"] += len(unknown)
        shown = ", ".join(f"document {path!r}" for path in unknown[:NAMED])
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        problem = f"{len(unknown)} documents are not in the corpus: {shown}{more}"
        account.tell(problem, "they are kept", place=None)


def _named(session: Session) -> Iterator[str]:
    """Every document that a session names, returned or labelled."""
    yield from session.relevant or ()
    for turn in session.turns:
        yield from turn.returned or ()
        yield from _labelled(turn)


def _labelled(turn: Turn) -> Iterator[str]:
    yield from turn.relevant or ()
    for group in turn.needs:
        yield from group


def _normalised(path: str) -> str:
    try:
        return normalised_path(path)
    except CorpusError:
        return path
