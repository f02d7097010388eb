"""L0: exact keys (FS-2, design.md 8)."""

import pickle
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.config import L0Settings
from kbeval.records import Document
from kbeval.retrieval.l0 import CJK, ExactKeys, L0Summary, fold

SETTINGS = L0Settings()


def keys_of(*keys, settings=SETTINGS):
    """One document per key, which is its title."""
    return ExactKeys([Document(f"{i}.md", key, "") for i, key in enumerate(keys)], settings)


@pytest.mark.parametrize(
    ("key", "query", "matches"),
    [
        pytest.param("nginx", "重启nginx服务", True, id="a CJK neighbour is a boundary"),
        pytest.param("nginx", "restart nginx now", True, id="a blank is a boundary"),
        pytest.param("nginx", "nginx: bad gateway", True, id="punctuation is a boundary"),
        pytest.param("nginx", "the (nginx) proxy", True, id="brackets are boundaries"),
        pytest.param("nginx", "nginx's workers", True, id="an apostrophe is a boundary"),
        pytest.param("nginx", "nginx", True, id="the ends of the query are boundaries"),
        pytest.param("nginx", "nginx2", False, id="a digit goes on"),
        pytest.param("nginx", "xnginx", False, id="a letter stands before"),
        pytest.param("nginx", "nginxы", False, id="a letter of any alphabetic script goes on"),
        pytest.param("nginx", "🚀nginx🚀", True, id="emoji are boundaries"),
        pytest.param("nginx", "❤️nginx", True, id="an emoji with its variation selector, too"),
        pytest.param("size", "max_size", True, id="an underscore is neither letter nor digit"),
        pytest.param("扩容", "如何扩容集群", True, id="a CJK end stands anywhere"),
        pytest.param("扩容", "扩 容", False, id="blanks inside are not bridged"),
        pytest.param("扩容", "k8s扩容v2", True, id="a CJK end stands beside letters"),
        pytest.param("端口80", "端口80开放", True, id="mixed: its digit end meets CJK"),
        pytest.param("端口80", "端口8080", False, id="mixed: its digit end meets a digit"),
        pytest.param("端口80", "新端口80", True, id="mixed: its CJK end stands anywhere"),
        pytest.param("k8s集群", "升级k8s集群时", True, id="mixed in a Chinese sentence"),
        pytest.param("k8s集群", "xk8s集群", False, id="mixed: its letter end meets a letter"),
        pytest.param("1.10", "upgrade to 1.10", True, id="FM-03: 1.10 hits"),
        pytest.param("1.10", "upgrade to 1.1", False, id="FM-03: 1.1 does not hit 1.10"),
        pytest.param("1.1", "upgrade to 1.10", False, id="1.10 does not hit 1.1"),
        pytest.param("1.1", "版本1.1发布", True, id="a version between CJK"),
        pytest.param("1.1", "1.1.3", True, id="a point is a boundary"),
        pytest.param("404", "错误码4040", False, id="a longer number is another number"),
        pytest.param("C++", "learn C++ today", True, id="a key that ends in punctuation"),
        pytest.param("C++", "C++11", True, id="a punctuation end stands anywhere"),
        pytest.param("C++", "ABC++", False, id="but its letter end does not"),
        pytest.param(".NET", "use ASP.NET here", True, id="a key that begins with punctuation"),
        pytest.param("ＡＰＩ", "the api docs", True, id="a full-width key"),
        pytest.param("api", "调用ＡＰＩ接口", True, id="a full-width query"),
        pytest.param("a（b）", "A(B)", True, id="full-width brackets"),
        pytest.param("Rate  Limit", "a RATE\n\tLIMIT　here", True, id="blanks collapse"),
        pytest.param("Straße", "die STRASSE hier", True, id="ß folds to ss"),
        pytest.param("STRASSE", "die straße hier", True, id="and the other way round"),
        pytest.param("ΟΔΟΣ", "η οδος μου", True, id="the final sigma folds"),
        pytest.param("İzmir", "in İzmir", True, id="İ equals itself"),
        pytest.param("İzmir", "in izmir", False, id="İ is no plain i: case folding keeps the dot"),
        pytest.param("API", "İAPI", False, id="a combining mark belongs to its letter, before"),
        pytest.param("caf", "caf\u0301 x", False, id="and after: f with acute goes on the word"),
        pytest.param("café", "cafe\u0301", True, id="composed and decomposed are one"),
        pytest.param("nginx", "nginxをインストール", True, id="kana are boundaries"),
        pytest.param("サーバー", "このサーバーは", True, id="a kana key stands anywhere"),
        pytest.param("ｻｰﾊﾞｰ", "サーバー", True, id="half-width kana"),
        pytest.param("nginx", "nginx를 재시작", True, id="hangul is a boundary"),
        pytest.param("서버", "우리서버를", True, id="a hangul key takes particles"),
        pytest.param("ㄅㄆㄇ", "學ㄅㄆㄇㄈ", True, id="bopomofo"),
        pytest.param("แมว", "แมวดำ", False, id="Thai counts as alphabetic"),
        pytest.param("🚀", "🚀", True, id="an emoji alone is the whole query"),
        pytest.param("🚀🚀🚀", "go🚀🚀🚀go", True, id="an emoji key stands anywhere"),
    ],
)
def test_a_key_matches_where_it_stands_and_no_word_is_cut(key, query, matches):
    assert keys_of(key).matches(query) == ([0] if matches else [])


