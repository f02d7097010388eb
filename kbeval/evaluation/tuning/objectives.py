"""The best two cuts under costs, accuracy and macro-F1, exactly (method.md 4, 5).

Costs are integers and rates are fractions, so that equal values are equal: of equal pairs the
strictest is chosen, and all of them are found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from kbeval.errors import ConfigError
from kbeval.evaluation.judge import Worth
from kbeval.evaluation.tuning.ladder import Ladder
from kbeval.records import Level

NEAR = 1e-9  # floats this near to the best are compared again as fractions

_H, _R, _NONE = Level.HIGHLY_RELEVANT, Level.REFERENCE, Level.NOT_FOUND
TARGET = {Worth.ANSWERS: _H, Worth.RELATED: _R, Worth.WRONG: _NONE, Worth.NOTHING: _NONE}


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The best value there is, and every pair of rungs that reaches it.

    `second` breaks ties of value (found_rate, under constraints). `highly_relevant` holds every
    optimal rung of Dh, ascending; `references(i)` the optimal rungs of Dr for one of them.
    """

    value: Fraction
    highly_relevant: NDArray[np.int64]
    references: Callable[[int], NDArray[np.int64]]
    second: Fraction | None = None

    @property
    def rungs(self) -> tuple[int, int]:
        """The strictest pair: the smallest Dh, then the smallest Dr from it on."""
        high = int(self.highly_relevant[0])
        return high, int(self.references(high)[0])

    def pairs(self) -> list[tuple[int, int]]:
        """Every optimal pair of rungs (Dh, Dr), the strictest first."""
        return [(int(i), int(j)) for i in self.highly_relevant for j in self.references(int(i))]


def accuracy_costs() -> NDArray[np.int64]:
    """Accuracy as a cost table `[level, worth]`: 1 for a level that is not the target's.

    PRECISE is no cut's affair and costs nothing.
    """
    table = np.ones((len(Level), len(Worth)), dtype=np.int64)
    table[Level.PRECISE] = 0
    for worth, level in TARGET.items():
        table[level, worth] = 0
    return table


