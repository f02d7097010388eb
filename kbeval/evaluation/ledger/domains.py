"""Domains that the planner's rule would close after one supplement of them (REQ-04).

A planner that sends the executor to each domain once takes a domain off its plan as soon as the
list of retrieved domains names it, even where only a supplement brought it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbeval.evaluation.needs import Needed
from kbeval.evaluation.replaying.outcomes import Outcome, SessionReplay


@dataclass(frozen=True, slots=True)
class ClosedDomains:
    """Domains of one session that a supplement alone put on the list."""

    listed: int  # by a supplement alone, when they came first
    needed_later: int  # of these: a later turn needs a document of the domain
    never_seen: int  # of these: and no look-up before that turn handed it out


def domains_of(replay: SessionReplay) -> dict[str, str]:
    """The domain of every document that any policy hands out in the session."""
    return {
        handed.path: handed.domain
        for outcomes in replay.outcomes.values()
        for outcome in outcomes
        for handed in outcome.handed
    }


def closed_domains(
    outcomes: Sequence[Outcome], turns: Sequence[Needed], domain_of: Mapping[str, str]
) -> ClosedDomains:
    """Count them under one policy. A document of unknown domain is taken to be of another one."""
    listed = _listed_by_supplement(outcomes)
    later = [
        [
            _seen_before(group, outcomes[:turn])
            for turn in range(first + 1, len(turns))
            for group in turns[turn].groups
            if {domain_of.get(path) for path in group} == {domain}
        ]
        for domain, first in listed.items()
    ]
    return ClosedDomains(
        listed=len(listed),
        needed_later=sum(bool(seen) for seen in later),
        never_seen=sum(not all(seen) for seen in later),
    )


def _listed_by_supplement(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Domain -> the turn at which it came on the list, by a supplement and not the primary."""
    known: set[str] = set()
    listed: dict[str, int] = {}
    for turn, outcome in enumerate(outcomes):
        supplements = {handed.domain for handed in outcome.handed[1:]}
        primary = {handed.domain for handed in outcome.handed[:1]}
        new = set(outcome.domains) - known
        listed |= dict.fromkeys(new & supplements - primary, turn)
        known |= new
    return listed


def _seen_before(group: frozenset[str], outcomes: Sequence[Outcome]) -> bool:
    return any(not group.isdisjoint(outcome.paths) for outcome in outcomes)
