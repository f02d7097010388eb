"""Sweeps: exact grids, checked parameters, kept runs, tables and pictures that hide nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_runs import printed, write_notebook
from typer.testing import CliRunner

from kbeval.cli import app
from kbeval.errors import ConfigError
from kbeval.retrieval.grading import grade
from kbeval.studies import sweep_run
from kbeval.studies.sweep_chart import sweep_chart
from kbeval.studies.sweep_grid import combinations, decimal_range, is_valid, parse_grid
from kbeval.studies.sweep_table import (
    SweepRun,
    metrics_in,
    run_folder,
    sweep_table,
    write_table,
)
from kbeval.studies.sweeps import run_sweep

CASES = Path(__file__).parent / "cases"
TEN = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
DECLARED = """
session = "s1"
threshold = 0.5
reference = 0.5
highly_relevant = 0.75
k = 3
dedup = True
cuts = [0.5, 1.0]
names: "list[str]" = []
settings: dict = {}
folder: "Path" = "."
anything = None
out: "Path" = "."
"""
FATE = """
import json, os, signal, time
from pathlib import Path
with open(Path(ran), "a") as file: file.write(fate + "\\n")
(Path(out) / "metrics.json").write_text(json.dumps({"hits": len(fate), "nan": float("nan")}))
if fate == "fails": raise ValueError("no luck")
if fate == "dies": os.kill(os.getpid(), signal.SIGKILL)
if fate == "hangs": time.sleep(600)
print("fate was", fate)
""".strip()


@pytest.fixture
def declared(tmp_path):
    return write_notebook(tmp_path / "declared.ipynb", DECLARED)


@pytest.fixture
def fate(tmp_path):
    told = f"ran = {str(tmp_path / 'ran')!r}"  # no parameter: a file given to it must not change
    return write_notebook(tmp_path / "fate.ipynb", "fate = 'ends'\nout = '.'", told, FATE)


def ran(tmp_path):
    path = tmp_path / "ran"
    return path.read_text().split() if path.exists() else []


def state_of(sweep, row):
    path = sweep.path / "runs" / sweep.table["folder"][row] / "status.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        pytest.param("0.5:0.95:0.05", "threshold", TEN, id="TH-01: ten decimals, stop included"),
        pytest.param("0.1,0.2", "threshold", [0.1, 0.2], id="values"),
        pytest.param("0.1,0.5:0.7:0.1", "threshold", [0.1, 0.5, 0.6, 0.7], id="values and a range"),
        pytest.param("0.5:0.9:0.3", "threshold", [0.5, 0.8], id="stop is not met"),
        pytest.param("0.9:0.7:-0.1", "threshold", [0.9, 0.8, 0.7], id="downwards"),
        pytest.param("1:9:4", "k", [1, 5, 9], id="whole numbers"),
        pytest.param("1e-1:3e-1:1e-1", "threshold", [0.1, 0.2, 0.3], id="with exponents"),
        pytest.param(
            "00123,1e5,2024_05,nan,None",
            "session",
            ["00123", "1e5", "2024_05", "nan", "None"],
            id="PM-01: text stays text",
        ),
        pytest.param("0:9:1", "session", ["0:9:1"], id="text is no range"),
        pytest.param("yes,false", "dedup", [True, False], id="flags"),
        pytest.param("0.5,1;0.7", "cuts", [[0.5, 1.0], [0.7]], id="lists are parted by ;"),
        pytest.param(
            "documents,documents horizon=5t",
            "session",
            ["documents", "documents horizon=5t"],
            id="text keeps the blanks within",
        ),
        pytest.param(" a b , c ", "session", ["a b", "c"], id="and drops those around"),
        pytest.param(
            r"a\,b,C:\dir\x,say \"c, d\",;",
            "session",
            ["a,b", r"C:\dir\x", r"say \"c", r"d\"", ";"],
            id="a backslash keeps a comma, and is text anywhere else",
        ),
        pytest.param(
            r"a b,c\,d;e\;f; g , h ",
            "names",
            [["a b", "c,d"], ["e;f"], ["g", "h"]],
            id="so in a list, a semicolon too",
        ),
        pytest.param('{"a": 1, "b": 2}', "settings", [{"a": 1, "b": 2}], id="a mapping is one"),
    ],
)
def test_values_as_typed_become_exactly_these(declared, text, name, values):
    found = parse_grid(declared, [f"{name}={text}"])
    assert found == {name: values}
    assert [type(value) for value in found[name]] == [type(value) for value in values]


def test_paths_are_relative_to_where_the_command_is_typed(declared, tmp_path):
    grid = parse_grid(declared, ["folder=a,b"], base=tmp_path)
    assert grid == {"folder": [str(tmp_path / "a"), str(tmp_path / "b")]}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("treshold=0.5", "did you mean 'threshold'"),
        ("threshold=0.5,high", r"'threshold' got 'high'; a finite number \(float\) is expected"),
        ("threshold=0.5:0.9", "'0.5:0.9'; a number or start:stop:step is expected"),
        ("threshold=0.5:0.9:0", "step 0; one that leads from 0.5 to 0.9"),
        ("threshold=0.9:0.5:0.1", "step 0.1; one that leads from 0.9 to 0.5"),
        ("threshold=0:1:0.00001", "100001 values; 10000 are allowed"),
        ("threshold=0.5,0.50", "got 0.5 twice"),
        ("threshold=0.5,,0.6", "an empty value is not expected"),
        ("k=1:2:0.5", r"'k' got '1.0'; a whole number \(int\) is expected"),
        ("anything=0:1:0.5", "declares no type"),
        ("threshold", "name=value is expected"),
    ],
)
def test_a_wrong_grid_is_refused_in_one_line(declared, entry, said):
    with pytest.raises(ConfigError, match=said) as error:
        parse_grid(declared, [entry])
    assert "\n" not in str(error.value)


def test_pm02_a_notebook_without_tag_is_refused():
    with pytest.raises(ConfigError, match="no cell is tagged parameters"):
        parse_grid(CASES / "PM-02" / "no-tag.ipynb", ["threshold=0.6"])
    with pytest.raises(ConfigError, match="treshold"):
        parse_grid(CASES / "PM-02" / "typo.ipynb", ["threshold=0.6"])


def test_th01_the_grid_counts_the_hits_that_production_counts(declared):
    content = json.loads((CASES / "TH-01" / "sweep.json").read_text(encoding="utf-8"))
    similarities = content["similarities"]
    grid = parse_grid(declared, ["threshold=0.50:0.95:0.05"])["threshold"]
    hits = [sum(similarity >= limit for similarity in similarities) for limit in grid]
    assert hits == list(range(10, 0, -1))
    levels = grade(0, 0, np.array(similarities), highly_relevant=0.75)
    assert hits[grid.index(0.75)] == int((levels >= 2).sum())


@given(st.decimals(-9, 9, places=2), st.decimals("0.01", 3, places=2), st.integers(0, 200))
def test_a_range_holds_the_decimals_nearest_floats_and_meets_its_stop(start, step, count):
    texts = decimal_range(str(start), str(start + count * step), str(step))
    assert [Decimal(text) for text in texts] == [start + i * step for i in range(count + 1)]


@given(st.lists(st.integers(1, 4), min_size=0, max_size=4))
def test_every_combination_once_the_last_changes_fastest(sizes):
    grid = {f"p{i}": list(range(size)) for i, size in enumerate(sizes)}
    found = [tuple(row.values()) for row in combinations(grid)]
    assert found == sorted(set(found))
    assert len(found) == int(np.prod(sizes, dtype=int))


def test_too_many_combinations_are_refused():
    with pytest.raises(ConfigError, match="40000 combinations; at most 10000"):
        combinations({"a": list(range(200)), "b": list(range(200))})


@pytest.mark.parametrize(
    ("row", "valid"),
    [
        ({"reference": 0.8, "highly_relevant": 0.6}, False),
        ({"reference": 0.6, "highly_relevant": 0.6}, True),
        ({"reference_threshold": 0.8, "highly_relevant_threshold": 0.6}, False),
        ({"reference": 0.9}, True),
        ({"reference": [0.9], "highly_relevant": [0.6]}, True),
    ],
)
def test_th03_reference_above_highly_relevant_is_not_valid(row, valid):
    assert is_valid(row) is valid


def test_folders_are_readable_and_never_shared(tmp_path):
    rows = [{"a": "x/y"}, {"a": "x-y"}, {"a": "x y"}, {"a": 1}, {"a": "1"}, {"a": "知识"}, {}]
    folders = [run_folder(tmp_path, row).name for row in rows]
    assert len(set(folders)) == len(rows)
    assert folders[0].startswith("a=y-")
    assert all(len(name) < 64 and "/" not in name for name in folders)
    assert run_folder(tmp_path, {"a": 1, "b": 2}).name != run_folder(tmp_path, {"a": 12}).name


def test_metrics_are_the_finite_numbers_and_the_values_of_rates(tmp_path):
    evaluation = {
        "set": "tiny",
        "semantic": True,
        "queries": 7,
        "leak_rate": {"value": 0.25, "low": 0.1, "high": 0.4, "n": 4},
        "coverage": {"PRECISE": {"value": 0.5, "n": 2}, "REFERENCE": {"value": None, "n": 0}},
        "retrieval": {"l1": {"R@1": {"value": 1.0}}},
    }
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    (tmp_path / "metrics.json").write_text('{"gain": NaN, "cost": 3, "queries": 8}')
    assert metrics_in(tmp_path) == {
        "queries": 8,
        "leak_rate": 0.25,
        "coverage[PRECISE]": 0.5,
        "cost": 3,
    }


def made(folder, parameters, **state):
    """A run whose status.json says this."""
    run = SweepRun(parameters, run_folder(folder, parameters))
    run.folder.mkdir(parents=True)
    (run.folder / "status.json").write_text(json.dumps({"parameters": parameters, **state}))
    return run


@pytest.fixture
def runs(tmp_path):
    return [
        made(tmp_path, {"k": 1}, status="ok", seconds=1.5, metrics={"hits": 3, "k": 9}),
        made(tmp_path, {"k": 2}, status="failed", error="no", metrics={"hits": 4, "k": 9}),
        made(tmp_path, {"k": 3}, status="running", metrics={"hits": 5}),
        SweepRun({"k": 4}, None),
        SweepRun({"k": 5}, tmp_path / "never"),
    ]


def test_only_a_finished_run_has_metrics_in_the_table(runs):
    table = sweep_table(runs)
    assert list(table) == ["k", "status", "seconds", "hits", "metric: k", "error", "folder"]
    assert list(table["status"]) == ["ok", "failed", "running", "not valid", "missing"]
    assert list(table["hits"].fillna(-1)) == [3, -1, -1, -1, -1]


def test_only_a_finished_run_enters_the_picture(runs):
    figure = sweep_chart(sweep_table(runs), ["k"])
    drawn = figure.axes[0].lines[0].get_ydata()
    assert drawn[0] == 3
    assert np.isnan(drawn[1:]).all()
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == ["x", "x", "not valid", "x"]
    assert sweep_chart(sweep_table(runs[1:]), ["k"]) is None


def test_two_parameters_make_a_map_with_hatched_corners(tmp_path):
    grid = {"reference": [0.5, 0.7], "highly_relevant": [0.6, 0.8]}
    runs = [
        made(tmp_path, row, status="ok", metrics={"gain": row["reference"]})
        if is_valid(row)
        else SweepRun(row, None)
        for row in combinations(grid)
    ]
    figure = sweep_chart(sweep_table(runs), list(grid))
    shown = figure.axes[0].images[0].get_array()
    assert np.array_equal(np.asarray(shown.filled(np.nan)), [[0.5, np.nan], [0.5, 0.7]], True)
    assert [patch.get_hatch() for patch in figure.axes[0].patches] == ["////"]


def test_more_parameters_part_the_panels(tmp_path):
    grid = {"a": [1, 2], "b": [1, 2, 3], "c": ["x", "y"]}
    runs = [made(tmp_path, row, status="ok", metrics={"m": 1}) for row in combinations(grid)]
    figure = sweep_chart(sweep_table(runs), list(grid))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["m\nc = x", "m\nc = y"]


def test_the_table_is_csv_and_parquet_where_pyarrow_is(tmp_path, monkeypatch):
    table = pd.DataFrame({"name": ["00123", "1e5"], "status": ["ok", "ok"]})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    lines = write_table(table, tmp_path)
    assert (tmp_path / "sweep.csv").read_text() == "name,status\n00123,ok\n1e5,ok\n"
    assert lines[1].startswith("no sweep.parquet: pyarrow is not installed")
    written = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(pd.DataFrame, "to_parquet", lambda self, path, index: written.append(path))
    write_table(table, tmp_path)
    assert written == [tmp_path / "sweep.parquet"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"nope": [1]}, "declares no parameter 'nope'"),
        ({"k": ["many"]}, "a whole number"),
        ({"k": []}, "got no value"),
        ({"out": ["x"]}, "is set by the sweep"),
    ],
)
def test_nothing_is_written_when_a_parameter_is_wrong(declared, tmp_path, values, said):
    with pytest.raises(ConfigError, match=said):
        run_sweep(declared, values, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_alone(declared, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty and no sweep"):
        run_sweep(declared, {"k": [1]}, out=out)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
    other = write_notebook(tmp_path / "other.ipynb", DECLARED)
    grid = {"reference": [0.9], "highly_relevant": [0.8]}
    run_sweep(declared, grid, out=tmp_path / "sweep")
    with pytest.raises(ConfigError, match="holds a sweep of"):
        run_sweep(other, grid, out=tmp_path / "sweep")


def test_a_grid_without_a_valid_pair_starts_no_kernel(declared, tmp_path):
    grid = {"reference": [0.9], "highly_relevant": [0.6, 0.8]}
    lines = []
    sweep = run_sweep(declared, grid, out=tmp_path / "out", echo=lines.append)
    assert sweep.counts == {"not valid": 2}
    assert not sweep.failed
    assert not (tmp_path / "out" / "runs").exists()
    assert "2 not valid (reference above highly-relevant), not run" in lines
    assert "no picture: no finished run left a metric" in lines


def test_a_run_whose_executed_notebook_is_gone_does_not_count(tmp_path):
    run = made(tmp_path, {"k": 1}, status="ok", file="n.ipynb")
    assert not run.finished
    (run.folder / "n.ipynb").write_text("{}")
    assert run.finished


@pytest.mark.kernel
@pytest.mark.slow
def test_a_failed_dead_or_endless_run_says_so_and_the_others_finish(fate, tmp_path):
    grid = {"fate": ["ends", "fails", "dies", "hangs"]}
    sweep = run_sweep(fate, grid, out=tmp_path / "out", jobs=2, timeout=8)
    assert sweep.counts == {"ok": 1, "failed": 3}
    assert sweep.failed
    for row, said in enumerate(["no luck", "the kernel died", "took longer than 8 s"], start=1):
        state = state_of(sweep, row)
        assert said in state["error"]
        assert state["metrics"] == {"hits": len(grid["fate"][row])}
        assert (sweep.path / "runs" / sweep.table["folder"][row] / "fate.ipynb").is_file()
    assert list(sweep.table["hits"].fillna(-1)) == [4, -1, -1, -1]
    assert sorted(ran(tmp_path)) == sorted(grid["fate"])
    again = run_sweep(fate, {"fate": ["ends", "fails", "more"]}, out=tmp_path / "out", jobs=1)
    assert ran(tmp_path)[4:] == ["fails", "more"], "what finished is not run again"
    assert list(again.table["status"]) == ["ok", "failed", "ok"]


@pytest.mark.kernel
@pytest.mark.slow
def test_ctrl_c_keeps_what_finished_and_leaves_no_kernel(fate, tmp_path):
    command = [sys.executable, "-m", "kbeval.cli", "sweep", str(fate), "-o", "out", "-j", "1"]
    process = subprocess.Popen(
        [*command, "-p", "fate=ends,hangs,more"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while ran(tmp_path) != ["ends", "hangs"] and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.strip().endswith("interrupted; what was finished is kept")
    table = pd.read_csv(tmp_path / "out" / "sweep.csv")
    assert list(table["status"]) == ["ok", "interrupted", "missing"]
    assert ran(tmp_path) == ["ends", "hangs"]


@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.parametrize("where", ["", "PM-04", "PM-04/notebooks"])
def test_pm04_relative_paths_hold_wherever_the_command_is_typed(tmp_path, monkeypatch, where):
    import shutil

    shutil.copytree(CASES / "PM-04", tmp_path / "PM-04")
    monkeypatch.chdir(tmp_path / where)
    notebook = tmp_path / "PM-04" / "notebooks" / "eval.ipynb"
    sweep = run_sweep(os.path.relpath(notebook), {}, out=tmp_path / "out", warm=False)
    assert sweep.counts == {"ok": 1}
    folder = tmp_path / "out" / "runs" / sweep.table["folder"][0]
    assert "2" in printed(folder / "eval.ipynb")


@pytest.mark.kernel
def test_pm03_a_notebook_of_another_machine_runs_here(tmp_path):
    foreign = write_notebook(tmp_path / "foreign.ipynb", "k = 1", "k", kernel="lab_py39")
    sweep = run_sweep(foreign, {"k": [2]}, out=tmp_path / "out")
    folder = tmp_path / "out" / "runs" / sweep.table["folder"][0]
    spec = json.loads((folder / "foreign.ipynb").read_text())["metadata"]["kernelspec"]
    assert sweep.counts == {"ok": 1}
    assert spec["display_name"].endswith(f"({Path(sys.prefix).name})")


@pytest.mark.kernel
def test_the_command_prints_json_alone_and_ends_with_1_if_a_run_failed(fate, tmp_path):
    arguments = ["sweep", str(fate), "-p", "fate=ends,fails", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert facts["counts"] == {"ok": 1, "failed": 1}
    assert [row["hits"] for row in facts["runs"]] == [4, None]
    assert "no luck" in result.stderr


def test_a_crash_of_the_machinery_is_the_runs_own_failure(fate, tmp_path, monkeypatch):
    def crash(*given, **named):
        raise KeyError("surprise")

    monkeypatch.setattr(sweep_run, "run_notebook", crash)
    sweep = run_sweep(fate, {"fate": ["ends"]}, out=tmp_path / "out", warm=False)
    assert sweep.counts == {"failed": 1}
    assert state_of(sweep, 0)["error"] == "KeyError: 'surprise'"
