"""The specs' acceptance lines and behaviour items, one row each; the id is the rule.

FS-1 to FS-4, REQ-01 and REQ-05. Each row runs the product's own code.
"""

import threading

import numpy as np
import pytest
from stand_ins import at_similarity, document, settings, tool

from kbeval.config import Normalization, load_settings
from kbeval.corpus.documents import document_from_markdown
from kbeval.records import Level, LookupResult, PrimaryResult, SupplementResult
from kbeval.retrieval.answer import HINTS, result_json
from kbeval.retrieval.grading import grade, l2_to_similarity
from kbeval.retrieval.session import session_scope
from kbeval.retrieval.tracker import RetrievedDocTracker

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
