"""The specs' acceptance lines and behaviour items, one row each; the id is the rule.

FS-1 to FS-6 and REQ-01 to REQ-05. Each row runs the product's own code.
"""

import threading

import numpy as np
import pytest
import yaml
from stand_ins import at_similarity, document, settings, tool

from kbeval.config import Normalization, load_settings
from kbeval.corpus.documents import document_from_markdown
from kbeval.corpus.vectors import EmbeddingCache
from kbeval.domains.replies import Reply
from kbeval.errors import LlmError
from kbeval.records import Level, LookupResult, PrimaryResult, SupplementResult
from kbeval.retrieval.answer import HINTS, result_json
from kbeval.retrieval.grading import grade, l2_to_similarity
from kbeval.retrieval.session import session_scope
from kbeval.retrieval.tracker import RetrievedDocTracker
from kbeval.service import open_service
from kbeval.store.database import open_database
from kbeval.store.documents import get_document
from kbeval.store.domains import list_domains
from kbeval.store.invocations import read_invocations
from kbeval.store.migrations import upgrade
from kbeval.store.reports import grade_distribution

PRECISE_HINT = "知识库中不存在比上述结果更精准的文档"
HIGHLY_RELEVANT_HINT = "当前结果已高度相关，继续检索不太可能找到更精准的文档"
REFERENCE_HINT = "当前结果为相关参考，如需更精准信息请明确缺少的具体维度"
FAR = [0.0, 1.0]  # similarity 0.29 to (1, 0)


def fixed_tool(similarities, *, matches=0, chosen=None, tracker=None):
    """A tool whose documents a.md, b.md, ... lie at these similarities to the query `q key`.

    The last `matches` of them carry the exact key `key`.
    """
    paths = [f"{chr(97 + i)}.md" for i in range(len(similarities))]
    exact = paths[len(paths) - matches :]
    documents = [
        document(path, domain=f"domain-{path[0]}", keywords=("key",) if path in exact else ())
        for path in paths
    ]
    vectors = {path: at_similarity(s) for path, s in zip(paths, similarities, strict=True)}
    return tool(documents, {**vectors, "q key": [1.0, 0.0]}, chosen=chosen, tracker=tracker)


# FS-1 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distance", "similarity"),
    [
        pytest.param(0.0, 1.0, id="FS-1.a1: L2 score=0 -> similarity=1.0"),
        pytest.param(1.0, 0.5, id="FS-1.a2: L2 score=1.0 -> similarity=0.5"),
        pytest.param(2.0, 0.0, id="FS-1.a3: L2 score=2.0 -> similarity=0.0"),
        pytest.param(3.0, 0.0, id="FS-1.a4: L2 score=3.0 is cut off -> similarity=0.0"),
        pytest.param(0.3, 1 - min(0.3, 2.0) / 2.0, id="FS-1.b1: 1 - min(l2, max) / max"),
    ],
)
def test_fs1_distance_becomes_similarity(distance, similarity):
    assert l2_to_similarity(distance) == pytest.approx(similarity, abs=1e-12)


def test_fs1_a5_and_b2_a_yml_overrides_max_l2_distance(tmp_path):
    yml = tmp_path / "kb.yml"
    yml.write_text("retrieval:\n  normalization:\n    max-l2-distance: 1.5\n", encoding="utf-8")
    assert Normalization().max_l2_distance == 2.0
    chosen = load_settings(yml)
    _, invocation = fixed_tool([0.625], chosen=chosen).lookup_knowledge("q key", "s")
    assert invocation.retrieval_details["l1_top_similarity"] == 0.5  # distance 0.75 of 1.5


