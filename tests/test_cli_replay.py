"""`kbeval replay`: what it prints and writes, and what it refuses."""

import csv
import json
from pathlib import Path

import pytest

from kbeval.errors import DatasetError
from kbeval.evaluation.recorded.opening import open_sessions
from kbeval.service.opening import open_for_use, open_service
from kbeval.store.invocations import read_invocations
from kbeval.studies.replay_policies import by_horizon, metrics, usual_policies, with_thresholds
from kbeval.studies.replaying import folder_name, replay_set

TINY = Path(__file__).parent / "tiny"
HASHING = ("--encoder", "hashing")
TWO = ("-p", "documents", "-p", "documents horizon-turns=2")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder to stand in, and a cache of its own."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))
    return here


@pytest.fixture
def no_pictures(monkeypatch):
    """What is drawn is tested elsewhere; here it would only take time."""

    class Blank:
        def savefig(self, path):
            path.touch()

    for name in ("saved_against_hidden", "along_chart", "repeats_chart", "obedience_chart"):
        monkeypatch.setattr(f"kbeval.studies.replay_result.{name}", lambda *tables: Blank())


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def trace(path, *, policy="none"):
    """A CSV of the tiny sessions in which what the tool returned is that of a replay."""
    result = replay_set(
        TINY, encoder="hashing", policies=["documents"], keep=[f"s{i:02}" for i in range(1, 13)]
    )
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["session_id", "started_at", "query", "returned"])
        for session_id, session in result.sessions.items():
            outcomes = session.replayed.outcomes[policy]
            for place, turn in enumerate(session.replayed.session.turns):
                returned = json.dumps(outcomes[place].paths, ensure_ascii=False)
                writer.writerow([session_id, f"2026-01-01T00:{place:02}:00Z", turn.query, returned])
    return path


def test_it_prints_a_table_a_policy_and_the_answer(kbeval, workplace):
    code, out, err = kbeval("replay", TINY, *HASHING, "--seeds", 2)
    lines = out.splitlines()
    assert code == 0, err
    assert lines[0] == (
        "tiny: 12 sessions, 50 look-ups (sessions); 8 documents, encoder hashing, distances l2"
    )
    assert "settings: the specs' defaults (`kbeval tune` recommends others)" in lines
    assert 'fidelity: no answer is recorded: all of it is "for this sequence of questions"' in lines
    assert [line for line in lines if line.startswith("== ")] == [
        "== none",
        "== documents",
        "== primary",
        "== documents, 8 turns",
        "== documents, 4 turns",
        "== content",
        "== hints, obeyed 0.5 (one draw of who obeys)",
        "== if the executor obeyed: hints (a sensitivity, not a saving)",
    ]
    assert (
        "  its intervals hold for 5 policies together, since the best of them is taken; "
        "those above hold for one alone"
    ) in lines
    assert out.index("repeats: ") < out.index("== none") < out.index("answer: ")
    folder = workplace / "results/tiny-replay"
    assert sorted(path.name for path in folder.iterdir()) == [
        "along.png",
        "answer.md",
        "metrics.json",
        "obedience.png",
        "policies.csv",
        "repeats.png",
        "replay.json",
        "saved_against_hidden.png",
        "sessions.csv",
        "turns.csv",
    ]
    assert len(rows_of(folder / "turns.csv")) == 50 * 7
    assert len(rows_of(folder / "sessions.csv")) == 12 * 7


