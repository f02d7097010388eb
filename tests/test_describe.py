"""Documents and domains get their texts, and keep what they have when the model fails."""

import json
import threading
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_server import Answer, completion, serving
from stand_ins import document
from test_llm import GOOD, GOOD_TEXT, KEYS, llm, rows

from kbeval.domains.describe import (
    DocumentFields,
    DomainText,
    Written,
    describe_document,
    describe_documents,
    describe_domain,
)
from kbeval.domains.describe_prompts import DOMAIN_CHARACTERS, domain_prompt
from kbeval.domains.llm import ConnectionFailed
from kbeval.domains.replies import read_reply
from kbeval.domains.texts import clean, excerpt, first_sentence
from kbeval.errors import LlmError

SUMMARY = "调用方限流说明"
COVERS, WHEN = tuple(GOOD["covers"]), GOOD["whenToRetrieve"]


class FakeLlm:
    """Replays its replies (texts, or errors to raise) and keeps the prompts and schemas."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.prompts, self.keys = [], []

    def ask(self, prompt, schema):
        self.prompts.append(prompt)
        self.keys.append([f.alias for f in schema.model_fields.values()])
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return read_reply(completion(reply), schema)


def describe(model, author=None, *, body="正文", **how):
    return describe_document(
        "网关限流", SUMMARY, body, author=author or Written(), ask=model.ask, **how
    )


# a document (REQ-02)


def test_both_fields_are_written_by_one_call():
    model = FakeLlm(GOOD_TEXT)
    assert describe(model) == DocumentFields(COVERS, WHEN, generated=("covers", "when_to_retrieve"))
    assert model.keys == [list(KEYS)]


def test_nothing_is_asked_when_the_author_wrote_both():
    model = FakeLlm()
    assert describe(model, Written(("作者",), "作者的")) == DocumentFields(("作者",), "作者的")
    assert model.prompts == []


@pytest.mark.parametrize(
    ("author", "key", "expected"),
    [
        (Written(covers=("作者",)), "whenToRetrieve", (("作者",), WHEN, ("when_to_retrieve",))),
        (Written(when_to_retrieve="作者的"), "covers", (COVERS, "作者的", ("covers",))),
        (Written(("作者",), "  "), "whenToRetrieve", (("作者",), WHEN, ("when_to_retrieve",))),
    ],
)
@pytest.mark.parametrize("locale", ["zh", "en"])
def test_only_what_is_missing_is_asked_for_and_an_author_is_never_overwritten(
    author, key, expected, locale
):
    model = FakeLlm(GOOD_TEXT)
    fields = describe(model, author, locale=locale)
    assert (fields.covers, fields.when_to_retrieve, fields.generated) == expected
    assert model.keys == [[key]]
    assert [f'- "{k}"' in model.prompts[0] for k in KEYS] == [k == key for k in KEYS]


def test_a_failure_for_the_missing_field_leaves_the_authors_alone():
    fields = describe(FakeLlm(LlmError("down")), Written(covers=("作者",)))
    assert fields == DocumentFields(("作者",), SUMMARY, degraded={"when_to_retrieve": "down"})
    fields = describe(FakeLlm(LlmError("down")), Written(when_to_retrieve="作者的"))
    assert fields == DocumentFields((), "作者的", degraded={"covers": "down"})


@pytest.mark.parametrize("row", rows("LJ-02"), ids=str)
def test_lj02_a_field_that_cannot_be_read_degrades_alone(row):
    expected = dict(row["expect"])
    lost = [n.replace("whenToRetrieve", "when_to_retrieve") for n in expected.pop("degraded", [])]
    fields = describe(FakeLlm(json.dumps(row["reply"])))
    sentence = expected["whenToRetrieve"].replace("(summary)", SUMMARY)
    assert (list(fields.covers), fields.when_to_retrieve) == (expected["covers"], sentence)
    assert list(fields.degraded) == lost
    assert not fields.failed


@pytest.mark.parametrize("row", rows("LJ-03"), ids=lambda row: f"LJ-03 row {row['n']}")
@pytest.mark.parametrize("allowed", [False, True])
def test_lj03_a_document_is_degraded_with_the_finish_reason(row, allowed):
    with serving(Answer({"id": "1", "object": "chat.completion", **row})) as server:
        fields = describe(llm(server, allow_reasoning_field=allowed))
    if allowed and row["n"] == 3:
        assert (fields.covers, fields.when_to_retrieve, fields.degraded) == (COVERS, WHEN, {})
        return
    assert (fields.covers, fields.when_to_retrieve, fields.failed) == ((), SUMMARY, True)
    finish = row["choices"][0]["finish_reason"] if row["choices"] else "none"
    assert set(fields.degraded) == {"covers", "when_to_retrieve"}
    assert all(f"finish_reason={finish}" in reason for reason in fields.degraded.values())


def test_what_it_took_to_read_the_reply_is_kept():
    fields = describe(FakeLlm('```json\n{"covers": "限流, 熔断", "whenToRetrieve": "w"}\n```'))
    assert (fields.unwrapped, fields.mended) == (True, ("covers",))


@pytest.mark.parametrize("locale", ["zh", "en"])
def test_the_prompt_holds_title_summary_and_the_first_1000_characters(locale):
    model = FakeLlm(GOOD_TEXT)
    describe(model, body="首" + "b$title" * 200 + "尾" * 50, locale=locale)
    (prompt,) = model.prompts
    assert "<title>网关限流</title>" in prompt and f"<summary>{SUMMARY}</summary>" in prompt
    assert f"<body>\n{('首' + 'b$title' * 200)[:1000]}\n</body>" in prompt
    assert ("知识库" in prompt) == (locale == "zh")


def test_no_character_is_split_and_none_is_sent_that_cannot_be():
    with serving(GOOD_TEXT) as server:
        describe(llm(server), body="\udc00\x00" + "x" * 996 + "👩‍👩‍👧!")
    (sent,) = [one["content"] for one in server.requests[0]["json"]["messages"]]
    assert "<body>\n\ufffd " + "x" * 996 + "\n</body>" in sent


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abc", 3, "abc"),
        ("abc", 2, "ab"),
        ("ae\u0301x", 2, "a"),
        ("ae\u0301x", 3, "ae\u0301"),
        ("👍🏽x", 1, "👍"),  # nothing is left of it otherwise
        ("a👍🏽x", 2, "a"),
        ("a👩‍👧x", 2, "a"),
        ("a👩‍👧x", 3, "a"),
        ("a👩‍👧x", 4, "a👩‍👧"),
        ("🇩🇪🇫🇷", 3, "🇩🇪"),
        ("🇩🇪🇫🇷", 2, "🇩🇪"),
        ("a\u1100\u1161\u11a8", 3, "a"),
        ("a\r\nb", 2, "a"),
        ("a❤\ufe0fb", 2, "a"),
        ("कि", 1, "क"),
    ],
)
def test_an_excerpt_ends_between_characters(text, limit, expected):
    assert excerpt(text, limit) == expected


@given(st.text(), st.integers(1, 20))
def test_an_excerpt_is_a_beginning_and_never_empty(text, limit):
    cut = excerpt(text, limit)
    assert text.startswith(cut) and len(cut) <= limit and bool(cut) == bool(text)
    if len(cut) < min(limit, len(text)):
        assert not unicodedata.category(text[len(cut)]).startswith("M")


@given(st.text(st.characters(exclude_categories=[])))
def test_clean_text_can_be_sent(text):
    cleaned = clean(text)
    assert cleaned.encode() is not None and "\x00" not in cleaned and clean(cleaned) == cleaned


# many documents


def documents(count):
    return [document(f"d{i}.md", summary=f"摘要 {i}") for i in range(count)]


def test_a_batch_keeps_the_order_and_the_bound_and_tells_its_progress():
    told, threads = {}, set()

    def progress(position, fields):
        told[position] = fields
        threads.add(threading.current_thread())

    def answer(sent):
        title = sent["messages"][0]["content"].split("<title>")[1].split("</title>")[0]
        text = json.dumps({"covers": [title], "whenToRetrieve": "w"})
        return Answer(completion(text), delay=0.05)

    with serving(answer) as server:
        batch = describe_documents(documents(9), ask=llm(server).ask, workers=3, progress=progress)
    assert [fields.covers for fields in batch.fields] == [(f"d{i}.md",) for i in range(9)]
    assert [told[i] for i in range(9)] == list(batch.fields)
    assert threads == {threading.current_thread()}
    assert len(server.requests) == 9 and 1 < server.most_busy <= 3
    assert (batch.asked_count, batch.degraded_count, batch.failure) == (9, 0, None)
    batch.raise_for_failure()


def test_a_batch_of_which_all_degraded_is_a_failed_connection():
    with serving(Answer("oops", status=500)) as server:
        batch = describe_documents(documents(20), ask=llm(server, give_up_after=3).ask, workers=2)
    assert 3 <= len(server.requests) <= 4  # the second worker may have been on its way
    assert [f.when_to_retrieve for f in batch.fields] == [f"摘要 {i}" for i in range(20)]
    with pytest.raises(ConnectionFailed) as told:
        batch.raise_for_failure()
    assert str(told.value).startswith("no field could be generated for any of 20 documents; ")
    assert "no longer asked" in str(told.value)
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("replies", "failed"),
    [
        pytest.param([GOOD_TEXT, LlmError("x"), LlmError("x")], False, id="one came"),
        pytest.param(['{"covers": ["a"]}'] * 3, False, id="half of each came"),
        pytest.param([LlmError("x")] * 3, True, id="none came"),
        pytest.param(["抱歉"] * 3, True, id="none was of use"),
    ],
)
def test_a_batch_failed_only_if_nothing_came(replies, failed):
    batch = describe_documents(documents(3), ask=FakeLlm(*replies).ask, workers=1)
    assert (batch.failure is not None) == failed
    assert batch.degraded_count == sum(reply != GOOD_TEXT for reply in replies)


def test_a_batch_that_asks_nothing_has_not_failed():
    written = [document("a", covers=("c",), when_to_retrieve="w")]
    for batch in (describe_documents([], ask=None), describe_documents(written, ask=None)):
        assert (batch.asked_count, batch.failure) == (0, None)


def test_an_interrupt_starts_no_further_call():
    def stop(position, fields):
        raise KeyboardInterrupt

    with serving(Answer(completion(GOOD_TEXT), delay=0.1)) as server:
        with pytest.raises(KeyboardInterrupt):
            describe_documents(documents(30), ask=llm(server).ask, workers=2, progress=stop)
        assert len(server.requests) <= 4


def test_a_fault_of_the_program_is_not_taken_for_one_of_the_model():
    with pytest.raises(ZeroDivisionError):
        describe_documents(documents(3), ask=FakeLlm(GOOD_TEXT, ZeroDivisionError()).ask, workers=1)


# a domain (REQ-03)

TEXT = "对外接口的约定与排错。限流见网关限流配置；集群问题归 infrastructure。"
REPLY = json.dumps({"whenToRetrieve": TEXT})


def domain(model, docs=None, **how):
    how = {"former": "旧文。第二句。"} | how
    docs = documents(2) if docs is None else docs
    return describe_domain("api", docs, {"infrastructure": "集群。"}, ask=model.ask, **how)


def test_a_domain_gets_its_text_and_its_first_sentence():
    assert domain(FakeLlm(REPLY)) == DomainText(TEXT, "对外接口的约定与排错。")


def test_a_given_description_stays():
    assert domain(FakeLlm(REPLY), description="接口") == DomainText(TEXT, "接口")


@pytest.mark.parametrize("reply", [LlmError("down"), "{}", '{"whenToRetrieve": ""}', "抱歉"])
def test_a_failure_keeps_the_former_text_else_none(reply):
    kept = domain(FakeLlm(reply))
    assert (kept.when_to_retrieve, kept.description) == ("旧文。第二句。", "旧文。")
    assert kept.degraded
    assert domain(FakeLlm(LlmError("down")), former="") == DomainText("", "", degraded="down")


def test_an_emptied_domain_has_no_text_and_asks_nobody():
    model = FakeLlm()
    assert domain(model, docs=[]) == DomainText("", "")
    assert model.prompts == []


@pytest.mark.parametrize("locale", ["zh", "en"])
def test_the_prompt_holds_every_document_and_asks_for_the_borders(locale):
    model = FakeLlm(REPLY)
    docs = [
        document("限流", covers=("429", "配额"), when_to_retrieve="收到 429\n时"),
        document("鉴权", covers=("令牌",)),
    ]
    domain(model, docs, locale=locale)
    (prompt,) = model.prompts
    assert "- 限流 [429, 配额] | 收到 429 时\n- 鉴权 [令牌]\n" in prompt
    assert "- infrastructure: 集群。" in prompt
    assert ("界限" if locale == "zh" else "borders") in prompt
    assert ("相邻域" if locale == "zh" else "neighbouring domains") in prompt
    assert "$" not in prompt


def test_the_domain_itself_and_silent_domains_are_no_neighbours():
    prompt, _ = domain_prompt("api", documents(1), {"api": "自己", "empty": " "})
    assert "<neighbours>\n-\n</neighbours>" in prompt


@pytest.mark.parametrize(
    ("count", "when", "shortened"),
    [
        (3, "w" * 100, ""),
        (60, "w" * 1000, "long when_to_retrieve cut"),
        (400, "w" * 1000, "without when_to_retrieve"),
        (1500, "w", "titles only"),
        (9000, "w", "titles of 2250 of 9000 documents"),
    ],
)
def test_a_large_domain_is_shortened_evenly_and_says_so(count, when, shortened):
    docs = [
        document(f"d{i:04}.md", covers=("c" * 20,), when_to_retrieve=when) for i in range(count)
    ]
    prompt, told = domain_prompt("api", docs, {})
    assert told == shortened
    assert len(prompt) < DOMAIN_CHARACTERS * 1.2
    assert f"({shortened})" in prompt or not shortened
    text = describe_domain("api", docs, {}, former="", ask=FakeLlm(REPLY).ask)
    assert text.shortened == shortened


def test_many_neighbours_are_shortened_too():
    prompt, _ = domain_prompt("api", documents(1), {f"n{i}": "x" * 500 for i in range(130)})
    assert all(f"- n{i}: x" in prompt for i in range(130))
    assert len(prompt) < 10_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("涉及限流时检索。鉴权另见。", "涉及限流时检索。"),
        ("收到 429 怎么办？查这里。", "收到 429 怎么办？"),
        ("他说“限流了！”然后重试。", "他说“限流了！”"),
        ("限流；鉴权另见。完", "限流；鉴权另见。"),
        ("没有句号", "没有句号"),
        ("Rate limits of v1.2. Then auth.", "Rate limits of v1.2."),
        ("See e.g. quotas. More.", "See e.g. quotas."),
        ("Made by J. Doe. More.", "Made by J. Doe."),
        ("Is it slow? Look here.", "Is it slow?"),
        ("One line\nanother. line", "One line"),
        ("Quotas, limits, etc.", "Quotas, limits, etc."),
        ("  ", ""),
    ],
)
def test_the_first_sentence_of_a_text(text, expected):
    assert first_sentence(text) == expected
