"""Every course a session can take under an executor that obeys, each answer looked up once.

What a look-up answers depends on the turns that were skipped before it and on nothing else, so an
answer is kept under its turn and the set of those, a number with one bit a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.tokens import Tokenizer
from kbeval.evaluation.needs import needed
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.replaying.answered import Answered
from kbeval.evaluation.replaying.executor import (
    SKIPPED,
    Domains,
    base_domains,
    closed_after,
    draw,
    holds_closed,
    turn_domains,
)
from kbeval.evaluation.replaying.outcomes import Outcome
from kbeval.evaluation.replaying.policies import Policy
from kbeval.evaluation.replaying.recalled import RecalledKnowledge
from kbeval.evaluation.replaying.stage import PolicyTool, opened_tokenizer, turns_and_bases
from kbeval.retrieval.knowledge import Knowledge


@dataclass(frozen=True, slots=True, eq=False)
class SessionObedience:
    """One session at l levels of obedience and s seeds: what was not asked, and what that hid."""

    session_id: str
    turn_count: int
    answered_count: int  # turns that no memory answers, so far as labels tell
    avoided_lookups: NDArray[np.int32]  # (l, s)
    avoided_tokens: NDArray[np.int64]  # (l, s), of the answers without memory
    harmed_turns: NDArray[np.int32]  # (l, s), answered ones: skipped, or the answer withheld


class Courses:
    """Plays a session under a policy that obeys, at every level and seed."""

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        none: Policy,
        policy: Policy,
        tokenizer: Tokenizer | str,
        levels: Sequence[float],
        seeds: int,
    ) -> None:
        answered = Answered(opened_tokenizer(tokenizer))
        self._none = PolicyTool(none, knowledge, answered)
        self._tool = PolicyTool(policy, knowledge, answered)
        self._domains = base_domains(knowledge.documents)
        self._levels = levels
        self._seeds = seeds

    def __call__(self, knowledge: RecalledKnowledge, session: Session) -> SessionObedience:
        """The totals of one session."""
        name, steps = session.session_id, list(turns_and_bases(session, knowledge))
        without = [self._none.ask(name, turn, base) for turn, base in steps]
        asked = [
            turn_domains(turn, outcome, self._domains)
            for (turn, _), outcome in zip(steps, without, strict=True)
        ]
        course = _Course(self._tool, name, steps, asked)
        losses = _Losses(session.turns, without)
        totals: dict[int, tuple[int, int, int]] = {}
        found = np.zeros((3, len(self._levels), self._seeds), np.int64)
        for seed in range(self._seeds):
            luck = [draw(name, place, seed) for place in range(len(steps))]
            for at, level in enumerate(self._levels):
                skipped = course.skipped(luck, level)
                if skipped not in totals:
                    totals[skipped] = losses.of(course.outcomes(skipped))
                found[:, at, seed] = totals[skipped]
        course.forget()
        return SessionObedience(
            session_id=name,
            turn_count=len(steps),
            answered_count=losses.answered_count,
            avoided_lookups=found[0].astype(np.int32),
            avoided_tokens=found[1],
            harmed_turns=found[2].astype(np.int32),
        )


class _Course:
    """The answers of one session under every set of skipped turns that comes up."""

    def __init__(
        self,
        tool: PolicyTool,
        session_id: str,
        steps: Sequence[tuple[Turn, RecalledKnowledge]],
        asked: Sequence[Domains],
    ) -> None:
        self._tool = tool
        self._session_id = session_id
        self._steps = steps
        self._asked = asked
        self._known: dict[tuple[int, int], tuple[Outcome, Domains]] = {}  # (turn, skipped before)
        self._heard: list[int] = []  # the turns that the tool was asked at, in order

    def skipped(self, luck: Sequence[float], level: float) -> int:
        """The turns, as bits, that an executor of this obedience and luck does not ask."""
        skipped, closed = 0, Domains()
        for place, asked in enumerate(self._asked):
            if luck[place] < level and holds_closed(closed, asked):
                skipped |= 1 << place
                continue
            key = place, skipped
            if key not in self._known:
                outcome = self._look_up(place, skipped)
                self._known[key] = outcome, closed_after(self._tool.policy, closed, outcome)
            closed = self._known[key][1]
        return skipped

    def outcomes(self, skipped: int) -> list[Outcome]:
        """The outcome of every turn of a course that was taken."""
        return [
            SKIPPED if skipped >> place & 1 else self._known[place, _before(place, skipped)][0]
            for place in range(len(self._steps))
        ]

    def forget(self) -> None:
        """The session is over."""
        self._tool.forget(self._session_id)

    def _look_up(self, place: int, skipped: int) -> Outcome:
        """Ask at a turn, once the tool has heard the turns before it that were not skipped."""
        due = [earlier for earlier in range(place) if not skipped >> earlier & 1]
        while self._heard != due[: len(self._heard)]:
            self._heard.pop()
            self._tool.take_back()
        for turn in [*due[len(self._heard) :], place]:
            self._heard.append(turn)
            outcome = self._tool.ask(self._session_id, *self._steps[turn])
        return outcome


class _Losses:
    """What a course avoids and what it hides, beside the same session without memory."""

    def __init__(self, turns: Sequence[Turn], without: Sequence[Outcome]) -> None:
        self._tokens = [outcome.token_count for outcome in without]
        self._lost_if_none_of = [
            [group for group in needed(turn).groups if not group.isdisjoint(outcome.paths)]
            for turn, outcome in zip(turns, without, strict=True)
        ]
        self.answered_count = sum(map(bool, self._lost_if_none_of))

    def of(self, outcomes: Sequence[Outcome]) -> tuple[int, int, int]:
        """Look-ups and tokens avoided, turns harmed."""
        avoided = [place for place, outcome in enumerate(outcomes) if outcome.skipped]
        harmed = sum(
            any(group.isdisjoint(outcome.paths) for group in groups)
            for outcome, groups in zip(outcomes, self._lost_if_none_of, strict=True)
        )
        return len(avoided), sum(self._tokens[place] for place in avoided), harmed


def _before(place: int, skipped: int) -> int:
    """Of the skipped turns those before this one."""
    return skipped & ((1 << place) - 1)
