"""The whole look-up: session filter, refill, notices, take-back, threads (SM-02..04, ST-02..03)."""

import asyncio
import importlib.util
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from stand_ins import TableEncoder, at_similarity, document, knowledge, settings, tool

from kbeval.config import load_settings
from kbeval.errors import ConfigError
from kbeval.records import Level
from kbeval.retrieval.session import current_session, in_session, session_scope
from kbeval.retrieval.tool import KnowledgeTool

CASES = Path(__file__).parent / "cases"
QUERY = "the key"


def paths(result):
    return [d.file_path for d in (result.primary, *result.supplements) if d is not None]


def base(similarities, *, exact=(), chosen=None, domains=None):
    """A tool over a.md, b.md, ... at these similarities to QUERY; `exact` carry its key."""
    names = [f"{chr(97 + i)}.md" for i in range(len(similarities))]
    documents = [
        document(n, domain=(domains or {}).get(n, "ops"), keywords=("key",) if n in exact else ())
        for n in names
    ]
    vectors = {n: at_similarity(s) for n, s in zip(names, similarities, strict=True)}
    return tool(documents, {**vectors, QUERY: [1.0, 0.0]}, chosen=chosen)


# ranking and grading ------------------------------------------------------------------------


def test_l0_matches_come_first_but_leave_a_place_for_the_nearest():
    answer, invocation = base(
        [0.9, 0.3, 0.4, 0.2, 0.1], exact=("b.md", "c.md", "d.md")
    ).lookup_knowledge(QUERY, "s")
    assert paths(answer) == ["c.md", "b.md", "a.md"]
    assert answer.relevance_level == "HIGHLY_RELEVANT"
    assert invocation.retrieval_details["l0_match_count"] == 3


def test_with_limit_one_an_l0_match_takes_the_place_and_decides():
    chosen = load_settings({"retrieval": {"limit": 1}})
    answer, invocation = base(
        [0.9, 0.3, 0.4], exact=("b.md", "c.md"), chosen=chosen
    ).lookup_knowledge(QUERY, "s")
    assert paths(answer) == ["c.md"]
    assert (answer.relevance_level, invocation.retrieval_details["exact_only"]) == (
        "REFERENCE",
        True,
    )


def test_equal_distances_are_ordered_by_path():
    answer, _ = base([0.6, 0.8, 0.8, 0.8, 0.8]).lookup_knowledge(QUERY, "s")
    assert paths(answer) == ["b.md", "c.md", "d.md"]


def test_of_two_l0_matches_the_one_left_never_becomes_precise():
    lookup = base(
        [0.3, 0.2, 0.1], exact=("a.md", "b.md"), chosen=load_settings({"retrieval": {"limit": 1}})
    )
    first, _ = lookup.lookup_knowledge(QUERY, "s")
    second, invocation = lookup.lookup_knowledge(QUERY, "s")
    assert (paths(first), first.relevance_level) == (["a.md"], "REFERENCE")
    assert (paths(second), second.relevance_level) == (["b.md"], "REFERENCE")
    assert invocation.dedup_reason == "PARTIAL"


@pytest.mark.parametrize(
    ("rule", "similarities", "level"),
    [
        pytest.param("unique", [0.9, 0.3], "PRECISE", id="the specs' rule"),
        pytest.param("unique-and-nearest", [0.9, 0.3], "HIGHLY_RELEVANT", id="not the nearest"),
        pytest.param("unique-and-nearest", [0.3, 0.9], "PRECISE", id="the nearest"),
        pytest.param("unique-and-nearest", [0.4, 0.3], "REFERENCE", id="REFERENCE at least"),
        pytest.param("unique-and-nearest", [0.9, 0.9], "PRECISE", id="as near as the nearest"),
    ],
)
def test_both_rules_for_a_unique_match(rule, similarities, level):
    chosen = load_settings({"retrieval": {"l0": {"precise-requires": rule}}})
    answer, _ = base(similarities, exact=("b.md",), chosen=chosen).lookup_knowledge(QUERY, "s")
    assert answer.relevance_level == level


# the session filter -------------------------------------------------------------------------


def test_sm04_what_was_seen_makes_room_for_the_next_in_rank():
    case = json.loads((CASES / "SM-04" / "store.json").read_text())
    vectors = {row["path"]: row["vector"] for row in case["docs"]} | {"q": case["query"]}
    chosen = load_settings({"retrieval": {"limit": case["k"]}})
    lookup = tool([document(row["path"]) for row in case["docs"]], vectors, chosen=chosen)
    for path in case["already_retrieved"]:
        lookup.tracker.mark_retrieved("s", "ops", path)
    first, _ = lookup.lookup_knowledge("q", "s")
    assert (first.found, paths(first), first.relevance_level) == (
        True,
        case["expect_first"],
        "HIGHLY_RELEVANT",
    )
    second, _ = lookup.lookup_knowledge("q", "s")
    assert (paths(second), second.relevance_level) == (["ops/5.md"], "REFERENCE")
    third, invocation = lookup.lookup_knowledge("q", "s")
    assert (third.found, invocation.dedup_reason) == (False, "ALL_RETRIEVED")
    assert all(f"ops/{i}.md" in third.message for i in range(1, 6))


