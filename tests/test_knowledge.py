"""A base that can be asked, changed, saved and read again (VS-03..05, ST-03, ST-04)."""

import json
from pathlib import Path

import numpy as np
import pytest
from stand_ins import TableEncoder, at_similarity, document, knowledge, settings

from kbeval.config import load_settings
from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import CorpusError, IndexFileError, VectorError
from kbeval.records import Corpus
from kbeval.retrieval.grading import l2_to_similarity
from kbeval.retrieval.knowledge import Knowledge

CASES = Path(__file__).parent / "cases"
TEXTS = {
    "ops/restart.md": "How to restart nginx after a change of its configuration.",
    "ops/backup.md": "Backups of the database run every night and are kept for a month.",
    "api/limits.md": "Every tenant may send a hundred requests a second; bursts are queued.",
    "api/keys.md": "Rotate an API key without downtime by keeping both keys for a day.",
    "zh/重启.md": "修改配置之后如何重启nginx服务。",
}


def texts_base(tmp_path=None, **kwargs):
    documents = [document(p, body=t, domain=p.split("/")[0]) for p, t in TEXTS.items()]
    cache = EmbeddingCache(tmp_path / "cache") if tmp_path else None
    corpus = Corpus("memory", tuple(documents))
    return Knowledge.build(corpus, open_encoder("hashing"), cache=cache, **kwargs)


def nearest(base, query):
    evidence = base.gather([query])
    return [
        (base.paths[i], d)
        for i, d in zip(evidence.l1_document[0], evidence.l1_distance[0], strict=True)
    ]


def test_documents_stand_in_the_order_of_their_paths():
    assert texts_base().paths == tuple(sorted(TEXTS))


def test_one_query_and_a_batch_give_the_same_evidence():
    base = texts_base()
    queries = ["restart nginx", "backup of the database", "重启nginx服务", "keys", "limits"]
    batch = base.gather(queries)
    for i, query in enumerate(queries):
        alone = base.gather([query])
        shallow = base.gather([query], depth=2)
        assert alone.l1_document[0].tolist() == batch.l1_document[i].tolist()
        assert alone.l1_distance[0].tolist() == batch.l1_distance[i].tolist()
        assert shallow.l1_distance[0].tolist() == batch.l1_distance[i, :2].tolist()
        first, last = batch.l0_offset[i], batch.l0_offset[i + 1]
        assert alone.l0_document.tolist() == batch.l0_document[first:last].tolist()
        assert alone.l0_distance.tolist() == batch.l0_distance[first:last].tolist()


def test_exact_matches_come_nearest_first_with_their_distances():
    documents = [document(p, keywords=("key",)) for p in ("a.md", "b.md", "c.md")]
    vectors = {p: at_similarity(s) for p, s in (("a.md", 0.2), ("b.md", 0.9), ("c.md", 0.5))}
    base = knowledge(documents, {**vectors, "the key": [1, 0]})
    evidence = base.gather(["the key"])
    assert [base.paths[i] for i in evidence.l0_document] == ["b.md", "c.md", "a.md"]
    assert evidence.l0_distance == pytest.approx([0.2, 1.0, 1.6], abs=1e-6)
    assert evidence.l0_count.tolist() == [3]


def test_vs03_documents_come_and_go_and_keep_their_identity():
    case = json.loads((CASES / "VS-03" / "steps.json").read_text())
    vectors = case["docs"] | {f"find {name}": v for name, v in case["docs"].items()}
    encoder = TableEncoder(vectors)
    base = knowledge([], vectors, encoder=encoder)
    counts = []
    for step in case["steps"]:
        if "add" in step:
            base = base.add([document(name) for name in step["add"]])
        if "delete" in step:
            base = base.remove(step["delete"])
        if "query" not in step:
            counts.append(base.domain_counts().get("ops", 0))
            continue
        for name in step["query"]:
            path, distance = nearest(base, f"find {name}")[0]
            assert (path, l2_to_similarity(distance).item()) == (name, 1.0)
            assert "b.md" not in dict(nearest(base, f"find {name}"))
    assert counts == [4, 3, 4, 3]


