"""Slow and obvious: every pair of cuts, each measured anew with `kbeval.evaluation.measures`.

Nothing of `cuts`, `objectives`, `constraints` or `ladder` is used: levels are worked out one query
at a time from the text of method.md 1, then measured.
"""

import math
from fractions import Fraction

import numpy as np

from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Worth
from kbeval.evaluation.measures import measure
from kbeval.records import Level
from kbeval.retrieval.grading import l2_to_similarity

TARGETS = {Worth.ANSWERS: 2, Worth.RELATED: 1, Worth.WRONG: 0, Worth.NOTHING: 0}


def precise(judged, q, rule):
    return judged.l0_count[q] == 1 and (rule == "unique" or bool(judged.unique_is_nearest[q]))


def level_of(judged, q, high, reference, rule):
    d = judged.distance[q]
    if judged.primary[q] < 0:
        return 0
    if precise(judged, q, rule):
        return 3
    if d <= high:
        return 2
    return 1 if judged.l0_count[q] >= 1 or d <= reference else 0


def candidates(judged, rule, largest_max):
    """-inf and the distinct distances, those of equal similarity by their farthest."""
    farthest = {}
    for q in range(len(judged)):
        d = float(judged.distance[q])
        if not precise(judged, q, rule) and math.isfinite(d):
            similarity = float(l2_to_similarity(d, largest_max))
            farthest[similarity] = max(d, farthest.get(similarity, 0.0))
    return [-math.inf, *sorted(farthest.values())]


class Exhaustive:
    """Every pair of candidates with its levels and measures."""

    def __init__(self, judged, *, rule="unique", largest_max=2.0):
        self.judged, self.rule, self.costs_measured = judged, rule, Costs()
        self.cuts = candidates(judged, rule, largest_max)
        self.pairs = {}
        for i, high in enumerate(self.cuts):
            for j, reference in enumerate(self.cuts[i:], start=i):
                level = [level_of(judged, q, high, reference, rule) for q in range(len(judged))]
                level = np.array(level, dtype=np.int8)
                found = measure(judged, level, reference_cut=reference)
                self.pairs[i, j] = (level, found)

    def tuned(self):
        return [q for q in range(len(self.judged)) if not precise(self.judged, q, self.rule)]

    def best(self, value):
        """The greatest value (None: not allowed) and every pair that has it."""
        values = {pair: value(*found) for pair, found in self.pairs.items()}
        values = {pair: v for pair, v in values.items() if v is not None}
        if not values:
            return None, []
        top = max(values.values())
        return top, sorted(pair for pair, v in values.items() if v == top)

    def costs(self, table):
        """Costs in whole units; the greatest of minus the total."""
        scaled, n = table.scaled(), len(self.judged)

        def value(_, found):
            mean = Fraction(int((scaled * found.level_matrix).sum()), n * table.scale)
            assert (
                table != self.costs_measured or abs(found.expected_cost.value - float(mean)) < 1e-9
            )
            return -mean

        return self.best(value)

    def accuracy(self):
        tuned = self.tuned()

        def value(level, _):
            right = sum(level[q] == TARGETS[Worth(self.judged.worth[q])] for q in tuned)
            return Fraction(int(right), len(tuned))

        return self.best(value)

    def macro_f1(self):
        tuned = self.tuned()
        target = {q: TARGETS[Worth(self.judged.worth[q])] for q in tuned}

        def value(level, _):
            parts = []
            for x in (2, 1, 0):
                true = sum(target[q] == x for q in tuned)
                if true:
                    predicted = sum(level[q] == x for q in tuned)
                    hit = sum(level[q] == x == target[q] for q in tuned)
                    parts.append(Fraction(2 * hit, predicted + true))
            return sum(parts) / len(parts)

        return self.best(value)

    def constraints(self, asked):
        """Most coverage[HIGHLY_RELEVANT], then found_rate, of the pairs that keep everything."""
        high, reference = Level.HIGHLY_RELEVANT, Level.REFERENCE

        def value(level, found):
            graded = int((level == 2).sum())
            if (asked.precision is not None or asked.false_closure is not None) and not graded:
                return None
            kept = [
                asked.precision is None or found.precision[high].value >= asked.precision,
                asked.leak is None or at_most(found.leak_rate.value, asked.leak, empty=False),
                asked.false_closure is None
                or at_most(
                    found.false_closure_rate_by_level[high].value, asked.false_closure, empty=True
                ),
                asked.reference_precision is None
                or found.precision[reference].value is None
                or found.precision[reference].value >= asked.reference_precision,
            ]
            if not all(kept):
                return None
            return (found.coverage[high].value or 0.0, found.found_rate.value or 0.0)

        return self.best(value)


def at_most(value, bound, *, empty):
    return empty if value is None else value <= bound
