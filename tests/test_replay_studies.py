"""What a replay shows and writes: tables, pictures, rows; and the one function behind them."""

import csv
import io
import json
import warnings
from datetime import UTC, datetime

import pandas as pd
import pytest

from kbeval.errors import DatabaseError
from kbeval.evaluation.ledger.lines import session_lines
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.recorded.names import QueryNames
from kbeval.evaluation.replaying.outcomes import Handed, Outcome, SessionReplay
from kbeval.service.opening import open_for_use
from kbeval.store.invocations import read_invocations
from kbeval.studies.chart_labels import CHAR, LINE, Marked, places_for
from kbeval.studies.replay_charts import horizon_chart, saved_against_hidden
from kbeval.studies.replay_database import ReplayedRows
from kbeval.studies.replay_files import RowFiles
from kbeval.studies.replay_rows import session_rows, turn_rows
from kbeval.studies.replay_session_charts import along_chart, obedience_chart, repeats_chart
from kbeval.studies.replay_tables import AGAIN, ALIAS, NEW, Along, Repeated
from kbeval.studies.replay_timeline import documents_of, timeline
from kbeval.studies.replay_timeline_chart import timeline_chart

CLEAR = QueryNames()


def given(*paths, domain="ops", tokens=100, content=None):
    """Documents as handed out; the content is the path unless it is said."""
    return tuple(Handed(path, domain, content or path, tokens) for path in paths)


def outcome(*paths, withheld=(), level="REFERENCE", reason=None, frame=20, **options):
    """A look-up that hands out these documents of 100 tokens each."""
    handed = given(*paths, **options)
    tokens = frame + sum(document.token_count for document in handed)
    return Outcome(level if handed else None, reason, handed, withheld, ("ops",), tokens)


def replayed(session_id="s1"):
    """Four turns: a, then b, then a again (asked for with other words), then nothing known of it.

    No memory hands a out again at turn 3; documents withholds it and hands out c in its place.
    """
    turns = (
        Turn("how does a work", relevant=("a",), metadata={"need": "n1"}),
        Turn("b?", relevant=("b",), metadata={"need": "n2"}),
        Turn("=a, again", relevant=("a",), metadata={"need": "n3"}),
        Turn("x" * 600),
    )
    none = (outcome("a"), outcome("b", "a"), outcome("a"), outcome("b"))
    documents = (
        outcome("a"),
        outcome("b", withheld=("a",), reason="PARTIAL"),
        outcome("c", withheld=("a",), reason="PARTIAL"),
        outcome(withheld=("b",), reason="ALL_RETRIEVED"),
    )
    return SessionReplay(Session(session_id, turns), {"none": none, "documents": documents})


def drawn(figure):
    """Every text of a figure, after drawing it with warnings as errors."""
    import matplotlib.text

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(io.BytesIO(), format="png")
    return {text.get_text() for text in figure.findobj(matplotlib.text.Text)}


def test_a_turn_is_a_row_for_each_policy():
    session = replayed()
    rows = list(turn_rows(session, session_lines(session), CLEAR))
    assert [(row["turn"], row["policy"]) for row in rows] == [
        (turn, policy) for turn in (1, 2, 3, 4) for policy in ("none", "documents")
    ]
    third = rows[5]
    assert third == {
        "session_id": "s1",
        "turn": 3,
        "asked_at": "",
        "query_id": "",
        "query": "=a, again",
        "policy": "documents",
        "level": "REFERENCE",
        "reason": "PARTIAL",
        "handed": '["c"]',
        "withheld": '["a"]',
        "withheld_as": '["new_need"]',
        "withheld_count": 1,
        "tokens": 120,
        "none_tokens": 120,
        "saved": 0,
        "withheld_text": 100,
        "refill": 100,
        "notices": 0,
        "later_look_ups": 1,
        "harm": "possible",
        "dead_end": False,
    }
    assert [row["harm"] for row in rows[6:]] == ["unknown", "unknown"]
    assert rows[7]["level"] == "all given before"
    assert len(rows[7]["query"]) == 500