def test_fs1_b3_a_yml_overrides_both_thresholds(tmp_path):
    yml = tmp_path / "kb.yml"
    yml.write_text(
        "retrieval:\n  normalization:\n    highly-relevant-threshold: 0.9\n"
        "    reference-threshold: 0.85\n",
        encoding="utf-8",
    )
    chosen = load_settings(yml)
    levels = [
        fixed_tool([s], chosen=chosen).lookup_knowledge("q key", "s")[1].relevance_level
        for s in (0.95, 0.87, 0.8)
    ]
    assert levels == ["HIGHLY_RELEVANT", "REFERENCE", "NOT_FOUND"]


def test_fs1_b4_the_model_sees_no_distance_and_no_similarity():
    result, _ = fixed_tool([0.8123, 0.7456]).lookup_knowledge("q key", "s")
    text = str(result_json(result))
    assert "0.8123" not in text
    assert "0.7456" not in text
    assert "imilarity" not in text


# FS-2 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("l0_count", "similarity", "expected"),
    [
        pytest.param(1, 0.0, Level.PRECISE, id="FS-2.a1: L0 matchCount=1"),
        pytest.param(2, 0.8, Level.HIGHLY_RELEVANT, id="FS-2.a2: L0 matchCount=2, L1 0.8"),
        pytest.param(0, 0.8, Level.HIGHLY_RELEVANT, id="FS-2.a3: L0 matchCount=0, L1 0.8"),
        pytest.param(3, 0.6, Level.REFERENCE, id="FS-2.a4: L0 matchCount=3, L1 0.6"),
        pytest.param(0, 0.4, Level.NOT_FOUND, id="FS-2.a5: L0 matchCount=0, L1 0.4"),
        pytest.param(0, 0.75, Level.HIGHLY_RELEVANT, id="FS-2.b3: 0.75 is included"),
        pytest.param(2, 0.75, Level.HIGHLY_RELEVANT, id="FS-2.b2: L0 hit and 0.75"),
        pytest.param(2, 0.5, Level.REFERENCE, id="FS-2.b4: L0 multi-match, [0.5, 0.75)"),
        pytest.param(0, 0.5, Level.REFERENCE, id="FS-2.b5: 0.5 is included"),
        pytest.param(0, 0.749999, Level.REFERENCE, id="FS-2.b5: just below 0.75"),
        pytest.param(0, 0.499999, Level.NOT_FOUND, id="FS-2.b6: just below 0.5"),
    ],
)
def test_fs2_level(l0_count, similarity, expected):
    assert grade(l0_count, l0_count, similarity) == expected


@pytest.mark.parametrize(
    ("similarities", "matches", "level", "hint"),
    [
        pytest.param([0.4], 1, "PRECISE", PRECISE_HINT, id="FS-2.b1: unique L0"),
        pytest.param(
            [0.8, 0.3, 0.3], 2, "HIGHLY_RELEVANT", HIGHLY_RELEVANT_HINT, id="FS-2.b2: L0 and 0.8"
        ),
        pytest.param([0.8], 0, "HIGHLY_RELEVANT", HIGHLY_RELEVANT_HINT, id="FS-2.b3: L1 0.8"),
        pytest.param(
            [0.6, 0.3, 0.3], 2, "REFERENCE", REFERENCE_HINT, id="FS-2.b4: L0 multi-match and 0.6"
        ),
        pytest.param([0.6], 0, "REFERENCE", REFERENCE_HINT, id="FS-2.b5: L1 0.6"),
        pytest.param([0.4], 0, None, None, id="FS-2.b6, a5: 0.4 is no result"),
    ],
)
def test_fs2_a6_each_level_comes_with_its_hint(similarities, matches, level, hint):
    result, invocation = fixed_tool(similarities, matches=matches).lookup_knowledge("q key", "s")
    assert (result.found, result.relevance_level, result.completeness_hint) == (
        level is not None,
        level,
        hint,
    )
    assert invocation.relevance_level == (level or "NOT_FOUND")


def test_fs2_b6_a_supplement_below_reference_is_filtered():
    result, _ = fixed_tool([0.8, 0.4]).lookup_knowledge("q key", "s")
    assert result.supplements == ()


