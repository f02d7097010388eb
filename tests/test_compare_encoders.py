"""Encoders compared: each at its own cuts, at one precision, certified, drawn and written."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbeval.config import Normalization
from kbeval.corpus.hashing import HashingEncoder
from kbeval.errors import ConfigError, EncoderError
from kbeval.evaluation.judge import Worth
from kbeval.evaluation.paired import sign_flip
from kbeval.evaluation.statistics import Rate
from kbeval.evaluation.tuning.constraints import Constraints, Infeasible
from kbeval.evaluation.tuning.cuts import choose, levels_at
from kbeval.evaluation.tuning.folds import fold_numbers, group_codes, out_of_fold, part
from kbeval.evaluation.tuning.ladder import ladder
from kbeval.evaluation.tuning.matched import CoverageGap
from kbeval.evaluation.tuning.matching import match_precision
from kbeval.evaluation.tuning.rematching import Side, cut_finder, placed
from kbeval.records import Level
from kbeval.studies.encoder_charts import coverage_chart, distances_by_encoder
from kbeval.studies.encoder_tables import (
    cost_table,
    coverage_table,
    disagreements,
    gap_table,
    pair_table,
)
from kbeval.studies.encoders import compare_set, comparison_of, save_comparison
from kbeval.studies.tuning import tune_set
from kbeval.studies.tuning_parts import cost_at, held_cuts
from kbeval.studies.tuning_terminal import tuning_lines
from tests.judged_world import A, N, R, W, judged_from, world
from tests.test_tune import made_set

TINY = Path(__file__).parent / "tiny"
PRECISIONS = (0.5, 0.7, 0.8, 0.9, 0.95)


class Backwards(HashingEncoder):
    """Another spelling encoder: it reads every text from its end, so its distances are its own."""

    def __init__(self, name="backwards"):
        super().__init__()
        self.name = name
        self.fingerprint = f"{name}-1"

    def encode(self, texts, kind):
        return super().encode([f"{text[::-1]} {kind}" for text in texts], kind)


class Forgetful(HashingEncoder):
    """A worse one: of seven words it reads two, and always the first."""

    def __init__(self):
        super().__init__()
        self.name, self.fingerprint = "forgetful", "forgetful-1"

    def encode(self, texts, kind):
        return super().encode([self.read(text) for text in texts], kind)

    def read(self, text):
        words = text.split()
        kept = [word for word in words[1:] if sum(map(ord, word)) % 7 < 2]
        return " ".join(words[:1] + kept)


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder to stand in, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two encoders on a made set, compared once for all tests that only look."""
    folder = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBEVAL_CACHE", str(folder / "cache"))
        made = made_set(folder / "made", answered=30, unanswerable=20)
        return compare_set(made, encoders=[HashingEncoder(), Forgetful()])


def noisy(judged, seed, spread=0.2):
    """The same queries under an encoder that tells right from wrong less well."""
    rng = np.random.default_rng(seed)
    moved = np.clip(judged.distance + rng.normal(0, spread, len(judged)), 0, 2)
    return replace(judged, distance=np.round(moved, 3))


def side(name, *, noise=0.0, cluster_size=1, rule="unique", **changed):
    dev = world(220, 1, spread=0.15, cluster_size=cluster_size)
    test = world(260, 2, spread=0.15, cluster_size=cluster_size)
    if noise:
        dev, test = noisy(dev, 5, noise), noisy(test, 6, noise)
    return replace(Side(name, dev, test, rule), **changed)


def drawn_queries(judged, counts):
    """The queries of a resample as a set of their own."""
    return part(judged, np.repeat(np.arange(len(judged)), counts))


def slow_cut(judged, precision, rule):
    asked = Constraints(precision=precision)
    found = choose(judged, asked, normalization=Normalization(), precise_requires=rule)
    return -math.inf if isinstance(found, Infeasible) else found.distances[0]


def slow_sums(judged, cut, rule):
    level = levels_at(judged, cut, cut, rule)
    closed = level == Level.HIGHLY_RELEVANT
    covered = (level >= Level.HIGHLY_RELEVANT) & judged.answerable
    right = closed & (judged.worth == Worth.ANSWERS)
    return [part.sum() for part in (right, closed, covered, judged.answerable)]


