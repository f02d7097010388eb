"""Answers that a memory keeps from the agent, between what is sure and what may be (method.md 12).

A turn is harmed where no memory hands out an answer and the policy does not. It is surely harmed
where the agent cannot have the answer from before either; else the answer may still be in its
context.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbeval.evaluation.ledger.labels import CANNOT_HAVE, MAY_HAVE, Deliveries, Label
from kbeval.evaluation.needs import Needed
from kbeval.evaluation.replaying.outcomes import Handed, Outcome


@dataclass(frozen=True, slots=True)
class Harm:
    """What the policy did to one turn that has an answering document.

    Where `cause` is None the turn is not harmed. `replaced` is None where the primary without
    memory is no answer.
    """

    answered_by_none: bool  # every group has a member handed out
    answered: bool  # the same by the policy, now
    could_lose: bool  # no memory covers a group
    cause: Label | None  # what the agent has of the answers it was not handed
    dead_end: bool  # harmed, and the look-up found nothing at all
    gained: bool  # the policy covers a group that no memory does not
    replaced: bool | None  # the right primary was withheld, a neighbour stands in its place

    @property
    def sure(self) -> bool:
        """Whether the agent cannot have the answer (the lower bound of harm)."""
        return self.cause in CANNOT_HAVE


def harm_of(
    none: Outcome, policy: Outcome, needed: Needed, deliveries: Deliveries, *, turn: int
) -> Harm | None:
    """The harm of one turn; None where no document is known to answer it.

    A group that is not covered without memory either cannot be lost.
    """
    if not needed.groups:
        return None
    without = needed.covered(frozenset(none.paths))
    now = needed.covered(frozenset(policy.paths))
    lost = [
        _cause(group, none.handed, deliveries, turn)
        for group, before, still in zip(needed.groups, without, now, strict=True)
        if before and not still
    ]
    cause = _worst(lost)
    return Harm(
        answered_by_none=all(without),
        answered=all(now),
        could_lose=any(without),
        cause=cause,
        dead_end=cause is not None and not policy.found and not policy.skipped,
        gained=any(still and not before for before, still in zip(without, now, strict=True)),
        replaced=_replaced(none, policy, needed),
    )


def _cause(
    group: frozenset[str], handed: tuple[Handed, ...], deliveries: Deliveries, turn: int
) -> Label:
    """What the agent has of a lost group: the best of any member, else why it has none."""
    present = {h.path: deliveries.label(h, turn)[0] for h in handed if h.path in group}
    others = {deliveries.label_of_path(path, turn) for path in group - present.keys()}
    known = {*present.values(), *others}
    return next((label for label in MAY_HAVE if label in known), next(iter(present.values())))


def _worst(lost: list[Label]) -> Label | None:
    """The label of a turn that lost several groups: the one that an agent can help least."""
    order = (*CANNOT_HAVE, Label.NEW_NEED, Label.REPEAT)
    return min(lost, key=order.index, default=None)


def _replaced(none: Outcome, policy: Outcome, needed: Needed) -> bool | None:
    if not none.found or not needed.answered_by(none.paths[0]):
        return None
    withheld = none.paths[0] in policy.withheld and none.paths[0] not in policy.paths
    return withheld and policy.found and not needed.answered_by(policy.paths[0])
