"""An executor that obeys: what it does not ask, what that hides, and the curve over obedience."""

from collections import Counter

import numpy as np
import pytest
import replay_world as world
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_world import count_words

from kbeval.errors import ConfigError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.replaying import stage
from kbeval.evaluation.replaying.executor import (
    SKIPPED,
    base_domains,
    closed_after,
    draw,
    holds_closed,
    turn_domains,
)
from kbeval.evaluation.replaying.obedience import obedience_curve, obedient_sessions
from kbeval.evaluation.replaying.outcomes import Handed, Outcome
from kbeval.evaluation.replaying.policies import Policy, parse_policy
from kbeval.evaluation.replaying.replay import replay

BASE = world.base()
DOMAINS = base_domains(BASE.documents)  # of d0 to d6: domain 0, 1, 2, 0, 1, 2, 0


def handed(*places):
    return tuple(Handed(f"d{i}.md", f"domain {i % 3}", f"hash {i}", 10) for i in places)


def outcome(level, *places, domains=()):
    return Outcome(level, None, handed(*places), (), domains, 10 * len(places) + 5)


@pytest.mark.parametrize(
    ("turn", "no_memory", "domains"),
    [
        pytest.param(Turn("q", metadata={"domain": "domain 2"}), (0,), {"domain 2"}, id="named"),
        pytest.param(
            Turn("q", relevant=("d0.md",), metadata={"domains": ["domain 1", "domain 2"]}),
            (0,),
            {"domain 1", "domain 2"},
            id="several named",
        ),
        pytest.param(
            Turn("q", relevant=("d1.md",), metadata={"domain": "elsewhere"}),
            (0,),
            {"domain 1"},
            id="a name that the base does not have tells nothing",
        ),
        pytest.param(Turn("q", metadata={"domains": [3, {}]}), (0,), {"domain 0"}, id="no names"),
        pytest.param(
            Turn("q", relevant=("d1.md", "d4.md")), (0,), {"domain 1"}, id="answers share"
        ),
        pytest.param(
            Turn("q", needs=(("d1.md",), ("d4.md", "gone.md"))),
            (0,),
            {"domain 1"},
            id="needs share",
        ),
        pytest.param(
            Turn("q", relevant=("d1.md", "d2.md")), (0, 1), {"domain 0"}, id="answers do not share"
        ),
        pytest.param(Turn("q"), (2, 1), {"domain 2"}, id="no label: the primary without memory"),
        pytest.param(Turn("q"), (), set(), id="nothing tells"),
    ],
)
def test_the_domain_a_turn_asks_about(turn, no_memory, domains):
    assert turn_domains(turn, outcome("REFERENCE", *no_memory), DOMAINS) == domains


@pytest.mark.parametrize(
    ("text", "given", "closed"),
    [
        ("documents", outcome("PRECISE", 0, domains=("domain 0",)), {"old"}),
        ("hints", outcome("PRECISE", 0, 1), {"old", "domain 0"}),
        ("hints", outcome("HIGHLY_RELEVANT", 1, 0), {"old", "domain 1"}),
        ("hints", outcome("REFERENCE", 0, 1), {"old"}),
        ("hints", outcome("NOT_FOUND"), {"old"}),
        ("hints", outcome(None), {"old"}),
        (
            "domains",
            outcome("REFERENCE", 0, domains=("domain 0", "domain 1")),
            {"domain 0", "domain 1"},
        ),
        ("domains memory=none", outcome("REFERENCE", 0, 2), {"old", "domain 0", "domain 2"}),
    ],
)
def test_what_an_executor_holds_for_closed_after_an_answer(text, given, closed):
    assert closed_after(parse_policy(text), frozenset({"old"}), given) == closed


@pytest.mark.parametrize(
    ("closed", "asked", "holds"),
    [
        ({"a"}, {"a"}, True),
        ({"a"}, {"a", "b"}, False),
        ({"a"}, set(), False),
        (set(), {"a"}, False),
    ],
)
def test_only_a_turn_whose_domains_are_all_closed_seems_needless(closed, asked, holds):
    assert holds_closed(frozenset(closed), frozenset(asked)) is holds


