"""Keeping the ledger: one replayed session after the other, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbeval.errors import ConfigError
from kbeval.evaluation.ledger.entry import policy_ledger
from kbeval.evaluation.ledger.ledger import Ledger
from kbeval.evaluation.ledger.lines import SessionLines, session_lines
from kbeval.evaluation.ledger.money import MapLine, Price, map_line
from kbeval.evaluation.ledger.quantities import NAMES, quantities
from kbeval.evaluation.recorded.loaded import is_cut
from kbeval.evaluation.replaying.fidelity import first_divergence, is_recorded
from kbeval.evaluation.replaying.outcomes import SessionReplay
from kbeval.evaluation.replaying.policies import NO_MEMORY, Policy
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.totals import RunningTotals


class Book:
    """Adds up replayed sessions policy by policy; it keeps running totals and no session.

    `horizon` is how many turns the agent's context holds (None: the whole session), `domain_of`
    the domain of every document (None: as the session's answers tell it), `tokenizer` the full
    name of what counted the tokens. Raises `ConfigError` for a horizon below 1 and for policies
    without `none` or with a name twice.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        *,
        horizon: int | None = None,
        prices: Sequence[Price] = (),
        tokenizer: str = "",
        domain_of: Mapping[str, str] | None = None,
    ) -> None:
        self.policies = _by_name(policies)
        if horizon is not None and horizon < 1:
            raise ConfigError(f"horizon: got {horizon}; a number of turns from 1 is expected")
        self.horizon = horizon
        self.prices = tuple(prices)
        self.tokenizer = tokenizer
        self._domain_of = domain_of
        self._running = {name: RunningTotals(NAMES) for name in self.policies}

    def add(self, replay: SessionReplay) -> Mapping[str, SessionLines]:
        """Add one session and return its lines, policy by policy, for whoever writes them down.

        Raises `ConfigError` if the replay lacks a policy of this book.
        """
        missing = [name for name in self.policies if name not in replay.outcomes]
        if missing:
            raise ConfigError(
                f"session {replay.session.session_id!r}: no outcome of policy {missing[0]!r}; "
                f"replayed were {', '.join(replay.outcomes)}"
            )
        lines = session_lines(replay, horizon=self.horizon, domain_of=self._domain_of)
        cut = is_cut(replay.session)
        for name, running in self._running.items():
            row = quantities(lines[name], _divergence(replay, name))
            row["cut"] = cut
            running.add(row)
        return lines

    def ledger(self, *, fidelity: Rate | None = None, map_tokens: int | None = None) -> Ledger:
        """The ledger so far; `map_tokens` are those of the knowledge map in one planner call."""
        totals = {name: running.totals() for name, running in self._running.items()}
        none = totals[NO_MEMORY]
        knowledge_map: MapLine | None = None
        if map_tokens is not None:
            knowledge_map = map_line(map_tokens, self.prices)
        return Ledger(
            sessions=none.session_count,
            cut_sessions=none.count("cut"),
            lookups=none.count("lookups"),
            horizon=self.horizon,
            tokenizer=self.tokenizer,
            fidelity=fidelity,
            policies=self.policies,
            pages={name: policy_ledger(name, sums, self.prices) for name, sums in totals.items()},
            knowledge_map=knowledge_map,
        )


def _by_name(policies: Sequence[Policy]) -> dict[str, Policy]:
    names = [policy.name for policy in policies]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise ConfigError(f"policy {doubled!r} is given twice; each needs a name of its own")
    if NO_MEMORY not in names:
        raise ConfigError(
            f"policies {', '.join(names) or '(none given)'} lack {NO_MEMORY!r}, no memory, "
            "from which savings are counted"
        )
    ordered = sorted(policies, key=lambda policy: policy.name != NO_MEMORY)
    return {policy.name: policy for policy in ordered}


def _divergence(replay: SessionReplay, policy: str) -> int | None:
    """The turn of the first answer unlike the record, the end if none is; None without a record."""
    if not is_recorded(replay.session):
        return None
    turn = first_divergence(replay, policy)
    return len(replay.session.turns) if turn is None else turn
