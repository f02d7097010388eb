"""One session turn by turn and policy against policy, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pandas as pd

from kbeval.evaluation.ledger.lines import SessionLines
from kbeval.evaluation.needs import Needed, needed
from kbeval.evaluation.replaying.outcomes import SessionReplay
from kbeval.studies.replay_rows import harm_word, verdict_word

Shown = Callable[[str], str]


def timeline(
    replayed: SessionReplay, lines: Mapping[str, SessionLines], *, shown: Shown = str
) -> pd.DataFrame:
    """A row a turn and policy of one session, turns in order, no memory first.

    Columns: turn, query (through `shown`), policy, level, documents (handed out, the primary
    first), again (of these, what the session had before), withheld (of what no memory hands out),
    answering (labelled), tokens, harm. Documents are numbers, those of `documents_of`.
    """
    number = _numbers(replayed)
    had: dict[str, set[str]] = {policy: set() for policy in lines}
    rows = []
    for place, turn in enumerate(replayed.session.turns):
        for policy, of_session in lines.items():
            line = of_session.turns[place]
            paths = line.policy.paths
            rows.append(
                {
                    "turn": place + 1,
                    "query": shown(turn.query),
                    "policy": policy,
                    "level": verdict_word(line.policy),
                    "documents": tuple(number[path] for path in paths),
                    "again": tuple(number[path] for path in paths if path in had[policy]),
                    "withheld": tuple(number[withheld.path] for withheld in line.withheld),
                    "answering": tuple(
                        number[path] for path in _answering(line.needed) if path in number
                    ),
                    "tokens": line.policy.token_count,
                    "harm": harm_word(line),
                }
            )
            had[policy].update(paths)
    return pd.DataFrame(rows)


def documents_of(replayed: SessionReplay) -> pd.DataFrame:
    """The documents that any policy handed out: number, path, domain, turns that they answer."""
    domains = {
        handed.path: handed.domain
        for outcomes in replayed.outcomes.values()
        for outcome in outcomes
        for handed in outcome.handed
    }
    answers = [_answering(needed(turn)) for turn in replayed.session.turns]
    rows = [
        {
            "number": number,
            "document": path,
            "domain": domains[path],
            "answers turns": ", ".join(
                str(turn) for turn, paths in enumerate(answers, start=1) if path in paths
            ),
        }
        for path, number in _numbers(replayed).items()
    ]
    return pd.DataFrame(rows, columns=["number", "document", "domain", "answers turns"])


def _answering(labels: Needed) -> list[str]:
    return sorted({path for group in labels.groups for path in group})


def _numbers(replayed: SessionReplay) -> dict[str, int]:
    """Documents by their first appearance: turn by turn, no memory first."""
    paths = dict.fromkeys(_appearances(replayed))
    return {path: number for number, path in enumerate(paths, start=1)}


def _appearances(replayed: SessionReplay) -> Iterator[str]:
    for outcomes in zip(*replayed.outcomes.values(), strict=True):
        for outcome in outcomes:
            yield from outcome.paths
