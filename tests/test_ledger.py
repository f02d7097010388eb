"""The ledger over many sessions: totals, intervals, money, and the sentence that may be said."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbeval.errors import ConfigError
from kbeval.evaluation.ledger.book import Book
from kbeval.evaluation.ledger.lines import session_lines
from kbeval.evaluation.ledger.money import load_prices, map_line
from kbeval.evaluation.ledger.sentences import net_sentence
from kbeval.evaluation.replaying.policies import Policy
from kbeval.evaluation.statistics import Rate, cluster_rate, mean_interval
from kbeval.evaluation.totals import RunningTotals
from tests.ledger_world import (
    DOCUMENTS,
    NONE,
    SKIPPED,
    World,
    handed,
    outcome,
    policy,
    replayed,
    turn,
)

HINTS = Policy("hints", DOCUMENTS.settings, obeys="hints")
PRICES = load_prices(
    {"date": "2026-11-30", "models": {"m": {"input": 2, "cached-input": 0.5, "currency": "CNY"}}}
)


def booked(replays, policies=(NONE, DOCUMENTS), **options):
    """The ledger of these replays."""
    said = {key: options.pop(key) for key in ("fidelity", "map_tokens") if key in options}
    book = Book(policies, **options)
    for replay in replays:
        book.add(replay)
    return book.ledger(**said)


def assert_same(found, expected):
    """Two rates agree but for rounding."""
    assert (found.n, found.note) == (expected.n, expected.note)
    for one, other in zip(
        (found.value, found.low, found.high),
        (expected.value, expected.low, expected.high),
        strict=True,
    ):
        assert one == other if other is None else one == pytest.approx(other, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("sessions", [1, 9, 10, 39, 40, 200])
def test_running_totals_give_the_intervals_of_cluster_rate(share, sessions):
    random = np.random.default_rng(sessions)
    whole = random.integers(0, 9, sessions)
    part = random.binomial(whole, share)
    size = random.integers(-900, 9000, sessions)
    running = RunningTotals(["part", "whole", "size"])
    for row in zip(part, whole, size, strict=True):
        running.add(dict(zip(("part", "whole", "size"), row, strict=True)))
    totals = running.totals()
    clusters = np.repeat(np.arange(sessions), whole)
    rows = np.concatenate([np.arange(n) < k for k, n in zip(part, whole, strict=True)])
    expected = cluster_rate(rows, np.ones(len(rows)), clusters)
    if whole.sum():
        assert_same(totals.share("part", "whole"), expected)
    found, mean = totals.per_session("size"), mean_interval(size)
    assert found.note == mean.note.replace("queries", "sessions")
    assert (found.low is None) == (mean.low is None)
    assert found.value == pytest.approx(mean.value)
    if mean.low is not None:
        assert (found.low, found.high) == pytest.approx((mean.low, mean.high))


@given(st.lists(st.integers(0, 5), min_size=12, max_size=30), st.integers(1, 3))
@settings(deadline=None)
def test_a_constant_ratio_has_no_spread_however_it_is_summed(sizes, factor):
    running = RunningTotals(["part", "whole"])
    for size in sizes:
        running.add({"part": size / 3 * factor, "whole": size})
    found = running.totals().ratio("part", "whole", empty="nothing")
    if sum(size > 0 for size in sizes) >= 10:
        assert (found.low, found.note) == (None, "all are equal: no spread")


def test_totals_are_whole_tokens():
    """A mean times its sessions is not: 1 / 49 * 49 is 0.9999999999999999."""
    saves = [replayed([turn()], [outcome("a")], documents=[outcome("a", frame=59)])]
    found = booked(saves + [replayed([turn()], [outcome("a")], documents=[outcome("a")])] * 48)
    page = found.pages["documents"]
    assert (page.once.total.value, page.cumulative.total.value) == (1, 1)
    assert page.once.total.value == -sum(page.once.parts.values())


def test_a_small_spread_beside_a_large_mean_is_not_lost():
    values = 1e9 + np.arange(40.0)
    running = RunningTotals(["x"])
    for value in values:
        running.add({"x": value})
    found, expected = running.totals().per_session("x"), mean_interval(values)
    assert found.high - found.low == pytest.approx(expected.high - expected.low)


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_book_adds_up_what_the_lines_say(seed):
    """Slow oracle: all lines kept, then summed."""
    world = World(seed)
    replays = [world.replay(f"s{place}") for place in range(5)]
    ledger = booked(replays, (NONE, DOCUMENTS, HINTS), horizon=3)
    for name, page in ledger.pages.items():
        lines = [t for r in replays for t in session_lines(r, horizon=3)[name].turns]
        harms = [line.harm for line in lines if line.harm is not None]
        saved = [line.parts.saved for line in lines]
        once, cumulative = page.once, page.cumulative
        assert once.total.value == sum(saved)
        assert cumulative.total.value == sum(line.saved_cumulative for line in lines)
        for saving in (once, cumulative):
            parts = saving.parts
            assert saving.total.value == (
                parts["withheld_text"] - parts["refill"] - parts["notices"]
            )
        assert page.none_tokens - page.tokens == sum(saved) + page.avoided_tokens
        assert page.avoided == sum(line.policy.skipped for line in lines)
        assert page.lookups == len(lines)
        assert page.harm.answerable == len(harms)
        assert page.harm.could_lose == sum(h.could_lose for h in harms)
        if harms:
            assert page.harm.answered_by_none.value == np.mean([h.answered_by_none for h in harms])
            assert page.harm.answered.value == np.mean([h.answered for h in harms])
        if page.harm.could_lose:
            assert page.harm.lost_high.value == page.harm.harmed / page.harm.could_lose
        assert page.found.value == np.mean([bool(line.policy.handed) for line in lines])
        assert page.harm.harmed == sum(h.cause is not None for h in harms)
        assert page.harm.harmed == sum(page.harm.causes.values())
        assert page.harm.surely_harmed == sum(h.sure for h in harms)
        assert page.harm.unlabelled == sum(not line.needed.known for line in lines)
        withheld = [w for line in lines for w in line.withheld]
        assert sum(row["documents"] for row in page.withheld.values()) == len(withheld)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_sessions_does_not_matter(seed):
    world = World(seed)
    replays = [world.replay(f"s{place}") for place in range(12)]
    one, other = booked(replays).pages["documents"], booked(replays[::-1]).pages["documents"]
    assert one.once.parts == other.once.parts
    assert_same(one.once.per_session, other.once.per_session)
    assert_same(one.harm.high, other.harm.high)


def test_skipped_lookups_are_avoided_and_never_saved():
    replay = replayed(
        [turn("q", ("a",)), turn("r", ("a",))],
        [outcome("a"), outcome("a")],
        hints=[outcome("a", frame=62), SKIPPED],
    )
    page = booked([replay], (NONE, HINTS)).pages["hints"]
    assert (page.avoided, page.avoided_tokens) == (1, 160)
    assert (page.once.total.value, page.cumulative.total.value) == (-2, -2)
    assert page.withheld["new_need"]["documents"] == 0
    assert (page.harm.harmed, page.harm.dead_ends.value) == (1, 0)


def test_a_session_cut_in_the_middle_is_kept_and_counted():
    asked = [turn()], [outcome("a")]
    whole = replayed(*asked, documents=[outcome("a")])
    cut = replayed(*asked, documents=[outcome("a")], metadata={"complete": False})
    ledger = booked([whole, cut, whole])
    assert (ledger.sessions, ledger.cut_sessions, ledger.lookups) == (3, 1, 3)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        pytest.param((None, None, None), None, id="no record"),
        pytest.param((("a",), ("b",), ("b",)), (198, 0, 1), id="never unlike the record"),
        pytest.param((("a",), ("a",), ("b",)), (99, 99, 0), id="the unlike turn itself is exact"),
        pytest.param((None, None, ("a",)), (198, 0, 0), id="at the last turn"),
    ],
)
def test_savings_are_split_at_the_first_answer_unlike_the_record(returned, expected):
    asked = [turn("q", returned=paths) for paths in returned]
    none = [outcome("a"), outcome("a", "b"), outcome("a", "b")]
    given = [outcome("a"), *[outcome("b", withheld="a", frame=61)] * 2]
    split = booked([replayed(asked, none, documents=given)]).pages["documents"].split
    if split is not None:
        split = (split.before_divergence, split.after_divergence, split.never_diverges.value)
    assert split == expected


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param([outcome("a")], None, id="no block"),
        pytest.param([outcome(withheld="a", frame=200)], None, id="no saving"),
        pytest.param([outcome(withheld="a", frame=80)], 0.5, id="80 saved, one block, 160 a turn"),
        pytest.param([outcome(withheld="a", frame=80)] * 2, 0.5, id="two blocks"),
    ],
)
def test_break_even_is_null_without_blocks_or_a_saving(answers, expected):
    count = 1 + len(answers)
    replay = replayed([turn()] * count, [outcome("a")] * count, documents=[outcome("a"), *answers])
    assert booked([replay]).pages["documents"].break_even == expected


def some_replays(count=12):
    """Sessions of four turns that ask for `a` again, once with nothing else to find."""
    return [
        replayed(
            [turn("q", ("a",), need="n1"), turn("r", ("b",)), turn("q", ("a",), need="n1"), turn()],
            [outcome("a"), outcome("b"), outcome(handed("a", 100 + place)), outcome("c")],
            documents=[
                outcome(handed("a"), frame=62),
                outcome("b", frame=62),
                outcome(withheld="a", frame=90),
                outcome("c", frame=64),
            ],
            session_id=f"s{place}",
        )
        for place in range(count)
    ]


def test_money_is_linear_in_both_views():
    """Per session: y = (-2, -2, 70 + place, -4), later (3, 2, 1, 0)."""
    ledger = booked(some_replays(), prices=PRICES)
    (money,) = ledger.pages["documents"].money
    mean = 70 + 5.5
    once, later = -2 - 2 + mean - 4, -6 - 4 + mean
    assert money.later_cached.value == pytest.approx((once * 2 + later * 0.5) / 1e6)
    assert money.later_uncached.value == pytest.approx((once + later) * 2 / 1e6)
    page = ledger.pages["documents"]
    assert page.cumulative.per_session.value == pytest.approx(once + later)
    widths = [rate.high - rate.low for rate in (money.later_uncached, page.cumulative.per_session)]
    assert widths[0] == pytest.approx(widths[1] * 2 / 1e6)
    table = ledger.money()
    assert table["later_calls"].tolist() == ["cached", "uncached"] * 2
    assert set(table["currency"]) == {"CNY"}


def test_the_planners_map_stands_on_its_own_line():
    with_map = booked(some_replays(), prices=PRICES, map_tokens=500).to_json()
    without = booked(some_replays(), prices=PRICES).to_json()
    assert with_map.pop("knowledge_map") == {
        "tokens_per_planner_call": 500,
        "money_per_planner_call": [
            {"model": "m", "currency": "CNY", "cached": 0.00025, "uncached": 0.001}
        ],
    }
    assert without.pop("knowledge_map") is None
    assert with_map == without
    with pytest.raises(ConfigError, match="tokens per planner call: got -1"):
        map_line(-1)


def test_the_shipped_prices_are_dated_and_have_a_source():
    prices = load_prices()
    assert len({price.model for price in prices}) == len(prices) >= 3
    for price in prices:
        assert 0 < price.cached_input < price.input
        assert price.date == "2026-11-30"
        assert price.source.startswith("https://")
        assert price.currency == "USD"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("models: {m: {input: -1, cached-input: 0}}", r"models.m: no date"),
        ("date: d\nmodels: {m: {input: -1, cached-input: 0}}", r"models.m.input: got -1"),
        ("date: d\nmodels: {m: {input: 1}}", r"models.m.cached-input: got None"),
        ("date: d\nmodels: {m: {input: 1, cached-input: 2}}", r"got 2, above the input price 1"),
        ("date: d\nmodels: {m: {input: .nan, cached-input: 0}}", r"models.m.input: got nan"),
        ("date: d\nmodels: {m: {input: 1, cached: 0}}", r"models.m: unknown key 'cached'; known"),
        ("date: d\nmodels: {m: 3}", r"models.m: got 3; a mapping"),
        ("date: d\nmodels: {}", r"models: got {}; a mapping model -> prices is expected"),
        ("prices: {}", r"unknown key 'prices'; known keys are date, source, models"),
        ("- 1", r"a mapping is expected, found list"),
    ],
)
def test_a_table_of_prices_is_checked(tmp_path, table, problem):
    file = tmp_path / "prices.yml"
    file.write_text(table, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem) as raised:
        load_prices(file)
    assert str(raised.value).count(str(file)) == 1
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("policies", "options", "problem"),
    [
        ([DOCUMENTS], {}, "policies documents lack 'none'"),
        ([], {}, "none given"),
        ([NONE, DOCUMENTS, policy(mark="primary")], {}, "policy 'documents' is given twice"),
        ([NONE], {"horizon": 0}, "horizon: got 0"),
    ],
)
def test_a_book_is_opened_with_what_it_needs(policies, options, problem):
    with pytest.raises(ConfigError, match=problem):
        Book(policies, **options)


def test_a_replay_must_hold_every_policy_of_the_book():
    replay = replayed([turn()], [outcome("a")], session_id="s9")
    with pytest.raises(ConfigError, match="session 's9': no outcome of policy 'documents'"):
        Book([NONE, DOCUMENTS]).add(replay)


def test_a_book_without_sessions_says_so():
    page = booked([]).pages["documents"]
    assert (page.once.total.value, page.once.per_session.note) == (None, "no session")
    assert page.break_even is None
    json.dumps(booked([]).to_json(), allow_nan=False)


def test_tables_and_json_hold_the_same_numbers():
    ledger = booked(some_replays(), prices=PRICES, horizon=4, tokenizer="words 1")
    text = json.loads(json.dumps(ledger.to_json(), allow_nan=False))
    page = text["policies"]["documents"]
    table = ledger.table().set_index("policy")
    row = table.loc["documents"]
    assert table.index.tolist() == ["none", "documents"]
    assert row["saved_once"] == page["saved_once"]["total"]["value"] == 12 * 67.5
    assert row["saved_cumulative_from"] == page["saved_cumulative"]["total"]["low"]
    assert row["harm_high"] == page["harm"]["high"]["value"] == 12 / 36
    assert row["lost_low"] == page["harm"]["lost_low"]["value"] == 0
    assert (row["harm_unknown"], page["harm"]["unlabelled"]) == (12, 12)
    assert (text["horizon_turns"], text["tokenizer"]) == (4, "words 1")
    parts = ledger.parts().set_index(["policy", "view"]).loc[("documents", "once")]
    assert parts["saved"] == parts["withheld_text"] - parts["refill"] - parts["notices"]
    labels = ledger.labels().set_index(["policy", "label"]).loc["documents"]
    assert labels["documents"].to_dict() == {
        "changed": 0,
        "beyond_horizon": 0,
        "never_delivered": 0,
        "repeat": 12,
        "new_need": 0,
    }
    assert labels.loc["repeat", "harmed_turns"] == 12


EN = (
    "For the 48 recorded look-ups in these 12 sessions, policy documents hands out 810 fewer "
    "tokens [783, 837] than no memory; all of it is for this sequence of questions. It withholds "
    "the only answering document in 12 turns, in 0 of which the agent cannot have it from before; "
    "harm is unknown for 12 turns. Whether an agent would ask differently is not known from "
    "records."
)
ZH = (
    "就这 12 个会话中记录的 48 次检索而言，策略 documents 比无记忆少发出 810 个 token [783, 837]；"
    "全部仅针对这一提问序列。它在 12 轮中扣下了唯一能回答的文档，其中 0 轮智能体也无法从先前的"
    "答案中得到它；另有 12 轮的损害未知。智能体是否会改变提问，无法从记录中得知。"
)


def test_the_net_statement_is_one_sentence_with_its_uncertainty():
    ledger = booked(some_replays())
    assert net_sentence(ledger, "documents") == EN
    assert net_sentence(ledger, "documents", "zh") == ZH


@pytest.mark.parametrize(
    ("count", "fidelity", "expected"),
    [
        pytest.param(
            12,
            Rate(0.9, 0.8, 0.95, 40),
            "Replay gives 90.0% of the recorded answers again, less than 95%: "
            "no saving of policy documents is claimed.",
            id="an unfaithful replay claims nothing",
        ),
        pytest.param(3, None, "[no interval: too few sessions]", id="too few sessions"),
        pytest.param(12, Rate(0.97, 0.9, 1.0, 40), "hands out 810 fewer tokens", id="faithful"),
    ],
)
def test_the_sentence_claims_no_more_than_it_may(count, fidelity, expected):
    assert expected in net_sentence(booked(some_replays(count), fidelity=fidelity), "documents")


@pytest.mark.parametrize(
    ("refills", "after"),
    [
        pytest.param((150, 150), "50% of that is after", id="more on both sides"),
        pytest.param((250, 50), "-550 tokens of that are after", id="more, then fewer"),
    ],
)
def test_a_policy_that_hands_out_more_says_so(refills, after):
    replays = [
        replayed(
            [turn("q", returned=("a",))] * 3,
            [outcome("a")] * 3,
            documents=[
                outcome("a"),
                *[outcome(handed("b", size + place), withheld="a") for size in refills],
            ],
        )
        for place in range(-5, 6)
    ]
    found = net_sentence(booked(replays), "documents")
    assert "hands out 1,100 more tokens [1,051, 1,149] than no memory" in found
    assert after in found
    assert "Harm is unknown for 33 turns" in found


@pytest.mark.parametrize(("locale", "share"), [("en", "50% of that"), ("zh", "其中 50%")])
def test_the_sentence_says_how_much_rests_on_unchanged_questions(locale, share):
    asked = [turn("q", returned=("a",)), turn("q", returned=("a",)), turn("q", returned=("a",))]
    answers = [outcome("a"), outcome(withheld="a"), outcome(withheld="a")]
    replay = replayed(asked, [outcome("a")] * 3, documents=answers)
    assert share in net_sentence(booked([replay]), "documents", locale)


def test_a_turn_with_two_needs_is_answered_only_by_both():
    """Nobody meets `z`; of the turn with both met, the policy withholds `a`."""
    asked = [turn("q", needs=(("a",), ("z",))), turn("r", needs=(("a",), ("b",)))]
    none = [outcome("a"), outcome("a", "b")]
    page = booked([replayed(asked, none, documents=[outcome("a"), outcome("b", withheld="a")])])
    harm = page.pages["documents"].harm
    assert (harm.answerable, harm.could_lose, harm.harmed) == (2, 2, 1)
    assert (harm.answered_by_none.value, harm.answered.value) == (1 / 2, 0)
    assert (harm.high.value, harm.lost_high.value, harm.lost_high.n) == (1 / 2, 1 / 2, 2)
