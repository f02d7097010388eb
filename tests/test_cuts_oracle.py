"""The exact cuts against an exhaustive search that measures every pair anew."""

from itertools import product

import numpy as np
import pytest
from cut_oracle import Exhaustive
from measure_oracle import evidence_of, random_world

from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.judge import Worth, judge
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import best_cuts, levels_at
from kbeval.evaluation.tuning.ladder import ladder, ladder_of

COSTS = [
    Costs(),
    Costs(none=(3, 2, 1, 0), highly_relevant=(0, 1.5, 4, 4.25)),
    Costs(reference=(2, 2, 2, 2), highly_relevant=(2, 2, 2, 2), none=(3, 0, 0, 0)),  # many ties
]
ASKED = [
    Constraints(precision=0.5),
    Constraints(precision=0.8, leak=0.4),
    Constraints(leak=0.5),
    Constraints(false_closure=0.25),
    Constraints(precision=0.5, false_closure=0.2),
    Constraints(precision=0.4, leak=0.6, false_closure=0.4),
    Constraints(reference_precision=0.5),
    Constraints(precision=0.6, reference_precision=0.4),
    Constraints(precision=0.4, leak=0.7, false_closure=0.5, reference_precision=0.3),
    Constraints(leak=0.5, false_closure=0.3, reference_precision=0.25),
    Constraints(precision=1.0, leak=0.0),
]


def random_judged(seed):
    """Worlds with ties, boundary values, several L0 matches, need groups, both conventions."""
    rng = np.random.default_rng(seed)
    world = random_world(
        seed,
        n=int(rng.integers(3, 16)),
        documents=int(rng.integers(4, 9)),
        judged=("pooled", "complete")[seed % 2],
        answers_from=1 + seed % 3 % 2,
    )
    if seed % 4 == 0:  # distances of their own, some of which the tool cannot tell apart
        noise = np.round(rng.integers(0, 3, np.shape(world.distance)) * 1e-6, 6)
        world.distance = np.round(np.array(world.distance) + noise, 6).tolist()
    convention = ("l2", "squared_l2")[seed // 2 % 2]
    return judge(
        world.labelled, evidence_of(world, convention=convention), limit=(1, 3, 2)[seed % 3]
    )


def compare(seed):
    """Every objective and every set of constraints on one random input."""
    judged = random_judged(seed)
    if not len(judged):
        return
    rule = ("unique", "unique-and-nearest")[seed // 3 % 2]
    largest = 4.0 if judged.convention == "squared_l2" else 2.0
    slow = Exhaustive(judged, rule=rule, largest_max=largest)
    tuned = ladder(judged, precise_requires=rule, largest_max=largest)
    assert tuned.accepted.tolist() == slow.cuts
    for (i, j), (level, _) in slow.pairs.items():
        at = levels_at(judged, slow.cuts[i], slow.cuts[j], rule)
        assert at.tolist() == level.tolist()
    for costs in COSTS:
        same(best_cuts(tuned, costs), *slow.costs(costs), sign=-1)
    for name in ("accuracy", "macro_f1"):
        if (judged.worth[slow.tuned()] == Worth.RELATED).any():
            same(best_cuts(tuned, name), *getattr(slow, name)())
        else:
            with pytest.raises(ConfigError, match="cannot place two cuts"):
                best_cuts(tuned, name)
    for asked in ASKED:
        same_constrained(tuned, slow, asked)


def same(found, value, pairs, *, sign=1):
    assert sign * found.value == value
    assert found.pairs() == pairs
    assert found.rungs == pairs[0]


def same_constrained(tuned, slow, asked):
    found = best_cuts(tuned, asked)
    value, pairs = slow.constraints(asked)
    if not pairs:
        assert isinstance(found, Infeasible)
        the_best_reachable(found, slow, asked)
        return
    assert not isinstance(found, Infeasible), found
    assert (float(found.value), float(found.second)) == pytest.approx(value)
    assert found.pairs() == pairs
    assert found.rungs == pairs[0]


def the_best_reachable(found, slow, asked):
    """An infeasible answer names the first constraint that leaves nothing, and its best value."""
    order = ["leak", "precision", "false_closure", "reference_precision"]
    kept = {}
    for name in order:
        if getattr(asked, name) is None:
            continue
        _, pairs = slow.constraints(Constraints(**kept, **{name: getattr(asked, name)}))
        if not pairs:
            break
        kept[name] = getattr(asked, name)
    assert found.constraint == name
    measured = {
        "leak": lambda m: m.leak_rate,
        "precision": lambda m: m.precision[2],
        "false_closure": lambda m: m.false_closure_rate_by_level[2],
        "reference_precision": lambda m: m.precision[1],
    }[name]
    best = max if "precision" in name else min
    reachable = []
    for level, m in slow.pairs.values():
        if kept and not keeps(m, level, kept):
            continue
        if name in ("precision", "false_closure") and not (level == 2).any():
            continue
        reachable.append(measured(m).value)
    reachable = [rate for rate in reachable if rate is not None]
    if found.best is None:
        assert not reachable
    else:
        assert float(found.best) == pytest.approx(best(reachable))


def keeps(m, level, kept):
    graded = bool((level == 2).any())
    checks = {
        "leak": lambda p: m.leak_rate.value <= p,
        "precision": lambda p: graded and m.precision[2].value >= p,
        "false_closure": lambda p: graded and (m.false_closure_rate_by_level[2].value or 0.0) <= p,
    }
    return all(checks[name](bound) for name, bound in kept.items())


@pytest.mark.parametrize("seed", range(24))
def test_every_objective_finds_what_an_exhaustive_search_finds(seed):
    compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_hundreds_of_random_inputs_agree_with_the_exhaustive_search(block):
    for seed in range(100 + 40 * block, 140 + 40 * block):
        compare(seed)


@pytest.mark.parametrize("seed", [seed for seed in range(16) if seed % 4])
def test_a_weighted_query_counts_like_so_many_copies(seed):
    judged = random_judged(seed)
    weights = np.random.default_rng(seed).integers(0, 4, len(judged))
    if not weights.sum():
        return
    copies = np.repeat(np.arange(len(judged)), weights)
    tuned, copied = ladder(judged), _repeated(judged, copies)
    for objective in [*COSTS, *ASKED]:
        a, b = best_cuts(tuned, objective, weights=weights), best_cuts(copied, objective)
        if isinstance(b, Infeasible):
            assert (a.constraint, a.best) == (b.constraint, b.best)
            continue
        assert (a.value, a.second) == (b.value, b.second)
        by_weight = [tuned.accepted[rung] for rung in a.rungs]
        assert by_weight == [copied.accepted[rung] for rung in b.rungs]


def _repeated(judged, rows):
    one = judged.l0_count == 1
    return ladder_of(
        judged.distance[rows],
        judged.worth[rows],
        precise=one[rows],
        exact=(judged.l0_count > 1)[rows],
        tau=judged.tau[rows],
        largest_max=4.0 if judged.convention == "squared_l2" else 2.0,
    )


def test_the_inputs_hold_what_they_promise():
    worlds = [random_judged(seed) for seed in range(24)]
    assert any((j.l0_count > 1).any() for j in worlds)
    assert {(j.limit, j.convention) for j in worlds} == set(
        product((1, 2, 3), ("l2", "squared_l2"))
    )
    assert any(len(ladder(j).order) > len(ladder(j).accepted) for j in worlds)  # ties
    assert any(np.isfinite(j.tau).any() for j in worlds)
