"""Where a turn's saving comes from: text withheld, less refill, less notices (method.md 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbeval.evaluation.replaying.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one turn's saving, in tokens; they add up to it exactly."""

    withheld_text: int = 0  # documents that only no memory hands out
    refill: int = 0  # documents that only the policy hands out, in the places that fell free
    notices: int = 0  # what the policy says beside the documents, less what no memory says

    @property
    def saved(self) -> int:
        """Tokens of the answer without memory less tokens of the policy's; may be negative."""
        return self.withheld_text - self.refill - self.notices


def parts_of(none: Outcome, policy: Outcome) -> Parts:
    """The parts of `none.token_count - policy.token_count`.

    The same document with other content, or as a passage in place of the whole text, counts as
    another one. A hint that the filter changed is a notice: hint, notice and domain list are the
    frame. A skipped look-up has no parts: its tokens are avoided, not saved.

    >>> from kbeval.evaluation.replaying.outcomes import Handed
    >>> a, b, c = (Handed(p, "d", p, n) for p, n in (("a", 50), ("b", 40), ("c", 30)))
    >>> none = Outcome("PRECISE", None, (a, b), (), (), token_count=100)
    >>> parts_of(none, Outcome("REFERENCE", "PARTIAL", (b, c), ("a",), ("d",), token_count=92))
    Parts(withheld_text=50, refill=30, notices=12)
    """
    if policy.skipped:
        return Parts()
    return Parts(
        withheld_text=sum(h.token_count for h in none.handed if h not in policy.handed),
        refill=sum(h.token_count for h in policy.handed if h not in none.handed),
        notices=policy.frame_count - none.frame_count,
    )


def later_lookups(outcomes: Sequence[Outcome], horizon: int | None) -> list[int]:
    """How many later look-ups of the session still carry each turn's answer.

    What is handed out at turn t is in the agent's context before turn t + `horizon`, or to the
    end of the session. Look-ups that were skipped are none.

    >>> asked = Outcome(None, None, (), (), (), token_count=0)
    >>> skipped = Outcome(None, None, (), (), (), token_count=0, skipped=True)
    >>> later_lookups([asked, skipped, asked, asked], None), later_lookups([asked] * 4, 2)
    ([2, 2, 1, 0], [1, 1, 1, 0])
    """
    asked = [0]
    for outcome in outcomes:
        asked.append(asked[-1] + (not outcome.skipped))
    count = len(outcomes)
    ends = [count if horizon is None else min(count, turn + horizon) for turn in range(count)]
    return [asked[end] - asked[turn + 1] for turn, end in enumerate(ends)]
