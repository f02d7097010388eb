"""The executor that obeys: when it does not ask, because hints or the domain list told it so.

Skipping is the executor's, not the tool's: a look-up it does not make is not marked as given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from kbeval.evaluation.queries import Turn
from kbeval.evaluation.replaying.outcomes import Outcome
from kbeval.evaluation.replaying.policies import Policy
from kbeval.records import Document, Level

Domains = frozenset[str]

CLOSED = (Level.PRECISE.name, Level.HIGHLY_RELEVANT.name)
SKIPPED = Outcome(None, None, (), (), (), 0, skipped=True)


def draw(session_id: str, place: int, seed: int) -> float:
    """The number in [0, 1) that decides at this turn (from 0), the same at every obedience.

    So runs nest: a look-up skipped at one obedience is skipped at every greater one, as long as
    the look-ups before it are the same.

    >>> draw("s1", 0, 7) == draw("s1", 0, 7), draw("s1", 0, 7) == draw("s1", 1, 7)
    (True, False)
    """
    text = f"{seed}/{place}/{session_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=6).digest(), "big") / 2.0**48


class BaseDomains(NamedTuple):
    """The domains of a knowledge base."""

    of: Mapping[str, str]  # a document's path -> its domain
    names: Domains


def base_domains(documents: Sequence[Document]) -> BaseDomains:
    """The domains of these documents."""
    of = {document.path: document.domain for document in documents}
    return BaseDomains(of, frozenset(of.values()))


def turn_domains(turn: Turn, no_memory: Outcome, base: BaseDomains) -> Domains:
    """The domains a turn asks about; none if nothing tells.

    Those its metadata names (`domain` or `domains`) and the base has; else the domain of its
    answering documents, if they share one; else that of the primary without memory.
    """
    named = turn.metadata.get("domains", turn.metadata.get("domain"))
    listed = named if isinstance(named, list | tuple) else [named]
    if known := frozenset(name for name in listed if isinstance(name, str)) & base.names:
        return known
    answering = [*(turn.relevant or ()), *(path for group in turn.needs for path in group)]
    shared = frozenset(base.of[path] for path in answering if path in base.of)
    if len(shared) == 1:
        return shared
    return frozenset(handed.domain for handed in no_memory.handed[:1])


def closed_after(policy: Policy, closed: Domains, outcome: Outcome) -> Domains:
    """The domains an executor holds for closed once it has this answer too.

    Under "hints" a PRECISE or HIGHLY_RELEVANT answer closes its primary's domain. Under "domains"
    the list last shown is closed; without memory no list is shown, and the executor goes by what
    it was handed.
    """
    if policy.obeys == "domains" and policy.remembers:
        return frozenset(outcome.domains)
    if policy.obeys == "domains":
        return closed.union(handed.domain for handed in outcome.handed)
    if policy.obeys == "hints" and outcome.level in CLOSED:
        return closed.union(handed.domain for handed in outcome.handed[:1])
    return closed


def holds_closed(closed: Domains, asked: Domains) -> bool:
    """Whether an executor sees no reason to ask about these domains; about none it always asks."""
    return bool(asked) and asked <= closed
