"""Texts on their way to and from a language model: cleaned, cut at a character, first sentences."""

from __future__ import annotations

import re
import unicodedata

_JOINER = "\u200d"
_KEYCAP_AND_VARIATIONS = {"\u20e3", *map(chr, range(0xFE00, 0xFE10))}
_SENTENCE_END = re.compile(r"[。！？!?…]+[”’」』）)\"']*|\.+[”’\"')]*(?=\s|$)")
_ABBREVIATION = re.compile(r"(?:\b[A-Za-z]|\b(?:e\.g|i\.e|etc|vs|No|cf|Dr|Mr|Ms|Mrs|St|approx))\.$")


def clean(text: str) -> str:
    r"""The text as it can be sent, stored and printed: no lone surrogate, no control character.

    A lone surrogate becomes U+FFFD, other control characters than tab and newline a blank.

    >>> clean("a\ud800b\x00c")
    'a�b c'
    """
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", " ", text.replace("\r\n", "\n"))


def excerpt(text: str, limit: int = 1000) -> str:
    r"""The first `limit` code points, fewer where the cut would split a character as it is read.

    Combining marks, variation selectors, joined and skin-toned emoji, flags, and Hangul
    syllables written in parts stay whole (REQ-02.2).

    >>> excerpt("ae\u0301x", 2)
    'a'
    """
    if len(text) <= limit:
        return text
    cut = limit
    while cut and _joined(text, cut):
        cut -= 1
    return text[: cut or limit]  # a single character longer than the limit is cut after all


def first_sentence(text: str) -> str:
    """The first sentence of a Chinese or English text, with its end mark; else the whole text.

    >>> first_sentence("涉及限流时检索。鉴权另见 auth。")
    '涉及限流时检索。'
    >>> first_sentence("See v1.2, e.g. this. Or that.")
    'See v1.2, e.g. this.'
    """
    text = text.strip()
    first = text.splitlines()[0].rstrip() if text else ""
    for end in _SENTENCE_END.finditer(first):
        if not _ABBREVIATION.search(first[: end.end()]) or end.end() == len(first):
            return first[: end.end()]
    return first


def _joined(text: str, cut: int) -> bool:
    """Whether the code points before and after `cut` are one character to a reader."""
    before, after = text[cut - 1], text[cut]
    if after in _KEYCAP_AND_VARIATIONS or _JOINER in (before, after):
        return True
    if unicodedata.category(after).startswith("M") or 0x1F3FB <= ord(after) <= 0x1F3FF:
        return True
    if 0x1160 <= ord(after) <= 0x11FF:  # a Hangul vowel or final consonant
        return True
    return before + after == "\r\n" or _inside_flag(text, cut)


def _inside_flag(text: str, cut: int) -> bool:
    """Whether `cut` lies between the two letters of a flag."""
    start = cut
    while start and _is_flag_letter(text[start - 1]):
        start -= 1
    return _is_flag_letter(text[cut]) and (cut - start) % 2 == 1


def _is_flag_letter(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF
