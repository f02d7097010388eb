"""The folder of a run and its manifest.json, written so that a killed run reads as not finished."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kbeval
from kbeval.errors import RunError
from kbeval.retrieval.saved import write_atomically

MANIFEST = "manifest.json"
INPUTS = (  # taken from evaluation*.json
    "set",
    "split",
    "encoder",
    "encoder_fingerprint",
    "centre",
    "convention",
    "corpus_fingerprint",
    "labels_fingerprint",
    "python",
)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One execution of a study: its folder, and its manifest as last written."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def status(self) -> str:
        """`ok`, `failed`, `interrupted`, or `running` for a run that goes on or was killed."""
        return str(self.manifest["status"])

    @property
    def notebooks(self) -> tuple[Path, ...]:
        """The executed notebooks that are there, in the order of the study."""
        paths = (self.path / entry["file"] for entry in self.manifest["notebooks"])
        return tuple(path for path in paths if path.is_file())


def read_run(folder: str | Path) -> RunFolder:
    """The run in a folder. Raises `RunError` if it holds no readable manifest."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise RunError(f"{folder}: not a run; a {MANIFEST} is expected")
    manifest = read_json(path)
    if "status" not in manifest:
        raise RunError(f"{path}: not the manifest of a run; a key 'status' is expected")
    return RunFolder(Path(folder), manifest)


def runs_in(folder: str | Path) -> list[RunFolder]:
    """The runs below a folder, oldest first; other folders are passed over."""
    found = [read_run(path.parent) for path in Path(folder).glob(f"*/{MANIFEST}")]
    return sorted(found, key=lambda run: (str(run.manifest.get("started")), run.path.name))


def new_manifest(
    study: str, fingerprint: str, notebooks: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """The manifest of a run that starts now: versions, study, notebooks still to run."""
    return {
        "study": study,
        "study_fingerprint": fingerprint,
        "kbeval": kbeval.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "started": now(),
        "ended": None,
        "status": "running",
        "inputs": {},
        "notebooks": list(notebooks),
    }


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest in one step: a reader sees the old one or the new one, never a half."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / MANIFEST, (text + "\n").encode("utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises `RunError` if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: holds a {type(content).__name__}; an object is expected")
    return content


def merge_inputs(folder: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """`inputs` with what the results in a folder (evaluation*.json, replay.json) rest on.

    Where two of them differ the value is the list of both. An unreadable file is a `RunError`.
    """
    merged = dict(inputs)
    for path in sorted([*folder.glob("evaluation*.json"), *folder.glob("replay.json")]):
        content = read_json(path)
        for key in INPUTS:
            if key in content:
                merged[key] = _both(merged[key], content[key]) if key in merged else content[key]
    return merged


def now() -> str:
    """The present moment, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _both(first: Any, second: Any) -> Any:  # noqa: ANN401
    known = first if isinstance(first, list) else [first]
    return first if second in known else [*known, second]
