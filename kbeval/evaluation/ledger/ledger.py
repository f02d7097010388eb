"""The ledger of a replay: a page a policy, and what all of them rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kbeval.evaluation.ledger.entry import PolicyLedger
from kbeval.evaluation.ledger.money import MapLine
from kbeval.evaluation.replaying.fidelity import FAITHFUL
from kbeval.evaluation.replaying.policies import Policy
from kbeval.evaluation.statistics import Rate


@dataclass(frozen=True, slots=True)
class Ledger:
    """What each policy saves and hides, over the same sessions.

    `fidelity` is the share of recorded turns whose answer replay gives again; None where nothing
    was recorded: then all of it is "for this sequence of questions".
    """

    sessions: int
    cut_sessions: int  # recorded to the middle; kept
    lookups: int
    horizon: int | None  # turns that the agent's context holds, None: the whole session
    tokenizer: str  # its full name
    fidelity: Rate | None
    policies: Mapping[str, Policy]
    pages: Mapping[str, PolicyLedger]  # policy name -> its page, no memory first
    knowledge_map: MapLine | None = None

    @property
    def supports_claims(self) -> bool:
        """Whether replay gives the record again well enough to speak of savings."""
        if self.fidelity is None or self.fidelity.value is None:
            return True
        return self.fidelity.value >= FAITHFUL

    def to_json(self) -> dict[str, Any]:
        """Everything by its name; the knowledge map stands beside the policies, on its own."""
        return {
            "sessions": self.sessions,
            "cut_sessions": self.cut_sessions,
            "lookups": self.lookups,
            "horizon_turns": self.horizon,
            "tokenizer": self.tokenizer,
            "fidelity": None if self.fidelity is None else self.fidelity.to_json(),
            "supports_claims": self.supports_claims,
            "policies": {name: page.to_json() for name, page in self.pages.items()},
            "knowledge_map": None if self.knowledge_map is None else self.knowledge_map.to_json(),
        }

    def table(self) -> pd.DataFrame:
        """A row a policy: what it hands out, saves and hides, with the ends of each interval."""
        return pd.DataFrame([_row(page) for page in self.pages.values()])

    def parts(self) -> pd.DataFrame:
        """Two rows a policy, one a view (`once`, `cumulative`): they are never added."""
        return pd.DataFrame(
            [
                {"policy": name, "view": view, **saving.parts, "saved": saving.total.value}
                for name, page in self.pages.items()
                for view, saving in (("once", page.once), ("cumulative", page.cumulative))
            ]
        )

    def labels(self) -> pd.DataFrame:
        """A row a policy and label: withheld documents, their tokens, turns harmed by them."""
        return pd.DataFrame(
            [
                {"policy": name, "label": label, **row, "harmed_turns": page.harm.causes[label]}
                for name, page in self.pages.items()
                for label, row in page.withheld.items()
            ]
        )

    def money(self) -> pd.DataFrame:
        """A row a policy, model and scenario: what is saved per session."""
        return pd.DataFrame(list(self._money_rows()))

    def _money_rows(self) -> Iterator[dict[str, Any]]:
        for name, page in self.pages.items():
            for money in page.money:
                scenarios = {"cached": money.later_cached, "uncached": money.later_uncached}
                for later_calls, rate in scenarios.items():
                    yield {
                        "policy": name,
                        "model": money.price.model,
                        "later_calls": later_calls,
                        "currency": money.price.currency,
                    } | _ends("saved_per_session", rate)


def _row(page: PolicyLedger) -> dict[str, Any]:
    harm = page.harm
    rates = {
        "found": page.found,
        "blocked": page.blocked,
        "saved_once": page.once.total,
        "saved_cumulative": page.cumulative.total,
        "saved_once_per_session": page.once.per_session,
        "saved_cumulative_per_session": page.cumulative.per_session,
        "saved_share": page.share,
        "harm_low": harm.low,
        "harm_high": harm.high,
        "lost_low": harm.lost_low,
        "lost_high": harm.lost_high,
        "dead_ends": harm.dead_ends,
        "gained": harm.gained,
        "replaced": harm.replaced,
        "grade_changed": page.grade_changed,
    }
    counts = {
        name: getattr(page, name)
        for name in ("policy", "lookups", "avoided", "avoided_tokens", "documents", "tokens")
    }
    ends = {key: end for name, rate in rates.items() for key, end in _ends(name, rate).items()}
    domains = {f"domains_{name}": count for name, count in page.closed_domains.items()}
    return {
        **counts,
        **page.once.parts,
        **ends,
        **domains,
        "answerable": harm.answerable,
        "harm_unknown": harm.unlabelled,
        "evidence_never_delivered": page.never_delivered["difference"],
        "break_even": page.break_even,
    }


def _ends(name: str, rate: Rate) -> dict[str, float | None]:
    return {name: rate.value, f"{name}_from": rate.low, f"{name}_to": rate.high}