def test_fs2_b7_no_l0_and_no_l1_is_found_false():
    base = tool([], {"q key": [1.0, 0.0]})
    result, _ = base.lookup_knowledge("q key", "s")
    assert (result.found, result.message) == (False, "知识库中没有任何文档")


def test_fs2_hints_exist_in_both_languages_for_every_level():
    levels = {Level.PRECISE, Level.HIGHLY_RELEVANT, Level.REFERENCE}
    assert {locale: set(hints) for locale, hints in HINTS.items()} == {"zh": levels, "en": levels}


# FS-3 ---------------------------------------------------------------------------------------


def marked():
    tracker = RetrievedDocTracker()
    tracker.mark_retrieved("s1", "infrastructure", "a.md")
    return tracker


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        pytest.param(lambda t: t.is_doc_retrieved("s1", "a.md"), True, id="FS-3.a1, b1, b2"),
        pytest.param(
            lambda t: t.is_doc_retrieved("s1", "b.md"), False, id="FS-3.b2: other document"
        ),
        pytest.param(
            lambda t: t.is_domain_retrieved("s1", "infrastructure"), True, id="FS-3.a2, b3"
        ),
        pytest.param(
            lambda t: t.is_domain_retrieved("s1", "api"), False, id="FS-3.b3: other domain"
        ),
        pytest.param(
            lambda t: list(t.get_retrieved_domains("s1")), ["infrastructure"], id="FS-3.a3, b4"
        ),
        pytest.param(lambda t: t.is_already_retrieved("s1", "a.md"), True, id="FS-3.b6: given"),
        pytest.param(lambda t: t.is_already_retrieved("s2", "a.md"), False, id="FS-3.b6: other"),
    ],
)
def test_fs3_two_layers_are_recorded_at_once(ask, expected):
    assert ask(marked()) == expected


def test_fs3_a4_domains_in_the_order_first_seen():
    tracker = marked()
    tracker.mark_retrieved("s1", "api", "b.md")
    tracker.mark_retrieved("s1", "infrastructure", "c.md")
    assert list(tracker.get_retrieved_domains("s1")) == ["infrastructure", "api"]


def test_fs3_a5_b5_clearing_a_session_empties_every_method():
    tracker = marked()
    tracker.clear_session("s1")
    assert (
        tracker.is_doc_retrieved("s1", "a.md"),
        tracker.is_already_retrieved("s1", "a.md"),
        tracker.is_domain_retrieved("s1", "infrastructure"),
        tuple(tracker.get_retrieved_domains("s1")),
    ) == (False, False, False, ())