def additive_sums(
    ladder: Ladder, table: NDArray[np.int64], weights: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What accepting up to each rung adds to the total cost, for Dh and for Dr.

    `table` holds integers `[level, worth]`; `weights` has shape (..., n): counts per query, one
    row a resample (None: each once). Returns f and g of shape (..., k + 1): the total is
    const + f[i] + g[j].
    """
    close = (table[_H] - table[_R])[ladder.worth]
    give = (table[_R] - table[_NONE])[ladder.worth]
    give[ladder.exact] = 0
    if weights is not None:
        close, give = weights * close, weights * give
    return ladder.running(close), ladder.running(give)


def strictest_pairs(
    high: NDArray[np.int64], reference: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rungs i <= j with the least high[..., i] + reference[..., j], the strictest of equals.

    Both arguments have shape (..., k + 1), the results (...).

    >>> [int(rung) for rung in strictest_pairs(np.array([0, -1, -1]), np.array([0, 3, -2]))]
    [1, 2]
    """
    least = _suffix_minimum(reference)
    first = np.argmin(high + least, axis=-1)
    wanted = np.take_along_axis(least, first[..., None], axis=-1)
    at_or_after = np.arange(high.shape[-1]) >= first[..., None]
    second = np.argmax((reference == wanted) & at_or_after, axis=-1)
    return np.asarray(first), np.asarray(second)


def additive(
    ladder: Ladder,
    table: NDArray[np.int64],
    *,
    scale: int = 1,
    weights: NDArray[np.int64] | None = None,
    tuned_only: bool = False,
) -> Optimum:
    """The least mean cost of all queries, or of those a cut can move, in units of `scale`."""
    high, reference = additive_sums(ladder, table, weights)
    least = _suffix_minimum(reference)
    total = high + least
    best = total.min()
    count = _kinds(ladder, weights)  # by level at no cut, worth
    fixed = int((count * table).sum())
    n = int(count[[_NONE, _R]].sum() if tuned_only else count.sum())

    def references(i: int) -> NDArray[np.int64]:
        return np.flatnonzero(reference[i:] == least[i]).astype(np.int64) + i

    value = Fraction(fixed + int(best), n * scale) if n else Fraction(0)
    return Optimum(value, np.flatnonzero(total == best).astype(np.int64), references)


def accuracy(ladder: Ladder, weights: NDArray[np.int64] | None = None) -> Optimum:
    """The largest share of queries, PRECISE ones apart, at the target level of their worth.

    Raises `ConfigError` where no primary is related.
    """
    require_three_grades(ladder, "accuracy")
    wrong = additive(ladder, accuracy_costs(), weights=weights, tuned_only=True)
    return Optimum(1 - wrong.value, wrong.highly_relevant, wrong.references)


def require_three_grades(ladder: Ladder, objective: str) -> None:
    """Raise `ConfigError` where REFERENCE has no true member, so it cannot place two cuts."""
    related = int((ladder.worth[~ladder.precise] == Worth.RELATED).sum())
    if not related:
        raise ConfigError(
            f"objective: {objective} cannot place two cuts on these labels: {related} primaries "
            "are related, so REFERENCE has no true member; allowed here are costs and constraints"
        )


def macro_f1(ladder: Ladder, weights: NDArray[np.int64] | None = None) -> Optimum:
    """The best mean F1 over the levels that have a true query, PRECISE queries apart.

    Tried at pairs of cuts at ends of runs of equal (exact, target), which loses nothing: along
    a run every F1 is monotone, or their sum is convex. Raises `ConfigError` where no primary is
    related.
    """
    require_three_grades(ladder, "macro-F1")
    counts = np.ones(len(ladder), dtype=np.int64) if weights is None else weights
    surface = _Surface.over(ladder, counts)
    ends = _run_ends(ladder)
    tops = np.array([surface.values(i, ends[ends >= i]).max() for i in ends])
    rows = ends[tops >= tops.max() - NEAR]
    tried = [(i, ends[ends >= i]) for i in rows]
    near = {
        (int(i), int(j)) for i, js in tried for j in js[surface.values(i, js) >= tops.max() - NEAR]
    }
    exact = {pair: surface.exact(*pair) for pair in near}
    best = max(exact.values())
    columns = sorted({j for (_, j), value in exact.items() if value == best})
    high = {i for j in columns for i in surface.equal(np.arange(j + 1), j, best)[0]}
    rungs = np.array(sorted(high), dtype=np.int64)
    last = len(ladder.end)
    return Optimum(best, rungs, lambda i: surface.equal(i, np.arange(i, last), best)[1])


@dataclass(frozen=True, slots=True, eq=False)
class _Surface:
    """Macro-F1 over pairs of rungs, from counts that add: [level] -> constant, by Dh, by Dr."""

    true: NDArray[np.int64]  # (3,), HIGHLY_RELEVANT, REFERENCE, none
    hit: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]  # by level: terms of Dh, of Dr
    predicted: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]

    @classmethod
    def over(cls, ladder: Ladder, counts: NDArray[np.int64]) -> _Surface:
        """The counts of a ladder whose queries weigh `counts` (n,)."""
        tuned = ~ladder.precise
        target = np.array([TARGET[worth] for worth in Worth])[ladder.worth]
        zero = np.zeros(len(ladder.end), dtype=np.int64)

        def terms(
            high: NDArray[np.bool_], reference: NDArray[np.bool_], none: NDArray[np.bool_]
        ) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]:
            """Queries at each level, of those each mask allows there."""
            at_r, at_none = reference & tuned, none & ladder.free
            given_exact = int((counts * (at_r & ladder.exact)).sum())
            withheld = int((counts * at_none).sum())
            return (
                (ladder.running(counts * high), zero),
                (
                    given_exact - ladder.running(counts * at_r),
                    ladder.running(counts * (at_r & ladder.free)),
                ),
                (zero, withheld - ladder.running(counts * at_none)),
            )

        every = np.full(len(ladder), True)
        levels = (_H, _R, _NONE)
        return cls(
            np.array([int((counts * (tuned & (target == x))).sum()) for x in levels]),
            terms(target == _H, target == _R, target == _NONE),
            terms(every, every, every),
        )

    def values(self, i: NDArray[np.int64] | int, j: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Macro-F1 at pairs of rungs; the arguments broadcast."""
        total = np.zeros(np.broadcast_shapes(np.shape(i), np.shape(j)))
        for true, hit, predicted in self._classes():
            total += 2 * (hit[0][i] + hit[1][j]) / (predicted[0][i] + predicted[1][j] + true)
        mean: NDArray[np.float64] = total / np.count_nonzero(self.true)
        return mean

    def exact(self, i: int, j: int) -> Fraction:
        """Macro-F1 at one pair, as a fraction."""
        parts = [
            Fraction(2 * int(hit[0][i] + hit[1][j]), int(predicted[0][i] + predicted[1][j] + true))
            for true, hit, predicted in self._classes()
        ]
        return sum(parts, Fraction(0)) / len(parts)

    def equal(
        self, i: NDArray[np.int64] | int, j: NDArray[np.int64] | int, best: Fraction
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Those of the pairs, of shape (p,) each, whose value is `best`."""
        first, second = np.broadcast_arrays(np.atleast_1d(i), np.atleast_1d(j))
        near = np.flatnonzero(self.values(first, second) >= float(best) - NEAR)
        kept = [at for at in near if self.exact(int(first[at]), int(second[at])) == best]
        return first[kept].astype(np.int64), second[kept].astype(np.int64)

    def _classes(
        self,
    ) -> list[
        tuple[
            int,
            tuple[NDArray[np.int64], NDArray[np.int64]],
            tuple[NDArray[np.int64], NDArray[np.int64]],
        ]
    ]:
        """The levels that have a true query."""
        every = zip(self.true.tolist(), self.hit, self.predicted, strict=True)
        return [row for row in every if row[0]]


def _kinds(ladder: Ladder, weights: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Queries `[level, worth]` where no cut accepts anything, of shape (4, 4)."""
    level = ladder.exact * np.int8(_R) + ladder.precise * np.int8(Level.PRECISE)
    code = level * np.int8(len(Worth)) + ladder.worth
    count = np.bincount(code, weights, minlength=len(Level) * len(Worth))
    return count.astype(np.int64).reshape(len(Level), len(Worth))


def _run_ends(ladder: Ladder) -> NDArray[np.int64]:
    """Rungs at which a run of equal (exact, target) ends; the first and the last always."""
    target = np.array([TARGET[worth] for worth in Worth])[ladder.worth]
    kind = (2 * len(Level) * ladder.exact + target)[ladder.order]  # in order of distance
    last = len(ladder.end) - 1
    if not last:
        return np.zeros(1, dtype=np.int64)
    start = ladder.end[:-1]
    low, high = np.minimum.reduceat(kind, start), np.maximum.reduceat(kind, start)
    alike = (low[:-1] == high[:-1]) & (low[1:] == high[1:]) & (low[:-1] == low[1:])
    inner = 1 + np.flatnonzero(~alike)
    return np.concatenate([[0], inner, [last]]).astype(np.int64)


def _suffix_minimum(values: NDArray[np.int64]) -> NDArray[np.int64]:
    least: NDArray[np.int64] = np.minimum.accumulate(values[..., ::-1], axis=-1)[..., ::-1]
    return least
