"""Digests of files and of what an encoder consists of, cheap to ask for again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from importlib import metadata
from pathlib import Path

from kbeval.corpus.vectors import cache_folder
from kbeval.errors import EncoderError


def file_digest(path: Path) -> str:
    """The sha256 of a file, remembered in the cache folder by path, size and time of change."""
    status = path.stat()
    known = f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}"
    note = cache_folder() / "digests" / hashlib.sha256(known.encode()).hexdigest()[:32]
    with contextlib.suppress(OSError):
        digest = note.read_text(encoding="ascii").strip()
        if len(digest) == 64:
            return digest
    digest = fresh_digest(path)
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        part = note.with_suffix(f".{os.getpid()}.part")
        part.write_text(digest, encoding="ascii")
        part.replace(note)
    return digest


def fresh_digest(path: Path) -> str:
    """The sha256 of a file, read now."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(**parts: object) -> str:
    """One fingerprint over named parts, of 32 hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def installed_version(package: str, remedy: str) -> str:
    """The version of an installed package. Raises `EncoderError` with the command to type."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise EncoderError(f"package {package} is not installed; type: {remedy}") from None
