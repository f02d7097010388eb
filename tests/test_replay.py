"""Replay is the live tool over recorded queries: equal to it, lazy, each query searched once."""

from collections import Counter
from dataclasses import fields, replace
from functools import lru_cache

import pytest
import replay_world as world
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_world import count_words
from stand_ins import TableEncoder, knowledge

from kbeval.config import load_settings
from kbeval.corpus.tokens import Tokenizer
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.replaying import chunks, recalled
from kbeval.evaluation.replaying.outcomes import Handed, Outcome
from kbeval.evaluation.replaying.policies import Policy, parse_policy
from kbeval.evaluation.replaying.replay import replay
from kbeval.retrieval.tokens import result_tokens
from kbeval.retrieval.tool import KnowledgeTool

BASE = world.base()
SQUARED = {"distance": "squared_l2"}
CHARACTERS = Tokenizer("characters", lambda texts: [len(text) for text in texts])


@lru_cache
def live_base(changes):
    """The base built anew from documents that have changed so often."""
    now = [
        replace(doc, content_hash=f"{doc.path}@{changes[doc.path]}") if doc.path in changes else doc
        for changes in [dict(changes)]
        for doc in world.documents()
    ]
    return knowledge(now, world.vectors())


def live_bases(session):
    """The base before each turn."""
    changes = Counter()
    for turn in session.turns:
        changes.update(set(turn.changed) - {"unknown.md"})
        yield live_base(tuple(sorted(changes.items())))


def live(session, policy, tokenizer):
    """The oracle: every look-up of one session asked of the live tool, which remembers nothing."""
    tool = KnowledgeTool(BASE, policy.settings, tokenizer=tokenizer)
    for turn, tool.knowledge in zip(session.turns, live_bases(session), strict=True):
        yield tool.lookup_knowledge(turn.query, session.session_id)


def plain_outcome(result, invocation, tokenizer, passages):
    """An outcome without any memo."""
    tokens = result_tokens(result, tokenizer)
    documents = [doc for doc in (result.primary, *result.supplements) if doc is not None]
    rows = invocation.retrieval_details.get("handed_out", [])
    return Outcome(
        level=invocation.relevance_level,
        reason=invocation.dedup_reason,
        handed=tuple(
            Handed(
                path=doc.file_path,
                domain=doc.domain,
                content=row["content_hash"] or doc.file_path,
                token_count=count,
                passage=doc.content if passages and place else None,
            )
            for place, (doc, row, count) in enumerate(
                zip(documents, rows, tokens.documents, strict=True)
            )
        ),
        withheld=tuple(invocation.retrieval_details.get("withheld", [])),
        domains=result.retrieved_domains_this_session,
        token_count=tokens.total,
    )


@settings(max_examples=40, deadline=None)
@given(
    world.sessions,
    st.lists(st.sampled_from(world.POLICIES), unique=True, max_size=6),
    st.sampled_from([count_words(), CHARACTERS]),
)
def test_replay_is_the_live_tool_turn_by_turn(sessions, texts, tokenizer):
    policies = world.policies(texts)
    replays = list(replay(sessions, BASE, policies, tokenizer=tokenizer))
    assert [one.session for one in replays] == sessions
    policies += (
        []
        if "none" in texts
        else [parse_policy("none", policies[0].settings) if policies else parse_policy("none")]
    )
    for one in replays:
        assert set(one.outcomes) == {policy.name for policy in policies}
        for policy in policies:
            passages = policy.settings.retrieval.supplement_content == "passage"
            assert one.outcomes[policy.name] == tuple(
                plain_outcome(*answer, tokenizer, passages)
                for answer in live(one.session, policy, tokenizer)
            )


@settings(max_examples=40, deadline=None)
@given(world.sessions, st.sampled_from(world.POLICIES), st.sampled_from([1, 6, 10**6]))
def test_a_base_that_remembers_gives_the_tool_whole_results_and_details(sessions, text, cells):
    policy = parse_policy(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recalled, "CELLS", cells)
        patched.setattr(recalled, "LEAST_DEPTH", 1)
        for session in sessions:
            queries = [turn.query for turn in session.turns]
            remembered = recalled.remember(BASE, queries, depth=4)
            base = recalled.recalled(BASE, remembered)
            tools = [
                KnowledgeTool(one, policy.settings, tokenizer=count_words()) for one in (BASE, base)
            ]
            for query in queries:
                asked = [tool.lookup_knowledge(query, session.session_id) for tool in tools]
                assert asked[0][0] == asked[1][0]
                assert asked[0][1].retrieval_details == asked[1][1].retrieval_details


