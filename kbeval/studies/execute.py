"""One notebook, run by papermill with checked parameters; a failing run leaves its notebook."""

from __future__ import annotations

import ast
import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbeval.errors import RunError
from kbeval.studies.kernels import OWN, checked_kernel, own_kernel_manager, own_kernelspec
from kbeval.studies.parameters import checked_parameters, notebook_cells

INJECTED = "injected-parameters"
ENGINE = "kbeval"  # the name of ours among papermill's engines
BETWEEN_SAVES = 1.0  # s between two copies written while a notebook runs
REST_OF_OUTPUT = 120  # s for what a finished cell wrote to arrive; nbclient's 4 lose large outputs


def run_notebook(
    notebook: str | Path,
    out_folder: str | Path,
    parameters: Mapping[str, object] | None = None,
    *,
    kernel: str | None = None,
    timeout: float | None = None,
    progress: bool = False,
    name: str | None = None,
    kernel_class: type[Any] | None = None,
) -> Path:
    """Execute a notebook and return the path of the executed copy in `out_folder`.

    The kernel is the interpreter that started kbeval unless an installed `kernel` is named, its
    working directory is the notebook's own folder. `timeout` is in seconds a cell; `name` names
    the copy (default: the notebook's). `kernel_class` manages that interpreter's kernel in
    another way (`kernels.own_kernel_manager` is the usual one); it goes with no `kernel`. Raises
    `ConfigError` before a kernel starts if a parameter is wrong, `RunError` if a cell fails or
    is never reached; the copy is kept.
    """
    source = Path(notebook).resolve()
    values = checked_parameters(notebook, parameters or {})
    notebook_cells(notebook)
    chosen = OWN if kernel is None else checked_kernel(kernel)
    target = Path(out_folder).resolve() / (name or source.name)
    if target == source:
        raise RunError(f"{notebook}: the executed copy would replace it; give another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"execution_timeout": timeout, "progress_bar": progress}
    if kernel is None:
        options["kernel_manager_class"] = kernel_class or own_kernel_manager()
    _prepare(source, target, own=kernel is None)
    _execute(target, values, cwd=source.parent, kernel_name=chosen, **options)
    _check_finished(target, values)
    return target


def _prepare(source: Path, target: Path, *, own: bool) -> None:
    """Write the copy to run: without anything of an earlier run, and asking for our kernel."""
    import nbformat

    node = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    node.cells = [c for c in node.cells if INJECTED not in c.metadata.get("tags", [])]
    for cell in node.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    if own:
        node.metadata.kernelspec = own_kernelspec()
    node.metadata.pop("papermill", None)
    nbformat.write(node, target)  # type: ignore[no-untyped-call]


def _execute(target: Path, values: Mapping[str, Any], *, cwd: Path, **options: object) -> None:
    """Let papermill run the copy in place; what goes wrong becomes one line (PM-03, PM-04)."""
    import papermill
    from nbclient.exceptions import CellTimeoutError
    from papermill.exceptions import PapermillExecutionError

    path = str(target).replace("{", "{{").replace("}", "}}")  # papermill fills in braces
    logging.getLogger("papermill").addHandler(logging.NullHandler())  # errors are raised below
    folder = {"metadata": {"path": str(cwd)}}  # of the kernel; this process stays where it is
    ours = {"engine_name": _engine(), "iopub_timeout": REST_OF_OUTPUT, "resources": folder}
    try:
        papermill.execute_notebook(
            path, path, parameters=dict(values), language="python", **ours, **options
        )
    except PapermillExecutionError as error:
        what = f"cell [{error.exec_count}]: {error.ename}: {_line(error.evalue)}"
        raise RunError(f"{target}: {what}") from None
    except CellTimeoutError as error:
        limit = f"took longer than {options['execution_timeout']} s"
        if "IOPub" in str(error):
            limit = f"ended, but not all of its output came within {REST_OF_OUTPUT} s"
        raise RunError(f"{target}: cell [{_begun(target)}] {limit}") from None
    except RuntimeError as error:  # nbclient's DeadKernelError, or no kernel came up
        what = f"cell [{_begun(target)}]: the kernel died: {_line(str(error))}"
        raise RunError(f"{target}: {what}") from None


def _engine() -> str:
    """Papermill's own engine under a name of ours, writing the copy less often while cells run.

    Papermill writes it around every cell, which for short cells, or for one that printed a lot,
    costs more than the cells do. What it writes at the start and at the end stays.
    """
    from papermill.engines import NBClientEngine, papermill_engines

    class PatientEngine(NBClientEngine):  # type: ignore[misc,unused-ignore]
        @classmethod
        def execute_managed_notebook(
            cls,
            nb_man: Any,  # noqa: ANN401
            kernel_name: str,
            **options: Any,  # noqa: ANN401
        ) -> None:
            usual, due = nb_man.save, time.monotonic() + BETWEEN_SAVES

            def save(**state: Any) -> None:  # noqa: ANN401
                nonlocal due
                nb_man.nb = state.get("nb") or nb_man.nb
                started = time.monotonic()
                if started >= due:
                    usual()
                    due = time.monotonic() + max(BETWEEN_SAVES, 10 * (time.monotonic() - started))

            nb_man.save = save
            try:
                super().execute_managed_notebook(nb_man, kernel_name, **options)
            finally:
                nb_man.save = usual

    papermill_engines.register(ENGINE, PatientEngine)
    return ENGINE


def _check_finished(target: Path, values: Mapping[str, Any]) -> None:
    """Refuse a finished notebook that skipped a cell or did not use the values given (PM-02)."""
    cells = notebook_cells(target)
    for number, cell in enumerate(cells, start=1):
        is_code = cell["cell_type"] == "code" and bool(cell["source"].strip())
        if is_code and cell.get("execution_count") is None:
            raise RunError(f"{target}: the run ended before cell {number} of {len(cells)}")
    used: dict[str, Any] = {}
    for cell in cells:
        if INJECTED in cell.get("metadata", {}).get("tags", []):
            used = _assigned(cell["source"])
    if used != dict(values):
        raise RunError(f"{target}: the cell that ran holds {used!r}, given was {dict(values)!r}")


def _assigned(source: str) -> dict[str, Any]:
    """What an injected cell assigns; anything but literals is None."""
    values: dict[str, Any] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            values[statement.targets[0].id] = ast.literal_eval(statement.value)
    return values


def _begun(target: Path) -> int:
    """How many code cells had begun, which is what `In [ ]` shows of the last of them."""
    cells = [cell for cell in notebook_cells(target) if cell["cell_type"] == "code"]
    return sum(bool(cell["metadata"].get("papermill", {}).get("start_time")) for cell in cells)


def _line(text: str) -> str:
    """Text of an exception as one line, without colours."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
