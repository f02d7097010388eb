"""Should the session memory be on? The verdict, from replays in which the truth is made."""

import json

import pytest
import yaml

from kbeval.config import Settings, load_settings
from kbeval.errors import ConfigError
from kbeval.evaluation.ledger.answer import SWITCH_ON, WORDS
from kbeval.evaluation.ledger.book import Book
from kbeval.evaluation.ledger.candidates import candidates_of
from kbeval.evaluation.ledger.verdict import verdict
from kbeval.evaluation.replaying.policies import Policy
from kbeval.evaluation.statistics import Rate
from tests.ledger_world import DOCUMENTS, NONE, handed, outcome, policy, replayed, turn

FOUR = policy("4 turns", horizon_turns=4)
TWO = policy("2 turns", horizon_turns=2)
BY_PATH = policy("path", known_by="path")
HINTS = Policy("hints", Settings(), obeys="hints")
STRICT = Policy(
    "strict",
    load_settings({"retrieval": {"normalization": {"reference-threshold": 0.7}}}),
)
ENOUGH = 240  # sessions: none harmed in as many is below 2 %, for three policies together


def answers(how, place):
    """The second turn of a session; `a` answers it, `x` does not, and both came before."""
    size = 100 + place % 3  # savings must differ between sessions, or they have no interval
    x = handed("x", size)
    return {
        "idle": outcome("a", x, frame=62 + place % 2),
        "refills": outcome("a", handed("y", size - 1 + place % 3), withheld="x"),
        "saves": outcome("a", withheld="x"),
        "saves more": outcome("a", withheld="x", frame=40),
        "hides": outcome(withheld="ax", frame=90),
        "rarely hides": outcome(*"a"[: place > 0], withheld="ax", frame=90),
    }[how]


def ledger_of(count, *, labels=("a",), stale=False, horizon=None, fidelity=None, **how):
    """`how` maps policies, by name, to what they do with the second turn."""
    policies = [NONE, *(p for p in (DOCUMENTS, FOUR, TWO, BY_PATH, HINTS, STRICT) if p.name in how)]
    book = Book(policies, horizon=horizon)
    for place in range(count):
        size = 100 + place % 3
        now = handed("a", content="new") if stale else "a"
        first, second = outcome("a", handed("x", size)), outcome(now, handed("x", size))
        found = replayed([turn("q", labels), turn("r", labels)], [first, second])
        for name, kind in how.items():
            found.outcomes[name] = (first, answers(kind, place))
        book.add(found)
    return book.ledger(fidelity=fidelity)