def test_the_notice_names_only_what_matches_the_query():
    lookup = base([0.9, 0.3])
    lookup.tracker.mark_retrieved("s", "ops", "b.md")
    lookup.lookup_knowledge(QUERY, "s")
    answer, invocation = lookup.lookup_knowledge(QUERY, "s")
    assert "a.md" in answer.message
    assert "b.md" not in answer.message
    assert invocation.retrieval_details["withheld"] == ["a.md"]


def test_the_notice_lists_twenty_and_counts_the_rest():
    names = [f"{i:02}.md" for i in range(23)]
    vectors = {n: at_similarity(0.9 - i / 100) for i, n in enumerate(names)} | {"q": [1, 0]}
    lookup = tool([document(n) for n in names], vectors)
    for name in names:
        lookup.tracker.mark_retrieved("s", "ops", name)
    answer, invocation = lookup.lookup_knowledge("q", "s")
    assert (
        answer.message
        == f"以下文档已在本会话中检索过：[{', '.join(names[:20])}, 另有 3 篇]，无需重复召回"
    )
    assert invocation.retrieval_details["withheld"] == names


def test_nothing_similar_is_told_apart_from_everything_given():
    lookup = base([0.4])
    answer, invocation = lookup.lookup_knowledge(QUERY, "s")
    assert answer.message == "知识库中没有与该查询足够相似的文档"
    assert (invocation.relevance_level, invocation.dedup_reason) == ("NOT_FOUND", None)


def test_a_replaced_primary_is_named():
    lookup = base([0.9, 0.8])
    lookup.tracker.mark_retrieved("s", "ops", "a.md")
    answer, invocation = lookup.lookup_knowledge(QUERY, "s")
    assert paths(answer) == ["b.md"]
    assert answer.message == "最相关的文档 a.md 已在本会话中检索过，以下为其余结果"
    assert invocation.dedup_reason == "PARTIAL"
    assert invocation.retrieval_details["l1_top_similarity"] == 0.9
    assert invocation.retrieval_details["l1_top_fresh_similarity"] == 0.8


def test_a_withheld_supplement_is_partial_without_a_message():
    lookup = base([0.9, 0.8, 0.7])
    lookup.tracker.mark_retrieved("s", "ops", "b.md")
    answer, invocation = lookup.lookup_knowledge(QUERY, "s")
    assert (paths(answer), answer.message) == (["a.md", "c.md"], "")
    assert invocation.dedup_reason == "PARTIAL"


def test_a_document_whose_content_changed_comes_again():
    lookup = base([0.9, 0.3])
    lookup.lookup_knowledge(QUERY, "s")
    lookup.knowledge = lookup.knowledge.add([document("a.md", body="A new body.")])
    answer, invocation = lookup.lookup_knowledge(QUERY, "s")
    assert answer.primary.content == "A new body."
    assert invocation.dedup_reason == "CONTENT_CHANGED"
    assert lookup.lookup_knowledge(QUERY, "s")[1].dedup_reason == "ALL_RETRIEVED"


def test_the_caller_may_ask_for_it_again():
    lookup = base([0.9])
    lookup.lookup_knowledge(QUERY, "s")
    answer, invocation = lookup.lookup_knowledge(QUERY, "s", redeliver=True)
    assert (paths(answer), invocation.dedup_reason) == (["a.md"], "REQUESTED")


def test_passages_as_supplements_are_not_marked():
    chosen = load_settings({"retrieval": {"supplement-content": "passage"}})
    lookup = base([0.9, 0.8], chosen=chosen)
    answer, _ = lookup.lookup_knowledge(QUERY, "s")
    assert answer.supplements[0].content == "b.md\nBody of b.md."
    assert lookup.tracker.is_doc_retrieved("s", "a.md")
    assert not lookup.tracker.is_doc_retrieved("s", "b.md")
    again, _ = lookup.lookup_knowledge(QUERY, "s")
    assert again.primary.content == "Body of b.md."


