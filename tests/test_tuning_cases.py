"""The cases TH-01 to TH-04 and PM-01 to PM-04 through tuning: its command and its notebooks."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from kbeval.config import Normalization
from kbeval.errors import ConfigError, DistanceError, KbevalError, RunError
from kbeval.evaluation.costs import Costs
from kbeval.evaluation.measures import levels
from kbeval.evaluation.tuning.cuts import choose
from kbeval.evaluation.tuning.export import triples
from kbeval.evaluation.tuning.grid import grid_matrices
from kbeval.evaluation.tuning.ladder import ladder, ladder_of
from kbeval.records import Level
from kbeval.studies.parameters import checked_parameters, parse_assignments, read_parameters
from kbeval.studies.runs import run_notebook
from kbeval.studies.sweep_grid import parse_grid
from kbeval.studies.tuning import tune_set
from kbeval.studies.tuning_charts import cost_surface
from kbeval.studies.tuning_tables import cost_by_thresholds
from tests.judged_world import A, N, judged_from

ROOT = Path(__file__).resolve().parents[1]
CASES = Path(__file__).parent / "cases"
TINY = Path(__file__).parent / "tiny"
THRESHOLDS, DISTANCE = (ROOT / "notebooks" / f"tune_{n}.ipynb" for n in ("thresholds", "distance"))
HASHING = ("--encoder", "hashing")
BOUNDARY = json.loads((CASES / "TH-01" / "boundary.json").read_text(encoding="utf-8"))
SWEEP = json.loads((CASES / "TH-01" / "sweep.json").read_text(encoding="utf-8"))
SPELLED = {"Infinity (float)": math.inf, "NaN (float)": math.nan}
DISTANCES = [
    (SPELLED.get(row["l2"], row["l2"]) if isinstance(row["l2"], str) else row["l2"], row["expect"])
    for row in json.loads((CASES / "TH-02" / "distances.json").read_text(encoding="utf-8"))
]


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder to stand in, and a cache of its own."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))
    return here


def one_line(err):
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1, err
    return err.strip()


# ------------------------------------------------------------------ TH-01


@pytest.mark.parametrize("row", BOUNDARY, ids=lambda row: f"TH-01: {row['l2']} {row['dtype']}")
def test_th01_the_surface_counts_a_distance_on_the_threshold_as_the_tool_grades_it(row):
    judged = judged_from(np.array([row["l2"]], dtype=row["dtype"]), [A])
    wanted = Level[row["grade"] or "NOT_FOUND"]
    (matrix,) = grid_matrices(ladder(judged), [(2.0, row["hi"], row["ref"])])
    assert matrix.sum(axis=1).tolist() == [int(level == wanted) for level in Level]
    settings = Normalization(highly_relevant_threshold=row["hi"], reference_threshold=row["ref"])
    assert levels(judged, settings).tolist() == [wanted]


@pytest.mark.parametrize(
    ("threshold", "hits"),
    list(zip(SWEEP["similarities"], SWEEP["hits_at_or_above"], strict=True)),
    ids=lambda value: f"TH-01: {value}",
)
def test_th01_a_cut_chosen_on_the_grid_is_written_so_that_it_keeps_its_hits(threshold, hits):
    similarity = np.array(SWEEP["similarities"])
    judged = judged_from(np.round((1 - similarity) * 2, 6), np.where(similarity >= threshold, A, N))
    choice = choose(judged, Costs())
    for triple in triples(judged, choice, Normalization()):
        if triple.equivalent:
            graded = levels(judged, triple.normalization(Normalization()))
            assert int((graded >= Level.HIGHLY_RELEVANT).sum()) == hits
    assert triples(judged, choice, Normalization())[0].equivalent


# ------------------------------------------------------------------ TH-02


@pytest.mark.parametrize(
    ("distance", "expect"), DISTANCES, ids=[f"TH-02: {distance!r}" for distance, _ in DISTANCES]
)
def test_th02_what_is_no_distance_never_reaches_a_cut(distance, expect):
    if expect == "error":
        with pytest.raises(DistanceError, match=re.escape(str(distance))):
            ladder_of([distance], [A])
        return
    if expect == "no neighbour":  # the index turns its padding into this one
        judged = judged_from([math.inf], [A])
        everything = Normalization(highly_relevant_threshold=0.0, reference_threshold=0.0)
        assert levels(judged, everything).tolist() == [Level.NOT_FOUND]
        assert ladder(judged).accepted.tolist() == [-math.inf]
        return
    judged = judged_from([max(distance, 0.0)], [A])
    told = choose(judged, Costs()).to_json(2.0)["cuts"]["HIGHLY_RELEVANT"]
    assert ladder_of([distance], [A]).accepted[1] == max(distance, 0.0)
    assert told["plateau"]["accepted"] == max(distance, 0.0)
    settings = Normalization(highly_relevant_threshold=expect, reference_threshold=0.0)
    assert levels(judged, settings).tolist() == [Level.HIGHLY_RELEVANT]


class BrokenEncoder:
    """Gives every passage, or every query, a vector that is no number."""

    name, window, dimension, fingerprint = "broken", 512, 2, "broken-2"

    def __init__(self, kind):
        self.kind = kind

    def encode(self, texts, kind):
        first = math.nan if kind == self.kind else 1.0
        return np.array([[first, 0.0]] * len(texts), np.float32)

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]


@pytest.mark.parametrize("kind", ["passage", "query"])
def test_th02_vectors_that_are_no_numbers_end_a_tuning_in_one_line(kind):
    with pytest.raises(KbevalError, match=r"NaN|nan|finite") as caught:
        tune_set(TINY, encoders=(BrokenEncoder(kind),), resamples=5)
    assert len(str(caught.value).splitlines()) == 1


# ------------------------------------------------------------------ TH-03


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("max-zero", "retrieval.normalization.max-l2-distance: got 0"),
        ("max-negative", "retrieval.normalization.max-l2-distance: got -1"),
        ("max-text", "retrieval.normalization.max-l2-distance: got 'two'"),
        ("percent", "retrieval.normalization.highly-relevant-threshold: got 75"),
        ("swapped", "reference-threshold 0.8 is above highly-relevant-threshold 0.6"),
        ("misspelt", "did you mean 'highly-relevant-threshold'?"),
    ],
)
def test_th03_bad_settings_are_refused_by_tune_and_by_a_notebook(kbeval, workplace, name, told):
    file = CASES / "TH-03" / f"{name}.yml"
    code, out, err = kbeval("tune", TINY, *HASHING, "--settings", file)
    assert (code, out) == (2, "")
    assert told in one_line(err)
    assert not list(workplace.iterdir())
    with pytest.raises(ConfigError, match=re.escape(told)):
        tune_set(TINY, encoders=("hashing",), settings=yaml.safe_load(file.read_text()))


def test_th03_a_valid_maximum_changes_what_the_present_settings_give(kbeval):
    found = []
    for settings in ((), ("--settings", CASES / "TH-03" / "valid.yml")):
        out = kbeval("tune", TINY, *HASHING, *settings, "--json")[1]
        found.append(json.loads(out))
    limits = [one["settings"]["retrieval"]["normalization"]["max-l2-distance"] for one in found]
    assert limits == [2.0, 1.5]
    assert levels(judged_from([0.75], [A]), Normalization(max_l2_distance=1.5)).tolist() == [
        Level.REFERENCE  # similarity 0.5
    ]
    before = [one["encoders"]["hashing"]["before"]["found_rate"]["value"] for one in found]
    assert before[1] <= before[0]


def test_th03_pairs_that_cross_are_shown_as_not_valid_and_not_computed():
    tuned = tune_set(TINY, encoders=("hashing",), resamples=5).tuned[0]
    thresholds = [0.0, 0.5, 1.0]
    table = cost_by_thresholds(tuned.parts.chosen_on, 2.0, thresholds)
    crossed = [[reference > high for high in thresholds] for reference in thresholds]
    assert table.isna().to_numpy().tolist() == crossed
    import matplotlib.text

    texts = [t.get_text() for t in cost_surface(table, tuned).findobj(matplotlib.text.Text)]
    assert "not valid:\nreference above\nhighly-relevant" in texts


# ------------------------------------------------------------------ TH-04


def notes(folder):
    """The documents that TH-04 names, each in the words of its query."""
    said = {
        "scale": "expand cluster nodes",
        "restore": "restore backup files",
        "limits": "rate limit windows",
        "auth": "sign request bodies",
        "errors": "error 1007 happens",
    }
    (folder / "docs").mkdir(parents=True)
    for name, text in said.items():
        (folder / "docs" / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")
    return folder


def test_th04_without_a_query_without_an_answer_no_lower_limit_is_recommended(kbeval, workplace):
    corpus = notes(workplace / "kb")
    code, out, err = kbeval(
        "tune", CASES / "TH-04" / "all-positive.csv", "--corpus", corpus, *HASHING, "--out", "out"
    )
    assert "warn" not in err.lower()
    assert "no query without an answer in this set; a lower limit cannot be chosen" in out
    assert "REFERENCE: no lower limit is supported by these data" in out
    assert not re.search(r"\bnan\b", out, re.IGNORECASE)
    assert "cannot be held out: 5 groups, at least 10 are needed" in out
    told = json.loads((workplace / "out" / "tuning.json").read_text())["encoders"]["hashing"]
    plateau = told["choice"]["cuts"]["REFERENCE"]["plateau"]
    assert plateau["refused"] is None  # from the farthest answer on
    assert plateau["accepted"] == told["choice"]["cuts"]["HIGHLY_RELEVANT"]["last_accepted"]
    assert code == 0
    pasted = (workplace / "out" / "recommended.yml").read_text()
    assert "# reference-threshold stays 0.5: no query without an answer" in pasted
    assert "reference-threshold" not in yaml.safe_load(pasted)["retrieval"]["normalization"]


def test_th04_without_any_answer_precision_and_recall_are_not_defined(kbeval, workplace):
    corpus = notes(workplace / "kb")
    code, out, err = kbeval(
        "tune", CASES / "TH-04" / "all-negative.csv", "--corpus", corpus, *HASHING, "--out", "out"
    )
    assert "warn" not in err.lower()
    assert "recall and precision are not defined (0 relevant)" in out
    assert not re.search(r"\bnan\b", out, re.IGNORECASE)
    told = json.loads((workplace / "out" / "tuning.json").read_text())["encoders"]["hashing"]
    assert told["before"]["found_rate"]["value"] is None
    assert told["before"]["found_rate"]["note"] == "no answerable query"
    assert told["choice"]["cuts"]["REFERENCE"]["note"] == "this level is not used"
    assert code == 0


# ------------------------------------------------------------------ PM-01


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("split=00123", "00123"),
        ("split=1e5", "1e5"),
        ("encoder=2024_05", "2024_05"),
        ("encoder=nan", "nan"),
        ("split=None", "None"),
        ("max_l2_distances=0.75", [0.75]),
        ("steps=5", 5),
    ],
)
def test_pm01_what_is_typed_arrives_in_a_tuning_notebook_as_declared(line, value):
    assert line.partition("=")[2] in {
        typed.partition("=")[2] for typed in (CASES / "PM-01" / "cli.txt").read_text().splitlines()
    }
    ((_, found),) = checked_parameters(DISTANCE, parse_assignments([line])).items()
    assert (found, type(found)) == (value, type(value))
    ((_, swept),) = parse_grid(DISTANCE, [line]).items()
    assert swept == [value]


def test_pm01_an_empty_file_means_no_parameters_and_numpy_numbers_are_taken():
    empty = read_parameters(CASES / "PM-01" / "empty.yaml")
    assert checked_parameters(THRESHOLDS, empty) == {}
    given = {"steps": np.int64(7), "split": np.str_("dev")}
    assert checked_parameters(THRESHOLDS, given) == {"steps": 7, "split": "dev"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"steps": "many"}, "'steps' got 'many'; a whole number (int) is expected"),
        ({"steps": True}, "'steps' got True"),
        ({"settings": "none"}, "'settings' got 'none'"),
        ({"max_l2_distances": ["far"]}, "'max_l2_distances' got"),
    ],
)
def test_pm01_a_value_of_another_type_is_refused_before_a_kernel(workplace, given, told):
    with pytest.raises(ConfigError) as caught:
        run_notebook(DISTANCE, workplace / "out", given)
    assert told in str(caught.value)
    assert not (workplace / "out").exists()


# ------------------------------------------------------------------ PM-02


@pytest.mark.parametrize("notebook", [THRESHOLDS, DISTANCE], ids=lambda path: path.stem)
def test_pm02_a_parameter_the_notebook_has_not_is_refused_before_a_kernel(
    kbeval, workplace, notebook
):
    with pytest.raises(ConfigError, match=r"no parameter 'treshold'.*it declares set_folder"):
        run_notebook(notebook, workplace / "out", {"treshold": 0.6})
    code, _, err = kbeval("sweep", notebook, "-p", "stepps=5", "--out", "out")
    assert code == 2
    assert "did you mean 'steps'?" in one_line(err)
    assert not (workplace / "out").exists()


def test_pm02_a_notebook_without_a_tagged_cell_is_refused_by_the_sweep(kbeval, workplace):
    code, _, err = kbeval("sweep", CASES / "PM-02" / "no-tag.ipynb", "-p", "threshold=0.6")
    assert code == 2
    assert "no cell is tagged parameters" in one_line(err)
    assert not list(workplace.iterdir())


# ------------------------------------------------------------------ PM-02 to PM-04, in a kernel


@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.parametrize("where", ["", "sets", "sets/notebooks"])
def test_pm04_a_tuning_notebook_reads_the_same_set_wherever_it_is_started(
    workplace, monkeypatch, where
):
    """PM-02: the steps recorded are those used; PM-03: the kernel is that of this interpreter."""
    shutil.copytree(TINY, workplace / "sets" / "tiny")
    (workplace / "sets" / "notebooks").mkdir()
    (workplace / "given.yml").write_text("set_folder: sets/tiny\nencoder: hashing\nsteps: 4\n")
    given = read_parameters(workplace / "given.yml")
    values = checked_parameters(DISTANCE, given, base=workplace)
    monkeypatch.chdir(workplace / where)
    executed = run_notebook(DISTANCE, workplace / "out", {**values, "out": str(workplace / "out")})
    content = json.loads(executed.read_text(encoding="utf-8"))
    assert content["metadata"]["papermill"]["parameters"]["steps"] == 4
    rows = (workplace / "out" / "cost_by_max.csv").read_text().splitlines()[1:]
    assert [float(row.partition(",")[0]) for row in rows] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    outputs = [out for cell in content["cells"] for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out.get("name") == "stderr"]  # no progress bars


@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.parametrize("notebook", [THRESHOLDS, DISTANCE], ids=lambda path: path.stem)
def test_pm04_a_set_without_queries_ends_a_tuning_notebook_as_failed(workplace, notebook):
    shutil.copytree(TINY, workplace / "none")
    (workplace / "none" / "queries.jsonl").write_text("")
    given = {"set_folder": str(workplace / "none"), "encoder": "hashing"}
    with pytest.raises(RunError, match="0 queries in"):
        run_notebook(notebook, workplace / "out", {**given, "out": str(workplace / "kept")})
    assert not (workplace / "kept").exists()


# ------------------------------------------------------------------ bad input


def emptied(folder):
    """A set whose queries have no labels."""
    shutil.copytree(TINY, folder)
    for file in (folder / "qrels").iterdir():
        file.write_text("query-id\tcorpus-id\tscore\n")
    lines = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    for line in lines:
        line["metadata"].pop("answerable", None)
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def unread(folder):
    shutil.copytree(TINY, folder)
    (folder / "queries.jsonl").write_text("")
    return folder


@pytest.mark.parametrize(
    ("made", "told"),
    [(emptied, "0 queries in"), (unread, "0 queries in")],
    ids=["no labels", "no queries"],
)
def test_a_set_that_cannot_be_tuned_is_one_line_and_nothing_is_written_over(
    kbeval, workplace, made, told
):
    folder = made(workplace / "set")
    (workplace / "out").mkdir()
    (workplace / "out" / "recommended.yml").write_text("mine\n")
    code, out, err = kbeval("tune", folder, *HASHING, "--out", "out")
    assert (code, out) == (2, "")
    assert told in one_line(err)
    assert [path.read_text() for path in (workplace / "out").iterdir()] == ["mine\n"]
