"""The kernels of a sweep: over `ipc`, warm if there is a parent to fork from, and quick to end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from kbeval.studies.kernels import own_kernel_manager
from kbeval.studies.warm_kernels import THREADS, WarmParent, WarmProcess

SETTLE = 0.03  # s


class IpcFolder:
    """A private folder for connection files and sockets, short enough for a socket's path."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="kbeval-"))  # mode 0700
        if len(str(self.path)) > 60:
            shutil.rmtree(self.path)
            self.path = Path(tempfile.mkdtemp(prefix="kbeval-", dir="/tmp"))

    def __enter__(self) -> IpcFolder:
        return self

    def __exit__(self, *problem: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def sweep_kernel_manager(
    folder: IpcFolder,
    parent: WarmParent | None = None,
    *,
    threads: int = 1,
    started: tuple[list[Any], ...] = (),
) -> type[Any]:
    """A manager of this interpreter's kernel over `ipc`, forked from `parent` if there is one.

    Each kernel may have so many compute `threads`, unless the environment says otherwise. Every
    manager made is appended to the lists `started`, so that its kernel can be ended from
    outside. On Windows, where `ipc` is not to be had, kernels stay on TCP.
    """
    own = own_kernel_manager()

    class SweepKernel(own):  # type: ignore[misc,valid-type]
        def __init__(self, **options: Any) -> None:  # noqa: ANN401
            super().__init__(**options)
            if sys.platform != "win32":
                _talk_over_ipc(self, folder.path / uuid.uuid4().hex[:8])
            _note(self, started)

        async def _async_pre_start_kernel(self, **options: Any) -> Any:  # noqa: ANN401
            inherited = dict(options.get("env") or os.environ)
            options["env"] = {**dict.fromkeys(THREADS, str(threads)), **inherited}
            if parent is not None:
                _provision(self, parent)
            return await super()._async_pre_start_kernel(**options)

        async def _async_wait(self, pollinterval: float = 0.1) -> None:
            process = getattr(self.provisioner, "process", None)
            if isinstance(process, WarmProcess):
                await process.gone()
            else:
                await super()._async_wait(pollinterval=min(pollinterval, SETTLE))

        def client(self, **options: Any) -> Any:  # noqa: ANN401
            self.client_factory = _client()
            return super().client(**options)

    return SweepKernel


def _note(manager: Any, started: tuple[list[Any], ...]) -> None:  # noqa: ANN401
    for each in started:
        each.append(manager)


def _talk_over_ipc(manager: Any, name: Path) -> None:  # noqa: ANN401
    manager.transport, manager.ip = "ipc", f"{name}-s"
    manager.connection_file = f"{name}.json"
    if manager.has_trait("transport_encryption"):
        manager.transport_encryption = "disabled"  # the folder's mode keeps others out


def _provision(manager: Any, parent: WarmParent) -> None:  # noqa: ANN401
    if manager.provisioner is None:  # it is there on a restart
        manager.kernel_id = manager.kernel_id or str(uuid.uuid4())
        manager.provisioner = _provisioner(parent)(
            kernel_id=manager.kernel_id, kernel_spec=manager.kernel_spec, parent=manager
        )


def kill_kernel(manager: Any) -> bool:  # noqa: ANN401
    """Kill a manager's kernel and what it started, at once; False if it has none (yet)."""
    process = getattr(getattr(manager, "provisioner", None), "process", None)
    if process is None or process.poll() is not None:
        return False
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (OSError, AttributeError):
        process.kill()
    return True


def _client() -> type[Any]:
    """A client that, once the kernel has answered, does not listen 0.2 s for stray messages."""
    from jupyter_client import asynchronous

    usual: Any = asynchronous.AsyncKernelClient  # type: ignore[attr-defined,unused-ignore]

    class QuickClient(usual):  # type: ignore[misc,unused-ignore]
        async def wait_for_ready(self, timeout: float | None = None) -> None:
            channel = self.iopub_channel
            patient = channel.get_msg

            def brief(timeout: float) -> Any:  # noqa: ANN401
                return patient(timeout=min(timeout, SETTLE))

            channel.get_msg = brief
            try:
                await super().wait_for_ready(timeout=timeout)
            finally:
                channel.get_msg = patient

    return QuickClient


def _provisioner(parent: WarmParent) -> type[Any]:
    from jupyter_client import provisioning

    local: Any = provisioning.LocalProvisioner  # type: ignore[attr-defined,unused-ignore]

    class WarmProvisioner(local):  # type: ignore[misc,unused-ignore]
        async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:  # noqa: ANN401
            self.cwd = str(options.get("cwd") or Path.cwd())
            environment = options.get("env") or os.environ
            process = await asyncio.to_thread(parent.fork, cmd, env=environment, cwd=self.cwd)
            self.process: WarmProcess | None = process
            self.pid = self.pgid = process.pid
            return self.connection_info

        async def wait(self) -> int | None:
            if self.process is None:
                return 0
            await self.process.gone()
            code: int | None = self.process.poll()
            self.process = None
            return code

    return WarmProvisioner
