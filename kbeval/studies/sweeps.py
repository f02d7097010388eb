"""One notebook over a grid of parameters; each run keeps its own folder, status and metrics."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbeval.errors import ConfigError, KbevalError, RunError
from kbeval.retrieval.saved import write_atomically
from kbeval.studies.execute import _check_finished, _execute, _prepare
from kbeval.studies.kernels import OWN
from kbeval.studies.manifest import now
from kbeval.studies.parameters import notebook_parameters
from kbeval.studies.sweep_grid import checked_values, combinations, is_valid
from kbeval.studies.sweep_kernels import IpcFolder, kill_kernel, sweep_kernel_manager
from kbeval.studies.sweep_table import (
    STATUS,
    SweepRun,
    metrics_in,
    notebook_fingerprint,
    run_folder,
    sweep_table,
    write_table,
)
from kbeval.studies.warm_kernels import WarmParent, can_fork

if TYPE_CHECKING:
    import pandas as pd

Echo = Callable[[str], object]
OUT = "out"  # the parameter by which a notebook learns where to write
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


@dataclass(slots=True, eq=False)
class _Shop:
    """What the runs of a sweep share while it goes on."""

    notebook: Path
    fingerprint: str
    ipc: IpcFolder
    threads: int  # compute threads a kernel
    timeout: float | None = None  # seconds a run
    has_out: bool = True
    parent: WarmParent | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    managers: list[Any] = field(default_factory=list)


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
    parameters and the same notebook is kept; what is missing, failed or was interrupted runs.
    `timeout` is in seconds a run. With `warm` kernels are forked from a process that has
    imported the usual libraries; where that is not to be had plain ones serve, and `echo` says
    so. A failed run does not stop the others: see `Sweep.failed`. Raises `ConfigError` before
    anything is written if a parameter is wrong. Ctrl-C keeps what finished.
    """
    source = Path(notebook).resolve()
    declared = notebook_parameters(notebook)
    if OUT in values:
        raise ConfigError(f"parameter {OUT!r} is set by the sweep, one folder a run; leave it out")
    grid = {name: checked_values(notebook, name, list(each)) for name, each in values.items()}
    folder = Path(out) if out is not None else Path("results") / f"{source.stem}-sweep"
    runs = [
        SweepRun(row, run_folder(folder.resolve() / "runs", row) if is_valid(row) else None)
        for row in combinations(grid)
    ]
    _claim(folder, source, grid)
    fingerprint = notebook_fingerprint(source)
    due = [run for run in runs if run.folder and not run.finished(fingerprint)]
    for line in _opening(runs, due, folder, has_out=OUT in declared):
        echo(line)
    jobs = max(1, min(jobs or os.cpu_count() or 1, len(due)))
    try:
        if due:
            with _shop(source, fingerprint, jobs=jobs, warm=warm, echo=echo) as shop:
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
    old = sum(run.state["status"] == "ok" for run in due)
    if old:
        yield f"{old} finished with another version of the notebook; they run again"
    if not has_out:
        yield f"the notebook declares no parameter {OUT!r}, so it cannot leave metrics for a run"


@contextmanager
def _shop(source: Path, fingerprint: str, *, jobs: int, warm: bool, echo: Echo) -> Iterator[_Shop]:
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ExitStack() as stack:
        shop = _Shop(source, fingerprint, stack.enter_context(IpcFolder()), threads)
        if warm and not can_fork():
            echo("plain kernels: this system offers no safe fork")
        elif warm:
            shop.parent = stack.enter_context(WarmParent())
        import papermill  # noqa: F401  # once, before threads ask for it; the parent warms up

        if shop.parent is not None:
            try:
                shop.parent.wait_ready()
            except RunError as error:
                echo(f"plain kernels: {error}")
                shop.parent = None
        yield shop


def _run_all(due: Sequence[SweepRun], shop: _Shop, jobs: int) -> None:
    from tqdm import tqdm

    with ThreadPoolExecutor(jobs, thread_name_prefix="sweep") as pool:
        pending = [pool.submit(_run_one, run, shop) for run in due]
        try:
            with tqdm(total=len(due), desc="sweep", unit="run", disable=None) as bar:
                for done in as_completed(pending):
                    done.result()
                    bar.update()
        except BaseException:
            _stop(pending, shop)
            raise


def _stop(pending: Sequence[Future[None]], shop: _Shop) -> None:
    """End what runs, start nothing more, and wait until each run has written its status."""
    shop.stopping.set()
    for one in pending:
        one.cancel()
    while not all(one.done() for one in pending):
        for manager in list(shop.managers):
            kill_kernel(manager)
        time.sleep(0.05)


def _run_one(run: SweepRun, shop: _Shop) -> None:
    """One run from a fresh folder to its last status; whatever fails is in that status."""
    folder = run.folder
    if folder is None or shop.stopping.is_set():
        return
    if folder.exists():
        shutil.rmtree(folder)  # a failed, half or outdated run leaves nothing to be taken for new
    folder.mkdir(parents=True)
    started = time.monotonic()
    state: dict[str, Any] = {
        "status": "running",
        "parameters": dict(run.parameters),
        "notebook": str(shop.notebook),
        "notebook_fingerprint": shop.fingerprint,
        "file": shop.notebook.name,
        "kernel": "plain" if shop.parent is None else "warm",
        "started": now(),
        "ended": None,
        "seconds": None,
        "error": None,
        "metrics": {},
    }
    _write(folder, state)
    try:
        _execute_one(run, folder, shop)
        state["status"] = "ok"
    except (KbevalError, OSError) as error:
        state.update(status="failed", error=str(error))
    except Exception as error:  # of the machinery beneath; the other runs go on
        state.update(status="failed", error=f"{type(error).__name__}: {error}")
    try:
        state["metrics"] = metrics_in(folder)
    except RunError as error:
        state.update(status="failed", error=state["error"] or str(error))
    if shop.stopping.is_set() and state["status"] != "ok":
        state.update(status="interrupted", error="interrupted")
    state.update(ended=now(), seconds=round(time.monotonic() - started, 3))
    _write(folder, state)


def _execute_one(run: SweepRun, folder: Path, shop: _Shop) -> None:
    values = {**run.parameters, **({OUT: str(folder)} if shop.has_out else {})}
    target = folder / shop.notebook.name
    _prepare(shop.notebook, target, own=True)
    mine: list[Any] = []
    manager = sweep_kernel_manager(
        shop.ipc, shop.parent, threads=shop.threads, started=(mine, shop.managers)
    )
    with _bounded(mine, shop.timeout) as expired:
        try:
            _execute(
                target,
                values,
                cwd=shop.notebook.parent,
                kernel_name=OWN,
                kernel_manager_class=manager,
                execution_timeout=None,
                progress_bar=False,
            )
        except RunError:
            if expired.is_set():
                raise RunError(f"{target}: the run took longer than {shop.timeout:g} s") from None
            raise
    _check_finished(target, values)


@contextmanager
def _bounded(managers: Sequence[Any], timeout: float | None) -> Iterator[threading.Event]:
    """Kill the kernel when the time is up; the event tells that it was so."""
    expired, over = threading.Event(), threading.Event()

    def watch() -> None:
        if over.wait(timeout):
            return
        expired.set()
        while not over.wait(0.1):
            for manager in list(managers):
                kill_kernel(manager)

    watcher = threading.Thread(target=watch, daemon=True)
    if timeout is not None:
        watcher.start()
    try:
        yield expired
    finally:
        over.set()


def _write(folder: Path, state: Mapping[str, Any]) -> None:
    text = json.dumps(state, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / STATUS, (text + "\n").encode("utf-8"))


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