@pytest.mark.parametrize("rule", ["unique", "unique-and-nearest"])
@pytest.mark.parametrize("cluster_size", [1, 5])
def test_a_rematched_resample_is_what_tuning_and_grading_its_queries_gives(rule, cluster_size):
    rng = np.random.default_rng(3)
    one = side("a", noise=0.1, cluster_size=cluster_size, rule=rule)
    found = placed(one, PRECISIONS, Normalization())
    for _ in range(25):
        counts = [rng.integers(0, 4, len(j)) for j in (one.chosen_on, one.reported)]
        sums, reached = found.again(*counts)
        dev, test = (
            drawn_queries(judged, count)
            for judged, count in zip((one.chosen_on, one.reported), counts, strict=True)
        )
        cuts = [slow_cut(dev, precision, rule) for precision in PRECISIONS]
        assert reached.tolist() == [cut > -math.inf for cut in cuts]
        assert sums.tolist() == [slow_sums(test, cut, rule) for cut in cuts]


def test_without_resampling_the_sums_are_those_of_the_columns():
    for one in (side("a"), side("b", noise=0.3, rule="unique-and-nearest")):
        found = placed(one, PRECISIONS, Normalization())
        ones = [np.ones(len(judged), np.int64) for judged in (one.chosen_on, one.reported)]
        sums, _ = found.again(*ones)
        assert sums.tolist() == found.columns.sum(axis=2).tolist()
        assert found.cuts.tolist() == [
            slow_cut(one.chosen_on, precision, one.rule) for precision in PRECISIONS
        ]


def test_the_cut_is_the_largest_that_holds_not_the_first_that_fails():
    # right, wrong, then nine right: precision falls to 1/2 and recovers to 10/11
    judged = judged_from(np.arange(1, 12) / 10, [A, W] + [A] * 9)
    cuts = cut_finder(ladder(judged), [0.9, 0.95])(np.ones(11, np.int64))
    assert cuts.tolist() == [math.inf, 0.15]


def test_of_equal_coverage_the_strictest_is_taken():
    # ten right, then an unanswerable query that would still leave 10 of 11
    judged = judged_from(np.arange(1, 13) / 10, [A] * 10 + [N, W])
    assert cut_finder(ladder(judged), [0.9])(np.ones(12, np.int64)).tolist() == [1.05]


def test_an_encoder_beside_itself_does_not_differ():
    one = side("a")
    matching = match_precision([one, replace(one, name="again")], resamples=200)
    for gap in matching.pairs:
        assert (gap.coverage.value, gap.coverage.low, gap.coverage.high) == (0, 0, 0)
        assert (gap.p, gap.p_holm, gap.not_matched) == (1.0, 1.0, False)


def test_swapping_the_encoders_turns_the_difference_round():
    a, b = side("a"), side("b", noise=0.2)
    there, back = (match_precision(pair, resamples=200) for pair in ([a, b], [b, a]))
    for one, other in zip(there.pairs, back.pairs, strict=True):
        assert other.coverage.value == -one.coverage.value
        assert (other.coverage.low, other.coverage.high) == pytest.approx(
            (-one.coverage.high, -one.coverage.low)
        )
        assert other.p == one.p


def test_an_encoder_that_tells_less_well_covers_less_beyond_chance():
    a, b = side("a"), side("b", noise=0.3)
    matching = match_precision([a, b], wanted=[0.8], resamples=300)
    (gap,) = matching.pairs
    assert gap.coverage.high < 0
    assert gap.p < 0.05
    first, second = matching.rows
    assert gap.coverage.value == pytest.approx(second.coverage.value - first.coverage.value)
    assert first.coverage.low < first.coverage.value < first.coverage.high
    assert first.floor == second.floor > 0  # PRECISE does not hang on the encoder here


def test_the_interval_is_wider_than_one_that_takes_the_cut_as_given():
    one = side("a")
    matching = match_precision([one, side("b", noise=0.2)], wanted=[0.9], resamples=400)
    row = matching.rows[0]
    level = levels_at(one.reported, row.cut, row.cut)
    closed = (level >= Level.HIGHLY_RELEVANT)[one.reported.answerable]
    given = 2 * 1.96 * math.sqrt(closed.mean() * (1 - closed.mean()) / len(closed))
    assert row.coverage.high - row.coverage.low > 1.2 * given


def test_several_pairs_are_adjusted_together_at_each_precision():
    sides = [side("a"), side("b", noise=0.1), side("c", noise=0.3)]
    matching = match_precision(sides, wanted=[0.8, 0.9], resamples=200)
    for wanted in (0.8, 0.9):
        gaps = [gap for gap in matching.pairs if gap.wanted == wanted]
        assert [(gap.first, gap.second) for gap in gaps] == [("a", "b"), ("a", "c"), ("b", "c")]
        least = min(gaps, key=lambda gap: gap.p)
        assert least.p_holm == pytest.approx(min(1.0, 3 * least.p))


