"""Sweeps that are killed, hang or drown in output: nothing half is taken for finished."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from test_runs import write_notebook
from test_warm_kernels import alive, eventually

from kbeval.studies import execute
from kbeval.studies.sweeps import run_sweep

pytestmark = [pytest.mark.kernel, pytest.mark.slow]
WAITS = """
import json, os, time
from pathlib import Path
Path(f"pid-{k}").write_text(str(os.getpid()))
(Path(out) / "metrics.json").write_text(json.dumps({"k": k, "half": 1}))
for _ in range(3000):
    if k != 2 or Path("go").exists(): break
    time.sleep(0.05)
""".strip()
STUBBORN = """
import signal, subprocess, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
Path("child").write_text(str(child.pid))
time.sleep(600)
""".strip()


@pytest.fixture
def waits(tmp_path):
    """Run 1 ends, run 2 waits for a file `go`."""
    return write_notebook(tmp_path / "n.ipynb", "k = 1\nout = '.'", WAITS, "k")


def pid_of(path):
    eventually(lambda: path.is_file() and path.read_text().isdecimal())
    return int(path.read_text())


def states(out):
    found = sorted((out / "runs").glob("*/status.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "plain"])
def test_a_kernel_killed_from_outside_fails_its_run_alone(waits, tmp_path, warm):
    def kill():
        os.kill(pid_of(tmp_path / "pid-2"), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    sweep = run_sweep(waits, {"k": [2, 3]}, out=tmp_path / "out", jobs=1, warm=warm)
    killer.join()
    assert list(sweep.table["status"]) == ["failed", "ok"]
    assert list(sweep.table["half"].fillna(0)) == [0, 1]
    error = sweep.table["error"][0]
    assert error.endswith("the kernel died: Kernel died"), error
    assert "cell [3]" in error


def test_a_sweep_killed_with_9_leaves_a_run_that_goes_on_and_no_kernel(waits, tmp_path):
    command = [sys.executable, "-m", "kbeval.cli", "sweep", "n.ipynb", "-o", "out", "-j", "1"]
    process = subprocess.Popen([*command, "-p", "k=1,2"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    kernel = pid_of(tmp_path / "pid-2")
    process.kill()
    process.wait()
    eventually(lambda: not alive(kernel))
    assert sorted(state["status"] for state in states(tmp_path / "out")) == ["ok", "running"]
    (tmp_path / "go").touch()
    for name in ("pid-1", "pid-2"):
        (tmp_path / name).unlink()
    sweep = run_sweep(waits, {"k": [1, 2]}, out=tmp_path / "out", jobs=1)
    assert sweep.counts == {"ok": 2}
    assert not (tmp_path / "pid-1").exists(), "what finished is not run again"
    assert (tmp_path / "pid-2").exists()


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "plain"])
def test_a_cell_that_takes_no_signal_ends_with_what_it_started(tmp_path, warm):
    notebook = write_notebook(tmp_path / "n.ipynb", "k = 1", STUBBORN)
    sweep = run_sweep(notebook, {"k": [1]}, out=tmp_path / "out", timeout=30, warm=warm)
    assert sweep.table["error"][0].endswith("n.ipynb: the run took longer than 30 s")
    eventually(lambda: not alive(pid_of(tmp_path / "child")))


@pytest.mark.parametrize(
    ("source", "size"),
    [
        pytest.param("print('x' * 3_000_000)", 3_000_000, id="one line"),
        pytest.param("for i in range(30_000): print(f'{i:099d}')", 3_000_000, id="many lines"),
        pytest.param("print('x' * 100_000_000)", 100_000_000, id="100 MB at once"),
    ],
)
def test_large_outputs_are_kept_whole(tmp_path, source, size):
    notebook = write_notebook(tmp_path / "n.ipynb", "k = 1", source, "k")
    sweep = run_sweep(notebook, {"k": [1]}, out=tmp_path / "out")
    assert sweep.counts == {"ok": 1}, sweep.table["error"][0]
    executed = tmp_path / "out" / "runs" / sweep.table["folder"][0] / "n.ipynb"
    cells = json.loads(executed.read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(output.get("text", "")) for output in cells[2]["outputs"])
    assert size <= len(text) <= size + 1


def test_endless_output_ends_with_the_time_given(tmp_path):
    source = "while True: print('y' * 1000)"
    notebook = write_notebook(tmp_path / "n.ipynb", "k = 1", source)
    sweep = run_sweep(notebook, {"k": [1]}, out=tmp_path / "out", timeout=5)
    assert sweep.counts == {"failed": 1}
    assert "took longer than 5 s" in sweep.table["error"][0]


def test_output_that_never_ends_to_arrive_is_named(tmp_path, monkeypatch):
    source = "import sys, time\nprint('x' * 30_000_000)"
    monkeypatch.setattr(execute, "REST_OF_OUTPUT", 0)
    notebook = write_notebook(tmp_path / "n.ipynb", "k = 1", source)
    sweep = run_sweep(notebook, {"k": [1]}, out=tmp_path / "out")
    assert "not all of its output came within 0 s" in sweep.table["error"][0]


def test_the_copy_is_written_while_a_notebook_runs(tmp_path):
    longer = f"import time\ntime.sleep({2 * execute.BETWEEN_SAVES})"  # than two copies lie apart
    waits = write_notebook(tmp_path / "n.ipynb", "k = 1\nout = '.'", longer, WAITS, "k")
    seen = []

    def look():
        pid_of(tmp_path / "pid-2")
        try:
            eventually(lambda: seen.append(list(executed())) or seen[-1].count("completed") >= 3)
        finally:
            (tmp_path / "go").touch()

    def executed():
        for path in Path(tmp_path / "out" / "runs").glob("*/n.ipynb"):
            try:
                cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            except ValueError:
                continue  # just being written
            yield from (c["metadata"].get("papermill", {}).get("status") for c in cells)

    watcher = threading.Thread(target=look)
    watcher.start()
    sweep = run_sweep(waits, {"k": [2]}, out=tmp_path / "out")
    watcher.join()
    assert sweep.counts == {"ok": 1}
    assert seen[-1].count("completed") == 3, "the cells before the one that waits"
