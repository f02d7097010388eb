"""Progress on long work: a bar on stderr, only where someone is looking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A callback (done, total) that draws a bar with its first call; none without a terminal."""
    from tqdm import tqdm

    bars: dict[int, tqdm[Any]] = {}

    def report(done: int, total: int) -> None:
        if total not in bars:
            bars[total] = tqdm(total=total, desc=label, unit=" texts", disable=None)
        bars[total].update(done - bars[total].n)

    try:
        yield report
    finally:
        for bar in bars.values():
            bar.close()
