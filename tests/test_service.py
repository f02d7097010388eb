"""The running tool over its database: in and out, all or nothing, killed and repaired."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from llm_server import Answer, completion, serving
from stand_ins import TableEncoder, document

from kbeval.config import load_settings
from kbeval.corpus.documents import load_corpus
from kbeval.corpus.hashing import HashingEncoder
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.domains.llm import ConnectionFailed, Llm, LlmSettings
from kbeval.errors import ConfigError, CorpusError, DatabaseError, IndexFileError, VectorError
from kbeval.records import Document
from kbeval.retrieval.knowledge import Knowledge
from kbeval.retrieval.session import session_scope
from kbeval.service import open_service, running
from kbeval.service.describing import NO_LLM
from kbeval.service.domain_rows import STALE
from kbeval.store.database import open_database
from kbeval.store.documents import get_document, list_documents, upsert_document
from kbeval.store.domains import list_domains, upsert_domain
from kbeval.store.invocations import read_invocations
from kbeval.store.migrations import upgrade

pytest_plugins = ["postgres"]

TESTS = Path(__file__).parent
CASES = TESTS / "cases"
PLAIN = """---
title: Restart nginx
category: web
summary: how to restart it
---
systemctl restart.
"""
WHOLE = """---
title: Rotate keys
category: security
covers: [API key, revoke]
when_to_retrieve: a key leaked
---
Create a new key, then revoke the old one.
"""
BOTH = {"covers": ["nginx", "restart"], "whenToRetrieve": "nginx hangs"}


def says(request):
    """What a good model answers: the fields of a document, or a domain's text with its size."""
    prompt = request["messages"][0]["content"]
    if "<document>" in prompt:
        return answer(BOTH)
    domain = prompt.split('<domain id="')[1].split('"')[0]
    size = prompt.split('documents="')[1].split('"')[0]
    return answer({"whenToRetrieve": f"Text of {domain} over {size}. More."})


def answer(value):
    return Answer(completion(json.dumps(value, ensure_ascii=False)))


def about_documents(server):
    return [r for r in server.requests if "<document>" in r["json"]["messages"][0]["content"]]


both = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture(scope="session")
def upgraded(tmp_path_factory):
    """A SQLite file at the newest version, to be copied."""
    file = tmp_path_factory.mktemp("upgraded") / "kbeval.db"
    engine = open_database(file)
    upgrade(engine)
    engine.dispose()
    return file


@pytest.fixture
def url(request, tmp_path, upgraded):
    """A database at the newest version: SQLite, and PostgreSQL where the test asks for `both`."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return str(shutil.copy(upgraded, tmp_path / "kbeval.db"))
    server = request.getfixturevalue("postgres_url")
    engine = open_database(server)
    upgrade(engine)
    engine.dispose()
    return server


@pytest.fixture
def opened(url, tmp_path):
    """Open the service on the test's database; everything opened is closed at the end."""
    services = []

    def call(server=None, *, encoder=None, locale="en", **how):
        if server is not None:
            base_url = server if isinstance(server, str) else server.base_url
            how["llm"] = Llm(LlmSettings(model="m", base_url=base_url, max_retries=0))
        service = open_service(
            url,
            folder=tmp_path / "home",
            encoder=encoder or HashingEncoder(),
            settings=how.pop("settings", load_settings({"locale": locale})),
            cache=EmbeddingCache(tmp_path / "cache"),
            **how,
        )
        services.append(service)
        return service

    yield call
    for service in services:
        service.close()


def domains(service):
    """Domain -> (count, text)."""
    return {
        row.domain_id: (row.document_count, row.when_to_retrieve)
        for row in list_domains(service.engine)
    }


def metadata(service, path):
    return get_document(service.engine, path).metadata


def state(service):
    """Rows, domains, what the tool finds and what the index on disk holds."""
    rows = [(r.file_path, r.title, r.category, r.metadata) for r in list_documents(service.engine)]
    saved = Knowledge.load(service.index_folder, encoder=HashingEncoder())
    return rows, domains(service), service.knowledge.documents, saved.documents


def check_consistent(service):
    """Nothing lost, nothing doubled: rows, tool, index on disk and counts agree."""
    rows = list_documents(service.engine)
    paths = tuple(row.file_path for row in rows)
    assert len(set(paths)) == len(paths)
    assert service.knowledge.paths == paths
    assert Knowledge.load(service.index_folder, encoder=HashingEncoder()).paths == paths
    counted = {}
    for row in rows:
        counted[row.category] = counted.get(row.category, 0) + 1
    assert {name: n for name, (n, _) in domains(service).items() if n} == counted


# one document in --------------------------------------------------------------------------


@both
def test_an_upload_generates_what_is_missing_and_writes_it_down(opened):
    with serving(says) as server:
        service = opened(server)
        upload = service.upload_document(PLAIN, "web/restart.md")
        assert len(server.requests) == 2
    assert [entry.generated for entry in upload.stored] == [("covers", "when_to_retrieve")]
    kept = metadata(service, "web/restart.md")
    assert {key: kept[key] for key in ("covers", "whenToRetrieve", "generated", "degraded")} == {
        **BOTH,
        "generated": ["covers", "whenToRetrieve"],
        "degraded": {},
    }
    assert domains(service) == {"web": (1, "Text of web over 1. More.")}
    assert list_domains(service.engine)[0].description == "Text of web over 1."
    result, _ = service.tool.lookup_knowledge("does nginx hang? nginx", "s")
    assert result.primary.file_path == "web/restart.md"
    assert service.knowledge.l0.matches("all about nginx") == [0]  # a generated key
    assert service.degraded() == ()