@given(
    st.lists(
        st.sampled_from([0.95, 0.9, 0.8, 0.75, 0.7, 0.6, 0.5, 0.45, 0.3]), min_size=1, max_size=9
    ),
    st.sets(st.integers(0, 8)),
    st.integers(1, 4),
)
@hypothesis_settings(max_examples=60, deadline=None)
def test_a_session_is_given_every_matching_document_exactly_once(similarities, keyed, limit):
    names = [f"{chr(97 + i)}.md" for i in range(len(similarities))]
    exact = {names[i] for i in keyed if i < len(names)}
    lookup = base(similarities, exact=exact, chosen=load_settings({"retrieval": {"limit": limit}}))
    handed, answers = [], 0
    while (answer := lookup.lookup_knowledge(QUERY, "s"))[0].found:
        handed += paths(answer[0])
        answers += 1
        assert len(paths(answer[0])) <= limit
        assert answers <= len(names)
    matching = exact | {n for n, s in zip(names, similarities, strict=True) if s >= 0.5}
    assert sorted(handed) == sorted(matching)
    assert answer[1].dedup_reason == ("ALL_RETRIEVED" if matching else None)
    assert set(answer[1].retrieval_details.get("withheld", ())) == matching


# claim and take back ------------------------------------------------------------------------