def test_fs3_a6_marks_from_many_threads_are_all_kept():
    tracker = RetrievedDocTracker()
    start = threading.Barrier(16)

    def mark(number):
        start.wait()
        for i in range(50):
            tracker.mark_retrieved("s1", f"domain-{number}", f"{number}/{i}.md")

    threads = [threading.Thread(target=mark, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(tracker.is_doc_retrieved("s1", f"{n}/{i}.md") for n in range(16) for i in range(50))
    assert set(tracker.get_retrieved_domains("s1")) == {f"domain-{n}" for n in range(16)}


# FS-4 ---------------------------------------------------------------------------------------


def test_fs4_a1_b1_an_answer_carries_the_three_new_fields():
    result, _ = fixed_tool([0.8, 0.7]).lookup_knowledge("q key", "s")
    assert (
        result.relevance_level,
        result.completeness_hint,
        result.retrieved_domains_this_session,
    ) == ("HIGHLY_RELEVANT", HIGHLY_RELEVANT_HINT, ("domain-a", "domain-b"))
    assert {"relevanceLevel", "completenessHint", "retrievedDomainsThisSession"} <= set(
        result_json(result)
    )


def test_fs4_a2_b3_a_blocked_answer_has_the_notice_and_the_domains():
    base = fixed_tool([0.8])
    base.lookup_knowledge("q key", "s")
    result, invocation = base.lookup_knowledge("q key", "s")
    assert result == LookupResult(
        found=False,
        message="以下文档已在本会话中检索过：[a.md]，无需重复召回",
        retrieved_domains_this_session=("domain-a",),
    )
    assert (invocation.relevance_level, invocation.dedup_reason) == (None, "ALL_RETRIEVED")


@pytest.mark.parametrize("record", [PrimaryResult, SupplementResult])
def test_fs4_a3_b2_documents_have_no_field_for_a_score(record):
    assert tuple(record.__dataclass_fields__) == ("file_path", "title", "domain", "content")


def test_fs4_the_answers_json_has_the_specs_names_and_no_others():
    result, _ = fixed_tool([0.8, 0.7]).lookup_knowledge("q key", "s")
    answer = result_json(result)
    assert list(answer) == [
        "found",
        "message",
        "primary",
        "supplements",
        "relevanceLevel",
        "completenessHint",
        "retrievedDomainsThisSession",
    ]
    assert answer["primary"] == {
        "filePath": "a.md",
        "title": "a.md",
        "domain": "domain-a",
        "content": "Body of a.md.",
    }


# REQ-01 -------------------------------------------------------------------------------------


def test_req01_1_a3_without_a_session_nothing_is_filtered(caplog):
    base = fixed_tool([0.8])
    answers = [base.lookup_knowledge("q key")[0].found for _ in range(3)]
    assert answers == [True, True, True]
    assert base.sessionless_count == 3
    assert len([r for r in caplog.records if "without a session" in r.message]) == 1


def test_req01_2_what_was_given_is_filtered_and_the_rest_is_returned():
    base = fixed_tool([0.9, 0.85, 0.8, 0.78, 0.6])
    first, _ = base.lookup_knowledge("q key", "s")
    second, invocation = base.lookup_knowledge("q key", "s")
    assert paths(first) == ["a.md", "b.md", "c.md"]
    assert paths(second) == ["d.md", "e.md"]
    assert invocation.dedup_reason == "PARTIAL"


def test_req01_3_a1_a_document_found_again_gives_the_notice_not_its_content():
    base = fixed_tool([0.9, 0.85], matches=1)
    base.lookup_knowledge("q key", "s")
    result, _ = base.lookup_knowledge("q key", "s")
    assert (result.found, result.primary, result.supplements) == (False, None, ())
    assert result.message == "以下文档已在本会话中检索过：[b.md, a.md]，无需重复召回"


def test_req01_4_what_is_returned_is_remembered():
    base = fixed_tool([0.9, 0.4])
    base.lookup_knowledge("q key", "s")
    assert base.tracker.is_doc_retrieved("s", "a.md")
    assert not base.tracker.is_doc_retrieved("s", "b.md")


def test_req01_5_closing_the_session_forgets_it():
    base = fixed_tool([0.9])
    with session_scope("s"):
        assert base.lookup_knowledge("q key")[0].found
        assert not base.lookup_knowledge("q key")[0].found
    assert not base.tracker.is_doc_retrieved("s", "a.md")
    assert base.lookup_knowledge("q key", "s")[0].found


def test_req01_a2_sessions_do_not_touch_each_other():
    base = fixed_tool([0.9])
    assert base.lookup_knowledge("q key", "s1")[0].found
    assert base.lookup_knowledge("q key", "s2")[0].found
    assert not base.lookup_knowledge("q key", "s1")[0].found


# REQ-05 -------------------------------------------------------------------------------------

PLAIN = "---\ntitle: Backups\ncategory: ops\n---\nText.\n"
EXTENDED = """---
title: Backups
category: ops
covers: [full backup, incremental backup]
when_to_retrieve: a backup or a restore is needed
---
Text.
"""


def test_req05_a1_a_document_without_the_new_fields_loads_and_has_none():
    loaded, faults = document_from_markdown(PLAIN, "a.md")
    assert (loaded.covers, loaded.when_to_retrieve, faults) == ((), None, ())


def test_req05_a2_1_2_3_the_new_fields_are_read():
    loaded, faults = document_from_markdown(EXTENDED, "a.md")
    assert faults == ()
    assert loaded.covers == ("full backup", "incremental backup")
    assert loaded.when_to_retrieve == "a backup or a restore is needed"


def paths(result):
    """File paths of an answer, the primary first."""
    return [result.primary.file_path, *(s.file_path for s in result.supplements)]


def test_a_unit_of_the_stand_in_is_right():
    assert np.allclose(l2_to_similarity(np.linalg.norm(np.array(at_similarity(0.8)) - [1, 0])), 0.8)
    assert settings(max_l2_distance=1.5).retrieval.normalization.max_l2_distance == 1.5


# FS-5, FS-6, REQ-02 to REQ-04, through the service ------------------------------------------

PLAIN_DOCUMENT = (
    "---\ntitle: Backups\ncategory: ops\nsummary: how to back up\n---\nBack up daily.\n"
)


class StandInModel:
    """Answers every prompt in the way of a good model and keeps what it was asked."""

    stopped = False

    def __init__(self, *, fails=False):
        self.fails, self.prompts = fails, []

    def reset(self):
        pass

    def ask(self, prompt, schema):
        self.prompts.append(prompt)
        if self.fails:
            raise LlmError("no connection")
        values = {"covers": ("full backup",), "when_to_retrieve": f"answer {len(self.prompts)}"}
        asked = {name: values[name] for name in schema.model_fields}
        aliases = {n: schema.model_fields[n].alias or n for n in asked}
        return Reply(schema.model_validate({aliases[n]: v for n, v in asked.items()}))


@pytest.fixture
def serve(tmp_path):
    """Open the service on one SQLite file; closed at the end."""
    services = []

    def call(model=None, *, locale="zh"):
        services.append(
            open_service(
                tmp_path,
                encoder="hashing",
                llm=model,
                settings=load_settings({"locale": locale}),
                cache=EmbeddingCache(tmp_path / "cache"),
            )
        )
        return services[-1]

    yield call
    for service in services:
        service.close()


def kept(service, path="ops/backups.md"):
    return get_document(service.engine, path).metadata


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        pytest.param("available_knowledge_domains", False, id="FS-5.a1, b1: no knowledge map"),
        pytest.param("Backups", False, id="FS-5.a1: nothing of a document"),
        pytest.param("禁止换关键词重新检索", True, id="FS-5.a2: no search with other keywords"),
        pytest.param("不查全不会被追责", True, id="FS-5.a3: the legitimate exit"),
        pytest.param("PRECISE", True, id="FS-5.a4: what to do at PRECISE"),
        pytest.param("HIGHLY_RELEVANT", True, id="FS-5.a4: what to do at HIGHLY_RELEVANT"),
        pytest.param("REFERENCE", True, id="FS-5.a4: what to do at REFERENCE"),
        pytest.param("判断重复", True, id="FS-5.b2: judge repetition"),
        pytest.param("重复了该怎么办", True, id="FS-5.b2: what to do at a repetition"),
        pytest.param("合法出口", True, id="FS-5.b2: the exit"),
        pytest.param("利用质量信号", True, id="FS-5.b2: use of the quality signal"),
        pytest.param("都必须调用对应的工具", False, id="FS-5.b3: the old rule is replaced"),
    ],
)
def test_fs5_the_executor_prompt(serve, holds, expected):
    service = serve(StandInModel())
    service.upload_document(PLAIN_DOCUMENT, "ops/backups.md")
    assert (holds in service.executor_prompt()) is expected


