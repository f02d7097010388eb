"""Replay against the record: does it give again what the tool handed out (method.md 11).

For the recorded policy this is its fidelity: below 0.95 tables may be shown, claims may not. For
any policy it says from where on the agent would have seen something else than what is recorded:
up to and including that turn totals are exact, after it they stand for the same questions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import Session
from kbeval.evaluation.replaying.outcomes import Outcome, SessionReplay
from kbeval.evaluation.replaying.policies import NO_MEMORY
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.totals import RunningTotals, Totals

FAITHFUL = 0.95  # least share of recorded answers that replay must give again

_PART = ("turns", "tokens", "saved_tokens")
_NAMES = ("recorded", "equal", "same_set", "sessions_recorded", "never_diverge", "unrecorded")


@dataclass(frozen=True, slots=True)
class Part:
    """Totals over the turns on one side of the divergence, of recorded sessions."""

    turns: int
    tokens: int  # handed out by the policy
    saved_tokens: int  # fewer than without memory, may be negative; skipped look-ups save none


@dataclass(frozen=True, slots=True)
class Fidelity:
    """One policy beside the record; intervals are over sessions."""

    policy: str
    share: Rate  # of recorded turns: the same paths in the same order
    share_of_sets: Rate  # the same paths in any order
    never_diverges: Rate  # share of recorded sessions
    before_divergence: Part  # the first diverging turn included
    after_divergence: Part
    unrecorded_turns: int

    @property
    def supports_claims(self) -> bool:
        """False below 0.95.

        Where nothing is recorded there is nothing to be unfaithful to: `share` has no value, and
        all that is said is "for this sequence of questions".
        """
        return self.share.value is None or self.share.value >= FAITHFUL

    def to_json(self) -> dict[str, Any]:
        """Plain values under the fields' names, and whether claims are supported."""
        return {
            "policy": self.policy,
            "share": self.share.to_json(),
            "share_of_sets": self.share_of_sets.to_json(),
            "never_diverges": self.never_diverges.to_json(),
            "before_divergence": asdict(self.before_divergence),
            "after_divergence": asdict(self.after_divergence),
            "unrecorded_turns": self.unrecorded_turns,
            "supports_claims": self.supports_claims,
        }


class RecordTally:
    """Compares replayed sessions with their record, one at a time; it keeps running totals."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        sides = [f"{side}_{name}" for side in ("before", "after") for name in _PART]
        self._running = RunningTotals([*_NAMES, *sides])

    def add(self, replay: SessionReplay) -> None:
        """Compare one session."""
        outcomes = replay.outcomes[self.policy]
        pairs = [
            (turn.returned, outcome.paths)
            for turn, outcome in zip(replay.session.turns, outcomes, strict=True)
            if turn.returned is not None
        ]
        row = {
            "recorded": len(pairs),
            "equal": sum(returned == paths for returned, paths in pairs),
            "same_set": sum(set(returned) == set(paths) for returned, paths in pairs),
            "unrecorded": len(outcomes) - len(pairs),
        }
        if pairs:
            row |= self._split(replay)
        self._running.add(row)

    def fidelity(self) -> Fidelity:
        """What the sessions so far say."""
        totals = self._running.totals()
        empty = "no turn has a record"
        return Fidelity(
            policy=self.policy,
            share=totals.share("equal", "recorded", empty=empty),
            share_of_sets=totals.share("same_set", "recorded", empty=empty),
            never_diverges=totals.share("never_diverge", "sessions_recorded", empty=empty),
            before_divergence=_part(totals, "before"),
            after_divergence=_part(totals, "after"),
            unrecorded_turns=totals.count("unrecorded"),
        )

    def _split(self, replay: SessionReplay) -> dict[str, int]:
        outcomes, without = replay.outcomes[self.policy], replay.outcomes[NO_MEMORY]
        first = first_divergence(replay, self.policy)
        end = len(outcomes) if first is None else first + 1
        return {
            "sessions_recorded": 1,
            "never_diverge": int(first is None),
            **_sums("before", outcomes[:end], without[:end]),
            **_sums("after", outcomes[end:], without[end:]),
        }


def fidelity(replays: Iterable[SessionReplay], policy: str) -> Fidelity:
    """One policy beside the record, over replayed sessions."""
    tally = RecordTally(policy)
    for replay in replays:
        tally.add(replay)
    return tally.fidelity()


def is_recorded(session: Session) -> bool:
    """Whether what the tool handed out was recorded for any turn."""
    return any(turn.returned is not None for turn in session.turns)


def first_divergence(replay: SessionReplay, policy: str) -> int | None:
    """The first turn, from 0, at which the policy hands out other paths than recorded; None: never.

    Turns without a record cannot differ. Raises `DatasetError` for a session without any: there
    it is not defined.
    """
    if not is_recorded(replay.session):
        raise DatasetError(
            f"session {replay.session.session_id!r}: no turn says what was returned, so nothing "
            "can diverge from it; sessions with a record are expected"
        )
    pairs = zip(replay.session.turns, replay.outcomes[policy], strict=True)
    return next(
        (
            place
            for place, (turn, outcome) in enumerate(pairs)
            if turn.returned is not None and turn.returned != outcome.paths
        ),
        None,
    )


def _sums(side: str, outcomes: tuple[Outcome, ...], without: tuple[Outcome, ...]) -> dict[str, int]:
    tokens = sum(outcome.token_count for outcome in outcomes)
    saved = sum(
        none.token_count - outcome.token_count
        for outcome, none in zip(outcomes, without, strict=True)
        if not outcome.skipped
    )
    values = len(outcomes), tokens, saved
    return {f"{side}_{name}": value for name, value in zip(_PART, values, strict=True)}


def _part(totals: Totals, side: str) -> Part:
    return Part(*(totals.count(f"{side}_{name}") for name in _PART))
