"""Which session was given what (FS-3, REQ-01, design.md 5 and 6)."""

import gc
import json
import logging
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbeval.errors import ConfigError, CorpusError
from kbeval.retrieval.ranking import places
from kbeval.retrieval.tracker import Candidate, Claim, RetrievedDocTracker

CASES = Path(__file__).parent / "cases"
A, B, C, D, E, F = (Candidate(f"{name}.md", f"domain {name}", "1") for name in "abcdef")


def tracker_with(*given, session="s"):
    tracker = RetrievedDocTracker()
    for candidate in given:
        tracker.mark_retrieved(session, candidate.domain, candidate.path, candidate.content_hash)
    return tracker


def in_threads(count, work):
    """Run work(i) in `count` threads that start together; returns their results in order."""
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


# -- the methods of FS-3 --


def test_fs3_the_acceptance_lines_in_their_order():
    tracker = RetrievedDocTracker()
    tracker.mark_retrieved("s1", "infrastructure", "a.md")
    assert tracker.is_doc_retrieved("s1", "a.md") is True
    assert tracker.is_domain_retrieved("s1", "infrastructure") is True
    assert list(tracker.get_retrieved_domains("s1")) == ["infrastructure"]
    tracker.mark_retrieved("s1", "api", "b.md")
    assert list(tracker.get_retrieved_domains("s1")) == ["infrastructure", "api"]
    tracker.clear_session("s1")
    assert tracker.is_doc_retrieved("s1", "a.md") is False
    assert tracker.is_already_retrieved("s1", "a.md") is False
    assert tracker.is_domain_retrieved("s1", "infrastructure") is False
    assert list(tracker.get_retrieved_domains("s1")) == []


def test_fs3_the_older_name_answers_the_same():
    tracker = tracker_with(A)
    for path in ("a.md", "./a.md", "b.md"):
        assert tracker.is_already_retrieved("s", path) == tracker.is_doc_retrieved("s", path)


def test_req01_sessions_do_not_touch_each_other():
    tracker = tracker_with(A)
    assert tracker.is_doc_retrieved("t", "a.md") is False
    assert tracker.claim("t", [], [A], limit=1).taken == (A,)
    tracker.clear_session("t")
    assert tracker.is_doc_retrieved("s", "a.md") is True


def test_domains_are_listed_once_in_the_order_first_seen():
    tracker = RetrievedDocTracker()
    for domain, path in [("ops", "1"), ("api", "2"), ("ops", "3"), ("db", "4"), ("api", "5")]:
        tracker.mark_retrieved("s", domain, path)
    assert tracker.get_retrieved_domains("s") == ("ops", "api", "db")


def test_a_document_belongs_to_the_domain_it_was_last_given_under():
    tracker = RetrievedDocTracker()
    tracker.mark_retrieved("s", "api", "0.md")
    tracker.mark_retrieved("s", "ops", "a.md", "1")
    tracker.mark_retrieved("s", "api", "a.md", "2")
    assert tracker.get_retrieved_domains("s") == ("api",)


@pytest.mark.parametrize(
    ("marked", "asked", "given"),
    [
        pytest.param("1", "1", True, id="the same version"),
        pytest.param("1", "2", False, id="another version"),
        pytest.param("1", None, True, id="any version is asked for"),
        pytest.param(None, "1", True, id="a mark without a hash stands for every version"),
        pytest.param(None, None, True, id="no hash at all: FS-3"),
    ],
)
def test_a_version_is_known_by_its_hash(marked, asked, given):
    tracker = RetrievedDocTracker()
    tracker.mark_retrieved("s", "ops", "a.md", marked)
    assert tracker.is_doc_retrieved("s", "a.md", asked) is given
    claim = tracker.claim("s", [], [Candidate("a.md", "ops", asked)], limit=1)
    assert (claim.taken == ()) is given


def test_the_last_mark_of_a_document_holds():
    tracker = tracker_with(A, A._replace(content_hash="2"))
    assert tracker.is_doc_retrieved("s", "a.md", "1") is False
    assert tracker.is_doc_retrieved("s", "a.md", "2") is True


# -- SM-01: one document under several spellings --

