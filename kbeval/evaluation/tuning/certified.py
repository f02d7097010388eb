"""Cuts with a claim that holds: precision and leak, with a stated chance to be wrong (method.md 6).

One part of the labels proposes, the other confirms, once. Leak is monotone in Dr, so its largest
candidate whose bound passes needs no correction; precision is not monotone in Dh, so candidates
stand in a fixed order that nothing of the confirming part enters.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbeval.errors import ConfigError
from kbeval.evaluation.answers import reached
from kbeval.evaluation.judge import Judged, Worth
from kbeval.evaluation.statistics import Rate, label_budget, rate
from kbeval.evaluation.tuning.certificate import Certificate, LeakTest, Step
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import choose, levels_at
from kbeval.evaluation.tuning.first_use import first_use
from kbeval.evaluation.tuning.folds import part, rung_distance
from kbeval.evaluation.tuning.ladder import Ladder, PreciseRule, ladder, largest_max_of
from kbeval.records import Level

DELTA = 0.05  # what may go wrong over the labels, all claims together
LOOSER = 25  # candidates beyond the safest one


def certify(
    proposing: Judged,
    confirming: Judged,
    asked: Constraints,
    *,
    delta: float = DELTA,
    precise_requires: PreciseRule = "unique",
    seed: int = 0,
    folder: str | Path | None = None,
    fingerprint: str | None = None,
) -> Certificate:
    """Certify precision[HIGHLY_RELEVANT], and leak or false closure where asked (method.md 6).

    Of each cluster of `confirming` one query is drawn, by `seed`. With two families of claims
    (precision with false closure; leak) each gets half of `delta`. `folder` is the run directory
    that keeps what `confirming` was first used for; `fingerprint` names these labels there (None:
    their positions, clusters and answerability). Raises `ConfigError` where precision is not
    asked, a rate is 0 or 1, or the parts differ in convention or limit.
    """
    _check(proposing, confirming, asked, delta)
    claims = 1 if asked.leak is None else 2
    each = float(Fraction(str(delta)) / claims)
    drawn = part(confirming, one_of_each_cluster(confirming.cluster, seed=seed))
    largest = max(largest_max_of(proposing), largest_max_of(confirming))
    a, b = (
        ladder(judged, precise_requires=precise_requires, largest_max=largest)
        for judged in (proposing, drawn)
    )
    candidates = propose(a, asked, each)
    used = {"asked": str(asked), "delta": delta, "seed": seed, "candidates": list(candidates)}
    spent = "" if folder is None else first_use(Path(folder), confirming, used, fingerprint)
    leak = None if asked.leak is None else leak_test(b, asked.leak, each)
    steps = confirm(b, candidates, asked, each)
    cuts, why_not = _decided(leak, steps, asked, each)
    naive = choose(proposing, asked, precise_requires=precise_requires)
    pair = naive if isinstance(naive, Infeasible) else naive.distances
    return Certificate(
        asked=asked,
        delta=delta,
        each_delta=each,
        cuts=cuts,
        leak=leak,
        steps=steps,
        candidates=candidates,
        naive=pair,
        naive_coverage=(
            None if isinstance(pair, Infeasible) else _coverage(confirming, pair, precise_requires)
        ),
        coverage=None if cuts is None else _coverage(confirming, cuts, precise_requires),
        proposing_n=len(proposing),
        confirming_n=len(drawn),
        seed=seed,
        why_not=why_not,
        spent=spent,
    )


def one_of_each_cluster(cluster: NDArray[np.int64], *, seed: int) -> NDArray[np.bool_]:
    """One query of each cluster, drawn at random; a mask of shape (n,)."""
    mixed = np.random.default_rng(seed).permutation(len(cluster))
    kept = np.full(len(cluster), False)
    kept[mixed[np.unique(cluster[mixed], return_index=True)[1]]] = True
    return kept


def leak_test(tuned: Ladder, at_most: float, delta: float) -> LeakTest:
    """Step 1: the largest Dr whose upper bound of the leak is allowed, on all unanswerable ones."""
    unanswerable = ~tuned.answerable
    n = int(unanswerable.sum())
    floor = int((unanswerable & ~tuned.free).sum())
    errors = floor + tuned.running((unanswerable & tuned.free).astype(np.int64))
    bound = upper_bound(errors, n, delta)
    passed = np.flatnonzero(bound <= at_most) if n else np.zeros(0, dtype=np.int64)
    rung = int(passed[-1]) if len(passed) else 0
    distance = rung_distance(tuned, rung) if len(passed) else None
    return LeakTest(distance, n, int(errors[rung]), float(bound[rung]), at_most)


def upper_bound(errors: NDArray[np.int64], n: int, delta: float) -> NDArray[np.float64]:
    """The exact one-sided upper bound of a rate, from errors of any shape; 1 if all are errors."""
    from scipy.special import betaincinv

    every = errors >= n
    bound = betaincinv(errors + 1.0, np.where(every, 1, n - errors), 1 - delta)
    return np.where(every, 1.0, bound)


def propose(tuned: Ladder, asked: Constraints, delta: float) -> tuple[float, ...]:
    """Step 2: candidates for Dh from the proposing part alone, the safest first, then looser.

    Empty where its own Dr does not pass, or nothing is graded up to it.
    """
    top = len(tuned.end) - 1
    if asked.leak is not None:
        own = leak_test(tuned, asked.leak, delta)
        if own.distance is None:
            return ()
        top = tuned.rung(own.distance)
    if top < 1:
        return ()
    graded = tuned.end[1 : top + 1]
    wrong = tuned.running((tuned.worth != Worth.ANSWERS).astype(np.int64))[1 : top + 1]
    start = 1 + int(np.argmin(_chance(wrong, graded, asked.precision or 0.0)))
    steps = np.linspace(start, top, min(LOOSER, top - start) + 1)
    rungs = np.unique(np.round(steps).astype(np.int64))
    return tuple(_candidate(tuned, int(rung)) for rung in rungs)


def _candidate(tuned: Ladder, rung: int) -> float:
    """Midway to the next distance; the farthest one itself where nothing lies beyond."""
    distance = rung_distance(tuned, rung)
    return distance if math.isfinite(distance) else float(tuned.accepted[rung])


def confirm(
    tuned: Ladder, candidates: tuple[float, ...], asked: Constraints, delta: float
) -> tuple[Step, ...]:
    """Steps 3 and 4: the candidates in order, up to the first failure (which is the last step)."""
    steps: list[Step] = []
    for distance in candidates:
        steps.append(_step(tuned, distance, asked, delta))
        if not steps[-1].passed:
            break
    return tuple(steps)


def _step(tuned: Ladder, distance: float, asked: Constraints, delta: float) -> Step:
    """One candidate; hints are judged at Dr = Dh, where the fewest supplements are."""
    graded = ~tuned.precise & np.isfinite(tuned.distance) & (tuned.distance <= distance)
    n, errors = int(graded.sum()), int((graded & (tuned.worth != Worth.ANSWERS)).sum())
    precision = asked.precision or 0.0
    chance = float(_chance(np.array(errors), np.array(n), precision))
    lower = 1 - float(upper_bound(np.array(errors), n, delta))
    if asked.false_closure is None:
        passed = n > 0 and chance <= delta
        return Step(distance, n, errors, chance, lower, None, None, None, passed)
    closed = graded & tuned.answerable
    count, false = int(closed.sum()), int((closed & ~reached(tuned.tau, distance)).sum())
    false_chance = float(_chance(np.array(false), np.array(count), 1 - asked.false_closure))
    passed = n > 0 and count > 0 and chance <= delta and false_chance <= delta
    return Step(distance, n, errors, chance, lower, count, false, false_chance, passed)


def _chance(
    errors: NDArray[np.int64], n: NDArray[np.int64], precision: float
) -> NDArray[np.float64]:
    """Of that few errors or fewer in n, if the rate were just `precision`: binom.cdf."""
    from scipy.special import bdtr

    return np.asarray(bdtr(errors.astype(np.float64), n, 1 - precision), dtype=np.float64)


def _decided(
    leak: LeakTest | None, steps: tuple[Step, ...], asked: Constraints, delta: float
) -> tuple[tuple[float, float] | None, str]:
    """The certified pair, or None and why. Without a claim of leak nothing limits Dr."""
    if leak is not None and leak.distance is None:
        return None, _leaks(leak, delta)
    if not steps:
        return None, "the proposing part supports no candidate"
    if not steps[0].passed:
        return None, _falls_short(steps[0], asked, delta)
    reference = math.inf if leak is None or leak.distance is None else leak.distance
    within = [step.distance for step in steps if step.passed and step.distance <= reference]
    if not within:
        return None, "every cut that keeps the precision lies beyond the one that keeps the leak"
    return (within[-1], reference), ""


def _leaks(leak: LeakTest, delta: float) -> str:
    if not leak.n:
        return f"leak_rate <= {leak.at_most}: no unanswerable query confirms it"
    needed = label_budget(float(1 - Fraction(str(leak.at_most))), delta, leak.errors)
    return (
        f"leak_rate <= {leak.at_most}: {leak.n} unanswerable queries, {leak.errors} of them with "
        f"exact matches; {needed} would have been enough for that many"
    )


def _falls_short(step: Step, asked: Constraints, delta: float) -> str:
    """The first candidate in numbers, and how many would have been enough."""
    told = f"{asked.told('precision')}: {step.n} graded with {step.errors} errors"
    if step.n == 0 or step.chance > delta:
        needed = label_budget(asked.precision or 0.0, delta, step.errors)
        return f"{told}; {needed} would have been enough for that many"
    needed = label_budget(float(1 - Fraction(str(asked.false_closure))), delta, step.false or 0)
    return (
        f"{asked.told('false_closure')}: {step.closed} closed with {step.false} false hints; "
        f"{needed} would have been enough for that many"
    )


def _coverage(judged: Judged, cuts: tuple[float, float], rule: PreciseRule) -> Rate:
    """Answerable queries graded HIGHLY_RELEVANT or better."""
    closed = levels_at(judged, *cuts, rule) >= Level.HIGHLY_RELEVANT
    among = judged.answerable
    return rate(closed[among], judged.cluster[among], empty="no answerable query")


def _check(proposing: Judged, confirming: Judged, asked: Constraints, delta: float) -> None:
    for name in ("convention", "limit"):
        ours, theirs = getattr(proposing, name), getattr(confirming, name)
        if ours != theirs:
            raise ConfigError(
                f"the proposing part was judged with {name} {ours}, the confirming part with "
                f"{theirs}; both must be the same"
            )
    if asked.precision is None or asked.reference_precision is not None:
        raise ConfigError(
            f"certified: got {asked}; precision of HIGHLY_RELEVANT is expected, with leak and "
            "false_closure where wanted, and nothing else"
        )
    for name in ("precision", "leak", "false_closure"):
        bound = getattr(asked, name)
        if bound is not None and not 0 < bound < 1:
            raise ConfigError(f"certified.{name}: got {bound}; above 0 and below 1 is expected")
    if not 0 < delta < 1:
        raise ConfigError(f"certified.delta: got {delta}; above 0 and below 1 is expected")