@pytest.mark.parametrize("depth", [0, 1, 3, 7, 100, None])
@pytest.mark.parametrize("query", [*world.QUERIES])
def test_what_is_remembered_is_equal_to_what_the_base_gathers(query, depth):
    remembered = recalled.remember(BASE, [*world.QUERIES], depth=5)
    base = recalled.recalled(BASE, remembered)
    vectors = BASE.embed_queries([query])
    assert base.embed_queries([query]).tolist() == vectors.tolist()
    expected = BASE.gather_checked([query], vectors, depth=depth)
    found = base.gather_checked([query], vectors, depth=depth)
    for field in fields(expected):
        value, wanted = getattr(found, field.name), getattr(expected, field.name)
        if hasattr(wanted, "dtype"):
            assert (value.tolist(), value.dtype) == (wanted.tolist(), wanted.dtype), field.name
        else:
            assert value == wanted, field.name


def test_a_query_that_is_not_remembered_is_asked_of_the_base():
    base = recalled.recalled(BASE, recalled.remember(BASE, ["redis"], depth=5))
    two = base.embed_queries(["redis", "kafka"])
    assert two.tolist() == BASE.embed_queries(["redis", "kafka"]).tolist()
    assert base.gather(["kafka"]).l0_document.tolist() == [3, 4]


def test_a_query_of_a_megabyte_is_marked_as_cut_as_in_a_look_up():
    long = "redis " * 180_000
    base = world.base(TableEncoder(world.vectors() | {long: [1, 0]}))
    remembered = recalled.remember(base, [long, "redis"], depth=5)
    assert remembered.evidence.query_truncated.tolist() == [True, False]
    session = turned(long, "redis")
    (one,) = replay([session], base, [parse_policy("documents")], tokenizer=count_words())
    assert paths(one, "none") == [("d1.md", "d2.md", "d0.md")] * 2


def turned(*queries, name="s"):
    return Session(name, tuple(Turn(query) for query in queries))


def paths(replayed, policy):
    return [outcome.paths for outcome in replayed.outcomes[policy]]


def test_every_session_begins_with_an_empty_memory_even_under_the_same_id():
    sessions = [turned("redis", "redis"), turned("redis"), turned("redis", name="t")]
    replays = list(replay(sessions, BASE, world.policies(["documents"]), tokenizer=count_words()))
    first = ("d1.md", "d2.md", "d0.md")
    assert [paths(one, "documents")[0] for one in replays] == [first] * 3
    assert set(paths(replays[0], "documents")[1]).isdisjoint(first)
    assert paths(replays[0], "none") == [first, first]


def test_a_changed_document_is_given_again_with_another_content_and_only_in_its_session():
    changed = Session("a", (Turn("q one"), Turn("q one", changed=("d0.md",)), Turn("q one")))
    policies = world.policies(["documents", "path"])
    one, other = replay(
        [changed, turned("q one", "q one", name="b")], BASE, policies, tokenizer=count_words()
    )
    documents = one.outcomes["documents"]
    assert documents[1].reason == "PARTIAL"
    assert documents[1].paths[0] == "d0.md"
    before, after = (outcome.handed[0].content for outcome in documents[:2])
    assert before == BASE.documents[0].content_hash
    assert after == "d0.md@1"
    assert "d0.md" in documents[2].withheld
    assert "d0.md" in one.outcomes["path"][1].withheld
    assert one.outcomes["none"][2].handed[0].content == "d0.md@1"
    assert other.outcomes["none"][1].handed[0].content == before
    assert "d0.md" in other.outcomes["documents"][1].withheld


def test_a_blank_query_is_answered_as_the_live_tool_answers_it():
    (one,) = replay(
        [turned("redis", "  ")], BASE, world.policies(["documents"]), tokenizer=count_words()
    )
    blank = one.outcomes["documents"][1]
    assert (blank.level, blank.reason, blank.handed) == ("NOT_FOUND", None, ())
    assert blank.domains == ("domain 1", "domain 2", "domain 0")
    assert one.outcomes["none"][1].domains == ()


def test_an_answer_costs_what_the_tool_counts_to_the_last_brace():
    session, policies = turned("q one", "q one"), world.policies(["none", "documents"])
    (one,) = replay([session], BASE, policies, tokenizer=CHARACTERS)
    for policy in policies:
        answers = live(session, policy, CHARACTERS)
        counted = [result_tokens(result, CHARACTERS).total for result, _ in answers]
        assert [outcome.token_count for outcome in one.outcomes[policy.name]] == counted


def test_a_session_without_turns_has_no_outcomes():
    (one,) = replay([Session("empty", ())], BASE, [], tokenizer=count_words())
    assert one.outcomes == {"none": ()}


def test_a_session_of_500_turns_is_the_live_tool_to_its_end():
    asked = [*world.QUERIES] * 72
    session = turned(*asked[:500])
    policy = parse_policy("documents horizon-turns=3")
    (one,) = replay([session], BASE, [policy], tokenizer=count_words())
    tool = KnowledgeTool(BASE, policy.settings)
    given = [tool.lookup_knowledge(query, "s")[0] for query in asked[:500]]
    assert [outcome.found for outcome in one.outcomes[policy.name]] == [r.found for r in given]
    assert len(set(paths(one, policy.name))) > 5