@pytest.mark.parametrize(
    ("key", "query", "matches"),
    [
        pytest.param("库", "数据库", False, id="one CJK character is too short"),
        pytest.param("库", " 库\n", True, id="unless it is the whole query, trimmed"),
        pytest.param("库", "库？", False, id="punctuation makes it not the whole query"),
        pytest.param("扩容", "怎么扩容", True, id="two CJK characters are enough"),
        pytest.param("go", "learn go", False, id="two letters are too short"),
        pytest.param("go", "Ｇｏ", True, id="unless they are the whole query, folded"),
        pytest.param("A股", "买A股", False, id="a mixed key is measured as letters"),
        pytest.param("A股", "a股", True, id="and counts as the whole query"),
        pytest.param("api", "an api", True, id="three letters are enough"),
        pytest.param("㎏s", "4 kgs", True, id="the folded length counts"),
    ],
)
def test_a_short_key_counts_only_as_the_whole_query(key, query, matches):
    assert keys_of(key).matches(query) == ([0] if matches else [])


def test_the_lengths_are_settings():
    settings = L0Settings(min_cjk_length=1, min_length=2)
    assert keys_of("库", "go", "c", settings=settings).matches("go 数据库 c") == [0, 1]


@pytest.mark.parametrize(
    ("keys", "query", "matched"),
    [
        pytest.param(
            ["rate limit", "limit"], "the rate limit", ["rate limit"], id="the longer one wins"
        ),
        pytest.param(
            ["rate limit", "limit"],
            "limit the rate limit",
            ["limit", "rate limit"],
            id="the shorter one still stands elsewhere",
        ),
        pytest.param(
            ["abc def", "def ghi"], "abc def ghi", ["abc def"], id="equally long: the leftmost"
        ),
        pytest.param(
            ["abc def", "def ghi jkl"], "abc def ghi jkl", ["def ghi jkl"], id="longest, not first"
        ),
        pytest.param(
            ["数据库主从", "主从切换流程", "流程图"],
            "数据库主从切换流程图",
            ["主从切换流程"],
            id="what overlaps a taken one on either side goes",
        ),
        pytest.param(
            ["ab.cd", "cd.efg", "efg.hijk"],
            "ab.cd.efg.hijk",
            ["ab.cd", "efg.hijk"],
            id="one that lost takes nothing away",
        ),
        pytest.param(
            ["nginx-ingress-x", "nginx"],
            "nginx-ingress-xy",
            ["nginx"],
            id="a longer key that is no match does not hide a shorter one",
        ),
        pytest.param(["数据", "据库"], "数据库", ["数据"], id="CJK keys overlap, too"),
        pytest.param(["数据", "库存"], "数据库存", ["数据", "库存"], id="touching is no overlap"),
        pytest.param(
            ["aa.", "aa.aa"], "aa.aa.aa", ["aa.aa"], id="a key that overlaps itself counts once"
        ),
    ],
)
def test_of_overlapping_matches_the_longest_wins(keys, query, matched):
    found = keys_of(*keys).matched_keys(query)
    assert found == [(key, (keys.index(key),)) for key in matched]


def test_every_field_gives_keys_and_equal_keys_count_for_each_document():
    documents = [
        Document(
            "a.md",
            "Alpha Guide",
            "body words",
            aliases=("the alpha",),
            keywords=("first keyword",),
            tags=("tagged",),
            covers=("what it covers", "shared key"),
            stem="alpha-guide",
        ),
        Document("b.md", "Beta Guide", "", keywords=("Shared  KEY", "shared key")),
    ]
    keys = ExactKeys(documents, SETTINGS)
    asked = ["Alpha Guide", "the alpha", "first keyword", "tagged", "what it covers", "alpha-guide"]
    assert [keys.matches(query) for query in asked] == [[0]] * 6
    assert keys.matches("body words") == []
    assert keys.matches("about the shared key") == [0, 1]
    assert keys.matched_keys("about the shared key") == [("shared key", (0, 1))]


def test_the_fields_are_a_setting():
    document = Document("a.md", "Alpha Guide", "", tags=("tagged",))
    assert ExactKeys([document], L0Settings(fields=("tags",))).matches("alpha guide") == []
    assert ExactKeys([document], L0Settings(fields=("tags",))).matches("tagged") == [0]


def test_a_document_counts_once_however_many_of_its_keys_match():
    document = Document("a.md", "nginx", "", keywords=("gateway",), stem="nginx")
    assert ExactKeys([document], SETTINGS).matches("nginx gateway nginx") == [0]


