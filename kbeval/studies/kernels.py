"""The Jupyter kernel of the interpreter that started kbeval, without installing a kernelspec."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kbeval
from kbeval.errors import RunError

OWN = "python3"  # the neutral name that shipped notebooks carry
QUIET = {  # a kernel has no terminal: no progress bars, no colours (PM-04)
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TTY_INTERACTIVE": "0",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "PYTHONWARNINGS": 'ignore:IProgress not found,ignore:install "ipywidgets"',
}


def own_kernelspec() -> dict[str, str]:
    """What an executed notebook says about its kernel: version and environment (PM-03)."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    environment = Path(sys.prefix).name
    return {
        "name": OWN,
        "display_name": f"Python {version} ({environment})",
        "language": "python",
    }


def own_kernel_manager() -> type[Any]:
    """A kernel manager class that knows one kernel: this interpreter, whatever is installed."""
    import zmq
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    class OwnKernelSpec(KernelSpecManager):  # type: ignore[misc,unused-ignore]
        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            return KernelSpec(
                argv=[
                    sys.executable,
                    *("-Xfrozen_modules=off", "-m", "ipykernel_launcher"),
                    *("-f", "{connection_file}"),
                ],
                env=kernel_environment(),
                metadata={"supported_encryption": ["curve"]},
                **own_kernelspec(),
            )

    class OwnKernel(AsyncKernelManager):  # type: ignore[misc,unused-ignore]
        def __init__(self, **options: Any) -> None:  # noqa: ANN401
            super().__init__(**options)
            if self.has_trait("transport_encryption") and zmq.has("curve"):
                self.transport_encryption = "auto"  # other users of the machine cannot listen

        async def _async_pre_start_kernel(self, **options: Any) -> Any:  # noqa: ANN401
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            return await super()._async_pre_start_kernel(**{**silent, **options})

        def _kernel_spec_manager_default(self) -> KernelSpecManager:
            return OwnKernelSpec(parent=self)

    return OwnKernel


def kernel_environment() -> dict[str, str]:
    """Variables of a kernel beside those inherited: quiet, and with the same kbeval as here."""
    source = Path(kbeval.__file__).resolve().parents[1]
    if source.name in ("site-packages", "dist-packages"):
        return dict(QUIET)
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = dict.fromkeys([str(source), *(str(Path(path).resolve()) for path in inherited)])
    return {**QUIET, "PYTHONPATH": os.pathsep.join(paths)}


def checked_kernel(name: str) -> str:
    """The name of an installed kernel. Raises `RunError` listing those present."""
    from jupyter_client.kernelspec import KernelSpecManager

    present = sorted(KernelSpecManager().find_kernel_specs())
    if name.lower() not in present:
        raise RunError(
            f"no kernel is named {name!r}; present are {', '.join(present) or 'none'}; without "
            "a name the notebook runs with the interpreter of kbeval"
        )
    return name
