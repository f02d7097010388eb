"""What a warm parent imports for a notebook: its own imports, as far as they are safe to fork."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kbeval.studies.parameters import notebook_cells

USUAL = (
    "numpy",
    "pandas",
    "pandas.io.formats.html",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "PIL.JpegImagePlugin",
)
SAFE = ("kbeval", "scipy", "sklearn")  # start no thread and keep nothing open when imported
BENEATH = {  # a module, or a room, of kbeval -> what it imports only when it is used
    "kbeval.evaluation": ("faiss", "ahocorasick", "scipy.special"),
    "kbeval.evaluation.evaluate": ("ir_measures",),
    "kbeval.studies.tuning": (
        "kbeval.evaluation.evaluate",
        "faiss",
        "ahocorasick",
        "scipy.special",
        "scipy.stats",
        "sklearn.isotonic",
        "sklearn.linear_model",
    ),
}


def modules_of(notebook: str | Path) -> tuple[str, ...]:
    """The usual libraries, and what the notebook imports of `SAFE`, with what lies beneath.

    Anything else that a notebook imports, modules of its own above all, is left to each kernel:
    it may start threads or read its folder and variables, which the parent does not have.
    """
    found = [name for name in _imports(notebook) if name.split(".")[0] in SAFE]
    beneath = [
        module
        for name in found
        for room, modules in BENEATH.items()
        if f"{name}.".startswith(f"{room}.")
        for module in modules
    ]
    return tuple(dict.fromkeys([*USUAL, *found, *beneath]))


def _imports(notebook: str | Path) -> Iterator[str]:
    """Modules that the cells import; a cell that is not Python, such as one with magics, none."""
    for cell in notebook_cells(notebook):
        if cell["cell_type"] != "code":
            continue
        try:
            tree = ast.parse(cell["source"])
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
