"""One real session of the handbook (hb-s001), its ledger worked out by hand, line by line.

What each policy hands out is what the tool does with the encoder fast-use under the specs'
defaults; tokens are those of the deepseek vocabulary. Both are the input of this page, and a test
at its end replays them. Everything else was reckoned with pencil and paper.
"""

import dataclasses
from pathlib import Path

import pytest

from kbeval.corpus.documents import load_corpus
from kbeval.corpus.encoders import open_encoder
from kbeval.evaluation.ledger.book import Book
from kbeval.evaluation.ledger.lines import session_lines
from kbeval.evaluation.replaying.replay import replay
from kbeval.evaluation.sessions import load_sessions
from kbeval.retrieval.knowledge import Knowledge
from tests.ledger_world import DOCUMENTS, NONE, handed, outcome, policy, replayed, turn

TENANT, TENANT_ZH, KEY, BURST, CODES, LOKI, ROTATION, REDIS = (
    handed(path, count, domain=path.split("/", maxsplit=1)[0])
    for path, count in (
        ("api/rate-limit-per-tenant.md", 882),
        ("api/rate-limit-per-tenant-zh.md", 923),
        ("api/rate-limit-per-key.md", 788),
        ("api/rate-limit-burst.md", 828),
        ("api/error-codes-lf1xxx.md", 0),
        ("observability/loki-log-format-query.md", 797),
        ("security/api-key-rotation.md", 888),
        ("infrastructure/redis-eviction-persistence.md", 990),
    )
)
LIMITS = (TENANT.path, TENANT_ZH.path)

TURNS = [
    turn("客户接口返回429，怎么判断是租户、密钥还是突发限制", (*LIMITS, CODES.path), need="n1"),
    turn("怎样找出是哪个密钥占用了租户额度", LIMITS, need="n2"),
    turn("LogQL 按 key_id 统计某租户五分钟请求数", LIMITS, need="n2"),
    turn("密钥的限流额度能单独调高吗", (KEY.path,), need="n3"),
    turn("定时任务整点集中触发把密钥打满，怎么摊平", (KEY.path,), need="n4"),
    turn("迁移期间给租户临时提高限额的命令", LIMITS, need="n5"),
    turn("429 怎么判断是租户、密钥还是突发限制", (*LIMITS, CODES.path), need="n1"),
    turn("Redis 挂了的时候限流还生效吗", LIMITS, need="n6"),
]

ZH_KEY, KEY_ZH = (TENANT_ZH.path, KEY.path), (KEY.path, TENANT_ZH.path)
REPLAY = replayed(
    TURNS,
    # the answer without memory, and the tokens of its frame
    [
        outcome(TENANT_ZH, KEY, frame=59),
        outcome(frame=53),
        outcome(LOKI, frame=57, level="PRECISE"),
        outcome(KEY, TENANT_ZH, frame=59),
        outcome(frame=53),
        outcome(frame=53),
        outcome(KEY, TENANT_ZH, frame=59),
        outcome(TENANT_ZH, REDIS, frame=59),
    ],
    # the memory of REQ-01: frames grow by the list of domains and by the notice
    documents=[
        outcome(TENANT_ZH, KEY, frame=61),
        outcome(frame=55),
        outcome(LOKI, frame=63, level="PRECISE"),
        outcome(ROTATION, frame=92, withheld=KEY_ZH),
        outcome(frame=62),
        outcome(frame=62),
        outcome(TENANT, BURST, frame=92, withheld=KEY_ZH),
        outcome(REDIS, frame=99, withheld=(*ZH_KEY, ROTATION.path)),
    ],
    # the same, forgetting after four turns: the seventh turn gets the first one's documents again
    four_turns=[
        outcome(TENANT_ZH, KEY, frame=61),
        outcome(frame=55),
        outcome(LOKI, frame=63, level="PRECISE"),
        outcome(ROTATION, frame=92, withheld=KEY_ZH),
        outcome(frame=59),
        outcome(frame=59),
        outcome(KEY, TENANT_ZH, frame=64),
        outcome(REDIS, ROTATION, frame=95, withheld=ZH_KEY),
    ],
)

# turn: saved = withheld text - refill - notices, later look-ups; withheld documents; harm
BY_HAND = {
    "documents": """
        1:   -2 =    0 -    0 -  2, 7; -; -
        2:   -2 =    0 -    0 -  2, 6; -; -
        3:   -6 =    0 -    0 -  6, 5; -; -
        4:  790 = 1711 -  888 - 33, 4; key new_need, tenant-zh new_need; new_need replaced
        5:   -9 =    0 -    0 -  9, 3; -; -
        6:   -9 =    0 -    0 -  9, 2; -; -
        7:  -32 = 1711 - 1710 - 33, 1; key repeat, tenant-zh repeat; -
        8:  883 =  923 -    0 - 40, 0; tenant-zh new_need; new_need replaced
    """,
    "four turns": """
        1:   -2 =    0 -    0 -  2, 7; -; -
        2:   -2 =    0 -    0 -  2, 6; -; -
        3:   -6 =    0 -    0 -  6, 5; -; -
        4:  790 = 1711 -  888 - 33, 4; key new_need, tenant-zh new_need; new_need replaced
        5:   -6 =    0 -    0 -  6, 3; -; -
        6:   -6 =    0 -    0 -  6, 2; -; -
        7:   -5 =    0 -    0 -  5, 1; -; -
        8:   -1 =  923 -  888 - 36, 0; tenant-zh new_need; new_need replaced
    """,
}
# What came three turns ago has left the agent's context. Turn 8 is not surely harmed: the English
# twin, which came with turn 7, answers it too.
THREE_TURNS_OF_CONTEXT = """
        1:   -2 =    0 -    0 -  2, 2; -; -
        2:   -2 =    0 -    0 -  2, 2; -; -
        3:   -6 =    0 -    0 -  6, 2; -; -
        4:  790 = 1711 -  888 - 33, 2; key beyond_horizon, tenant-zh beyond_horizon; \
beyond_horizon replaced
        5:   -9 =    0 -    0 -  9, 2; -; -
        6:   -9 =    0 -    0 -  9, 2; -; -
        7:  -32 = 1711 - 1710 - 33, 1; key beyond_horizon, tenant-zh beyond_horizon; -
        8:  883 =  923 -    0 - 40, 0; tenant-zh beyond_horizon; new_need replaced
"""


