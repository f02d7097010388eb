"""Charts show the numbers they are given, state n, and depend on no backend."""

import io
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from kbeval.errors import ConfigError
from kbeval.studies.charts import distance_histograms, level_matrix, rates_chart
from kbeval.studies.drawing import legible

MATRIX = pd.DataFrame(
    [[9, 1, 0], [0, 0, 0]],
    index=["PRECISE", "REFERENCE"],
    columns=["answers", "related", "nothing (far)"],
)
RATES = pd.DataFrame(
    [
        ("leak_rate", 0.25, 0.1, 0.5, 40, ""),
        ("precision[PRECISE]", None, None, None, 0, "no query was graded PRECISE"),
        ("false_closure_rate", 0.5, None, None, 6, ""),
    ],
    columns=["name", "value", "low", "high", "n", "note"],
)


def drawn(figure):
    """Every text of a figure, after drawing it with warnings as errors."""
    import matplotlib.text

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(io.BytesIO(), format="png")
    return {text.get_text() for text in figure.findobj(matplotlib.text.Text)}


def test_the_matrix_shows_counts_shares_and_n():
    texts = drawn(level_matrix(MATRIX))
    assert {"9", "90%", "1", "10%", "0", "PRECISE\nn = 10", "REFERENCE\nno query"} <= texts
    assert "What each level was worth, 10 queries" in texts


def test_the_histograms_name_the_cuts_and_count_what_cannot_be_drawn():
    figure = distance_histograms(
        [0.4, 0.5, 1.2, np.inf, np.nan],
        ["right", "right", "wrong", "unanswerable", "unanswerable"],
        cuts={"HIGHLY_RELEVANT": 0.5, "REFERENCE": np.inf},
        convention="l2",
    )
    texts = drawn(figure)
    assert {"right\nn = 2", "wrong\nn = 1", "HIGHLY_RELEVANT 0.5"} <= texts
    assert "unanswerable\nn = 2\n(2 without neighbour)" in texts
    assert not any("REFERENCE" in text for text in texts)
    counts = [sum(bar.get_height() for bar in axes.patches) for axes in figure.axes]
    assert counts == [2, 1, 0]


@pytest.mark.parametrize(("convention", "distance"), [("l2", 0.632456), ("squared_l2", 0.4)])
def test_the_upper_axis_is_the_cosine_in_either_convention(convention, distance):
    figure = distance_histograms([0.1, 1.0], ["right", "wrong"], cuts={}, convention=convention)
    drawn(figure)
    ((to_cosine, to_distance),) = [axis._functions for axis in figure.axes[0].child_axes]
    assert to_cosine(distance) == pytest.approx(0.8, abs=1e-6)
    assert to_distance(0.8) == pytest.approx(distance, abs=1e-6)


def test_rates_stand_beside_their_interval_and_n():
    texts = drawn(rates_chart(RATES))
    assert {
        "0.250 [0.100, 0.500]  n = 40",
        "no query was graded PRECISE",
        "0.500 (no interval)  n = 6",
    } <= texts


@pytest.mark.parametrize(
    ("distance", "outcome", "message"),
    [
        ([0.1], ["good"], "outcome 'good' is none of right, related, wrong, unanswerable"),
        ([0.1, 0.2], ["right"], "2 distances and 1 outcomes; as many are expected"),
    ],
)
def test_wrong_input_is_named(distance, outcome, message):
    with pytest.raises(ConfigError) as caught:
        distance_histograms(distance, outcome, cuts={}, convention="l2")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "figure",
    [
        lambda: level_matrix(MATRIX * 0),
        lambda: distance_histograms([], [], cuts={}, convention="l2"),
        lambda: distance_histograms([0.5], ["right"], cuts={"REFERENCE": 0.5}, convention="l2"),
        lambda: rates_chart(RATES[:0]),
    ],
    ids=["empty matrix", "no query", "one query on its cut", "no rate"],
)
def test_little_or_nothing_is_drawn_without_a_warning(figure):
    assert drawn(figure())


def test_text_that_no_font_can_draw_warns_no_one():
    rates = RATES.assign(name=["泄漏 $x$", "𝄞\U000f0000", "plain"])
    assert "plain" in drawn(rates_chart(rates))
    assert legible("\U000f0000") == "□"


def test_chinese_is_drawn_on_a_system_without_a_chinese_font():
    assert legible("扩容线上数据卷 nginx") == "扩容线上数据卷 nginx"


def test_a_chart_shows_itself_without_pyplot():
    code = (
        "import sys, pandas as pd\n"
        "from kbeval.studies.charts import level_matrix\n"
        "table = pd.DataFrame([[1]], index=['PRECISE'], columns=['answers'])\n"
        "print(level_matrix(table)._repr_png_()[:4], 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "b'\\x89PNG' False\n"