def test_a_precision_that_no_cut_keeps_is_a_value():
    wrong = replace(side("a"), name="wrong")
    always = np.full(len(wrong.chosen_on), W, np.int8)
    wrong = replace(wrong, chosen_on=replace(wrong.chosen_on, worth=always))
    right = side("right")
    answerable = np.full(len(always), True)
    wrong = replace(wrong, chosen_on=replace(wrong.chosen_on, answerable=answerable))
    right = replace(right, chosen_on=replace(right.chosen_on, answerable=answerable))
    matching = match_precision([right, wrong], wanted=[0.95], resamples=50)
    row, (gap,) = matching.rows[1], matching.pairs
    assert (row.reached, row.cut, row.coverage.value, row.reached_share) == (False, None, None, 0)
    assert str(row) == "never 0.95"
    assert gap.coverage == Rate(None, None, None, 0, "wrong never 0.95")
    assert str(gap) == "0.95 wrong less right: wrong never 0.95"
    assert (gap.p, gap.p_holm, gap.not_matched) == (None, None, False)
    json.dumps(matching.to_json(), allow_nan=False)


def test_precisions_that_came_out_apart_are_marked():
    honest, lucky = side("honest"), side("lucky")
    worth = lucky.reported.worth.copy()
    near = np.flatnonzero((lucky.reported.distance < 0.6) & (worth == A))
    worth[near[::2]] = R  # on test every second near answer is none
    lucky = replace(lucky, reported=replace(lucky.reported, worth=worth))
    matching = match_precision([honest, lucky], wanted=[0.9], resamples=300)
    assert matching.pairs[0].not_matched
    assert matching.not_matched("honest", 0.9)
    assert [row.fell_short for row in matching.rows] == [False, True]
    assert "short of 0.9" in str(matching.rows[1])
    alike = match_precision([honest, side("b", noise=0.1)], wanted=[0.9], resamples=300)
    assert not alike.pairs[0].not_matched


@pytest.mark.parametrize(
    ("low", "high", "marked"), [(-0.1, 0.1, False), (0.01, 0.2, True), (None, None, False)]
)
def test_not_matched_means_that_the_interval_leaves_zero_out(low, high, marked):
    rate = Rate(0.1, low, high, 9)
    assert CoverageGap("a", "b", 0.9, rate, rate, None, None).not_matched is marked


def test_few_clusters_give_no_interval_and_no_p():
    whole = [
        replace(one, reported=replace(one.reported, cluster=np.arange(260) % 9))
        for one in (side("a"), side("b", noise=0.2))
    ]
    matching = match_precision(whole, wanted=[0.8], resamples=20)
    (gap,) = matching.pairs
    assert (gap.coverage.low, gap.coverage.note, gap.p) == (None, "too few clusters", None)


def test_without_dev_the_cuts_come_from_the_other_folds():
    judged = world(240, 2, spread=0.15, cluster_size=4)
    groups = judged.cluster
    one = Side("a", judged, judged, groups=groups)
    other = Side("b", noisy(judged, 6), noisy(judged, 6), groups=groups)
    matching = match_precision([one, other], wanted=[0.8], resamples=200)
    numbers = fold_numbers(group_codes(judged, groups), judged.answerable)
    held = out_of_fold(judged, Constraints(precision=0.8), numbers, normalization=Normalization())
    sums = np.sum([slow_sums(judged, high, "unique") for high in held.highly_relevant], axis=0)
    row = matching.rows[0]
    assert matching.folded
    assert row.cut is None
    assert row.coverage.value == pytest.approx(sums[2] / sums[3])
    assert row.precision.value == pytest.approx(sums[0] / sums[1])
    assert {row.coverage.note, row.precision.note} == {"approximate"}
    assert matching.pairs[0].coverage.value < 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"query": np.arange(260)[::-1]}, "not judged on the same queries"),
        ({"cluster": np.arange(260) // 2}, "not judged on the same queries"),
    ],
)
def test_encoders_on_other_queries_are_not_compared(change, told):
    a, b = side("a"), side("b")
    b = replace(b, reported=replace(b.reported, **change))
    with pytest.raises(ConfigError, match=told):
        match_precision([a, b])


