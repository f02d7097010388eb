"""One notebook over a grid of parameters; each run keeps its own folder, status and metrics."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.errors import ConfigError, RunError
from kbeval.retrieval.saved import write_atomically
from kbeval.studies.parameters import notebook_parameters
from kbeval.studies.sweep_grid import checked_values, combinations, is_valid
from kbeval.studies.sweep_inputs import DATA, UNSEEN, sweep_inputs
from kbeval.studies.sweep_kernels import IpcFolder, kill_kernel
from kbeval.studies.sweep_run import Shop, run_one
from kbeval.studies.sweep_table import OUT, OUTDATED, SweepRun, run_folder, sweep_table, write_table
from kbeval.studies.warm_kernels import WarmParent, can_fork
from kbeval.studies.warm_modules import modules_of

if TYPE_CHECKING:
    import pandas as pd

Echo = Callable[[str], object]
MARK = "sweep.json"


@dataclass(frozen=True, slots=True)
class Sweep:
    """A finished sweep: its folder and its table, one row a combination."""

    path: Path
    table: pd.DataFrame

    @property
    def counts(self) -> dict[str, int]:
        """How many combinations have which status."""
        return dict(Counter(self.table["status"]))

    @property
    def failed(self) -> bool:
        """Whether a run that was to be made is not there."""
        return bool(set(self.counts) - {"ok", "not valid"})


def run_sweep(
    notebook: str | Path,
    values: Mapping[str, Sequence[object]],
    *,
    out: str | Path | None = None,
    jobs: int | None = None,
    timeout: float | None = None,
    warm: bool = True,
    echo: Echo = lambda line: None,
) -> Sweep:
    """Run a notebook for every combination of `values`, `jobs` at a time, and tabulate.

    Folder: `out`, default `results/<notebook>-sweep`. What finished there before with the same
    parameters and on the same inputs (see `sweep_inputs`) is kept; all else runs. `timeout` is in
    seconds a run. With `warm` kernels are forked from a process that has imported what the
    notebook imports, as far as that is safe (see `warm_modules`); where that is not to be had
    plain ones serve, and `echo` says so. A failed run does not stop the others: see
    `Sweep.failed`. Raises `ConfigError` before anything is written if a parameter is wrong.
    Ctrl-C keeps what finished.
    """
    source = Path(notebook).resolve()
    declared = notebook_parameters(notebook)
    if OUT in values:
        raise ConfigError(f"parameter {OUT!r} is set by the sweep, one folder a run; leave it out")
    grid = {name: checked_values(notebook, name, list(each)) for name, each in values.items()}
    folder = Path(out) if out is not None else Path("results") / f"{source.stem}-sweep"
    rows = combinations(grid)
    inputs = sweep_inputs(source, rows, apart=folder)
    runs = [
        SweepRun(row, run_folder(folder.resolve() / "runs", row) if is_valid(row) else None, found)
        for row, found in zip(rows, inputs, strict=True)
    ]
    _claim(folder, source, grid)
    due = [run for run in runs if run.folder and not run.finished]
    for line in _opening(runs, due, folder, has_out=OUT in declared):
        echo(line)
    jobs = max(1, min(jobs or os.cpu_count() or 1, len(due)))
    try:
        if due:
            with _shop(source, jobs=jobs, warm=warm, echo=echo) as shop:
                shop.timeout, shop.has_out = timeout, OUT in declared
                _run_all(due, shop, jobs)
    finally:
        table = sweep_table(runs)
        for line in [*write_table(table, folder), *_draw(table, list(grid), folder)]:
            echo(line)
    return Sweep(folder, table)


def _claim(folder: Path, source: Path, grid: Mapping[str, Sequence[object]]) -> None:
    """Mark the folder as a sweep of this notebook; refuse one that holds anything else."""
    mark = folder / MARK
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file; a folder is expected")
    if folder.is_dir() and any(folder.iterdir()) and not mark.is_file():
        raise ConfigError(f"{folder}: is not empty and no sweep; give a new folder")
    if mark.is_file():
        before = json.loads(mark.read_text(encoding="utf-8")).get("notebook")
        if before != str(source):
            raise ConfigError(f"{folder}: holds a sweep of {before}; give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"notebook": str(source), "grid": grid}, indent=2, ensure_ascii=False)
    write_atomically(mark, (text + "\n").encode("utf-8"))


def _opening(
    runs: Sequence[SweepRun], due: Sequence[SweepRun], folder: Path, *, has_out: bool
) -> Iterator[str]:
    valid = [run for run in runs if run.folder]
    yield f"{len(runs)} combinations, {len(due)} to run into {folder}"
    if len(valid) < len(runs):
        yield f"{len(runs) - len(valid)} not valid (reference above highly-relevant), not run"
    if len(due) < len(valid):
        yield f"{len(valid) - len(due)} finished before, kept"
    yield from _of_inputs(valid, due)
    if not has_out:
        yield f"the notebook declares no parameter {OUT!r}, so it cannot leave metrics for a run"


def _of_inputs(valid: Sequence[SweepRun], due: Sequence[SweepRun]) -> Iterator[str]:
    """What changed since runs finished, and where a change would not be seen."""
    others = [run.state["changed"] for run in due if run.state["status"] == OUTDATED]
    if others:
        names = ", ".join(dict.fromkeys(name for changed in others for name in changed))
        yield f"{len(others)} finished on another state of {names}; they run again"
    data = {each for run in valid for each in run.inputs.items() if each[0].startswith(DATA)}
    for name in sorted(name for name, digest in data if digest == UNSEEN):
        yield f"{name} is {UNSEEN}; a change there is not seen"
    if len(due) < len(valid) and not data:
        yield "no parameter names a file or folder: a change of data since then is not seen"


@contextmanager
def _shop(source: Path, *, jobs: int, warm: bool, echo: Echo) -> Iterator[Shop]:
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ExitStack() as stack:
        shop = Shop(source, stack.enter_context(IpcFolder()), threads)
        if warm and not can_fork():
            echo("plain kernels: this system offers no safe fork")
        elif warm:
            shop.parent = stack.enter_context(WarmParent(modules_of(source)))
        import papermill  # noqa: F401  # once, before threads ask for it; the parent warms up

        if shop.parent is not None:
            try:
                shop.parent.wait_ready()
            except RunError as error:
                echo(f"plain kernels: {error}")
                shop.parent = None
        yield shop


def _run_all(due: Sequence[SweepRun], shop: Shop, jobs: int) -> None:
    from tqdm import tqdm

    with ThreadPoolExecutor(jobs, thread_name_prefix="sweep") as pool:
        pending = [pool.submit(run_one, run, shop) for run in due]
        try:
            with tqdm(total=len(due), desc="sweep", unit="run", disable=None) as bar:
                for done in as_completed(pending):
                    done.result()
                    bar.update()
        except BaseException:
            _stop(pending, shop)
            raise


def _stop(pending: Sequence[Future[None]], shop: Shop) -> None:
    """End what runs, start nothing more, and wait until each run has written its status."""
    shop.stopping.set()
    for one in pending:
        one.cancel()
    while not all(one.done() for one in pending):
        for manager in list(shop.managers):
            kill_kernel(manager)
        time.sleep(0.05)


def _draw(table: pd.DataFrame, names: Sequence[str], folder: Path) -> list[str]:
    """The small multiples as sweep.png; an old picture goes if there is nothing to draw."""
    from kbeval.studies.sweep_chart import sweep_chart

    path = folder / "sweep.png"
    path.unlink(missing_ok=True)
    figure = sweep_chart(table, names)
    if figure is None:
        return ["no picture: no finished run left a metric"]
    figure.savefig(path)
    return [f"picture: {path}"]
