"""What a run of a sweep rests on: a finished run counts only while that is what it was."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from test_runs import write_notebook

from kbeval.studies import sweep_inputs as inputs_module
from kbeval.studies.sweep_inputs import UNSEEN, sweep_inputs
from kbeval.studies.sweep_table import SweepRun, sweep_table
from kbeval.studies.sweeps import run_sweep

TINY = Path(__file__).parent / "tiny"
DECLARED = """
k = 1
set_folder: "Path" = "tiny"
settings = "kb.yml"
further = ["tiny/qrels", "none"]
out = "."
""".strip()
COUNTS = """
import json
from pathlib import Path
with open("ran", "a") as file: file.write(f"{k}\\n")
(Path(out) / "metrics.json").write_text(json.dumps({"words": len(Path(settings).read_text())}))
""".strip()


@pytest.fixture
def notebook(tmp_path):
    """A notebook with a data set and settings beside it."""
    shutil.copytree(TINY, tmp_path / "tiny")
    (tmp_path / "kb.yml").write_text("retrieval: {limit: 3}\n")
    return write_notebook(tmp_path / "n.ipynb", DECLARED, COUNTS)


def rests_on(notebook, **row):
    (found,) = sweep_inputs(notebook, [row], apart=notebook.parent / "sweep")
    return found


def append(path, text="\n"):
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


def add(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")


def test_versions_the_notebook_and_every_file_and_folder_named_count(notebook):
    folder = notebook.parent
    versions = ["kbeval", "python", *inputs_module.ENGINES]
    found = [name for name in rests_on(notebook) if name not in versions]
    paths = [folder / "kb.yml", folder / "tiny", folder / "tiny" / "qrels"]
    assert found == ["notebook", *(f"data: {path}" for path in paths)]


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        pytest.param(lambda at: append(at / "tiny/corpus.jsonl"), ["tiny"], id="a document"),
        pytest.param(lambda at: append(at / "tiny/queries.jsonl"), ["tiny"], id="a query"),
        pytest.param(
            lambda at: append(at / "tiny/qrels/test.tsv"), ["tiny", "tiny/qrels"], id="a label"
        ),
        pytest.param(lambda at: append(at / "kb.yml"), ["kb.yml"], id="a setting"),
        pytest.param(lambda at: add(at / "tiny/more/new.md"), ["tiny"], id="a new file"),
        pytest.param(lambda at: (at / "tiny/README.md").unlink(), ["tiny"], id="a file gone"),
        pytest.param(
            lambda at: (at / "tiny/README.md").rename(at / "tiny/a.md"), ["tiny"], id="a new name"
        ),
        pytest.param(lambda at: (at / "kb.yml").unlink(), ["kb.yml"], id="what was named is gone"),
        pytest.param(lambda at: add(at / "none"), ["none"], id="what was named came up"),
        pytest.param(lambda at: add(at / "tiny/.hidden"), [], id="hidden files do not count"),
        pytest.param(lambda at: add(at / "tiny/__pycache__/x.pyc"), [], id="nor do caches"),
        pytest.param(lambda at: add(at / "other.txt"), [], id="nor what no parameter names"),
        pytest.param(lambda at: (at / "kb.yml").touch(), [], id="nor the time of a file"),
    ],
)
def test_a_change_is_seen_where_it_is(notebook, change, changed):
    before = rests_on(notebook)
    change(notebook.parent)
    now = rests_on(notebook)
    found = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    assert sorted(found) == sorted(f"data: {notebook.parent / name}" for name in changed)


def test_another_cell_counts_and_an_output_does_not(notebook):
    before = rests_on(notebook)
    content = json.loads(notebook.read_text())
    content["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x"}]
    notebook.write_text(json.dumps(content))
    assert rests_on(notebook) == before
    write_notebook(notebook, DECLARED, COUNTS + "\n")
    assert rests_on(notebook)["notebook"] != before["notebook"]


def test_another_version_of_kbeval_counts(notebook, monkeypatch):
    before = rests_on(notebook)
    monkeypatch.setattr("kbeval.__version__", "99")
    assert rests_on(notebook) == before | {"kbeval": "99"}


def test_documents_beside_a_data_set_are_followed(notebook):
    folder = notebook.parent
    append(folder / "tiny/dataset.yml", "corpus: ../docs\n")
    add(folder / "docs/a.md")
    before = rests_on(notebook)[f"data: {folder / 'docs'}"]
    append(folder / "docs/a.md")
    assert rests_on(notebook)[f"data: {folder / 'docs'}"] != before


def test_a_dataset_yml_that_cannot_be_read_is_a_file_like_others(notebook):
    (notebook.parent / "tiny/dataset.yml").write_text("{")
    before = rests_on(notebook)
    (notebook.parent / "tiny/dataset.yml").write_text("{{")
    assert rests_on(notebook) != before


def test_the_sweeps_own_folder_and_the_notebook_file_do_not_count(notebook):
    folder = notebook.parent
    before = rests_on(notebook, set_folder=str(folder))
    assert f"data: {folder}" in before
    add(folder / "sweep/runs/x/status.json")
    notebook.write_text(json.dumps(json.loads(notebook.read_text()), indent=8))
    assert rests_on(notebook, set_folder=str(folder)) == before


@pytest.mark.parametrize("text", ["", " ", "x" * 5000, "a\0b", "sqlite:///kb.db", "/dev/null"])
def test_text_that_names_no_file_is_no_input(notebook, text):
    assert rests_on(notebook, settings=text).keys() == rests_on(notebook, settings="none").keys()


def test_a_folder_too_large_to_look_through_is_said_to_be(notebook, monkeypatch, tmp_path):
    monkeypatch.setattr(inputs_module, "MOST", 3)
    name = f"data: {tmp_path / 'tiny'}"
    assert rests_on(notebook)[name] == UNSEEN
    lines = []
    monkeypatch.setattr("kbeval.studies.sweeps.run_one", lambda run, shop: None)
    run_sweep(notebook, {}, out=tmp_path / "out", warm=False, echo=lines.append)
    assert f"{name} is {UNSEEN}; a change there is not seen" in lines


def test_a_large_file_is_read_once(notebook, monkeypatch):
    monkeypatch.setattr(inputs_module, "LARGE", 0)
    read = []
    monkeypatch.setattr(inputs_module, "file_digest", lambda path: read.append(path) or "0" * 64)
    rows = [{"k": k} for k in range(5)]
    found = sweep_inputs(notebook, rows, apart=notebook.parent / "sweep")
    assert len(found) == 5
    assert read.count(notebook.parent / "kb.yml") == 1


def test_what_finished_on_other_inputs_has_no_metrics_in_the_table(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    state = {"status": "ok", "parameters": {}, "inputs": {"kbeval": "1"}, "metrics": {"hits": 3}}
    (folder / "status.json").write_text(json.dumps(state))
    now = SweepRun({}, folder, {"kbeval": "2"})
    assert now.state["changed"] == ["kbeval"]
    assert list(sweep_table([now])["status"]) == ["outdated"]
    assert "hits" not in sweep_table([now])
    assert sweep_table([SweepRun({}, folder, {"kbeval": "1"})])["hits"][0] == 3


@pytest.mark.kernel
def test_only_runs_whose_data_changed_run_again(notebook, tmp_path):
    out, lines = tmp_path / "out", []
    (tmp_path / "other.yml").write_text("retrieval: {limit: 2}\n")
    grid = {"settings": [str(tmp_path / "kb.yml"), str(tmp_path / "other.yml")]}
    assert run_sweep(notebook, grid, out=out).counts == {"ok": 2}
    assert run_sweep(notebook, grid, out=out, echo=lines.append).counts == {"ok": 2}
    assert "2 finished before, kept" in lines
    assert len((tmp_path / "ran").read_text().split()) == 2
    append(tmp_path / "kb.yml", "# changed\n")
    sweep = run_sweep(notebook, grid, out=out, echo=lines.append)
    said = f"1 finished on another state of data: {tmp_path / 'kb.yml'}; they run again"
    assert said in lines
    assert len((tmp_path / "ran").read_text().split()) == 3
    sizes = [Path(path).stat().st_size for path in grid["settings"]]
    assert list(sweep.table["words"]) == sizes
    append(tmp_path / "tiny/corpus.jsonl")
    run_sweep(notebook, grid, out=out)
    assert len((tmp_path / "ran").read_text().split()) == 5
    assert list(pd.read_csv(out / "sweep.csv")["words"]) == sizes


@pytest.mark.kernel
def test_where_no_parameter_names_data_a_kept_run_comes_with_a_warning(tmp_path):
    notebook, lines = write_notebook(tmp_path / "n.ipynb", "k = 1", "k"), []
    run_sweep(notebook, {"k": [1]}, out=tmp_path / "out", echo=lines.append)
    said = "no parameter names a file or folder: a change of data since then is not seen"
    assert said not in lines
    run_sweep(notebook, {"k": [1]}, out=tmp_path / "out", echo=lines.append)
    assert said in lines
