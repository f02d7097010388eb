"""Notebook parameters, the runner and studies: what arrives, what is refused, what is kept."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.errors import ConfigError, RunError
from kbeval.studies.manifest import merge_inputs, write_manifest
from kbeval.studies.parameters import (
    checked_parameters,
    notebook_parameters,
    parse_assignments,
    read_parameters,
)
from kbeval.studies.runs import latest_run, load_study, read_run, run_notebook, run_study
from kbeval.studies.typed import kind_of, typed

CASES = Path(__file__).parent / "cases"
DECLARED = """
session = "s1"  # which session to replay
query_set: str | None = None
threshold = 0.5
max_l2_distance: float | None = 2.0
run_date = "2024-01-01"
k = 3
dedup = True
cuts = [0.5, 1]
names: list[str] = []
settings: dict = {}
folder: "Path" = "../data"
anything = None
"""


def write_notebook(path, *sources, tags=("parameters",), kernel="python3"):
    """A notebook of code cells, the first with the tags."""
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"c{i}",
            "metadata": {"tags": list(tags)} if i == 0 and tags else {},
            "outputs": [],
            "source": source,
        }
        for i, source in enumerate(sources)
    ]
    spec = {"name": kernel, "display_name": kernel, "language": "python"}
    content = {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def printed(path):
    """What the cells of an executed notebook wrote, stdout and stderr."""
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join("".join(output.get("text", "")) for output in outputs)


@pytest.fixture
def declared(tmp_path):
    return write_notebook(tmp_path / "declared.ipynb", DECLARED)


def test_parameters_are_read_with_type_default_and_help(declared):
    found = notebook_parameters(declared)
    assert {name: (p.type, p.default) for name, p in found.items()} == {
        "session": ("str", "s1"),
        "query_set": ("str", None),
        "threshold": ("float", 0.5),
        "max_l2_distance": ("float", 2.0),
        "run_date": ("str", "2024-01-01"),
        "k": ("int", 3),
        "dedup": ("bool", True),
        "cuts": ("list[float]", [0.5, 1]),
        "names": ("list[str]", []),
        "settings": ("dict", {}),
        "folder": ("Path", "../data"),
        "anything": ("any", None),
    }
    assert (found["session"].help, found["session"].line) == ("which session to replay", 2)


@pytest.mark.parametrize(
    ("line", "expected"),
    list(
        zip(
            (CASES / "PM-01" / "cli.txt").read_text(encoding="utf-8").splitlines(),
            ["00123", "1e5", "2024_05", "nan", "None", 0.75, 5, False],
            strict=True,
        )
    ),
)
def test_values_typed_on_the_command_line_arrive_as_declared(declared, line, expected):
    ((_, value),) = checked_parameters(declared, parse_assignments([line])).items()
    assert value == expected
    assert type(value) is type(expected)


def test_values_in_a_yml_arrive_as_declared(declared):
    given = read_parameters(CASES / "PM-01" / "params.yaml")
    assert checked_parameters(declared, given) == {
        "session": "00123",
        "threshold": 0.75,
        "max_l2_distance": None,
        "run_date": "2024-01-02",
        "query_set": "no",
        "k": 5,
    }


def test_an_empty_yml_gives_no_parameters(declared):
    assert checked_parameters(declared, read_parameters(CASES / "PM-01" / "empty.yaml")) == {}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        pytest.param("k", np.int32(7), 7, id="numpy integer"),
        pytest.param("dedup", np.bool_(False), False, id="numpy flag"),
        pytest.param("threshold", np.float64(0.5), 0.5, id="numpy float"),
        pytest.param("cuts", np.array([1, 2]), [1.0, 2.0], id="numpy array"),
        pytest.param("cuts", (1, 2.5), [1.0, 2.5], id="a tuple is no text"),
        pytest.param("cuts", "0.5,1e1", [0.5, 10.0], id="comma list"),
        pytest.param("names", "no,00123", ["no", "00123"], id="comma list of text"),
        pytest.param("threshold", 1, 1.0, id="whole number for a float"),
        pytest.param("k", 5.0, 5, id="float without fraction for a count"),
        pytest.param("session", 12, "12", id="number for text"),
        pytest.param("settings", '{"a": [1, null]}', {"a": [1, None]}, id="JSON for a mapping"),
        pytest.param("settings", {"a": np.float32(0.5)}, {"a": 0.5}, id="numpy inside a mapping"),
        pytest.param("k", None, None, id="null stays null"),
        pytest.param("anything", "1e5", "1e5", id="undeclared type: text stays text"),
    ],
)
def test_values_are_converted_without_loss(declared, name, value, expected):
    got = checked_parameters(declared, {name: value})[name]
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("threshold", "high", "'high'; a finite number (float) is expected"),
        ("threshold", "nan", "'nan'; a finite number (float) is expected"),
        ("threshold", "1_0", "'1_0'; a finite number (float) is expected"),
        ("threshold", True, "True; a finite number (float) is expected"),
        ("k", "2024_05", "'2024_05'; a whole number (int) is expected"),
        ("k", 2.5, "2.5; a whole number (int) is expected"),
        ("dedup", "maybe", "'maybe'; true or false (bool) is expected"),
        ("session", 0.5, "0.5; text (str) is expected"),
        ("session", ["a"], "['a']; text (str) is expected"),
        ("cuts", "0.5,x", "'0.5,x'; a finite number (float) is expected"),
        ("cuts", 3, "3; a list of float values is expected"),
        ("settings", "[1]", "'[1]'; a mapping (dict), on the command line as JSON is expected"),
    ],
)
def test_a_value_of_another_type_is_refused_with_name_value_and_type(
    declared, name, value, message
):
    with pytest.raises(ConfigError) as caught:
        checked_parameters(declared, {name: value})
    assert str(caught.value) == f"{declared}: parameter {name!r} got {message}"


@given(st.text())
def test_text_for_a_text_parameter_is_never_changed(text):
    assert typed(text, "str") == text


@given(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.lists(st.integers(), min_size=1),
    )
)
def test_a_value_of_the_declared_kind_is_kept(value):
    assert typed(value, kind_of(value)) == value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a"], "parameter 'a' is not understood; name=value is expected"),
        (["a b=1"], "parameter 'a b=1' is not understood; name=value is expected"),
        (["a=1", "a=2"], "parameter 'a' is given twice, as '1' and '2'; once is allowed"),
    ],
)
def test_a_slip_on_the_command_line_is_named(given, message):
    with pytest.raises(ConfigError) as caught:
        parse_assignments(given)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import os", "line 1 of the cell tagged parameters is 'import os'; only name = literal"),
        ("a = 1\nb = a", "line 2 of the cell tagged parameters is 'b = a'; only name = literal"),
        ("%magic", "line 1 of the cell tagged parameters is not Python"),
        ("a: complex = 1", "parameter 'a' is annotated complex; allowed are str, int"),
    ],
)
def test_anything_but_literals_in_the_tagged_cell_is_refused(tmp_path, source, message):
    notebook = write_notebook(tmp_path / "n.ipynb", source)
    with pytest.raises(ConfigError) as caught:
        notebook_parameters(notebook)
    assert str(caught.value).startswith(f"{notebook}: {message}")


def test_a_path_is_absolute_against_where_it_was_written(declared, tmp_path):
    given = {"folder": "sets/a"}
    assert checked_parameters(declared, given, base=tmp_path) == {
        "folder": str((tmp_path / "sets" / "a").resolve())
    }
    assert checked_parameters(declared, {"folder": ""}) == {"folder": ""}


def test_a_parameter_that_a_later_cell_fixes_again_is_refused(tmp_path):
    notebook = write_notebook(tmp_path / "n.ipynb", "k = 1\nm = 2", "m = k", "k = 3")
    assert checked_parameters(notebook, {"m": 5}) == {"m": 5}
    with pytest.raises(ConfigError, match="cell 3 sets parameter 'k' to a fixed value again"):
        checked_parameters(notebook, {"k": 5})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-tag", "no-tag.ipynb: no cell is tagged parameters; one code cell must be"),
        (
            "typo",
            "typo.ipynb declares no parameter 'threshold'; did you mean 'treshold'? "
            "it declares treshold",
        ),
    ],
)
def test_a_parameter_the_notebook_would_not_use_is_refused_before_a_kernel(tmp_path, name, message):
    with pytest.raises(ConfigError) as caught:
        run_notebook(CASES / "PM-02" / f"{name}.ipynb", tmp_path / "out", {"threshold": 0.6})
    assert str(caught.value).endswith(message)
    assert not (tmp_path / "out").exists()


def test_two_tagged_cells_and_files_that_are_no_notebook_are_refused(tmp_path):
    twice = json.loads((CASES / "PM-02" / "typo.ipynb").read_text(encoding="utf-8"))
    twice["cells"].append(twice["cells"][0])
    (tmp_path / "twice.ipynb").write_text(json.dumps(twice), encoding="utf-8")
    (tmp_path / "text.ipynb").write_text("a = 1", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"2 cells are tagged parameters; one is allowed$"):
        checked_parameters(tmp_path / "twice.ipynb", {})
    with pytest.raises(ConfigError, match=r"text\.ipynb: not a notebook"):
        checked_parameters(tmp_path / "text.ipynb", {})
    with pytest.raises(ConfigError, match=r"none\.ipynb: no such notebook$"):
        checked_parameters(tmp_path / "none.ipynb", {})


@pytest.mark.kernel
def test_the_value_recorded_is_the_value_used(tmp_path):
    text = 'say "{a}" \\ 中 ☃ \n'
    notebook = write_notebook(
        tmp_path / "{odd}.ipynb",
        "x = 1.5\nname = ''\nmay: int | None = 3\nm: dict = {}",
        "print(repr([x, name, may, m]))",
    )
    given = {"x": np.float64(0.1), "name": text, "may": None, "m": {"a": (1, True)}}
    executed = run_notebook(notebook, tmp_path / "out", given)
    values = {"x": 0.1, "name": text, "may": None, "m": {"a": [1, True]}}
    assert printed(executed) == repr(list(values.values())) + "\n"
    recorded = json.loads(executed.read_text(encoding="utf-8"))["metadata"]["papermill"]
    assert recorded["parameters"] == values
    again = run_notebook(executed, tmp_path / "again", {"x": 0.2})  # nothing of the first is left
    assert printed(again) == repr([0.2, "", 3, {}]) + "\n"


@pytest.mark.kernel
@pytest.mark.parametrize("name", ["foreign", "no-kernel"])
def test_a_notebook_of_another_machine_runs_with_our_interpreter(tmp_path, name):
    executed = run_notebook(CASES / "PM-03" / f"{name}.ipynb", tmp_path)
    said = {"foreign": str(sys.version_info[:2]), "no-kernel": "1"}[name]
    assert printed(executed) == said + "\n"
    metadata = json.loads(executed.read_text(encoding="utf-8"))["metadata"]
    version = ".".join(map(str, sys.version_info[:3]))
    assert metadata["language_info"]["version"] == version
    assert metadata["kernelspec"]["display_name"] == f"Python {version} ({Path(sys.prefix).name})"


def test_an_unknown_kernel_is_refused_with_those_present(tmp_path):
    with pytest.raises(RunError, match=r"no kernel is named 'lab_py39'; present are .*python3"):
        run_notebook(CASES / "PM-03" / "foreign.ipynb", tmp_path, kernel="lab_py39")


@pytest.mark.kernel
@pytest.mark.parametrize("place", ["..", ".", "notebooks"])
def test_relative_paths_do_not_depend_on_where_the_command_was_typed(tmp_path, monkeypatch, place):
    monkeypatch.chdir(CASES / "PM-04" / place)
    notebook = CASES / "PM-04" / "notebooks" / "eval.ipynb"
    executed = run_notebook(os.path.relpath(notebook), tmp_path)
    assert printed(executed) == "2\n"
    assert Path.cwd() == (CASES / "PM-04" / place).resolve()


@pytest.mark.kernel
def test_progress_bars_leave_no_lines_in_the_notebook(tmp_path):
    bars = "from tqdm.auto import tqdm\nfor i in tqdm(range(9)): pass\nprint('done')"
    rich = "from rich.progress import track\nfor i in track(range(9)): pass"
    notebook = write_notebook(tmp_path / "n.ipynb", bars, rich, tags=())
    assert printed(run_notebook(notebook, tmp_path / "out")) == "done\n"


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("source", "timeout", "message"),
    [
        ("raise ValueError('one\\ntwo')", None, r"cell \[2\]: ValueError: one two"),
        ("import sys; sys.exit(0)", None, "the run ended before cell 3 of 3"),
        ("import os; os._exit(3)", None, r"cell \[2\]: the kernel died: .*"),
        ("import time; time.sleep(60)", 1, r"cell \[2\] took longer than 1 s"),
    ],
)
def test_a_run_that_does_not_finish_fails_in_one_line_and_leaves_its_notebook(
    tmp_path, source, timeout, message
):
    notebook = write_notebook(
        tmp_path / "n.ipynb", "print('begun')", source, "print('end')", tags=()
    )
    with pytest.raises(RunError, match=rf"^\S*n\.ipynb: {message}$"):
        run_notebook(notebook, tmp_path / "out", timeout=timeout)
    assert "begun" in printed(tmp_path / "out" / "n.ipynb")


def write_study(folder, text, *, source="print(out, split)"):
    write_notebook(
        folder / "notebooks" / "n.ipynb", "set_folder = ''\nout = ''\nsplit = 'x'", source
    )
    (folder / "set").mkdir(exist_ok=True)
    study = folder / "studies" / "s.yml"
    study.parent.mkdir(exist_ok=True)
    study.write_text(text, encoding="utf-8")
    return study


GOOD = "name: first\nset: ../set\nsplit: 012\nnotebooks: [../notebooks/n.ipynb]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sets: a", "unknown key 'sets'; did you mean 'set'? known keys are name, set, encoder"),
        ("name: a", "notebooks: got None; a list of them is expected"),
        ("name: a/b\nnotebooks: [x]", "name 'a/b' cannot name a folder"),
        (GOOD + "split: dev", "5: key 'split' stands twice; once is allowed"),
        (GOOD + "encoder: e", "encoder is set, but none of the notebooks declares a parameter"),
        (GOOD.replace("../set", "../no"), "set: nothing is at"),
        (
            GOOD + "settings: {retrieval: {limt: 2}}",
            "settings: retrieval: unknown key 'limt'; did you mean 'limit'?",
        ),
        (
            GOOD.replace("[../notebooks/n.ipynb]", "[{notebook: ../notebooks/n.ipynb, parms: {}}]"),
            "notebooks[1]: unknown key 'parms'; did you mean 'parameters'?",
        ),
        (GOOD.replace("n.ipynb", "m.ipynb"), "no notebook is at"),
        ("[1]", "a mapping is expected, found list"),
        ("a: &a [*a]", "a YAML alias contains itself"),
    ],
)
def test_a_slip_in_a_study_is_named_before_anything_is_written(tmp_path, text, message):
    study = write_study(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        run_study(study)
    place, _, said = str(caught.value).partition(".yml:")
    assert place == str(study.with_suffix(""))
    assert said.strip().startswith(message)
    assert not (tmp_path / "results").exists()


@pytest.mark.kernel
def test_a_study_leaves_a_folder_with_manifest_copy_notebooks_and_index(tmp_path):
    source = (
        "import json, pathlib\n"
        "facts = dict(set='a', other=1, headline='All true.')\n"
        "pathlib.Path(out, 'evaluation.json').write_text(json.dumps(facts))\n"
        "print(split)"
    )
    study = write_study(tmp_path, GOOD, source=source)
    said = []
    run = run_study(study, echo=said.append)
    assert run.path.parent == tmp_path / "results" / "first"
    assert run.status == "ok"
    assert {path.name for path in run.path.iterdir()} == {
        "manifest.json",
        "study.yml",
        "n.ipynb",
        "evaluation.json",
        "index.md",
    }
    assert (run.path / "study.yml").read_text(encoding="utf-8") == GOOD
    (entry,) = run.manifest["notebooks"]
    assert entry["parameters"] == {
        "set_folder": str(tmp_path / "set"),
        "split": "012",
        "out": str(run.path),
    }
    assert (entry["status"], entry["error"]) == ("ok", None)
    assert run.manifest["inputs"] == {"set": "a"}
    assert run.manifest["study_fingerprint"] == load_study(study).fingerprint
    assert run.manifest["started"] < run.manifest["ended"]
    assert printed(run.notebooks[0]) == "012\n"
    page = (run.path / "index.md").read_text()
    assert page.startswith("# first: ok\n\n## Are the verdicts and hints true?\n\nAll true.\n")
    assert "- [evaluation.json](<evaluation.json>)" in page
    assert said[-3:-1] == ["\nAre the verdicts and hints true?\nAll true.", ""]
    assert len(said) == 5
    assert said[-1] == f"report: {run.path / 'index.md'}"

    with pytest.raises(RunError, match=r"holds a run already; give a new folder, or force$"):
        run_study(study, out=run.path)
    assert run_study(study, out=run.path, force=True).status == "ok"
    assert latest_run(study).path == run.path
    with pytest.raises(RunError, match=r"is not empty and no run of kbeval; give a new folder$"):
        run_study(study, out=tmp_path / "notebooks", force=True)


@pytest.mark.kernel
def test_a_failing_notebook_fails_the_study_and_the_others_still_run(tmp_path):
    text = (
        "name: two\nnotebooks:\n"
        "  - {notebook: ../notebooks/n.ipynb, parameters: {split: bad}}\n"
        "  - {notebook: ../notebooks/n.ipynb, parameters: {split: good}}\n"
    )
    study = write_study(tmp_path, text, source="assert split == 'good', split")
    with pytest.raises(RunError, match=r"^1 of 2 notebooks failed: .*AssertionError: bad$"):
        run_study(study)
    run = latest_run(study)
    assert run.status == "failed"
    assert latest_run(study, status="ok") is None
    assert [(e["file"], e["status"]) for e in run.manifest["notebooks"]] == [
        ("n.ipynb", "failed"),
        ("n-2.ipynb", "ok"),
    ]
    assert run.manifest["notebooks"][1]["parameters"]["out"] == str(run.path / "n-2")


@pytest.mark.kernel
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(("sent", "status"), [("SIGINT", "interrupted"), ("SIGKILL", "running")])
def test_a_run_cut_short_does_not_read_as_finished(tmp_path, sent, status):
    slow = "import pathlib, time; pathlib.Path(out, 'here').touch(); time.sleep(60)"
    study = write_study(tmp_path, GOOD, source=slow)
    code = (
        "import sys\nfrom kbeval.studies.runs import run_study\n"
        "run_study(sys.argv[1], out=sys.argv[2])"
    )
    root = str(Path(__file__).resolve().parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(study), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": root},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            if (tmp_path / "out" / "here").exists():
                break
            time.sleep(0.1)
        process.send_signal(getattr(signal, sent))
        process.wait(timeout=60)
    finally:
        process.kill()
    run = read_run(tmp_path / "out")
    assert run.status == status
    assert run.manifest["notebooks"][0]["status"] == status
    assert run.manifest["notebooks"][0]["file"] == "n.ipynb"


def test_a_folder_without_manifest_is_no_run(tmp_path):
    with pytest.raises(RunError, match=r"not a run; a manifest\.json is expected$"):
        read_run(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    write_manifest(tmp_path, {"a": 1})
    old = (tmp_path / "manifest.json").read_text()
    for bad in ("\ud800", float("nan")):
        with pytest.raises(ValueError, match=r"surrogates|not JSON compliant"):
            write_manifest(tmp_path, {"a": bad})
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("manifest.json", old)]


def test_inputs_that_differ_are_both_kept(tmp_path):
    for name, encoder in (("evaluation.json", "a"), ("evaluation-2.json", "b")):
        (tmp_path / name).write_text(json.dumps({"set": "s", "encoder": encoder, "other": 1}))
    assert merge_inputs(tmp_path, {"python": "3"}) == {
        "python": "3",
        "set": "s",
        "encoder": ["b", "a"],
    }
