"""P4: a sweep on warm kernels against papermill running the same notebooks one after another.

8 and 40 notebooks that import numpy, pandas and matplotlib, 2 workers. Counted: the start of the
warm parent, all runs, table and picture. Left out on both sides: importing papermill and pandas,
which a peer's process has done before its first notebook. papermill is timed over a few of the
notebooks, half of them before the sweep and half after, and taken times their number, because
it starts a fresh kernel for each. Every sweep must end with all runs ok. Median of the rounds.

Goals: 8 at least 5x, 40 at least 10x. A further row, without a goal, sweeps 8 values of a notebook
that imports kbeval: tune_thresholds on the tiny set with `hashing`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import papermill

from kbeval.studies.sweeps import run_sweep

WORKERS = 2
ROUNDS = 3
SAMPLE = 4  # notebooks of a round that papermill runs
ROOT = Path(__file__).resolve().parents[1]
TUNE = ROOT / "notebooks" / "tune_thresholds.ipynb"
TINY = {"set_folder": str(ROOT / "tests" / "tiny"), "encoder": "hashing"}
CELLS = (
    "x = 0.0\nout = '.'",
    "import numpy as np\nimport pandas as pd\nimport matplotlib.pyplot as plt",
    "table = pd.DataFrame({'x': np.linspace(0, x, 50)})\ntable.describe()",
    "import json, pathlib\n"
    "total = {'total': float(table['x'].sum())}\n"
    "pathlib.Path(out, 'metrics.json').write_text(json.dumps(total))",
)


def notebook(folder: Path) -> Path:
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"c{i}",
            "metadata": {"tags": ["parameters"]} if i == 0 else {},
            "outputs": [],
            "source": source,
        }
        for i, source in enumerate(CELLS)
    ]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    path = folder / "n.ipynb"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def papermill_seconds(path: Path, folder: Path, rows: Sequence[dict[str, object]]) -> float:
    """Seconds a notebook, one after another."""
    start = time.perf_counter()
    for i, row in enumerate(rows):
        papermill.execute_notebook(
            str(path),
            str(folder / f"{i}.ipynb"),
            parameters={**row, "out": str(folder)},
            progress_bar=False,
        )
    return (time.perf_counter() - start) / len(rows)


def sweep_seconds(path: Path, folder: Path, rows: Sequence[dict[str, object]]) -> float:
    """Seconds of a whole sweep over these combinations, which form a grid."""
    grid = {name: list(dict.fromkeys(row[name] for row in rows)) for name in rows[0]}
    start = time.perf_counter()
    sweep = run_sweep(path, grid, out=folder, jobs=WORKERS)
    taken = time.perf_counter() - start
    if sweep.counts != {"ok": len(rows)}:
        raise SystemExit(f"{sweep.counts}: all are expected to be ok")
    return taken


def compare(path: Path, folder: Path, rows: Sequence[dict[str, object]], rounds: int) -> float:
    """The median ratio of papermill to a sweep."""
    ratios = []
    for turn in range(rounds):
        before = papermill_seconds(path, folder, rows[: SAMPLE // 2])
        taken = sweep_seconds(path, folder / f"{path.stem}-{len(rows)}-{turn}", rows)
        one = (before + papermill_seconds(path, folder, rows[: SAMPLE // 2])) / 2
        ratios.append(one * len(rows) / taken)
        print(f"  {len(rows)}: papermill {one:.2f} s each, sweep {taken:.2f} s in all", flush=True)
    return statistics.median(ratios)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    many_rounds = int(sys.argv[2]) if len(sys.argv) > 2 else rounds
    os.environ["PYTHONWARNINGS"] = "ignore"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = notebook(folder)
        sweep_seconds(path, folder / "first", [{"x": 0.0}, {"x": 1.0}])  # first use of a library
        for count, goal, turns in ((8, 5, rounds), (40, 10, many_rounds)):
            ratio = compare(path, folder, [{"x": float(i)} for i in range(count)], turns)
            print(f"{count} notebooks: {ratio:.1f}x papermill (goal {goal}x)", flush=True)
        tuned = [{**TINY, "steps": 10 + i} for i in range(8)]
        ratio = compare(TUNE, folder, tuned, 1)
        print(f"8 notebooks that import kbeval: {ratio:.1f}x papermill (no goal)")


if __name__ == "__main__":
    main()
