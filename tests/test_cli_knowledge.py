"""The knowledge base's commands, as they are typed: what is shown, refused, and the exit codes."""

import json
from pathlib import Path

import pytest
from llm_server import Answer, completion, serving

from kbeval.retrieval.tool import KnowledgeTool
from kbeval.service import open_service
from kbeval.store.migrations import HEAD

pytest_plugins = ["postgres"]

CASES = Path(__file__).parent / "cases"
HASHING = ("--encoder", "hashing")
BOTH = {"covers": ["nginx"], "whenToRetrieve": "nginx hangs"}
PLAIN = "---\ntitle: Restart nginx\ncategory: web\nsummary: s\n---\nsystemctl restart\n"
WHOLE = "---\ntitle: Keys\ncategory: sec\ncovers: [a]\nwhen_to_retrieve: w\n---\nRotate keys.\n"


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder to stand in, with documents below it; no model unless one is named."""
    here = tmp_path / "here"
    (here / "docs" / "web").mkdir(parents=True)
    (here / "docs" / "web" / "nginx.md").write_text(PLAIN, encoding="utf-8")
    (here / "docs" / "keys.md").write_text(WHOLE, encoding="utf-8")
    monkeypatch.chdir(here)
    monkeypatch.setenv("KBEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("KBEVAL_LLM_BASE_URL", "KBEVAL_LLM_MODEL", "KBEVAL_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return here


@pytest.fixture
def facts(kbeval):
    """Run a command with --json: what stands on stdout, which is nothing else."""

    def call(*arguments):
        code, out, err = kbeval(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return call


def good(request):
    return Answer(completion(json.dumps(BOTH)))


def test_documents_come_are_listed_and_go(kbeval, facts):
    added = facts("docs", "add", "docs", *HASHING)
    assert (added["stored"], added["failed"]) == (["keys.md", "web/nginx.md"], 0)
    assert {one["reason"] for one in added["degraded"]} == {"no LLM configured"}
    listed = facts("docs", "ls")
    assert [row["file_path"] for row in listed["documents"]] == ["keys.md", "web/nginx.md"]
    assert [(row["domain_id"], row["document_count"]) for row in listed["domains"]] == [
        ("sec", 1),
        ("web", 1),
    ]
    code, out, _ = kbeval("docs", "ls")
    assert code == 0
    assert "web/nginx.md" in out
    assert "degraded" in out
    assert facts("docs", "rm", "keys.md")["deleted"] == ["keys.md"]
    assert [row["document_count"] for row in facts("docs", "ls")["domains"]] == [0, 1]


def test_the_encoder_of_the_saved_index_goes_on_being_used(facts, workplace):
    facts("docs", "add", "docs/keys.md", "--root", "docs", *HASHING)
    facts("docs", "add", "docs")
    assert json.loads((workplace / "kbeval.index" / "manifest.json").read_text())["encoder"] == (
        "hashing"
    )


def test_a_file_and_its_folder_name_the_same_document_under_one_root(facts):
    assert facts("docs", "add", "docs/web/nginx.md", *HASHING)["stored"] == ["docs/web/nginx.md"]
    again = facts("docs", "add", "docs", "--root", ".")
    assert (again["unchanged"], again["stored"]) == (["docs/web/nginx.md"], ["docs/keys.md"])


def test_a_model_writes_what_is_missing_and_what_degraded_is_generated_again(facts, monkeypatch):
    facts("docs", "add", "docs", *HASHING)
    with serving(good) as server:
        monkeypatch.setenv("KBEVAL_LLM_BASE_URL", server.base_url)
        monkeypatch.setenv("KBEVAL_LLM_MODEL", "m")
        done = facts("docs", "regenerate")
    assert (done["stored"], done["domains"], done["degraded"]) == (
        ["web/nginx.md"],
        ["sec", "web"],
        [],
    )
    assert facts("docs", "ls")["domains"][1]["when_to_retrieve"] == "nginx hangs"


def test_a_batch_of_which_all_degraded_is_stored_and_ends_with_2(kbeval, facts):
    options = ("--llm-base-url", "http://127.0.0.1:9/v1", "--llm-model", "m")
    code, out, err = kbeval("docs", "add", "docs", *options, *HASHING)
    assert code == 2
    assert "2 stored" in out
    assert err.splitlines()[-1].startswith("error: no field could be generated for any of 1 doc")
    assert len(facts("docs", "ls")["documents"]) == 2


def test_faults_are_named_and_counted_and_strict_stops(kbeval):
    code, out, err = kbeval("docs", "add", CASES / "FM-05" / "docs", *HASHING)
    assert (code, "2 stored, 3 failed" in out) == (0, True)
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 3
    code, _, err = kbeval("docs", "add", CASES / "FM-05" / "docs", "--strict", *HASHING)
    assert (code, err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["docs", "add", "nowhere"], "nowhere: no such folder"),
        (["docs", "add", "docs/keys.md", "--root", "docs/web"], "docs/keys.md: lies outside"),
        (["docs", "add", "docs", "--require-llm"], "no LLM configured: give --llm-model"),
        (["docs", "add", "docs", "--llm-base-url", "http://h/v1"], "no LLM configured"),
        (
            ["docs", "add", "docs", "--llm-base-url", "h", "--llm-model", "m"],
            "llm.base-url: got 'h'",
        ),
        (["docs", "rm", "nope.md", *HASHING], "nope.md: no such document in the database"),
        (["docs", "regenerate"], "no LLM configured"),
        (["docs", "ls", "--db", "no/where.db"], "no does not exist"),
        (["docs", "ls"], "kbeval.db: no such database; `kbeval db upgrade` makes one"),
        (["docs", "ls", "--db", "mysql+x://h/d"], "mysql+x://h/d: "),
        (["db", "upgrade", "V999"], "revision 'V999' is unknown"),
        (["db", "current", "--db", "nope.db"], "nope.db: no such database"),
        (["map", "--db", "nope.db"], "nope.db: no such database"),
        (["invocations", "--db", "nope.db"], "nope.db: no such database"),
        (["invocations", "--out", "x.txt"], "allowed are .png, .svg, .pdf"),
        (["invocations", "--out", "no/x.png"], "the folder no does not exist"),
        (["prompts", "show", "oracle"], "NAME: got 'oracle'; allowed are planner, executor"),
        (["prompts", "show", "executor", "--locale", "de"], "--locale: got 'de'"),
        (["prompts", "show", "executor", "--version", "v3"], "--version: got 'v3'"),
    ],
)
def test_wrong_usage_is_one_line_and_2(kbeval, arguments, says):
    code, out, err = kbeval(*arguments)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert "Traceback" not in err + out


def test_the_database_is_upgraded_asked_and_exported(kbeval, facts, workplace):
    assert facts("db", "upgrade")["version"] == HEAD
    assert facts("db", "upgrade")["steps"] == []
    assert facts("db", "current") == {"version": HEAD, "newest": HEAD}
    facts("docs", "add", "docs", *HASHING)
    assert facts("db", "export", "out")["rows"] == {
        "api_document": 2,
        "knowledge_domain": 2,
        "tool_invocation": 0,
    }
    assert len((workplace / "out" / "api_document.jsonl").read_text().splitlines()) == 2
    assert kbeval("db", "export", "out", "--form", "xml")[0] == 2


def test_a_servers_database_is_upgraded_first_and_then_used(kbeval, facts, postgres_url):
    code, _, err = kbeval("docs", "ls", "--db", postgres_url)
    assert (code, "run `kbeval db upgrade`" in err) == (2, True)
    assert facts("db", "upgrade", "--db", postgres_url)["steps"][0] == "V001"
    assert facts("docs", "add", "docs", "--db", postgres_url, *HASHING)["documents"] == 2
    assert facts("map", "--db", postgres_url)["map"].startswith("available_knowledge_domains:")


def looked_up(*queries):
    service = open_service("kbeval.db", encoder="hashing")
    for query, session in queries:
        service.handle_tool_call({"query": query}, session)
    service.close()


def test_invocations_count_grades_reasons_and_repeated_documents(kbeval, facts, workplace):
    facts("docs", "add", "docs", *HASHING)
    looked_up(("keys", "s1"), ("keys", "s1"), ("keys", "s2"), ("zzzz", "s2"))
    said = facts("invocations", "--out", "look-ups.png")
    assert said["look_ups"] == 4
    assert said["relevance_level"] == {"PRECISE": 2, "null": 1, "NOT_FOUND": 1}
    assert said["dedup_reason"] == {"null": 3, "ALL_RETRIEVED": 1}
    assert said["repeated"] == [
        {"file_path": "keys.md", "withheld_count": 1, "handed_count": 2, "session_count": 1}
    ]
    assert (workplace / "look-ups.png").read_bytes()[:4] == b"\x89PNG"
    code, out, _ = kbeval("invocations")
    assert code == 0
    assert "PRECISE" in out
    assert "50.0%" in out


def test_the_map_is_printed_as_the_planner_gets_it(kbeval, facts):
    facts("db", "upgrade")
    assert kbeval("map") == (0, "", "no domains: nothing is given to the planner\n")
    facts("docs", "add", "docs", *HASHING)
    code, out, _ = kbeval("map")
    assert code == 0
    assert out.splitlines()[:2] == ["available_knowledge_domains:", "- domain_id: sec"]
    assert out.strip() in kbeval("prompts", "show", "planner")[1]
    code, _, err = kbeval("map", "--budget", "50")
    assert (code, err.startswith("error: knowledge map: ")) == (2, True)


def test_prompts_are_shown_without_a_database_too(kbeval, workplace):
    code, out, _ = kbeval("prompts", "show", "executor")
    assert code == 0
    assert "禁止换关键词重新检索" in out
    assert "available_knowledge_domains" not in kbeval("prompts", "show", "planner")[1]
    assert "必须调用对应的工具" in kbeval("prompts", "show", "executor", "--version", "v1")[1]
    assert not (workplace / "kbeval.db").exists()


def test_every_new_command_shows_an_example(kbeval):
    for command in (
        ["docs", "add"],
        ["docs", "rm"],
        ["docs", "ls"],
        ["docs", "regenerate"],
        ["db", "upgrade"],
        ["db", "current"],
        ["db", "export"],
        ["prompts", "show"],
        ["invocations"],
        ["map"],
    ):
        code, out, _ = kbeval(*command, "--help")
        assert (code, "Example" in out) == (0, True), command


def test_a_reader_of_the_tool_finds_the_same_answer(facts):
    facts("docs", "add", "docs", *HASHING)
    service = open_service("kbeval.db")
    fresh = KnowledgeTool(service.knowledge, service.settings)
    reply = json.loads(service.handle_tool_call({"query": "keys"}, "s"))
    assert reply["primary"]["filePath"] == fresh.lookup_knowledge("keys", "s")[0].primary.file_path
    service.close()
