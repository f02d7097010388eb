"""Agreement of two judges: weighted kappa, weighted back, with its interval and its files."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbeval.errors import DatasetError
from kbeval.evaluation.checking.agreement import (
    Judgement,
    agreement,
    grades_of,
    read_judgements,
    sample_for_second_judgement,
    weighted_kappa,
)
from kbeval.evaluation.checking.second import judging
from kbeval.evaluation.queries import LabelledSet, Query

CELLS = [(a, b) for a in range(3) for b in range(3)]


def slow_kappa(first, second, weight):
    """One pass over weighted pairs, in the words of the definition."""
    total = sum(weight)
    apart = sum(w * abs(a - b) / 2 for a, b, w in zip(first, second, weight, strict=True)) / total
    chance = 0.0
    for a, own in zip(first, weight, strict=True):
        for b, other in zip(second, weight, strict=True):
            chance += own * other * abs(a - b) / 2
    return 1 - apart / (chance / total**2)


def judged(*counts):
    """Both files from a table of counts, first score by second."""
    first, second = {}, {}
    for (a, b), count in zip(CELLS, counts, strict=True):
        for i in range(count):
            pair = (f"q{a}{b}{i}", "doc")
            first[pair], second[pair] = a, b
    return first, second


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        pytest.param([[5, 0, 0], [0, 5, 0], [0, 0, 5]], 1.0, id="all agree"),
        # rows and columns all 1/3: by chance 4/9 apart; each pair one step off: 0.5 apart
        pytest.param([[0, 3, 0], [3, 0, 0], [0, 0, 3]], 1 - (1 / 3) / (4 / 9), id="neighbours"),
        pytest.param([[0, 0, 5], [0, 0, 0], [5, 0, 0]], -1.0, id="the two ends, always swapped"),
        pytest.param([[1, 1, 1], [1, 1, 1], [1, 1, 1]], 0.0, id="chance"),
        pytest.param([[8, 2, 0], [1, 7, 2], [0, 1, 9]], 1 - 0.1 / (4 / 9), id="by hand"),
    ],
)
def test_weighted_kappa_of_tables_worked_out_by_hand(table, expected):
    assert float(weighted_kappa(table)) == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(0, 9), min_size=9, max_size=9),
    st.lists(st.integers(1, 99), min_size=3, max_size=3),
)
def test_weighted_kappa_equals_the_slow_one_and_scikit_learns(counts, pool):
    from sklearn.metrics import cohen_kappa_score

    table = np.array(counts).reshape(3, 3)
    rows = table.sum(axis=1)
    first = np.repeat([a for a, _ in CELLS], counts)
    second = np.repeat([b for _, b in CELLS], counts)
    if len(set(first) | set(second)) < 2:
        assert np.isnan(weighted_kappa(table, pool))
        return
    weight = [pool[a] / rows[a] for a in first]
    found = float(weighted_kappa(table, pool))
    assert found == pytest.approx(slow_kappa(first, second, weight), abs=1e-9)
    theirs = cohen_kappa_score(
        first, second, labels=[0, 1, 2], weights="linear", sample_weight=weight
    )
    assert found == pytest.approx(theirs, abs=1e-9)


def test_the_sample_is_weighted_back_to_the_pool():
    first, second = judged(8, 2, 0, 0, 10, 0, 0, 0, 10)
    for i in range(970):  # the pool is mostly 0, the sample has ten of each
        first["pool", f"d{i}"] = 0
    found = agreement(first, second)
    assert found.pool == (980, 10, 10)
    assert found.same == pytest.approx((980 * 0.8 + 20) / 1000)
    apart = 0.5 * 0.98 * 0.2
    columns = (0.98 * 0.8, 0.98 * 0.2 + 0.01, 0.01)
    chance = 0.98 * (0.5 * columns[1] + columns[2]) + 0.01 * 0.5 * (columns[0] + columns[2])
    chance += 0.01 * (columns[0] + 0.5 * columns[1])
    assert found.kappa.value == pytest.approx(1 - apart / chance)
    unweighted = agreement({pair: first[pair] for pair in second}, second)
    assert unweighted.kappa.value == pytest.approx(1 - (1 / 30) / (39 / 90))
    assert found.kappa.value < unweighted.kappa.value


def test_the_interval_is_seeded_holds_the_value_and_narrows_with_the_sample():
    small = agreement(*judged(16, 3, 1, 3, 14, 3, 1, 3, 16), seed=5)
    large = agreement(*(judged(*(10 * n for n in (16, 3, 1, 3, 14, 3, 1, 3, 16)))), seed=5)
    assert small.kappa == agreement(*judged(16, 3, 1, 3, 14, 3, 1, 3, 16), seed=5).kappa
    assert small.kappa != agreement(*judged(16, 3, 1, 3, 14, 3, 1, 3, 16), seed=6).kappa
    assert small.kappa.low < small.kappa.value < small.kappa.high
    widths = [found.kappa.high - found.kappa.low for found in (small, large)]
    assert 2.5 < widths[0] / widths[1] < 4.0  # about the root of 10
    assert (small.kappa.n, small.unit, small.unit_count) == (60, "pair", 60)


def test_whole_clusters_are_resampled_where_queries_have_several_pairs():
    first, second = {}, {}
    rng = np.random.default_rng(0)
    for query in range(30):
        grade, other = rng.integers(0, 3, size=2)
        for document in range(6):  # six times the same disagreement
            first[f"q{query}", f"d{document}"] = int(grade)
            second[f"q{query}", f"d{document}"] = int(other)
    by_query = agreement(first, second)
    by_pair = agreement(
        {(f"{q}{d}", d): grade for (q, d), grade in first.items()},
        {(f"{q}{d}", d): grade for (q, d), grade in second.items()},
    )
    assert (by_query.unit, by_query.unit_count) == ("query", 30)
    assert by_query.kappa.value == pytest.approx(by_pair.kappa.value)
    widths = [found.kappa.high - found.kappa.low for found in (by_query, by_pair)]
    assert widths[0] > 1.8 * widths[1]
    one = agreement(first, second, cluster={f"q{i}": f"need{i // 2}" for i in range(30)})
    assert one.unit_count == 15


@pytest.mark.parametrize(
    ("counts", "value", "note"),
    [
        ((0,) * 9, None, "no pair"),
        ((12, 0, 0, 0, 0, 0, 0, 0, 0), None, "every pair has the same score"),
        ((3, 0, 0, 0, 3, 0, 0, 0, 3), 1.0, "too few queries"),
    ],
)
def test_agreement_says_why_it_has_no_interval(counts, value, note):
    found = agreement(*judged(*counts))
    assert (found.kappa.value, found.kappa.low, found.kappa.note) == (value, None, note)
    assert not found.meets_floor


def test_a_score_that_the_sample_lacks_is_named():
    first, second = judged(10, 0, 0, 0, 10, 0, 0, 0, 0)
    first["more", "doc"] = 2
    assert "no pair of first score 2" in agreement(first, second).kappa.note


def test_a_pair_that_was_never_judged_first_is_an_error():
    with pytest.raises(DatasetError, match=r"'q9' and document 'd' are judged a second time but"):
        agreement({("q1", "d"): 1}, {("q9", "d"): 1})


def test_a_sample_has_so_many_of_each_score_and_tells_nothing_by_its_order():
    rows = [Judgement(f"q{i}", "d", min(i // 40, 2), "a", 1, i + 2) for i in range(90)]
    sample = sample_for_second_judgement(rows, per_grade=20, seed=1)
    score = grades_of(rows)
    drawn = [score[pair] for pair in sample]
    assert [drawn.count(grade) for grade in (0, 1, 2)] == [20, 20, 10]
    assert len(set(sample)) == 50
    assert drawn != sorted(drawn)
    assert len(set(drawn[:10])) > 1
    assert sample == sample_for_second_judgement(rows[::-1], per_grade=20, seed=1)
    assert sample != sample_for_second_judgement(rows, per_grade=20, seed=2)


def test_the_last_pass_of_a_pair_holds_and_the_first_is_kept():
    rows = [Judgement("q", "d", 2, "b", 2, 2), Judgement("q", "d", 1, "a", 1, 3)]
    assert grades_of(rows) == {("q", "d"): 2}
    assert grades_of(rows, which="first") == {("q", "d"): 1}


HEADER = "query-id\tcorpus-id\tscore\tjudge\tpass\n"


def test_a_file_of_judgements_is_read_with_its_lines(tmp_path):
    path = tmp_path / "judgements.tsv"
    path.write_text(HEADER + "q1\ta.md\t2\tann\t1\nq1\ta.md\t1\tann\t2\n", encoding="utf-8")
    assert read_judgements(path) == (
        Judgement("q1", "a.md", 2, "ann", 1, 2),
        Judgement("q1", "a.md", 1, "ann", 2, 3),
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("q1\ta\t3\tann\t1", "j.tsv:2: score is 3; 0, 1 and 2 are allowed"),
        ("q1\ta\tx\tann\t1", "j.tsv:2: "),
        ("q1\ta\t1\tann\t0", "j.tsv:2: pass is 0; a number from 1 is allowed"),
        ("q1\ta\t1\t \t1", "j.tsv:2: the id of the query, of the document or the judge is empty"),
        ("q1\ta\t1", "j.tsv:2: the row has 3 cells, the header 5"),
        ("q1\ta\t1\tann\t1\nq1\ta\t1\tbob\t1", "j.tsv:3: query 'q1' and document 'a' stand in"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(tmp_path, row, message):
    path = tmp_path / "j.tsv"
    path.write_text(HEADER + row + "\n", encoding="utf-8")
    with pytest.raises(DatasetError) as error:
        read_judgements(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_column_is_named(tmp_path):
    path = tmp_path / "j.tsv"
    path.write_text("query-id\tcorpus-id\tscore\nq\td\t1\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="no column judge"):
        read_judgements(path)


@pytest.fixture
def folder(tmp_path):
    """A set's folder with 36 judged pairs of 12 queries, all in qrels, and a second judgement."""
    pairs = [(f"q{i}", f"d{j}", (i + j) % 3) for i in range(12) for j in range(3)]
    (tmp_path / "qrels").mkdir()
    rows = "".join(f"{q}\t{d}\t{s}\n" for q, d, s in pairs)
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    rows = "".join(f"{q}\t{d}\t{s}\tann\t1\n" for q, d, s in pairs)
    (tmp_path / "judgements.tsv").write_text(HEADER + rows)
    rows = "".join(f"{q}\t{d}\t{s}\tbob\n" for q, d, s in pairs[::2])
    (tmp_path / "second-judgements.tsv").write_text("query-id\tcorpus-id\tscore\tjudge\n" + rows)
    return tmp_path


