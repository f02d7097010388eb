"""Evidence kept in the cache: the same queries over the same base are searched once (P12)."""

from __future__ import annotations

import hashlib
import logging
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kbeval.records import Evidence
from kbeval.retrieval.embedding import Progress
from kbeval.retrieval.indexfile import arrays, npz
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.saved import FORMAT, write_atomically

log = logging.getLogger(__name__)

LARGEST = 64_000_000  # bytes of arrays that are kept; beyond it, searching again is no loss

_ARRAYS = ("l0_offset", "l0_document", "l0_distance", "l1_document", "l1_distance")


def kept_evidence(
    knowledge: Knowledge,
    queries: Sequence[str],
    *,
    depth: int | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """`Knowledge.gather`, or what an earlier call with the same input found.

    Found again by the base (documents, encoder with its centre, passages, L0 keys, convention),
    the queries in their order and the depth; thresholds are not part of it. A hit embeds nothing
    and searches nothing. A damaged file is gathered anew, with a warning. A base without a cache,
    or evidence above 64 MB, is gathered each time. Raises what `gather` raises.
    """
    if knowledge.cache is None:
        return knowledge.gather(queries, depth=depth, progress=progress)
    file = knowledge.cache.folder / "evidence" / f"{_name(knowledge, queries, depth)}.npz"
    found = _read(file, knowledge, len(queries)) if file.is_file() else None
    if found is None:
        found = knowledge.gather(queries, depth=depth, progress=progress)
        _write(file, found)
    return found


def _name(knowledge: Knowledge, queries: Sequence[str], depth: int | None) -> str:
    digest = hashlib.sha256()
    for part in _facts(knowledge, depth, queries):
        content = part.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:32]


def _facts(knowledge: Knowledge, depth: int | None, queries: Sequence[str]) -> Iterator[str]:
    retrieval = knowledge.retrieval
    yield str(FORMAT)
    yield knowledge.fingerprint
    yield knowledge.encoder.fingerprint
    yield str(knowledge.passage_tokens)
    yield retrieval.normalization.distance
    yield retrieval.l0.model_dump_json(include={"fields", "min_cjk_length", "min_length"})
    yield str(depth)
    yield from queries


def _read(file: Path, knowledge: Knowledge, n: int) -> Evidence | None:
    """What the file holds; None if it is damaged (a zip keeps a checksum of each array)."""
    try:
        stored = arrays(file.read_bytes())
        evidence = Evidence(
            paths=knowledge.paths,
            convention=knowledge.l1.convention,
            **{name: stored[name] for name in _ARRAYS},
            complete=bool(stored["complete"]),
            query_truncated=stored["query_truncated"],
        )
        if len(evidence) != n or len(evidence.l1_document) != n:
            raise ValueError(f"{len(evidence)} queries, {n} are asked")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        log.warning("%s: damaged (%s); gathered anew", file, error)
        return None
    return evidence


def _write(file: Path, evidence: Evidence) -> None:
    """Keep it, if it is not too large and the folder takes it."""
    named = {name: getattr(evidence, name) for name in _ARRAYS}
    if sum(array.nbytes for array in named.values()) > LARGEST:
        return
    named["complete"] = np.array(evidence.complete)
    named["query_truncated"] = np.asarray(evidence.query_truncated)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, npz(named))
    except OSError as error:
        log.warning("%s: cannot be written (%s); the next run searches again", file, error)
