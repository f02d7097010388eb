"""What a saved index holds: rows as JSON lines, arrays as npz, and the encoder it belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.centres import CentredEncoder, centre_arrays, centre_from_arrays, with_centre
from kbeval.corpus.encoders import Encoder, open_encoder
from kbeval.errors import IndexFileError
from kbeval.retrieval.saved import read_file


def json_lines(items: Iterable[dict[str, Any]]) -> bytes:
    """One JSON object a line."""
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items).encode("utf-8")


def rows(content: bytes) -> Iterator[dict[str, Any]]:
    """The objects written by `json_lines`."""
    return map(json.loads, content.decode("utf-8").split("\n")[:-1])


def npz(named: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays under their names, without pickles."""
    buffer = BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(named))
    return buffer.getvalue()


def arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays written by `npz`."""
    with np.load(BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def encoder_files(encoder: Encoder) -> dict[str, bytes]:
    """The frozen centre of the index, if it has one."""
    if not isinstance(encoder, CentredEncoder):
        return {}
    return {"centre.npz": npz(centre_arrays(encoder.centre))}


def encoder_facts(encoder: Encoder) -> dict[str, Any]:
    """What the manifest says of the encoder; a centred one under its own fingerprint."""
    facts: dict[str, Any] = {
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        "dimension": encoder.dimension,
        "centre": "none",
    }
    if isinstance(encoder, CentredEncoder):
        centre = encoder.centre
        sources = {"_".join(key): source for key, source in centre.sources.items()}
        facts |= {"centre": centre.kind, "centre_sources": sources, "centre_notes": centre.notes}
    return facts


def encoder_of(folder: Path, manifest: Mapping[str, Any], encoder: Encoder | None) -> Encoder:
    """The encoder a saved index was built with: the one given, else opened by its name.

    Raises `IndexFileError` naming both encoders and both widths where they differ.
    """
    encoder = encoder or open_encoder(manifest["encoder"])
    if manifest["centre"] != "none" and not isinstance(encoder, CentredEncoder):
        centre = centre_from_arrays(
            manifest["centre"],
            arrays(read_file(folder, manifest, "centre.npz")),
            sources=manifest.get("centre_sources"),
            notes=manifest.get("centre_notes", ()),
        )
        encoder = with_centre(encoder, centre)
    if encoder.name != manifest["encoder"] or encoder.dimension != manifest["dimension"]:
        raise IndexFileError(
            f"{folder}: built with {manifest['encoder']} ({manifest['dimension']} numbers), "
            f"asked with {encoder.name} ({encoder.dimension} numbers); "
            "rebuild the index or select the model it was built with"
        )
    if encoder.fingerprint != manifest["encoder_fingerprint"]:
        raise IndexFileError(
            f"{folder}: built with another version of {encoder.name} or another centre "
            f"(fingerprint {manifest['encoder_fingerprint']}, now {encoder.fingerprint}); "
            "rebuild the index"
        )
    return encoder
