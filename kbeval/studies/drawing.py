"""What every chart shares: colours, fonts that draw Chinese too, an empty figure without pyplot."""

from __future__ import annotations

import functools
import importlib.util
import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure

BLUE, SKY, ORANGE, VERMILION = "#0072B2", "#56B4E9", "#E69F00", "#D55E00"  # Okabe and Ito
INK, FAINT = "#222222", "#8a8a8a"
PACKAGED_FONT = "Noto Sans SC"
CJK_FONTS = (
    "Noto Sans CJK SC",
    PACKAGED_FONT,
    "Source Han Sans SC",
    "Source Han Sans CN",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "Microsoft YaHei",
    "SimHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Arial Unicode MS",
)


def legible(text: str) -> str:
    """The text with every character that no font here can draw shown as a hollow square.

    >>> legible("precision")
    'precision'
    """
    known = _drawable()
    return "".join(char if ord(char) in known or char.isspace() else "□" for char in text)


@functools.cache
def _families() -> tuple[str, ...]:
    from matplotlib import font_manager

    present = {font.name for font in font_manager.fontManager.ttflist}
    if not present & set(CJK_FONTS) and (packaged := _packaged_font()) is not None:
        font_manager.fontManager.addfont(packaged)
        present.add(PACKAGED_FONT)
    return ("DejaVu Sans", *(name for name in CJK_FONTS if name in present))[:2]


def _packaged_font() -> Path | None:
    """The CJK font that the package zhplot ships, for systems without one; it is not imported."""
    found = importlib.util.find_spec("zhplot")
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob("fonts/NotoSansSC*.ttf"), None)


@functools.cache
def _drawable() -> frozenset[int]:
    from matplotlib import font_manager

    known: set[int] = set()
    for family in _families():
        known |= set(font_manager.get_font(font_manager.findfont(family)).get_charmap())
    return frozenset(known)


@contextmanager
def chart_style() -> Iterator[None]:
    """Draw in the look of kbeval's charts while this holds."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "text.parse_math": False,
        "font.family": list(_families()),
        "font.size": 9.5,
        "axes.titlesize": 11,
        "figure.titlesize": 11,
        "axes.edgecolor": FAINT,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with mpl.rc_context(settings):
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure of so many inches that also shows itself in a notebook, without pyplot."""
    from matplotlib.figure import Figure

    class Chart(Figure):
        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png")
            return picture.getvalue()

    return Chart(figsize=(width, height), dpi=150, layout="constrained", facecolor="white")


def shades() -> Any:  # noqa: ANN401
    """The colour map of shares, white to blue."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("share", ["#ffffff", "#9ecae9", BLUE])


def finite_number(value: Any) -> float | None:  # noqa: ANN401
    """The number, or None where there is none that can be drawn."""
    return None if value is None or not math.isfinite(float(value)) else float(value)
