"""Kernels forked from a warm parent: isolated, and what they leave equals a plain kernel's."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_runs import printed, write_notebook

from kbeval.errors import RunError
from kbeval.studies.sweeps import run_sweep
from kbeval.studies.warm_kernels import WarmParent, can_fork
from kbeval.studies.warm_parent import thread_count

needs_fork = pytest.mark.skipif(not can_fork(), reason="this system offers no safe fork")
pytestmark = [pytest.mark.kernel, needs_fork]

SHOWN = """
import json, sys, warnings
from pathlib import Path
import numpy as np, pandas as pd
import matplotlib, matplotlib.pyplot as plt
print(x, sys.argv[0].endswith("ipykernel_launcher.py"), matplotlib.get_backend(), sys.path[:2])
print(Path.cwd(), __name__, sorted(k for k in vars() if not k.startswith("_")))
""".strip()
FRAME = "pd.DataFrame({'x': [x, 2 * x]})"
PLOT = "_ = plt.plot([0, x])"
WARNED = "warnings.warn('shown'); print('err', file=sys.stderr)"


def run_of(sweep):
    return sweep.path.resolve() / "runs" / sweep.table["folder"][0]


def state_of(folder):
    return json.loads((folder / "status.json").read_text(encoding="utf-8"))


def comparable(notebook, folder):
    """A notebook without what is time, and with its own folder under one name."""
    content = json.loads(notebook.read_text(encoding="utf-8").replace(str(folder), "FOLDER"))
    content["metadata"]["papermill"] = {
        key: value
        for key, value in content["metadata"]["papermill"].items()
        if key not in ("duration", "start_time", "end_time")
    }
    for cell in content["cells"]:
        cell["metadata"].pop("execution", None)  # times of its messages
        for key in ("duration", "start_time", "end_time"):
            cell["metadata"].get("papermill", {}).pop(key, None)
        if "injected-parameters" in cell["metadata"].get("tags", []):
            cell.pop("id", None)  # papermill makes a new one each time
        for output in cell.get("outputs", []):
            output["text"] = _nameless("".join(output.get("text", "")))
    return content


def _nameless(text):
    """ipykernel names a cell's file by its process id."""
    return text if "ipykernel_" not in text else text.split("ipykernel_")[1].split("/", 1)[1]


def test_an_executed_notebook_equals_that_of_a_plain_kernel(tmp_path):
    notebook = write_notebook(
        tmp_path / "n.ipynb", "x = 0.5\nout = ''", SHOWN, FRAME, PLOT, WARNED, "x"
    )
    left = {}
    for warm in (True, False):
        sweep = run_sweep(notebook, {"x": [0.75]}, out=tmp_path / f"{warm}", warm=warm)
        assert sweep.counts == {"ok": 1}, sweep.table["error"][0]
        folder = run_of(sweep)
        assert state_of(folder)["kernel"] == ("warm" if warm else "plain")
        left[warm] = comparable(folder / "n.ipynb", folder)
    assert left[True] == left[False]
    kinds = [o["output_type"] for c in left[True]["cells"] for o in c.get("outputs", [])]
    assert kinds.count("display_data") == 1
    assert "execute_result" in kinds


def test_nothing_of_one_run_is_seen_in_the_next(tmp_path):
    stain = """
import builtins, json, os, random, sys
from pathlib import Path
import numpy as np, pandas as pd
before = [hasattr(builtins, "stain"), hasattr(np, "stain"), os.environ.get("STAIN"),
          pd.get_option("display.max_rows"), os.getcwd(), "this_is_mine" in sys.modules]
draws = [random.random(), float(np.random.random()), float(np.random.default_rng().random())]
builtins.stain = np.stain = True
os.environ["STAIN"] = "yes"
pd.set_option("display.max_rows", 7)
sys.modules["this_is_mine"] = sys
os.chdir("/")
print(json.dumps([before, draws, os.getpid(), os.getppid(), os.getsid(0)]))
""".strip()
    notebook = write_notebook(tmp_path / "n.ipynb", "k = 0", stain)
    sweep = run_sweep(notebook, {"k": [1, 2, 3]}, out=tmp_path / "out", jobs=1)
    runs = [tmp_path / "out" / "runs" / name for name in sweep.table["folder"]]
    before, draws, pids, parents, sessions = zip(
        *(json.loads(printed(run / "n.ipynb")) for run in runs), strict=True
    )
    assert list(before) == [[False, False, None, 60, str(tmp_path), False]] * 3
    for drawn in zip(*draws, strict=True):
        assert len(set(drawn)) == 3, "a seed was copied"
    assert len(set(pids)) == 3
    assert len(set(parents)) == 1, "all come from one warm parent"
    assert sessions == pids


def test_each_kernel_has_the_folder_and_variables_it_was_given(tmp_path):
    with WarmParent(()) as parent:
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            given = {"GIVEN": name, "HOME": str(tmp_path)}
            process = parent.fork(["x", "ipykernel_launcher"], env=given, cwd=str(folder))
            eventually(lambda pid=process.pid, there=folder: cwd_of(pid) == there)
            assert os.getsid(process.pid) == process.pid
            process.kill()
            eventually(lambda one=process: one.poll() == -signal.SIGKILL)


def test_the_parent_has_one_thread_and_leaves_no_kernel_behind():
    parent = WarmParent()
    parent.wait_ready()
    assert thread_count_of(parent.pid) == 1
    sleeping = parent.fork(["x", "ipykernel_launcher"], env=dict(os.environ), cwd="/")
    assert sleeping.poll() is None
    parent.close()
    assert not alive(parent.pid)
    eventually(lambda: not alive(sleeping.pid))
    with pytest.raises(RunError, match="warm parent of the kernels ended"):
        parent.wait_ready()


def test_a_parent_that_started_a_thread_is_refused(tmp_path, monkeypatch):
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with WarmParent(("threaded",)) as parent, pytest.raises(RunError, match="runs 2 threads"):
        parent.wait_ready()


def test_where_no_fork_is_to_be_had_plain_kernels_serve_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("kbeval.studies.sweeps.can_fork", lambda: False)
    notebook = write_notebook(tmp_path / "n.ipynb", "k = 0", "k")
    lines = []
    sweep = run_sweep(notebook, {"k": [1]}, out=tmp_path / "out", echo=lines.append)
    assert "plain kernels: this system offers no safe fork" in lines
    assert state_of(run_of(sweep))["kernel"] == "plain"


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "plain"])
def test_kernels_talk_over_ipc_and_leave_no_socket(tmp_path, warm):
    code = (
        "from ipykernel.kernelapp import IPKernelApp\n"
        "app = IPKernelApp.instance()\n"
        "print(app.transport, app.ip)"
    )
    notebook = write_notebook(tmp_path / "n.ipynb", "k = 0", code)
    sweep = run_sweep(notebook, {"k": [1]}, out=tmp_path / "out", warm=warm)
    transport, address = printed(run_of(sweep) / "n.ipynb").split()
    assert transport == "ipc"
    assert not Path(address).parent.exists()


def thread_count_of(pid):
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def cwd_of(pid):
    return Path(f"/proc/{pid}/cwd").readlink()


def eventually(holds):
    deadline = time.monotonic() + 120  # generous: other work may keep the machine busy
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        return stat.rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_this_process_counts_its_own_threads():
    code = "from kbeval.studies.warm_parent import thread_count; print(thread_count())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "1"
    assert thread_count() >= 1
