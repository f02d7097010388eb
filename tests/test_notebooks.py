"""Every shipped notebook: thin, clean, tagged; and it runs on the tiny set without a model."""

import ast
import json
import re
from pathlib import Path

import pytest

from kbeval.studies.parameters import notebook_parameters
from kbeval.studies.runs import run_notebook
from kbeval.studies.study import load_study

ROOT = Path(__file__).resolve().parents[1]
TINY = Path(__file__).parent / "tiny"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
GIVEN = {"set_folder": str(TINY), "encoder": "hashing", "split": "test"}
GIVEN |= {"encoders": ["hashing", "fast-use"]}  # to compare: the smallest one that reads meaning

LONG = ("compare_encoders", "dedup_effect", "tune_thresholds")  # the full run runs them
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def content(path):
    return json.loads(path.read_text(encoding="utf-8"))


def code(path):
    cells = [cell for cell in content(path)["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in cells]


def test_there_are_notebooks():
    assert NOTEBOOKS


@every_notebook
def test_the_first_cell_asks_the_second_holds_the_parameters(path):
    first, second, *rest = content(path)["cells"]
    assert first["cell_type"] == "markdown"
    assert second["metadata"] == {"tags": ["parameters"]}
    assert notebook_parameters(path)
    assert rest[-1]["cell_type"] == "markdown"


@every_notebook
def test_every_parameter_says_what_it_is(path):
    for parameter in notebook_parameters(path).values():
        assert parameter.help, parameter.name


@every_notebook
def test_no_outputs_and_a_neutral_kernel_are_committed(path):
    notebook = content(path)
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


@every_notebook
def test_cells_are_few_and_short_and_define_nothing(path):
    cells = code(path)
    assert len(cells) <= 8
    for source in cells:
        assert len(source.splitlines()) <= 12
        assert not re.search(r"^\s*[!%]", source, re.MULTILINE)
        for node in ast.walk(ast.parse(source)):
            assert not isinstance(
                node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
            )
            assert not (
                isinstance(node, (ast.For, ast.While))
                and any(isinstance(inner, ast.If) for inner in ast.walk(node))
            )


@every_notebook
def test_every_path_stays_inside_the_project(path):
    for parameter in notebook_parameters(path).values():
        if parameter.type == "Path" and parameter.default:
            assert (path.parent / parameter.default).resolve().is_relative_to(ROOT)


@pytest.mark.kernel
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] if p.stem in LONG else []) for p in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_it_runs_on_the_tiny_set(path, tmp_path):
    declared = notebook_parameters(path)
    given = {name: value for name, value in GIVEN.items() if name in declared}
    executed = run_notebook(path, tmp_path, {**given, "out": str(tmp_path)})
    outputs = [out for cell in content(executed)["cells"] for out in cell.get("outputs", [])]
    assert outputs
    assert not [out for out in outputs if out.get("name") == "stderr"]
    assert len(list(tmp_path.iterdir())) > 1


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yml")), ids=lambda p: p.stem)
def test_every_study_can_be_loaded(path):
    assert load_study(path).name == path.stem
