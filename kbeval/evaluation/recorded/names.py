"""What queries are called where they must not be kept in clear (`--hash-queries`)."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from kbeval.evaluation.queries import Session, Turn
from kbeval.records import Fault

CLEAR_KEYS = {  # metadata that are labels or marks, never a query
    *("split", "kind", "domain", "domains", "lang", "need", "label_level", "still_lacks", "grades"),
    *("relevance_level", "dedup_reason", "duration_ms", "row", "cut", "complete"),
}
_QUOTED = re.compile(r"""(?s)(session |document )?(['"])(?:\\.|(?!\2).)*(?:\2|$)""")

_NUMBER = re.compile(r"the number [^\s;,]+")


@dataclass(frozen=True, slots=True)
class QueryNames:
    """How a query is shown in tables, JSON, databases and pictures: in clear, or as a hash.

    Embedding and L0 need the text, so sessions keep it in memory; whoever writes asks `shown`, or
    writes sessions that went through `hidden`. A name is an HMAC with `salt`. A salt that nobody
    keeps, as `hashing()` draws it, makes names that hold within one run and cannot be guessed.
    With a known salt, and above all with the empty one (a plain SHA-256), short and usual
    queries *can be guessed* by hashing guesses: such names hide nothing from who has the salt.
    """

    hashed: bool = False
    salt: bytes = field(default=b"", repr=False)

    @classmethod
    def hashing(cls, salt: str | None = None) -> QueryNames:
        """Names that are hashes: under a random salt of this run, or under the one given."""
        return cls(True, secrets.token_bytes(32) if salt is None else salt.encode())

    def shown(self, query: str) -> str:
        """The query as it may be written: itself, or `sha256:` and 16 hexadecimal digits.

        >>> QueryNames().shown("how"), QueryNames.hashing("").shown("how")
        ('how', 'sha256:8044aae1f86875d9')
        """
        if not self.hashed:
            return query
        content = query.encode("utf-8", "surrogatepass")
        if self.salt:
            return f"sha256:{hmac.new(self.salt, content, sha256).hexdigest()[:16]}"
        return f"sha256:{sha256(content).hexdigest()[:16]}"


def hidden(sessions: Iterable[Session], names: QueryNames) -> tuple[Session, ...]:
    """The sessions as they may be written under `names`; they are the same if nothing is hashed.

    Queries become their names. Of metadata only what is known to be a label stays: anything else
    (a task, recorded details) might repeat a query. So what rests on `retrieval_details`, as the
    convention of distances does, is read off the sessions before.
    """
    if not names.hashed:
        return tuple(sessions)
    return tuple(
        replace(
            session,
            turns=tuple(_hidden(turn, names) for turn in session.turns),
            metadata=_labels(session.metadata),
        )
        for session in sessions
    )


def hidden_text(problem: str) -> str:
    """A message without what it quotes, except session ids and documents' paths.

    >>> hidden_text("session 's1', turn 2: 'my salary' is no turn")
    "session 's1', turn 2: '…' is no turn"
    """
    unquoted = _QUOTED.sub(lambda found: found[0] if found[1] else "'…'", problem)
    return _NUMBER.sub("a number", unquoted)


def hidden_fault(fault: Fault) -> Fault:
    """The fault without what it quotes."""
    return replace(fault, problem=hidden_text(fault.problem), remedy=hidden_text(fault.remedy))


def _hidden(turn: Turn, names: QueryNames) -> Turn:
    return replace(turn, query=names.shown(turn.query), metadata=_labels(turn.metadata))


def _labels(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key in CLEAR_KEYS}
