"""One session at a time through the live tool, under several policies side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kbeval.corpus.tokens import Tokenizer, open_tokenizer
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.replaying.answered import Answered
from kbeval.evaluation.replaying.executor import (
    SKIPPED,
    Domains,
    base_domains,
    closed_after,
    draw,
    holds_closed,
    turn_domains,
)
from kbeval.evaluation.replaying.outcomes import Outcome
from kbeval.evaluation.replaying.policies import Policy
from kbeval.evaluation.replaying.recalled import RecalledKnowledge, with_versions
from kbeval.records import Invocation
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.tool import KnowledgeTool

Outcomes = dict[str, tuple[Outcome, ...]]  # policy name -> per turn


class PolicyTool:
    """The live tool under one policy, from a turn to its outcome.

    Raises `ConfigError` for settings that the base was not built with.
    """

    def __init__(self, policy: Policy, knowledge: Knowledge, answered: Answered) -> None:
        self.policy = policy
        self._answered = answered
        self._passages = policy.settings.retrieval.supplement_content == "passage"
        self._tool = KnowledgeTool(knowledge, policy.settings, tokenizer=answered.tokenizer)
        self._asked: list[Invocation] = []  # in this session, the latest last

    def ask(self, session_id: str, turn: Turn, knowledge: Knowledge) -> Outcome:
        """Look up one turn, over the base as it is at that turn."""
        self._tool.knowledge = knowledge
        result, invocation = self._tool.lookup_knowledge(turn.query, session_id)
        self._asked.append(invocation)
        return self._answered.outcome(result, invocation, passages=self._passages)

    def take_back(self) -> None:
        """The latest look-up was never made."""
        self._tool.take_back(self._asked.pop())

    def forget(self, session_id: str) -> None:
        """The session is over."""
        self._asked.clear()
        self._tool.tracker.clear_session(session_id)


class Stage:
    """Policies side by side, no memory the first of them; `seed` draws who obeys."""

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        policies: Sequence[Policy],
        tokenizer: Tokenizer | str,
        seed: int = 0,
    ) -> None:
        answered = Answered(opened_tokenizer(tokenizer))
        self._tools = [PolicyTool(policy, knowledge, answered) for policy in policies]
        self._obeying = any(policy.obeys != "nothing" for policy in policies)
        self._domains = base_domains(knowledge.documents)
        self._seed = seed

    def __call__(self, knowledge: RecalledKnowledge, session: Session) -> Outcomes:
        """What each policy hands out at each turn; every memory begins empty, and ends so."""
        found: dict[str, list[Outcome]] = {tool.policy.name: [] for tool in self._tools}
        closed: dict[str, Domains] = dict.fromkeys(found, frozenset())
        for place, (turn, base) in enumerate(turns_and_bases(session, knowledge)):
            asked: Domains = frozenset()
            luck = draw(session.session_id, place, self._seed) if self._obeying else 1.0
            for at, tool in enumerate(self._tools):
                name = tool.policy.name
                outcome = SKIPPED
                if luck >= tool.policy.obedience or not holds_closed(closed[name], asked):
                    outcome = tool.ask(session.session_id, turn, base)
                    closed[name] = closed_after(tool.policy, closed[name], outcome)
                if at == 0 and self._obeying:
                    asked = turn_domains(turn, outcome, self._domains)
                found[name].append(outcome)
        for tool in self._tools:
            tool.forget(session.session_id)
        return {name: tuple(outcomes) for name, outcomes in found.items()}


def opened_tokenizer(tokenizer: Tokenizer | str) -> Tokenizer:
    """The tokenizer, or the one of that name: a name can be sent to other processes."""
    return open_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer


def turns_and_bases(
    session: Session, knowledge: RecalledKnowledge
) -> Iterator[tuple[Turn, RecalledKnowledge]]:
    """Each turn with the base as it is then, after all that changed before it."""
    versions: Counter[str] = Counter()
    base = knowledge
    for turn in session.turns:
        if turn.changed:
            versions.update(set(turn.changed))
            base = with_versions(knowledge, versions)
        yield turn, base