def test_adding_embeds_only_what_is_new_and_replaces_a_known_path():
    vectors = {"a.md": [1, 0], "b.md": [0, 1], "q": [1, 0]}
    encoder = TableEncoder(vectors)
    base = knowledge([document("a.md")], vectors, encoder=encoder)
    before = encoder.calls
    more = base.add([document("b.md")])
    assert encoder.calls == before + 1
    again = more.add([document("a.md", body="Another body.")])
    assert [d.body for d in again.documents] == ["Another body.", "Body of b.md."]
    assert [d.body for d in more.documents] == ["Body of a.md.", "Body of b.md."]
    assert base.paths == ("a.md",)
    assert len({base.fingerprint, more.fingerprint, again.fingerprint}) == 3


def test_adding_and_building_at_once_give_the_same_base():
    base = texts_base()
    grown = base.remove(["api/keys.md", "zh/重启.md"])
    grown = grown.add([d for d in base.documents if d.path not in grown.position])
    assert grown.paths == base.paths
    assert grown.fingerprint == base.fingerprint
    assert (grown.l1.vectors == base.l1.vectors).all()
    assert nearest(grown, "rotate a key") == nearest(base, "rotate a key")


def test_removing_what_is_not_there_is_an_error():
    with pytest.raises(CorpusError, match=r"^x\.md: no such document among the 5 held$"):
        texts_base().remove(["x.md", "api/keys.md"])


def test_a_path_twice_and_a_document_without_text_are_refused():
    vectors = {"a.md": [1, 0]}
    with pytest.raises(CorpusError, match=r"^a\.md: two documents have this path"):
        knowledge([document("a.md"), document("a.md", body="b")], vectors)


def test_vs04_bad_vectors_are_refused_and_named():
    case = json.loads((CASES / "VS-04" / "vectors.json").read_text())
    vectors = {name: np.array([float(x) for x in v]) for name, v in case["docs"].items()}
    queries = {f"{n} query": np.array([float(x) for x in v]) for n, v in case["queries"].items()}
    encoder = TableEncoder(vectors | queries)
    good = ["ok1.md", "ok2.md", "ok3.md"]
    base = knowledge([document(name) for name in good], None, encoder=encoder)
    for name, reason in (("nan.md", "NaN"), ("zero.md", "zero"), ("inf.md", "infinity")):
        with pytest.raises(VectorError, match=rf"^{name}: .*{reason}"):
            base.add([document(name)])
    assert base.paths == tuple(good)
    assert nearest(base, "good query")[0] == ("ok1.md", 0.0)
    for name in ("nan query", "zero query"):
        with pytest.raises(VectorError, match=name):
            base.gather([name])


def test_st04_norms_are_checked_on_both_sides():
    case = json.loads((CASES / "ST-04" / "norms.json").read_text())
    message = r"norm 90\.0, expected 1\.0 \(tolerance 0\.001\); switch normalisation on"
    with pytest.raises(VectorError, match=message):
        knowledge([document(n) for n in case["docs"]], case["docs"])
    mixed = case["mixed"]["docs"] | {"q": case["mixed"]["query"]}
    base = knowledge([document(n) for n in case["mixed"]["docs"]], mixed)
    with pytest.raises(VectorError, match=message):
        base.gather(["q"])


def test_a_saved_base_reads_back_equal(tmp_path):
    base = texts_base()
    base.save(tmp_path / "index")
    again = Knowledge.load(tmp_path / "index")
    assert again.documents == base.documents
    assert again.passages == base.passages
    assert (again.l1.vectors == base.l1.vectors).all()
    assert again.fingerprint == base.fingerprint
    assert again.retrieval == base.retrieval
    assert nearest(again, "restart nginx") == nearest(base, "restart nginx")


def test_saving_again_replaces_the_index_and_leaves_no_old_files(tmp_path):
    base = texts_base()
    base.save(tmp_path)
    base.remove(["api/keys.md"]).save(tmp_path)
    assert len(Knowledge.load(tmp_path).documents) == 4
    assert len(list(tmp_path.iterdir())) == 4  # manifest, documents, passages, vectors