def test_all_that_matched_and_was_given_before_is_listed_with_why_it_may_be_missed():
    """`b` matched too, but without memory only `c` and `a` are handed out."""
    turns = (Turn("q"), Turn("r"))
    none = (outcome("a", "b"), outcome("c", "a"))
    documents = (outcome("a", "b"), outcome("c", withheld=("b", "a"), reason="PARTIAL"))
    session = SessionReplay(Session("s", turns), {"none": none, "documents": documents})
    row = list(turn_rows(session, session_lines(session), CLEAR))[3]
    assert json.loads(row["withheld"]) == ["b", "a"]
    assert json.loads(row["withheld_as"]) == ["", "new_need"]
    assert row["withheld_count"] == 2


def test_a_session_is_a_row_for_each_policy():
    session = replayed()
    none, documents = session_rows(session, session_lines(session))
    assert (none["saved"], none["saved_cumulative"], none["blocked"]) == (0, 0, 0)
    assert documents == {
        "session_id": "s1",
        "policy": "documents",
        "turns": 4,
        "tokens": 120 + 120 + 120 + 20,
        "saved": 100 + 100,  # a at turn 2, b at turn 4; at turn 3 the refill costs as much
        "saved_cumulative": 100 * 3 + 100,
        "blocked": 1,
        "not_asked": 0,
        "answerable": 3,
        "harm_unknown": 1,
        "harmed_surely": 0,
        "harmed_at_most": 1,
        "dead_ends": 0,
    }


def test_the_files_hold_every_session_that_was_added_however_it_ends(tmp_path):
    session = replayed()
    with pytest.raises(KeyboardInterrupt), RowFiles(tmp_path, CLEAR) as files:
        files.add(session, session_lines(session))
        raise KeyboardInterrupt
    for path, count in zip(files.paths, (8, 2), strict=True):
        with path.open(encoding="utf-8", newline="") as file:
            assert len(list(csv.DictReader(file))) == count


def test_what_utf8_cannot_hold_is_written_escaped(tmp_path):
    session = SessionReplay(
        Session("s\ud800", (Turn("half \ud83d, line\nbreak"),)),
        {"none": (outcome("a"),)},
    )
    with RowFiles(tmp_path, CLEAR) as files:
        files.add(session, session_lines(session))
    row = next(csv.DictReader(files.paths[0].open(encoding="utf-8", newline="")))
    assert (row["session_id"], row["query"]) == (r"s\ud800", "half \\ud83d, line\nbreak")


def test_hashed_queries_stand_nowhere_in_clear(tmp_path):
    session, names = replayed(), QueryNames.hashing("salt")
    lines = session_lines(session)
    with RowFiles(tmp_path, names) as files:
        files.add(session, lines)
    engine = open_for_use(tmp_path / "kbeval.db")
    rows = ReplayedRows(engine, names)
    rows.add(session)
    rows.close()
    stored = read_invocations(engine)
    engine.dispose()
    shown = drawn(timeline_chart(timeline(session, lines, shown=names.shown)))
    texts = [path.read_text() for path in files.paths] + [row.query for row in stored]
    assert names.shown("b?") in texts[0]
    for text in [*texts, *shown]:
        assert not any(turn.query in text for turn in session.session.turns)


def test_replayed_look_ups_are_rows_of_their_own(tmp_path):
    engine = open_for_use(tmp_path / "kbeval.db")
    rows = ReplayedRows(engine, CLEAR)
    rows.add(replayed())
    rows.add(replayed("s2"))
    rows.close()
    stored = read_invocations(engine)
    assert rows.saved_count == len(stored) == 16
    assert {row.tool_name for row in stored} == {"replay"}
    found = read_invocations(engine, session_id="documents/s1")
    assert [row.returned_paths for row in found] == [("a",), ("b",), ("c",), ()]
    assert [row.dedup_reason for row in found] == [None, "PARTIAL", "PARTIAL", "ALL_RETRIEVED"]
    assert found[3].retrieval_details["withheld"] == ["b"]
    with pytest.raises(DatabaseError, match=r"holds a replay of session '\w+/s1' already"):
        ReplayedRows(engine, CLEAR).add(replayed())
    engine.dispose()


