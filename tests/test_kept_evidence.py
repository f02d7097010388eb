"""Evidence is searched once for the same base and queries (P12), and never for others."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from stand_ins import document

from kbeval.config import load_settings
from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.replaying.policies import load_policies
from kbeval.evaluation.replaying.replay import replay
from kbeval.records import Corpus
from kbeval.retrieval.kept_evidence import kept_evidence
from kbeval.retrieval.knowledge import Knowledge

QUERIES = ["restart nginx", "how do I grow a volume", "rotate a certificate"]


def base(cache, *, aliases=("nginx",), settings=None, body="systemctl restart nginx"):
    documents = (
        document("restart.md", body=body, aliases=aliases),
        document("volume.md", body="grow a volume with lvextend -r"),
    )
    return Knowledge.build(
        Corpus("here", documents),
        open_encoder("hashing"),
        retrieval=load_settings(settings).retrieval,
        cache=cache,
    )


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(tmp_path / "cache")


def equal(one, other):
    return all(
        np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(type(one))
    )


def test_a_second_gathering_embeds_and_searches_nothing(cache):
    knowledge = base(cache)
    first = kept_evidence(knowledge, QUERIES)
    assert equal(first, knowledge.gather(QUERIES))
    mute = SimpleNamespace(fingerprint=knowledge.encoder.fingerprint)  # it cannot encode
    nowhere = SimpleNamespace(convention=knowledge.l1.convention)  # it cannot search
    again = kept_evidence(replace(knowledge, encoder=mute, l1=nowhere, l0=None), QUERIES)
    assert equal(first, again)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"aliases": ("httpd",)}, id="a key of L0"),
        pytest.param({"body": "service nginx restart"}, id="a body"),
        pytest.param(
            {"settings": {"retrieval": {"normalization": {"distance": "squared_l2"}}}},
            id="the convention",
        ),
        pytest.param(
            {"settings": {"retrieval": {"l0": {"min-length": 9}}}}, id="the length of keys"
        ),
    ],
)
def test_another_base_is_searched_anew(cache, change):
    kept_evidence(base(cache), QUERIES)
    other = base(cache, **change)
    assert equal(kept_evidence(other, QUERIES), other.gather(QUERIES))
    assert len(list((cache.folder / "evidence").iterdir())) == 2


@pytest.mark.parametrize(
    ("queries", "depth"), [(QUERIES[::-1], None), (QUERIES[:2], None), (QUERIES, 1)]
)
def test_other_queries_or_another_depth_are_searched_anew(cache, queries, depth):
    knowledge = base(cache)
    kept_evidence(knowledge, QUERIES)
    found = kept_evidence(knowledge, queries, depth=depth)
    assert equal(found, knowledge.gather(queries, depth=depth))


def test_thresholds_are_no_part_of_it(cache):
    kept_evidence(base(cache), QUERIES)
    stricter = {"retrieval": {"normalization": {"reference-threshold": 0.7}}}
    kept_evidence(base(cache, settings=stricter), QUERIES)
    assert len(list((cache.folder / "evidence").iterdir())) == 1


def test_a_damaged_file_is_gathered_anew_with_a_warning(cache, caplog):
    knowledge = base(cache)
    first = kept_evidence(knowledge, QUERIES)
    (file,) = (cache.folder / "evidence").iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for damaged in (whole[:-40], b"", bytes(flipped)):
        file.write_bytes(damaged)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert equal(first, kept_evidence(knowledge, QUERIES))
        assert "damaged" in caplog.text
        assert file.read_bytes() == whole


def test_without_a_cache_or_when_too_large_nothing_is_kept(cache, monkeypatch):
    assert equal(kept_evidence(base(None), QUERIES), base(None).gather(QUERIES))
    monkeypatch.setattr("kbeval.retrieval.kept_evidence.LARGEST", 10)
    kept_evidence(base(cache), QUERIES)
    assert not (cache.folder / "evidence").exists()


def test_a_folder_that_cannot_be_written_costs_a_warning(cache, caplog):
    cache.folder.mkdir(parents=True, exist_ok=True)
    (cache.folder / "evidence").write_text("a file stands here")
    with caplog.at_level(logging.WARNING):
        assert len(kept_evidence(base(cache), QUERIES)) == 3
    assert "cannot be written" in caplog.text


def test_a_second_replay_embeds_and_searches_nothing(cache):
    first = base(cache)
    sessions = [Session(f"s{i}", tuple(Turn(query) for query in QUERIES)) for i in range(2)]
    policies = load_policies(["documents", "primary"])
    once = list(replay(sessions, first, policies, keep=True))
    mute = SimpleNamespace(fingerprint=first.encoder.fingerprint, name="mute", dimension=1)
    nowhere = SimpleNamespace(convention=first.l1.convention)
    kept = _Vectors(cache.folder, first.embed_queries(QUERIES))
    silent = replace(first, encoder=mute, l1=nowhere, l0=None, cache=kept)
    again = list(replay(sessions, silent, policies, keep=True))
    assert again == once


class _Vectors:
    """An embedding cache that has every query, whatever the encoder."""

    def __init__(self, folder, vectors):
        self.folder, self.vectors = folder, vectors

    def embed(self, encoder, texts, kind, progress=None):
        return self.vectors[[QUERIES.index(text) for text in texts]]
