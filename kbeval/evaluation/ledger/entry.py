"""The ledger's page for one policy: every number that may be said of it, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbeval.evaluation.ledger.labels import Label
from kbeval.evaluation.ledger.money import Money, Price, money_of
from kbeval.evaluation.ledger.quantities import LATER, PARTS
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.totals import Totals


@dataclass(frozen=True, slots=True)
class Saving:
    """Tokens saved in one view (once, or once for each look-up that carries them)."""

    total: Rate  # over all sessions; its interval is that of the mean times the sessions
    per_session: Rate
    parts: Mapping[str, int]  # withheld_text - refill - notices = the total

    def to_json(self) -> dict[str, Any]:
        """Total, mean per session and parts."""
        return {
            "total": self.total.to_json(),
            "per_session": self.per_session.to_json(),
            "parts": dict(self.parts),
        }


@dataclass(frozen=True, slots=True)
class SplitSaving:
    """Tokens saved once, split at the first answer that differs from the record (method.md 11).

    Up to and including it the saving is exact; after it the record may not be what the agent
    would have asked.
    """

    recorded_sessions: int
    before_divergence: int
    after_divergence: int
    never_diverges: Rate  # share of the recorded sessions

    def to_json(self) -> dict[str, Any]:
        """All four by name."""
        return {
            "recorded_sessions": self.recorded_sessions,
            "before_divergence": self.before_divergence,
            "after_divergence": self.after_divergence,
            "never_diverges": self.never_diverges.to_json(),
        }


@dataclass(frozen=True, slots=True)
class HarmTotals:
    """Turns that lose to the policy an answer which no memory hands out, and why.

    `low` and `high` are shares of all turns with an answering document; `lost_low` and
    `lost_high` the same turns as shares of those that could lose one, which a weak retrieval
    cannot make look small. The low end holds whatever the agent keeps in its context, the high
    end if it keeps nothing. A turn with several needs is answered when all are met; it could
    lose an answer when one is.
    """

    answerable: int  # turns with at least one answering document
    unlabelled: int  # turns of which harm is unknown
    could_lose: int  # turns in which no memory meets a need
    harmed: int
    surely_harmed: int
    answered_by_none: Rate
    answered: Rate  # by the policy
    low: Rate
    high: Rate
    lost_low: Rate
    lost_high: Rate
    causes: Mapping[str, int]  # label -> harmed turns; each has one, they add up to high
    dead_ends: Rate
    gained: Rate  # turns in which the policy meets a need that no memory does not
    replaced: Rate  # of the turns whose primary without memory answers

    def to_json(self) -> dict[str, Any]:
        """Counts and rates by name."""
        return {
            "answerable": self.answerable,
            "unlabelled": self.unlabelled,
            "could_lose": self.could_lose,
            "harmed": self.harmed,
            "surely_harmed": self.surely_harmed,
            "causes": dict(self.causes),
        } | {name: getattr(self, name).to_json() for name in _HARM_RATES}


_HARM_RATES = (
    *("answered_by_none", "answered", "low", "high", "lost_low", "lost_high"),
    *("dead_ends", "gained", "replaced"),
)


@dataclass(frozen=True, slots=True)
class PolicyLedger:
    """One policy beside no memory. `totals` keeps what other confidence levels need."""

    policy: str
    lookups: int  # asked or skipped
    found: Rate  # look-ups that handed out anything
    blocked: Rate  # everything that matches was given before
    avoided: int  # look-ups skipped by an obedient executor: never a saving
    avoided_tokens: int  # what they would have brought without memory
    documents: int
    tokens: int
    none_tokens: int
    once: Saving
    cumulative: Saving
    share: Rate  # saved once / tokens without memory
    split: SplitSaving | None  # None: no session is recorded
    withheld: Mapping[str, Mapping[str, int]]  # label -> documents, tokens
    withheld_by_text: int  # labels that rest on the text of the queries alone
    harm: HarmTotals
    grade_changed: Rate  # of the look-ups
    grade_removed: Rate
    closed_domains: Mapping[str, int]
    never_delivered: Mapping[str, int]  # needs that no turn of their session meets
    break_even: float | None  # extra look-ups per block that eat what was saved once
    money: tuple[Money, ...]
    totals: Totals

    def to_json(self) -> dict[str, Any]:
        """Every field by its name, rates as value, low, high, n."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        rates = {name: getattr(self, name).to_json() for name in _RATES}
        return {
            **plain,
            **rates,
            "saved_once": self.once.to_json(),
            "saved_cumulative": self.cumulative.to_json(),
            "divergence": None if self.split is None else self.split.to_json(),
            "withheld": {label: dict(row) for label, row in self.withheld.items()},
            "harm": self.harm.to_json(),
            "closed_domains": dict(self.closed_domains),
            "never_delivered": dict(self.never_delivered),
            "money": [money.to_json() for money in self.money],
        }


