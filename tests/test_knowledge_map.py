"""The knowledge map: REQ-04, the budget of design.md 11, case LJ-04, and texts that hurt YAML."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stand_ins import document

from kbeval.corpus.documents import load_corpus
from kbeval.domains.knowledge_map import (
    TOP_KEY,
    MapDocument,
    MapDomain,
    domain_block,
    knowledge_map,
    map_domains,
    scalar,
)
from kbeval.errors import ConfigError

CASE = json.loads((Path(__file__).parent / "cases/LJ-04/domains.json").read_text(encoding="utf-8"))
SETS = Path(__file__).resolve().parents[2] / "shared" / "data"

SIX = """\
available_knowledge_domains:
- domain_id: infrastructure
  description: 集群与存储的部署运维
  when_to_retrieve: 涉及集群与存储的部署运维的步骤需要先检索
  documents:
  - title: 集群部署手册
    covers: [集群部署, 节点扩容, 滚动升级]
  - title: 备份与恢复
    covers: [全量备份, 增量备份, 恢复演练]
  - title: 告警处理流程
    covers: [告警分级, 值班交接]
- domain_id: api
  description: 对外接口的约定与排错
  when_to_retrieve: 涉及对外接口的约定与排错的步骤需要先检索
  documents:
  - title: 网关限流配置
    covers: [限流, 熔断, 租户配额]
  - title: 接口鉴权说明
    covers: [令牌, 签名, 过期时间]
  - title: "错误码: 1xxx 与 2xxx"
    covers: [错误码, 重试策略]"""


@dataclass(frozen=True)
class Text:
    description: str | None
    when_to_retrieve: str | None


def domains_of(declared):
    return [
        MapDomain(
            domain["domain_id"],
            domain["description"],
            domain["when_to_retrieve"],
            tuple(MapDocument(d["title"], tuple(d["covers"])) for d in domain["documents"]),
        )
        for domain in declared
    ]


def declared(domains):
    """What a map without cuts must read back as."""
    return [
        {
            "domain_id": domain.domain_id,
            "description": domain.description,
            "when_to_retrieve": domain.when_to_retrieve,
            "documents": [{"title": d.title, "covers": list(d.covers)} for d in domain.documents],
        }
        for domain in domains
    ]


def read(text):
    return yaml.safe_load(text)[TOP_KEY]


def sized(*document_counts, covers=2, text="x"):
    """Domains d0, d1, ... with so many documents, each with so many covers."""
    return [
        MapDomain(
            f"d{i}",
            text,
            text,
            tuple(
                MapDocument(f"t{i}-{j}", tuple(f"c{i}-{j}-{k}" for k in range(covers)))
                for j in range(count)
            ),
        )
        for i, count in enumerate(document_counts)
    ]


def twelve():
    """LJ-04: the same domains with twelve documents of forty keywords each."""
    return domains_of(
        [
            domain
            | {
                "documents": [
                    {
                        "title": document["title"] + part,
                        "covers": [f"{document['covers'][0]}的要点{k}" for k in range(40)],
                    }
                    for document in domain["documents"]
                    for part in ("（上）", "（下）")
                ]
            }
            for domain in CASE
        ]
    )


# REQ-04 and LJ-04 ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "holds",
    [
        pytest.param(lambda text: text.startswith("available_knowledge_domains:\n"), id="REQ-04.1"),
        pytest.param(
            lambda text: (
                [list(domain) for domain in read(text)]
                == [["domain_id", "description", "when_to_retrieve", "documents"]] * 2
                and all(list(d) == ["title", "covers"] for x in read(text) for d in x["documents"])
            ),
            id="REQ-04.2: domain_id, description, when_to_retrieve, documents (title + covers)",
        ),
        pytest.param(lambda text: len(text) < 1000, id="REQ-04.a3: under 1000 characters for six"),
        pytest.param(lambda text: read(text) == CASE, id="LJ-04: reads back equal, the colon too"),
        pytest.param(lambda text: "\\" not in text, id="LJ-04: plain Chinese, no escapes"),
        pytest.param(lambda text: not set("&*") & set(text), id="LJ-04: no anchors, no aliases"),
    ],
)
def test_the_map_of_six_documents(holds):
    assert holds(knowledge_map(domains_of(CASE)))


def test_lj04_the_map_of_six_documents_is_this_text():
    assert knowledge_map(domains_of(CASE)) == SIX


def test_lj04_lists_that_are_one_object_are_written_out_each_time():
    shared = ("限流", "熔断")
    one = MapDomain("api", "x", "x", (MapDocument("a", shared), MapDocument("b", shared)))
    text = knowledge_map([one])
    assert text.count("covers: [限流, 熔断]") == 2


@pytest.mark.parametrize("budget", [3000, 1500, 750])
def test_lj04_twelve_long_documents_lose_keywords_evenly_and_nothing_else(budget):
    domains = twelve()
    text = knowledge_map(domains, budget=budget)
    assert len(text) <= budget
    for found, domain in zip(read(text), domains, strict=True):
        assert [found[key] for key in ("domain_id", "description", "when_to_retrieve")] == [
            domain.domain_id,
            domain.description,
            domain.when_to_retrieve,
        ]
        assert [d["title"] for d in found["documents"]] == [d.title for d in domain.documents]
    kept = {len(d["covers"]) - 1 for found in read(text) for d in found["documents"]}
    assert len(kept) == 1 and 0 <= min(kept) < 40
    for found, domain in zip(read(text), domains, strict=True):
        for shown, whole in zip(found["documents"], domain.documents, strict=True):
            (keep,) = kept
            assert shown["covers"] == [*whole.covers[:keep], f"…+{40 - keep}"]


def test_lj04_twelve_long_documents_that_fit_are_not_cut():
    domains = twelve()
    assert read(knowledge_map(domains, budget=8000)) == declared(domains)


@pytest.mark.parametrize("domains", [[], sized(0), sized(0, 0)])
def test_req04_3_without_a_domain_that_has_documents_the_map_is_empty(domains):
    assert knowledge_map(domains) == ""


def test_a_domain_without_documents_is_left_out_whatever_its_text():
    assert [domain["domain_id"] for domain in read(knowledge_map(sized(1, 0, 2)))] == ["d0", "d2"]


# the budget of design.md 11 -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("document_count", "budget", "longest"),
    [
        pytest.param(6, None, 999, id="up to six documents: under 1000"),
        pytest.param(6, 50_000, 999, id="no setting lifts that"),
        pytest.param(6, 500, 500, id="a setting below it holds"),
        pytest.param(7, None, 8000, id="beyond six: 8000"),
        pytest.param(7, 3000, 3000, id="beyond six: the setting"),
    ],
)
def test_the_budget_depends_on_the_number_of_documents(document_count, budget, longest):
    domains = sized(document_count, covers=2000 // document_count * 10)
    length = len(knowledge_map(domains, budget=budget))
    assert longest - 150 < length <= longest


def test_a_map_of_exactly_the_budget_is_whole_and_one_less_is_cut():
    domains = sized(4, 4, covers=5)
    length = len(knowledge_map(domains))
    assert "…" not in knowledge_map(domains, budget=length)
    assert "…+" in knowledge_map(domains, budget=length - 1)


@pytest.mark.parametrize(("padding", "cut"), [(0, False), (1, True)])
def test_six_documents_may_have_999_characters_and_not_1000(padding, cut):
    spare = 999 - len(knowledge_map(sized(6, text="x")))
    domains = sized(6, text="x")
    filled = [MapDomain("d0", "x" * (1 + spare + padding), "x", domains[0].documents)]
    text = knowledge_map(filled)
    assert len(text) <= 999
    assert ("…+" in text) is cut


@pytest.mark.parametrize(
    ("budget", "listed"),
    [
        pytest.param(708, [2, 9, 3], id="nothing but covers to cut"),
        pytest.param(707, [0, 9, 3], id="the shortest list is enough"),
        pytest.param(640, [2, 9, 0], id="the middle one is enough, the shortest is not"),
        pytest.param(600, [2, 0, 3], id="only the longest is enough"),
        pytest.param(300, [0, 0, 0], id="all"),
        pytest.param(337, [2, 0, 0], id="the longest, then the shortest that is enough"),
        pytest.param(403, [0, 0, 3], id="the longest, then the shortest"),
    ],
)
def test_documents_become_a_count_in_as_few_domains_as_can_be(budget, listed):
    domains = sized(2, 9, 3)  # without covers 135, 373 and 169 characters; as a count 69 each
    shown = [domain["documents"] for domain in read(knowledge_map(domains, budget=budget))]
    assert [len(x) if isinstance(x, list) else 0 for x in shown] == listed
    assert [x for x in shown if isinstance(x, int)] == [
        n for n, left in zip((2, 9, 3), listed, strict=True) if not left
    ]


def test_what_a_count_saves_goes_to_the_covers_that_remain():
    domains = [*sized(2, covers=2), *sized(30, covers=0)]
    budget = len(knowledge_map(domains)) - 200  # more than the first list has
    assert [x["documents"] for x in read(knowledge_map(domains, budget=budget))] == [
        declared(domains)[0]["documents"],
        30,
    ]


@pytest.mark.parametrize(
    ("domains", "budget", "message"),
    [
        pytest.param(
            sized(5, 2),
            100,
            "knowledge map: 168 characters with every document list cut to a count, 68 more than "
            "the 100 allowed; allow more or shorten the domain texts "
            "(the longest are those of d0, 69 characters)",
            id="a setting",
        ),
        pytest.param(
            sized(1, text="x" * 600),
            None,
            "knowledge map: 1296 characters with every document list cut to a count, 297 more "
            "than the 999 allowed; shorten the domain texts "
            "(the longest are those of d0, 1267 characters)",
            id="six documents, where no setting helps",
        ),
        pytest.param(
            sized(1), 0, "knowledge map: budget 0; at least 1 character is expected", id="no budget"
        ),
    ],
)
def test_a_map_that_cannot_fit_is_an_error_that_says_by_how_much(domains, budget, message):
    with pytest.raises(ConfigError) as raised:
        knowledge_map(domains, budget=budget)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("covers", "shown"),
    [
        pytest.param(("a",), ["a"], id="one short cover is shorter than its mark"),
        pytest.param(("aaaaaa",), ["…+1"], id="one long cover is not"),
        pytest.param((), [], id="nothing to cut"),
    ],
)
def test_a_mark_never_costs_more_than_what_it_replaces(covers, shown):
    domain = MapDomain("d", documents=(MapDocument("t", covers), MapDocument("u", ("c" * 50,))))
    text = knowledge_map([domain], budget=len(domain_block(domain)) + len(TOP_KEY) + 2 - 12)
    assert read(text)[0]["documents"] == [
        {"title": "t", "covers": shown},
        {"title": "u", "covers": ["…+1"]},
    ]


def slow_map(domains, budget):
    """The longest texts that fit with the fewest domains counted, one for each choice of them."""
    most = max(len(d.covers) for domain in domains for d in domain.documents)
    for count in range(len(domains) + 1):
        fitting = []
        for gone in itertools.combinations(range(len(domains)), count):
            for keep in range(most, -1, -1):
                blocks = [slow_block(x, None if i in gone else keep) for i, x in enumerate(domains)]
                text = TOP_KEY + ":\n" + "\n".join(blocks)
                if len(text) <= budget:
                    fitting.append(text)
                    break
        if fitting:
            return fitting
    return []


def slow_block(domain, keep):
    text = f"- domain_id: {domain.domain_id}\n  description: {domain.description}\n"
    text += f"  when_to_retrieve: {domain.when_to_retrieve}\n  documents:"
    if keep is None:
        return text + f" {len(domain.documents)}"
    for d in domain.documents:
        whole = ", ".join(d.covers)
        cut = ", ".join([*d.covers[:keep], f"…+{len(d.covers) - keep}"])
        chosen = cut if len(d.covers) > keep and len(cut) < len(whole) else whole
        text += f"\n  - title: {d.title}\n    covers: [{chosen}]"
    return text


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(
            st.lists(st.text("abc", min_size=1, max_size=9), max_size=14), min_size=1, max_size=4
        ),
        min_size=2,
        max_size=4,
    ).filter(lambda lists: sum(map(len, lists)) > 6),
    st.integers(60, 1500),
)
def test_the_cut_is_the_smallest_that_fits(lists, budget):
    domains = [
        MapDomain(f"d{i}", "x", "x", tuple(MapDocument(f"t{j}", tuple(c)) for j, c in enumerate(x)))
        for i, x in enumerate(lists)
    ]
    expected = slow_map(domains, budget)
    if not expected:
        with pytest.raises(ConfigError, match="more than the"):
            knowledge_map(domains, budget=budget)
    else:
        assert knowledge_map(domains, budget=budget) in expected


# any text comes back ------------------------------------------------------------------------

NASTY = [
    *("no", "No", "true", "y", "null", "~", "", " ", "012", "1.10", "1e5", "0o17", "2024-01-05"),
    *("12:30:00", "2001-12-14 21:59:43", "=", "<<", ".inf", "---", "- a", "? a", "...", "-"),
    *("a: b", "a:", "a #b", "#a", "a, b", "[a]", "{a}", "a?", "&a", "*a", "!a", "|", ">", "%a"),
    *("@a", "`a`", "'a'", '"a"', 'a "b" c', "a\\b", "a\nb", "a\r\nb", "\ta", " a", "a ", "a\x00b"),
    *(
        "a\x85b",
        "a\u2028b",
        "\ufeffa",
        "a\ufffe",
        "集群：部署",
        "错误码: 1",
        "👩‍💻 emoji 🚀",
        "…+3",
    ),
    *("https://x.org/a?b=c#d", "全角　空格", "a\x7fb", "\ud800", "C:\\path\\n", "```", "x\u00a0"),
]
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(NASTY))


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_a_nasty_text_is_one_line_and_comes_back_as_it_was(text):
    block, flow = scalar(text), scalar(text, flow=True)
    assert len(block.splitlines()) == len(flow.splitlines()) == 1
    assert yaml.safe_load(f"- k: {block}\n  l: [{flow}, x, {flow}]") == [
        {"k": text, "l": [text, "x", text]}
    ]
    (block + flow).encode("utf-8")


@pytest.mark.parametrize(
    "text", ["集群部署手册", "nginx 1.2", "say “hi”", "(old)", "a/b", "x=1", "一、总则", "v1.10"]
)
def test_an_ordinary_text_stays_without_quotes(text):
    assert scalar(text) == scalar(text, flow=True) == text


def any_domain(least, most):
    documents = st.builds(MapDocument, TEXTS, st.lists(TEXTS, max_size=3).map(tuple))
    members = st.lists(documents, min_size=least, max_size=most).map(tuple)
    return st.builds(MapDomain, TEXTS, TEXTS, TEXTS, members)


@settings(max_examples=60)
@given(st.tuples(any_domain(7, 8), any_domain(1, 2)))
@example([MapDomain("no", "1.10", "a\nb: #c", (MapDocument("t: 'u'", ("🚀", "a, b")),) * 7)])
def test_every_map_reads_back_equal_line_by_line(domains):
    text = knowledge_map(domains, budget=100_000)
    assert read(text) == declared(domains)
    assert yaml.load(text, yaml.BaseLoader)[TOP_KEY] == declared(domains)
    assert len(text.splitlines()) == 1 + sum(4 + 2 * len(domain.documents) for domain in domains)


@given(st.lists(TEXTS, min_size=7, max_size=9), st.integers(150, 700))
def test_a_cut_map_is_still_yaml_and_shows_only_what_is_true(texts, budget):
    documents = tuple(MapDocument(text, tuple(texts)) for text in texts)
    domains = [MapDomain("a", "x", "x", documents)]
    text = knowledge_map(domains, budget=budget)
    assert len(text) <= budget
    (found,) = read(text)
    if found["documents"] == len(documents):
        return
    for shown, whole in zip(found["documents"], documents, strict=True):
        assert shown["title"] == whole.title
        if shown["covers"] != texts:
            *kept, mark = shown["covers"]
            assert kept == texts[: len(kept)]
            assert mark == f"…+{len(texts) - len(kept)}"


# from documents -----------------------------------------------------------------------------


def test_domains_come_by_id_and_documents_by_path_whatever_the_order():
    documents = [
        document("b.md", domain="net", covers=("x",)),
        document("a.md", domain="net"),
        document("c.md", domain="api"),
    ]
    texts = {"net": Text("networks", "when a host is unreachable"), "gone": Text("old", "never")}
    expected = (
        MapDomain("api", "", "", (MapDocument("c.md"),)),
        MapDomain(
            "net",
            "networks",
            "when a host is unreachable",
            (MapDocument("a.md"), MapDocument("b.md", ("x",))),
        ),
    )
    assert map_domains(documents, texts) == expected
    assert map_domains(documents[::-1], texts) == expected


def test_a_domain_text_that_is_null_is_an_empty_text():
    (domain,) = map_domains([document("a.md", domain="api")], {"api": Text(None, None)})
    assert (domain.description, domain.when_to_retrieve) == ("", "")


def test_a_domain_costs_the_length_of_its_block_and_a_line_break():
    domains = domains_of(CASE)
    assert len(knowledge_map(domains)) == len(TOP_KEY + ":") + sum(
        1 + len(domain_block(domain)) for domain in domains
    )


# the real sets ------------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.skipif(not SETS.exists(), reason=f"no evaluation sets at {SETS}")
@pytest.mark.parametrize(
    ("name", "domain_count", "counted", "whole"),
    [
        pytest.param("stard_law_zh", 133, 11_461, 75_695, id="133 domains of Chinese law"),
        pytest.param("tau_banking_kb", 11, 1006, 56_246, id="11 domains of a bank"),
    ],
)
def test_real_domains_are_all_in_the_map_whatever_the_budget(name, domain_count, counted, whole):
    documents = load_corpus(SETS / name).documents
    domains = map_domains(documents, {})
    assert len(domains) == domain_count
    full = knowledge_map(domains, budget=10**9)
    assert read(full) == declared(domains)
    short = knowledge_map(domains, budget=counted)
    assert [domain["documents"] for domain in read(short)] == [len(d.documents) for d in domains]
    assert (len(short), len(full)) == (counted, whole)
    with pytest.raises(ConfigError, match=f"1 more than the {counted - 1} allowed"):
        knowledge_map(domains, budget=counted - 1)
