"""A replayed session as rows: one a turn and policy, and one a session and policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbeval.evaluation.ledger.lines import SessionLines, TurnLine
from kbeval.evaluation.recorded.names import QueryNames
from kbeval.evaluation.replaying.outcomes import Outcome, SessionReplay
from kbeval.studies.terminal import shortened

QUERY = 500  # characters of a query that a row holds
SKIPPED, ALL_GIVEN = "not asked", "all given before"
POSSIBLE, CERTAIN, UNKNOWN = "possible", "certain", "unknown"  # harm; "" is none

Row = dict[str, Any]


def turn_rows(
    replayed: SessionReplay, lines: Mapping[str, SessionLines], names: QueryNames
) -> Iterator[Row]:
    """One row a turn and policy. Lists of documents are JSON, the primary first.

    `withheld` holds all that matched and was given before, by rank, and `withheld_as` in the same
    places why each may be missed: "" for what is not handed out without memory either. A query
    is shown by its name, and its start only where it is long.
    """
    for place, turn in enumerate(replayed.session.turns):
        query = shortened(names.shown(turn.query), QUERY)
        for policy, of_session in lines.items():
            line = of_session.turns[place]
            yield {
                "session_id": replayed.session.session_id,
                "turn": place + 1,
                "asked_at": turn.asked_at.isoformat() if turn.asked_at else "",
                "query_id": turn.query_id or "",
                "query": query,
                "policy": policy,
                "level": verdict_word(line.policy),
                "reason": line.policy.reason or "",
                "handed": _json(line.policy.paths),
                "withheld": _json(line.policy.withheld),
                "withheld_as": _json(_missed_as(line)),
                "withheld_count": len(line.policy.withheld),
                **_tokens(line),
                "harm": harm_word(line),
                "dead_end": bool(line.harm and line.harm.dead_end),
            }


def session_rows(replayed: SessionReplay, lines: Mapping[str, SessionLines]) -> Iterator[Row]:
    """One row a session and policy: tokens, savings, harm."""
    for policy, of_session in lines.items():
        turns = of_session.turns
        harm = [harm_word(line) for line in turns]
        yield {
            "session_id": replayed.session.session_id,
            "policy": policy,
            "turns": len(turns),
            "tokens": sum(line.policy.token_count for line in turns),
            "saved": sum(line.parts.saved for line in turns),
            "saved_cumulative": sum(line.saved_cumulative for line in turns),
            "blocked": sum(line.policy.reason == "ALL_RETRIEVED" for line in turns),
            "not_asked": sum(line.policy.skipped for line in turns),
            "answerable": sum(line.harm is not None for line in turns),
            "harm_unknown": harm.count(UNKNOWN),
            "harmed_surely": harm.count(CERTAIN),
            "harmed_at_most": harm.count(CERTAIN) + harm.count(POSSIBLE),
            "dead_ends": sum(bool(line.harm and line.harm.dead_end) for line in turns),
        }


def verdict_word(outcome: Outcome) -> str:
    """The level as a reader is told it, also where nothing was said or asked."""
    if outcome.skipped:
        return SKIPPED
    return outcome.level or ALL_GIVEN


def harm_word(line: TurnLine) -> str:
    """What the policy did to the turn: "" for no harm, else possible, certain or unknown."""
    if not line.needed.known:
        return UNKNOWN
    if line.harm is None or line.harm.cause is None:
        return ""
    return CERTAIN if line.harm.sure else POSSIBLE


def _missed_as(line: TurnLine) -> list[str]:
    labels = {withheld.path: str(withheld.label) for withheld in line.withheld}
    return [labels.get(path, "") for path in line.policy.withheld]


def _tokens(line: TurnLine) -> Row:
    return {
        "tokens": line.policy.token_count,
        "none_tokens": line.none.token_count,
        "saved": line.parts.saved,
        "withheld_text": line.parts.withheld_text,
        "refill": line.parts.refill,
        "notices": line.parts.notices,
        "later_look_ups": line.later,
    }


def _json(items: Sequence[str]) -> str:
    return json.dumps(list(items), ensure_ascii=False)