def test_fs6_a1_a2_a3_v010_makes_two_nullable_columns_and_keeps_the_history(tmp_path):
    engine = open_database(tmp_path / "old.db")
    upgrade(engine, "V009")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO tool_invocation (tool_name, created_at) "
            "VALUES ('lookup_knowledge', '2024-01-01T00:00:00Z')"
        )
    assert upgrade(engine) == ("V010",)
    with engine.connect() as connection:
        columns = {
            row[1]: (row[2], row[3])
            for row in connection.exec_driver_sql("PRAGMA table_info(tool_invocation)")
        }
    assert columns["relevance_level"] == ("VARCHAR(20)", 0)
    assert columns["dedup_reason"] == ("VARCHAR(32)", 0)
    assert grade_distribution(engine) == {None: 1}  # FS-6.b3: null in the history
    engine.dispose()


def test_fs6_a4_b1_b2_every_look_up_is_written_with_its_columns_and_details(serve):
    service = serve()
    service.upload_document(PLAIN_DOCUMENT, "ops/backups.md")
    service.handle_tool_call({"query": "backups"}, "s")
    service.lookup_knowledge("backups", "s")
    first, second = read_invocations(service.engine)
    assert (first.relevance_level, first.dedup_reason) == ("PRECISE", None)
    assert (second.relevance_level, second.dedup_reason) == (None, "ALL_RETRIEVED")
    details = first.retrieval_details
    assert {k: details[k] for k in ("relevance_level", "completeness_hint", "dedup_reason")} == {
        "relevance_level": "PRECISE",
        "completeness_hint": PRECISE_HINT,
        "dedup_reason": None,
    }
    assert details["retrieved_domains"] == ["ops"]
    assert 0 <= details["l1_top_similarity"] <= 1


