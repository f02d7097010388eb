"""L0: the documents whose own keys stand in the query (FS-2, design.md 8).

Folding is NFKC, case and blanks. After it a key matches where it stands in the query, with one
condition: where its end is a letter or digit of an alphabetic script, no other such letter or
digit may follow (or precede). CJK means the scripts written without blanks around words or with
particles attached to them: Han, kana, Bopomofo and Hangul. Their characters may stand anywhere and
bound everything else; all other scripts, Thai included, are alphabetic here. Punctuation and
emoji bound, too. A combining mark belongs to the character before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal
from unicodedata import category, is_normalized, normalize

from kbeval.config import L0Settings
from kbeval.records import Document

CJK = re.compile(
    "["
    "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303c"  # radicals, repeats, numerals
    "\u3031-\u3035\u3040-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"  # kana
    "\u3100-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # Han
    "\uff66-\uffdc"  # half-width kana and Hangul
    "]+"
)

Match = tuple[str, tuple[int, ...]]  # a folded key, the positions of the documents that have it
_Hit = tuple[int, int, Match]  # -length, start, match: sorted, the longest and leftmost is first

WIDE_MARKS = tuple(zip("：；！（）", ":;!()", strict=True))  # NFKC does this ten times slower
FOLDED = re.compile(r"[!-@\[-~\u4e00-\u9fff]++(?: [!-@\[-~\u4e00-\u9fff]++)*+")  # stays as it is


def fold(text: str) -> str:
    r"""The form in which keys and queries are compared: NFKC, case-folded, blanks collapsed.

    >>> fold("  ＡＰＩ\u3000Straße\n"), fold("重启 NGINX")
    ('api strasse', '重启 nginx')
    """
    if text.isascii():
        return " ".join(text.lower().split())
    if "，" in text:
        text = text.replace("，", ",")
    if "？" in text:
        text = text.replace("？", "?")
    if FOLDED.fullmatch(text):
        return text
    if not is_normalized("NFKC", text):
        for wide, narrow in WIDE_MARKS:
            text = text.replace(wide, narrow)
        text = normalize("NFKC", text)
    folded = text.casefold()
    if folded != text:
        folded = normalize("NFKC", folded)
    words = folded.split()
    return words[0] if len(words) == 1 else " ".join(words)


@dataclass(frozen=True, slots=True)
class L0Summary:
    """What the load report says about the exact keys: how many, and which are of little use.

    `shared` are keys of several documents: they can never be PRECISE. `too_short` are keys that
    count only when they are the whole query. Both map a folded key to the documents' paths.
    """

    key_count: int  # distinct folded keys, those too short included
    shared: Mapping[str, tuple[str, ...]]  # most documents first, then by key
    too_short: Mapping[str, tuple[str, ...]]  # by key


class ExactKeys:
    """The folded keys of a list of documents, all looked for in one pass over the query.

    Nothing of it is saved: it is built from the documents again (10,000 documents take well under
    a second), also after pickling. Reading is safe from any number of threads.
    """

    def __init__(self, documents: Sequence[Document], settings: L0Settings) -> None:
        self._settings = settings
        self._paths = tuple(document.path for document in documents)
        found: dict[str, list[int]] = {}
        for position, document in enumerate(documents):
            for key in dict.fromkeys(_keys(document, settings)):
                found.setdefault(key, []).append(position)
        self._positions = {key: tuple(positions) for key, positions in found.items()}
        self._automaton = _automaton(self._positions, settings)

    def __getstate__(self) -> tuple[L0Settings, tuple[str, ...], dict[str, tuple[int, ...]]]:
        return self._settings, self._paths, self._positions

    def __setstate__(
        self, state: tuple[L0Settings, tuple[str, ...], dict[str, tuple[int, ...]]]
    ) -> None:
        self._settings, self._paths, self._positions = state
        self._automaton = _automaton(self._positions, self._settings)

    def matches(self, query: str) -> list[int]:
        """Positions of the documents that match at L0, each once, ascending.

        >>> keys = ExactKeys([Document("a.md", "Nginx", "")], L0Settings())
        >>> keys.matches("重启nginx服务"), keys.matches("nginx2")
        ([0], [])
        """
        matched = self.matched_keys(query)
        if len(matched) <= 1:
            return list(matched[0][1]) if matched else []
        return sorted({position for _, positions in matched for position in positions})

    def matched_keys(self, query: str) -> list[Match]:
        """The folded keys that count in this query, as they stand in it, with their documents.

        Of overlapping matches the longest wins, of equally long ones the leftmost: matches are
        taken by length, then by place, and one that touches a taken one is dropped. Every document
        that has the key counts.
        """
        text = fold(query)
        whole = self._positions.get(text)
        if whole is not None:
            return [(text, whole)]
        found = self._standing(text)
        if len(found) > 1:
            found = _longest(found, len(text))
        matched = [match for _, _, match in found]
        return matched if len(matched) <= 1 else list(dict.fromkeys(matched))

    def _standing(self, text: str) -> list[_Hit]:
        """Every key that stands in the folded text, overlapping ones included."""
        found: list[_Hit] = []
        if self._automaton is None:
            return found
        for last, (matched, length, word_starts, word_ends) in self._automaton.iter(text):
            end = last + 1
            start = end - length
            if word_starts and start and _alphabetic(text, start - 1):
                continue
            if word_ends and end < len(text) and _alphabetic(text, end):
                continue
            found.append((-length, start, matched))
        return found

    def summary(self) -> L0Summary:
        """How many keys there are, which are shared, and which are too short to count."""
        shared = [key for key, positions in self._positions.items() if len(positions) > 1]
        shared.sort(key=lambda key: (-len(self._positions[key]), key))
        short = sorted(key for key in self._positions if _too_short(key, self._settings))
        return L0Summary(
            key_count=len(self._positions),
            shared={key: self._paths_of(key) for key in shared},
            too_short={key: self._paths_of(key) for key in short},
        )

    def _paths_of(self, key: str) -> tuple[str, ...]:
        return tuple(self._paths[position] for position in self._positions[key])


def _keys(document: Document, settings: L0Settings) -> Iterator[str]:
    """The document's folded keys; one that is only blanks is none."""
    for name in settings.fields:
        value: str | tuple[str, ...] = getattr(document, name)
        for key in (value,) if isinstance(value, str) else value:
            if folded := fold(key):
                yield folded