def labelled(folder):
    return LabelledSet("made", str(folder), tuple(Query(f"q{i}", "x") for i in range(12)))


def test_judgements_that_equal_qrels_and_agree_have_no_problem(folder):
    found = judging(labelled(folder))
    assert (found.pairs, found.judged_again, found.problems) == (36, 0, ())
    assert found.agreement.kappa.value == 1.0
    assert found.agreement.meets_floor
    assert found.agreement_before is None
    assert judging(labelled(folder / "qrels")) is None


def test_every_difference_to_qrels_is_an_error(folder):
    path = folder / "qrels/test.tsv"
    text = path.read_text().replace("q0\td0\t0\n", "").replace("q0\td1\t1\n", "q0\td1\t2\n")
    path.write_text(text + "q0\tother\t1\n")
    found = {
        check: (severity, shown)
        for check, severity, _, _, shown in judging(labelled(folder)).problems
    }
    assert found == {
        "judgement_not_in_qrels": ("error", ("q0: d0",)),
        "qrel_not_judged": ("error", ("q0: other",)),
        "judgement_not_qrel": ("error", ("q0: d1 was judged 1, qrels says 2",)),
    }


def test_labels_mended_after_the_second_judgement_do_not_raise_the_first_kappa(folder):
    path = folder / "judgements.tsv"
    lines = path.read_text().splitlines()
    first = [line.replace("\t2\tann", "\t0\tann") for line in lines[1:]]
    mended = [line.replace("ann\t1", "ann\t2") for line in lines[1:] if "\t2\tann" in line]
    path.write_text("\n".join([lines[0], *first, *mended]) + "\n")
    found = judging(labelled(folder))
    assert found.judged_again == 12
    assert found.agreement.kappa.value == 1.0
    assert found.agreement_before.kappa.value < 0.5
    assert [(check, severity) for check, severity, *_ in found.problems] == [
        ("agreement", "warning")
    ]


def test_a_pair_that_was_only_judged_a_second_time_is_a_problem(folder):
    with (folder / "second-judgements.tsv").open("a") as file:
        file.write("q0\tnobody\t1\tbob\n")
    found = judging(labelled(folder))
    assert [(p[0], p[4]) for p in found.problems] == [("second_unknown", ("q0: nobody",))]
    assert found.agreement.kappa.n == 18
