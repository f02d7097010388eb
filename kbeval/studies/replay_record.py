"""Does replay give the record again? Asked of the policy under which the record was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbeval.config import Settings
from kbeval.evaluation.recorded.loaded import LoadedSessions
from kbeval.evaluation.replaying.fidelity import Fidelity, RecordTally, is_recorded
from kbeval.evaluation.replaying.outcomes import SessionReplay
from kbeval.evaluation.replaying.policies import NO_MEMORY, Policy, parse_policy
from kbeval.evaluation.statistics import Rate
from kbeval.studies.replay_opening import Opened
from kbeval.studies.tuning_files import told

NOT_RECORDED = 'no answer is recorded: all of it is "for this sequence of questions"'


@dataclass(frozen=True, slots=True)
class Record:
    """The policy that recorded the sessions, and how well replay gives its answers again.

    `tried` are the policies that may have: one that was named or that the record tells, else no
    memory and document memory, of which the one that agrees best is taken. Empty where nothing
    was recorded.
    """

    named_by: str  # who says which policy it was
    tried: tuple[Fidelity, ...]  # the one that is taken first

    @property
    def fidelity(self) -> Rate | None:
        """The share of recorded answers that replay gives again; None where none is recorded."""
        return self.tried[0].share if self.tried else None

    def told(self) -> str:
        """In a line: the policy, who names it, the share of its answers, what that allows."""
        if not self.tried:
            return NOT_RECORDED
        best = self.tried[0]
        claims = "" if best.supports_claims else "; below 0.95, so no saving is claimed"
        others = "".join(f"; {one.policy} {told(one.share)}" for one in self.tried[1:])
        return (
            f"{best.policy} ({self.named_by}) gives {told(best.share)} of the recorded answers "
            f"again, {best.share_of_sets.value:.3f} in any order{others}{claims}"
        )

    def to_json(self) -> dict[str, Any]:
        """The policy, who names it, and every one that was tried."""
        return {
            "policy": self.tried[0].policy if self.tried else None,
            "named_by": self.named_by if self.tried else None,
            "tried": [one.to_json() for one in self.tried],
        }


class Recording:
    """Holds replayed sessions against the record; `extra` must be replayed for it as well."""

    def __init__(self, opened: Opened) -> None:
        named = opened.recorded_policy
        told = _told(opened.loaded, opened.settings) if named is None else ("as given", [named])
        self.named_by, candidates = told
        if not any(is_recorded(session) for session in opened.loaded.sessions):
            candidates = []
        found = [_among(policy, opened.policies) for policy in candidates]
        self.extra = tuple(policy for policy in found if policy not in opened.policies)
        self._tallies = [RecordTally(policy.name) for policy in found]

    def add(self, replayed: SessionReplay) -> None:
        """Compare one session."""
        for tally in self._tallies:
            tally.add(replayed)

    def record(self) -> Record:
        """What the sessions so far say; of several policies the best comes first."""
        found = [tally.fidelity() for tally in self._tallies]
        found.sort(key=lambda one: -(one.share.value or 0.0))
        return Record(self.named_by, tuple(found))


def _told(loaded: LoadedSessions, base: Settings) -> tuple[str, list[Policy]]:
    """The policies that the record may have been made under, and who says so."""
    memory = loaded.recorded_memory
    texts = [NO_MEMORY, "documents"] if memory == "unknown" else [memory]
    said = "it agrees best; the record does not tell" if memory == "unknown" else "by the record"
    return said, [parse_policy(text, base) for text in texts]


def _among(policy: Policy, policies: Sequence[Policy]) -> Policy:
    """The one of the policies that does the same, else itself under a name of its own."""
    same = (one for one in policies if replace(one, name="") == replace(policy, name=""))
    taken = any(one.name == policy.name for one in policies)
    own = replace(policy, name=f"recorded: {policy.name}") if taken else policy
    return next(same, own)
