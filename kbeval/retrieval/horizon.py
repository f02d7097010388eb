"""A session that forgets, or that knows a document by its path or its content alone (REQ-01)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from kbeval.retrieval.marks import Candidate, Claim, Session, same_version
from kbeval.retrieval.ranking import places

KnownBy = Literal["version", "path", "content"]

EXACT_TURNS = 1000  # the latest look-ups of a session, those that can be taken back


class Turn:
    """A look-up of a session, or a mark outside of any: its place, and what it marked.

    `number` counts the session's look-ups up to this one, `through` the tokens they handed out.
    """

    __slots__ = ("look_ups", "marked", "number", "through", "token_count")

    def __init__(self, look_ups: int) -> None:
        self.look_ups = look_ups  # 1, or 0 for a mark outside of any
        self.token_count = 0  # of its answer, once that is known
        self.marked: tuple[Candidate, ...] = ()
        self.number = self.through = 0

    def follow(self, before: Turn) -> None:
        """Take the place after `before`."""
        self.number = before.number + self.look_ups
        self.through = before.through + self.token_count


class Mark(NamedTuple):
    """A document that was given, and when."""

    candidate: Candidate
    turn: Turn


class Horizon(NamedTuple):
    """How far back a session remembers; whichever comes first."""

    turns: int | None = None  # look-ups
    tokens: int | None = None  # handed out by later look-ups

    def is_behind(self, given: Turn, now: Turn) -> bool:
        """What was given then is forgotten now; the answer of `now` itself comes too late."""
        if self.turns is not None and now.number - given.number >= self.turns:
            return True
        since = now.through - now.token_count - given.through
        return self.tokens is not None and since >= self.tokens


class Given:
    """The latest mark of every document, by path and by content.

    A mark without a hash has no content of its own: it stands under its path for every version.
    """

    __slots__ = ("by_content", "by_path", "known_by")

    def __init__(self, known_by: KnownBy) -> None:
        self.known_by = known_by
        self.by_path: dict[str, Mark] = {}
        self.by_content: dict[str | tuple[str], Mark] = {}  # empty unless known by content

    def copy(self) -> Given:
        """One that can be added to while this one stays."""
        copied = Given(self.known_by)
        copied.by_path, copied.by_content = dict(self.by_path), dict(self.by_content)
        return copied

    def add(self, turn: Turn, horizon: Horizon) -> None:
        """Enter what a turn marked; a document that was forgotten comes last, as a new one does."""
        for candidate in turn.marked:
            path, _, content_hash = candidate
            mark = Mark(candidate, turn)
            before = self.by_path.get(path)
            if before is not None and horizon.is_behind(before.turn, turn):
                del self.by_path[path]
            self.by_path[path] = mark
            if self.known_by == "content":
                self.by_content[content_hash or (path,)] = mark

    def find(self, candidate: Candidate) -> Mark | None:
        """The latest mark by which this document is known, forgotten or not."""
        path, _, content_hash = candidate
        mark = self.by_path.get(path)
        if self.known_by == "content" and content_hash:
            marks = (self.by_content.get(content_hash), self.by_content.get((path,)))
            return max(filter(None, marks), key=lambda mark: mark.turn.number, default=None)
        if mark is None or self.known_by != "version" or same_version(mark.candidate, content_hash):
            return mark
        return None


class TurnSession(Session):
    """A session as the list of its look-ups, of which everything else is derived.

    Known is what an earlier look-up gave, in the terms of `known_by`, unless that is behind the
    horizon; what is forgotten counts as never given, except that a claim says so when it comes
    again (`beyond_horizon`). Two documents of one answer may have the same content. A domain whose
    documents are all forgotten leaves the list too: the agent no longer has them.

    Every look-up counts, one that found nothing as well. Between two of them the session answers
    as the last one saw it. A claim taken back leaves the session as if the look-up had not been
    (what later claims took they keep), but only among the latest `EXACT_TURNS`: of older look-ups
    only the last mark of each document and content is kept.
    A session of 20 look-ups with a document each takes about 10 kB.
    """

    __slots__ = ("horizon", "kept", "last", "settled", "settled_turn", "turns")

    def __init__(self, stamp: int, known_by: KnownBy, horizon: Horizon) -> None:
        super().__init__(stamp)
        self.horizon = horizon
        self.turns: dict[int, Turn] = {}  # by stamp, the oldest first
        self.last = self.settled_turn = Turn(0)  # the latest; the one before the oldest
        self.kept = Given(known_by)  # after the latest
        self.settled = Given(known_by)  # before the oldest

    def knows(self, candidate: Candidate) -> bool:
        """A look-up would pass this document over."""
        with self.lock:
            return self._knows(candidate)

    def has_path(self, path: str) -> bool:
        """Some version of the document at this path was given, forgotten or not."""
        return path in self.kept.by_path

    def given_count(self) -> int:
        """How many documents a look-up may have to pass over."""
        with self.lock:
            return sum(not self._is_forgotten(mark) for mark in self.kept.by_path.values())

    def give(self, candidate: Candidate, stamp: int) -> None:
        """Mark a document outside any look-up."""
        self._append(Turn(0), stamp)
        self._mark((candidate,))

    def handed_out(self, stamp: int, token_count: int) -> None:
        """Told the size of a look-up's answer."""
        turn = self.turns.get(stamp)
        if turn is None:  # cleared, or taken back
            return
        added, turn.token_count = token_count - turn.token_count, token_count
        if turn is self.last:
            turn.through += added
        else:  # others have begun meanwhile
            self._derive()

    def claim(
        self,
        exact: Sequence[Candidate],
        near: Sequence[Candidate],
        *,
        stamp: int,
        limit: int,
        mark_all: bool,
        redeliver: bool,
    ) -> Claim:
        """Take what gets a place and is not known, and mark it; `lock` is held."""
        self._append(Turn(1), stamp)
        withheld: tuple[Candidate, ...] = ()
        if redeliver:
            chosen = places(exact, near, limit=limit)
        else:
            chosen, withheld = self.choose(exact, near, limit)
        taken = tuple(chosen)
        met = [candidate for candidate in taken if self._has_met(candidate)]
        again = tuple(filter(self._knows, met))
        changed = tuple(c for c in met if c not in again and self._has_another_version(c))
        handed = taken if mark_all else taken[:1]
        self._mark(handed)
        return Claim(
            taken,
            marked=tuple(candidate for candidate in handed if candidate not in again),
            withheld=withheld,
            content_changed=changed,
            redelivered=again,
            domains=tuple(self.seen_domains()),
            stamp=stamp,
            handed_count=len(handed),
            beyond_horizon=tuple(c for c in met if c not in again and c not in changed),
        )

    def passing(self, passed: dict[str, Candidate]) -> Callable[[Candidate], bool]:
        """`knows`, which also writes down in `passed` what it was asked for and knew."""

        def known(candidate: Candidate) -> bool:
            if not self._knows(candidate):
                return False
            passed[candidate.path] = candidate
            return True

        return known

    def undo(self, claim: Claim) -> None:
        """Take a look-up away: its marks, its tokens, and that it was."""
        if self.turns.pop(claim.stamp, None) is not None:
            self._derive()

    def seen_domains(self) -> dict[str, None]:
        """The domains of what is not forgotten, in the order first seen."""
        marks = self.kept.by_path.values()
        return dict.fromkeys(m.candidate.domain for m in marks if not self._is_forgotten(m))

    def _knows(self, candidate: Candidate) -> bool:
        mark = self.kept.find(candidate)
        return mark is not None and not self._is_forgotten(mark)

    def _has_met(self, candidate: Candidate) -> bool:
        found = self.kept.find(candidate)
        return found is not None or candidate.path in self.kept.by_path

    def _has_another_version(self, candidate: Candidate) -> bool:
        mark = self.kept.by_path.get(candidate.path)
        return mark is not None and not self._is_forgotten(mark)

    def _is_forgotten(self, mark: Mark) -> bool:
        return self.horizon.is_behind(mark.turn, self.last)

    def _append(self, turn: Turn, stamp: int) -> None:
        turn.follow(self.last)
        self.turns[stamp] = self.last = turn
        if len(self.turns) > EXACT_TURNS:
            self.settled_turn = self.turns.pop(next(iter(self.turns)))
            self.settled.add(self.settled_turn, self.horizon)

    def _mark(self, handed: tuple[Candidate, ...]) -> None:
        self.last.marked = handed
        self.kept.add(self.last, self.horizon)

    def _derive(self) -> None:
        """Everything from the look-ups, anew."""
        self.last, kept = self.settled_turn, self.settled.copy()
        for turn in self.turns.values():
            turn.follow(self.last)
            self.last = turn
            kept.add(turn, self.horizon)
        self.kept = kept
