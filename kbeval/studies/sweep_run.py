"""One run of a sweep, from a fresh folder to its last status; whatever fails is in that status."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError, RunError
from kbeval.retrieval.saved import write_atomically
from kbeval.studies.execute import run_notebook
from kbeval.studies.manifest import now
from kbeval.studies.sweep_kernels import IpcFolder, kill_kernel, sweep_kernel_manager
from kbeval.studies.sweep_table import OUT, STATUS, SweepRun, metrics_in
from kbeval.studies.warm_kernels import WarmParent


@dataclass(slots=True, eq=False)
class Shop:
    """What the runs of a sweep share while it goes on."""

    notebook: Path
    ipc: IpcFolder
    threads: int  # compute threads a kernel
    timeout: float | None = None  # seconds a run
    has_out: bool = True
    parent: WarmParent | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    managers: list[Any] = field(default_factory=list)


def run_one(run: SweepRun, shop: Shop) -> None:
    """Run one combination, unless the sweep is stopping; raises nothing."""
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
        "inputs": dict(run.inputs),
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


def _execute_one(run: SweepRun, folder: Path, shop: Shop) -> None:
    values = {**run.parameters, **({OUT: str(folder)} if shop.has_out else {})}
    mine: list[Any] = []
    kernel = sweep_kernel_manager(
        shop.ipc, shop.parent, threads=shop.threads, started=(mine, shop.managers)
    )
    with _bounded(mine, shop.timeout) as expired:
        try:
            run_notebook(shop.notebook, folder, values, kernel_class=kernel)
        except RunError:
            if expired.is_set():
                raise RunError(
                    f"{folder / shop.notebook.name}: the run took longer than {shop.timeout:g} s"
                ) from None
            raise


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