@pytest.mark.usefixtures("no_pictures")
def test_json_is_one_object_and_agrees_with_the_rows(kbeval, workplace):
    code, out, _ = kbeval("replay", TINY, *HASHING, *TWO, "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["sessions"], facts["look_ups"], facts["left_out"]) == (12, 50, {})
    assert facts["settings_from"] == "the specs' defaults"
    assert facts["record"] == {"policy": None, "named_by": None, "tried": []}
    assert set(facts["ledger"]["policies"]) == {"none", "documents", "documents, 2 turns"}
    assert list(facts["sentences"]) == ["documents", "documents, 2 turns"]
    rows = rows_of(workplace / "results/tiny-replay/turns.csv")
    for name, page in facts["ledger"]["policies"].items():
        own = [row for row in rows if row["policy"] == name]
        assert sum(int(row["tokens"]) for row in own) == page["tokens"]
        assert sum(int(row["saved"]) for row in own) == page["saved_once"]["total"]["value"]
        harmed = sum(row["harm"] in ("possible", "certain") for row in own)
        assert harmed == page["harm"]["harmed"]
    assert json.loads((workplace / "results/tiny-replay/replay.json").read_text()) == facts


@pytest.mark.usefixtures("no_pictures")
def test_a_trace_of_no_memory_is_told_by_its_answers(kbeval, tmp_path):
    file = trace(tmp_path / "trace.csv")
    code, out, _ = kbeval("replay", file, "--corpus", TINY, *HASHING, *TWO)
    assert code == 1  # a trace has no labels
    assert "fidelity: none (by the record) gives 1.000" in out
    assert "so what it hides is unknown (50 turns)" in out
    code, out, _ = kbeval(
        "replay", file, "--corpus", TINY, *HASHING, *TWO, "--recorded-policy", "documents"
    )
    assert code == 1
    assert "fidelity: documents (as given) gives 0." in out
    assert "below 0.95, so no saving is claimed" in out
    assert "fewer tokens" not in out


@pytest.mark.usefixtures("no_pictures")
def test_a_database_is_replayed_over_the_documents_it_holds(kbeval, workplace):
    service = open_service(workplace, encoder="hashing")
    for name in ("nginx", "backup"):
        service.upload_document(f"---\ntitle: {name}\n---\nall about {name}", f"{name}.md")
    for session in range(10):
        for query in ("nginx", "backup", "nginx"):
            service.lookup_knowledge(query, session_id=f"s{session}")
    service.close()
    code, out, err = kbeval("replay", "kbeval.db", *HASHING, "-p", "documents")
    assert code == 1, err  # a trace has no labels
    assert "kbeval: 10 sessions, 30 look-ups (database); 2 documents" in out
    assert "fidelity: documents (by the record) gives 1.000" in out
    with pytest.raises(DatasetError, match="holds no documents"):
        open_for_use("empty.db").dispose()
        replay_set("empty.db", encoder="hashing")


@pytest.mark.usefixtures("no_pictures")
def test_a_trace_takes_labels_from_a_set_by_its_queries(kbeval, tmp_path):
    file = trace(tmp_path / "trace.csv", policy="documents")
    options = ("--corpus", TINY, *HASHING, *TWO, "--labels", TINY)
    _, out, _ = kbeval("replay", file, *options)
    assert "fidelity: documents (it agrees best; the record does not tell) gives 1.000" in out
    assert "met: 30 labelled_turns" in out
    assert "turns harmed      0.000" in out
    assert "harm unknown for" in out
    assert "  a document given before, returned or withheld 0." in out  # told by its paths alone


@pytest.mark.usefixtures("no_pictures")
def test_labels_of_whole_sessions_tell_what_was_never_delivered(kbeval, tmp_path):
    file = tmp_path / "sessions.jsonl"
    turns = [{"query": "how do I restart nginx"}, {"query": "zzz qqq"}]
    session = {"session_id": "s1", "relevant": ["restart-nginx", "rotate-keys"], "turns": turns}
    file.write_text(json.dumps(session) + "\n", encoding="utf-8")
    code, out, _ = kbeval("replay", file, "--corpus", TINY, *HASHING, "-p", "documents")
    assert code == 1
    assert "  never delivered   1 of 2 needs, 1 of them without memory" in out.splitlines()
    assert "its intervals hold for" not in out


@pytest.mark.usefixtures("no_pictures")
def test_a_recorded_policy_that_is_not_asked_for_is_replayed_all_the_same(kbeval, tmp_path):
    file = trace(tmp_path / "trace.csv", policy="documents")
    options = ("--corpus", TINY, *HASHING, "-p", "primary", "--recorded-policy", "documents")
    _, out, _ = kbeval("replay", file, *options, "--json")
    facts = json.loads(out)
    assert facts["record"]["policy"] == "documents"
    assert facts["record"]["tried"][0]["share"]["value"] == 1.0
    assert set(facts["ledger"]["policies"]) == {"none", "primary", "documents"}


@pytest.mark.usefixtures("no_pictures")
def test_no_query_is_written_in_clear_when_they_are_hashed(kbeval, workplace):
    code, out, err = kbeval("replay", TINY, *HASHING, *TWO, "--hash-queries", "--db", "kb.db")
    assert code == 0, err
    queries = {turn.query for session in open_sessions(TINY).sessions for turn in session.turns}
    written = [path.read_bytes().decode("utf-8", "replace") for path in workplace.rglob("*.*")]
    for text in [out, err, *written]:
        assert not [query for query in queries if len(query) > 8 and query in text]


@pytest.mark.usefixtures("no_pictures")
def test_the_database_is_written_only_when_asked_and_only_once(kbeval, workplace):
    kbeval("replay", TINY, *HASHING, *TWO)
    assert not list(workplace.rglob("*.db"))
    code, out, _ = kbeval("replay", TINY, *HASHING, *TWO, "--db", "kb.db")
    assert (code, "150 look-ups written to the database as tool `replay`" in out) == (0, True)
    engine = open_for_use("kb.db")
    assert len(read_invocations(engine, tool_name="replay")) == 150
    engine.dispose()
    code, _, err = kbeval("replay", TINY, *HASHING, *TWO, "--db", "kb.db")
    assert code == 2
    assert "kb.db: holds a replay of session 'none/s01' already" in err


def test_what_an_interruption_leaves_is_every_session_so_far(kbeval, workplace, monkeypatch):
    from kbeval.studies import replaying

    kept = replaying.Keeper.add

    def interrupted(self, replayed, lines):
        if replayed.session.session_id == "s04":
            raise KeyboardInterrupt
        kept(self, replayed, lines)

    folder = workplace / "out"
    folder.mkdir()
    (folder / "replay.json").write_text("{}")
    monkeypatch.setattr(replaying.Keeper, "add", interrupted)
    code, _, err = kbeval("replay", TINY, *HASHING, *TWO, "--out", "out")
    assert (code, err) == (130, "interrupted; what was finished is kept\n")
    assert {row["session_id"] for row in rows_of(folder / "turns.csv")} == {"s01", "s02", "s03"}
    assert not (folder / "replay.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "error: nowhere: no such file or folder"),
        (["alone.csv"], "error: alone.csv: holds no documents; name their folder as the corpus"),
        ([TINY, "-p", "nonsense"], "nonsense"),
        ([TINY, "-p", "documents horizon-turns=0"], "horizon-turns"),
        ([TINY, "-p", "documents", "-p", "documents"], "are the same; give each once"),
        ([TINY, "-p", "documents", "--policies", "p.yml"], "one of the two is allowed"),
        ([TINY, "--horizon", "0"], "Invalid value for '--horizon'"),
        ([TINY, "--prices", "none.yml"], "error: none.yml: no such file"),
        ([TINY, "--settings", "none.yml"], "error: none.yml: no such file"),
        ([TINY, "--tokenizer", "abc"], "error: tokenizer 'abc' is neither known nor a file"),
        ([TINY, "--recorded-policy", "abc"], "abc"),
        ([TINY, "--out", "alone.csv"], "error: alone.csv: is a file; a folder to write into"),
        ([TINY, "--db", "no/kb.db"], "does not exist"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(kbeval, workplace, arguments, said):
    (workplace / "alone.csv").write_text("session_id,started_at,query\ns,2026-01-01T00:00:00Z,q\n")
    code, out, err = kbeval("replay", *arguments, *HASHING)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert said in err


@pytest.mark.usefixtures("no_pictures")
def test_policies_may_come_from_a_file_under_names_of_their_own(kbeval, workplace):
    (workplace / "p.yml").write_text("policies: {short: documents horizon-turns=2}")
    code, out, _ = kbeval("replay", TINY, *HASHING, "--policies", "p.yml", "--horizon", 3)
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("== ")] == ["== none", "== short"]
    assert "the agent's context holds 3 turns" in out


def test_the_help_teaches_with_examples(kbeval):
    code, out, _ = kbeval("replay", "--help")
    assert code == 0
    assert "kbeval replay datasets/handbook" in " ".join(out.split())


@pytest.mark.usefixtures("no_pictures")
def test_strict_stops_at_a_turn_that_is_lost(kbeval, tmp_path):
    file = tmp_path / "sessions.jsonl"
    good = {"query": "how do I restart nginx", "relevant": ["restart-nginx"], "answerable": True}
    file.write_text(json.dumps({"session_id": "s", "turns": [good, {"query": ""}]}) + "\n")
    arguments = ("replay", file, "--corpus", TINY, *HASHING, *TWO)
    code, out, _ = kbeval(*arguments)
    assert code == 1  # one session is too few for an answer
    assert "left out: 1 empty_query" in out
    code, _, err = kbeval(*arguments, "--strict")
    assert code == 2
    assert "the query is empty" in err


def test_horizons_come_shortest_first_and_the_whole_session_last():
    result = replay_set(TINY, encoder="hashing", policies=usual_policies([4, 2]), seeds=1)
    assert by_horizon(result.ledger)["horizon"].tolist() == ["2", "4", "whole session"]
    saved = by_horizon(result.ledger)["saved_once_per_session"].tolist()
    assert saved == sorted(saved)
    compared = result.compared()
    assert "hints, obeyed 0.5" not in set(compared["policy"])
    assert compared.loc[0, ["harm_low_to", "harm_high_to"]].isna().all()
    curve = result.obedience()
    assert curve["obedience"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert curve.loc[0, ["avoided", "avoided_from", "avoided_to"]].tolist() == [0, 0, 0]


def test_metrics_of_one_policy_have_plain_names_and_those_of_several_the_policy():
    one = metrics(replay_set(TINY, encoder="hashing", policies=["documents"]).ledger)
    both = metrics(replay_set(TINY, encoder="hashing", policies=["documents", "primary"]).ledger)
    assert isinstance(one["saved_once_per_session"], float)
    assert both["harm_high"]["documents"] == {"value": one["harm_high"]}


def test_thresholds_of_a_sweep_stand_in_place_of_the_settings():
    given = {"retrieval": {"limit": 2, "normalization": {"reference-threshold": 0.3}}}
    chosen = with_thresholds(given, 0.8, None).retrieval
    assert (chosen.limit, chosen.normalization.reference_threshold) == (2, 0.3)
    assert chosen.normalization.highly_relevant_threshold == 0.8


def test_a_session_that_is_asked_for_is_kept_and_an_unknown_one_is_named():
    from kbeval.errors import DatasetError

    result = replay_set(TINY, encoder="hashing", policies=["documents"], keep=["s06"])
    assert result.session("s06").replayed.session.session_id == "s06"
    differences = result.differences()
    assert differences["session_id"].tolist()[0] == result.session().replayed.session.session_id
    assert differences["harm_differs"].is_monotonic_decreasing
    with pytest.raises(DatasetError, match="session 'nobody' is not among the sessions replayed"):
        replay_set(TINY, encoder="hashing", policies=["documents"], keep=["nobody"])


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("datasets/handbook/", "handbook-replay"),
        ("datasets/handbook/sessions.jsonl", "handbook-replay"),
        ("logs/trace of may.csv", "trace-of-may-replay"),
        ("postgresql://user:secret@host/kb", "kb-replay"),
        ("/", "sessions-replay"),
    ],
)
def test_the_results_folder_is_named_for_its_sessions(source, name):
    assert folder_name(source) == name
