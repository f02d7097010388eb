"""Slow and obvious: the measures straight from the text of method.md, one query at a time.

`World` holds every distance of every document, so that what is handed out can be worked out
anew at each reference cut; `evidence_of` packs the same into the arrays the package reads.
"""

import math
from dataclasses import dataclass

import numpy as np

from kbeval.evaluation.queries import LabelledSet, Query
from kbeval.records import Evidence


@dataclass
class World:
    paths: list  # of documents
    distance: list  # [query][document]
    exact: list  # [query] -> set of documents matched at L0
    labelled: LabelledSet


def random_world(seed, *, n=25, documents=9, judged="pooled", answers_from=2, needs=True):
    rng = np.random.default_rng(seed)
    paths = [f"{letter}.md" for letter in rng.permutation(list("abcdefghijklmnop"))[:documents]]
    # a coarse grid, so that there are many ties; some queries lie far from everything
    distance = (rng.integers(0, 6, (n, documents)) + rng.integers(0, 9, (n, 1))) / 4
    exact = [
        set(rng.choice(documents, rng.choice([0, 0, 0, 1, 2, 4]), replace=False)) for _ in paths
    ]
    exact = [exact[i % len(exact)] for i in range(n)]
    queries = [_random_query(rng, i, paths, answers_from, needs=needs) for i in range(n)]
    labelled = LabelledSet("w", "", tuple(queries), answers_from=answers_from, judged=judged)
    return World(paths, distance.tolist(), exact, labelled)


def _random_query(rng, number, paths, answers_from, *, needs):
    answerable = bool(rng.random() < 0.7)
    named = [*paths, "missing.md", "lost.md"]
    rated = rng.choice(len(named), rng.integers(1, 6), replace=False)
    top = 3 if answerable else answers_from - 1
    grades = {named[i]: int(rng.integers(-1, top + 1)) for i in rated}
    positive = [path for path, score in grades.items() if score > 0]
    groups = ()
    if needs and answerable and len(positive) > 1 and rng.random() < 0.5:
        half = len(positive) // 2
        groups = (tuple(positive[:half]), tuple(positive[half:]))
    return Query(
        f"q{number}",
        "text",
        answerable=answerable,
        grades=grades,
        needs=groups,
        nearness="" if answerable else str(rng.choice(["near", "far", ""])),
        session_id=f"s{number // 2}" if rng.random() < 0.3 else None,
    )


def evidence_of(world, *, depth=None, convention="l2"):
    """The arrays of `kbeval.records.Evidence`, `depth` L1 neighbours each (all if None)."""
    documents = range(len(world.paths))
    depth = len(world.paths) if depth is None else depth
    offset, l0, l0_distance, l1, l1_distance = [0], [], [], [], []
    for distance, exact in zip(world.distance, world.exact, strict=True):
        ranked = sorted(documents, key=lambda d: (distance[d], world.paths[d]))
        matched = [d for d in ranked if d in exact]
        l0 += matched
        l0_distance += [distance[d] for d in matched]
        offset.append(len(l0))
        l1.append(ranked[:depth])
        l1_distance.append([distance[d] for d in ranked[:depth]])
    return Evidence(
        tuple(world.paths),
        convention,
        np.array(offset, dtype=np.int64),
        np.array(l0, dtype=np.int32),
        np.array(l0_distance, dtype=np.float64),
        np.array(l1, dtype=np.int32).reshape(len(world.distance), min(depth, len(world.paths))),
        np.array(l1_distance, dtype=np.float64).reshape(
            len(world.distance), min(depth, len(world.paths))
        ),
        complete=depth >= len(world.paths),
    )


class Case:
    """One labelled query of a world at one pair of cuts, everything from scratch."""

    def __init__(self, world, number, *, limit, high=math.inf, reference=math.inf):
        self.world, self.limit = world, limit
        self.high, self.reference = high, reference
        self.query = world.labelled.queries[number]
        self.distance = dict(zip(world.paths, world.distance[number], strict=True))
        self.exact = self._sorted({world.paths[d] for d in world.exact[number]})
        self.grades = self.query.grades
        self.in_corpus = {p: s for p, s in self.grades.items() if p in self.distance}
        self.answers_from = world.labelled.answers_from

    def _sorted(self, paths):
        return sorted(paths, key=lambda path: (self.distance[path], path))

    def left_out(self):
        if self.query.answerable is False:
            return None
        if not any(score > 0 for score in self.grades.values()):
            return "no_judgement"
        if not any(score > 0 for score in self.in_corpus.values()):
            return "gold_not_in_corpus"
        return None

    def handed(self, cut):
        answer = self.exact[: self.limit - 1] if self.limit > 1 else self.exact[:1]
        for path in self._sorted(self.distance):
            if len(answer) < self.limit and path not in answer and self.distance[path] <= cut:
                answer.append(path)
        return answer

    @property
    def primary(self):
        return self.exact[0] if self.exact else self._sorted(self.distance)[0]

    def level(self, precise_requires="unique"):
        with_place = [self.distance[path] for path in self.handed(self.reference)]
        d = min(with_place, default=math.inf)
        if len(self.exact) == 1:
            nearest = self.distance[self.exact[0]] <= min(self.distance.values())
            if precise_requires == "unique" or nearest:
                return 3
        if d <= self.high:
            return 2
        return 1 if self.exact or d <= self.reference else 0

    def given(self, precise_requires="unique"):
        return self.handed(self.reference) if self.level(precise_requires) else []

    def worth(self):
        score = self.grades.get(self.primary, 0)
        if self.query.answerable is False:
            return 0
        return 3 if score >= self.answers_from else 2 if score > 0 else 1

    def unjudged(self, path):
        return self.world.labelled.judged == "pooled" and path not in self.grades

    def partial(self):
        return self.answerable and max(self.in_corpus.values()) < self.answers_from

    @property
    def answerable(self):
        return self.query.answerable is not False

    def hint_true(self, handed, *, unjudged_best=False):
        if unjudged_best and any(self.unjudged(path) for path in handed):
            return True
        groups = [[path for path in group if path in self.distance] for group in self.query.needs]
        groups = [group for group in groups if group]
        if groups:
            return all(any(path in handed for path in group) for group in groups)
        kept_back = [s for path, s in self.in_corpus.items() if path not in handed]
        shown = max((self.grades.get(path, 0) for path in handed), default=0)
        return max(kept_back, default=0) <= shown

    def better_exists(self):
        shown = max(self.grades.get(self.primary, 0), 0)
        return self.answerable and max(self.in_corpus.values()) > shown

    def tied(self):
        pool = self.exact or list(self.distance)
        tied = [path for path in pool if self.distance[path] == self.distance[self.primary]]
        kinds = {
            "a" if s >= self.answers_from else "r" if s > 0 else "w"
            for s in (self.grades.get(path, 0) for path in tied)
        }
        return self.answerable and len(kinds) > 1


def cases(world, **cuts):
    """The labelled queries that are not left out."""
    every = [Case(world, i, **cuts) for i in range(len(world.labelled.queries))]
    return [case for case in every if case.left_out() is None]


def share(rows, success):
    """Successes, rows and their share, None where there is no row."""
    rows = list(rows)
    return sum(map(success, rows)) / len(rows) if rows else None