@pytest.mark.parametrize(
    ("count", "how", "options", "expected"),
    [
        pytest.param(9, {"documents": "saves"}, {}, ("not_known", "few_sessions"), id="9 sessions"),
        pytest.param(
            40,
            {"documents": "saves"},
            {"fidelity": Rate(0.94, 0.9, 0.97, 80)},
            ("not_known", "unfaithful"),
            id="replay does not give the record again",
        ),
        pytest.param(40, {}, {}, ("not_known", "no_policy"), id="no memory was replayed"),
        pytest.param(
            40,
            {"documents": "saves"},
            {"labels": None},
            ("not_known", "no_labels"),
            id="a saving, and nobody knows what it hides",
        ),
        pytest.param(
            40,
            {"documents": "saves"},
            {"labels": ("z",)},
            ("not_known", "nothing_answered"),
            id="retrieval answers nothing",
        ),
        pytest.param(
            40, {"documents": "idle"}, {}, ("no_saving", "saves_nothing"), id="lists cost more"
        ),
        pytest.param(
            40,
            {"documents": "idle"},
            {"labels": None},
            ("no_saving", "saves_nothing"),
            id="no saving needs no label",
        ),
        pytest.param(
            40, {"documents": "refills"}, {}, ("no_saving", "saving_not_shown"), id="about nothing"
        ),
        pytest.param(ENOUGH, {"documents": "saves"}, {}, ("yes", "documents"), id="harmless"),
        pytest.param(
            ENOUGH,
            {"documents": "hides", "4 turns": "saves", "2 turns": "idle"},
            {},
            ("only_with_horizon", "4 turns"),
            id="harmless with a horizon",
        ),
        pytest.param(
            ENOUGH,
            {"documents": "saves", "4 turns": "saves more", "2 turns": "hides"},
            {},
            ("yes", "documents"),
            id="a plain memory that is harmless needs no horizon",
        ),
        pytest.param(
            40,
            {"documents": "hides", "4 turns": "saves"},
            {},
            ("only_while_the_text_is_in_context", "documents"),
            id="nothing is lost while the text is in context",
        ),
        pytest.param(
            40,
            {"path": "hides"},
            {"stale": True},
            ("no", "hides"),
            id="stale text stands for what changed",
        ),
        pytest.param(
            40,
            {"documents": "hides"},
            {"horizon": 1},
            ("no", "hides"),
            id="the context has lost it",
        ),
        pytest.param(
            40,
            {"documents": "hides", "2 turns": "hides"},
            {"horizon": 2},
            ("only_while_the_text_is_in_context", "2 turns"),
            id="a horizon as short as the context",
        ),
        pytest.param(
            40,
            {"path": "saves"},
            {},
            ("not_known", "harm_open"),
            id="too few sessions to rule harm out",
        ),
        pytest.param(
            40,
            {"hints": "saves", "strict": "saves"},
            {},
            ("not_known", "no_policy"),
            id="obeying and other thresholds are no memory",
        ),
    ],
)
def test_the_verdict_is_the_one_that_the_numbers_bear(count, how, options, expected):
    found = verdict(ledger_of(count, **options, **how))
    said = found.policy if found.kind in SWITCH_ON else found.reasons[0].name
    assert (found.kind, said) == expected
    assert (found.policy is None) == (found.kind not in SWITCH_ON)
    json.dumps(found.to_json(), allow_nan=False)


def test_harm_counts_against_the_turns_that_are_answered_without_memory():
    """A retrieval that answers one turn in ten must not make a memory look harmless."""
    book = Book([NONE, DOCUMENTS])
    for place in range(40):
        size = 100 + place % 3
        asked = [turn("q", ("a",)), turn("r", ("a",)), *[turn("s", ("z",))] * 38]
        none = [outcome("a", handed("x", size)), outcome("a"), *[outcome("b")] * 38]
        book.add(replayed(asked, none, documents=[none[0], outcome(withheld="a"), *none[2:]]))
    ledger = book.ledger()
    harm = ledger.pages["documents"].harm
    assert (harm.high.value, harm.lost_high.value) == (1 / 40, 1 / 2)
    assert verdict(ledger, tolerance=0.05).kind == "only_while_the_text_is_in_context"


def test_what_all_sessions_agree_on_needs_no_interval():
    book = Book([NONE, DOCUMENTS])
    for _ in range(10):
        asked = [turn("q", ("a",))] * 2
        book.add(replayed(asked, [outcome("a")] * 2, documents=[outcome("a"), outcome("b")]))
        # documents loses an answer and refills it: nothing is saved, in every session
    (candidate,) = candidates_of(book.ledger(), 0.02)
    assert (candidate.saves, candidate.harmless) == ("no", "no")
    assert candidate.lost_high.low is None


def test_both_views_of_the_saving_must_be_above_zero():
    """Saved late and lost early: fewer tokens once, more where each is carried along."""
    book = Book([NONE, DOCUMENTS])
    for place in range(40):
        asked = [turn("q", ("a",))] * 6
        none = [outcome("a")] * 6
        late = outcome("a", frame=60 - 55 + place % 3)
        answered = [*[outcome("a", frame=70)] * 5, late]
        book.add(replayed(asked, none, documents=answered))
    (candidate,) = candidates_of(book.ledger(), 0.02)
    assert candidate.saved_once.low > 0 > candidate.saved_cumulative.high
    assert (candidate.saves, verdict(book.ledger()).kind) == ("no", "no_saving")