def test_fs6_a5_the_specs_query_gives_the_grade_distribution(serve):
    service = serve()
    service.upload_document(PLAIN_DOCUMENT, "ops/backups.md")
    for query in ("backups", "zzzz", "backups"):
        service.handle_tool_call({"query": query}, "s")
    query = (
        "SELECT relevance_level, COUNT(*) FROM tool_invocation "
        "WHERE tool_name='lookup_knowledge' GROUP BY relevance_level"
    )
    with service.engine.connect() as connection:
        found = {tuple(row) for row in connection.exec_driver_sql(query)}
    assert found == {("PRECISE", 1), ("NOT_FOUND", 1), (None, 1)}


def test_req02_a1_2_3_4_5_an_upload_generates_both_fields_and_stores_and_indexes_them(serve):
    model = StandInModel()
    service = serve(model)
    body = "Back up daily. " * 100
    service.upload_document(PLAIN_DOCUMENT + body, "ops/backups.md")
    prompt = model.prompts[0]
    assert all(text in prompt for text in ("Backups", "how to back up", '"covers"'))
    assert ("Back up daily.\n" + body)[:1000].strip() in prompt
    assert body.strip() not in prompt  # the first 1000 characters only
    assert (kept(service)["covers"], kept(service)["whenToRetrieve"]) == (
        ["full backup"],
        "answer 1",
    )
    assert service.lookup_knowledge("a full backup please").relevance_level == "PRECISE"


def test_req02_a2_1_the_authors_two_fields_are_not_overwritten_and_cost_no_call(serve):
    model = StandInModel()
    service = serve(model)
    service.upload_document(EXTENDED, "ops/backups.md")
    assert [prompt for prompt in model.prompts if "<document>" in prompt] == []
    assert kept(service)["covers"] == ["full backup", "incremental backup"]
    assert kept(service)["whenToRetrieve"] == "a backup or a restore is needed"


def test_req02_a3_6_a_failing_model_stops_no_upload_and_the_fields_degrade(serve):
    service = serve(StandInModel(fails=True))
    service.upload_document(PLAIN_DOCUMENT, "ops/backups.md")
    assert (kept(service)["covers"], kept(service)["whenToRetrieve"]) == ([], "how to back up")
    assert service.lookup_knowledge("backups").found