def test_an_authors_fields_stay_and_the_model_is_not_asked_for_them(opened):
    with serving(says) as server:
        service = opened(server)
        service.upload_document(WHOLE, "keys.md")
        assert (len(server.requests), about_documents(server)) == (1, [])
    kept = metadata(service, "keys.md")
    assert (kept["covers"], kept["whenToRetrieve"]) == (["API key", "revoke"], "a key leaked")
    assert (kept["generated"], kept["degraded"]) == ([], {})


def test_one_field_of_the_author_is_kept_and_the_other_generated(opened):
    text = "---\ntitle: T\ncategory: web\ncovers: [mine]\n---\nText.\n"
    with serving(says) as server:
        service = opened(server)
        service.upload_document(text, "a.md")
    kept = metadata(service, "a.md")
    assert (kept["covers"], kept["whenToRetrieve"]) == (["mine"], "nginx hangs")
    assert kept["generated"] == ["whenToRetrieve"]


def test_fm01_no_generation_is_started_for_either_twin(opened):
    with serving(says) as server:
        service = opened(server)
        for name in ("runbook-bom.md", "runbook-clean.md"):
            service.upload_document(CASES / "FM-01" / name, name)
        assert about_documents(server) == []
    first, second = service.knowledge.documents
    assert (first.title, first.covers, first.body) == (second.title, second.covers, second.body)
    assert first.covers == ("节点扩容", "节点替换")
    assert domains(service) == {"infrastructure": (2, "Text of infrastructure over 2. More.")}


def test_fm03_values_stay_texts_and_the_domain_is_named_no(opened):
    service = opened()
    upload = service.upload_document(CASES / "FM-03" / "typed.md")
    assert [fault.severity for fault in upload.faults] == ["warning"]
    kept = metadata(service, "typed.md")
    assert kept["covers"] == ["on", "1.10", "2024-01-05", "12:30:00"]
    assert kept["whenToRetrieve"] == "yes"
    assert list(domains(service)) == ["no"]
    assert 'domain_id: "no"' in service.build_knowledge_map()
    assert [service.knowledge.l0.matches(q) for q in ("see 1.10 now", "see 1.1 now")] == [[0], []]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(Answer("oops", status=500), "HTTP 500", id="the server fails"),
        pytest.param("I cannot do that.", "no JSON object", id="the reply is of no use"),
        pytest.param(None, NO_LLM, id="no model"),
    ],
)
def test_a_failing_model_never_stops_an_upload(opened, reply, reason):
    with serving(reply or "") as server:
        service = opened(server if reply else None)
        service.upload_document(PLAIN, "a.md")
    kept = metadata(service, "a.md")
    assert (kept["covers"], kept["whenToRetrieve"]) == ([], "how to restart it")
    assert list(kept["degraded"]) == ["covers", "whenToRetrieve"]
    assert reason in kept["degraded"]["covers"]
    assert domains(service) == {"web": (1, "")}
    lacking = service.degraded()
    assert [(d.kind, d.name, d.field) for d in lacking] == [
        ("document", "a.md", "covers"),
        ("document", "a.md", "when_to_retrieve"),
        ("domain", "web", "when_to_retrieve"),
    ]
    assert all(reason in one.reason for one in lacking)


def test_a_domain_whose_model_fails_keeps_its_text_and_is_listed(opened):
    with serving(says) as server:
        opened(server).upload_document(PLAIN, "a.md")
    service = opened()
    service.upload_document(PLAIN, "b.md")
    assert domains(service) == {"web": (2, "Text of web over 1. More.")}
    assert [d.reason for d in service.degraded() if d.kind == "domain"] == [NO_LLM]
    shutil.rmtree(service.index_folder)  # the reason goes, the fact stays
    assert [d.reason for d in service.degraded() if d.kind == "domain"] == [STALE]


def test_the_same_document_again_costs_no_call_and_a_changed_one_does(opened):
    with serving(says) as server:
        service = opened(server)
        service.upload_document(PLAIN, "a.md")
        assert service.upload_document(PLAIN, "./a.md").unchanged == ("a.md",)
        assert len(server.requests) == 2
        changed = service.upload_document(PLAIN.replace("systemctl", "service nginx"), "a.md")
        assert len(server.requests) == 4
    assert changed.stored[0].document.content_hash == service.knowledge.documents[0].content_hash
    assert len(service.knowledge.documents) == 1


@both
def test_a_document_that_moves_updates_both_domains(opened):
    with serving(says) as server:
        service = opened(server)
        service.upload_document(PLAIN, "a.md")
        service.upload_document(PLAIN.replace("Restart", "Reload"), "b.md")
        upload = service.upload_document(PLAIN.replace("web", "proxy"), "a.md")
    assert sorted(upload.domains) == ["proxy", "web"]
    assert domains(service) == {
        "proxy": (1, "Text of proxy over 1. More."),
        "web": (1, "Text of web over 1. More."),
    }