def test_draws_are_even_and_their_own_for_every_session_turn_and_seed():
    drawn = [draw(f"s{i}", j, k) for i in range(20) for j in range(20) for k in range(20)]
    assert len(set(drawn)) == 8000
    assert np.histogram(drawn, 4, (0, 1))[0] == pytest.approx([2000] * 4, abs=150)
    assert draw("\ud800", 0, 0) < 1


def conversation(name="s"):
    """d0 is PRECISE by its key and closes its domain, that of d3; d1 and d4 are of another."""
    asked = ["zookeeper", "q one", "kafka", "redis", "zookeeper"]
    labels = [("d0.md",), ("d3.md",), ("d4.md",), ("d1.md",), ("d0.md",)]
    return Session(
        name,
        tuple(
            Turn(query, relevant=relevant) for query, relevant in zip(asked, labels, strict=True)
        ),
    )


def test_after_a_precise_answer_the_domain_is_not_asked_about_again():
    (one,) = replay(
        [conversation()], BASE, [parse_policy("hints obedience=1")], tokenizer=count_words()
    )
    obeying = one.outcomes["hints, obeyed 1.0"]
    assert obeying[0].level == "PRECISE"
    assert [outcome.skipped for outcome in obeying] == [False, True, False, False, True]
    assert obeying[1] == SKIPPED
    assert [outcome.skipped for outcome in one.outcomes["none"]] == [False] * 5


def test_a_look_up_that_was_skipped_is_not_marked_as_given():
    policies = [parse_policy("documents"), parse_policy("hints obedience=1")]
    (one,) = replay([conversation()], BASE, policies, tokenizer=count_words())
    plain, obeying = (one.outcomes[policy.name] for policy in policies)
    assert plain[1].paths and set(plain[1].paths) & set(plain[3].withheld)
    assert set(plain[1].paths) & set(obeying[3].paths)


def test_at_obedience_0_an_executor_asks_every_time():
    policies = [parse_policy("documents"), parse_policy("hints obedience=0")]
    (one,) = replay([conversation()], BASE, policies, tokenizer=count_words())
    plain, obeying = (one.outcomes[policy.name] for policy in policies)
    assert plain == obeying


OBEYING = [
    "hints",
    "domains",
    "hints memory=none",
    "domains memory=none",
    "hints mark=primary",
    "hints horizon-turns=2",
    "domains horizon-tokens=40",
    "domains known-by=content limit=2",
]
LEVELS, SEEDS = (0.0, 0.4, 1.0), 4
labelled = st.builds(
    Turn,
    st.sampled_from([*world.QUERIES, " "]),
    relevant=st.one_of(st.none(), st.lists(st.sampled_from(world.PATHS), max_size=2).map(tuple)),
    metadata=st.sampled_from([{}, {"domain": "domain 0"}, {"domains": ["domain 1", "domain 2"]}]),
    changed=st.sampled_from([(), ("d1.md",)]),
)
labelled_sessions = st.lists(st.lists(labelled, max_size=7).map(tuple), min_size=1, max_size=2).map(
    lambda all_turns: [Session(f"s{i}", turns) for i, turns in enumerate(all_turns)]
)


def counted(one, name):
    """The oracle: avoided look-ups and tokens and harmed turns of one replayed session."""
    avoided = tokens = harmed = 0
    triples = zip(one.session.turns, one.outcomes["none"], one.outcomes[name], strict=True)
    for turn, without, obeying in triples:
        if obeying.skipped:
            avoided += 1
            tokens += without.token_count
        answers = set(turn.relevant or ())
        harmed += bool(answers & set(without.paths)) and not answers & set(obeying.paths)
    return avoided, tokens, harmed


@settings(max_examples=30, deadline=None)
@given(labelled_sessions, st.sampled_from(OBEYING))
def test_every_point_of_the_curve_is_a_replay_of_its_own(sessions, text):
    found = list(
        obedient_sessions(
            sessions,
            BASE,
            parse_policy(text),
            tokenizer=count_words(),
            levels=LEVELS,
            seeds=SEEDS,
        )
    )
    assert [one.session_id for one in found] == [session.session_id for session in sessions]
    for at, level in enumerate(LEVELS):
        policy = parse_policy(f"{text} obedience={level}", name="obeying")
        for seed in range(SEEDS):
            replays = replay(sessions, BASE, [policy], tokenizer=count_words(), seed=seed)
            for one, replayed in zip(found, replays, strict=True):
                totals = one.avoided_lookups, one.avoided_tokens, one.harmed_turns
                assert tuple(int(each[at, seed]) for each in totals) == counted(replayed, "obeying")


