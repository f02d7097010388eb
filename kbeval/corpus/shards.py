"""Files of keys and vectors: written once, moved into place whole, refused when damaged."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import uuid
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC = b"kbvec001"
KEY_BYTES = 16
MERGE_ABOVE = 64  # files in a folder
_HEADER = struct.Struct("<8sIIII")  # magic, rows, dimension, checksum of keys, of vectors


class Shards:
    """The vectors of one encoder and side, in a folder of immutable files.

    Reading and adding are safe among threads and processes: a file appears by a rename, is
    never changed, and is removed only after its rows stand in a merged one.
    """

    def __init__(self, folder: Path, dimension: int) -> None:
        self.folder = folder
        self.dimension = dimension
        self._row: dict[bytes, int] = {}
        self._parts: list[NDArray[np.float32]] = []  # (n, dimension) in all
        self._read: set[str] = set()
        self._writable = True
        self._lock = threading.RLock()
        self.refresh()

    def __contains__(self, key: bytes) -> bool:
        return key in self._row

    def __len__(self) -> int:
        return len(self._row)

    def rows(self, keys: Sequence[bytes]) -> list[int | None]:
        """The row of each key, None where it is not kept."""
        return list(map(self._row.get, keys))

    def gather(self, rows: Sequence[int | None]) -> NDArray[np.float32]:
        """A copy of the given rows, of shape (n, dimension)."""
        with self._lock:
            if len(self._parts) != 1:
                none = np.empty((0, self.dimension), dtype=np.float32)
                self._parts = [np.concatenate([none, *self._parts])]
            table = self._parts[0]
        return table[np.asarray(rows, dtype=np.int64)]

    def add(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Keep vectors (n, dimension) under their keys, in memory and on disk."""
        with self._lock:
            self._take(keys, vectors)
            if self._writable:
                self._read.add(self._write(keys, vectors))
                self._merge()

    def refresh(self) -> None:
        """Read the files that other processes have added since."""
        with self._lock:
            for name in sorted(self._names() - self._read):
                content = self._load(self.folder / name)
                if content is not None:
                    self._take(*content)
                    self._read.add(name)
            self._merge()

    def _names(self) -> set[str]:
        try:
            return {name for name in os.listdir(self.folder) if name.endswith(".vectors")}  # noqa: PTH208
        except FileNotFoundError:
            return set()
        except OSError as error:
            self._give_up(error)
            return set()

    def _take(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        start = sum(map(len, self._parts))
        self._parts.append(vectors)
        for row, key in enumerate(keys, start):
            self._row.setdefault(key, row)

    def _load(self, path: Path) -> tuple[list[bytes], NDArray[np.float32]] | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # merged away by another process, whose file is read next
            return None
        except OSError as error:
            self._refuse(path, str(error))
            return None
        if (problem := self._problem(content)) is not None:
            self._refuse(path, problem)
            return None
        rows = _HEADER.unpack_from(content)[1]
        end = _HEADER.size + rows * KEY_BYTES
        keys = [content[at : at + KEY_BYTES] for at in range(_HEADER.size, end, KEY_BYTES)]
        vectors = np.frombuffer(content, dtype="<f4", offset=end).reshape(rows, self.dimension)
        return keys, vectors.astype(np.float32, copy=False)

    def _problem(self, content: bytes) -> str | None:
        if len(content) < _HEADER.size or content[:8] != MAGIC:
            return "it does not begin as a file of vectors"
        _, rows, dimension, key_sum, vector_sum = _HEADER.unpack_from(content)
        end = _HEADER.size + rows * KEY_BYTES
        if dimension != self.dimension or len(content) != end + rows * dimension * 4:
            return f"{len(content)} bytes do not hold {rows} vectors of {self.dimension} numbers"
        body = memoryview(content)
        if zlib.crc32(body[_HEADER.size : end]) != key_sum or zlib.crc32(body[end:]) != vector_sum:
            return "its checksum is wrong"
        return None

    def _refuse(self, path: Path, problem: str) -> None:
        warnings.warn(
            f"{path}: damaged ({problem}); set aside, its texts are embedded again", stacklevel=6
        )
        self._read.add(path.name)
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".damaged"))

    def _write(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> str:
        packed_keys, packed = b"".join(keys), np.ascontiguousarray(vectors, dtype="<f4").tobytes()
        header = _HEADER.pack(
            MAGIC, len(keys), self.dimension, zlib.crc32(packed_keys), zlib.crc32(packed)
        )
        name = f"{uuid.uuid4().hex}.vectors"
        temporary = self.folder / f"{name}.{os.getpid()}.part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.writelines((header, packed_keys, packed))
            temporary.replace(self.folder / name)
        except OSError as error:
            self._give_up(error)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        return name

    def _merge(self) -> None:
        """Put the rows of many small files into one, then remove those files."""
        merged = self._read & self._names() if len(self._read) > MERGE_ABOVE else set()
        if len(merged) <= MERGE_ABOVE or not self._writable:
            return
        keys = list(self._row)
        name = self._write(keys, self.gather(list(self._row.values())))
        self._read = {name}
        for old in merged if (self.folder / name).is_file() else ():
            with contextlib.suppress(OSError):
                (self.folder / old).unlink()

    def _give_up(self, error: OSError) -> None:
        if self._writable:
            warnings.warn(
                f"{self.folder}: cannot keep embeddings ({error.strerror or error}); "
                "they are held in memory only (KBEVAL_CACHE names another folder)",
                stacklevel=6,
            )
        self._writable = False
