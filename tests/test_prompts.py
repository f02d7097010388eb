"""What planner and executor are told: FS-5, REQ-04, and the tool's schema."""

import copy
import json
import re
from pathlib import Path

import pytest
from stand_ins import document, tool

from kbeval.domains.knowledge_map import MapDocument, MapDomain, knowledge_map
from kbeval.domains.prompts import executor_prompt, planner_prompt
from kbeval.domains.schema import lookup_tool_schema
from kbeval.errors import ConfigError
from kbeval.records import Level
from kbeval.retrieval.answer import result_json

CASE = json.loads((Path(__file__).parent / "cases/LJ-04/domains.json").read_text(encoding="utf-8"))
OLD_RULE = "所有需要外部信息的地方，都必须调用对应的工具"
OLD_RULE_EN = "you must call the corresponding tool"
OF_THE_MAP = ["available_knowledge_domains", "when_to_retrieve", "covers", "domain_id", "…+"]
MAP = knowledge_map(
    [
        MapDomain(
            domain["domain_id"],
            domain["description"],
            domain["when_to_retrieve"],
            tuple(MapDocument(d["title"], tuple(d["covers"])) for d in domain["documents"]),
        )
        for domain in CASE
    ]
)
LOCALES = pytest.mark.parametrize("locale", ["zh", "en"])


def constraints(prompt):
    """The text of each numbered constraint, by its number."""
    parts = re.split(r"^(\d)\. ", prompt, flags=re.M)
    return {int(n): text for n, text in zip(parts[1::2], parts[2::2], strict=True)}


# FS-5 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("locale", "phrases"),
    [
        pytest.param("zh", ["禁止换关键词重新检索"], id="FS-5.a2 zh"),
        pytest.param("zh", ["不查全不会被追责"], id="FS-5.a3 zh"),
        pytest.param("en", ["Do not search again with other keywords"], id="FS-5.a2 en"),
        pytest.param("en", ["you will not be blamed for an incomplete search"], id="FS-5.a3 en"),
        pytest.param(
            "zh",
            ["`PRECISE`：", "`HIGHLY_RELEVANT`：", "`REFERENCE`：", "`null`（`found=false`）："],
            id="FS-5.a4 zh: what to do for each relevanceLevel",
        ),
        pytest.param(
            "en",
            ["`PRECISE`: ", "`HIGHLY_RELEVANT`: ", "`REFERENCE`: ", "`null` (`found=false`): "],
            id="FS-5.a4 en: what to do for each relevanceLevel",
        ),
    ],
)
def test_fs5_the_executor_prompt_says_it(locale, phrases):
    prompt = executor_prompt(locale=locale)
    assert [prompt.count(phrase) for phrase in phrases] == [1] * len(phrases)


@LOCALES
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_fs5_a1_and_b1_the_executor_prompt_holds_nothing_of_the_map(locale, version):
    prompt = executor_prompt(locale=locale, version=version)
    texts = [domain["domain_id"] for domain in CASE]
    texts += [d["title"] for domain in CASE for d in domain["documents"]]
    assert [text for text in (*OF_THE_MAP, *texts) if text in prompt] == []


@pytest.mark.parametrize(
    ("locale", "headings"),
    [
        ("zh", ["判断重复", "重复了该怎么办", "合法出口：可以停下", "利用质量信号"]),
        (
            "en",
            [
                "Judge whether it is a repetition",
                "If it is a repetition",
                "You may stop",
                "Use the quality signal",
            ],
        ),
    ],
)
def test_fs5_b2_there_are_four_constraints_in_this_order(locale, headings):
    found = constraints(executor_prompt(locale=locale))
    assert list(found) == [1, 2, 3, 4]
    assert [re.match(r"\*\*(.+?)[。.]\*\*", text)[1] for text in found.values()] == headings


@pytest.mark.parametrize(
    ("locale", "rule"),
    [
        pytest.param("zh", OLD_RULE, id="FS-5.b3 zh"),
        pytest.param("en", OLD_RULE_EN, id="FS-5.b3 en"),
    ],
)
def test_fs5_b3_the_old_rule_is_replaced_and_stands_in_v1_alone(locale, rule):
    assert rule not in executor_prompt(locale=locale)
    old = executor_prompt(locale=locale, version="v1")
    assert rule in old
    assert constraints(old) == {}


@LOCALES
def test_the_two_versions_differ_in_the_rules_on_retrieval_alone(locale):
    heading = {"zh": "# 检索\n", "en": "# Retrieval\n"}[locale]
    (old, _), (new, _) = (
        executor_prompt(locale=locale, version=version).split(heading) for version in ("v1", "v2")
    )
    assert old == new


@pytest.mark.parametrize(
    ("locale", "prohibition", "action"),
    [
        ("zh", "禁止|不要", "改为"),
        ("en", "[Dd]o not", "instead"),
    ],
)
def test_beside_each_prohibition_stands_what_to_do_instead(locale, prohibition, action):
    prompts = [executor_prompt(locale=locale), planner_prompt(MAP, locale=locale)]
    lines = [x for prompt in prompts for x in prompt.splitlines() if re.search(prohibition, x)]
    assert len(lines) >= 4
    for line in lines:
        for rest in re.split(prohibition, line)[1:]:
            assert action in rest, line


