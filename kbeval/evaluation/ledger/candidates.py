"""The memory policies that a verdict compares, and what is known of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from kbeval.evaluation.ledger.entry import PolicyLedger
from kbeval.evaluation.ledger.ledger import Ledger
from kbeval.evaluation.replaying.policies import NO_MEMORY, Policy
from kbeval.evaluation.statistics import CONFIDENCE, NO_SPREAD, Rate, label_budget
from kbeval.evaluation.totals import Totals

Holds = Literal["yes", "no", "open"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory policy as the verdict sees it; rates hold together with those of the others."""

    policy: Policy
    page: PolicyLedger
    saved_once: Rate  # tokens per session
    saved_cumulative: Rate
    lost_low: Rate  # of the turns given an answer without memory
    lost_high: Rate
    fewest_sessions: int  # like these, with which no loss at all would show that it is harmless
    saves: Holds
    harmless: Holds  # whatever the agent remembers
    harmless_in_context: Holds  # as long as its context keeps what it was given

    @property
    def has_horizon(self) -> bool:
        """Whether it hands documents out again after a while."""
        session = self.policy.settings.session
        return session.horizon_turns is not None or session.horizon_tokens is not None

    def to_json(self) -> dict[str, Any]:
        """What is known of it, and the numbers that say so."""
        rates = ("saved_once", "saved_cumulative", "lost_low", "lost_high")
        return {
            "policy": self.policy.name,
            "saves": self.saves,
            "harmless": self.harmless,
            "harmless_in_context": self.harmless_in_context,
            **{name: getattr(self, name).to_json() for name in rates},
            "break_even": self.page.break_even,
        }


def candidates_of(ledger: Ledger, tolerance: float) -> tuple[Candidate, ...]:
    """Memory policies with the thresholds and places of no memory, whose executor obeys nothing.

    With other thresholds a policy would save by handing out less, not by remembering. The
    intervals of all k candidates hold together: 95 % for all, 1 - 0.05 / k for each.
    """
    retrieval = ledger.policies[NO_MEMORY].settings.retrieval
    policies = [
        policy
        for policy in ledger.policies.values()
        if policy.remembers and policy.obeys == "nothing" and policy.settings.retrieval == retrieval
    ]
    level = 1 - (1 - CONFIDENCE) / max(1, len(policies))
    return tuple(_candidate(ledger, policy, level, tolerance) for policy in policies)


def _candidate(ledger: Ledger, policy: Policy, level: float, tolerance: float) -> Candidate:
    totals = ledger.pages[policy.name].totals
    once = totals.per_session("saved", confidence=level)
    cumulative = totals.per_session("saved", "saved_later", confidence=level)
    low, high = (
        totals.share(part, "could_lose", confidence=level) for part in ("surely_harmed", "harmed")
    )
    fewest = _fewest_sessions(totals, tolerance, level)
    enough = totals.session_count >= fewest
    never = low.value == 0 and _cannot_surely_harm(ledger, policy)
    return Candidate(
        policy=policy,
        page=ledger.pages[policy.name],
        saved_once=once,
        saved_cumulative=cumulative,
        lost_low=low,
        lost_high=high,
        fewest_sessions=fewest,
        saves=_both(_above_zero(once), _above_zero(cumulative)),
        harmless=_within(high, tolerance, enough),
        harmless_in_context="yes" if never else _within(low, tolerance, enough),
    )


def _cannot_surely_harm(ledger: Ledger, policy: Policy) -> bool:
    """Whether what the policy withholds is in the agent's context by construction.

    It withholds nothing that changed, and nothing for longer than the agent's horizon. Then no
    sharp harm in few sessions is not a matter of luck.
    """
    session = policy.settings.session
    if session.known_by == "path":
        return False
    turns = session.horizon_turns
    return ledger.horizon is None or (turns is not None and turns <= ledger.horizon)


def _above_zero(saved: Rate) -> Holds:
    saved = _settled(saved)
    if saved.low is None or saved.high is None:
        return "open"
    return "yes" if saved.low > 0 else "no" if saved.high <= 0 else "open"


def _both(one: Holds, other: Holds) -> Holds:
    if "no" in (one, other):
        return "no"
    return "open" if "open" in (one, other) else "yes"


def _fewest_sessions(totals: Totals, tolerance: float, level: float) -> int:
    """Sessions of which as many as needed have a turn given an answer without memory."""
    budget = label_budget(1 - tolerance, (1 - level) / 2, 0)
    return math.ceil(budget * totals.session_count / max(1, totals.sessions_with("could_lose")))


def _within(lost: Rate, tolerance: float, enough: bool) -> Holds:
    """Whether the share lost is at most the tolerance.

    Where no loss would not show that (not `enough` sessions), a few losses do not either: around
    them the interval over sessions is narrower than that of none at all.
    """
    lost = _settled(lost)
    if lost.low is None or lost.high is None:
        return "open"
    if lost.low > tolerance:
        return "no"
    return "yes" if lost.high <= tolerance and enough else "open"


def _settled(rate: Rate) -> Rate:
    """Where all of ten or more sessions agree there is no interval: the value itself decides."""
    if rate.note != NO_SPREAD:
        return rate
    return replace(rate, low=rate.value, high=rate.value)