def test_req03_a1_1_2_3_an_upload_updates_the_row_of_its_domain(serve):
    model = StandInModel()
    service = serve(model)
    service.upload_document(PLAIN_DOCUMENT, "ops/backups.md")
    service.upload_document(EXTENDED.replace("Backups", "Restores"), "ops/restores.md")
    (row,) = list_domains(service.engine)
    assert (row.domain_id, row.document_count, row.when_to_retrieve) == ("ops", 2, "answer 3")
    for told in ("Backups", "Restores", "full backup", "a backup or a restore is needed"):
        assert told in model.prompts[-1]  # titles, covers and whenToRetrieve of the domain


def test_req03_a2_a_deletion_recounts_and_writes_the_text_anew(serve):
    service = serve(StandInModel())
    service.upload_document(PLAIN_DOCUMENT, "ops/backups.md")
    service.upload_document(EXTENDED.replace("Backups", "Restores"), "ops/restores.md")
    service.delete_document("ops/backups.md")
    (row,) = list_domains(service.engine)
    assert (row.document_count, row.when_to_retrieve) == (1, "answer 4")


def test_req03_4_a_failing_model_keeps_the_last_text_or_leaves_it_empty(serve):
    serve(StandInModel()).upload_document(PLAIN_DOCUMENT, "ops/backups.md")
    service = serve(StandInModel(fails=True))
    service.upload_document(EXTENDED, "ops/more.md")
    service.upload_document(EXTENDED.replace("ops", "new"), "new/more.md")
    rows = {
        r.domain_id: (r.document_count, r.when_to_retrieve) for r in list_domains(service.engine)
    }
    assert rows == {"ops": (2, "answer 2"), "new": (1, "")}


def test_req03_a3_loading_generates_the_domains_without_a_row(serve):
    service = serve()
    service.upload_document(EXTENDED, "ops/backups.md")
    with service.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM knowledge_domain")
    (row,) = list_domains(serve(StandInModel()).engine)
    assert (row.domain_id, row.document_count, row.when_to_retrieve) == ("ops", 1, "answer 1")


def test_req04_a1_1_2_4_the_planner_prompt_ends_with_the_map_as_its_own_block(serve):
    service = serve(StandInModel())
    service.upload_document(EXTENDED, "ops/backups.md")
    read = yaml.safe_load(service.build_knowledge_map())
    assert read == {
        "available_knowledge_domains": [
            {
                "domain_id": "ops",
                "description": "answer 1",
                "when_to_retrieve": "answer 1",
                "documents": [
                    {"title": "Backups", "covers": ["full backup", "incremental backup"]}
                ],
            }
        ]
    }
    prompt = service.planner_prompt()
    before, _, after = prompt.partition(service.build_knowledge_map())
    assert after.strip() in ("", "```")
    assert "when_to_retrieve" in before  # the rule that says how to use it


def test_req04_a2_3_without_a_domain_row_nothing_is_injected(serve):
    assert "available_knowledge_domains" not in serve().planner_prompt()


def test_req04_a3_the_map_of_six_documents_is_below_1000_characters(serve):
    service = serve(StandInModel())
    for i in range(6):
        text = EXTENDED.replace("Backups", f"A title of some length, number {i}").replace(
            "full backup", ", ".join(f"covered topic {i}-{j} of the document" for j in range(8))
        )
        service.upload_document(text, f"{i}.md")
    assert 0 < len(service.build_knowledge_map()) < 1000


@pytest.mark.parametrize(
    ("locale", "rule"),
    [
        ("zh", "每个域最多"),
        ("en", "search each domain at most once"),
    ],
)
def test_req04_rule_2_a_domain_is_looked_up_once_at_most(serve, locale, rule):
    service = serve(StandInModel(), locale=locale)
    service.upload_document(EXTENDED, "ops/backups.md")
    assert rule in service.planner_prompt()