def test_one_encoder_no_rate_or_no_resample_is_refused():
    with pytest.raises(ConfigError, match="1 encoders"):
        match_precision([side("a")])
    with pytest.raises(ConfigError, match="precision: got 80"):
        match_precision([side("a"), side("b")], wanted=[80])
    with pytest.raises(ConfigError, match="0 resamples"):
        match_precision([side("a"), side("b")], resamples=0)


def test_the_pair_is_the_sign_flip_of_costs_held_out(compared):
    comparison = comparison_of(compared)
    (pair,) = comparison.pairs
    first, second = (
        cost_at(t.parts.reported, held_cuts(t.parts, t.ask, t.rule), t.ask.costs, t.rule)
        for t in compared.tuned
    )
    cluster = compared.tuned[0].parts.reported.cluster
    assert pair.found.p == pair.p_holm == sign_flip(second - first, cluster)
    assert pair.found.difference.value == pytest.approx((second - first).mean())
    assert pair.margin == pytest.approx(0.02 * first.mean())
    for tuned in compared.tuned:
        held = tuned.after["expected_cost"].value
        assert comparison.cost[tuned.encoder].value == pytest.approx(held)


def test_each_encoder_keeps_cuts_of_its_own(compared):
    one, other = (tuned.choice.distances for tuned in compared.tuned)
    assert one != other


def test_the_encoder_is_preferred_where_test_has_no_part(compared):
    comparison = comparison_of(compared)
    values = {tuned.encoder: float(tuned.choice.value) for tuned in compared.tuned}
    assert comparison.proposed == pytest.approx(values)
    assert comparison.preferred in (min(values, key=values.get), None)
    assert any(
        line.startswith("on dev alone, best expected_cost") for line in tuning_lines(compared)
    )


def test_where_they_disagree_is_what_one_answers_and_the_other_does_not(compared):
    table = disagreements(compared)
    seen = dict(zip(table["query_id"], table["right"], strict=True))
    one, other = ({q for q, right in _right_of(tuned).items() if right} for tuned in compared.tuned)
    assert seen == {
        **dict.fromkeys(one - other, "hashing"),
        **dict.fromkeys(other - one, "forgetful"),
    }
    assert len(seen) > 0
    spread = (table["cost hashing"] - table["cost forgetful"]).abs()
    assert spread.tolist() == sorted(spread, reverse=True)


def _right_of(tuned):
    """The slow way: what each query's first document is, at the chosen cuts."""
    judged, labelled = tuned.parts.reported, tuned.parts.labelled
    level = levels_at(judged, *tuned.choice.distances, tuned.rule)
    right = {}
    for i, query in enumerate(labelled.queries[position] for position in judged.query):
        first = tuned.parts.evidence.paths[judged.primary[i]] if level[i] else None
        wanted = {path for path, grade in query.grades.items() if grade >= labelled.answers_from}
        right[query.id] = first in wanted if query.answerable else first is None
    return right


def test_the_tables_hold_what_the_comparison_says(compared):
    comparison = comparison_of(compared)
    costs, pairs = cost_table(comparison), pair_table(comparison)
    assert costs["encoder"].tolist() == ["hashing", "forgetful"]
    assert costs["expected_cost"].tolist() == [rate.value for rate in comparison.cost.values()]
    assert pairs["p_holm"].tolist() == [pair.p_holm for pair in comparison.pairs]
    coverage, gaps = coverage_table(comparison), gap_table(comparison)
    assert coverage["wanted"].tolist() == [0.8, 0.8, 0.9, 0.9, 0.95, 0.95]
    assert gaps["wanted"].tolist() == [0.8, 0.9, 0.95]
    assert (coverage["coverage"] >= coverage["coverage_floor"]).all()


def test_each_encoder_is_drawn_on_an_axis_of_its_own(compared):
    figure = distances_by_encoder(compared)
    rows = len(figure.axes) // 2
    one, other = figure.axes[0], figure.axes[1]
    assert not one.get_shared_x_axes().joined(one, other)
    assert one.get_shared_x_axes().joined(one, figure.axes[2 * (rows - 1)])
    labels = [axes.get_xlabel() for axes in figure.axes[-2:]]
    assert labels == ["distance of hashing (l2)", "distance of forgetful (l2)"]


def test_the_picture_of_coverage_says_never_and_what_came_out():
    matching = match_precision([side("a"), side("b", noise=0.3)], wanted=[0.8, 0.95], resamples=50)
    rows = [row.to_json() for row in matching.rows]
    table = coverage_table(_Only(matching))
    table.loc[3, ["reached", "coverage", "precision"]] = [False, None, None]
    figure = coverage_chart(table)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[3] == "never 0.95"
    assert f"{rows[0]['precision']['value']:.3f}" in texts[0]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[0] == "precision 0.8   a"


