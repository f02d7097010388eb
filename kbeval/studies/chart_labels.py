"""Where the names of marked points go: near their points, over nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

CHAR, LINE = 0.083, 0.17  # inches of a letter and of a line at the size of a label
DISTANCES = (0.13, 0.28, 0.45, 0.65, 0.9, 1.2)  # tried in this order, upwards and downwards


class Marked(NamedTuple):
    """A point with its name; with lines through it from `left` to `right`, `bottom` to `top`."""

    text: str
    x: float  # all in inches from the lower left corner
    left: float
    right: float
    y: float
    bottom: float
    top: float


class _Box(NamedTuple):
    left: float
    right: float
    bottom: float
    top: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )


def places_for(marked: Sequence[Marked], size: tuple[float, float]) -> list[tuple[float, float]]:
    """For each point how far its name stands from it, in inches: left of it where x is below 0.

    The first free place counts, near ones first; where none is free, the farthest. `size` is
    that of the axes.

    >>> points = [Marked("a", *[1] * 6), Marked("b", *[1] * 6)]
    >>> places_for(points, (4, 4))
    [(0.1, 0.13), (0.1, -0.13)]
    """
    taken = [box for mark in marked for box in _drawn(mark)]
    found = []
    for mark in marked:
        offsets = list(_offsets())
        inside = [o for o in offsets if _inside(_label(mark, o), size)] or offsets
        free = (o for o in inside if not any(_label(mark, o).meets(box) for box in taken))
        chosen = next(free, inside[-1])
        taken.append(_label(mark, chosen))
        found.append(chosen)
    return found


def _offsets() -> Iterator[tuple[float, float]]:
    for distance in DISTANCES:
        across = 0.1 if distance < 0.2 else 0.2
        yield from ((x, y) for x in (across, -across) for y in (distance, -distance))


def _label(mark: Marked, offset: tuple[float, float]) -> _Box:
    dx, dy = offset
    width = CHAR * len(mark.text)
    left = mark.x + dx if dx > 0 else mark.x + dx - width
    return _Box(left, left + width, mark.y + dy - LINE / 2, mark.y + dy + LINE / 2)


def _drawn(mark: Marked) -> tuple[_Box, _Box]:
    """The point with its line across, and its line upwards."""
    across = _Box(mark.left, mark.right, mark.y - 0.03, mark.y + 0.03)
    upright = _Box(mark.x - 0.04, mark.x + 0.04, mark.bottom - 0.03, mark.top + 0.03)
    return across, upright


def _inside(box: _Box, size: tuple[float, float]) -> bool:
    return box.left >= 0 and box.right <= size[0] and box.bottom >= 0 and box.top <= size[1]
