"""The process that warm kernels are forked from: it imports, waits, forks, and does nothing else.

It never starts a thread, an event loop or a zmq context: a process forked from one that did may
hang. `warm_kernels.py` starts it and talks to it over a socket, one line of JSON each way.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import json
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

KERNEL = (  # what a kernel imports by itself before its first cell
    "ipykernel_launcher",
    "ipykernel.kernelapp",
    "ipykernel.datapub",
    "ipykernel.debugger",
    "ipykernel.zmqshell",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.core.pylabtools",
    "IPython.extensions.storemagic",
    "tornado.platform.asyncio",
    "sqlite3",
    "psutil",
)


def serve(descriptor: int, modules: Sequence[str]) -> None:
    """Import the modules, say how many threads run here, then fork a kernel for each request.

    `descriptor` is that of a connected socket. When the other end closes it every kernel that
    still runs is killed. A module that cannot be imported is left for the notebook to complain.
    """
    with suppress(IndexError, ValueError):
        sys.path.remove("")  # a kernel puts it there itself
    for name in (*KERNEL, *modules):
        with suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # forked kernels do not copy these pages only to count references
    connection = socket.socket(fileno=descriptor)
    alive: dict[int, int | None] = {}  # pid -> exit code, None while it runs
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        print(json.dumps({"threads": thread_count()}), file=lines, flush=True)
        for line in lines:
            request = json.loads(line)
            if "cmd" in request:
                reply: dict[str, Any] = {"pid": _fork(request, connection)}
                alive[reply["pid"]] = None
            else:
                reply = {"code": _exit_code(request["pid"], alive)}
            print(json.dumps(reply), file=lines, flush=True)
    for pid, code in alive.items():
        if code is None and _exit_code(pid, alive) is None:
            _kill(pid)


def _kill(pid: int) -> None:
    """Kill a kernel and what it started; right after the fork it leads no group of its own yet."""
    for kill in (os.kill, os.killpg):
        with suppress(OSError):
            kill(pid, signal.SIGKILL)


def thread_count() -> int:
    """Threads of this process, those of C libraries included."""
    return len(list(Path("/proc/self/task").iterdir()))


def _exit_code(pid: int, alive: dict[int, int | None]) -> int | None:
    """The exit code of a forked kernel, negative for a signal, None while it runs."""
    if alive.get(pid, 0) is None:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            alive[pid] = os.waitstatus_to_exitcode(status)
    return alive.get(pid)


def _fork(request: Mapping[str, Any], connection: socket.socket) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(connection.fileno())
            _become(request)
            code = _run(request["cmd"])
        finally:
            os._exit(code)
    return pid


def _become(request: Mapping[str, Any]) -> None:
    """Make the forked process what a fresh one would be: session, folder, variables, seeds."""
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # its global state was copied
    asked = request["env"].get("OPENBLAS_NUM_THREADS", "")
    _let_compute(int(asked) if asked.isdecimal() else 1)


def _let_compute(threads: int) -> None:
    """Give the libraries imported above their threads back; they were imported with one."""
    if threads > 1:
        with suppress(ImportError):
            importlib.import_module("threadpoolctl").threadpool_limits(threads)


def _run(cmd: Sequence[str]) -> int:
    """The kernel, as `python -m ipykernel_launcher` would be; returns its exit code."""
    spec = importlib.util.find_spec("ipykernel_launcher")
    program = str(spec.origin) if spec else "ipykernel_launcher"
    arguments = list(cmd[cmd.index("ipykernel_launcher") + 1 :])
    sys.argv = [program, *arguments]
    code = 0
    try:
        importlib.import_module("ipykernel.kernelapp").launch_new_instance()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        code = 1
    for thread in threading.enumerate():
        if thread.name == "Control":  # it still writes to what ipykernel is about to close, and
            thread.join(timeout=2)  # would then wait for ever
        elif thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    return code
