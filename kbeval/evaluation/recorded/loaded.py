"""What a source of sessions gave, and what was met on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kbeval.evaluation.queries import Session
from kbeval.evaluation.recorded.names import QueryNames
from kbeval.records import Fault

Form = Literal["sessions", "database", "rows", "spans"]
FORMS: tuple[Form, ...] = ("sessions", "database", "rows", "spans")
Memory = Literal["documents", "none", "unknown"]


@dataclass(frozen=True, slots=True)
class LoadedSessions:
    """Sessions as loaded, from whatever form, and every look-up that is not among them.

    `left_out` counts look-ups (lines, where no more is known of them) by reason: `malformed`,
    `no_session`, `empty_query`, `duplicate`. `counts` holds what was met and kept, or is no
    look-up: `out_of_order`, `naive_time`, `unreadable_time`, `untimed`, `other_zone`,
    `long_query`, `cut_sessions`, `unknown_documents`, `respelled_documents`,
    `unnamed_documents`, `unreadable_details`, `changed_documents`, `other_tool`, `other_spans`,
    `labelled_turns`, `ambiguous_labels`, `contradictory_labels`, `gold_not_in_corpus`.
    `recorded_memory` is what the recorded tool remembered, as far as the record tells. `names`
    says how queries are shown in everything that is written.
    """

    sessions: tuple[Session, ...]
    faults: tuple[Fault, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    source: str = ""  # a file, or a database without its password
    form: Form = "sessions"
    counts: Mapping[str, int] = field(default_factory=dict)
    recorded_memory: Memory = "unknown"
    unknown_documents: tuple[str, ...] = ()  # named in the record, not in the corpus
    names: QueryNames = field(default_factory=QueryNames)

    @property
    def turn_count(self) -> int:
        """Look-ups in all sessions."""
        return sum(len(session.turns) for session in self.sessions)

    def __len__(self) -> int:
        return len(self.sessions)


def is_cut(session: Session) -> bool:
    """Whether a part of the session is missing: so declared, or seen while reading it."""
    return bool(session.metadata.get("cut")) or session.metadata.get("complete") is False
