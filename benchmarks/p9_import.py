"""P9: what `import kbeval` adds to a bare interpreter, as whole processes, in turn.

Prints the extra milliseconds as a multiple of the bare interpreter's start (goal: at most 60 ms
over it on the machine the goal was set on) and the eager stack's for comparison. The list of
modules that must not be loaded is a test (tests/test_layers.py). Medians of several runs.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 15
COMMANDS = {
    "bare": "pass",
    "import kbeval": "import kbeval",
    "import kbeval.cli": "import kbeval.cli",
    "eager stack": "import pandas, scipy.stats, sklearn, matplotlib.pyplot, papermill, faiss",
}


def seconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    for code in COMMANDS.values():
        seconds(code)
    taken = {name: [] for name in COMMANDS}
    for run in range(RUNS):
        for name, code in COMMANDS.items():
            if name != "eager stack" or run < 3:
                taken[name].append(seconds(code))
    bare = statistics.median(taken["bare"])
    for name, times in taken.items():
        over = statistics.median(times) - bare
        print(f"{name}: {over * 1000:.0f} ms over bare, {over / bare:.2f} of a bare start")


if __name__ == "__main__":
    main()