def test_an_empty_base_says_so_and_embeds_nothing():
    encoder = TableEncoder(world.vectors())
    empty = knowledge([], {}, encoder=encoder)
    (one,) = replay([turned("redis")], empty, [], tokenizer=count_words())
    assert one.outcomes["none"][0].level == "NOT_FOUND"
    assert encoder.calls == 0


class CountingEncoder(TableEncoder):
    """Remembers every text it was asked for."""

    def __init__(self, vectors):
        super().__init__(vectors)
        self.texts = []

    def encode(self, texts, kind):
        self.texts += texts
        return super().encode(texts, kind)


def test_each_query_is_embedded_once_for_all_policies(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 6)
    encoder = CountingEncoder(world.vectors())
    base = world.base(encoder)
    encoder.texts.clear()
    sessions = [turned("redis", "kafka", "redis", name=f"s{i}") for i in range(5)]
    cache = EmbeddingCache(tmp_path)
    for _ in replay(sessions, base, world.policies(), tokenizer=count_words(), cache=cache):
        pass
    assert Counter(encoder.texts) == {"redis": 1, "kafka": 1}


def test_sessions_are_read_a_chunk_at_a_time(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 6)
    read = []

    def stream():
        for i in range(10):
            read.append(i)
            yield turned("redis", "kafka", name=f"s{i}")

    replays = replay(stream(), BASE, [], tokenizer=count_words())
    assert read == []
    assert next(replays).session.session_id == "s0"
    assert read == [0, 1, 2]
    assert [one.session.session_id for one in replays] == [f"s{i}" for i in range(1, 10)]


def test_progress_counts_sessions_and_their_number_where_it_is_known():
    told = []
    sessions = [turned("redis", name=name) for name in "abc"]
    tell = lambda *counts: told.append(counts)  # noqa: E731
    list(replay(sessions, BASE, [], tokenizer=count_words(), progress=tell))
    list(replay(iter(sessions), BASE, [], tokenizer=count_words(), progress=tell))
    assert told == [(1, 3), (2, 3), (3, 3), (1, 0), (2, 0), (3, 0)]


def test_no_memory_is_replayed_under_the_thresholds_of_the_policies():
    policy = parse_policy("documents highly-relevant=0.9 reference=0.9 limit=1")
    (one,) = replay([turned("q one")], BASE, [policy], tokenizer=count_words())
    assert [*one.outcomes] == ["none", policy.name]
    assert paths(one, "none") == [("d0.md",)]


@pytest.mark.parametrize(
    ("policies", "problem"),
    [
        ([Policy("none", parse_policy("documents").settings)], "named 'none' remembers"),
        ([parse_policy("path"), parse_policy("path")], "two policies are named 'path'"),
        (
            [
                Policy(
                    "p", load_settings({"retrieval": {"normalization": {"distance": "squared_l2"}}})
                )
            ],
            "the index holds 'l2'",
        ),
    ],
)
def test_policies_that_cannot_be_replayed_are_refused_before_a_session_is_read(policies, problem):
    with pytest.raises(ConfigError, match=problem):
        replay(iter(()), BASE, policies, tokenizer=count_words())


@pytest.mark.slow
def test_several_processes_give_what_one_gives(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 4)
    sessions = [turned(*world.QUERIES, name=f"s{i}") for i in range(5)]
    sessions[2] = Session("s2", (Turn("redis"), Turn("redis", changed=("d1.md",))))
    policies = world.policies(["documents", "content", "documents horizon-tokens=300"])
    policies.append(parse_policy("hints"))
    alone = list(replay(sessions, BASE, policies))
    assert list(replay(iter(sessions), BASE, policies, jobs=2)) == alone
    assert any(outcome.skipped for one in alone for outcome in one.outcomes[policies[3].name])


@pytest.mark.parametrize(
    ("jobs", "tokenizer", "problem"),
    [
        (0, "deepseek", "jobs is 0; 1 or more is allowed"),
        (2, Tokenizer("odd", lambda texts: [1] * len(texts)), "give its name"),
    ],
)
def test_jobs_that_cannot_be_done_are_refused(jobs, tokenizer, problem):
    with pytest.raises(ConfigError, match=problem):
        list(replay([turned("redis")], BASE, [], jobs=jobs, tokenizer=tokenizer))


@pytest.mark.slow
def test_sm_05_d_a_replay_of_5000_sessions_leaves_none_in_a_tracker(monkeypatch):
    trackers = []

    class Watched(KnowledgeTool):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            trackers.append(self.tracker)

    monkeypatch.setattr("kbeval.evaluation.replaying.stage.KnowledgeTool", Watched)
    query = next(iter(world.QUERIES))
    sessions = (Session(f"s{number}", (Turn(query),)) for number in range(5_000))
    policies = [parse_policy(text) for text in ("documents", "documents horizon-turns=2")]
    most = 0
    for _ in replay(sessions, BASE, policies, tokenizer=CHARACTERS):
        most = max(most, *map(len, trackers))
    assert len(trackers) == 3
    assert most == 0, "a session outlived its replay"