def test_a_failure_after_the_claim_takes_it_back(monkeypatch):
    lookup = base([0.9, 0.8])
    chosen = load_settings({"retrieval": {"supplement-content": "passage"}})
    lookup = base([0.9, 0.8], chosen=chosen)

    def fails(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(type(lookup.knowledge), "nearest_passage", fails)
    with pytest.raises(RuntimeError, match="broken"):
        lookup.lookup_knowledge(QUERY, "s")
    assert not lookup.tracker.is_doc_retrieved("s", "a.md")


def test_a_caller_that_fails_later_takes_it_back():
    lookup = base([0.9])
    _, invocation = lookup.lookup_knowledge(QUERY, "s")
    lookup.take_back(invocation)
    assert lookup.tracker.get_retrieved_domains("s") == ()
    assert lookup.lookup_knowledge(QUERY, "s")[0].found


def test_taking_back_a_redelivery_keeps_what_was_given_before():
    lookup = base([0.9])
    lookup.lookup_knowledge(QUERY, "s")
    _, invocation = lookup.lookup_knowledge(QUERY, "s", redeliver=True)
    lookup.take_back(invocation)
    assert lookup.tracker.is_doc_retrieved("s", "a.md")


class SlowEncoder(TableEncoder):
    """Sleeps while it encodes, as a model would."""

    def encode(self, texts, kind):
        if kind == "query":
            time.sleep(0.005)
        return super().encode(texts, kind)


def together(count, work):
    """Run `work(i)` in `count` threads released at once; their results in order."""
    barrier = threading.Barrier(count)

    def run(i):
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def slow_tool():
    encoder = SlowEncoder({"docs/a.md": [1, 0], "q": [1, 0]})
    return tool([document("docs/a.md")], None, encoder=encoder)


def test_sm03_one_of_fifty_threads_of_a_session_gets_the_document():
    lookup = slow_tool()
    for repeat in range(20):
        answers = together(50, lambda _, r=repeat: lookup.lookup_knowledge("q", f"s{r}")[0])
        assert sum(a.found for a in answers) == 1
        assert {a.retrieved_domains_this_session for a in answers} == {("ops",)}
        assert sum("已在本会话中检索过" in a.message for a in answers) == 49


def test_sm03_each_of_fifty_sessions_gets_it_once():
    lookup = slow_tool()
    answers = together(50, lambda i: lookup.lookup_knowledge("q", f"s{i}")[0])
    assert [a.found for a in answers] == [True] * 50


def test_no_lock_is_held_while_encoding():
    """Two look-ups of one session are inside the encoder at the same time."""
    inside = threading.Barrier(2, timeout=10)

    class Meeting(TableEncoder):
        def encode(self, texts, kind):
            if kind == "query":
                inside.wait()
            return super().encode(texts, kind)

    lookup = tool([document("a.md")], None, encoder=Meeting({"a.md": [1, 0], "q": [1, 0]}))
    answers = together(2, lambda _: lookup.lookup_knowledge("q", "s")[0].found)
    assert sorted(answers) == [False, True]


# the session id -----------------------------------------------------------------------------


def test_sm02a_a_pool_and_an_executor_keep_the_session():
    lookup = base([0.9])
    with session_scope("s1"), ThreadPoolExecutor(2) as pool:
        work = in_session(lookup.lookup_knowledge)
        assert pool.submit(work, QUERY).result()[0].found
        assert not pool.submit(work, QUERY).result()[0].found

    async def through_executor():
        loop = asyncio.get_running_loop()
        with session_scope("s2"):
            work = in_session(lookup.lookup_knowledge)
            first = await loop.run_in_executor(None, work, QUERY)
            second = await loop.run_in_executor(None, work, QUERY)
            return first[0].found, second[0].found

    assert asyncio.run(through_executor()) == (True, False)


def test_sm02b_interleaved_tasks_do_not_mix():
    lookup = base([0.9, 0.8], domains={"a.md": "x", "b.md": "y"})

    async def task(session):
        with session_scope(session):
            found = []
            for _ in range(5):
                await asyncio.sleep(0)
                found.append(lookup.lookup_knowledge(QUERY)[0])
                await asyncio.sleep(0)
            return [a.found for a in found], found[-1].retrieved_domains_this_session

    async def both():
        return await asyncio.gather(task("s1"), task("s2"))

    assert asyncio.run(both()) == [([True] + [False] * 4, ("x", "y"))] * 2


def test_sm02c_sixteen_threads_each_with_its_own_session():
    lookup = base([0.9])

    def work(i):
        with session_scope(f"s{i}"):
            return sum(lookup.lookup_knowledge(QUERY)[0].found for _ in range(100))

    assert together(16, work) == [1] * 16
    assert current_session() is None


def test_a_thread_starts_clean_after_a_session_ends(caplog):
    lookup = base([0.9])
    with session_scope("s1"):
        lookup.lookup_knowledge(QUERY)
    assert current_session() is None
    with caplog.at_level(logging.WARNING):
        assert lookup.lookup_knowledge(QUERY)[0].found
        assert lookup.lookup_knowledge(QUERY)[0].found
    assert (lookup.sessionless_count, len(caplog.records)) == (2, 1)
    assert len(lookup.tracker) == 0


def test_a_kept_scope_and_an_inner_one_do_not_end_the_session():
    lookup = base([0.9])
    with session_scope("s", keep=True):
        lookup.lookup_knowledge(QUERY)
    assert not lookup.lookup_knowledge(QUERY, "s")[0].found
    with session_scope("s"):
        with session_scope("s"):
            pass
        assert not lookup.lookup_knowledge(QUERY)[0].found
    assert lookup.lookup_knowledge(QUERY, "s")[0].found


# odd input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "   ", "\t\n"])
def test_st02_a_blank_query_finds_nothing_and_marks_nothing(query):
    lookup = base([0.9])
    answer, invocation = lookup.lookup_knowledge(query, "s")
    assert (answer.found, answer.message, invocation.relevance_level) == (
        False,
        "查询为空",
        "NOT_FOUND",
    )
    assert len(lookup.tracker) == 0


def test_vs01_an_empty_index_says_so():
    answer, _ = tool([], {"q": [1, 0]}, chosen=load_settings({"locale": "en"})).lookup_knowledge(
        "q"
    )
    assert (answer.found, answer.message) == (False, "The knowledge base holds no documents")


def test_settings_that_do_not_fit_the_index_are_refused():
    built = knowledge([document("a.md")], {"a.md": [1, 0]})
    with pytest.raises(ConfigError, match=r"distance: got 'squared_l2', but the index holds 'l2'"):
        KnowledgeTool(built, settings(distance="squared_l2"))
    with pytest.raises(ConfigError, match=r"retrieval\.l0: other keys"):
        KnowledgeTool(built, load_settings({"retrieval": {"l0": {"fields": ["title"]}}}))


def test_st03_the_same_grade_alone_in_a_batch_and_again():
    spec = importlib.util.spec_from_file_location("jitter", CASES / "ST-03" / "jitter_encoder.py")
    jitter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(jitter)

    class Encoder(jitter.JitterEncoder):
        name, dimension, window, fingerprint = "jitter", 2, 512, "jitter"

        def encode(self, texts, kind):
            return super().encode(["DOC" if kind == "passage" else t for t in texts])

        def count_tokens(self, texts):
            return [1 for _ in texts]

    lookup = tool([document("a.md")], None, encoder=Encoder())
    alone, invocation = lookup.lookup_knowledge("q", "s")
    batch = lookup.knowledge.gather(["q", "other"])
    assert alone.relevance_level == Level.HIGHLY_RELEVANT.name
    assert batch.l1_distance[0, 0] == 0.5
    assert invocation.retrieval_details["handed_out"][0]["distance"] == 0.5


def test_a_look_up_agrees_with_the_batch_in_every_distance():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(60, 8))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    vectors = {f"{i:02}.md": row for i, row in enumerate(rows[:40])}
    queries = {f"q{i}": row for i, row in enumerate(rows[40:])}
    lookup = tool([document(name) for name in vectors], vectors | queries)
    evidence = lookup.knowledge.gather(list(queries))
    for i, query in enumerate(queries):
        _, invocation = lookup.lookup_knowledge(query, f"s{i}")
        handed = invocation.retrieval_details["handed_out"]
        assert [row["distance"] for row in handed] == evidence.l1_distance[
            i, : len(handed)
        ].tolist()
