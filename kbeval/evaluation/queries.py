"""Labelled queries and sessions as records (design.md 14); `readers` and `sessions` load them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
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

    `left_out` counts what was read but cannot be used, by reason: `empty_text`, `duplicate`,
    `no_judgement`, `malformed` for rows that are no query at all, `no_split` for queries of a
    split without qrels. `answers_from` is the lowest score that fully answers. `counts` holds what
    else was met: `empty_rows`, `unknown_queries` (judged but not in the file of queries),
    `doubled_labels`, `other_split` (queries of a split that was not asked for).
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
    fingerprint: str = ""  # of ids, texts and labels, independent of order
    corpus: str = ""  # a loader's name or a folder relative to the set's; "" is the set's own
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def rejected_count(self) -> int:
        """Rows that an error kept out: malformed ones, and those with an empty text."""
        return self.left_out.get("malformed", 0) + self.left_out.get("empty_text", 0)

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True, slots=True)
class Turn:
    """One look-up of a recorded or written session; labels are None where there are none.

    `returned` is what the recorded tool handed out, the primary first; None where nobody recorded
    it. `needs` are the groups of documents of which each needs a member; without them any of
    `relevant` answers.
    """

    query: str
    query_id: str | None = None
    relevant: tuple[str, ...] | None = None
    answerable: bool | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[tuple[str, ...], ...] = ()
    returned: tuple[str, ...] | None = None
    asked_at: datetime | None = None  # aware, in UTC
    changed: tuple[str, ...] = ()  # documents whose content changed since the turn before


@dataclass(frozen=True, slots=True)
class Session:
    """A sequence of look-ups; `relevant` holds labels that were given for the whole session."""

    session_id: str
    turns: tuple[Turn, ...]
    relevant: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
