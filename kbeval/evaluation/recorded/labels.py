"""The labels of a labelled set, joined to recorded look-ups that ask the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kbeval.evaluation.queries import LabelledSet, Query, Session, Turn
from kbeval.evaluation.recorded.account import Account
from kbeval.retrieval.l0 import fold


def with_labels(
    sessions: Iterable[Session], labelled: LabelledSet, account: Account
) -> tuple[Session, ...]:
    """Sessions whose unlabelled turns have the labels of the query with the same folded text.

    Counts `labelled_turns`, and `ambiguous_labels` where queries of one text differ in their
    labels. A text out of its session may mean something else there: the labels are as good as
    the queries are self-contained.
    """
    known = _by_text(labelled)

    def told(turn: Turn) -> Turn:
        found = known.get(fold(turn.query), [])
        if not found or turn.relevant is not None or turn.answerable is not None:
            return turn
        if len(found) > 1:
            account.meet("ambiguous_labels", None)
            return turn
        account.meet("labelled_turns", None)
        return _labelled(turn, found[0], labelled.answers_from)

    return tuple(replace(session, turns=tuple(map(told, session.turns))) for session in sessions)


def _by_text(labelled: LabelledSet) -> dict[str, list[Query]]:
    """Folded text -> the labelled queries that ask it, one for each different judgement."""
    known: dict[str, dict[Any, Query]] = {}
    for query in labelled.queries:
        if query.answerable is not None:
            known.setdefault(fold(query.text), {}).setdefault(_judgement(query), query)
    return {text: list(queries.values()) for text, queries in known.items()}


def _judgement(query: Query) -> tuple[Any, ...]:
    return query.answerable, frozenset(query.grades.items()), frozenset(query.needs)


def _labelled(turn: Turn, query: Query, answers_from: int) -> Turn:
    """`relevant` are the documents that answer, the best first; the grades stay in metadata."""
    order = sorted(query.grades.items(), key=lambda grade: (-grade[1], grade[0]))
    return replace(
        turn,
        query_id=query.id,
        relevant=tuple(path for path, score in order if score >= answers_from),
        answerable=query.answerable,
        needs=query.needs,
        metadata={**turn.metadata, "grades": dict(query.grades)},
    )
