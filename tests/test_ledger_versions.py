"""What the documents of a session say at each turn, and the copies that an agent has of them."""

import pytest
from hypothesis import given

from kbeval.evaluation.ledger.lines import session_lines
from kbeval.evaluation.ledger.versions import versions_of
from tests.ledger_world import handed, outcome, replayed, turn, worlds

C, COPY = handed("c", content="text"), handed("c2", content="text")
PART = handed("c2", 30, content="text", passage="part")
NOTHING = outcome()


@pytest.mark.parametrize(
    ("beside", "copy", "last", "changed", "horizon", "cause"),
    [
        pytest.param((C,), COPY, NOTHING, (), 2, "new_need", id="c came beside its copy"),
        pytest.param((), COPY, outcome(C), (), 2, "new_need", id="what c says is shown later"),
        pytest.param((), COPY, NOTHING, (), 2, "beyond_horizon", id="no answer shows what c says"),
        pytest.param((C,), COPY, NOTHING, (2,), 2, "beyond_horizon", id="c has changed since"),
        pytest.param((), COPY, outcome(C), (3,), 2, "beyond_horizon", id="c changed to that later"),
        pytest.param((C,), COPY, outcome(C), (2,), 2, "new_need", id="c says it again"),
        pytest.param((C,), PART, NOTHING, (), 2, "beyond_horizon", id="only a part of the copy"),
        pytest.param((C,), COPY, NOTHING, (), 1, "beyond_horizon", id="the copy is out of context"),
    ],
)
def test_harm_is_not_sure_where_the_agent_has_a_copy(beside, copy, last, changed, horizon, cause):
    """`b` or `c` answers the third turn; `b` is lost, and of `c` only the copy `c2` came."""
    asked = [
        turn(query, labels, need=query, changed=("c",) if place in changed else ())
        for place, (query, labels) in enumerate(
            [("p", None), ("q", None), ("r", ("b", "c")), ("s", None)]
        )
    ]
    none = [outcome("b"), outcome(copy, *beside), outcome("b"), last]
    given = [outcome("b"), outcome(copy, withheld="c"), outcome(withheld="b"), NOTHING]
    found = session_lines(replayed(asked, none, content=given), horizon=horizon)["content"]
    assert found.turns[2].harm.cause == cause


def test_a_copy_that_came_for_the_same_need_is_a_repeat():
    asked = [turn("q", need="n"), turn("q", ("b", "c"), need="n")]
    none = [outcome(COPY, C), outcome("b")]
    given = [outcome(COPY, withheld="c"), outcome(withheld="b")]
    found = session_lines(replayed(asked, none, content=given))["content"]
    assert found.turns[1].harm.cause == "repeat"


def test_a_page_does_not_hang_on_the_other_policies():
    """Only no memory and the policy itself show what a document says."""
    asked = [turn("p"), turn("q", ("b", "c"))]
    none, given = [outcome(COPY), outcome("b")], [outcome(COPY), outcome(withheld="b")]
    alone = replayed(asked, none, content=given)
    beside = replayed(asked, none, content=given, other=[outcome(C), outcome(C)])
    assert session_lines(alone)["content"] == session_lines(beside)["content"]


@given(worlds)
def test_versions_last_from_one_change_to_the_next(world):
    """Slow oracle: an answer tells unless a change lies between it and the turn."""
    replay = world.replay()
    session = replay.session
    courses = [replay.outcomes["none"], replay.outcomes["documents"]]
    found = versions_of(session, *courses)
    turns = range(len(session.turns))
    for path in "abcde":
        for at in turns:
            expected = {
                document.content
                for course in courses
                for other in turns
                for document in course[other].handed
                if document.path == path
                and not any(
                    path in session.turns[between].changed
                    for between in range(min(at, other) + 1, max(at, other) + 1)
                )
            }
            assert found.contents(path, at) == expected
