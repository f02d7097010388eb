"""Memory policies as data: what a session remembers, under which thresholds, and who obeys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kbeval.config import Settings

NO_MEMORY = "none"


@dataclass(frozen=True, slots=True)
class Policy:
    """The tool's settings that make a policy, under the name it has in tables.

    `obeys` is the executor, not the tool: it does not ask about a domain again after a PRECISE or
    HIGHLY_RELEVANT answer from it ("hints"), or after any document of it ("domains").
    """

    name: str
    settings: Settings
    obeys: Literal["nothing", "hints", "domains"] = "nothing"
    obedience: float = 1.0  # probability that it obeys, at each turn
