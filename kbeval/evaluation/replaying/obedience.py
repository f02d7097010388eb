"""How much an executor that obeys would not ask, and what it would miss: a sensitivity analysis.

Nobody recorded whether an agent obeys. So every share of obedience is tried, with many draws of
the turns at which it does; the whole curve is the answer, and obedience 0 stands first
(method.md 11). A number of it is no saving.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.tokens import DEFAULT, Tokenizer
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError
from kbeval.evaluation.queries import Session
from kbeval.evaluation.replaying.chunks import play_sessions
from kbeval.evaluation.replaying.courses import Courses, SessionObedience
from kbeval.evaluation.replaying.policies import Policy
from kbeval.evaluation.replaying.replay import with_no_memory
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.totals import RunningTotals, Totals
from kbeval.retrieval.embedding import Progress
from kbeval.retrieval.knowledge import Knowledge

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
SEEDS = 100


@dataclass(frozen=True, slots=True)
class ObediencePoint:
    """One level of obedience: means over the seeds, with intervals over sessions."""

    obedience: float
    avoided_share: Rate  # of all look-ups
    avoided_tokens: Rate  # a session
    harmed_share: Rate  # of the turns that no memory answers
    harmed_least: int  # turns over all sessions, at the luckiest seed
    harmed_most: int  # and at the unluckiest

    def to_json(self) -> dict[str, Any]:
        """Plain values under the fields' names."""
        return {
            "obedience": self.obedience,
            "avoided_share": self.avoided_share.to_json(),
            "avoided_tokens": self.avoided_tokens.to_json(),
            "harmed_share": self.harmed_share.to_json(),
            "harmed_least": self.harmed_least,
            "harmed_most": self.harmed_most,
        }


@dataclass(frozen=True, slots=True, eq=False)
class ObedienceCurve:
    """The whole curve of a policy: totals over sessions, l levels by s seeds, and its points."""

    policy: Policy
    levels: tuple[float, ...]  # (l,)
    avoided_lookups: NDArray[np.int64]  # (l, s)
    avoided_tokens: NDArray[np.int64]  # (l, s)
    harmed_turns: NDArray[np.int64]  # (l, s)
    points: tuple[ObediencePoint, ...]  # (l,)


def obedience_curve(
    sessions: Iterable[Session],
    knowledge: Knowledge,
    policy: Policy,
    *,
    tokenizer: Tokenizer | str = DEFAULT,
    levels: Sequence[float] = LEVELS,
    seeds: int = SEEDS,
    jobs: int = 1,
    keep: bool = False,
    progress: Progress | None = None,
    cache: EmbeddingCache | None = None,
) -> ObedienceCurve:
    """`obedient_sessions` added up, in memory that does not grow with the sessions."""
    names = ("turns", "avoided", "tokens", "answered", "harmed")
    running = [RunningTotals(names) for _ in levels]
    total = np.zeros((3, len(levels), seeds), np.int64)
    for session in obedient_sessions(
        sessions,
        knowledge,
        policy,
        tokenizer=tokenizer,
        levels=levels,
        seeds=seeds,
        jobs=jobs,
        keep=keep,
        progress=progress,
        cache=cache,
    ):
        found = session.avoided_lookups, session.avoided_tokens, session.harmed_turns
        total += np.stack(found)
        for at, running_totals in enumerate(running):
            means = [session.turn_count, *(each[at].mean() for each in found[:2])]
            means += [session.answered_count, found[2][at].mean()]
            running_totals.add(dict(zip(names, means, strict=True)))
    points = [
        _point(level, each.totals(), total[2, at])
        for at, (level, each) in enumerate(zip(levels, running, strict=True))
    ]
    return ObedienceCurve(
        policy=policy,
        levels=tuple(levels),
        avoided_lookups=total[0],
        avoided_tokens=total[1],
        harmed_turns=total[2],
        points=tuple(points),
    )


def _point(level: float, totals: Totals, harmed: NDArray[np.int64]) -> ObediencePoint:
    return ObediencePoint(
        obedience=level,
        avoided_share=totals.share("avoided", "turns", empty="no look-up"),
        avoided_tokens=totals.per_session("tokens"),
        harmed_share=totals.share("harmed", "answered", empty="no turn is known to be answered"),
        harmed_least=int(harmed.min()),
        harmed_most=int(harmed.max()),
    )


def obedient_sessions(
    sessions: Iterable[Session],
    knowledge: Knowledge,
    policy: Policy,
    *,
    tokenizer: Tokenizer | str = DEFAULT,
    levels: Sequence[float] = LEVELS,
    seeds: int = SEEDS,
    jobs: int = 1,
    keep: bool = False,
    progress: Progress | None = None,
    cache: EmbeddingCache | None = None,
) -> Iterator[SessionObedience]:
    """Each session under every level and seed of a policy that obeys, lazily and in order.

    The policy's own `obedience` does not matter here. Raises `ConfigError` for a policy that
    obeys nothing and for a level outside 0 to 1; else as `replay`.
    """
    if policy.obeys == "nothing":
        raise ConfigError(f"policy {policy.name!r} obeys nothing; hints or domains are expected")
    if wrong := [level for level in levels if not 0 <= level <= 1]:
        raise ConfigError(f"obedience {wrong[0]} is out of range; 0 to 1 is allowed")
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}; 1 or more is allowed")
    none = with_no_memory([policy], knowledge)[0]
    make = partial(
        Courses,
        none=none,
        policy=policy,
        tokenizer=tokenizer,
        levels=tuple(levels),
        seeds=seeds,
    )
    played = play_sessions(
        make,
        sessions,
        knowledge,
        limit=policy.settings.retrieval.limit,
        jobs=jobs,
        keep=keep,
        progress=progress,
        cache=cache,
    )
    return (found for _, found in played)