@both
def test_an_emptied_domain_keeps_an_empty_row_without_a_call(opened):
    with serving(says) as server:
        service = opened(server)
        service.upload_document(PLAIN, "a.md")
        calls = len(server.requests)
        assert service.delete_document("a.md").deleted == ("a.md",)
        assert len(server.requests) == calls
    (row,) = list_domains(service.engine)
    assert (row.document_count, row.when_to_retrieve, row.description) == (0, "", "")
    assert service.build_knowledge_map() == ""
    assert service.degraded() == ()
    assert service.lookup_knowledge("nginx").found is False
    check_consistent(service)


@both
def test_a_deletion_recounts_and_renews(opened):
    with serving(says) as server:
        service = opened(server)
        service.upload_document(PLAIN, "a.md")
        service.upload_document(PLAIN.replace("Restart", "Reload"), "b.md")
        assert domains(service) == {"web": (2, "Text of web over 2. More.")}
        service.delete_document("a.md")
    assert domains(service) == {"web": (1, "Text of web over 1. More.")}
    check_consistent(service)


def test_deleting_an_unknown_document_is_an_error_and_deletes_none(opened):
    service = opened()
    service.upload_document(PLAIN, "a.md")
    with pytest.raises(CorpusError, match=r"^b\.md: no such document in the database$"):
        service.delete_documents(["a.md", "b.md"])
    assert service.knowledge.paths == ("a.md",)


@both
def test_vs03_every_document_finds_itself_and_domains_count_4_3_4_3(opened):
    case = json.loads((CASES / "VS-03" / "steps.json").read_text())
    service = opened(encoder=TableEncoder(case["docs"]))
    counts = []
    for step in case["steps"]:
        for path in step.get("add", ()):
            service.upload_document(document(path, covers=("x",), when_to_retrieve="w"))
        for path in step.get("delete", ()):
            service.delete_document(path)
        for path in step.get("query", ()):
            result, invocation = service.tool.lookup_knowledge(path)
            assert result.primary.file_path == path
            assert invocation.retrieval_details["l1_top_similarity"] == 1.0
            assert "b.md" not in [s.file_path for s in result.supplements]
        if "query" not in step:
            counts.append(domains(service)["ops"][0])
    assert counts == [4, 3, 4, 3]