def written(number, line):
    parts, harm = line.parts, line.harm
    withheld = ", ".join(
        f"{w.path.removeprefix('api/rate-limit-per-').removesuffix('.md')} {w.label}"
        for w in line.withheld
    )
    harmed = " ".join(
        [*([harm.cause] if harm.cause else []), *(["replaced"] if harm.replaced else [])]
    )
    return (
        f"{number}: {parts.saved:4} = {parts.withheld_text:4} - {parts.refill:4} - "
        f"{parts.notices:2}, {line.later}; {withheld or '-'}; {harmed or '-'}"
    )


def page(lines):
    return [written(number, line) for number, line in enumerate(lines.turns, start=1)]


def rows(text):
    return [row.strip() for row in text.strip().splitlines()]


@pytest.mark.parametrize("name", BY_HAND)
def test_every_line_is_the_one_worked_out_by_hand(name):
    assert page(session_lines(REPLAY)[name]) == rows(BY_HAND[name])


def test_a_short_context_makes_the_withheld_text_unreachable():
    found = session_lines(REPLAY, horizon=3)["documents"]
    assert page(found) == rows(THREE_TURNS_OF_CONTEXT)


def ledger(horizon=None):
    book = Book([NONE, DOCUMENTS, policy("four turns", horizon_turns=4)], horizon=horizon)
    book.add(REPLAY)
    return book.ledger()


@pytest.mark.parametrize(
    ("name", "horizon", "once", "cumulative"),
    [
        ("documents", None, 1613, 4640),  # -2-2-6+790-9-9-32+883; -16-14-36+3950-36-27-64+883
        ("documents", 3, 1613, 3105),  # -6-6-18+2370-27-27-64+883
        ("four turns", None, 762, 3831),  # -2-2-6+790-6-6-5-1; -16-14-36+3950-24-18-10-1
        ("none", None, 0, 0),
    ],
)
def test_the_two_views_of_the_saving(name, horizon, once, cumulative):
    found = ledger(horizon).pages[name]
    assert (found.once.total.value, found.cumulative.total.value) == (once, cumulative)
    assert found.none_tokens - found.tokens == once


def test_the_totals_of_the_session():
    found = ledger().pages["documents"]
    assert found.once.parts == {"withheld_text": 4345, "refill": 2598, "notices": 134}
    assert (found.none_tokens, found.tokens) == (8295, 6682)
    assert (found.found.value, found.blocked.value, found.documents) == (5 / 8, 0, 7)
    assert found.withheld["new_need"] == {"documents": 3, "tokens": 2634}
    assert found.withheld["repeat"] == {"documents": 2, "tokens": 1711}
    assert found.withheld_by_text == 0
    harm = found.harm
    assert (harm.answerable, harm.harmed, harm.surely_harmed) == (8, 2, 0)
    assert (harm.answered_by_none.value, harm.answered.value) == (4 / 8, 2 / 8)
    assert (harm.high.value, harm.lost_high.value) == (2 / 8, 2 / 4)
    assert (harm.replaced.value, harm.dead_ends.value, harm.gained.value) == (2 / 3, 0, 0)
    assert harm.causes["new_need"] == 2
    assert found.never_delivered == {"needs": 3, "by_none": 0, "by_policy": 0, "difference": 0}
    assert found.break_even is None  # nothing was blocked
    assert ledger(3).pages["documents"].harm.surely_harmed == 1


HANDBOOK = Path(__file__).parents[1] / "datasets/handbook"


@pytest.mark.model
def test_the_input_of_this_page_is_what_the_tool_hands_out():
    """Answers, tokens and frames, replayed over the documents of the handbook that match."""
    known = {document.path for document in (TENANT, TENANT_ZH, KEY, BURST, LOKI, ROTATION, REDIS)}
    corpus = load_corpus(HANDBOOK / "docs")
    matching = tuple(d for d in corpus.documents if d.path in known)
    base = Knowledge.build(
        dataclasses.replace(corpus, documents=matching), open_encoder("fast-use")
    )
    session = load_sessions(HANDBOOK / "sessions.jsonl")[0][0]
    assert [t.query for t in session.turns] == [t.query for t in TURNS]
    assert [set(t.relevant) for t in session.turns] == [set(t.relevant) for t in TURNS]
    policies = [NONE, DOCUMENTS, policy("four turns", horizon_turns=4)]
    (now,) = replay([session], base, policies)
    for name, expected in REPLAY.outcomes.items():
        assert [facts(o) for o in now.outcomes[name]] == [facts(o) for o in expected]
    for name in BY_HAND:
        assert page(session_lines(now)[name]) == rows(BY_HAND[name])


def facts(o):
    """What an outcome says, without the name of the content."""
    tokens = [document.token_count for document in o.handed]
    return o.level, o.reason, o.paths, o.withheld, tokens, o.frame_count
