"""Replay against the record: how much of it comes again, and where the two part."""

import pytest
import replay_world as world
from replay_world import count_words

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.replaying.executor import SKIPPED
from kbeval.evaluation.replaying.fidelity import (
    Part,
    RecordTally,
    fidelity,
    first_divergence,
    is_recorded,
)
from kbeval.evaluation.replaying.outcomes import Handed, Outcome, SessionReplay
from kbeval.evaluation.replaying.policies import parse_policy
from kbeval.evaluation.replaying.replay import replay
from kbeval.retrieval.tool import KnowledgeTool


def outcome(paths, token_count):
    handed = tuple(Handed(path, "ops", path, 10) for path in paths)
    return Outcome("REFERENCE", None, handed, (), (), token_count)


def replayed(returned, handed, *, name="s"):
    """A session whose record is `returned`, under a policy that hands out `handed`.

    No memory costs 100 tokens a turn, the policy 40.
    """
    turns = tuple(Turn(f"q{i}", returned=paths) for i, paths in enumerate(returned))
    policy = tuple(SKIPPED if paths is None else outcome(paths, 40) for paths in handed)
    without = tuple(outcome(("a",), 100) for _ in handed)
    return SessionReplay(Session(name, turns), {"none": without, "policy": policy})


@pytest.mark.parametrize(
    ("returned", "handed", "first"),
    [
        pytest.param([("a",), ()], [("a",), ()], None, id="never"),
        pytest.param([("a", "b")], [("b", "a")], 0, id="the order counts"),
        pytest.param([("a",), ("b",), ("c",)], [("a",), (), ()], 1, id="the first of two"),
        pytest.param([None, ("b",)], [("a",), ("b",)], None, id="no record cannot differ"),
        pytest.param([("a",), ("b",)], [("a",), None], 1, id="a skipped look-up hands out nothing"),
        pytest.param([()], [None], None, id="neither does it where nothing was returned"),
    ],
)
def test_the_first_turn_that_hands_out_something_else_than_recorded(returned, handed, first):
    assert first_divergence(replayed(returned, handed), "policy") == first


def test_without_a_record_divergence_is_not_defined():
    one = replayed([None, None], [("a",), ()])
    assert not is_recorded(one.session)
    with pytest.raises(DatasetError, match="session 's': no turn says what was returned"):
        first_divergence(one, "policy")


def golden():
    """Four sessions: faithful, parting at its second turn, in another order, not recorded."""
    return [
        replayed([("a",), ("b", "c")], [("a",), ("b", "c")], name="faithful"),
        replayed([("a",), ("b",), ("c",)], [("a",), (), ("c",)], name="parts at turn 1"),
        replayed([("a", "b"), None], [("b", "a"), ("c",)], name="other order, one unrecorded"),
        replayed([None, None], [("a",), ("b",)], name="not recorded"),
    ]


def test_fidelity_by_hand():
    found = fidelity(golden(), "policy")
    assert (found.share.value, found.share.n) == (4 / 6, 6)
    assert found.share_of_sets.value == 5 / 6
    assert (found.never_diverges.value, found.never_diverges.n) == (1 / 3, 3)
    assert found.before_divergence == Part(turns=2 + 2 + 1, tokens=5 * 40, saved_tokens=5 * 60)
    assert found.after_divergence == Part(turns=1 + 1, tokens=2 * 40, saved_tokens=2 * 60)
    assert found.unrecorded_turns == 3
    assert not found.supports_claims


def test_a_skipped_look_up_saves_no_tokens_here():
    found = fidelity([replayed([("a",), ("b",)], [("a",), None])], "policy")
    assert found.before_divergence == Part(turns=2, tokens=40, saved_tokens=60)


def test_sessions_may_come_one_at_a_time():
    tally = RecordTally("policy")
    for one in golden():
        tally.add(one)
    assert tally.fidelity() == fidelity(golden(), "policy")


@pytest.mark.parametrize(("equal", "supports"), [(95, True), (94, False), (100, True), (0, False)])
def test_below_95_percent_claims_are_not_supported(equal, supports):
    handed = [("a",)] * equal + [("b",)] * (100 - equal)
    found = fidelity([replayed([("a",)] * 100, handed)], "policy")
    assert found.supports_claims is supports
    assert found.to_json()["supports_claims"] is supports
    assert found.to_json()["share"]["value"] == equal / 100


def test_where_nothing_is_recorded_there_is_no_share_and_nothing_to_be_unfaithful_to():
    found = fidelity([replayed([None], [("a",)])], "policy")
    assert (found.share.value, found.share.note) == (None, "no turn has a record")
    assert found.never_diverges.value is None
    assert found.supports_claims
    assert found.before_divergence == found.after_divergence == Part(0, 0, 0)


def test_the_shares_have_intervals_over_sessions():
    sessions = [
        replayed([("a",)] * 4, [("a",)] * (2 + i % 3) + [()] * (2 - i % 3), name=f"s{i}")
        for i in range(42)
    ]
    found = fidelity(sessions, "policy")
    assert found.share.value == 0.75
    assert found.share.low < 0.75 < found.share.high
    assert found.share.n == 168


@pytest.mark.parametrize("text", world.POLICIES)
def test_a_policy_replayed_from_its_own_record_is_faithful(text):
    """What the live tool returned is recorded, then replayed."""
    base, policy = world.base(), parse_policy(text, name="recorded")
    sessions = []
    for i in range(3):
        tool = KnowledgeTool(base, policy.settings, tokenizer=count_words())
        turns = []
        for query in [*world.QUERIES, *world.QUERIES]:
            result, _ = tool.lookup_knowledge(query, "live")
            documents = (result.primary, *result.supplements) if result.primary else ()
            returned = tuple(document.file_path for document in documents)
            turns.append(Turn(query, returned=returned))
        sessions.append(Session(f"s{i}", tuple(turns)))
    replays = list(replay(sessions, base, [policy], tokenizer=count_words()))
    found = fidelity(replays, "recorded")
    assert (found.share.value, found.never_diverges.value) == (1.0, 1.0)
    if policy.remembers and policy.settings.session.horizon_turns != 1:  # 1 forgets at once
        assert fidelity(replays, "none").share.value < 1
