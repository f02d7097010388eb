"""Why a withheld document may be missed: one label each, the first that holds (method.md 12)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kbeval.evaluation.ledger.versions import Versions
from kbeval.evaluation.needs import Needed
from kbeval.evaluation.replaying.outcomes import Handed, Outcome


class Label(StrEnum):
    """What the agent has of a document that it is not handed, in the order of the rule."""

    CHANGED = "changed"  # only another version of it
    BEYOND_HORIZON = "beyond_horizon"  # its context has lost it again
    NEVER_DELIVERED = "never_delivered"  # another passage of it, or nothing
    REPEAT = "repeat"  # it was handed out for the same need
    NEW_NEED = "new_need"  # it was handed out for another need


CANNOT_HAVE = (Label.CHANGED, Label.BEYOND_HORIZON, Label.NEVER_DELIVERED)
MAY_HAVE = (Label.REPEAT, Label.NEW_NEED)


@dataclass(frozen=True, slots=True)
class Withheld:
    """A document of the answer without memory that the policy withheld."""

    path: str
    label: Label
    token_count: int
    by_text: bool  # that it is a repeat, or none, rests on the text of the queries alone


class Deliveries:
    """What one policy has handed out in a session so far, and what the agent can have of it.

    `versions` are those of the session's documents, so far as they are known.
    """

    def __init__(self, turns: Sequence[Needed], versions: Versions, horizon: int | None) -> None:
        self._turns = turns
        self._versions = versions
        self._horizon = len(turns) if horizon is None else horizon
        self._paths: set[str] = set()
        self._of_content: dict[str, list[tuple[int, Handed]]] = defaultdict(list)

    def add(self, turn: int, outcome: Outcome) -> None:
        """The turn's answer reaches the agent."""
        for handed in outcome.handed:
            self._paths.add(handed.path)
            self._of_content[handed.content].append((turn, handed))

    def label(self, handed: Handed, turn: int) -> tuple[Label, bool]:
        """What the agent has of `handed`, which it is not given now; and if a text decided that.

        The same text counts under any path.
        """
        same = self._of_content.get(handed.content, [])
        if not same:
            known = handed.path in self._paths
            return (Label.CHANGED if known else Label.NEVER_DELIVERED), False
        near = [(at, given) for at, given in same if turn - at < self._horizon]
        if not near:
            return Label.BEYOND_HORIZON, False
        held = [at for at, given in near if given.passage in (None, handed.passage)]
        if not held:
            return Label.NEVER_DELIVERED, False
        return self._for_which_need(held, turn)

    def label_of_path(self, path: str, turn: int) -> Label | None:
        """The same for a document that is no part of the answer without memory.

        None where the agent cannot have its present text as a whole, under any path.
        """
        held = [
            at
            for content in self._versions.contents(path, turn)
            for at, given in self._of_content.get(content, ())
            if turn - at < self._horizon and given.passage is None
        ]
        return self._for_which_need(held, turn)[0] if held else None

    def _for_which_need(self, held: Sequence[int], turn: int) -> tuple[Label, bool]:
        compared = [self._turns[turn].same_need(self._turns[at]) for at in held]
        repeats = [by_text for same, by_text in compared if same]
        if repeats:
            return Label.REPEAT, all(repeats)
        return Label.NEW_NEED, any(by_text for _, by_text in compared)


def withheld_of(
    none: Outcome, policy: Outcome, deliveries: Deliveries, turn: int
) -> tuple[Withheld, ...]:
    """The documents of the answer without memory that the policy withheld, labelled."""
    held = [h for h in none.handed if h.path in policy.withheld and h not in policy.handed]
    return tuple(
        Withheld(handed.path, label, handed.token_count, by_text)
        for handed in held
        for label, by_text in (deliveries.label(handed, turn),)
    )
