"""What an upload, a deletion or a regeneration did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kbeval.domains.domain_text import DomainText
from kbeval.domains.llm import ConnectionFailed
from kbeval.records import Fault
from kbeval.service.stored import Entry

Progress = Callable[[str, int, int], object]  # what ("documents", "domains"), done, of how many


@dataclass(frozen=True, slots=True)
class Upload:
    """The documents that were stored, those that were there already, and what went wrong.

    `domains` are the texts of the domains it touched, `failure` is the error to end with when a
    model was asked and nothing came of it; everything that is named here is stored all the same.
    """

    stored: tuple[Entry, ...] = ()
    unchanged: tuple[str, ...] = ()  # paths
    deleted: tuple[str, ...] = ()  # paths
    faults: tuple[Fault, ...] = ()
    failed_count: int = 0  # documents that were not stored
    domains: Mapping[str, DomainText] = field(default_factory=dict)
    failure: ConnectionFailed | None = None

    @property
    def degraded_count(self) -> int:
        """Stored documents of which a field is degraded."""
        return sum(bool(entry.degraded) for entry in self.stored)

    def raise_for_failure(self) -> None:
        """Raise `failure` if there is one."""
        if self.failure is not None:
            raise self.failure

    def summary(self) -> str:
        """One line for the user."""
        texts = sum(bool(text.degraded) for text in self.domains.values())
        parts = [
            f"{len(self.stored)} stored",
            f"{len(self.unchanged)} unchanged" if self.unchanged else "",
            f"{len(self.deleted)} deleted" if self.deleted else "",
            f"{self.failed_count} failed" if self.failed_count else "",
            f"{self.degraded_count} with degraded fields" if self.degraded_count else "",
            f"{len(self.domains)} domains renewed" if self.domains else "",
            f"{texts} domain texts degraded" if texts else "",
        ]
        return ", ".join(filter(None, parts))