def _too_short(key: str, settings: L0Settings) -> bool:
    purely_cjk = CJK.fullmatch(key) is not None
    return len(key) < (settings.min_cjk_length if purely_cjk else settings.min_length)


def _automaton(positions: Mapping[str, tuple[int, ...]], settings: L0Settings) -> Any:  # noqa: ANN401
    """An Aho-Corasick automaton over the keys that are long enough; None where there are none.

    With a key it yields the match it makes, its length, and which of its ends need a boundary.
    """
    import ahocorasick

    automaton = ahocorasick.Automaton()
    for key, documents in positions.items():
        if not _too_short(key, settings):
            ends = _alphabetic(key, 0), _alphabetic(key, len(key) - 1)
            automaton.add_word(key, ((key, documents), len(key), *ends))
    automaton.make_automaton()
    return automaton if len(automaton) else None


def _alphabetic(text: str, at: int) -> bool:
    """A letter or digit of an alphabetic script stands there; a mark is what it stands on."""
    kind = _kind(text[at])
    while kind == "mark" and at > 0:
        at -= 1
        kind = _kind(text[at])
    return kind == "alphabetic"


@lru_cache(maxsize=8192)
def _kind(character: str) -> Literal["alphabetic", "cjk", "mark", "other"]:
    if CJK.match(character):
        return "cjk"
    if category(character).startswith("M"):
        return "mark"
    return "alphabetic" if character.isalnum() else "other"


def _longest(found: list[_Hit], length: int) -> list[_Hit]:
    """Of overlapping hits the longest, of equally long ones the leftmost; from left to right.

    What is taken is never shorter than what comes after it, so an overlap shows at an end.
    """
    size, first, _ = best = min(found)
    end = first - size
    if all(start < end and start - size > first for size, start, _ in found):
        return [best]  # most often: a key that is part of another one
    covered = bytearray(length)
    taken = []
    for hit in sorted(found):
        size, start, _ = hit
        end = start - size
        if not (covered[start] or covered[end - 1]):
            covered[start:end] = b"\1" * -size
            taken.append(hit)
    taken.sort(key=itemgetter(1))
    return taken