def test_a_look_up_keeps_its_time_and_one_that_was_skipped_is_no_row(tmp_path):
    asked = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    skipped = Outcome(None, None, (), (), (), 0, skipped=True)
    session = SessionReplay(
        Session("s", (Turn("a", asked_at=asked), Turn("b"))),
        {"none": (outcome("a"), outcome("b")), "hints": (outcome("a"), skipped)},
    )
    engine = open_for_use(tmp_path / "kbeval.db")
    rows = ReplayedRows(engine, CLEAR)
    rows.add(session)
    rows.close()
    found = {row.session_id: row.started_at for row in read_invocations(engine) if row.id != 2}
    engine.dispose()
    assert rows.saved_count == 3
    assert found == {"none/s": asked, "hints/s": asked}


def test_tokens_along_the_session_keep_the_sum_of_sessions_that_ended():
    long, short = replayed(), replayed()
    short = SessionReplay(
        Session("s2", short.session.turns[:1]),
        {name: outcomes[:1] for name, outcomes in short.outcomes.items()},
    )
    along = Along()
    along.add(long)
    along.add(short)
    table = along.table()
    none = table[table["policy"] == "none"]
    assert none["sessions"].tolist() == [2, 1, 1, 1]
    assert none["tokens_so_far"].tolist() == [120, 230, 290, 350]
    documents = table[table["policy"] == "documents"]
    assert documents["tokens_so_far"].tolist() == [120, 180, 240, 250]


def test_what_comes_again_is_counted_by_turn_and_domain():
    again = SessionReplay(
        Session("s", (Turn("1"), Turn("2"), Turn("3"))),
        {
            "none": (
                outcome("a", "b"),
                outcome("a", domain="web"),
                outcome("copy of a", content="a"),
            )
        },
    )
    repeated = Repeated()
    repeated.add(again)
    assert repeated.by_turn().to_dict("list") == {
        "turn": [1, 2, 3],
        NEW: [2, 0, 0],
        ALIAS: [0, 0, 1],
        AGAIN: [0, 1, 0],
    }
    by_domain = repeated.by_domain()
    assert by_domain["domain"].tolist() == ["ops", "web"]
    assert by_domain[AGAIN].tolist() == [0, 1]


def test_documents_given_twice_in_one_answer_are_not_a_repeat_of_an_earlier_turn():
    repeated = Repeated()
    repeated.add(
        SessionReplay(Session("s", (Turn("1"),)), {"none": (outcome("a", "b", content="same"),)})
    )
    assert repeated.by_turn()[[ALIAS, AGAIN]].to_numpy().sum() == 0


def test_domains_beyond_the_first_are_one_row():
    repeated = Repeated()
    for name in "abcdef":
        turns = (Turn("1"), Turn("2"))
        same = outcome(f"{name}.md", domain=name)
        repeated.add(SessionReplay(Session(name, turns), {"none": (same, same)}))
    table = repeated.by_domain(most=3)
    assert table["domain"].tolist() == ["a", "b", "c", "3 others"]
    assert table[AGAIN].tolist() == [1, 1, 1, 3]


def test_the_timeline_numbers_documents_by_their_first_appearance():
    session = replayed()
    table = timeline(session, session_lines(session))
    assert documents_of(session).to_dict("records") == [
        {"number": 1, "document": "a", "domain": "ops", "answers turns": "1, 3"},
        {"number": 2, "document": "b", "domain": "ops", "answers turns": "2"},
        {"number": 3, "document": "c", "domain": "ops", "answers turns": ""},
    ]
    third = table[(table["turn"] == 3) & (table["policy"] == "documents")].iloc[0]
    assert (third["documents"], third["withheld"], third["answering"]) == ((3,), (1,), (1,))
    assert third["harm"] == "possible"
    again = table[table["policy"] == "none"]["again"].tolist()
    assert again == [(), (1,), (1,), (2,)]