def test_intervals_of_several_policies_hold_together():
    one = candidates_of(ledger_of(40, documents="saves"), 0.02)[0]
    more = candidates_of(
        ledger_of(40, **{"documents": "saves", "4 turns": "saves", "2 turns": "saves"}), 0.02
    )[0]
    alone = ledger_of(40, documents="saves").pages["documents"].once.per_session
    assert one.saved_once == alone
    assert more.saved_once.value == one.saved_once.value
    assert more.saved_once.low < one.saved_once.low < one.saved_once.high < more.saved_once.high
    assert more.lost_high.high > one.lost_high.high
    # Clopper-Pearson of none in 40 sessions: 1 - 0.025 ** (1 / 40), and at 0.05 / 3
    assert one.lost_high.high == pytest.approx(1 - 0.025 ** (1 / 40))
    assert more.lost_high.high == pytest.approx(1 - (0.025 / 3) ** (1 / 40))


@pytest.mark.parametrize(
    ("known_by", "turns", "horizon", "construction"),
    [
        ("version", None, None, True),
        ("content", None, None, True),
        ("path", None, None, False),
        ("version", None, 4, False),
        ("version", 8, 4, False),
        ("version", 4, 4, True),
    ],
)
def test_no_sure_harm_by_construction_needs_no_sessions(known_by, turns, horizon, construction):
    """In 40 sessions none was harmed, which is no proof, unless it could not happen."""
    found = policy("documents", known_by=known_by, horizon_turns=turns)
    book = Book([NONE, found], horizon=horizon)
    for place in range(40):
        first = outcome("a", handed("x", 100 + place % 3))
        replay = replayed([turn("q", ("a",))] * 2, [first] * 2)
        replay.outcomes["documents"] = (first, answers("saves", place))
        book.add(replay)
    (candidate,) = candidates_of(book.ledger(), 0.02)
    assert candidate.harmless_in_context == ("yes" if construction else "open")


def test_settings_to_paste_make_the_policy():
    found = verdict(ledger_of(ENOUGH, **{"documents": "hides", "4 turns": "saves"}))
    assert yaml.safe_load(found.yml)["session"]["horizon-turns"] == 4
    assert load_settings(yaml.safe_load(found.yml)) == FOUR.settings
    refused = verdict(ledger_of(40, documents="idle"))
    assert load_settings(yaml.safe_load(refused.yml)) == NONE.settings
    assert verdict(ledger_of(9, documents="saves")).yml == ""


def test_the_answer_is_said_in_plain_words():
    found = verdict(ledger_of(ENOUGH, documents="saves"))
    assert found.text() == (
        "Yes: switch on documents. It withholds at most 2% of the answers, even from an agent "
        "that remembers nothing. documents saves 101 [101, 101] tokens a session once, 101 "
        "[101, 101] cumulatively; no look-up is blocked. Of the 480 turns given an answer without "
        "memory it takes one from 0.0% [0.0%, 1.5%]."
    )


def test_open_harm_says_how_many_sessions_would_settle_it():
    found = verdict(ledger_of(40, path="saves"))
    assert found.reasons[0].values["wanted"] == 183  # least n with .98 ** n <= .025
    assert "about 183" in found.text()
    # one of 200 turns: .005 +- t(99) * .005 = .00992; 100 * (.00992 / (.01 - .005)) ** 2
    rare = verdict(ledger_of(100, stale=True, path="rarely hides"), tolerance=0.01)
    assert rare.reasons[0].values["wanted"] == 394