@LOCALES
def test_every_level_of_the_tool_has_its_behaviour_in_the_fourth_constraint(locale):
    fourth = constraints(executor_prompt(locale=locale))[4]
    bullets = dict(re.findall(r"^   - `(\w+)`(?: ?[（(][^）)]+[）)])?[：:] ?(.+)$", fourth, re.M))
    handed_out = [level.name for level in sorted(Level, reverse=True) if level]
    assert list(bullets) == [*handed_out, "null"]
    stop = {"zh": "停止检索", "en": "Stop searching"}[locale]
    assert [name for name, text in bullets.items() if stop in text] == handed_out[:2]


# REQ-04 -------------------------------------------------------------------------------------


@LOCALES
def test_req04_4_and_a1_the_map_is_a_block_of_its_own_at_the_end(locale):
    prompt = planner_prompt(MAP, locale=locale)
    assert prompt.endswith(f"\n```yaml\n{MAP}\n```\n")
    assert prompt.count("\navailable_knowledge_domains:\n") == 1


@LOCALES
@pytest.mark.parametrize("map_text", ["", "\n", knowledge_map([])])
def test_req04_3_and_a2_without_domains_neither_block_nor_rules_are_there(locale, map_text):
    prompt = planner_prompt(map_text, locale=locale)
    assert [text for text in (*OF_THE_MAP, "```", "<!--", "{") if text in prompt] == []
    assert planner_prompt(MAP, locale=locale).startswith(prompt)
    assert prompt.strip()


@pytest.mark.parametrize(
    ("locale", "rule"),
    [
        pytest.param(
            "zh",
            "制定步骤时，先查看 `available_knowledge_domains`，"
            "按 `when_to_retrieve` 判断是否需要检索该域",
            id="REQ-04.r1 zh",
        ),
        pytest.param(
            "zh",
            "每个域最多指示 Executor 检索一次；已检索过的域不再安排检索步骤",
            id="REQ-04.r2 zh",
        ),
        pytest.param(
            "en",
            "When making steps, look at `available_knowledge_domains` first and judge by "
            "`when_to_retrieve` whether a domain needs to be searched",
            id="REQ-04.r1 en",
        ),
        pytest.param(
            "en",
            "Direct the executor to search each domain at most once; "
            "plan no further search step for a domain already searched",
            id="REQ-04.r2 en",
        ),
    ],
)
def test_req04_the_planner_has_the_rule_when_there_are_domains(locale, rule):
    assert rule in planner_prompt(MAP, locale=locale)
    assert rule not in planner_prompt("", locale=locale)


def test_a_map_with_braces_and_backslashes_is_taken_as_it_is():
    text = knowledge_map([MapDomain("d", r"{x} \1 {knowledge_map}", "", (MapDocument("t"),))])
    assert text in planner_prompt(text)


# the schema ---------------------------------------------------------------------------------


@LOCALES
def test_the_schema_asks_for_a_query_and_nothing_else(locale):
    schema = lookup_tool_schema(locale=locale)
    assert schema["type"] == "function"
    assert schema["function"]["name"] == "lookup_knowledge"
    parameters = copy.deepcopy(schema["function"]["parameters"])
    assert parameters["properties"]["query"].pop("description")
    assert parameters == {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
        "additionalProperties": False,
    }
    assert json.loads(json.dumps(schema)) == schema


@LOCALES
def test_the_description_names_every_field_and_level_of_an_answer(locale):
    base = tool([document("a.md")], {"a.md": [1.0, 0.0], "q": [1.0, 0.0]})
    answer = result_json(base.lookup_knowledge("q", "s")[0])
    description = lookup_tool_schema(locale=locale)["function"]["description"]
    names = [*answer, *answer["primary"], *(level.name for level in Level if level), "null"]
    assert [name for name in names if name not in description] == []
    assert len(description) <= 1024  # what OpenAI accepts


def test_changing_a_schema_changes_no_other():
    lookup_tool_schema()["function"]["parameters"]["properties"].clear()
    assert list(lookup_tool_schema()["function"]["parameters"]["properties"]) == ["query"]


# faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: planner_prompt("", locale="fr"), "locale: got 'fr'; allowed are zh, en"),
        (lambda: executor_prompt(locale="fr"), "locale: got 'fr'; allowed are zh, en"),
        (lambda: executor_prompt(version="v3"), "version: got 'v3'; allowed are v1, v2"),
        (lambda: lookup_tool_schema(locale="fr"), "locale: got 'fr'; allowed are zh, en"),
    ],
)
def test_an_unknown_locale_or_version_is_named(call, message):
    with pytest.raises(ConfigError) as raised:
        call()
    assert str(raised.value) == message
