"""Runs of a study: each has its own folder with a manifest, and keeps whatever it finished."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError, RunError
from kbeval.retrieval.saved import write_atomically
from kbeval.studies.execute import run_notebook
from kbeval.studies.manifest import (
    MANIFEST,
    RunFolder,
    merge_inputs,
    new_manifest,
    now,
    read_run,
    runs_in,
    write_manifest,
)
from kbeval.studies.parameters import checked_parameters, notebook_parameters
from kbeval.studies.progress import progress_bar
from kbeval.studies.report import ending, page
from kbeval.studies.study import Study, StudyNotebook, load_study
from kbeval.studies.study_kernels import study_kernels
from kbeval.studies.terminal import counted

__all__ = ["RunFolder", "latest_run", "load_study", "read_run", "run_notebook", "run_study"]

Echo = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class _Step:
    """One notebook of a run: the name of its executed copy, its folder, its checked values."""

    notebook: StudyNotebook
    file: str
    folder: Path
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Under:
    """What the notebooks of a run share while it goes on."""

    folder: Path
    manifest: dict[str, Any]
    echo: Echo
    kernel_class: type[Any] | None


def run_study(
    path: str | Path,
    *,
    out: str | Path | None = None,
    force: bool = False,
    echo: Echo = lambda line: None,
) -> RunFolder:
    """Run every notebook of a study into a new folder and return it.

    The folder is `results/<name>/<UTC time>-<hash>` beside the studies, or `out`, which must be
    new or empty; with `force` an `out` that holds an earlier run is written over. `echo` gets
    one line a step. Raises `ConfigError` before anything is written if the study or a parameter
    is wrong. A failing notebook does not stop the others; `RunError` at the end names the first.
    Ctrl-C leaves the manifest `interrupted`, a kill leaves it `running`.
    """
    study = load_study(path)
    folder = _new_folder(study, out, force=force)
    steps = _steps(study, folder)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(study.path, folder / "study.yml")
    manifest = new_manifest(study.name, study.fingerprint, (_entry(step) for step in steps))
    write_manifest(folder, manifest)
    echo(f"{study.name}: {counted(len(steps), 'notebook')} into {folder}")
    try:
        with study_kernels([step.notebook.path for step in steps]) as kernel_class:
            _embed_ahead(study)
            run = _Under(folder, manifest, echo, kernel_class())
            for step, entry in zip(steps, manifest["notebooks"], strict=True):
                _run_step(step, entry, run)
    except BaseException:
        _end(folder, manifest, "interrupted")
        raise
    failed = [entry for entry in manifest["notebooks"] if entry["status"] == "failed"]
    _end(folder, manifest, "failed" if failed else "ok")
    for line in ending(folder):
        echo(line)
    if failed:
        raise RunError(
            f"{len(failed)} of {counted(len(steps), 'notebook')} failed: {failed[0]['error']}"
        )
    return read_run(folder)


def latest_run(study: str | Path, *, status: str | None = None) -> RunFolder | None:
    """The newest run of a study under its `results` folder, or None; `status` picks by status."""
    runs = runs_in(load_study(study).results)
    return next((run for run in reversed(runs) if status in (None, run.status)), None)


def _embed_ahead(study: Study) -> None:
    """Embed what the notebooks may ask for, where progress can be seen; they find it kept."""
    encoder, folder = study.text("encoder"), study.text("set_folder")
    if encoder is None or folder is None:
        return
    from kbeval.evaluation.opening import open_set, query_texts

    with progress_bar("embedding documents") as progress:
        opened = open_set(
            folder,
            split=study.text("split"),
            encoder=encoder,
            settings=study.settings,
            centre_from=study.centre_from,
            progress=progress,
        )
    with progress_bar("embedding queries") as progress:
        opened.knowledge.embed_queries(query_texts(folder), progress=progress, keep=True)


def _new_folder(study: Study, out: str | Path | None, *, force: bool) -> Path:
    if out is not None:
        folder = Path(out).resolve()
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{out}: is a file; a folder is expected")
        if folder.is_dir() and any(folder.iterdir()):
            if not (folder / MANIFEST).is_file():
                raise RunError(f"{out}: is not empty and no run of kbeval; give a new folder")
            if not force:
                raise RunError(f"{out}: holds a run already; give a new folder, or force")
        return folder
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{study.fingerprint[:8]}"
    folder, number = study.results / stamp, 1
    while folder.exists():
        number += 1
        folder = study.results / f"{stamp}-{number}"
    return folder


def _steps(study: Study, folder: Path) -> list[_Step]:
    """Every notebook with checked values; of several each writes into a folder of its own."""
    steps: list[_Step] = []
    seen: Counter[str] = Counter()
    for entry in study.notebooks:
        stem = entry.path.stem
        seen[stem] += 1
        own = stem if seen[stem] == 1 else f"{stem}-{seen[stem]}"
        target = folder / own if len(study.notebooks) > 1 else folder
        declared = notebook_parameters(entry.path)
        common = {**study.common, "out": str(target)}
        given = {name: value for name, value in common.items() if name in declared}
        values = checked_parameters(
            entry.path, {**given, **entry.parameters}, base=study.path.parent
        )
        steps.append(_Step(entry, f"{own}.ipynb", target, values))
    return steps


def _entry(step: _Step) -> dict[str, Any]:
    """What the manifest says of a notebook that has not started."""
    return {
        "notebook": step.notebook.path.name,
        "file": step.file,
        "parameters": step.values,
        "status": "waiting",
        "seconds": None,
        "error": None,
    }


def _run_step(step: _Step, entry: dict[str, Any], run: _Under) -> None:
    started = time.monotonic()
    entry["status"] = "running"
    write_manifest(run.folder, run.manifest)
    try:
        step.folder.mkdir(exist_ok=True)
        run_notebook(
            step.notebook.path,
            run.folder,
            step.values,
            name=step.file,
            kernel_class=run.kernel_class,
        )
        run.manifest["inputs"] = merge_inputs(step.folder, run.manifest["inputs"])
        entry["status"] = "ok"
    except KbevalError as error:
        entry.update(status="failed", error=str(error))
    except BaseException:
        entry["status"] = "interrupted"
        raise
    finally:
        entry["seconds"] = round(time.monotonic() - started, 3)
        write_manifest(run.folder, run.manifest)
    run.echo(entry["error"] or f"{step.file}: ok ({entry['seconds']:.1f} s)")


def _end(folder: Path, manifest: dict[str, Any], status: str) -> None:
    """Write the index, then the manifest's last word."""
    manifest.update(status=status, ended=now())
    write_atomically(folder / "index.md", page(folder, manifest).encode("utf-8"))
    write_manifest(folder, manifest)
