"""What one turn under a policy saves and hides, beside the same turn without memory."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.evaluation.ledger.domains import ClosedDomains
from kbeval.evaluation.ledger.labels import CANNOT_HAVE, Label
from kbeval.evaluation.ledger.lines import session_lines
from kbeval.evaluation.ledger.parts import Parts, later_lookups, parts_of
from kbeval.evaluation.needs import needed
from tests.ledger_world import (
    SKIPPED,
    handed,
    outcome,
    replayed,
    turn,
    worlds,
)

HORIZONS = st.none() | st.integers(1, 4)


def lines(turns, none, policy, **options):
    return session_lines(replayed(turns, none, documents=policy), **options)["documents"]


@pytest.mark.parametrize(
    ("none", "policy", "expected"),
    [
        pytest.param(outcome("a", "b"), outcome("a", "b"), Parts(), id="equal answers"),
        pytest.param(
            outcome("a", "b"), outcome("b", withheld="a"), Parts(100, 0, 0), id="one withheld"
        ),
        pytest.param(
            outcome("a", "b"), outcome("b", "c", withheld="a"), Parts(100, 100, 0), id="refilled"
        ),
        pytest.param(
            outcome("a"), outcome(withheld="a", frame=85), Parts(100, 0, 25), id="a longer notice"
        ),
        pytest.param(
            outcome("a"), outcome("a", frame=64), Parts(0, 0, 4), id="the domain list alone"
        ),
        pytest.param(
            outcome("a"), outcome("b", frame=50), Parts(100, 100, -10), id="a shorter hint"
        ),
        pytest.param(
            outcome(handed("a", 80, content="new")),
            outcome(handed("a", 70, content="old")),
            Parts(80, 70, 0),
            id="another version is another document",
        ),
        pytest.param(
            outcome(handed("a", 80)),
            outcome(handed("a", 30, passage="p")),
            Parts(80, 30, 0),
            id="a passage is another document",
        ),
        pytest.param(outcome("a"), SKIPPED, Parts(), id="a skipped look-up is avoided, not saved"),
    ],
)
def test_a_saving_has_three_parts(none, policy, expected):
    assert parts_of(none, policy) == expected


@given(worlds)
def test_the_parts_add_up_to_the_saving(world):
    none, policy = world.outcome(), world.outcome()
    assert parts_of(none, policy).saved == none.token_count - policy.token_count


@given(worlds, HORIZONS)
def test_later_lookups_are_counted_as_a_loop_counts_them(world, horizon):
    found = world.replay().outcomes["hints"]
    expected = [
        sum(
            not later.skipped
            for at, later in enumerate(found)
            if at > turn and (horizon is None or at - turn < horizon)
        )
        for turn in range(len(found))
    ]
    assert later_lookups(found, horizon) == expected


@pytest.mark.parametrize(
    ("fields", "groups", "known"),
    [
        pytest.param({}, [], False, id="no label"),
        pytest.param({"relevant": ("a", "b")}, [{"a", "b"}], True, id="any of them answers"),
        pytest.param({"relevant": ()}, [], True, id="an empty list: nothing answers"),
        pytest.param({"relevant": (), "answerable": True}, [], False, id="answerable, unknown by"),
        pytest.param({"answerable": False}, [], True, id="declared unanswerable"),
        pytest.param(
            {"relevant": ("a", "b"), "needs": (("a",), ("b", "c"))},
            [{"a"}, {"b", "c"}],
            True,
            id="groups go first",
        ),
        pytest.param({"needs": ((), ("a",))}, [{"a"}], True, id="an empty group asks for nothing"),
    ],
)
def test_labels_of_a_turn_are_read_as_groups(fields, groups, known):
    found = needed(turn(**fields))
    assert ([set(group) for group in found.groups], found.known) == (groups, known)


OLD, NEW = handed("a", content="old"), handed("a", content="new")
P1, P2 = handed("a", 30, passage="p1"), handed("a", 30, passage="p2")
TWIN = handed("b", content="text of a")


@pytest.mark.parametrize(
    ("before", "now", "needs", "horizon", "expected"),
    [
        pytest.param("a", "a", "n1 n1", None, ("repeat", False), id="the same need"),
        pytest.param("a", "a", "n1 n2", None, ("new_need", False), id="another need"),
        pytest.param("a", "a", "n1 - same", None, ("repeat", True), id="one need unnamed: texts"),
        pytest.param("a", "a", "- n1 other", None, ("new_need", True), id="unnamed, other text"),
        pytest.param("a", "a", "n1 n1", 1, ("beyond_horizon", False), id="context of one turn"),
        pytest.param("a", "a", "n1 n1", 2, ("repeat", False), id="just within the horizon"),
        pytest.param(OLD, NEW, "n1 n1", 1, ("changed", False), id="changed goes before the rest"),
        pytest.param(P1, P2, "n1 n1", None, ("never_delivered", False), id="another passage came"),
        pytest.param(P1, P1, "n1 n1", None, ("repeat", False), id="the same passage"),
        pytest.param(P1, "a", "n1 n1", None, ("never_delivered", False), id="only a passage came"),
        pytest.param("a", P2, "n1 n1", None, ("repeat", False), id="the whole holds the passage"),
        pytest.param(TWIN, "a", "n1 n1", None, ("repeat", False), id="the text, another path"),
        pytest.param(P1, P2, "n1 n1", 1, ("beyond_horizon", False), id="horizon before passage"),
        pytest.param("c", "a", "n1 n1", None, ("never_delivered", False), id="nothing came"),
    ],
)
def test_a_withheld_document_has_the_first_label_that_holds(before, now, needs, horizon, expected):
    first, second, *text = needs.split()
    asked = [
        turn("same", need=None if first == "-" else first),
        turn(text[0] if text else "same", need=None if second == "-" else second),
    ]
    found = lines(
        asked,
        [outcome(before), outcome(now)],
        [outcome(before), outcome(withheld="a")],
        horizon=horizon,
    )
    (withheld,) = found.turns[1].withheld
    assert (withheld.label, withheld.by_text) == expected


def test_a_need_is_repeated_only_if_the_document_came_for_it():
    """The second turn was denied the document, so asking again is no repeat of an answer."""
    asked = [turn(need="n1"), turn(need="n2"), turn(need="n2")]
    denied = outcome(withheld="a")
    found = lines(asked, [outcome("a")] * 3, [outcome("a"), denied, denied])
    assert [[w.label for w in line.withheld] for line in found.turns] == [
        [],
        ["new_need"],
        ["new_need"],
    ]


def test_a_named_need_goes_before_a_text_that_agrees_too():
    asked = [turn("same", need="n1"), turn("same"), turn("same", need="n1")]
    found = lines(asked, [outcome("a")] * 3, [outcome("a"), outcome("a"), outcome(withheld="a")])
    (withheld,) = found.turns[2].withheld
    assert (withheld.label, withheld.by_text) == ("repeat", False)


@pytest.mark.parametrize(
    ("query", "again", "same"),
    [("How?", " HOW? ", True), ("重启nginx？", "重启NGINX?", True), ("how", "why", False)],
)
def test_queries_are_compared_folded(query, again, same):
    assert needed(turn(query)).same_need(needed(turn(again))) == (same, True)


A_THEN_B = [outcome("a"), outcome("a")]  # without memory; `a` answers both turns


@pytest.mark.parametrize(
    ("now", "options", "cause", "dead_end"),
    [
        pytest.param(outcome("a"), {}, None, False, id="still handed out"),
        pytest.param(outcome(withheld="a"), {}, "repeat", True, id="nothing is left: a dead end"),
        pytest.param(outcome("b", withheld="a"), {}, "repeat", False, id="a neighbour instead"),
        pytest.param(outcome("t", withheld="a"), {}, None, False, id="another member of the group"),
        pytest.param(
            outcome(withheld="a"), {"horizon": 1}, "beyond_horizon", True, id="out of context"
        ),
        pytest.param(outcome("b"), {}, "repeat", False, id="lost by other settings, but given"),
        pytest.param(SKIPPED, {}, "repeat", False, id="not asked: no dead end of the tool"),
    ],
)
def test_a_turn_is_harmed_where_only_no_memory_answers(now, options, cause, dead_end):
    asked = [turn("q", ("a", "t")), turn("q", ("a", "t"))]
    found = lines(asked, A_THEN_B, [outcome("a"), now], **options)
    harm = found.turns[1].harm
    assert (harm.answered_by_none, harm.cause, harm.dead_end) == (True, cause, dead_end)
    assert harm.sure == (cause in CANNOT_HAVE)


def test_harm_is_not_sure_where_the_context_holds_another_member_of_the_group():
    asked = [turn("x", ("t",)), turn("q", ("a", "t"), need="n")]
    none = [outcome("t"), outcome(NEW)]
    denied = [outcome("t"), outcome(withheld="a")]
    assert lines(asked, none, denied).turns[1].harm.cause == Label.NEW_NEED
    stale = [asked[0], turn("q", ("a", "t"), need="n", changed=("t",))]
    assert lines(stale, none, denied).turns[1].harm.cause == Label.NEVER_DELIVERED
    assert lines(asked, none, denied, horizon=1).turns[1].harm.cause == Label.NEVER_DELIVERED


def test_with_several_needs_the_worst_loss_names_the_harm():
    asked = [turn("q", need="n1"), turn("q", needs=(("a",), ("b",)), need="n1")]
    none = [outcome(OLD, "b"), outcome(NEW, "b")]
    policy = [outcome(OLD, "b"), outcome(withheld="ab")]
    harm = lines(asked, none, policy).turns[1].harm
    assert (harm.cause, harm.sure, harm.answered) == (Label.CHANGED, True, False)
    half = lines(asked, none, [outcome(OLD, "b"), outcome(NEW, withheld="b")]).turns[1].harm
    assert (half.cause, half.sure, half.answered) == (Label.REPEAT, False, False)


def test_a_group_that_is_not_covered_without_memory_cannot_be_lost():
    asked = [turn("q", needs=(("a",), ("z",)))]
    harm = lines(asked, [outcome("a")], [outcome("a")]).turns[0].harm
    assert (harm.cause, harm.gained) == (None, False)


@pytest.mark.parametrize(
    ("needs", "none", "policy", "by_none", "now", "could_lose", "lost"),
    [
        pytest.param("a", "a", "a", True, True, True, False, id="one need, met"),
        pytest.param("a", "a", "", True, False, True, True, id="one need, lost"),
        pytest.param("a", "x", "a", False, True, False, False, id="one need, gained"),
        pytest.param("ab", "ab", "ab", True, True, True, False, id="both are met"),
        pytest.param("ab", "ab", "b", True, False, True, True, id="one of two is lost"),
        pytest.param("az", "a", "a", False, False, True, False, id="one is met by nobody"),
        pytest.param("az", "a", "", False, False, True, True, id="the only one met is lost"),
        pytest.param("az", "a", "z", False, False, True, True, id="one for the other"),
        pytest.param("az", "x", "x", False, False, False, False, id="there is nothing to lose"),
    ],
)
def test_a_turn_is_answered_when_all_its_needs_are_met(
    needs, none, policy, by_none, now, could_lose, lost
):
    asked = [turn("q", needs=tuple((path,) for path in needs))]
    withheld = tuple(path for path in none if path not in policy)
    found = lines(asked, [outcome(*none)], [outcome(*policy, withheld=withheld)])
    harm = found.turns[0].harm
    assert (harm.answered_by_none, harm.answered) == (by_none, now)
    assert (harm.could_lose, harm.cause is not None) == (could_lose, lost)


def test_a_refill_that_answers_is_a_gain():
    asked = [turn("q"), turn("r", ("c",))]
    harm = lines(asked, [outcome("a"), outcome("a")], [outcome("a"), outcome("c", withheld="a")])
    assert harm.turns[1].harm.gained


@pytest.mark.parametrize(
    "labels",
    [{}, {"relevant": ()}, {"relevant": (), "answerable": True}, {"answerable": False}],
)
def test_a_turn_without_an_answering_document_is_in_no_harm_denominator(labels):
    assert lines([turn(**labels)], [outcome("a")], [outcome("b")]).turns[0].harm is None


@pytest.mark.parametrize(
    ("none", "policy", "replaced"),
    [
        pytest.param(outcome("a", "b"), outcome("b", withheld="a"), True, id="a neighbour"),
        pytest.param(outcome("a", "b"), outcome("t", withheld="a"), False, id="another answer"),
        pytest.param(outcome("a"), outcome(withheld="a"), False, id="nothing stands in its place"),
        pytest.param(outcome("a", "b"), outcome("b"), False, id="not withheld"),
        pytest.param(outcome("b", "a"), outcome("c", withheld="ba"), None, id="no right primary"),
        pytest.param(outcome(), outcome(), None, id="no primary"),
    ],
)
def test_a_right_primary_can_be_replaced_by_a_neighbour(none, policy, replaced):
    assert lines([turn("q", ("a", "t"))], [none], [policy]).turns[0].harm.replaced is replaced


@pytest.mark.parametrize(
    ("none", "policy", "changed"),
    [
        (outcome("a"), outcome("b", withheld="a"), False),
        (outcome("a", level="PRECISE"), outcome("b", withheld="a"), True),
        (outcome("a"), outcome(withheld="a"), True),
        (outcome("a", level="PRECISE"), outcome("a"), False),  # other thresholds, not the filter
    ],
)
def test_a_grade_is_changed_by_the_filter_alone(none, policy, changed):
    assert lines([turn()], [none], [policy]).turns[0].grade_changed is changed


API, OPS = handed("api/a", domain="api"), handed("ops/a", domain="ops")
OPS_B = handed("ops/b", domain="ops")


@pytest.mark.parametrize(
    ("first", "labels", "later", "expected"),
    [
        pytest.param((API,), ("ops/a",), (OPS,), (0, 0, 0), id="only one domain came"),
        pytest.param((OPS, OPS_B), ("ops/b",), (), (0, 0, 0), id="its primary came too"),
        pytest.param((API, OPS), ("ops/b",), (), (1, 1, 1), id="a supplement closes a domain"),
        pytest.param((API, OPS), ("ops/a",), (), (1, 1, 0), id="it was the one that is needed"),
        pytest.param((API, OPS), ("api/a",), (), (1, 0, 0), id="not needed again"),
        pytest.param((API, OPS), ("ops/b", "api/a"), (), (1, 0, 0), id="another domain will do"),
        pytest.param((API, OPS), None, (), (1, 0, 0), id="no label"),
    ],
)
def test_domains_that_the_planner_closes_after_one_supplement(first, labels, later, expected):
    listed = tuple(d.domain for d in first)
    found = lines(
        [turn("q"), turn("r", labels)],
        [outcome(*first), outcome(*later)],
        [outcome(*first, domains=listed), outcome(*later, domains=listed)],
        domain_of={"ops/a": "ops", "ops/b": "ops", "api/a": "api"},
    )
    assert found.closed == ClosedDomains(*expected)


def test_what_the_closing_turn_itself_needs_is_no_later_need():
    both = outcome(API, OPS, domains=("api", "ops"))
    asked = [turn("q", ("ops/b",)), turn("r", ("api/a",))]
    found = lines(asked, [both, both], [both, both], domain_of={"ops/b": "ops", "api/a": "api"})
    assert found.closed == ClosedDomains(1, 0, 0)


@pytest.mark.parametrize(
    ("session_relevant", "labels", "expected"),
    [
        pytest.param(("a", "b", "z"), None, (3, 1, 2), id="labels of the session, one by one"),
        pytest.param(None, ("a", "b"), (1, 0, 0), id="a turn's documents stand for each other"),
        pytest.param(None, ("b",), (1, 0, 1), id="never handed out under the policy"),
        pytest.param(None, None, (0, 0, 0), id="no label"),
    ],
)
def test_evidence_that_is_never_delivered_in_the_session(session_relevant, labels, expected):
    replay = replayed(
        [turn("q"), turn("r", labels)],
        [outcome("a"), outcome("b")],
        documents=[outcome("a"), outcome("c")],
        relevant=session_relevant,
    )
    found = session_lines(replay)["documents"]
    assert (found.needs, found.undelivered_by_none, found.undelivered) == expected


def test_evidence_is_delivered_where_its_text_came_under_another_path():
    """A policy that knows documents by content withholds `b`, a copy of what came as `a`."""
    a, b = handed("a", content="same"), handed("b", content="same")
    asked = [turn("q", ("c",)), turn("r", ("b",))]
    replay = replayed(asked, [outcome(a), outcome(b)], content=[outcome(a), outcome(withheld="b")])
    found = session_lines(replay)["content"]
    assert (found.needs, found.undelivered_by_none, found.undelivered) == (2, 1, 1)


@given(worlds, HORIZONS)
def test_any_replay_keeps_the_books_in_balance(world, horizon):
    for found in session_lines(world.replay(), horizon=horizon).values():
        for line in found.turns:
            skipped = line.none.token_count if line.policy.skipped else 0
            assert line.none.token_count - line.policy.token_count == line.parts.saved + skipped
            assert sum(w.token_count for w in line.withheld) <= line.parts.withheld_text
            if line.harm is not None and line.harm.cause is not None:
                assert line.harm.could_lose and not line.harm.answered
                assert not line.harm.dead_end or not line.policy.found
        assert 0 <= found.closed.never_seen <= found.closed.needed_later <= found.closed.listed


@given(worlds)
def test_no_memory_beside_itself_saves_and_hides_nothing(world):
    for line in session_lines(world.replay())["none"].turns:
        assert (line.parts, line.withheld, line.grade_changed) == (Parts(), (), False)
        assert line.harm is None or line.harm.cause is None


@given(worlds)
def test_a_longer_context_never_makes_harm_surer(world):
    """Turns that are surely harmed only become fewer as the agent's context grows."""
    replay = world.replay()
    sure = [
        [
            line.harm is not None and line.harm.sure
            for line in session_lines(replay, horizon=horizon)["documents"].turns
        ]
        for horizon in (1, 2, 3, None)
    ]
    for shorter, longer in pairwise(sure):
        assert all(before or not after for before, after in zip(shorter, longer, strict=True))


