"""Where no cut pays a constant is written, and what is pasted grades as it says; topics."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kbeval.config import Normalization, Settings
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.measures import levels
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.constraints import Constraints
from kbeval.evaluation.tuning.cuts import choose, levels_at
from kbeval.evaluation.tuning.export import triples, yml_fragment
from kbeval.evaluation.tuning.gains import CONSTANTS, Pays
from kbeval.records import Level
from kbeval.studies.tuning_constants import with_constants
from kbeval.studies.tuning_parts import Ask
from kbeval.studies.tuning_topics import Topics, topics_of
from tests.judged_world import A, N, W, judged_from, world

HIGH, REFERENCE = Level.HIGHLY_RELEVANT, Level.REFERENCE
PRESENT = Normalization()


def unpaid(level, constant):
    """The verdict that no cut of a level pays, where this constant is the hardest to beat."""
    other = next(name for name in CONSTANTS[level] if name != constant)
    over = {constant: Rate(-0.1, -0.2, 0.0, 50), other: Rate(0.5, 0.4, 0.6, 50)}
    return {level: Pays(level, over, pays=False)}


def parts_of_two(chosen_on, reported):
    return SimpleNamespace(chosen_on=chosen_on, reported=reported)


def written(judged, chosen):
    """The levels that the pasted yml gives, by the tool's own rule."""
    (first, *_) = [triple for triple in triples(judged, chosen, PRESENT) if triple.equivalent]
    text = yml_fragment(chosen, first, PRESENT)
    pasted = yaml.safe_load(text)["retrieval"]["normalization"]
    return levels(judged, Normalization.model_validate(pasted)), text


@pytest.mark.parametrize(
    ("level", "constant", "cuts", "said"),
    [
        (HIGH, "never closed", (-math.inf, 1.3), "highly-relevant-threshold: 1.0  # this level"),
        (REFERENCE, "everything handed out", (0.6, math.inf), "reference-threshold: 0.0  # no low"),
        (REFERENCE, "nothing handed out", None, ""),  # it would cross the cut of HIGHLY_RELEVANT
        (HIGH, "always closed", None, ""),  # it would cross the cut of REFERENCE
    ],
)
def test_the_best_constant_takes_the_place_of_a_cut_that_does_not_pay(level, constant, cuts, said):
    judged = judged_from([0.2, 0.3, 0.9, 1.2, 1.4], [A, A, W, A, N])
    choice = choose(judged, Costs())
    assert choice.distances == (0.6, 1.3)
    parts = parts_of_two(judged, judged)
    chosen = with_constants(
        choice, unpaid(level, constant), parts, Ask(Costs(), Costs(), Settings())
    )
    assert chosen.distances == (cuts or choice.distances)
    assert set(chosen.constants) == ({level} if cuts else set())
    graded, text = written(judged, chosen)
    assert graded.tolist() == levels_at(judged, *chosen.distances).tolist()
    assert said in text
    if cuts:
        assert f"so the constant {constant!r} is used" in text


def test_under_constraints_a_cut_stays_whatever_it_costs():
    judged = judged_from([0.2, 0.3, 0.9, 1.2, 1.4], [A, A, W, A, N])
    choice = choose(judged, Costs())
    ask = Ask(Constraints(precision=0.5), Costs(), Settings())
    pays = unpaid(HIGH, "never closed")
    chosen = with_constants(choice, pays, parts_of_two(judged, judged), ask)
    assert (chosen.distances, chosen.constants) == (choice.distances, {})


def test_a_level_that_is_not_used_cannot_be_written_over_an_exact_copy():
    judged = judged_from([0.4, 0.9, 1.4], [W, A, N])
    there = judged_from([0.0, 0.9], [W, A])  # a query of the report is a passage word for word
    choice = choose(judged, Costs())
    assert choice.highly_relevant.note == "this level is not used"
    parts, ask = parts_of_two(judged, there), Ask(Costs(), Costs(), Settings())
    refused = triples(judged, with_constants(choice, {}, parts, ask), PRESENT)
    assert not any(triple.equivalent for triple in refused)
    assert "a distance of 0.0 has similarity 1 and cannot be refused" in refused[0].refused


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), never=st.booleans(), everything=st.booleans())
def test_what_is_pasted_grades_as_the_constants_say(seed, never, everything):
    judged, there = world(60, seed), world(60, seed + 1)
    choice = choose(judged, Costs())
    pays = (unpaid(HIGH, "never closed") if never else {}) | (
        unpaid(REFERENCE, "everything handed out") if everything else {}
    )
    parts, ask = parts_of_two(judged, there), Ask(Costs(), Costs(), Settings())
    chosen = with_constants(choice, pays, parts, ask)
    if not any(triple.equivalent for triple in triples(judged, chosen, PRESENT)):
        assert min(judged.distance.min(), there.distance.min()) == 0  # an exact copy
        return
    graded, _ = written(judged, chosen)
    if not chosen.one_class:
        assert (graded == levels_at(judged, *chosen.distances)).all()
    if never:
        assert not (graded == HIGH).any()
    if everything:
        assert not (graded[np.isfinite(judged.distance)] == Level.NOT_FOUND).any()


# ------------------------------------------------------------------ topics


def labelled(topics):
    return SimpleNamespace(queries=[SimpleNamespace(metadata={"topic": t}) for t in topics])


def parts_with(topics, judged):
    return SimpleNamespace(
        labelled=labelled(topics),
        chosen_on=judged,
        reported=judged,
        folded=True,
        grouped_by="topic",
        pair=lambda: (judged, judged),
    )


def test_the_design_effect_by_topic_by_hand():
    # three answer in one topic, three are wrong in the other: six queries are worth one
    judged = judged_from([0.2] * 6 + [1.5, 1.5], [A, A, A, W, W, W, N, N])
    topics = ["a"] * 3 + ["b"] * 3 + ["a", "b"]
    choice = choose(judged_from([0.2, 0.9], [A, N]), Costs())
    found = topics_of(parts_with(topics, judged), "unique", choice, None)
    assert found.effects["precision[HIGHLY_RELEVANT]"] == (6.0, 6)
    assert found.effects["leak_rate"] == (None, 2)  # none leaks: nothing to compare
    assert list(found.lines()) == [
        "design effect by topic, 2 topics: precision[HIGHLY_RELEVANT] 6.00 (n=6), "
        "leak_rate - (n=2)",
        "the split is by topic and the design effect of precision[HIGHLY_RELEVANT] is above 2: "
        "a certificate reaches the 2 topics of the confirming labels, no further",
    ]


def test_topics_that_fare_alike_limit_nothing():
    assert Topics(9, {"leak_rate": (1.2, 40)}, split_apart=False).reach == ""


def test_without_a_topic_for_every_query_nothing_is_said():
    judged = judged_from([0.2, 0.9], [A, N])
    choice = choose(judged, Costs())
    assert topics_of(parts_with(["a", ""], judged), "unique", choice, None) is None
