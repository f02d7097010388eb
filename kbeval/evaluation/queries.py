"""Labelled sets and sessions from disk, every fault with file and line (design.md 14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kbeval.records import Fault


@dataclass(frozen=True, slots=True)
class Query:
    """One labelled query (method.md 2).

    `grades` are the judged documents, path -> score. `answerable` False is declared, None means
    unlabelled (no row, no flag). `nearness` says what an unanswerable query is near to: "near"
    (its topic is covered), "far", or "" where the set does not say. `cluster` is the unit of
    intervals: session, else need, else the query itself (method.md 7).
    """

    id: str
    text: str
    split: str = "test"
    answerable: bool | None = True
    grades: Mapping[str, int] = field(default_factory=dict)
    needs: tuple[tuple[str, ...], ...] = ()
    kind: str = ""
    nearness: Literal["near", "far", ""] = ""
    lang: str = ""
    domain: str = ""
    need_id: str | None = None
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        """The unit of sampling this query belongs to."""
        if self.session_id is not None:
            return f"session:{self.session_id}"
        return f"need:{self.need_id}" if self.need_id is not None else f"query:{self.id}"


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """A labelled set as loaded: its queries, and what was lost on the way.

    `left_out` counts queries that were read but cannot be used, by reason: `empty_text`,
    `duplicate`, `no_judgement`. `answers_from` is the lowest score that fully answers.
    """

    name: str
    folder: str
    queries: tuple[Query, ...]
    answers_from: int = 1
    answers_from_declared: bool = True
    judged: Literal["complete", "pooled"] = "pooled"
    splits: tuple[str, ...] = ("test",)
    languages: tuple[str, ...] = ()
    labelled_by: str = ""
    form: str = "beir"  # how the labels were laid out: beir, wide, long
    faults: tuple[Fault, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str = ""  # of queries and labels


@dataclass(frozen=True, slots=True)
class Turn:
    """One look-up of a recorded or written session; labels are None where there are none."""

    query: str
    query_id: str | None = None
    relevant: tuple[str, ...] | None = None
    answerable: bool | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Session:
    """A sequence of look-ups; `relevant` holds labels that were given for the whole session."""

    session_id: str
    turns: tuple[Turn, ...]
    relevant: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
