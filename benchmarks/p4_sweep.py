"""P4: a sweep on warm kernels against papermill running the same notebooks one after another.

8 and 40 notebooks that import numpy, pandas and matplotlib, 2 workers. Counted: the start of the
warm parent, all runs, table and picture. Left out on both sides: importing papermill and pandas,
which a peer's process has done before its first notebook. papermill is timed over a few of the
notebooks, half of them before the sweep and half after, and taken times their number, because
it starts a fresh kernel for each. Every sweep must end with all runs ok. Median of the rounds.

Goals: 8 at least 5x, 40 at least 10x.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import papermill

from kbeval.studies.sweeps import run_sweep

WORKERS = 2
ROUNDS = 3
SAMPLE = 4  # notebooks of a round that papermill runs
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


def papermill_seconds(path: Path, folder: Path, count: int) -> float:
    """Seconds a notebook, one after another."""
    start = time.perf_counter()
    for i in range(count):
        given = {"x": float(i), "out": str(folder)}
        papermill.execute_notebook(
            str(path), str(folder / f"{i}.ipynb"), parameters=given, progress_bar=False
        )
    return (time.perf_counter() - start) / count


def sweep_seconds(path: Path, folder: Path, count: int) -> float:
    start = time.perf_counter()
    sweep = run_sweep(path, {"x": [float(i) for i in range(count)]}, out=folder, jobs=WORKERS)
    taken = time.perf_counter() - start
    if sweep.counts != {"ok": count}:
        raise SystemExit(f"{sweep.counts}: all are expected to be ok")
    return taken


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    os.environ["PYTHONWARNINGS"] = "ignore"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = notebook(folder)
        sweep_seconds(path, folder / "first", 2)  # what the first use of a library costs, once
        for count, goal in ((8, 5), (40, 10)):
            ratios = []
            for turn in range(rounds):
                before = papermill_seconds(path, folder, SAMPLE // 2)
                taken = sweep_seconds(path, folder / f"{count}-{turn}", count)
                one = (before + papermill_seconds(path, folder, SAMPLE // 2)) / 2
                ratios.append(one * count / taken)
                print(f"  {count}: papermill {one:.2f} s each, sweep {taken:.2f} s in all")
            print(f"{count} notebooks: {statistics.median(ratios):.1f}x papermill (goal {goal}x)")


if __name__ == "__main__":
    main()
