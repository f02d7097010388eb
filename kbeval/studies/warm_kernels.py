"""Standard kernels forked from a warm parent, so that a run does not import everything again.

To papermill they are kernels like others: jupyter_client's provisioner, which starts a process,
asks the parent to fork one instead. Where fork or pidfd is not to be had, plain kernels serve.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kbeval.errors import RunError
from kbeval.studies.kernels import kernel_environment
from kbeval.studies.warm_modules import USUAL

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
INLINE = "module://matplotlib_inline.backend_inline"  # what a kernel sets before its first cell
_PROGRAM = "import sys; from kbeval.studies.warm_parent import serve; serve({}, {!r})"


def can_fork() -> bool:
    """Whether warm kernels are to be had: Linux with pidfd; elsewhere a fork is not safe."""
    return sys.platform.startswith("linux") and hasattr(os, "pidfd_open")


class WarmParent:
    """A process that has imported `modules` and forks kernels; a context manager.

    The imports begin at once and are waited for by the first kernel. Raises `RunError` there if
    the process does not come up, or came up with threads, which a fork would break.
    """

    def __init__(self, modules: Sequence[str] = USUAL) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **kernel_environment(), **dict.fromkeys(THREADS, "1")}
        environment.setdefault("MPLBACKEND", INLINE)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-Xfrozen_modules=off",
                    "-c",
                    _PROGRAM.format(theirs.fileno(), tuple(modules)),
                ],
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the sweep; it ends its kernels
            )
        self._socket = ours
        self._lines = ours.makefile("rw", encoding="utf-8")
        self._lock = threading.Lock()
        self._ready = False

    def __enter__(self) -> WarmParent:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def wait_ready(self) -> None:
        """Wait until the imports are done. Raises `RunError` if that fails."""
        self._ask({"pid": 0})

    @property
    def pid(self) -> int:
        """The process id of the parent."""
        return self._process.pid

    def fork(self, cmd: Sequence[str], *, env: Mapping[str, str], cwd: str) -> WarmProcess:
        """Fork a kernel with these arguments, variables and working directory."""
        request = {"cmd": list(cmd), "env": dict(env), "cwd": cwd}
        return WarmProcess(self, int(self._ask(request)["pid"]))

    def exit_code(self, pid: int) -> int | None:
        """The exit code of a forked kernel, None while it runs; -9 if the parent is gone."""
        try:
            code: int | None = self._ask({"pid": pid})["code"]
        except RunError:
            return -signal.SIGKILL
        return code

    def close(self) -> None:
        """End the parent and every kernel that still runs."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._socket.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            try:
                if not self._ready:
                    self._greet()
                print(json.dumps(request), file=self._lines, flush=True)
                reply: dict[str, Any] = json.loads(self._lines.readline())
            except (OSError, ValueError) as error:
                raise RunError(
                    f"the warm parent of the kernels ended ({error}); --plain does without it"
                ) from None
        return reply

    def _greet(self) -> None:
        threads = json.loads(self._lines.readline())["threads"]
        if threads != 1:
            raise RunError(
                f"the warm parent runs {threads} threads after its imports; 1 is allowed, "
                "--plain does without it"
            )
        self._ready = True


class WarmProcess:
    """A forked kernel under the names of `subprocess.Popen` that a provisioner uses."""

    stdin = stdout = stderr = None

    def __init__(self, parent: WarmParent, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._parent = parent
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._parent.exit_code(self.pid)
            if self.returncode is not None:
                os.close(self._handle)
        return self.returncode

    async def gone(self) -> None:
        """Return as soon as the process has ended."""
        if self.poll() is not None:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._handle)
        self.poll()

    def wait(self) -> int | None:
        """The exit code of a process that has ended."""
        return self.poll()

    def send_signal(self, signum: int) -> None:
        """Send a signal, to the process alone."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)