@pytest.mark.parametrize("name", ["documents", "passages", "vectors"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_index_is_refused_with_the_remedy(tmp_path, name, damage):
    texts_base().save(tmp_path)
    file = next(tmp_path.glob(f"{name}-*"))
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(
            content[:-7]
            if damage == "cut"
            else content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        )
    with pytest.raises(IndexFileError, match=rf"{name}-.*rebuild"):
        Knowledge.load(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 0}'])
def test_a_foreign_manifest_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(IndexFileError, match="rebuild the index"):
        Knowledge.load(tmp_path)
    with pytest.raises(IndexFileError, match="no index here; build one with `kbeval index`"):
        Knowledge.load(tmp_path / "nowhere")


def test_a_write_that_fails_leaves_the_former_index(tmp_path, monkeypatch):
    base = texts_base()
    base.save(tmp_path)
    real = Path.replace

    def fails(self, target):
        if Path(target).name == "manifest.json":
            raise OSError("disk full")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="disk full"):
        base.remove(["api/keys.md"]).save(tmp_path)
    monkeypatch.undo()
    assert Knowledge.load(tmp_path).paths == base.paths


def test_vs05_an_index_of_another_model_is_refused_before_any_query(tmp_path):
    manifest = json.loads((CASES / "VS-05" / "manifest.json").read_text())
    query = json.loads((CASES / "VS-05" / "query.json").read_text())
    large = TableEncoder({"a.md": np.eye(1, manifest["dim"])[0]}, manifest["model"])
    knowledge([document("a.md")], None, encoder=large).save(tmp_path)
    small = TableEncoder({"q": query["vector"]}, query["model"])
    with pytest.raises(IndexFileError) as error:
        Knowledge.load(tmp_path, encoder=small)
    text = str(error.value)
    for part in ("demo/large", "1024", "demo/small", "384"):
        assert part in text
    assert text.endswith("rebuild the index or select the model it was built with")
    other = TableEncoder({"a.md": np.eye(1, manifest["dim"])[0]}, manifest["model"])
    other.fingerprint = "a later version"
    with pytest.raises(IndexFileError, match="another version of demo/large"):
        Knowledge.load(tmp_path, encoder=other)


def test_vs05_single_wide_and_strided_vectors_are_one_query():
    base = texts_base()
    vector = base.embed_queries(["restart nginx"])
    expected = base.gather(["restart nginx"]).l1_distance
    wide = np.repeat(vector.astype(np.float64), 2, axis=1)[:, ::2]
    assert not wide.flags["C_CONTIGUOUS"]
    for given in (vector[0], vector[0].astype(np.float64), wide):
        assert (base.gather(["restart nginx"], vectors=given).l1_distance == expected).all()
    with pytest.raises(VectorError, match="384 numbers, expected 512"):
        base.gather(["restart nginx"], vectors=np.eye(1, 384))


def test_the_convention_changes_distances_and_nothing_else():
    plain = texts_base()
    squared = texts_base(
        retrieval=load_settings(
            {"retrieval": {"normalization": {"distance": "squared_l2"}}}
        ).retrieval
    )
    one, two = nearest(plain, "restart nginx"), nearest(squared, "restart nginx")
    assert [p for p, _ in one] == [p for p, _ in two]
    assert [d**2 for _, d in one] == pytest.approx([d for _, d in two], abs=3e-6)
    assert settings(distance="squared_l2").retrieval == squared.retrieval


def test_beyond_the_bound_only_the_nearest_are_kept(monkeypatch):
    base = texts_base()
    whole = base.gather(["restart nginx", "backup"])
    monkeypatch.setattr("kbeval.retrieval.knowledge.COMPLETE", 5)
    monkeypatch.setattr("kbeval.retrieval.knowledge.DEPTH", 2)
    part = base.gather(["restart nginx", "backup"])
    assert (whole.complete, part.complete) == (True, False)
    assert (part.l1_distance == whole.l1_distance[:, :2]).all()


def test_a_document_longer_than_the_window_is_reported_whole_or_short():
    encoder = TableEncoder({"a.md": [1, 0]})
    encoder.window = 20
    base = knowledge([document("a.md", body="word " * 200)], None, encoder=encoder)
    assert base.truncated() == {}  # cut into passages, nothing lost
    assert len(base.passages) > 5
    queries = base.encoder.vectors | {"long " * 50: [1, 0]}
    base.encoder.vectors.update({k: np.array(v) for k, v in queries.items()})
    assert base.gather(["long " * 50]).query_truncated.tolist() == [True]
