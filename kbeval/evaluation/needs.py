"""What a turn needs: the documents that answer it, and which other turns ask for the same."""

from __future__ import annotations

from dataclasses import dataclass

from kbeval.evaluation.queries import Session, Turn
from kbeval.retrieval.l0 import fold


@dataclass(frozen=True, slots=True)
class Needed:
    """The labels of one turn, as replay and ledger read them.

    Each of `groups` needs one of its members handed out. Without a group nothing answers: that is
    known (`known`, the turn is unanswerable), or nobody labelled the turn.
    """

    groups: tuple[frozenset[str], ...]
    known: bool
    need: str | None  # what the turn was written for, where the set names it
    text: str  # the folded query

    def answered_by(self, path: str) -> bool:
        """Whether the document is a member of a group."""
        return any(path in group for group in self.groups)

    def covered(self, paths: frozenset[str]) -> tuple[bool, ...]:
        """Whether each group has a member among `paths`."""
        return tuple(not group.isdisjoint(paths) for group in self.groups)

    def same_need(self, other: Needed) -> tuple[bool, bool]:
        """Whether both turns ask for the same, and whether that rests on their texts alone.

        Where both name their need, the names decide; else the folded queries must be equal.
        """
        if self.need is not None and other.need is not None:
            return self.need == other.need, False
        return self.text == other.text, True


def needed(turn: Turn) -> Needed:
    """The labels of a turn.

    `needs` are its groups, else `relevant` is one. An empty `relevant` says that nothing answers,
    unless the turn is declared answerable: then its documents are not known.
    """
    groups = tuple(frozenset(group) for group in turn.needs if group)
    if not groups and turn.relevant:
        groups = (frozenset(turn.relevant),)
    if turn.answerable is False:
        groups = ()
    nothing = turn.answerable is False or (turn.relevant == () and turn.answerable is None)
    need = turn.metadata.get("need", turn.metadata.get("need_id"))
    return Needed(
        groups,
        known=bool(groups) or nothing,
        need=None if need is None else str(need),
        text=fold(turn.query),
    )


def session_needs(session: Session, turns: tuple[Needed, ...]) -> frozenset[frozenset[str]]:
    """What the whole session needs: its own labels, one a document, else the groups of its turns.

    Labels given for the session do not say which of them stand for each other.
    """
    if session.relevant:
        return frozenset(frozenset((path,)) for path in session.relevant)
    return frozenset(group for turn in turns for group in turn.groups)