def test_the_timeline_is_drawn_with_every_policy_and_turn():
    session = replayed()
    texts = drawn(timeline_chart(timeline(session, session_lines(session))))
    assert {"none", "documents", "how does a work  1", "b?  2"} <= texts
    assert "A session under each policy, 4 turns; grey: tokens" in texts


def test_a_query_no_font_can_draw_leaves_its_turn_alone():
    session = replayed()
    table = timeline(session, session_lines(session)).assign(query="\U000f0000" * 9)
    assert "  3" in drawn(timeline_chart(table))


def policies(*rows):
    """A table of policies: name, saved, lower and upper bound of harm; intervals around them."""
    return pd.DataFrame(
        [
            {
                "policy": name,
                "saved_once_per_session": saved,
                "saved_once_per_session_from": saved - 50,
                "saved_once_per_session_to": saved + 50,
                "harm_low": low,
                "harm_low_from": low,
                "harm_low_to": low,
                "harm_high": high,
                "harm_high_from": high,
                "harm_high_to": high,
            }
            for name, saved, low, high in rows
        ]
    )


def test_saved_against_hidden_names_every_policy_and_says_where_it_is_better():
    table = policies(("none", 0, 0.0, 0.0), ("documents", 900, 0.01, 0.3), ("内容", 900, 0.0, 0.3))
    texts = drawn(saved_against_hidden(table))
    assert {"none", "documents", "better: right and low  ↘", "answerable turns harmed"} <= texts


def test_equal_policies_are_one_point_under_both_names():
    table = policies(("none", 0, 0.0, 0.0), ("documents", 9, 0.0, 0.3), ("content", 9, 0.0, 0.3))
    assert "documents = content" in drawn(saved_against_hidden(table))


def test_without_labels_savings_stand_alone():
    table = policies(("none", 0, None, None), ("documents", 900, None, None))
    texts = drawn(saved_against_hidden(table))
    assert "Saved, a point a policy; harm is unknown: no labels" in texts
    assert not any("hidden" in text for text in texts)


def test_the_other_pictures_show_their_numbers():
    session = replayed()
    along, repeated = Along(), Repeated()
    along.add(session)
    repeated.add(session)
    assert {"none: 580", "documents: 380"} <= drawn(along_chart(along.table()))
    texts = drawn(repeats_chart(repeated.by_turn(), repeated.by_domain()))
    assert {NEW, ALIAS, AGAIN, "ops"} <= texts
    horizons = policies(("4", 500, 0.01, 0.1), ("whole session", 900, 0.0, 0.3))
    assert {"4", "whole session"} <= drawn(
        horizon_chart(horizons.rename(columns={"policy": "horizon"}))
    )
    curve = pd.DataFrame(
        [("hints", o, o / 4, o / 5, o / 3, o, o, o) for o in (0.0, 0.5, 1.0)],
        columns=["policy", "obedience"]
        + [f"{name}{end}" for name in ("avoided", "harmed") for end in ("", "_from", "_to")],
    )
    texts = drawn(obedience_chart(curve))
    assert {"hints", "If the executor obeyed: a sensitivity, not a saving"} <= texts


def test_no_name_of_a_point_stands_on_another():
    crowd = [Marked(f"policy {i}", 3.0, 2.8, 3.2, 2.0, 0.1, 2.3) for i in range(6)]
    places = places_for(crowd, (7.3, 3.8))
    boxes = [
        (x + 3.0 - (len(mark.text) * CHAR if x < 0 else 0), y + 2.0)
        for (x, y), mark in zip(places, crowd, strict=True)
    ]
    for i, (x, y) in enumerate(boxes):
        for other_x, other_y in boxes[i + 1 :]:
            assert abs(x - other_x) >= len("policy 0") * CHAR or abs(y - other_y) >= LINE
    assert len(set(places)) == 6


def test_rows_of_one_session_are_json_lists_that_read_back():
    session = replayed()
    rows = list(turn_rows(session, session_lines(session), CLEAR))
    assert json.loads(rows[2]["handed"]) == ["b", "a"]
