"""What a confirming part was first used for: it can confirm once (method.md 6)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kbeval.errors import RunError
from kbeval.evaluation.judge import Judged


def first_use(
    folder: Path, confirming: Judged, used: Mapping[str, Any], fingerprint: str | None = None
) -> str:
    """Record in `folder` what these labels are used for; a text if they served something else.

    Empty at the first use, and where the same is worked out again. Raises `RunError` if the
    record cannot be written, or read.
    """
    labels = fingerprint or labels_fingerprint(confirming)
    told = json.loads(json.dumps(dict(used) | {"evidence": _evidence_fingerprint(confirming)}))
    file = folder / f"confirmed-{hashlib.sha256(labels.encode()).hexdigest()[:16]}.json"
    record = {"labels": labels, "first_use": datetime.now(UTC).isoformat(), **told}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    except FileExistsError:
        return _other_use(file, told)
    except OSError as error:
        raise RunError(f"{file}: the first use cannot be recorded: {error.strerror}") from None
    return ""


def labels_fingerprint(judged: Judged) -> str:
    """Names labelled queries by position, cluster and answerability; no encoder has part in it."""
    return _hashed(judged.query, judged.cluster, judged.answerable)


def _other_use(file: Path, told: Mapping[str, Any]) -> str:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        same = all(record[key] == value for key, value in told.items())
        asked, when = record["asked"], record["first_use"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{file}: not a record of a first use ({error}); without it nothing can be certified"
        ) from None
    return "" if same else f"these labels confirmed {asked} on {when}; they confirm once"


def _evidence_fingerprint(judged: Judged) -> str:
    return _hashed(judged.distance, judged.worth, judged.tau)


def _hashed(*arrays: np.ndarray[Any, Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
