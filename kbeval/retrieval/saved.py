"""A saved index on disk: all or nothing, checked when it is read.

A folder holds `manifest.json` and the files it names. New files get new names; the manifest is
replaced last, in one step, so a kill at any moment leaves the old index or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbeval.errors import IndexFileError

MANIFEST = "manifest.json"
FORMAT = 1


def write_index(folder: Path, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> None:
    """Write the named contents and a manifest of `facts`; the former index is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = {}
    for name, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        stem, _, ending = name.partition(".")
        stored = f"{stem}-{digest[:16]}.{ending}"
        if not _holds(folder / stored, digest):
            write_atomically(folder / stored, content)
        entries[name] = {"file": stored, "sha256": digest, "bytes": len(content)}
    manifest = {"format": FORMAT, **facts, "files": entries}
    text = json.dumps(manifest, ensure_ascii=False, indent=1, allow_nan=False)
    former = _stored_names(folder)
    write_atomically(folder / MANIFEST, text.encode("utf-8"))
    for name in former - {entry["file"] for entry in entries.values()}:
        (folder / name).unlink(missing_ok=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a saved index. Raises `IndexFileError` if there is none of this format."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise IndexFileError(f"{folder}: no index here; build one with `kbeval index`") from None
    except (OSError, ValueError) as error:
        raise IndexFileError(f"{path}: damaged ({error}); rebuild the index") from None
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != FORMAT:
        raise IndexFileError(f"{path}: format {found!r}, expected {FORMAT}; rebuild the index")
    return dict(manifest)


def read_file(folder: Path, manifest: Mapping[str, Any], name: str) -> bytes:
    """One file of a saved index, its checksum verified. Raises `IndexFileError`."""
    entry = manifest["files"].get(name)
    if entry is None:
        raise IndexFileError(f"{folder}: the manifest names no {name}; rebuild the index")
    path = folder / Path(entry["file"]).name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise IndexFileError(f"{path}: cannot be read ({error.strerror}); rebuild it") from None
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise IndexFileError(
            f"{path}: damaged ({len(content)} bytes, {entry['bytes']} written, checksum differs); "
            "rebuild the index"
        )
    return content


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, flush it to disk and put it in place."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _holds(path: Path, digest: str) -> bool:
    """Whether the file is there and whole; a damaged one is written again."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _stored_names(folder: Path) -> set[str]:
    if not (folder / MANIFEST).is_file():
        return set()
    try:
        return {Path(e["file"]).name for e in read_manifest(folder)["files"].values()}
    except (IndexFileError, KeyError, TypeError):
        return set()
