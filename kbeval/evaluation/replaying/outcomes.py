"""What a policy hands out at each turn of a session: the nouns that replay makes, ledger reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kbeval.evaluation.queries import Session


@dataclass(frozen=True, slots=True)
class Handed:
    """A document of an answer, as the model was given it."""

    path: str
    domain: str
    content: str  # names the content handed out: equal names are equal content
    token_count: int  # of the document's own JSON object
    passage: str | None = None  # the text of the only passage given; None: the whole body


@dataclass(frozen=True, slots=True)
class Outcome:
    """One look-up under one policy. A look-up that was skipped hands out nothing, at no cost."""

    level: str | None  # as `Invocation.relevance_level`
    reason: str | None  # as `Invocation.dedup_reason`
    handed: tuple[Handed, ...]  # the primary first
    withheld: tuple[str, ...]  # paths that matched and were given before, by rank
    domains: tuple[str, ...]  # the list the model was shown
    token_count: int  # of the whole serialised LookupResult
    skipped: bool = False  # an obedient executor did not ask

    @property
    def found(self) -> bool:
        """Whether any document was handed out."""
        return bool(self.handed)

    @property
    def paths(self) -> tuple[str, ...]:
        """The documents handed out, the primary first."""
        return tuple(handed.path for handed in self.handed)

    @property
    def frame_count(self) -> int:
        """Tokens that are no document: hint, notice, domain list, braces."""
        return self.token_count - sum(handed.token_count for handed in self.handed)


@dataclass(frozen=True, slots=True)
class SessionReplay:
    """One session under every policy; each tuple has one outcome a turn, in the session's order.

    The policy named `none` (no memory) is always among them: it is what savings are counted from.
    """

    session: Session
    outcomes: Mapping[str, tuple[Outcome, ...]]  # policy name -> per turn
