"""What is known of each encoder: one data file, `profiles.yml`, and the arrays beside it.

A profile carries what thresholds depend on: prompts, dimension, norm, window, checksums, the
kind of centre, recommended cuts (design.md 13). What was not measured is null, never invented.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from kbeval.errors import EncoderError
from kbeval.records import Kind

CentreKind = Literal["none", "generic", "passages+generic", "passages+queries"]
CENTRE_KINDS: tuple[CentreKind, ...] = ("none", "generic", "passages+generic", "passages+queries")
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Profile:
    """The properties of one encoder.

    `window` is in tokens and includes prompt and special tokens; None: the model's own config
    tells. `recommended_cuts` are keyed by kind of centre. `checksums` map file names to sha256.
    `semantic` is False for a stand-in that only compares spelling.
    """

    name: str
    description: str
    dimension: int | None = None
    norm: float = 1.0
    window: int | None = None  # tokens
    passage_tokens: int = 128  # tokens of a passage, title included
    default_centre: CentreKind = "none"
    semantic: bool = True
    languages: tuple[str, ...] = ()
    licence: str = ""
    prompts: Mapping[Kind, str] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    recommended_cuts: Mapping[str, Any] | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)
    probe: str = ""  # the sentence whose vector is checked when the model loads


@cache
def profiles() -> Mapping[str, Profile]:
    """All known profiles by name."""
    table = yaml.safe_load((FOLDER / "profiles.yml").read_text(encoding="utf-8"))
    known: dict[str, Profile] = {}
    for name, row in table.items():
        fields = {key.replace("-", "_"): value for key, value in row.items()}
        fields["languages"] = tuple(fields.get("languages", ()))
        known[name] = Profile(name=name, **fields)
    return known


def profile_of(name: str) -> Profile:
    """The profile of an encoder; a model without one gets the defaults, and nothing measured."""
    known = profiles()
    if name in known:
        return known[name]
    return Profile(name=name, description="a sentence-transformers model without a profile")


@cache
def profile_arrays(name: str) -> Mapping[str, NDArray[np.float32]]:
    """The arrays shipped with a profile; empty where there are none.

    `probe` is the vector of the probe sentence as a query, (d,); `query_zh`, `query_en`,
    `passage_zh` and `passage_en` are the generic means, (d,) each.
    """
    path = FOLDER / f"{name}.npz"
    if "/" in name or "\\" in name or not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


@cache
def generic_texts() -> Mapping[str, tuple[str, ...]]:
    """The texts behind the generic means: `query_zh`, `query_en`, `passage_zh`, `passage_en`."""
    table = yaml.safe_load((FOLDER / "generic_texts.yml").read_text(encoding="utf-8"))
    return {key: tuple(texts) for key, texts in table.items()}


def checked_centre_kind(kind: str) -> CentreKind:
    """The kind of centre named by the user. Raises `EncoderError` naming the allowed kinds."""
    for known in CENTRE_KINDS:
        if kind == known:
            return known
    raise EncoderError(f"centre: unknown kind {kind!r}; known are {', '.join(CENTRE_KINDS)}")
