"""Languages, kinds and domains apart: curves, own cuts, costs before and after, the advice."""

import io
import json

import matplotlib.text
import numpy as np
import pytest

from kbeval.evaluation.tuning.cuts import choose, levels_at
from kbeval.studies.tuning import tune_set
from kbeval.studies.tuning_part_chart import parts_chart
from kbeval.studies.tuning_parts import cost_of
from kbeval.studies.tuning_views import part_curves, part_table, separate_table
from tests.test_tune import made_set


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Two languages with 120 queries of both classes each, of which zh shares fewer words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBEVAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = made_set(tmp_path_factory.mktemp("set") / "made", answered=240, unanswerable=240)
        file = made / "queries.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for i, line in enumerate(lines):
            line["metadata"]["lang"] = "zh" if i % 2 else "en"
            line["metadata"]["kind"] = "usual" if line["metadata"]["answerable"] else "far"
            line["metadata"]["domain"] = "small" if i % 48 < 2 else "large"
            if i % 2:
                line["text"] = " ".join(line["text"].split()[:4])
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        yield tune_set(made, encoders=("hashing",), resamples=20).tuned[0]


def test_a_curve_is_the_cost_of_the_part_at_each_cut(tuned):
    judged, costs = tuned.parts.chosen_on, tuned.ask.costs
    for curve in part_curves(tuned):
        names = np.array([getattr(tuned.parts.labelled.queries[i], curve.by) for i in judged.query])
        own = names == curve.part
        for at in range(0, len(curve.distance), 37):
            cut = curve.distance[at]
            for values, pair, none in (
                (curve.close, (cut, np.inf), (-np.inf, np.inf)),
                (curve.give, (-np.inf, cut), (-np.inf, -np.inf)),
            ):
                here, there = (
                    cost_of(judged, levels_at(judged, *cuts), costs)[own] for cuts in (pair, none)
                )
                assert values[at] == pytest.approx((here - there).mean())


def test_a_part_without_a_hundred_of_both_classes_is_said_to_be_small(tuned):
    found = {(curve.by, curve.part): curve for curve in part_curves(tuned)}
    assert {key: curve.note for key, curve in found.items()} == {
        ("lang", "en"): "",
        ("lang", "zh"): "",
        ("kind", "usual"): "fewer than 100 of a class",
        ("kind", "far"): "unanswerable queries alone: no look-up can know the part",
        ("domain", "large"): "",
        ("domain", "small"): "fewer than 100 of a class",
    }
    assert (found["lang", "zh"].answered, found["lang", "zh"].not_answered) == (120, 120)


def test_own_cuts_are_those_of_the_part_by_itself(tuned):
    judged = tuned.parts.chosen_on
    lang = np.array([tuned.parts.labelled.queries[i].lang for i in judged.query])
    found = {curve.part: curve.own for curve in part_curves(tuned) if curve.by == "lang"}
    for part in ("en", "zh"):
        wanted = choose(judged, tuned.ask.costs, among=lang == part)
        assert found[part].distances == wanted.distances
    assert found["en"].distances != found["zh"].distances


def test_the_table_of_parts_holds_sizes_cuts_and_costs_of_all_of_them(tuned):
    table = part_table(tuned)
    assert list(table.columns) == [
        "by", "part", "answered", "not_answered", "own_highly_relevant", "own_reference", "note",
        "queries", "before", "after",
    ]  # fmt: skip
    far = table[table["part"] == "far"].iloc[0]
    assert far["own_highly_relevant"] == "one class: no ground"
    for by in ("lang", "kind", "domain"):
        own = table[table["by"] == by]
        assert own["queries"].sum() == len(tuned.parts.reported)
        mean = (own["after"] * own["queries"]).sum() / own["queries"].sum()
        assert mean == pytest.approx(tuned.after["expected_cost"].value)


def test_the_advice_stands_beside_the_gain_out_of_fold(tuned):
    table = separate_table(tuned).set_index("by")
    assert set(table.index) == {"lang", "kind", "domain"}
    assert table.loc["kind", "advice"].startswith("not tried; ")
    assert "'far'" in table.loc["kind", "advice"]
    gains = {one.by: one for one in tuned.separate}
    assert table.loc["lang", "lower"] == pytest.approx(gains["lang"].lower, nan_ok=True)
    assert table.loc["domain", "advice"].endswith("fewer than 100 queries of a class in 'small'")


def test_the_picture_names_large_parts_and_tells_small_ones_together(tuned):
    figure = parts_chart(tuned)
    figure.savefig(io.BytesIO(), format="png")
    texts = {text.get_text() for text in figure.findobj(matplotlib.text.Text)}
    assert "en: 120 answered, 120 not" in texts
    assert any(text.startswith("pale, fewer than 100 of a class: far (0, 240)") for text in texts)
    assert any(text.startswith("kind: not tried") for text in texts)
    assert len(figure.axes) == 6
