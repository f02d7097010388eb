"""The table of costs: what it refuses, and what it says (method.md 4)."""

from fractions import Fraction

import numpy as np
import pytest

from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs, load_costs
from kbeval.evaluation.judge import Worth
from kbeval.records import Level


def test_the_default_table_is_that_of_the_method():
    assert Costs().to_json() == {
        "PRECISE": {"answers": 0, "related": 5, "wrong": 12, "nothing": 12},
        "HIGHLY_RELEVANT": {"answers": 0, "related": 4, "wrong": 11, "nothing": 11},
        "REFERENCE": {"answers": 1, "related": 0, "wrong": 2, "nothing": 2},
        "none": {"answers": 5, "related": 2, "wrong": 1, "nothing": 0},
    }


def test_the_default_table_says_when_a_level_pays():
    assert [(b.level, b.rest, b.share) for b in Costs().break_evens()] == [
        ("HIGHLY_RELEVANT", "wrong", Fraction(9, 10)),
        ("HIGHLY_RELEVANT", "related", Fraction(4, 5)),
        ("REFERENCE", "wrong", Fraction(1, 5)),
        ("REFERENCE", "nothing", Fraction(1, 3)),
    ]
    assert str(Costs().break_evens()[0]) == (
        "HIGHLY_RELEVANT instead of REFERENCE pays when at least 9 in 10 are answers and the rest "
        "is wrong (each gain 1, each loss 9)"
    )


@pytest.mark.parametrize(
    ("table", "position", "share", "words"),
    [
        ({"REFERENCE": {"answers": 0}}, 0, None, "never pays"),
        ({"HIGHLY_RELEVANT": {"wrong": 2}}, 0, Fraction(0), "always pays"),
        ({"none": {"wrong": 6}}, 2, Fraction(0), "always pays"),
        ({"none": {"answers": 1.5}}, 2, Fraction(2, 3), "at least 2 in 3"),
    ],
)
def test_the_break_evens_follow_the_table_in_use(table, position, share, words):
    found = Costs.from_mapping(table).break_evens()[position]
    assert found.share == share
    assert words in str(found)


def test_at_the_break_even_both_levels_cost_the_same():
    costs = Costs(highly_relevant=(0.5, 3, 8.25, 9), reference=(2, 0, 2.5, 3))
    lower = {"REFERENCE": Level.NOT_FOUND, "HIGHLY_RELEVANT": Level.REFERENCE}
    for even in costs.break_evens():
        rest = Worth[even.rest.upper()]
        both = [
            even.share * Fraction(costs.cost(level, Worth.ANSWERS))
            + (1 - even.share) * Fraction(costs.cost(level, rest))
            for level in (Level[even.level], lower[even.level])
        ]
        assert both[0] == both[1]


def test_scaled_costs_are_integers_of_the_same_table():
    costs = Costs(reference=(0.1, 0, 2.25, 2))
    assert costs.scale == 20
    for level in Level:
        for worth in Worth:
            assert costs.scaled()[level, worth] == round(costs.cost(level, worth) * 20)
    assert costs.scaled().dtype == np.int64


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"PRECISE": {"wrong": 1}}, r"costs\.PRECISE\.wrong: got 1, which is cheaper than REF"),
        ({"HIGHLY_RELEVANT": {"wrong": 1.5}}, r"costs\.HIGHLY_RELEVANT\.wrong: got 1\.5"),
        ({"REFERENCE": {"nothing": -1}}, r"costs\.REFERENCE\.nothing: got -1; a finite number"),
        ({"none": {"wrong": float("nan")}}, r"costs\.none\.wrong: got nan; a finite number"),
        ({"none": {"wrong": float("inf")}}, r"costs\.none\.wrong: got inf; a finite number"),
        ({"none": {"wrong": "cheap"}}, r"costs\.none\.wrong: got 'cheap'; a finite number"),
        ({"none": {"wrong": True}}, r"costs\.none\.wrong: got True; a finite number"),
        ({"none": {"wrong": 1 / 3}}, r"costs\.none\.wrong: got 0\.333.*; at most 6 decimals"),
        ({"none": {"answers": 0}}, r"costs\.none\.answers: got 0, but handing out .* costs 0"),
        ({"none": {"good": 0}}, r"costs\.none: unknown key 'good'; known keys are answers, rel"),
        ({"GOOD": {}}, r"costs: unknown key 'GOOD'; known keys are PRECISE, HIGHLY_RELEVANT"),
        ({"none": 3}, r"costs\.none: got 3; a mapping worth -> cost is expected"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(table, message):
    with pytest.raises(ConfigError, match=message):
        Costs.from_mapping(table)


def test_costs_are_read_from_a_yml_file(tmp_path):
    file = tmp_path / "costs.yml"
    file.write_text("costs:\n  NOT_FOUND: {answers: 9}\n", encoding="utf-8")
    assert load_costs(file) == Costs(none=(9, 2, 1, 0))
    file.write_text("PRECISE: {wrong: 20}\nnone: {answers: 9}\n", encoding="utf-8")
    assert load_costs(file) == Costs(precise=(0, 5, 20, 12), none=(9, 2, 1, 0))
    assert load_costs() == Costs()


@pytest.mark.parametrize(
    "text", ["costs: 3\n", "none: {answers: 0}\n", "costs: {none: {bad: 1}}\n"]
)
def test_a_fault_in_a_costs_file_names_the_file(tmp_path, text):
    file = tmp_path / "costs.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"costs\.yml: costs"):
        load_costs(file)
