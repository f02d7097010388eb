"""Documents from a markdown or a BEIR folder, and the count of what was lost (FM-05, SM-01)."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.corpus.documents import (
    content_hash,
    corpus_fingerprint,
    document_from_markdown,
    load_corpus,
    normalised_path,
    summary,
)
from kbeval.errors import CorpusError
from kbeval.records import Document

CASES = Path(__file__).parent / "cases"
SETS = Path(__file__).resolve().parents[2] / "shared" / "data"
PATHS = json.loads((CASES / "SM-01/paths.json").read_text(encoding="utf-8"))


def folder(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def beir(root, *lines):
    lines = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (root / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return root


def told(corpus):
    """The faults without the folder they lie in."""
    return [str(fault).replace(f"{corpus.root}/", "") for fault in corpus.faults]


# paths


@pytest.mark.parametrize("group", PATHS["same"])
def test_sm01_all_spellings_of_a_path_are_one(group):
    assert len({normalised_path(path) for path in group}) == 1


@pytest.mark.parametrize("pair", PATHS["different"])
def test_sm01_no_two_files_fall_onto_one_path(pair):
    assert [normalised_path(path) for path in pair] == pair


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        *((path, "leaves the root") for path in PATHS["refused"]),
        ("..", "leaves the root"),
        ("..\\x.md", "leaves the root"),
        ("/etc/x.md", "is absolute"),
        ("\\\\server\\x.md", "is absolute"),
        ("C:\\docs\\x.md", "is absolute"),
        ("", "names no document"),
        ("docs/..", "names no document"),
    ],
)
def test_a_path_that_is_not_below_the_root_is_refused(path, reason):
    with pytest.raises(CorpusError, match=reason):
        normalised_path(path)


@given(st.lists(st.sampled_from(["a", "B b", "é", "e\u0301", ".", "..", "", "x.md"]), max_size=6))
def test_a_normalised_path_is_the_place_that_a_walk_along_the_parts_reaches(parts):
    place, outside = [], False
    for part in parts:
        if part == "..":
            outside |= not place
            place = place[:-1]
        elif part not in (".", ""):
            place.append(part.replace("e\u0301", "é"))
    if outside or not place or not parts[0]:
        with pytest.raises(CorpusError):
            normalised_path("/".join(parts))
    else:
        assert normalised_path("/".join(parts)) == "/".join(place)
        assert normalised_path("\\".join(place)) == "/".join(place)


# one document


def test_a_document_holds_what_its_author_declared():
    text = (CASES / "FM-01/runbook-bom.md").read_bytes().decode("utf-8")
    body = "# 扩容步骤\n\n先确认配额，再加入节点。"
    assert document_from_markdown(text, "ops/Runbook v1.10.md") == (
        Document(
            path="ops/Runbook v1.10.md",
            title="集群扩容手册",
            body=body,
            domain="infrastructure",
            content_hash=content_hash("集群扩容手册", body),
            covers=("节点扩容", "节点替换"),
            when_to_retrieve="需要增加或替换集群节点时",
            stem="Runbook v1.10",
        ),
        (),
    )


def test_fm01_both_twins_become_the_same_document():
    twins = [CASES / "FM-01" / name for name in ("runbook-bom.md", "runbook-clean.md")]
    texts = [twin.read_bytes().decode("utf-8") for twin in twins]
    bom, clean = (document_from_markdown(text, "a.md") for text in texts)
    assert bom == clean


def test_fm03_metadata_can_be_saved_as_json():
    text = "---\ntitle: 012\nreviewed: 2024-01-05\nat: 12:30:00\nowners: {a: [no, ~]}\n---\n"
    document, _ = document_from_markdown(text, "a.md")
    assert json.loads(json.dumps(document.metadata)) == {
        "reviewed": "2024-01-05",
        "at": "12:30:00",
        "owners": {"a": ["no", None]},
    }


@pytest.mark.parametrize(
    ("text", "path", "title", "domain"),
    [
        ("Body.", "a.md", "a", "uncategorized"),
        ("", "a.md", "a", "uncategorized"),
        ("Body.", "api/v1/a.md", "a", "api"),
        ("---\ncategory: no\n---\n", "api/a.md", "a", "no"),
        ("---\ncategory: ''\n---\n", "api/a.md", "a", "api"),
        ("Intro.\n\n## Rate limits ##\n\n# Second", "a.md", "Rate limits", "uncategorized"),
        ("```\n# no\n```\n~~~\n# no\n```\n~~~\n# Yes", "a.md", "Yes", "uncategorized"),
        ("#no\n\nRate limits\n===========\n", "a.md", "Rate limits", "uncategorized"),
        ("---\ntitle: Own\n---\n# Heading", "a.md", "Own", "uncategorized"),
    ],
)
def test_title_and_domain_fall_back(text, path, title, domain):
    document, faults = document_from_markdown(text, path)
    assert (document.title, document.domain, faults) == (title, domain, ())
    assert (document.covers, document.when_to_retrieve) == ((), None)


def test_the_body_is_kept_but_for_blank_lines_around_it():
    text = "---\ntitle: a\n---\n\n \n    indented\n\n---\n\nend  \n\n"
    document, _ = document_from_markdown(text, "a.md")
    assert document.body == "    indented\n\n---\n\nend"


def test_a_document_with_an_error_is_none_and_its_fault_names_the_file():
    document, (fault,) = document_from_markdown("---\ntitle: a: b\n---\n", "a.md", file="docs/a.md")
    assert document is None
    assert str(fault).startswith("docs/a.md:2: the title holds an unquoted colon")
    document, (fault,) = document_from_markdown("x", "../a.md")
    assert document is None
    assert "leaves the root" in str(fault)


def test_the_content_hash_tells_title_and_body_apart():
    assert content_hash("ab", "c") != content_hash("a", "bc")
    assert content_hash("a", "b") == content_hash("a", "b")
    assert len(content_hash("", "")) == 64


# a markdown folder


def test_fm05_a_bad_file_costs_that_file_and_is_counted():
    corpus = load_corpus(CASES / "FM-05/docs")
    assert [document.path for document in corpus.documents] == ["good-a.md", "good-b.md"]
    assert summary(corpus) == "2 loaded, 3 failed"
    assert told(corpus) == [
        "colon.md:2: the title holds an unquoted colon; put the title in quotes",
        "legacy-bytes.md:2: not UTF-8: byte 0x92 at offset 19; save the file as UTF-8",
        "tab.md:4: a tab is used as indentation; use spaces instead of the tab",
    ]


def test_fm05_a_strict_load_stops_with_the_first_fault_and_the_count():
    with pytest.raises(CorpusError, match=r"colon\.md:2: .* \(2 loaded, 3 failed\)$"):
        load_corpus(CASES / "FM-05/docs", strict=True)


def test_a_strict_load_takes_warnings():
    assert summary(load_corpus(CASES / "FM-04", strict=True)) == "1 loaded, 0 failed; 1 warning"


def test_st02_a_document_without_a_body_is_loaded_and_noted():
    corpus = load_corpus(CASES / "ST-02")
    (document,) = corpus.documents
    assert (document.title, document.summary) == ("恢复演练清单", "每季度一次的恢复演练")
    assert summary(corpus) == "1 loaded, 0 failed; 1 without a body (title-only.md)"


def test_the_summary_counts_what_is_worth_a_look(tmp_path):
    files = {f"{i}.md": "" for i in range(5)} | {"x/w.md": "---\ntitle: a\ntitle: a\n---\nb"}
    assert summary(load_corpus(folder(tmp_path, files))) == (
        "6 loaded, 0 failed; 5 uncategorized, "
        "5 without a body (0.md, 1.md, 2.md and 2 more), 1 warning"
    )


def test_files_are_read_recursively_in_the_order_of_their_paths(tmp_path):
    names = ["b.md", "README.md", "a/c.MD", "a/b/d.markdown", "a-b/e.md"]
    hidden = [".hidden.md", ".git/x.md", "a/.x/y.md", "notes.txt", "md"]
    corpus = load_corpus(folder(tmp_path, dict.fromkeys(names + hidden, "Body.")))
    assert [document.path for document in corpus.documents] == sorted(names)
    assert corpus.faults == ()


def test_the_readme_of_a_data_set_is_no_document(tmp_path):
    files = {"README.md": "x", "a/README.md": "y", "b.md": "z", "dataset.yml": "name: x"}
    corpus = load_corpus(folder(tmp_path, files))
    assert [document.path for document in corpus.documents] == ["a/README.md", "b.md"]


def test_links_are_followed_only_where_they_lead_to_something_new_inside(tmp_path):
    root = folder(tmp_path / "root", {"a.md": "A", ".store/b.md": "B", "sub/c.md": "C"})
    folder(tmp_path / "away", {"secret.md": "S"})
    (root / "b.md").symlink_to(root / ".store/b.md")
    (root / "same.md").symlink_to(root / "a.md")
    (root / "broken.md").symlink_to(root / "none.md")
    (root / "loop.md").symlink_to(root / "loop.md")
    (root / "out.md").symlink_to(tmp_path / "away/secret.md")
    (root / "outside").symlink_to(tmp_path / "away")
    (root / "sub/up").symlink_to(root)
    corpus = load_corpus(root)
    assert [(d.path, d.body) for d in corpus.documents] == [
        ("a.md", "A"),
        ("b.md", "B"),
        ("sub/c.md", "C"),
    ]
    refused = "the link leaves the folder of documents and is refused; put the file itself there"
    assert told(corpus) == [
        "broken.md: the link leads nowhere; remove or repair it",
        "loop.md: the link leads nowhere; remove or repair it",
        f"out.md: {refused}",
        f"outside: {refused}",
        "same.md: the link leads to a.md, which is loaded already; remove the link",
        "sub/up: a link to a folder is not followed; put the files there",
    ]
    assert corpus.failed_count == 4
    assert summary(corpus).startswith("3 loaded, 4 failed; ")


def test_two_files_with_one_normalised_path_are_not_both_loaded(tmp_path):
    corpus = load_corpus(folder(tmp_path, {"caf\u00e9.md": "one", "cafe\u0301.md": "two"}))
    assert [document.path for document in corpus.documents] == ["caf\u00e9.md"]
    assert corpus.failed_count == 1
    assert "once normalised; rename one" in told(corpus)[0]


def test_what_is_no_readable_text_file_is_a_fault(tmp_path):
    folder(tmp_path, {"a.md": "A"})
    (tmp_path / "utf16.md").write_bytes("x".encode("utf-16"))
    os.mkfifo(tmp_path / "pipe.md")
    corpus = load_corpus(tmp_path)
    assert corpus.failed_count == 2
    assert told(corpus) == [
        "pipe.md: is no regular file; put a text file there",
        "utf16.md:1: not UTF-8: byte 0xff at offset 0; save the file as UTF-8",
    ]


@pytest.mark.parametrize(
    ("files", "place", "message"),
    [
        ({}, "none", "none: no such folder"),
        ({"x.txt": ""}, ".", "no markdown files; .md, .markdown files or a corpus.jsonl are"),
        ({"x.txt": ""}, "x.txt", "x.txt: is a file; a folder of documents or a .jsonl is expected"),
        ({"a.md": "---\ntitle: a: b\n---"}, ".", r"a.md:2: .* \(0 loaded, 1 failed\)"),
        ({"corpus.jsonl": "\n"}, ".", "no documents in corpus.jsonl"),
        ({"corpus.jsonl": '[{"_id": "a"}]'}, ".", "a JSON array; one object per line is expected"),
    ],
)
def test_a_folder_that_gives_no_document_is_an_error(tmp_path, files, place, message):
    with pytest.raises(CorpusError, match=message):
        load_corpus(folder(tmp_path, files) / place)


# a BEIR folder


def test_a_beir_line_is_a_document_with_an_opaque_id(tmp_path):
    line = {
        "_id": "doc_(general)/../001.md",
        "title": "Limits",
        "text": "Body.\r\n",
        "url": "u",
        "metadata": {
            "domain": "api",
            "lang": "en",
            "aliases": ["quota", 429],
            "keywords": "a, b",
            "whenToRetrieve": "on 429",
            "category": "kept",
            "title": "too",
        },
    }
    corpus = load_corpus(beir(tmp_path, line))
    assert corpus.documents == (
        Document(
            path="doc_(general)/../001.md",
            title="Limits",
            body="Body.\r\n",
            domain="api",
            content_hash=content_hash("Limits", "Body.\r\n"),
            keywords=("a", "b"),
            aliases=("quota", "429"),
            when_to_retrieve="on 429",
            metadata={"url": "u", "lang": "en", "category": "kept", "title": "too"},
        ),
    )
    assert load_corpus(tmp_path / "corpus.jsonl").documents == corpus.documents


def test_a_beir_line_needs_little(tmp_path):
    lines = [{"_id": 7, "text": "x"}, {"_id": "t", "title": "T", "text": "", "metadata": None}]
    corpus = load_corpus(
        beir(tmp_path, *lines, {"_id": "c", "title": "C", "metadata": {"category": "k"}})
    )
    assert [(d.path, d.title, d.body, d.domain, d.stem) for d in corpus.documents] == [
        ("7", "", "x", "uncategorized", ""),
        ("t", "T", "", "uncategorized", ""),
        ("c", "C", "", "k", ""),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"_id": "a"', "not valid JSON: Expecting ',' delimiter at column 12"),
        ('{"_id": "a", "text": "x", "_id": "b"}', "key '_id' is written twice"),
        ('{"_id": "a", "text": "x", "n": NaN}', "NaN is not valid JSON"),
        ("[1]", "the line is a list"),
        ('"text"', "the line is a text"),
        ('{"text": "x"}', "_id is missing; a text is expected"),
        ('{"_id": " ", "text": "x"}', "_id is empty"),
        ('{"_id": true, "text": "x"}', "_id is a truth value; a text is expected"),
        ('{"_id": "a", "title": " ", "text": "\\n"}', "neither title nor text"),
        ('{"_id": "a", "text": ["x"]}', "text is a list; a text is expected"),
        ('{"_id": "a", "title": {}, "text": "x"}', "title is a mapping; one text is expected"),
        ('{"_id": "a", "text": "x", "metadata": "m"}', "metadata is a text; an object is expected"),
        (
            '{"_id": "a", "text": "x", "metadata": {"domain": ["d"]}}',
            "domain is a list; one text is expected",
        ),
        (
            '{"_id": "a", "text": "x", "metadata": {"tags": [1.5]}}',
            "tags has the entry 1.5, a number; a text is expected",
        ),
        ('{"_id": "a", "text": "\\ud800"}', "the line holds U+D800, which is no character"),
        ('{"_id": "ok", "text": "x"}', "_id 'ok' stands on line 2 already"),
        ("[" * 100_000, "a number or a nesting beyond all bounds"),
        ("1" * 5_000, "a number or a nesting beyond all bounds"),
    ],
)
def test_a_bad_beir_line_costs_that_line_and_names_it(tmp_path, line, problem):
    good = {"_id": "ok", "text": "x"}
    corpus = load_corpus(beir(tmp_path, "", good, "  ", line, {"_id": "z", "text": "y"}))
    assert [document.path for document in corpus.documents] == ["ok", "z"]
    assert corpus.failed_count == 1
    (fault,) = told(corpus)
    assert fault.startswith(f"corpus.jsonl:4: {problem}; ")


def test_a_beir_file_may_have_a_byte_order_mark_crlf_and_one_line_of_other_bytes(tmp_path):
    lines = [
        b'\xef\xbb\xbf{"_id": "a", "text": "x"}',
        b'{"_id": "\x92"}',
        b'{"_id": "b", "text": "y"}',
    ]
    (tmp_path / "corpus.jsonl").write_bytes(b"\r\n".join(lines) + b"\r\n")
    corpus = load_corpus(tmp_path)
    assert [document.path for document in corpus.documents] == ["a", "b"]
    assert told(corpus) == [
        "corpus.jsonl:2: not UTF-8: byte 0x92 at byte 10 of the line; save the file as UTF-8"
    ]


# the fingerprint


def test_the_fingerprint_depends_neither_on_order_nor_on_the_place_of_the_root(tmp_path):
    one, two = {"_id": "a", "text": "x"}, {"_id": "b", "text": "y"}
    (tmp_path / "1").mkdir(), (tmp_path / "2").mkdir()
    first, second = (
        load_corpus(beir(tmp_path / "1", one, two)),
        load_corpus(beir(tmp_path / "2", two, one)),
    )
    assert first.fingerprint == second.fingerprint
    shutil.copytree(CASES / "FM-05/docs", tmp_path / "copy")
    assert (
        load_corpus(tmp_path / "copy").fingerprint == load_corpus(CASES / "FM-05/docs").fingerprint
    )


@pytest.mark.parametrize(
    "change",
    [{"path": "b.md"}, {"title": "u"}, {"body": "c"}, {"domain": "d"}, {"aliases": ("x",)}],
)
def test_the_fingerprint_changes_with_anything_a_lookup_rests_on(change):
    document = {"path": "a.md", "title": "t", "body": "b"}
    other = corpus_fingerprint([Document(**document | change)])
    assert other != corpus_fingerprint([Document(**document)])


# the real sets


@pytest.mark.data
@pytest.mark.skipif(not SETS.is_dir(), reason="the evaluation sets are not beside the project")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("clinc150", 150),
        ("cranfield", 1398),
        ("crosswoz_zh", 2549),
        ("mtrag", 1488),
        ("stard_law_zh", 1445),
        ("tau_banking_kb", 698),
        ("xquad_en_zh", 480),
    ],
)
def test_the_evaluation_sets_load_whole(name, count):
    corpus = load_corpus(SETS / name, strict=True)
    assert (len(corpus), corpus.faults, summary(corpus)) == (count, (), f"{count} loaded, 0 failed")
    assert all("lang" in document.metadata for document in corpus.documents)