class _Only:
    """As much of a comparison as the table of coverage reads."""

    def __init__(self, matching):
        self.matching = matching


def test_all_of_it_is_written(compared, workplace):
    written = save_comparison(compared, workplace / "out")
    assert sorted(path.name for path in written) == sorted(
        path.name for path in (workplace / "out").iterdir()
    )
    assert {path.suffix for path in written} == {".json", ".csv", ".png"}
    held = json.loads((workplace / "out" / "comparison.json").read_text())
    assert held == json.loads(json.dumps(comparison_of(compared).to_json()))


def test_the_command_prints_and_writes_the_comparison(kbeval, workplace, monkeypatch):
    known = {"hashing": HashingEncoder(), "backwards": Backwards()}
    monkeypatch.setattr("kbeval.studies.tuning.open_encoder", lambda name, threads: known[name])
    made = made_set(workplace / "made", answered=12, unanswerable=12)
    code, out, _ = kbeval("tune", made, "-e", "hashing", "-e", "backwards", "--out", "out")
    assert code in (0, 1)
    compared = out.split("== encoders, each at cuts of its own")[1]
    assert "backwards cannot be told apart from hashing" in compared
    assert "at equal precision of HIGHLY_RELEVANT alone on dev, 2000 resamples" in compared
    assert "confirming" not in compared
    names = {path.name for path in (workplace / "out").iterdir()}
    assert {"comparison.json", "pairs.csv", "coverage.png", "disagreements.csv"} <= names


def test_without_a_dev_split_folds_are_compared(workplace):
    made = made_set(workplace / "made", splits=("test",), answered=20, unanswerable=20)
    tuning = tune_set(made, encoders=[HashingEncoder(), Backwards()], resamples=50)
    comparison = comparison_of(tuning)
    assert comparison.matching.folded
    assert comparison.cost["hashing"].note == "approximate"
    for tuned in tuning.tuned:
        held = tuned.after["expected_cost"].value
        assert comparison.cost[tuned.encoder].value == pytest.approx(held)
    assert any("on the other folds, 100 resamples" in line for line in tuning_lines(tuning))


def certified(made, precision, folder):
    return tune_set(
        made,
        encoders=[HashingEncoder(), Backwards()],
        precision=precision,
        leak=0.2,
        certified=True,
        folder=folder,
        resamples=20,
    )


def test_every_encoder_gets_its_certificate_and_says_what_it_hangs_on(workplace):
    made = made_set(workplace / "made", answered=60, unanswerable=60)
    tuning = certified(made, 0.8, workplace / "out")
    for tuned in tuning.tuned:
        assert tuned.certificate.certified
        assert "for an encoder chosen without these labels (hashing, then backwards" in str(
            tuned.certificate
        )
    assert tuning.comparison.certified == ("hashing", "backwards")
    order = "the confirming labels were used for hashing, then backwards"
    assert any(order in line for line in tuning_lines(tuning))
    again = certified(made, 0.8, workplace / "out")
    assert all(tuned.certificate.certified for tuned in again.tuned)
    other = certified(made, 0.9, workplace / "out")
    assert ["they confirm once" in str(tuned.certificate) for tuned in other.tuned] == [True, True]


def test_one_encoder_alone_hangs_on_nothing_else(workplace):
    made = made_set(workplace / "made", answered=60, unanswerable=60)
    tuning = tune_set(
        made, encoders=["hashing"], precision=0.8, leak=0.2, certified=True, resamples=20
    )
    assert "chosen without" not in str(tuning.tuned[0].certificate)
    with pytest.raises(ConfigError, match="hashing alone was tuned"):
        comparison_of(tuning)


@pytest.mark.parametrize(
    ("encoders", "error", "told"),
    [
        (["hashing"], ConfigError, "a list of at least two is expected"),
        ("hashing", ConfigError, "got 'hashing'; a list of at least two"),
        (["hashing", "hashing"], ConfigError, "got hashing, hashing; each may be given once"),
        (["hashing", "nanoe6"], EncoderError, "unknown encoder 'nanoe6'"),
    ],
)
def test_encoders_that_cannot_be_compared_are_refused_before_anything_is_embedded(
    workplace, encoders, error, told
):
    with pytest.raises(error, match=told):
        compare_set(TINY, encoders=encoders)
    assert not (workplace / "cache").exists()