PATHS = json.loads((CASES / "SM-01" / "paths.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("spellings", PATHS["same"])
def test_sm01_marking_one_spelling_marks_all_of_them(spellings):
    for spelling in spellings:
        tracker = RetrievedDocTracker()
        tracker.mark_retrieved("s", "ops", spelling)
        assert [tracker.is_doc_retrieved("s", other) for other in spellings] == [True] * len(
            spellings
        )
        normal = Candidate(spellings[0], "ops", "1")
        assert tracker.claim("s", [], [normal], limit=1).withheld == (normal,)


@pytest.mark.parametrize(("one", "other"), PATHS["different"])
def test_sm01_different_documents_are_not_joined(one, other):
    tracker = RetrievedDocTracker()
    tracker.mark_retrieved("s", "ops", one)
    assert tracker.is_doc_retrieved("s", other) is False


@pytest.mark.parametrize("path", PATHS["refused"])
def test_sm01_a_path_that_leaves_the_root_is_refused(path):
    tracker = RetrievedDocTracker()
    with pytest.raises(CorpusError, match="leaves the root"):
        tracker.mark_retrieved("s", "ops", path)
    with pytest.raises(CorpusError, match="leaves the root"):
        tracker.is_doc_retrieved("s", path)
    assert len(tracker) == 0


@pytest.mark.parametrize("path", ["doc_(general)_001", "故宫", "/wiki/A//B", "http://x/../y"])
def test_opaque_ids_are_claimed_and_found_as_they_are(path):
    tracker, candidate = RetrievedDocTracker(), Candidate(path, "ops", "1")
    assert tracker.claim("s", [], [candidate], limit=1).taken == (candidate,)
    assert tracker.is_doc_retrieved("s", path) is True
    assert tracker.claim("s", [], [candidate], limit=1).withheld == (candidate,)


# -- claims --


@pytest.mark.parametrize(
    ("given", "exact", "near", "limit", "taken", "withheld"),
    [
        pytest.param([], [], [], 3, [], [], id="nothing matches"),
        pytest.param([], [A], [B, C, D], 3, [A, B, C], [], id="exact first, then near"),
        pytest.param([], [A, B, C], [D], 3, [A, B, D], [], id="the nearest keeps a place"),
        pytest.param([], [A, B], [C], 1, [A], [], id="one place is for the exact match"),
        pytest.param([], [A], [A, B], 3, [A, B], [], id="a document counts once"),
        pytest.param([A], [A], [B], 3, [B], [A], id="what was given is passed over"),
        pytest.param([A], [], [A, B, C], 2, [B, C], [A], id="SM-04: and the next takes its place"),
        pytest.param([C], [], [A, B, C], 2, [A, B], [], id="full: what ranks after is not listed"),
        pytest.param([A, C], [], [A, B, C], 2, [B], [A, C], id="not full: all are listed"),
        pytest.param([A, B], [A], [B, A], 3, [], [A, B], id="each once, exact ones first"),
        pytest.param([A], [A, B, C, D], [E], 3, [B, C, E], [A], id="room moves on among exact"),
        pytest.param([D], [A, B, C, D], [E, F], 3, [A, B, E], [D], id="by rank: exact before near"),
        pytest.param([D], [A, B, C, D], [C], 3, [A, B, C], [], id="C ranks by its first place"),
        pytest.param([D, E], [A, B, C, D], [E], 3, [A, B], [D, E], id="exact rest, not full"),
    ],
)
def test_a_claim_takes_what_is_fresh_and_says_what_it_withheld(
    given, exact, near, limit, taken, withheld
):
    tracker = tracker_with(*given)
    claim = tracker.claim("s", exact, near, limit=limit)
    assert claim.taken == claim.marked == tuple(taken)
    assert claim.withheld == tuple(withheld)
    assert claim.content_changed == claim.redelivered == ()
    assert claim.domains == tuple(candidate.domain for candidate in [*given, *taken])
    assert claim.domains == tracker.get_retrieved_domains("s")


def test_sm04_three_claims_empty_the_store():
    documents = [Candidate(f"{i}.md", "ops", "h") for i in range(1, 6)]
    tracker = tracker_with(*documents[:2])
    claims = [tracker.claim("s", [], documents, limit=2) for _ in range(3)]
    assert [claim.taken for claim in claims] == [tuple(documents[2:4]), (documents[4],), ()]
    assert [len(claim.withheld) for claim in claims] == [2, 4, 5]


def test_changed_content_is_given_again_and_replaces_the_hash():
    tracker, changed = tracker_with(A, B), A._replace(content_hash="2")
    claim = tracker.claim("s", [changed], [B, C], limit=3)
    assert claim.taken == claim.marked == (changed, C)
    assert claim.content_changed == (changed,)
    assert claim.withheld == (B,)
    assert tracker.is_doc_retrieved("s", "a.md", "1") is False
    assert tracker.is_doc_retrieved("s", "a.md", "2") is True


def test_redelivery_passes_nothing_over_and_marks_only_what_is_new():
    tracker, changed = tracker_with(A, B), B._replace(content_hash="2")
    claim = tracker.claim("s", [A], [changed, C], limit=3, redeliver=True)
    assert claim.taken == (A, changed, C)
    assert claim.redelivered == (A,)
    assert claim.content_changed == (changed,)
    assert claim.marked == (changed, C)
    assert claim.withheld == ()


def test_only_the_primary_is_marked_when_supplements_are_passages():
    tracker, changed = tracker_with(C), C._replace(content_hash="2")
    claim = tracker.claim("s", [A], [B, changed], limit=3, mark="primary")
    assert claim.taken == (A, B, changed)
    assert claim.marked == (A,)
    assert claim.content_changed == (changed,)
    assert claim.domains == (C.domain, A.domain)
    assert tracker.claim("s", [A], [B, C], limit=3).taken == (B,)
    assert tracker.is_doc_retrieved("s", "c.md", "2") is False


# -- taking back --


def test_a_claim_taken_back_leaves_the_session_as_it_was():
    tracker = tracker_with(A, B)
    changed = A._replace(content_hash="2", domain="moved")
    claim = tracker.claim("s", [changed], [B, C], limit=3)
    assert claim.domains == ("moved", B.domain, C.domain)
    tracker.take_back("s", claim)
    assert tracker.get_retrieved_domains("s") == (A.domain, B.domain)
    assert tracker.is_doc_retrieved("s", "a.md", "1") is True
    assert tracker.is_doc_retrieved("s", "c.md") is False
    tracker.take_back("s", claim)
    assert tracker.is_doc_retrieved("s", "a.md", "1") is True


def test_a_redelivery_taken_back_leaves_the_first_delivery():
    tracker = RetrievedDocTracker()
    tracker.claim("s", [], [A], limit=1)
    tracker.take_back("s", tracker.claim("s", [], [A], limit=1, redeliver=True))
    assert tracker.is_doc_retrieved("s", "a.md") is True


def test_a_delivery_taken_back_leaves_its_redelivery():
    tracker = RetrievedDocTracker()
    first = tracker.claim("s", [], [A], limit=1)
    tracker.claim("s", [], [A], limit=1, redeliver=True)
    tracker.take_back("s", first)
    assert tracker.is_doc_retrieved("s", "a.md") is True


def test_two_claims_of_a_changed_document_are_taken_back_in_either_order():
    for order in ([0, 1], [1, 0]):
        tracker = RetrievedDocTracker()
        versions = [A, A._replace(content_hash="2")]
        claims = [tracker.claim("s", [], [version], limit=1) for version in versions]
        for i in order:
            tracker.take_back("s", claims[i])
        assert tracker.is_doc_retrieved("s", "a.md") is False
        assert tracker.get_retrieved_domains("s") == ()


def test_a_claim_is_taken_back_once_even_if_the_document_is_claimed_again():
    tracker = RetrievedDocTracker()
    first = tracker.claim("s", [], [A], limit=1)
    tracker.take_back("s", first)
    tracker.claim("s", [], [A], limit=1)
    tracker.take_back("s", first)
    assert tracker.is_doc_retrieved("s", "a.md") is True


@pytest.mark.parametrize("reopened", [False, True])
def test_taking_back_after_the_session_was_cleared_changes_nothing(reopened):
    tracker = RetrievedDocTracker()
    claim = tracker.claim("s", [], [A], limit=1)
    tracker.clear_session("s")
    if reopened:
        tracker.claim("s", [], [A], limit=1)
    tracker.take_back("s", claim)
    assert tracker.is_doc_retrieved("s", "a.md") is reopened
    assert len(tracker) == reopened


# -- many threads --


def test_sm03_of_fifty_threads_one_wins_and_the_others_are_told():
    tracker = RetrievedDocTracker()
    for repeat in range(40):
        claims = in_threads(50, lambda _, s=f"s{repeat}": tracker.claim(s, [A], [A], limit=3))
        assert sorted(claim.taken for claim in claims) == [()] * 49 + [(A,)]
        assert [claim.withheld for claim in claims if not claim.taken] == [(A,)] * 49
        assert {claim.domains for claim in claims} == {(A.domain,)}


def test_sm03_lost_places_are_refilled():
    documents = [Candidate(f"{i}.md", f"d{i}", "h") for i in range(100)]
    tracker = RetrievedDocTracker()
    claims = in_threads(25, lambda _: tracker.claim("s", [], documents, limit=4))
    assert sorted(c for claim in claims for c in claim.taken) == sorted(documents)
    assert len(tracker.get_retrieved_domains("s")) == 100


def test_sm03_when_the_winner_takes_back_another_call_can_win():
    tracker = RetrievedDocTracker()

    def claim_and_fail_once(i):
        claim = tracker.claim("s", [], [A], limit=1)
        if claim.taken and i % 2:
            tracker.take_back("s", claim)
            return 0
        return len(claim.taken)

    for _ in range(20):
        tracker.clear_session("s")
        won = sum(in_threads(20, claim_and_fail_once))
        assert won == tracker.is_doc_retrieved("s", "a.md")
        assert won in (0, 1)


def test_sm03_fifty_sessions_get_the_document_once_each():
    tracker = RetrievedDocTracker()
    claims = in_threads(50, lambda i: tracker.claim(f"s{i}", [], [A], limit=1))
    assert [claim.taken for claim in claims] == [(A,)] * 50


def test_a_session_does_not_wait_for_another_one():
    tracker = tracker_with(A, session="held")
    with tracker._sessions["held"].lock, tracker._lock:
        pass  # the locks are there, and free
    tracker.claim("open", [], [A], limit=1)
    with tracker._sessions["held"].lock, tracker._lock:
        assert tracker.claim("open", [], [B], limit=1).taken == (B,)
        assert tracker.is_doc_retrieved("open", "b.md") is True
        assert tracker.get_retrieved_domains("open") == (A.domain, B.domain)


def test_sm05c_clearing_while_another_thread_marks_leaves_both_levels_equal():
    tracker = RetrievedDocTracker()

    def work(i):
        for n in range(300):
            if i == 0:
                tracker.clear_session("s")
            elif i == 1:
                tracker.mark_retrieved("s", "marked", "marked.md")
            else:
                tracker.take_back("s", tracker.claim("s", [], [C], limit=1))
                tracker.claim("s", [], [D._replace(content_hash=str(n))], limit=1)

    in_threads(6, work)
    given = {
        ("marked", "marked.md"): tracker.is_doc_retrieved("s", "marked.md"),
        (D.domain, "d.md"): tracker.is_doc_retrieved("s", "d.md"),
    }
    assert set(tracker.get_retrieved_domains("s")) == {
        key[0] for key, there in given.items() if there
    }
    tracker.clear_session("s")
    assert len(tracker) == 0


# -- bounds --


def test_the_session_idle_longest_leaves_first_and_starts_empty():
    tracker = RetrievedDocTracker(max_sessions=3)
    for session in ("s1", "s2", "s3"):
        tracker.claim(session, [], [A], limit=1)
    tracker.is_doc_retrieved("s1", "a.md")  # asking is a use, too
    tracker.claim("s4", [], [A], limit=1)
    assert (len(tracker), tracker.evicted_count) == (3, 1)
    assert [tracker.is_doc_retrieved(s, "a.md") for s in ("s1", "s2", "s3", "s4")] == [
        True,
        False,
        True,
        True,
    ]
    assert tracker.claim("s2", [], [A], limit=1).taken == (A,)
    assert [tracker.is_doc_retrieved(s, "a.md") for s in ("s1", "s3")] == [False, True]


def test_eviction_follows_the_last_use_exactly():
    tracker, uses = RetrievedDocTracker(max_sessions=20), {}
    for step in range(2000):
        session = f"s{(step * step + step // 7) % 53}"
        uses.pop(session, None)
        uses[session] = None
        if len(uses) > 20:
            del uses[next(iter(uses))]
        tracker.mark_retrieved(session, "ops", "a.md")
        if step % 97 == 0:
            uses.pop(session)
            tracker.clear_session(session)
        assert set(tracker._sessions) == set(uses)


def test_eviction_is_logged_once_per_power_of_ten(caplog):
    tracker = RetrievedDocTracker(max_sessions=1)
    with caplog.at_level(logging.WARNING):
        for i in range(151):
            tracker.mark_retrieved(f"s{i}", "ops", "a.md")
    assert tracker.evicted_count == 150
    assert [record.args for record in caplog.records] == [(1, 1), (1, 10), (1, 100)]


@pytest.mark.parametrize("max_sessions", [0, -1])
def test_a_bound_below_one_is_refused(max_sessions):
    with pytest.raises(ConfigError, match=f"max-sessions is {max_sessions}; 1 or more is allowed"):
        RetrievedDocTracker(max_sessions=max_sessions)


def test_an_unknown_session_is_not_opened_by_asking():
    tracker = RetrievedDocTracker()
    tracker.is_doc_retrieved("s", "a.md")
    tracker.is_domain_retrieved("s", "ops")
    tracker.clear_session("s")
    tracker.take_back("s", Claim())
    assert len(tracker) == 0


def memory_after(work):
    """Bytes that `work` leaves behind."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_sm05a_cleared_sessions_leave_nothing_behind():
    documents = [Candidate(f"docs/{i}.md", f"d{i % 4}", "h") for i in range(20)]
    tracker = RetrievedDocTracker(max_sessions=20_000)

    def fill_and_clear():
        for i in range(20_000):
            tracker.claim(f"session {i}", [], documents, limit=20)
        for i in range(20_000):
            tracker.clear_session(f"session {i}")

    assert memory_after(fill_and_clear) < 5e6
    assert len(tracker) == len(tracker._sessions) == 0
    assert len(tracker._idle) <= 64
    assert tracker.is_doc_retrieved("session 7", "docs/7.md") is False
    assert tracker.get_retrieved_domains("session 7") == ()


@pytest.mark.slow
def test_sm05b_sessions_never_cleared_stay_under_the_stated_bound():
    documents = [Candidate(f"docs/{i}.md", f"d{i % 4}", "h") for i in range(20)]
    tracker = RetrievedDocTracker(max_sessions=2_000)

    def fill():
        for i in range(4_000):
            for document in documents:
                tracker.mark_retrieved(f"s{i}", document.domain, document.path, "h")

    used = memory_after(fill)
    assert (len(tracker), tracker.evicted_count) == (2_000, 2_000)
    assert used < 2_000 * 4_000  # the docstring says 4 kB a session
    assert len(tracker._idle) == 2_000


def test_a_session_opened_and_cleared_over_and_over_leaves_no_queue():
    tracker = RetrievedDocTracker()
    for i in range(1_000):
        tracker.mark_retrieved(f"s{i % 3}", "ops", "a.md")
        tracker.clear_session(f"s{i % 3}")
    assert len(tracker._idle) <= 65


# -- against the rule of places, and a simple model --

VERSIONS = st.sampled_from([Candidate(n, f"domain {n}", v) for n in "abcde" for v in "12"])


@drawn(
    st.lists(VERSIONS, max_size=3),
    st.lists(VERSIONS, max_size=4),
    st.lists(VERSIONS, max_size=6),
    st.integers(1, 4),
    st.sampled_from(["all", "primary"]),
)
def test_a_claim_takes_what_places_gives(given, exact, near, limit, mark):
    held = {candidate.path: candidate for candidate in given}
    expected = places(
        exact, near, limit=limit, given=lambda candidate: held.get(candidate.path) == candidate
    )
    tracker = tracker_with(*given)
    claim = tracker.claim("s", exact, near, limit=limit, mark=mark)
    assert list(claim.taken) == expected
    handed = expected if mark == "all" else expected[:1]
    for candidate in handed:
        held[candidate.path] = candidate
    assert {path: tracker._sessions["s"].given.get(path) for path in held} == held
    assert len(tracker._sessions["s"].given) == len(held)
    assert claim.domains == tuple(candidate.domain for candidate in held.values())
    if len({candidate.path for candidate in expected}) == len(expected):  # as in a knowledge base
        tracker.take_back("s", claim)
        assert tracker.given_count("s") == len({candidate.path for candidate in given})


class AgainstAModel(RuleBasedStateMachine):
    """Per session and path a list of (owner, candidate); the last entry is what holds."""

    paths = st.sampled_from("abcde")
    hashes = st.sampled_from("12")
    sessions = st.sampled_from(["s", "t"])

    def __init__(self):
        super().__init__()
        self.tracker, self.model, self.claims, self.owner = RetrievedDocTracker(), {}, [], 0
        self.version = dict.fromkeys("abcdefgh", "1")

    def candidates(self, names):
        return [Candidate(name, f"domain {ord(name) % 3}", self.version[name]) for name in names]

    def put(self, session, candidate):
        self.model.setdefault(session, {}).setdefault(candidate.path, []).append(
            (self.owner, candidate)
        )

    def holds(self, session, path):
        marks = self.model.get(session, {}).get(path)
        return marks[-1][1] if marks else None

    @rule(name=paths, version=hashes)
    def edit_a_document(self, name, version):
        self.version[name] = version

    @rule(session=sessions, name=paths, version=st.one_of(st.none(), hashes))
    def mark(self, session, name, version):
        self.owner += 1
        candidate = self.candidates(name)[0]._replace(content_hash=version)
        self.tracker.mark_retrieved(session, candidate.domain, f"./{name}", version)
        self.put(session, candidate)

    @rule(
        session=sessions,
        exact=st.lists(paths, max_size=4, unique=True),
        near=st.lists(st.sampled_from("abcdefgh"), max_size=6, unique=True),
        limit=st.integers(1, 4),
        mark=st.sampled_from(["all", "primary"]),
        redeliver=st.booleans(),
    )
    def claim(self, session, exact, near, limit, mark, redeliver):
        self.owner += 1
        exact, near = self.candidates(exact), self.candidates(near)
        before = {c: self.holds(session, c.path) for c in [*exact, *near]}
        seen = {c for c, b in before.items() if b and b.content_hash in (None, c.content_hash)}
        given = None if redeliver else seen.__contains__
        taken = places(exact, near, limit=limit, given=given)
        ranked = list(dict.fromkeys([*exact, *near]))
        cut = ranked.index(taken[-1]) if len(taken) == limit else len(ranked)
        claim = self.tracker.claim(
            session, exact, near, limit=limit, mark=mark, redeliver=redeliver
        )
        handed = taken if mark == "all" else taken[:1]
        assert list(claim.taken) == taken
        assert list(claim.marked) == [c for c in handed if c not in seen]
        assert list(claim.withheld) == [c for c in ranked[:cut] if c in seen and not redeliver]
        assert list(claim.redelivered) == [c for c in taken if c in seen]
        assert list(claim.content_changed) == [c for c in taken if before[c] and c not in seen]
        for candidate in handed:
            self.put(session, candidate)
        assert claim.domains == self.domains(session)
        self.claims.append((session, self.owner, claim))

    @rule(data=st.data())
    def take_back(self, data):
        if not self.claims:
            return
        session, owner, claim = data.draw(st.sampled_from(self.claims))
        self.tracker.take_back(session, claim)
        marks = self.model.get(session, {})
        for path in list(marks):
            marks[path] = [entry for entry in marks[path] if entry[0] != owner]
            if not marks[path]:
                del marks[path]

    @rule(session=sessions)
    def clear(self, session):
        self.tracker.clear_session(session)
        self.model.pop(session, None)

    def domains(self, session):
        paths = self.model.get(session, {})
        return tuple(dict.fromkeys(self.holds(session, path).domain for path in paths))

    @invariant()
    def tracker_and_model_agree(self):
        for session in ("s", "t"):
            assert self.tracker.get_retrieved_domains(session) == self.domains(session)
            for path in "abcdefgh":
                held = self.holds(session, path)
                assert self.tracker.is_doc_retrieved(session, path) is (held is not None)
                for version in "12":
                    known = held is not None and held.content_hash in (None, version)
                    assert self.tracker.is_doc_retrieved(session, path, version) is known


AgainstAModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_every_operation_agrees_with_the_model = AgainstAModel.TestCase
