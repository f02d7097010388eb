"""Centring: one mean per side and language, subtracted, renormalised (design.md 13).

Vectors of some encoders crowd into a narrow cone; without their mean the distances spread and
one cut serves several languages. A centre is frozen when an index is built and is part of the
encoder's fingerprint; cuts belong to (encoder, kind of centre).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbeval.corpus.encoder import Encoder
from kbeval.corpus.profiles import CentreKind, checked_centre_kind, profile_arrays
from kbeval.errors import EncoderError, VectorError
from kbeval.records import Kind

Script = Literal["zh", "en"]
LEAST_TEXTS = 20  # real texts of a side and language from which a mean is taken
CJK_SHARE = 0.25  # of the letters, from which a text counts as Chinese
SCRIPT_CHARACTERS = 2000  # of a text that are looked at
_SCRIPTS: tuple[Script, ...] = ("zh", "en")
_SIDES: tuple[Kind, ...] = ("query", "passage")
_CJK = re.compile(r"[㐀-鿿豈-﫿぀-ヿ]")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True, eq=False)
class Centre:
    """The means of one knowledge base and encoder.

    `means` is keyed by side and language, such as ("query", "zh"), each of shape (d,) and not of
    unit norm. `sources` says for each key where its mean is from, for example "generic" or
    "312 texts"; `notes` what the user should know. A centre of kind "none" has no means.
    """

    kind: CentreKind
    means: Mapping[tuple[Kind, Script], NDArray[np.float32]] = field(default_factory=dict)
    sources: Mapping[tuple[Kind, Script], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Over the kind and every number of the means."""
        digest = sha256(self.kind.encode())
        for key in sorted(self.means):
            digest.update("/".join(key).encode())
            digest.update(np.ascontiguousarray(self.means[key], dtype="<f4").tobytes())
        return digest.hexdigest()[:32]


def script_of(text: str) -> Script:
    """The language by script: "zh" if a quarter of the letters are CJK, else "en".

    Digits and signs do not count; every script that is not Chinese or Japanese counts as "en".

    >>> script_of("重启nginx服务"), script_of("restart nginx (重启)"), script_of("404")
    ('zh', 'en', 'en')
    """
    head = text[:SCRIPT_CHARACTERS]
    if head.isascii():
        return "en"
    letters = len(_LETTER.findall(head))
    return "zh" if letters and len(_CJK.findall(head)) >= CJK_SHARE * letters else "en"


def fit_centre(
    encoder: Encoder,
    kind: str,
    *,
    passage_vectors: NDArray[np.float32] | None = None,
    passage_texts: Sequence[str] = (),
    query_vectors: NDArray[np.float32] | None = None,
    query_texts: Sequence[str] = (),
) -> Centre:
    """The means of a kind of centre, from raw vectors (n, d) of an index and of real queries.

    Queries come from a dev split or a log, never from test and never from titles. A side and
    language with fewer than 20 texts gets the generic constant of the encoder's profile; where
    the profile has none, the mean over both languages of that side. `notes` tells either.
    Raises `EncoderError` for an unknown kind, or where there is nothing to take a mean from.
    """
    kind = checked_centre_kind(kind)
    if kind == "none":
        return Centre("none")
    own: dict[Kind, dict[Script, NDArray[np.float32]]] = {"query": {}, "passage": {}}
    if kind != "generic":
        own["passage"] = _by_script(passage_vectors, passage_texts)
    if kind == "passages+queries":
        own["query"] = _by_script(query_vectors, query_texts)
    means: dict[tuple[Kind, Script], NDArray[np.float32]] = {}
    sources: dict[tuple[Kind, Script], str] = {}
    for side in _SIDES:
        for script in _SCRIPTS:
            means[side, script], sources[side, script] = _mean(encoder, own[side], side, script)
    return Centre(kind, means, sources, _notes(kind, own, sources))


def apply_centre(
    centre: Centre, vectors: ArrayLike, texts: Sequence[str], side: Kind
) -> NDArray[np.float32]:
    """Raw vectors (n, d) of texts (n) without their mean, of unit norm again.

    Raises `VectorError` for a vector that equals its mean, or for another width.
    """
    rows = np.asarray(vectors, dtype=np.float32)
    if centre.kind == "none" or not len(rows):
        return rows
    width = len(centre.means[side, "en"])
    if rows.ndim != 2 or rows.shape != (len(texts), width):
        raise VectorError(
            f"vectors have shape {rows.shape}, the centre expects ({len(texts)}, {width})"
        )
    table = np.stack([centre.means[side, script] for script in _SCRIPTS])
    mean = table[[_SCRIPTS.index(script_of(text)) for text in texts]]
    rows = rows - mean
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if (norms < 1e-6).any():
        at = int(np.argmin(norms))
        raise VectorError(
            f"{texts[at][:40]!r}: the embedding equals the centre, nothing is left of it"
        )
    centred: NDArray[np.float32] = (rows / norms).astype(np.float32)
    return centred


