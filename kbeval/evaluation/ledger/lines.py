"""One session under one policy, turn by turn: what the ledger adds up, and a reader can check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kbeval.evaluation.ledger.domains import ClosedDomains, closed_domains, domains_of
from kbeval.evaluation.ledger.harm import Harm, harm_of
from kbeval.evaluation.ledger.labels import Deliveries, Withheld, withheld_of
from kbeval.evaluation.ledger.parts import Parts, later_lookups, parts_of
from kbeval.evaluation.ledger.versions import versions_of
from kbeval.evaluation.needs import Needed, needed, session_needs
from kbeval.evaluation.replaying.outcomes import Outcome, SessionReplay
from kbeval.evaluation.replaying.policies import NO_MEMORY


@dataclass(frozen=True, slots=True)
class TurnLine:
    """One look-up under a policy beside the same look-up without memory."""

    none: Outcome
    policy: Outcome
    needed: Needed
    parts: Parts
    later: int  # later look-ups that still carry this answer
    withheld: tuple[Withheld, ...]
    harm: Harm | None  # None: no document is known to answer

    @property
    def grade_changed(self) -> bool:
        """Whether the filter, which withheld something, changed or removed the level."""
        return bool(self.policy.withheld) and self.policy.level != self.none.level

    @property
    def saved_cumulative(self) -> int:
        """Tokens saved at this look-up and at each later one that carries its answer."""
        return self.parts.saved * (1 + self.later)


@dataclass(frozen=True, slots=True)
class SessionLines:
    """One session under a policy: its turns, and what can only be said of the whole."""

    turns: tuple[TurnLine, ...]
    closed: ClosedDomains
    needs: int  # distinct things that the session needs
    undelivered_by_none: int  # of these, no turn hands out a document, without memory
    undelivered: int  # the same under the policy


def session_lines(
    replay: SessionReplay,
    *,
    horizon: int | None = None,
    domain_of: Mapping[str, str] | None = None,
) -> dict[str, SessionLines]:
    """Set every policy of a replayed session beside no memory: policy name -> its lines.

    `horizon` is the agent's, in turns: what was handed out at turn t is gone from its context at
    turn t + horizon; None: it keeps the whole session. `domain_of` maps every document to its
    domain; without it the domains are those of the documents handed out in the session.
    """
    turns = tuple(needed(turn) for turn in replay.session.turns)
    needs = session_needs(replay.session, turns)
    domains = domains_of(replay) if domain_of is None else domain_of
    texts = _texts_of(replay.outcomes[NO_MEMORY])
    without = _undelivered(needs, replay.outcomes[NO_MEMORY], texts)
    return {
        policy: SessionLines(
            turns=tuple(_turn_lines(replay, policy, turns, horizon)),
            closed=closed_domains(outcomes, turns, domains),
            needs=len(needs),
            undelivered_by_none=without,
            undelivered=_undelivered(needs, outcomes, texts),
        )
        for policy, outcomes in replay.outcomes.items()
    }


def _turn_lines(
    replay: SessionReplay, policy: str, turns: tuple[Needed, ...], horizon: int | None
) -> Iterator[TurnLine]:
    none, outcomes = replay.outcomes[NO_MEMORY], replay.outcomes[policy]
    deliveries = Deliveries(turns, versions_of(replay.session, none, outcomes), horizon)
    later = later_lookups(outcomes, horizon)
    for turn, (without, outcome) in enumerate(zip(none, outcomes, strict=True)):
        yield TurnLine(
            none=without,
            policy=outcome,
            needed=turns[turn],
            parts=parts_of(without, outcome),
            later=later[turn],
            withheld=withheld_of(without, outcome, deliveries, turn),
            harm=harm_of(without, outcome, turns[turn], deliveries, turn=turn),
        )
        deliveries.add(turn, outcome)


def _texts_of(outcomes: tuple[Outcome, ...]) -> dict[str, set[str]]:
    """The contents under which each path was handed out."""
    texts: dict[str, set[str]] = {}
    for outcome in outcomes:
        for handed in outcome.handed:
            texts.setdefault(handed.path, set()).add(handed.content)
    return texts


def _undelivered(
    needs: frozenset[frozenset[str]],
    outcomes: tuple[Outcome, ...],
    texts: Mapping[str, set[str]],
) -> int:
    """Needs of which no member was handed out, under its own path or its text under another's."""
    paths = {path for outcome in outcomes for path in outcome.paths}
    given = {handed.content for outcome in outcomes for handed in outcome.handed}
    paths |= {path for path, contents in texts.items() if not contents.isdisjoint(given)}
    return sum(group.isdisjoint(paths) for group in needs)
