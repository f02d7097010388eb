"""Who gets a place in an answer: the one rule that look-up, evaluation and replay share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def places(
    exact: Iterable[Item],
    near: Iterable[Item],
    *,
    limit: int,
    given: Callable[[Item], bool] | None = None,
) -> list[Item]:
    """The documents of one answer, the primary first (design.md 3).

    `exact` are the L0 matches, nearest first; they get at most `limit` - 1 places (one if limit
    is 1), so that many matches of a common key never crowd out the nearest document. `near` are
    the L1 documents at or above reference, nearest first; an L0 match without a place may stand
    there again. What is `given` already is passed over, and the next in rank takes its place.

    >>> places(["a", "b", "c"], ["c", "d"], limit=3)
    ['a', 'b', 'c']
    >>> places(["a", "b", "c"], ["c", "d"], limit=3, given={"b"}.__contains__)
    ['a', 'c', 'd']
    """
    taken: list[Item] = []
    for candidates, room in ((exact, max(limit - 1, 1)), (near, limit)):
        for item in candidates:
            if len(taken) >= room:
                break
            if item not in taken and not (given and given(item)):
                taken.append(item)
    return taken
