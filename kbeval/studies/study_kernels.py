"""The kernels of a study: forked from one warm parent, so that each notebook imports nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kbeval.errors import RunError
from kbeval.studies.sweep_kernels import IpcFolder, sweep_kernel_manager
from kbeval.studies.warm_kernels import WarmParent, can_fork
from kbeval.studies.warm_modules import modules_of

KernelClass = Callable[[], "type[Any] | None"]


@contextmanager
def study_kernels(notebooks: Sequence[Path]) -> Iterator[KernelClass]:
    """What gives the class of the notebooks' kernels, once the warm parent has imported.

    The imports begin at once, so that other work can go on beside them. None, a plain kernel,
    for a single notebook and where a fork is not safe.
    """
    if len(notebooks) < 2 or not can_fork():
        yield lambda: None
        return
    modules = dict.fromkeys(name for notebook in notebooks for name in modules_of(notebook))
    with ExitStack() as stack:
        folder = stack.enter_context(IpcFolder())
        parent = stack.enter_context(WarmParent(tuple(modules)))
        yield lambda: _warm(parent, folder)


def _warm(parent: WarmParent, folder: IpcFolder) -> type[Any] | None:
    try:
        parent.wait_ready()
    except RunError:
        return None
    return sweep_kernel_manager(folder, parent, threads=os.cpu_count() or 1)