def test_the_summary_lists_shared_and_short_keys():
    documents = [
        Document("a.md", "Setup", "", tags=("ops", "Go", "库")),
        Document("b.md", "setup", "", tags=("OPS", "  ")),
        Document("c.md", "Other", "", tags=("ops",)),
    ]
    assert ExactKeys(documents, SETTINGS).summary() == L0Summary(
        key_count=5,
        shared={"ops": ("a.md", "b.md", "c.md"), "setup": ("a.md", "b.md")},
        too_short={"go": ("a.md",), "库": ("a.md",)},
    )


@pytest.mark.parametrize("documents", [[], [Document("a", "", "")], [Document("a", "x", "")]])
def test_without_a_usable_key_nothing_matches(documents):
    keys = ExactKeys(documents, SETTINGS)
    assert [keys.matches(query) for query in ("", " ", "anything", "\ud800\0")] == [[]] * 4


def test_pickling_keeps_the_answers():
    keys = keys_of("nginx", "数据库", "go")
    copy = pickle.loads(pickle.dumps(keys))
    for query in ("nginx 数据库", "go", "let go"):
        assert copy.matched_keys(query) == keys.matched_keys(query)
    assert copy.summary() == keys.summary()


def test_threads_read_the_same_answers():
    keys = keys_of(*(f"service {i}" for i in range(200)))
    queries = [f"about service {i} and service {i + 1}" for i in range(199)] * 5
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(keys.matches, queries)) == [keys.matches(q) for q in queries]


# -- against slow, independent readings of the rules --

CJK_NAMES = (
    "CJK UNIFIED IDEOGRAPH",
    "CJK COMPATIBILITY IDEOGRAPH",
    "HIRAGANA",
    "HENTAIGANA",
    "KATAKANA",
    "HALFWIDTH KATAKANA",
    "VERTICAL KANA",
    "HANGUL",
    "HALFWIDTH HANGUL",
    "BOPOMOFO",
    "HANGZHOU",
    "IDEOGRAPHIC",
    "VERTICAL IDEOGRAPHIC",
    "MASU MARK",
)


def is_cjk_by_name(character):
    return unicodedata.name(character, "").startswith(CJK_NAMES)


def test_the_table_of_cjk_characters_agrees_with_their_names():
    letters = [chr(i) for i in range(sys.maxunicode + 1) if chr(i).isalnum()]
    wrong = [c for c in letters if is_cjk_by_name(c) != bool(CJK.fullmatch(c))]
    # Compatibility signs such as U+3280 are folded away and never met.
    assert [c for c in wrong if fold(c) == c and unicodedata.category(c)[0] == "L"] == []


def slow_fold(text):
    once = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", once).split())


def slow_word(text):
    """The text is one letter or digit of an alphabetic script."""
    return text != "" and unicodedata.category(text)[0] in "LN" and not is_cjk_by_name(text)


def slow_hits(key, text):
    for start in range(len(text)):
        left, right = text[:start][-1:], text[start + len(key) :][:1]
        cut_left = slow_word(left) and slow_word(key[0])
        cut_right = slow_word(right) and slow_word(key[-1])
        if text[start : start + len(key)] == key and not cut_left and not cut_right:
            yield start, key


def slow_matches(titles, query):
    """Every key at every place; then always the longest, leftmost of what is left."""
    text, found, documents = slow_fold(query), [], set()
    folded = [slow_fold(title) for title in titles]
    for key in set(folded) - {""}:
        long_enough = len(key) >= (2 if all(map(is_cjk_by_name, key)) else 3)
        found += slow_hits(key, text) if long_enough or key == text else []
    while found:
        start, key = max(found, key=lambda hit: (len(hit[1]), -hit[0]))
        documents |= {i for i, title in enumerate(folded) if title == key}
        found = [
            hit for hit in found if hit[0] >= start + len(key) or hit[0] + len(hit[1]) <= start
        ]
    return sorted(documents)


SYLLABLES = st.sampled_from(["a", "B", "1", ".", " ", "-", "库", "数", "か", "한", "ß", "Ｘ", "😀"])
TEXTS = st.lists(SYLLABLES, max_size=6).map("".join)


@given(st.lists(TEXTS, max_size=8), st.lists(st.one_of(SYLLABLES, TEXTS), max_size=8))
def test_matches_equal_the_slow_reading_of_the_rules(titles, parts):
    query = "".join(parts)
    assert keys_of(*titles).matches(query) == slow_matches(titles, query)


@given(st.lists(TEXTS.filter(str.strip), min_size=1, max_size=6), st.data())
def test_a_query_made_of_a_key_finds_its_document(titles, data):
    chosen = data.draw(st.integers(0, len(titles) - 1))
    assert chosen in keys_of(*titles).matches(f" {titles[chosen].upper()}\n")


@given(st.lists(st.sampled_from("aB1.[ ，？（：库数\u3000\u0301ß"), max_size=8).map("".join))
def test_folding_what_is_mostly_plain_chinese_is_the_same_rule(text):
    assert fold(text) == slow_fold(text)


@given(st.text())
def test_folding_is_the_rule_and_folding_twice_changes_nothing(text):
    assert fold(text) == slow_fold(text)
    assert fold(fold(text)) == fold(text)