def test_several_policies_and_sessions_without_an_answer_want_more_sessions():
    three = {"documents": "saves", "4 turns": "saves", "2 turns": "saves"}
    found = verdict(ledger_of(40, horizon=1, **three))
    assert found.reasons[0].name == "harm_open"
    assert found.reasons[0].values["wanted"] == 237  # least n with .98 ** n <= .05 / 3 / 2
    book = Book([NONE, BY_PATH])
    for place in range(40):  # every second session has no turn that is answered
        first = outcome("a", handed("x", 100 + place % 3))
        asked = [turn("q", ("a",) if place % 2 else ("z",))] * 2
        book.add(replayed(asked, [first] * 2, path=[first, answers("saves", place)]))
    assert verdict(book.ledger()).reasons[0].values["wanted"] == 366  # 183 with one


@pytest.mark.parametrize(("count", "expected"), [(100, "open"), (ENOUGH, "yes")])
def test_a_loss_never_makes_a_policy_look_less_harmful_than_none(count, expected):
    """One loss in 200 turns: .005 +- .00992 lies below 2 %, no loss in 100 sessions does not."""
    for how in ("saves", "rarely hides"):
        (candidate,) = candidates_of(ledger_of(count, path=how), 0.02)
        assert (candidate.harmless, how) == (expected, how)


def test_a_horizon_alone_does_not_say_what_holds_without_it():
    found = verdict(ledger_of(ENOUGH, **{"4 turns": "saves"}))
    assert found.kind == "only_with_horizon"
    assert "without a horizon that is not shown." in found.text()


@pytest.mark.parametrize(
    ("name", "horizon", "kept"),
    [
        ("documents", None, "to the end of the session"),
        ("4 turns", None, "for 4 turns"),
        ("4 turns", 8, "for 4 turns"),
    ],
)
def test_a_context_has_to_keep_no_more_than_the_policy_withholds(name, horizon, kept):
    found = verdict(ledger_of(40, horizon=horizon, **{name: "hides"}))
    assert f"keeps every answer {kept}:" in found.text()


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_every_answer_has_words_in_both_languages(locale):
    assert WORDS["en"].keys() == WORDS["zh"].keys()
    cases = [
        ledger_of(9, documents="saves"),
        ledger_of(40, documents="saves", fidelity=Rate(0.5, None, None, 80)),
        ledger_of(40, documents="saves", labels=None),
        ledger_of(40, documents="idle"),
        ledger_of(40, documents="hides"),
        ledger_of(40, documents="hides", horizon=1),
        ledger_of(40, path="saves"),
        ledger_of(ENOUGH, documents="saves"),
    ]
    texts = [verdict(case).text(locale) for case in cases]
    assert len(set(texts)) == len(cases)
    for text in texts:
        assert "{" not in text
        assert "None" not in text


def test_turns_that_nothing_answers_are_counted_where_no_label_tells_what_is_hidden():
    book = Book([NONE, DOCUMENTS])
    for place in range(40):
        first = outcome("a", handed("x", 100 + place % 3))
        asked = [turn("q"), turn("r", (), answerable=False)]
        book.add(replayed(asked, [first] * 2, documents=[first, answers("hides", place)]))
    assert "what it hides is unknown (80 turns)" in verdict(book.ledger()).text()


def test_harm_that_is_partly_unknown_is_said():
    book = Book([NONE, DOCUMENTS])
    for place in range(40):
        first = outcome("a", handed("x", 100 + place % 3))
        asked = [turn("q", ("a",)), turn("r", ("a",)), turn("s")]
        policies = [first, answers("hides", place), outcome("a")]
        book.add(replayed(asked, [first, first, outcome("a")], documents=policies))
    assert "Harm is unknown for 40 of 120 turns" in verdict(book.ledger()).text()


@pytest.mark.parametrize("tolerance", [0, 1, -0.1, float("nan")])
def test_a_tolerance_is_a_share(tolerance):
    with pytest.raises(ConfigError, match="tolerance: got"):
        verdict(ledger_of(10, documents="saves"), tolerance=tolerance)