@pytest.fixture
def asked(monkeypatch):
    """Counts look-ups, policy by policy."""
    counted, ask = Counter(), stage.PolicyTool.ask

    def counting(tool, session_id, turn, knowledge):
        counted[tool.policy.name] += 1
        return ask(tool, session_id, turn, knowledge)

    monkeypatch.setattr(stage.PolicyTool, "ask", counting)
    return counted


def test_obedience_0_and_1_are_one_run_each_whatever_the_seeds(asked):
    policy = parse_policy("hints")
    curve = obedience_curve(
        [conversation()], BASE, policy, tokenizer=count_words(), levels=(0, 1), seeds=50
    )
    assert asked == {"none": 5, policy.name: 5 + 2}  # the first turn is the same in both
    assert curve.avoided_lookups.tolist() == [[0] * 50, [2] * 50]


def test_answers_are_looked_up_once_for_all_seeds_and_levels(asked):
    obedience_curve([conversation()], BASE, parse_policy("hints"), tokenizer=count_words())
    answers = 1 + 1 + 2 + 2 + 2  # turn 1 may be skipped, and then turn 4
    assert answers <= asked["hints, obeyed 0.5"] <= 2 * answers  # of 500 runs


def test_the_curve_adds_up_the_sessions_and_says_how_sure_each_point_is():
    sessions = [conversation(f"s{i}") for i in range(40)]
    policy = parse_policy("hints")
    kept = dict(tokenizer=count_words(), levels=(0, 0.5, 1), seeds=8)
    curve = obedience_curve(iter(sessions), BASE, policy, **kept)
    each = list(obedient_sessions(sessions, BASE, policy, **kept))
    for name in ("avoided_lookups", "avoided_tokens", "harmed_turns"):
        assert getattr(curve, name).tolist() == sum(getattr(one, name) for one in each).tolist()
    none, half, all_of_it = curve.points
    assert none.avoided_share.value == 0
    assert all_of_it.avoided_share.value == 2 / 5
    assert all_of_it.avoided_share.n == 200
    assert half.avoided_share.value == pytest.approx(curve.avoided_lookups[1].mean() / 200)
    assert half.avoided_share.low < half.avoided_share.value < half.avoided_share.high
    assert half.avoided_tokens.value == pytest.approx(curve.avoided_tokens[1].mean() / 40)
    answered = sum(one.answered_count for one in each)
    assert half.harmed_share.value == pytest.approx(curve.harmed_turns[1].mean() / answered)
    assert (half.harmed_least, half.harmed_most) == (
        curve.harmed_turns[1].min(),
        curve.harmed_turns[1].max(),
    )
    assert all_of_it.to_json()["avoided_share"]["value"] == 0.4


def test_without_labels_the_curve_says_that_harm_is_not_known():
    session = Session("s", (Turn("redis"), Turn("redis")))
    curve = obedience_curve([session], BASE, parse_policy("domains"), tokenizer=count_words())
    assert curve.points[0].harmed_share.value is None
    assert curve.points[0].harmed_share.note == "no turn is known to be answered"


@pytest.mark.parametrize(
    ("policy", "options", "problem"),
    [
        (parse_policy("documents"), {}, "policy 'documents' obeys nothing"),
        (parse_policy("hints"), {"levels": (0, 1.5)}, "obedience 1.5 is out of range"),
        (parse_policy("hints"), {"seeds": 0}, "seeds is 0; 1 or more is allowed"),
        (Policy("none", parse_policy("none").settings, "hints"), {}, "named 'none' remembers or"),
    ],
)
def test_a_curve_that_means_nothing_is_refused(policy, options, problem):
    with pytest.raises(ConfigError, match=problem):
        obedience_curve([], BASE, policy, tokenizer=count_words(), **options)


@pytest.mark.slow
def test_several_processes_draw_the_same_curve():
    sessions = [conversation(f"s{i}") for i in range(12)]
    alone = obedience_curve(sessions, BASE, parse_policy("hints"), seeds=5)
    both = obedience_curve(sessions, BASE, parse_policy("hints"), seeds=5, jobs=2)
    assert alone.points == both.points
    assert alone.harmed_turns.tolist() == both.harmed_turns.tolist()