def oracle_label(history, now, at, horizon, needs):
    """The rule of the labels, read out one sentence after the other."""
    came = [(s, d) for s, d in history if now.path == d.path or now.content == d.content]
    version = [(s, d) for s, d in came if d.content == now.content]
    if came and not version:
        return "changed"
    kept = [(s, d) for s, d in version if horizon is None or at - s < horizon]
    if version and not kept:
        return "beyond_horizon"
    whole = [s for s, d in kept if d.passage is None or d.passage == now.passage]
    if not whole:
        return "never_delivered"
    return "repeat" if any(needs[s] == needs[at] for s in whole) else "new_need"


@given(worlds, HORIZONS)
def test_labels_are_those_of_the_slow_rule(world, horizon):
    replay = world.replay()
    found = session_lines(replay, horizon=horizon)["documents"]
    asked = [needed(t) for t in replay.session.turns]

    def needs_of(at):
        return [asked[at].same_need(other)[0] for other in asked]

    history = []
    for at, line in enumerate(found.turns):
        same = needs_of(at)
        names = {s: "same" if same[s] else f"other {s}" for s in range(at)} | {at: "same"}
        documents = [d for d in line.none.handed if d.path in line.policy.withheld]
        expected = [
            (d.path, oracle_label(history, d, at, horizon, names))
            for d in documents
            if d not in line.policy.handed
        ]
        assert [(w.path, w.label) for w in line.withheld] == expected
        history += [(at, d) for d in line.policy.handed]