class CentredEncoder:
    """An encoder whose vectors are centred; caches keep the raw ones, so centring comes after."""

    def __init__(self, raw: Encoder, centre: Centre) -> None:
        self.raw = raw
        self.centre = centre
        self.name = raw.name
        self.dimension = raw.dimension
        self.window = raw.window
        self.semantic = getattr(raw, "semantic", True)

    @cached_property
    def fingerprint(self) -> str:
        """Over the raw encoder's fingerprint and the centre's."""
        both = f"{self.raw.fingerprint}|{self.centre.fingerprint}"
        return sha256(both.encode()).hexdigest()[:32]

    def centred(
        self, vectors: NDArray[np.float32], texts: Sequence[str], kind: Kind
    ) -> NDArray[np.float32]:
        """Raw vectors (n, d), centred."""
        return apply_centre(self.centre, vectors, texts, kind)

    def encode(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Centred vectors of shape (n, d)."""
        return self.centred(self.raw.encode(texts, kind), texts, kind)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, as the raw encoder counts them."""
        return self.raw.count_tokens(texts)


def with_centre(encoder: Encoder, centre: Centre) -> Encoder:
    """The encoder with a centre; the encoder itself for kind "none". A second centre replaces."""
    raw = encoder.raw if isinstance(encoder, CentredEncoder) else encoder
    return raw if centre.kind == "none" else CentredEncoder(raw, centre)


def centre_arrays(centre: Centre) -> dict[str, NDArray[np.float32]]:
    """The means under names fit for a file: `query_zh`, `query_en`, `passage_zh`, `passage_en`."""
    return {f"{side}_{script}": mean for (side, script), mean in centre.means.items()}


def centre_from_arrays(
    kind: str,
    arrays: Mapping[str, NDArray[np.float32]],
    *,
    sources: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Centre:
    """The centre written by `centre_arrays`. Raises `EncoderError` where a mean is missing."""
    kind = checked_centre_kind(kind)
    if kind == "none":
        return Centre("none", notes=tuple(notes))
    keys = [(side, script) for side in _SIDES for script in _SCRIPTS]
    if missing := [f"{a}_{b}" for a, b in keys if f"{a}_{b}" not in arrays]:
        raise EncoderError(f"centre of kind {kind}: the means {', '.join(missing)} are missing")
    means = {(a, b): np.asarray(arrays[f"{a}_{b}"], dtype=np.float32) for a, b in keys}
    told = {(a, b): (sources or {}).get(f"{a}_{b}", "") for a, b in keys}
    return Centre(kind, means, told, tuple(notes))


def _by_script(
    vectors: NDArray[np.float32] | None, texts: Sequence[str]
) -> dict[Script, NDArray[np.float32]]:
    if vectors is None or not len(texts):
        return {}
    if len(vectors) != len(texts):
        raise VectorError(f"{len(vectors)} vectors for {len(texts)} texts; one each is expected")
    scripts = np.array([script_of(text) for text in texts])
    return {script: vectors[scripts == script] for script in _SCRIPTS}


def _mean(
    encoder: Encoder, own: Mapping[Script, NDArray[np.float32]], side: Kind, script: Script
) -> tuple[NDArray[np.float32], str]:
    rows = own.get(script)
    if rows is not None and len(rows) >= LEAST_TEXTS:
        return rows.mean(axis=0, dtype=np.float64).astype(np.float32), f"{len(rows)} texts"
    generic = profile_arrays(encoder.name).get(f"{side}_{script}")
    if generic is not None:
        return generic, "generic"
    both = np.concatenate([*own.values()]) if own else np.empty((0, encoder.dimension))
    if len(both) < LEAST_TEXTS:
        raise EncoderError(
            f"encoder {encoder.name} has no generic centre and there are {len(both)} {side} texts; "
            f"a centre needs at least {LEAST_TEXTS} of each side, or centre: none"
        )
    return both.mean(axis=0, dtype=np.float64).astype(
        np.float32
    ), f"{len(both)} texts, any language"


def _notes(
    kind: CentreKind,
    own: Mapping[Kind, Mapping[Script, NDArray[np.float32]]],
    sources: Mapping[tuple[Kind, Script], str],
) -> tuple[str, ...]:
    """What was asked of the data and had to be replaced."""
    asked: Mapping[CentreKind, tuple[Kind, ...]] = {
        "passages+generic": ("passage",),
        "passages+queries": ("passage", "query"),
    }
    notes: list[str] = []
    for side, script in sources:
        count, of_side = len(own[side].get(script, ())), sum(map(len, own[side].values()))
        absent = count == 0 < of_side  # a language the texts do not have is no news
        if side in asked.get(kind, ()) and count < LEAST_TEXTS and not absent:
            notes.append(
                f"{count} {script} {side} texts are fewer than {LEAST_TEXTS}: "
                f"their centre is {sources[side, script]}"
            )
    return tuple(notes)
