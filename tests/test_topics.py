import json
import warnings
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kbeval.corpus.topics import TOPIC_DOMAINS, TYPED_NAMES, load_topics

FOLDER = Path(__file__).resolve().parents[1] / "datasets" / "python-topics"
ANSWERABLE = {"how-to", "concept", "symptom", "terse", "exact", "comparison", "multi"}
SPLITS = ("dev", "test")


def read_queries():
    lines = (FOLDER / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_grades(split):
    head, *lines = (FOLDER / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    assert head.split("\t") == ["query-id", "corpus-id", "score"]
    return [(q, d, int(s)) for q, d, s in (line.split("\t") for line in lines)]


def readme_table():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()]
    return {c[0]: (int(c[1]), int(c[2])) for c in cells if len(c) == 4 and c[1].isdigit()}


QUERIES = read_queries()
META = {q["_id"]: q["metadata"] for q in QUERIES}
GRADES = {split: read_grades(split) for split in SPLITS}
CORPUS = load_topics()


# --- the corpus


def test_every_topic_of_this_python_is_a_document_with_text_in_the_order_of_names():
    from pydoc_data.topics import topics

    assert [d.path for d in CORPUS.documents] == sorted(topics)
    assert all(d.body == topics[d.path] and d.body.strip() and d.title for d in CORPUS.documents)
    assert CORPUS.failed_count == 0


def test_a_document_is_what_its_topic_says():
    text = 'The "nop" statement\n*******************\n\nDoes nothing.\n'
    (nop,) = load_topics({"nop": text}).documents
    expected = sha256(f"The nop statement\n{text}".encode()).hexdigest()
    assert (nop.path, nop.title, nop.body) == ("nop", "The nop statement", text)
    assert (nop.domain, nop.keywords, nop.stem) == ("uncategorized", (), "")
    assert nop.content_hash == expected


@pytest.mark.parametrize(
    ("text", "title"),
    [
        pytest.param('"pdb" — Debugger\n****\n\nx', "pdb — Debugger", id="quotes are markup"),
        pytest.param("Modules\n=======\n", "Modules", id="a rule of equal signs"),
        pytest.param("no heading here\n\nx ** y", "Some topic", id="no heading: the name"),
        pytest.param("x\n**bold** text", "Some topic", id="bold text is no rule"),
        pytest.param("\n\nCalls\n*****\n\nA call", "Calls", id="blank lines in front"),
    ],
)
def test_the_title_is_the_first_heading_or_the_readable_name(text, title):
    assert load_topics({"some-topic": text}).documents[0].title == title


def test_a_topic_without_text_is_counted_and_left_out():
    corpus = load_topics({"empty": " \n", "full": "Full\n****\n\ntext"})
    assert ([d.path for d in corpus.documents], corpus.failed_count) == (["full"], 1)


def test_each_name_stands_in_one_domain_and_the_typed_names_are_among_them():
    names = [name for group in TOPIC_DOMAINS.values() for name in group.split()]
    assert len(names) == len(set(names)) == 79
    assert set(TYPED_NAMES.split()) <= set(names)
    domains = {d.path: d.domain for d in CORPUS.documents}
    assert (domains["assert"], domains["power"]) == ("statements", "expressions")
    assert next(d for d in CORPUS.documents if d.path == "assert").keywords == ("assert",)


@given(
    st.dictionaries(
        st.text("abcdef-", min_size=1), st.text(min_size=1).filter(str.strip), min_size=1
    )
)
def test_the_fingerprint_knows_every_text_and_no_order(texts):
    first = load_topics(texts).fingerprint
    assert load_topics(dict(reversed(texts.items()))).fingerprint == first
    name = next(iter(texts))
    assert load_topics(texts | {name: texts[name] + "!"}).fingerprint != first
    assert load_topics({k: v for k, v in texts.items() if k != name}).fingerprint != first


def test_two_loads_are_equal_and_the_version_is_no_part_of_the_fingerprint():
    again = load_topics()
    assert again == CORPUS
    other = [replace(d, metadata={"python": "4.0"}) for d in again.documents]
    assert [d.content_hash for d in other] == [d.content_hash for d in CORPUS.documents]


# --- the labels


def test_the_counts_are_those_of_the_readme():
    count = Counter((m["kind"], m["split"]) for m in META.values())
    table = readme_table()
    total = tuple(sum(n for (_, split), n in count.items() if split == s) for s in SPLITS)
    assert table.pop("all") == total
    assert table == {kind: (count[kind, "dev"], count[kind, "test"]) for kind, _ in count}
    languages = Counter(m["lang"] for m in META.values())
    several = Counter(q for rows in GRADES.values() for q, _, score in rows if score == 2)
    needs = [m["need_id"] for m in META.values() if "need_id" in m]
    text = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    assert f"{languages['en']} questions are English, {languages['zh']} Chinese" in text
    assert f"{sum(n > 1 for n in several.values())} questions have several documents" in text
    assert f"{len(needs)} questions are paraphrases or translations of {len(set(needs))}" in text


def test_the_set_is_large_enough_and_every_kind_is_in_both_splits():
    kinds = Counter(m["kind"] for m in META.values())
    assert sum(m["answerable"] for m in META.values()) >= 150
    assert min(kinds["near"], kinds["far"]) >= 20
    for split in SPLITS:
        assert {m["kind"] for m in META.values() if m["split"] == split} == ANSWERABLE | {
            "near",
            "far",
        }


def test_no_id_and_no_text_stands_twice():
    folded = [" ".join(q["text"].casefold().split()) for q in QUERIES]
    assert len(set(META)) == len(QUERIES) == len(set(folded))
    assert all(q["_id"].startswith(f"pt-{q['metadata']['split']}-") for q in QUERIES)


def test_the_paraphrases_of_a_need_share_the_split_and_the_labels():
    labels = {}
    for split, rows in GRADES.items():
        for query, document, score in rows:
            if need := META[query].get("need_id"):
                labels.setdefault(need, {}).setdefault(query, (split, {}))[1][document] = score
    assert len(labels) == 20
    for need, of_query in labels.items():
        assert len(of_query) > 1, need
        assert all(label == next(iter(of_query.values())) for label in of_query.values()), need


def test_answerable_queries_have_a_related_document_and_the_others_have_no_rows():
    best = {}
    for split, rows in GRADES.items():
        assert {score for _, _, score in rows} == {0, 1, 2}
        assert len({row[:2] for row in rows}) == len(rows)
        for query, _, score in rows:
            assert META[query]["split"] == split
            best[query] = max(score, best.get(query, 0))
    assert set(best) == {query for query, m in META.items() if m["answerable"]}
    assert min(best.values()) > 0
    assert {META[query]["kind"] for query, score in best.items() if score == 1} == {"multi"}


def test_unanswerable_queries_say_how_near_they_are():
    for meta in META.values():
        expected = meta["kind"] if not meta["answerable"] else None
        assert meta.get("nearness") == expected
        assert meta["answerable"] == (meta["kind"] in ANSWERABLE)


def test_need_groups_belong_to_multi_queries_and_are_graded():
    graded = {(q, d): score for rows in GRADES.values() for q, d, score in rows}
    for query, meta in META.items():
        assert ("needs" in meta) == (meta["kind"] == "multi")
        for group in meta.get("needs", []):
            assert group, query
            assert all(graded.get((query, document), 0) > 0 for document in group), query


def test_an_exact_query_is_the_name_of_a_topic_that_answers_it():
    answers = {(q, d) for rows in GRADES.values() for q, d, score in rows if score == 2}
    exact = [q for q in QUERIES if q["metadata"]["kind"] == "exact"]
    assert all((q["_id"], q["text"]) in answers for q in exact)


def test_nearly_all_labelled_topics_exist_in_this_python():
    labelled = {document for rows in GRADES.values() for _, document, _ in rows}
    missing = sorted(labelled - {d.path for d in CORPUS.documents})
    if missing:
        warnings.warn(f"topics this Python does not have: {', '.join(missing)}", stacklevel=1)
    assert len(missing) <= 0.05 * len(labelled)


def test_a_topic_that_contains_another_never_has_the_lower_grade():
    """A heading may differ: the rest of the smaller text stands in the larger one."""

    def inner(document):
        body = document.body.split("\n\n", 1)[-1].strip()
        return body.rsplit("\n-[ Footnotes ]-", 1)[0].strip()

    whole = {d.path: d.body for d in CORPUS.documents}
    holds = [
        (d.path, other)
        for d in CORPUS.documents
        for other, text in whole.items()
        if other != d.path and len(inner(d)) > 200 and inner(d) in text
    ]
    assert ("if", "compound") in holds
    graded = {(q, d): score for rows in GRADES.values() for q, d, score in rows}
    for (query, document), score in graded.items():
        for small, large in holds:
            if small == document and score > 0:
                assert graded.get((query, large), 0) >= score, (query, small, large)


def test_the_declaration_says_what_the_labels_are():
    declared = yaml.safe_load((FOLDER / "dataset.yml").read_text(encoding="utf-8"))
    assert (declared["name"], declared["corpus"]) == ("python-topics", "python-topics")
    assert (declared["answers_from"], declared["judged"]) == (2, "pooled")
    assert declared["splits"] == list(SPLITS)
    assert set(declared["languages"]) == {m["lang"] for m in META.values()}
    assert (declared["near"], declared["far"]) == (["near"], ["far"])