@pytest.mark.parametrize(
    ("text", "path", "wrong"),
    [
        pytest.param("---\ntitle: a: b\n---\nx", "a.md", "a.md:2: ", id="front matter"),
        pytest.param("x", "../a.md", "leaves the root", id="path"),
        pytest.param("x", "", "names no document", id="no path"),
        pytest.param("x\ud800", "a.md", "U+D800", id="half a pair"),
        pytest.param(Path("nowhere.md"), "a.md", "nowhere.md: no such file", id="no file"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_changes_nothing(opened, text, path, wrong):
    service = opened()
    with pytest.raises(CorpusError) as error:
        service.upload_document(text, path)
    assert wrong in str(error.value)
    assert "\n" not in str(error.value)
    assert list_documents(service.engine) == ()


@both
def test_a_nul_in_a_body_is_replaced_and_said_so_and_the_hash_is_that_of_what_is_kept(opened):
    service = opened()
    upload = service.upload_document("# T\na\0b", "a.md")
    assert [str(fault) for fault in upload.faults] == ["a.md: body: 1 character replaced"]
    assert service.knowledge.documents[0].body == "# T\na\ufffdb"
    assert service.upload_document("# T\na\0b", "a.md").unchanged == ("a.md",)
    assert opened().knowledge.documents == service.knowledge.documents


@both
def test_everything_an_author_writes_survives_a_rebuild_from_the_database(opened):
    text = (
        "---\ntitle: 标题\nsummary: s\nkeywords: [k1, k2]\ntags: [t]\naliases: [the, alias]\n"
        "owner: me\nreviewed: 2024-01-05\n---\n# 标题\n\n正文 😀\n"
    )
    service = opened()
    service.upload_document(text, "ops/deep/a.md")
    before = service.knowledge
    shutil.rmtree(service.index_folder)
    again = opened().knowledge
    assert again.documents == before.documents
    assert again.fingerprint == before.fingerprint
    assert np.array_equal(again.l1.vectors, before.l1.vectors)
    assert again.documents[0].metadata["owner"] == "me"
    assert again.documents[0].domain == "ops"


# all or nothing ---------------------------------------------------------------------------


def failing(*arguments, **named):
    raise OSError(28, "No space left on device")


BREAKS = {
    "embedding": ("kbeval.corpus.hashing.HashingEncoder.encode", VectorError("a.md: broken")),
    "a document's row": ("kbeval.service.changes.write_entry", DatabaseError("broken")),
    "deleting a row": ("kbeval.service.changes.delete_document", DatabaseError("broken")),
    "a domain's row": ("kbeval.service.changes.write_domain", DatabaseError("broken")),
    "a count": ("kbeval.service.domain_rows.recount_domain", DatabaseError("broken")),
    "the index": ("kbeval.retrieval.saved.write_atomically", OSError(28, "No space left")),
    "the commit": ("sqlalchemy.engine.Connection._commit_impl", DatabaseError("broken")),
    "an interrupt": ("kbeval.service.changes.write_domain", KeyboardInterrupt()),
}


@pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize("step", BREAKS)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param("new", marks=pytest.mark.slow),
        pytest.param("changed", marks=pytest.mark.slow),
        "moved",
        "deleted",
    ],
)
def test_one_failed_step_leaves_nothing_half_done(opened, monkeypatch, change, step):
    service = opened()
    service.upload_document(PLAIN, "a.md")
    service.upload_document(WHOLE, "keys.md")
    before = state(service)
    target, error = BREAKS[step]
    steps = {
        "new": lambda: service.upload_document("# New\nother words entirely", "new.md"),
        "changed": lambda: service.upload_document(PLAIN + "More words.", "a.md"),
        "moved": lambda: service.upload_document(PLAIN.replace("web", "proxy") + "x", "a.md"),
        "deleted": lambda: service.delete_document("a.md"),
    }
    unreached = {"deleted": ("embedding", "a document's row")}.get(change, ("deleting a row",))
    reached = step not in unreached

    def broken(*arguments, **named):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(target, broken)
        if reached:
            expected = IndexFileError if isinstance(error, OSError) else type(error)
            with pytest.raises(expected):
                steps[change]()
    if reached:
        assert state(service) == before
        check_consistent(opened())
    steps[change]()
    check_consistent(service)


KILLED = """
import os, signal, sys
from pathlib import Path
from kbeval.corpus.hashing import HashingEncoder
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.service import changes, open_service
from kbeval.service.domain_rows import write_domain
from kbeval.retrieval import knowledge, saved

url, home, cache, change, point, nth = sys.argv[1:]
service = open_service(
    url, folder=home, encoder=HashingEncoder(), cache=EmbeddingCache(cache)
)
left = [int(nth)]

def killing(real, before):
    def call(*arguments, **named):
        if before:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        value = real(*arguments, **named)
        if not before:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return value
    return call

where, name, before = {
    "row": (changes, "write_entry", False),
    "delete": (changes, "delete_document", False),
    "domain": (changes, "write_domain", False),
    "index": (changes.Changes, "_save", False),
    "index file": (saved, "write_atomically", False),
    "commit": (__import__("sqlalchemy").engine.Connection, "_commit_impl", False),
    "reasons": (changes, "note_reasons", True),
}[point]
setattr(where, name, killing(getattr(where, name), before))
text = "---\\ntitle: {0}\\ncategory: {1}\\n---\\nwords of {0}\\n"
if change == "upload":
    service.upload_document(text.format("new", "web"), "new.md")
elif change == "move":
    service.upload_document(text.format("a", "elsewhere"), "a.md")
elif change == "delete":
    service.delete_document("a.md")
else:
    service.upload_many([(text.format(i, f"d{i % 3}"), f"{i:03}.md") for i in range(80)])
"""


MANY = "---\ntitle: {0}\ncategory: {1}\n---\nwords of {0}\n"  # as in the program above


def run_killed(url, tmp_path, *arguments):
    names = [url, str(tmp_path / "home"), str(tmp_path / "cache"), *map(str, arguments)]
    return subprocess.run(
        [sys.executable, "-c", KILLED, *names], capture_output=True, text=True, timeout=120
    )


@pytest.mark.slow
@both
@pytest.mark.parametrize(
    ("change", "point", "nth"),
    [
        ("upload", "row", 1),
        ("upload", "domain", 1),
        ("upload", "index file", 1),
        ("upload", "index", 1),
        ("upload", "commit", 1),
        ("upload", "reasons", 1),
        ("move", "domain", 1),
        ("move", "domain", 2),
        ("move", "index", 1),
        ("move", "commit", 1),
        ("delete", "delete", 1),
        ("delete", "index", 1),
        ("delete", "commit", 1),
        ("many", "row", 1),
        ("many", "row", 40),
        ("many", "commit", 1),
        ("many", "commit", 2),
        ("many", "index", 1),
        ("many", "domain", 2),
        ("many", "commit", 5),
        ("many", "reasons", 1),
    ],
)
def test_a_kill_at_any_step_is_repaired_by_load_index(opened, url, tmp_path, change, point, nth):
    first = opened()
    first.upload_document(PLAIN, "a.md")
    first.upload_document(PLAIN.replace("Restart", "Reload"), "b.md")
    first.close()
    killed = run_killed(url, tmp_path, change, point, nth)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    service = opened()
    check_consistent(service)
    paths = set(service.knowledge.paths)
    assert "b.md" in paths
    assert ("a.md" in paths) or change == "delete"
    everything = {"a.md", "b.md", *(f"{i:03}.md" for i in range(80))}
    if change == "many":
        again = [(MANY.format(i, f"d{i % 3}"), f"{i:03}.md") for i in range(80)]
        upload = service.upload_many(again)
        assert len(upload.stored) == 80 - (len(paths) - 2)
        assert set(service.knowledge.paths) == everything
        assert {name: n for name, (n, _) in domains(service).items() if n} == {
            "web": 2,
            "d0": 27,
            "d1": 27,
            "d2": 26,
        }
        check_consistent(service)


# many documents ---------------------------------------------------------------------------


def many(count, *, groups=3):
    text = "---\ntitle: Title {0}\ncategory: d{1}\nsummary: s\n---\nWords of number {0}.\n"
    return [(text.format(i, i % groups), f"{i:03}.md") for i in range(count)]


@both
def test_many_documents_cost_one_text_a_domain_and_report_as_they_go(opened):
    seen = []
    with serving(says) as server:
        service = opened(server)
        upload = service.upload_many(many(70), progress=lambda *step: seen.append(step))
        assert (len(server.requests), len(about_documents(server))) == (73, 70)
        assert server.most_busy > 1
    assert [entry.document.path for entry in upload.stored] == [p for _, p in many(70)]
    assert upload.failure is None
    assert domains(service) == {
        f"d{i}": (n, f"Text of d{i} over {n}. More.") for i, n in enumerate((24, 23, 23))
    }
    assert seen == [
        ("documents", 32, 70),
        ("documents", 64, 70),
        ("documents", 70, 70),
        ("domains", 1, 3),
        ("domains", 2, 3),
        ("domains", 3, 3),
    ]
    check_consistent(service)


def test_the_same_upload_again_does_nothing(opened):
    with serving(says) as server:
        service = opened(server)
        service.upload_many(many(5))
        calls = len(server.requests)
        upload = service.upload_many(many(6))
        assert len(server.requests) == calls + 2
    assert [entry.document.path for entry in upload.stored] == ["005.md"]
    assert len(upload.unchanged) == 5


def test_a_bad_document_costs_that_document_alone(opened):
    service = opened()
    sources = [
        *many(3),
        ("---\ntitle: a: b\n---\n", "colon.md"),
        (Path("nowhere.md"), "nowhere.md"),
        document("000.md"),
        Document(path="mute.md", title="", body=" "),
    ]
    upload = service.upload_many(sources)
    assert (len(upload.stored), upload.failed_count) == (3, 4)
    assert [str(fault).split(";")[0] for fault in upload.faults] == [
        str(upload.faults[0]).split(";")[0],  # the parser's own
        "nowhere.md: no such file",
        "000.md: has the path of another document of this upload",
        "mute.md: no title and no text",
    ]
    check_consistent(service)


def test_a_vector_that_is_none_costs_its_document_alone(opened):
    vectors = {"a.md": [1, 0], "b.md": [0, 1], "bad.md": [np.nan, 1]}
    service = opened(encoder=TableEncoder(vectors))
    upload = service.upload_many([document(path) for path in vectors])
    assert [entry.document.path for entry in upload.stored] == ["a.md", "b.md"]
    assert [fault.file for fault in upload.faults] == ["bad.md"]
    assert "NaN" in upload.faults[0].problem
    with pytest.raises(VectorError, match="NaN"):
        service.upload_document(document("bad.md"))


def test_a_batch_of_which_all_degraded_is_stored_and_is_a_failed_connection(opened):
    service = opened("http://127.0.0.1:9/v1")
    upload = service.upload_many(many(6))
    assert len(upload.stored) == 6
    assert isinstance(upload.failure, ConnectionFailed)
    assert "6 documents" in str(upload.failure)
    with pytest.raises(ConnectionFailed):
        upload.raise_for_failure()
    assert {d.kind for d in service.degraded()} == {"document", "domain"}
    check_consistent(service)


def test_domains_that_all_fail_are_a_failed_connection_too(opened):
    upload = opened("http://127.0.0.1:9/v1").upload_many([(WHOLE, "a.md")])
    assert "1 domains" in str(upload.failure)


def test_without_a_model_nothing_failed(opened):
    upload = opened().upload_many(many(3))
    assert (upload.failure, upload.degraded_count) == (None, 3)


@both
def test_an_interrupted_upload_keeps_what_came_and_goes_on(opened):
    with serving(says) as server:
        service = opened(server)

        def interrupt(stage, done, total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            service.upload_many(many(70), progress=interrupt)
        kept = len(list_documents(service.engine))
        assert 32 <= kept < 70
        assert len(service.knowledge.documents) == kept
        again = opened(server)  # which renews the domains that were left behind
        check_consistent(again)
        assert [d for d in again.degraded() if d.kind == "domain"] == []
        calls = len(about_documents(server))
        again.upload_many(many(70))
        assert len(about_documents(server)) == calls + 70 - kept
    assert {n for n, _ in domains(again).values()} == {24, 23}
    check_consistent(again)


def test_an_interrupted_move_leaves_neither_domain_behind(opened):
    def interrupt(stage, done, total):
        raise KeyboardInterrupt

    with serving(says) as server:
        service = opened(server)
        service.upload_many(many(4, groups=1))
        moved = [(text.replace("d0", "elsewhere"), path) for text, path in many(2, groups=1)]
        with pytest.raises(KeyboardInterrupt):
            service.upload_many(moved, progress=interrupt)
        assert domains(service) == {"d0": (4, "Text of d0 over 4. More.")}
        again = opened(server)
    assert domains(again) == {
        "d0": (2, "Text of d0 over 2. More."),
        "elsewhere": (2, "Text of elsewhere over 2. More."),
    }
    check_consistent(again)


def test_single_uploads_ask_a_silent_model_again_after_a_while(opened, monkeypatch):
    with serving(Answer("", status=500)) as server:
        service = opened(server)
        for i in range(3):
            service.upload_document(f"# T{i}\ntext {i}", f"{i}.md")
        assert len(server.requests) == 3  # it had stopped answering
        monkeypatch.setattr(running, "ASK_AGAIN_SECONDS", 0.0)
        service.upload_document("# T9\ntext 9", "9.md")
        assert len(server.requests) == 5


def test_a_corpus_with_faults_is_uploaded_with_them(opened):
    upload = opened().upload_many(load_corpus(CASES / "FM-05" / "docs"))
    assert (len(upload.stored), upload.failed_count, len(upload.faults)) == (2, 3, 3)


# asking again -----------------------------------------------------------------------------


@both
def test_what_degraded_is_generated_again_and_nothing_else(opened):
    service = opened()
    service.upload_document(PLAIN, "a.md")
    service.upload_document(WHOLE, "keys.md")
    with serving(says) as server:
        service = opened(server)
        assert server.requests == []  # a text that was asked for in vain waits for `regenerate`
        upload = service.regenerate()
        assert len(about_documents(server)) == 1
    assert [entry.document.path for entry in upload.stored] == ["a.md"]
    assert sorted(upload.domains) == ["security", "web"]
    assert service.degraded() == ()
    assert metadata(service, "a.md")["covers"] == BOTH["covers"]
    assert metadata(service, "keys.md")["covers"] == ["API key", "revoke"]
    assert service.regenerate().stored == ()


def test_named_documents_are_generated_again_without_touching_the_authors_fields(opened):
    with serving(says) as server:
        service = opened(server)
        service.upload_document(PLAIN, "a.md")
        service.upload_document(WHOLE, "keys.md")
    with serving(answer({"covers": ["new"], "whenToRetrieve": "new"})) as server:
        service = opened(server)
        service.regenerate(["a.md", "keys.md"])
        assert len(about_documents(server)) == 1
    assert metadata(service, "a.md")["covers"] == ["new"]
    assert metadata(service, "keys.md")["covers"] == ["API key", "revoke"]
    assert domains(service)["web"] == (1, "new")


def test_a_failure_to_generate_again_keeps_what_was_there(opened):
    with serving(says) as server:
        opened(server).upload_document(PLAIN, "a.md")
    service = opened("http://127.0.0.1:9/v1")
    upload = service.regenerate(["a.md"])
    assert isinstance(upload.failure, ConnectionFailed)
    assert metadata(service, "a.md")["covers"] == BOTH["covers"]
    assert domains(service)["web"] == (1, "Text of web over 1. More.")


def test_an_unknown_path_cannot_be_generated_again(opened):
    with pytest.raises(CorpusError, match=r"^x\.md: no such document"):
        opened().regenerate(["x.md"])


# load_index -------------------------------------------------------------------------------


class Counting(HashingEncoder):
    """Counts the texts it embeds."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def encode(self, texts, kind):
        self.count += len(texts)
        return super().encode(texts, kind)


def test_an_upload_embeds_its_own_document_alone(opened):
    encoder = Counting()
    service = opened(encoder=encoder)
    service.upload_many(many(10))
    assert encoder.count == 10
    service.upload_document(PLAIN, "a.md")
    assert encoder.count == 11
    service.delete_document("003.md")
    assert encoder.count == 11


@both
def test_loading_embeds_nothing_and_brings_in_what_others_stored(opened, tmp_path):
    first, second = opened(), opened()
    first.upload_document(PLAIN, "a.md")
    second.upload_document(WHOLE, "keys.md")
    assert second.knowledge.paths == ("keys.md",)
    second.load_index()
    assert second.knowledge.paths == ("a.md", "keys.md")
    shutil.rmtree(tmp_path / "cache")
    encoder = Counting()
    third = opened(encoder=encoder)
    assert (third.knowledge.paths, encoder.count) == (("a.md", "keys.md"), 0)


@pytest.mark.parametrize("damage", ["manifest", "vectors", "gone"])
def test_a_damaged_index_is_made_again_from_the_database(opened, damage, caplog):
    service = opened()
    service.upload_many(many(4))
    before = service.knowledge
    if damage == "gone":
        shutil.rmtree(service.index_folder)
    else:
        (file,) = service.index_folder.glob(f"{damage}*")
        file.write_bytes(file.read_bytes()[:40])
    again = opened()
    assert again.knowledge.documents == before.documents
    assert ("built anew" in caplog.text) == (damage != "gone")
    check_consistent(again)


def test_another_encoder_builds_the_index_anew(opened):
    opened().upload_document(document("a.md"))
    again = opened(encoder=TableEncoder({"a.md": [1, 0]}))
    assert (again.knowledge.encoder.name, again.knowledge.paths) == ("table", ("a.md",))


def test_domains_without_a_row_get_their_text_at_loading(opened):
    service = opened()
    metadata_of_a_team = {"covers": ["x"], "whenToRetrieve": "w", "body": "Text."}
    upsert_document(
        service.engine,
        "theirs.md",
        title="Theirs",
        category="team",
        metadata=metadata_of_a_team,
        content_hash="",
    )
    with serving(says) as server:
        again = opened(server)
        assert len(server.requests) == 1
    assert domains(again) == {"team": (1, "Text of team over 1. More.")}
    assert again.lookup_knowledge("Theirs").found


def test_a_row_without_its_body_is_counted_named_and_left_out(opened):
    service = opened()
    service.upload_document(PLAIN, "a.md")
    upsert_document(
        service.engine, "old.md", title="Old", category="web", metadata={}, content_hash="x"
    )
    again = opened()
    assert again.knowledge.paths == ("a.md",)
    assert again.knowledge.failed_count == 1
    assert domains(again)["web"][0] == 2
    assert ("document", "old.md", "body") in [(d.kind, d.name, d.field) for d in again.degraded()]
    again.upload_document("# Old\ntext", "old.md")
    again.load_index()
    assert (again.knowledge.paths, again.knowledge.failed_count) == (("a.md", "old.md"), 0)


@both
def test_a_wrong_count_and_a_deleted_row_are_repaired(opened):
    service = opened()
    service.upload_many(many(4))
    upsert_domain(service.engine, "d0", document_count=9)
    upsert_domain(service.engine, "ghost", when_to_retrieve="left behind", document_count=3)
    assert {k: v[0] for k, v in domains(opened()).items()} == {
        "d0": 2,
        "d1": 1,
        "d2": 1,
        "ghost": 0,
    }
    assert domains(service)["ghost"] == (0, "")


def test_descriptions_come_from_domains_yml(opened, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "domains.yml").write_text("web: Web\n  servers\n", encoding="utf-8")
    with serving(says) as server:
        service = opened(server)
        service.upload_document(PLAIN, "a.md")
    (row,) = list_domains(service.engine)
    assert (row.description, row.when_to_retrieve) == ("Web servers", "Text of web over 1. More.")
    (tmp_path / "home" / "domains.yml").write_text("web: [1]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"domains\.yml: 'web': a domain's id and a text"):
        opened()


def test_a_server_whose_database_is_older_says_so(postgres_url, tmp_path):
    with pytest.raises(DatabaseError, match="is at version none, V010 is expected; run `kbeval db"):
        open_service(postgres_url, folder=tmp_path, encoder="hashing")


# tool calls -------------------------------------------------------------------------------


@both
def test_a_tool_call_is_answered_without_a_score_and_recorded(opened):
    service = opened()
    service.upload_document(WHOLE, "keys.md")
    first = json.loads(service.handle_tool_call('{"query": "rotate keys"}', "s1"))
    assert list(first) == [
        "found",
        "message",
        "primary",
        "supplements",
        "relevanceLevel",
        "completenessHint",
        "retrievedDomainsThisSession",
    ]
    assert (first["primary"]["filePath"], first["relevanceLevel"]) == ("keys.md", "PRECISE")
    with session_scope("s1"):
        second = json.loads(service.handle_tool_call({"query": "rotate keys"}))
    assert (second["found"], second["retrievedDomainsThisSession"]) == (False, ["security"])
    rows = read_invocations(service.engine)
    assert [(r.session_id, r.query, r.relevance_level, r.dedup_reason) for r in rows] == [
        ("s1", "rotate keys", "PRECISE", None),
        ("s1", "rotate keys", None, "ALL_RETRIEVED"),
    ]


WHOLE_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "lookup_knowledge", "arguments": '{"query": "rotate keys"}'},
}


@pytest.mark.parametrize(
    "call",
    [
        {"query": "rotate keys"},
        '{"query": "rotate keys"}',
        '{"query": "rotate keys", "limit": 3}',
        WHOLE_CALL,
        json.dumps(WHOLE_CALL),
    ],
)
def test_the_arguments_or_the_whole_call_are_taken(opened, call):
    service = opened()
    service.upload_document(WHOLE, "keys.md")
    assert json.loads(service.handle_tool_call(call))["found"] is True


@pytest.mark.parametrize(
    ("call", "kind", "says_so"),
    [
        ("{", "not_json", "not valid JSON"),
        ("", "not_json", "not valid JSON"),
        ("[" * 100_000, "not_json", "not valid JSON"),
        ("[]", "not_object", "array"),
        ("null", "not_object", "null"),
        ("{}", "no_query", "query is missing"),
        ({"query": None}, "no_query", "query is missing"),
        ({"query": 3}, "not_text", "number"),
        ({"query": ["a"]}, "not_text", "array"),
        ({"function": {"name": "rm", "arguments": "{}"}}, "other_tool", "no tool rm"),
        ({"function": {"name": "lookup_knowledge", "arguments": None}}, "not_json", "JSON"),
    ],
)
@pytest.mark.parametrize("locale", ["en", "zh"])
def test_a_malformed_call_is_an_error_the_model_can_read(opened, call, kind, says_so, locale):
    service = opened(locale=locale)
    error = json.loads(service.handle_tool_call(call, "s"))["error"]
    assert error["type"] == kind
    assert (says_so in error["message"]) or locale == "zh"
    assert any("\u4e00" <= c <= "\u9fff" for c in error["message"]) == (locale == "zh")
    assert read_invocations(service.engine) == ()


def test_a_look_up_that_fails_is_told_to_the_model_and_claims_nothing(opened):
    service = opened(encoder=TableEncoder({"a.md": [1, 0], "q": [np.nan, 0]}))
    service.upload_document(document("a.md"))
    error = json.loads(service.handle_tool_call({"query": "q"}, "s"))["error"]
    assert error["type"] == "failed"
    assert "NaN" in error["message"]
    assert not service.tool.tracker.is_doc_retrieved("s", "a.md")


@pytest.mark.parametrize("broken", ["answer_text", "json"])
def test_a_reply_that_cannot_be_serialised_takes_the_claim_back(opened, monkeypatch, broken):
    service = opened()
    service.upload_document(WHOLE, "keys.md")
    with monkeypatch.context() as patched:
        if broken == "json":
            nothing = {"x": float("nan")}
            patched.setattr("kbeval.retrieval.answer.result_json", lambda result: nothing)
        else:
            patched.setattr(running, "answer_text", failing)
        with pytest.raises((ValueError, OSError)):
            service.handle_tool_call({"query": "rotate keys"}, "s")
    assert not service.tool.tracker.is_doc_retrieved("s", "keys.md")
    assert read_invocations(service.engine) == ()
    assert json.loads(service.handle_tool_call({"query": "rotate keys"}, "s"))["found"]


def test_a_database_that_cannot_be_written_breaks_no_tool_call(opened, monkeypatch):
    service = opened()
    service.upload_document(WHOLE, "keys.md")

    @contextmanager
    def locked(*arguments, **named):
        raise DatabaseError("database is locked")
        yield

    monkeypatch.setattr("kbeval.store.recorder.writing", locked)
    assert json.loads(service.handle_tool_call({"query": "rotate keys"}, "s"))["found"]
    assert service.recorder.summary() == (
        "0 look-ups recorded, 1 not recorded (1 x database is locked)"
    )


@both
def test_look_ups_run_on_while_documents_come_and_go(opened):
    service = opened()
    service.upload_many(many(5))
    failed, ended = [], threading.Event()

    def look():
        while not ended.is_set():
            reply = json.loads(service.handle_tool_call({"query": "Title 4"}))
            if not reply.get("found"):
                failed.append(reply)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(10):
        service.upload_document(f"# New {i}\nsome text {i}", f"n{i}.md")
        service.delete_document(f"n{i}.md")
    ended.set()
    for thread in threads:
        thread.join()
    assert failed == []
    check_consistent(service)


# what planner and executor are told -------------------------------------------------------


def test_the_planner_gets_the_map_and_nothing_of_it_without_domains(opened):
    service = opened()
    assert service.build_knowledge_map() == ""
    assert "available_knowledge_domains" not in service.planner_prompt()
    service.upload_document(WHOLE, "keys.md")
    assert service.build_knowledge_map() == (
        "available_knowledge_domains:\n"
        "- domain_id: security\n"
        '  description: ""\n'
        '  when_to_retrieve: ""\n'
        "  documents:\n"
        "  - title: Rotate keys\n"
        "    covers: [API key, revoke]"
    )
    assert service.build_knowledge_map() in service.planner_prompt()
    assert service.build_knowledge_map() == running.stored_map(service.engine)
    assert "Rotate keys" not in service.executor_prompt()
    assert "禁止换关键词重新检索" in service.executor_prompt(locale="zh")


# recorded by many ----------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_tool_calls_of_two_processes_and_sixteen_threads_are_all_recorded(url):
    script = TESTS.parent / "benchmarks" / "record_lookups.py"
    done = subprocess.run(
        [sys.executable, script, url, "--look-ups", "320"], capture_output=True, text=True
    )
    said = json.loads(done.stdout)
    kept = {name: said[name] for name in ("asked", "answered", "recorded", "missing", "doubled")}
    assert kept == {"asked": 320, "answered": 320, "recorded": 320, "missing": 0, "doubled": 0}
    assert done.returncode == 0, done.stderr


# killed for real --------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_kills_at_random_moments_lose_nothing_and_double_nothing(opened, url, tmp_path):
    """The upload of 80 documents, killed again and again, is whole in the end."""
    opened().upload_document(PLAIN, "a.md")
    names = [url, str(tmp_path / "home"), str(tmp_path / "cache")]
    stored = 1
    for delay in (0.9, 1.1, 1.3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, *names, "many", "row", "0"], stderr=subprocess.PIPE
        )
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
        service = opened()
        check_consistent(service)
        assert len(service.knowledge.paths) >= stored
        stored = len(service.knowledge.paths)
    assert run_killed(url, tmp_path, "many", "row", 0).returncode == 0
    service = opened()
    assert len(service.knowledge.paths) == 81
    check_consistent(service)
