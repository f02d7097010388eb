"""Where a text may be cut: blocks, then sentences, then lines, then blanks, then characters.

A piece is a half-open span of the text. Between them the pieces of a text hold every non-blank
character once and in order, so that nothing can be lost by cutting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Literal, NamedTuple

PieceKind = Literal["heading", "paragraph", "code"]


class Piece(NamedTuple):
    """A span of a text that is not cut unless it is too long."""

    start: int
    end: int
    kind: PieceKind


_FENCE = re.compile(r"[ \t]*(`{3,}(?!.*`)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|\Z)")
_SENTENCE_END = re.compile(r"[。！？；][”’」』）】]*|[.!?…]+[\"'”’)\]]*(?=\s)")
_LINE_END = re.compile(r"\n")
_BLANKS = " \t\n\r\u3000"
_CJK_MARKS = "，、：。；！？）》」"
_FILL = 0.9  # of the room that a piece cut at blanks should take


def blocks(text: str) -> list[Piece]:
    r"""Headings, paragraphs and fenced code of a markdown text, each a `Piece`.

    Paragraphs end at blank lines, headings and fences; a fence that is never closed runs to the
    end.

    >>> text = "# A\nb\n\nc"
    >>> [(text[start:end], kind) for start, end, kind in blocks(text)]
    [('# A', 'heading'), ('b', 'paragraph'), ('c', 'paragraph')]
    """
    found: list[Piece] = []
    for (kind, _), run in groupby(_lines(text), key=itemgetter(0, 1)):
        if kind != "blank":
            lines = list(run)
            found.append(Piece(lines[0][2], lines[-1][3], kind))
    return found


def _lines(text: str) -> Iterator[tuple[Any, int, int, int]]:
    """Each line as (kind, number of its heading or fence, start, end)."""
    fence, number, start = "", 0, 0
    for line in text.split("\n"):
        kind = "paragraph" if line.strip() else "blank"
        mark = _FENCE.match(line)
        if fence:
            kind = "code"
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        elif mark:
            kind, fence, number = "code", mark[1], number + 1
        elif _HEADING.match(line):
            kind, number = "heading", number + 1
        yield kind, number, start, start + len(line)
        start += len(line) + 1


def finer(text: str, piece: Piece, *, tokens: int, room: int) -> list[Piece]:
    """The piece in parts: at the first kind of boundary it has inside.

    Prose is cut at sentence ends (Chinese and English), else at line ends; code at line ends.
    What has neither is cut evenly into parts that should fit `room` (of `tokens` in all): at
    blanks, else after Chinese marks, else between characters. A single character stays whole.
    """
    ends = (_LINE_END,) if piece.kind == "code" else (_SENTENCE_END, _LINE_END)
    for boundary in ends:
        cuts = [match.end() for match in boundary.finditer(text, piece.start, piece.end)]
        parts = _cut(text, piece, cuts)
        if len(parts) > 1:
            return parts
    return _cut(text, piece, _even_cuts(text, piece, max(math.ceil(tokens / (room * _FILL)), 2)))


def _cut(text: str, piece: Piece, cuts: Iterable[int]) -> list[Piece]:
    """The parts between the cuts that are not blank, without blank lines in front."""
    edges = [piece.start, *cuts, piece.end]
    parts = [(start, end) for start, end in pairwise(edges) if text[start:end].strip()]
    return [Piece(_begin(text, start, end), end, piece.kind) for start, end in parts]


def _begin(text: str, start: int, end: int) -> int:
    """Where a part starts: an indentation belongs to its line, other blanks to what went before."""
    solid = end - len(text[start:end].lstrip())
    line = text.rfind("\n", 0, solid) + 1
    return line if line >= start else solid


def _even_cuts(text: str, piece: Piece, count: int) -> list[int]:
    """Positions that divide the piece into about `count` parts, moved back to better places."""
    step = max((piece.end - piece.start) // count, 1)
    cuts: list[int] = []
    position = piece.start + step
    while position < piece.end:
        cut = _better(text, position - step // 2, position)
        cuts.append(cut)
        position = cut + step
    return cuts


def _better(text: str, low: int, high: int) -> int:
    """The last place from `low` to `high` behind a blank, else behind a Chinese mark, else high."""
    for marks in (_BLANKS, _CJK_MARKS):
        found = max(text.rfind(mark, low, high) for mark in marks)
        if found >= 0:
            return found + 1
    return high
