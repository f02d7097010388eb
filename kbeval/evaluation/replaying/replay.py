"""Recorded sessions through the tool again, under several memory policies (method.md 11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from kbeval.config import Session as Memory
from kbeval.config import Settings
from kbeval.corpus.tokens import DEFAULT, Tokenizer
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError
from kbeval.evaluation.queries import Session
from kbeval.evaluation.replaying.chunks import play_sessions
from kbeval.evaluation.replaying.outcomes import SessionReplay
from kbeval.evaluation.replaying.policies import NO_MEMORY, Policy
from kbeval.evaluation.replaying.stage import Stage
from kbeval.retrieval.embedding import Progress
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.tool import KnowledgeTool


def replay(
    sessions: Iterable[Session],
    knowledge: Knowledge,
    policies: Sequence[Policy],
    *,
    tokenizer: Tokenizer | str = DEFAULT,
    jobs: int = 1,
    seed: int = 0,
    keep: bool = False,
    progress: Progress | None = None,
    cache: EmbeddingCache | None = None,
) -> Iterator[SessionReplay]:
    """What each policy hands out at each turn: the live tool, over the recorded queries.

    Lazily, in the sessions' order, and the same for every number of `jobs` (processes); several
    need the tokenizer's name, as `open_tokenizer` takes it. Queries are embedded once, through
    `cache` (else the base's own), and searched once for all policies (with `keep` what was found
    is kept in the cache, for a set that is replayed again). Each session begins with an empty
    memory. No memory is replayed too, as `none`, whether it is among the policies or not.

    Before a turn the documents of `Turn.changed` get another content; what it says is not
    recorded, so their text stays and they only count as changed. `seed` draws who obeys.
    `progress(done, total)` counts sessions; total is 0 where their number is not known.

    Raises `ConfigError`, before a session is read, for settings that the base was not built with
    and for a policy that takes the name `none`; `VectorError` or `EncoderError` for a query that
    cannot be embedded.
    """
    policies = with_no_memory(policies, knowledge)
    for policy in policies:
        KnowledgeTool(knowledge, policy.settings)
    played = play_sessions(
        partial(Stage, policies=policies, tokenizer=tokenizer, seed=seed),
        sessions,
        knowledge,
        limit=max(policy.settings.retrieval.limit for policy in policies),
        jobs=jobs,
        keep=keep,
        progress=progress,
        cache=cache,
    )
    return (SessionReplay(session, outcomes) for session, outcomes in played)


def with_no_memory(policies: Sequence[Policy], knowledge: Knowledge) -> tuple[Policy, ...]:
    """The policies with no memory first; where it is missing, under the first one's thresholds.

    Raises `ConfigError` if two have one name, or `none` remembers.
    """
    names = [policy.name for policy in policies]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"two policies are named {double!r}; give each its own name")
    none = next((policy for policy in policies if policy.name == NO_MEMORY), None)
    if none is None:
        settings = policies[0].settings if policies else Settings(retrieval=knowledge.retrieval)
        none = Policy(NO_MEMORY, settings.model_copy(update={"session": Memory(memory="none")}))
    if none.remembers or none.obeys != "nothing":
        raise ConfigError(
            f"the policy named {NO_MEMORY!r} remembers or obeys; the name is that of no memory"
        )
    return (none, *(policy for policy in policies if policy.name != NO_MEMORY))