_PLAIN = (
    *("policy", "lookups", "avoided", "avoided_tokens", "documents", "tokens", "none_tokens"),
    *("withheld_by_text", "break_even"),
)
_RATES = ("found", "blocked", "share", "grade_changed", "grade_removed")


def policy_ledger(policy: str, totals: Totals, prices: tuple[Price, ...] = ()) -> PolicyLedger:
    """The page of one policy from its totals."""
    return PolicyLedger(
        policy=policy,
        lookups=totals.count("lookups"),
        found=totals.share("found", "lookups"),
        blocked=totals.share("blocked", "lookups"),
        avoided=totals.count("avoided"),
        avoided_tokens=totals.count("avoided_tokens"),
        documents=totals.count("documents"),
        tokens=totals.count("tokens"),
        none_tokens=totals.count("none_tokens"),
        once=_saving(totals, ""),
        cumulative=_saving(totals, LATER),
        share=totals.ratio("saved", "none_tokens", empty="no token was handed out"),
        split=_split(totals),
        withheld={
            label.value: {
                "documents": totals.count(f"withheld_{label}"),
                "tokens": totals.count(f"withheld_{label}_tokens"),
            }
            for label in Label
        },
        withheld_by_text=totals.count("withheld_by_text"),
        harm=_harm(totals),
        grade_changed=totals.share("grade_changed", "lookups"),
        grade_removed=totals.share("grade_removed", "lookups"),
        closed_domains={
            "listed_by_supplement": totals.count("listed_by_supplement"),
            "needed_later": totals.count("closed_needed"),
            "needed_and_never_seen": totals.count("closed_never_seen"),
        },
        never_delivered=_never_delivered(totals),
        break_even=_break_even(totals),
        money=tuple(money_of(totals, price) for price in prices),
        totals=totals,
    )


def _saving(totals: Totals, later: str) -> Saving:
    def summed(name: str) -> tuple[str, ...]:
        return (name, name + later) if later else (name,)

    mean = totals.per_session(*summed("saved"))
    value = float(sum(totals.count(name) for name in summed("saved")))  # exact, as its parts are
    low, high = (
        None if end is None else end * totals.session_count for end in (mean.low, mean.high)
    )
    return Saving(
        total=Rate(None if mean.value is None else value, low, high, mean.n, mean.note),
        per_session=mean,
        parts={part: sum(totals.count(name) for name in summed(part)) for part in PARTS},
    )


def _split(totals: Totals) -> SplitSaving | None:
    if not totals.count("recorded"):
        return None
    return SplitSaving(
        recorded_sessions=totals.count("recorded"),
        before_divergence=totals.count("saved_before"),
        after_divergence=totals.count("saved_after"),
        never_diverges=totals.share("never_diverges", "recorded"),
    )


def _harm(totals: Totals) -> HarmTotals:
    def of(part: str, whole: str = "answerable") -> Rate:
        return totals.share(part, whole, empty=_EMPTY[whole])

    return HarmTotals(
        answerable=totals.count("answerable"),
        unlabelled=totals.count("unlabelled"),
        could_lose=totals.count("could_lose"),
        harmed=totals.count("harmed"),
        surely_harmed=totals.count("surely_harmed"),
        answered_by_none=of("answered_by_none"),
        answered=of("answered"),
        low=of("surely_harmed"),
        high=of("harmed"),
        lost_low=of("surely_harmed", "could_lose"),
        lost_high=of("harmed", "could_lose"),
        causes={label.value: totals.count(f"harmed_{label}") for label in Label},
        dead_ends=of("dead_ends"),
        gained=of("gained"),
        replaced=of("replaced", "primary_answers"),
    )


_EMPTY = {
    "answerable": "no turn with an answering document",
    "could_lose": "no turn is given an answer without memory",
    "primary_answers": "no primary answers without memory",
}


def _never_delivered(totals: Totals) -> dict[str, int]:
    none, policy = totals.count("undelivered_by_none"), totals.count("undelivered")
    return {
        "needs": totals.count("needs"),
        "by_none": none,
        "by_policy": policy,
        "difference": policy - none,
    }


def _break_even(totals: Totals) -> float | None:
    """Net saving / (blocked turns x mean tokens of a look-up without memory)."""
    saved, blocked = totals.of("saved"), totals.of("blocked")
    if saved <= 0 or blocked == 0:
        return None
    return saved / (blocked * totals.of("none_tokens") / totals.of("lookups"))
