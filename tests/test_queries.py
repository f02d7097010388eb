"""Labelled sets and sessions from disk: every count, every fault with file and line."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbeval.errors import DatasetError
from kbeval.evaluation.queries import Session, Turn
from kbeval.evaluation.readers import describe, load_set, summary
from kbeval.evaluation.reading.values import pairs_of
from kbeval.evaluation.sessions import load_sessions
from kbeval.records import Fault

CASES = Path(__file__).parent / "cases"
SETS = Path(__file__).resolve().parents[2] / "shared" / "data"

real_sets = pytest.mark.skipif(
    not SETS.is_dir(), reason="the evaluation sets are not beside the project"
)


def written(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def beir(folder, queries, qrels, declaration=None):
    """A set in the layout of BEIR: queries as objects, qrels as split -> rows."""
    written(folder, "queries.jsonl", "".join(json.dumps(query) + "\n" for query in queries))
    for split, rows in qrels.items():
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
        written(folder, f"qrels/{split}.tsv", "\n".join(lines) + "\n")
    if declaration is not None:
        written(folder, "dataset.yml", declaration)
    return folder


def query(name, text="how", **metadata):
    return {"_id": name, "text": text, "metadata": metadata}


def texts(labelled):
    return {found.id: found.text for found in labelled.queries}


def grades(labelled):
    return {found.id: dict(found.grades) for found in labelled.queries}


# --- the cases from the field ---------------------------------------------------------------


def test_ds_01_a_table_saved_by_a_spreadsheet_is_read_as_it_looks():
    labelled = load_set(CASES / "DS-01" / "saved.csv")
    assert texts(labelled) == {
        "01": "如何扩容，分几步？",
        "02": 'say "restore" first',
        "03": "first line\nsecond line; still the same cell",
    }
    assert grades(labelled) == {
        "01": {"docs/scale.md": 1},
        "02": {"docs/restore.md": 1, "docs/backup.md": 1},
        "03": {"docs/lines.md": 1},
    }
    assert (labelled.form, labelled.faults, labelled.left_out) == ("wide", (), {})
    assert labelled.counts == {"empty_rows": 1}
    assert "3 loaded, 0 rejected" in describe(labelled)
    assert "1 empty_rows" in describe(labelled)


def test_ds_01_a_missing_column_is_answered_with_the_columns_found_in_quotes(tmp_path):
    path = written(tmp_path, "q.csv", "\ufeffid;\u200bquery; relevant\n1;how;a.md\n")
    with pytest.raises(DatasetError) as caught:
        load_set(path)
    assert str(caught.value) == (
        f"{path}: no column query or text; the columns found are 'id', '\\u200bquery', ' relevant'"
    )


def test_ds_02_words_that_look_missing_are_queries():
    path = CASES / "DS-02" / "words.csv"
    labelled = load_set(path)
    assert list(texts(labelled).values()) == ["NA", "None", "null", "nan", "N/A", "null pointer"]
    assert list(texts(labelled)) == ["1", "2", "3", "4", "5", "6"]
    assert labelled.left_out == {"empty_text": 1}
    assert labelled.faults == (Fault(str(path), "query '7': the text is empty", line=8),)


def test_ds_03_json_lines_lose_the_broken_lines_only_and_say_which():
    path = CASES / "DS-03" / "queries.jsonl"
    labelled = load_set(path)
    assert list(texts(labelled)) == ["q1", "q2", "q3", "q5", "q7"]
    assert texts(labelled)["q7"] == "last"
    assert [str(fault) for fault in labelled.faults] == [
        f"{path}:6: not valid JSON: Expecting value at column 1",
        f"{path}:8: the key 'id' is written twice; keep one",
        f"{path}:9: not valid JSON: NaN is no JSON value; write a number or null",
    ]
    assert labelled.rejected_count == 3
    assert "5 loaded, 3 rejected" in describe(labelled)


def test_ds_03_strict_stops_at_the_first_line_that_is_lost():
    with pytest.raises(DatasetError, match=r"queries\.jsonl:6: not valid JSON.*\(and 2 more\)$"):
        load_set(CASES / "DS-03" / "queries.jsonl", strict=True)


def test_ds_03_a_json_array_is_recognised():
    with pytest.raises(DatasetError, match="this is a JSON array; one object per line is expected"):
        load_set(CASES / "DS-03" / "array.json")


def test_ds_04_an_id_with_two_texts_is_refused_with_both_lines_and_texts():
    path = CASES / "DS-04" / "doubles.csv"
    with pytest.raises(DatasetError) as caught:
        load_set(path)
    assert str(caught.value) == (
        f"{path}:3: query id 'q1' stands for 'rotate keys' here and for 'scale out nodes' in "
        "line 2; give each query an id of its own"
    )


def test_ds_04_equal_rows_count_once_and_ids_that_differ_by_blanks_are_reported(tmp_path):
    saved = (CASES / "DS-04" / "doubles.csv").read_text(encoding="utf-8")
    path = written(tmp_path, "doubles.csv", saved.replace("q1,rotate", "q1b,rotate"))
    labelled = load_set(path)
    assert list(texts(labelled)) == ["q1", "q1b", "q2", "q3", "q4", "q4 "]
    assert labelled.left_out == {"duplicate": 1}
    assert labelled.rejected_count == 0
    assert [str(fault) for fault in labelled.faults] == [
        f"{path}:5: the row repeats line 4 (query 'q2'); counted once",
        f"{path}:8: the ids 'q4 ' and 'q4' (line 7) are the same after trimming; they are taken "
        "as two queries; rename one",
    ]
    assert {fault.severity for fault in labelled.faults} == {"warning"}
    assert labelled.form == "wide"


def test_st_02_seven_unusable_queries_are_reported_and_one_is_evaluated():
    labelled = load_set(CASES / "ST-02" / "queries.jsonl")
    assert texts(labelled) == {"q8": "how to restore a backup"}
    assert [(fault.line, fault.problem) for fault in labelled.faults] == [
        (1, "query 'q1': the text is empty"),
        (2, "query 'q2': the text is empty"),
        (3, "query 'q3': the text is empty"),
        (4, "the query is null; a text is expected"),
        (5, "the query is the number 404; a text is expected"),
        (6, "the query is a list; a text is expected"),
        (7, "the row has no query (or text)"),
    ]
    assert labelled.left_out == {"empty_text": 3, "malformed": 4}
    assert "1 loaded, 7 rejected" in describe(labelled)


def test_me_01_ids_that_look_like_numbers_stay_as_typed():
    labelled = load_set(CASES / "ME-01")
    assert grades(labelled) == {
        "001": {"007.md": 1},
        "010": {"007.md": 1},
        "1e3": {"errors.md": 1},
        "2.0": {"upgrade.md": 1},
    }
    assert labelled.form == "long"


@pytest.mark.parametrize(
    ("name", "loaded", "expects_nothing"),
    [("all-positive", 5, 0), ("all-negative", 3, 3)],
)
def test_th_04_sets_of_one_class_load_and_say_how_many_expect_nothing(
    name, loaded, expects_nothing
):
    labelled = load_set(CASES / "TH-04" / f"{name}.csv")
    found = summary(labelled)
    assert (found["loaded"], found["expects_nothing"]) == (loaded, expects_nothing)
    assert f"{expects_nothing} expect nothing" in describe(labelled)
    assert labelled.queries[0].metadata["similarity"] in {"0.55", "0.40"}


# --- one file -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "pairs"),
    [
        ("", ()),
        ("  ", ()),
        ("[]", ()),
        ("a.md", (("a.md", 1),)),
        ("001", (("001", 1),)),
        (" a.md | b c.md |", (("a.md", 1), ("b c.md", 1))),
        ("a.md:2|b.md:0|c.md:-1", (("a.md", 2), ("b.md", 0), ("c.md", -1))),
        ("a.md: 2", (("a.md: 2", 1),)),
        ("a.md:2.0", (("a.md", 2),)),
        ("host:8080", (("host:8080", 1),)),
        ("std::2", (("std::2", 1),)),
        ("C:\\docs\\a.md", (("C:\\docs\\a.md", 1),)),
        ("a:1:2", (("a:1", 2),)),
        (":3", ((":3", 1),)),
        ('["a|b.md", "c.md:3"]', (("a|b.md", 1), ("c.md", 3))),
        ('{"a:1": 2, "b": 0}', (("a:1", 2), ("b", 0))),
        ("[draft] a.md", (("[draft] a.md", 1),)),
        (None, None),
        ([], ()),
        (["a.md", "b.md:2"], (("a.md", 1), ("b.md", 2))),
        ({"a:1": 1.0}, (("a:1", 1),)),
    ],
)
def test_relevant_documents_and_their_grades(cell, pairs):
    assert pairs_of(cell) == pairs


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"relevant": 3}, "relevant is the number 3; a text, a list or a mapping is expected"),
        ({"relevant": [7]}, "relevant holds the number 7; the id of a document is a text"),
        ({"relevant": [""]}, "relevant holds ''; the id of a document is a text"),
        ({"relevant": "|"}, "relevant '|' holds separators only; name a document or leave it"),
        ({"relevant": "a.md:1.5"}, "score '1.5' is no whole number"),
        ({"relevant": {"a": None}}, "score null is no whole number"),
        ({"relevant": {"a": True}}, "score True is no whole number"),
        ({"relevant": '["a"'}, "relevant '[\"a\"': not valid JSON"),
        ({"relevant": ["a", "b"], "grade": 2}, "grade 2 stands beside 2 documents; one is"),
        ({"answerable": "maybe"}, "answerable is 'maybe'; allowed are true and false"),
        ({"answerable": 1}, "answerable is the number 1; allowed are true and false"),
        ({"id": 2.0}, "id is the number 2.0; a text is expected"),
        ({"id": " "}, "the row has no id; give every row one, or none"),
        ({"needs": [["a"], []]}, "needs holds a list; allowed are groups of ids"),
        ({"needs": ["a"]}, "needs holds 'a'; allowed are groups of ids"),
        ({"session_id": []}, "session_id is a list; a text is expected"),
    ],
)
def test_a_row_that_cannot_be_used_is_a_fault_with_its_line(tmp_path, row, problem):
    good = {"id": "q1", "query": "fine", "relevant": ["a.md"]}
    bad = {"id": "q2", "query": "how", "relevant": ["a.md"], **row}
    path = written(tmp_path, "q.jsonl", f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    labelled = load_set(path)
    assert list(texts(labelled)) == ["q1"]
    (fault,) = labelled.faults
    assert (fault.line, fault.severity) == (2, "error")
    assert fault.problem.startswith(problem)
    assert labelled.left_out == {"malformed": 1}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_header_decides_the_delimiter(tmp_path, delimiter):
    rows = ["ID | Text | relevant | note", "7 | a;b,c | x.md | 1"]
    table = "\r\n".join(row.replace(" | ", delimiter) for row in rows)
    cell = '"a;b,c"'
    path = written(tmp_path, "q.csv", table.replace("a;b,c", cell))
    labelled = load_set(path)
    assert texts(labelled) == {"7": "a;b,c"}
    assert labelled.queries[0].metadata == {"note": "1"}


def test_without_ids_the_numbers_of_the_rows_are_the_ids_and_long_form_is_pointed_out(tmp_path):
    path = written(tmp_path, "q.csv", "query,relevant\nhow,a.md\n,\nwhy,\nhow,b.md\n")
    labelled = load_set(path)
    assert texts(labelled) == {"1": "how", "2": "why", "3": "how"}
    assert labelled.counts == {"empty_rows": 1}
    assert [fault.problem for fault in labelled.faults] == [
        "1 rows repeat the text of another row, each counts as a query"
    ]


def test_long_form_is_recognised_and_said(tmp_path):
    table = (
        "id,query,relevant,grade,title\n"
        "q1,how,a.md,2,A\nq2,why,c.md,1,C\nq1,how,b.md,1,B\nq1,how,a.md,2,again\nq3,no,,,\n"
    )
    labelled = load_set(written(tmp_path, "q.csv", table))
    assert labelled.form == "long"
    assert grades(labelled) == {"q1": {"a.md": 2, "b.md": 1}, "q2": {"c.md": 1}, "q3": {}}
    assert labelled.queries[0].metadata == {}  # the titles differ from row to row
    assert labelled.counts == {"doubled_labels": 1}
    assert [fault.line for fault in labelled.faults] == [5]
    assert summary(labelled)["form"] == "long"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("q1,how,a.md:1,,\nq1,how,a.md:2,,", r"q\.csv:3: .*score 2 here and 1 in line 2; one pair"),
        ("q1,how,a.md:1|a.md:0,,", r"q\.csv:2: .*score 0 here and 1 in line 2"),
        (
            "q1,how,a.md,,\nq1,how,,,",
            r"q\.csv:3: query id 'q1' has another answerable than in line",
        ),
        ("q1,how,a.md,,dev\nq1,how,b.md,,test", r"q\.csv:3: query id 'q1' has another split"),
        ("q1,how,a.md,no,", r"q\.csv:2: query 'q1' is declared unanswerable, but document 'a\.md'"),
    ],
)
def test_labels_that_contradict_each_other_stop_the_load(tmp_path, rows, message):
    path = written(tmp_path, "q.csv", f"id,query,relevant,answerable,split\n{rows}\n")
    with pytest.raises(DatasetError, match=message):
        load_set(path)


def test_answerable_and_split_columns_are_read(tmp_path):
    table = (
        "id,query,relevant,answerable,split\n"
        "q1,how,a.md,yes,dev\nq2,why,,FALSE,dev\nq3,who,,true,\nq4,lost,,,test\nq5,low,a.md:0,,\n"
    )
    labelled = load_set(written(tmp_path, "q.csv", table))
    assert {q.id: (q.answerable, q.split) for q in labelled.queries} == {
        "q1": (True, "dev"),
        "q2": (False, "dev"),
        "q4": (False, "test"),
    }
    assert labelled.left_out == {"no_judgement": 2}
    assert labelled.splits == ("dev", "test")
    dev = load_set(labelled.folder, split="dev")
    assert (list(texts(dev)), dev.left_out, dev.counts) == (["q1", "q2"], {}, {"other_split": 3})
    with pytest.raises(DatasetError, match="no split 'train'; the splits are dev, test"):
        load_set(labelled.folder, split="train")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.xlsx", b"PK\x03\x04", "q.xlsx: a spreadsheet cannot be read; save it as CSV"),
        (
            "q.parquet",
            b"PAR1",
            "the ending '.parquet' is not known; allowed are .csv, .tsv, .jsonl",
        ),
        ("q.csv", b"", "q.csv: no column query or text; the columns found are none"),
        ("q.csv", b"id,query,relevant\n", "0 queries in "),
        ("q.csv", b"id,query,relevant\nq1,,a.md\n", "0 queries in .*: 1 empty_text; .*:2: query"),
        ("q.csv", b"id,id,query,relevant\n", "two columns are named 'id'"),
        ("q.csv", b'id,query,relevant\nq1,"how,a\nq2,b,c\n', r"q\.csv:2: the row that starts here"),
        ("q.csv", b'id,query,relevant\nq1,"how" x,a\n', r"q\.csv:2: the row that starts here"),
        ("q.csv", b"id,query,relevant\nq1,\xc4,a\n", r"q\.csv:2: byte 0xc4 at offset 21 is not"),
        ("q.csv", "id,query".encode("utf-16"), "the file is UTF-16; save it as UTF-8"),
        ("q.jsonl", b'{\n"id": "q1"\n}\n', "0 queries in .*: 3 malformed; .*:1: not valid JSON"),
    ],
)
def test_a_file_that_is_no_set_is_refused_in_one_line(tmp_path, name, content, message):
    path = written(tmp_path, name, content)
    with pytest.raises(DatasetError, match=message) as caught:
        load_set(path)
    assert "\n" not in str(caught.value)


def test_rows_with_too_few_or_too_many_cells_are_faults(tmp_path):
    table = "id,query,relevant\nq1,how,a.md,,\nq2,why, not so,b.md\nq3,who\n"
    labelled = load_set(written(tmp_path, "q.csv", table))
    assert list(texts(labelled)) == ["q1"]
    assert [(fault.line, fault.problem) for fault in labelled.faults] == [
        (3, "the row has 4 cells, the header 3"),
        (4, "the row has 2 cells, the header 3"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[1]x", "not valid JSON"),
        ('"text"', "a JSON object is expected, found '\"text\"'"),
        ('{"id": "q2", "query": "\\ud800", "relevant": []}', "not valid JSON: half of a surrogate"),
        ('{"id": "q2", "query": "a", "x": 1e999}', "the number 1e999 is out of range"),
        ('{"id": "q2", "query": "a", "x": Infinity}', "not valid JSON: Infinity is no JSON value"),
        ('{"a":' * 100_000, "not valid JSON: nested too deeply"),
        ('{"metadata": {"kind": "a", "kind": "b"}}', "the key 'kind' is written twice"),
    ],
)
def test_no_line_of_json_ends_in_a_library_error(tmp_path, line, problem):
    good = '{"id": "q1", "query": "x\u2028y", "relevant": ["a"]}'
    labelled = load_set(written(tmp_path, "q.jsonl", f"{good}\n{line}\n"))
    assert texts(labelled) == {"q1": "x\u2028y"}
    assert labelled.faults[0].line == 2
    assert labelled.faults[0].problem.startswith(problem)


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
IDS = CELL.filter(str.strip)
DOCUMENTS = st.lists(
    st.text("abz01./()-_ é中", min_size=1).filter(lambda d: d.strip() == d), unique=True
)


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(IDS, IDS, DOCUMENTS), min_size=1, unique_by=lambda row: row[0]),
    delimiter=st.sampled_from(",;\t"),
    bom=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_what_a_table_writer_wrote_is_read_the_same(tmp_path_factory, rows, delimiter, bom, end):
    path = tmp_path_factory.mktemp("table") / "q.csv"
    with path.open("w", encoding="utf-8-sig" if bom else "utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
        writer.writerow(["id", " query ", "relevant"])
        writer.writerows([name, text, "|".join(docs)] for name, text, docs in rows)
    labelled = load_set(path)
    assert texts(labelled) == {name: text for name, text, _ in rows}
    assert grades(labelled) == {name: dict.fromkeys(docs, 1) for name, _, docs in rows}
    assert labelled.left_out == {}


@settings(deadline=None)
@given(rows=st.lists(st.tuples(IDS, IDS, DOCUMENTS), min_size=1, unique_by=lambda row: row[0]))
def test_json_lines_and_a_table_of_the_same_rows_are_the_same_set(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("both")
    lines = [
        json.dumps({"id": i, "query": q, "relevant": d}, ensure_ascii=False) for i, q, d in rows
    ]
    written(folder, "q.jsonl", "\n".join(lines))
    with (folder / "q.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["id", "query", "relevant"])
        writer.writerows([name, text, "|".join(docs)] for name, text, docs in rows)
    one, other = load_set(folder / "q.jsonl"), load_set(folder / "q.csv")
    assert (texts(one), grades(one)) == (texts(other), grades(other))
    assert one.fingerprint == other.fingerprint


# --- two tables -----------------------------------------------------------------------------


def test_two_tables_take_flags_and_splits_from_the_queries_and_leave_unlabelled_ones_out(tmp_path):
    queries = "id,text,answerable,split\nq1,how,,dev\nq2,no,false,dev\nq3,lost,,\n"
    written(tmp_path, "queries.csv", queries)
    written(tmp_path, "qrels.tsv", "query-id\tcorpus-id\tscore\nq1\ta\t2\nq9\ta\t1\n")
    written(tmp_path, "dataset.yml", "name: two\nanswers_from: 2\n")
    labelled = load_set(tmp_path)
    assert (labelled.name, labelled.answers_from) == ("two", 2)
    assert [(q.id, q.answerable, q.split) for q in labelled.queries] == [
        ("q1", True, "dev"),
        ("q2", False, "dev"),
    ]
    assert labelled.left_out == {"no_judgement": 1}
    assert labelled.counts == {"unknown_queries": 1}


def test_labels_in_two_places_are_refused(tmp_path):
    written(tmp_path, "queries.csv", "id,text,relevant\nq1,how,a\n")
    written(tmp_path, "qrels.csv", "query_id,doc,grade\nq1,a,1\n")
    with pytest.raises(DatasetError, match=r"labels in 'relevant' and in qrels\.csv; keep them in"):
        load_set(tmp_path)


def test_a_folder_that_is_no_set_says_what_one_holds(tmp_path):
    with pytest.raises(DatasetError, match=r"a folder holds queries\.jsonl and qrels/SPLIT\.tsv"):
        load_set(tmp_path)
    with pytest.raises(DatasetError, match="no such file or folder"):
        load_set(tmp_path / "nowhere")


# --- the layout of BEIR ---------------------------------------------------------------------


def test_without_dataset_yml_every_positive_score_answers_and_it_is_said(tmp_path):
    rows = [("q1", "a", 2), ("q1", "b", "1.0"), ("q2", "a", 0)]
    flags = [query("q1"), query("q2"), query("q3"), query("q4", answerable=False)]
    labelled = load_set(beir(tmp_path, flags, {"test": rows}))
    assert grades(labelled) == {"q1": {"a": 2, "b": 1}, "q4": {}}
    assert [q.answerable for q in labelled.queries] == [True, False]
    assert (labelled.answers_from, labelled.answers_from_declared) == (1, False)
    assert labelled.left_out == {"no_judgement": 2}
    assert "every positive score answers (answers_from is not declared)" in describe(labelled)


def test_a_declared_set_brings_its_declaration_along(tmp_path):
    told = (
        "name: tiny\nlanguages: [en, zh]\nlabelled_by: us\nanswers_from: 2\njudged: complete\n"
        "splits: [dev, test]\ncorpus: python-topics\nlicence: MIT\n"
    )
    queries = [
        query("q1", lang="en", domain="d", need_id="n1", kind="how-to", needs=[["a"], ["b", "c"]]),
        query("q2", answerable=False, session_id="s1", domain=None),
        query("q3"),
    ]
    rows = {"dev": [("q1", "a", 2), ("q1", "b", 2)], "test": [("q3", "a", 1), ("q2", "z", 1)]}
    labelled = load_set(beir(tmp_path, queries, rows, told))
    assert (labelled.name, labelled.languages, labelled.labelled_by) == ("tiny", ("en", "zh"), "us")
    assert (labelled.answers_from, labelled.answers_from_declared) == (2, True)
    assert (labelled.judged, labelled.splits, labelled.corpus) == (
        "complete",
        ("dev", "test"),
        "python-topics",
    )
    one, two, three = labelled.queries
    assert (one.split, one.need_id, one.kind, one.domain) == ("dev", "n1", "how-to", "d")
    assert one.needs == (("a",), ("b", "c"))
    assert (one.cluster, two.cluster, three.cluster) == ("need:n1", "session:s1", "query:q3")
    assert (two.answerable, dict(two.grades), two.domain, two.split) == (
        False,
        {"z": 1},
        "",
        "test",
    )
    assert [str(fault) for fault in labelled.faults] == [
        f"{tmp_path}/queries.jsonl:1: query 'q1': needs name 'c', which has no positive score"
    ]
    found = summary(labelled)
    assert (found["partial"], found["several_top"], found["expects_nothing"]) == (1, 0, 1)


@pytest.mark.parametrize(
    ("metadata", "kind", "nearness"),
    [
        ({"kind": "near_miss"}, "near_miss", "near"),
        ({"kind": "no_offer"}, "no_offer", "near"),
        ({"kind": "unanswerable"}, "unanswerable", "near"),
        ({"kind": "unanswerable_near"}, "unanswerable_near", "near"),
        ({"answerability": "unanswerable"}, "unanswerable", "near"),
        ({"kind": "out_of_scope"}, "out_of_scope", "far"),
        ({"kind": "cross_collection"}, "cross_collection", "far"),
        ({"kind": "conversational"}, "conversational", "far"),
        ({"kind": "underspecified"}, "underspecified", ""),
        ({"kind": "near", "nearness": "far"}, "near", "far"),
        ({"kind": "odd"}, "odd", "near"),
        ({"kind": "no_offer_here"}, "no_offer_here", "far"),
        ({"kind": "near", "answerable": True}, "near", ""),
        ({}, "", ""),
    ],
)
def test_what_an_unanswerable_query_is_near_to(tmp_path, metadata, kind, nearness):
    folder = beir(
        tmp_path,
        [query("q1", **{"answerable": False, **metadata})],
        {"test": [("q1", "a", 1)] if metadata.get("answerable") else []},
        "near: [odd]\nfar: [no_offer_here]\nanswers_from: 1\n",
    )
    (found,) = load_set(folder).queries
    assert (found.kind, found.nearness) == (kind, nearness)


def test_a_nearness_that_is_neither_is_reported_and_left_empty(tmp_path):
    labelled = load_set(
        beir(tmp_path, [query("q1", answerable=False, nearness="close")], {"test": []})
    )
    assert labelled.queries[0].nearness == ""
    assert labelled.faults[0].problem == (
        "query 'q1': nearness 'close' is none of near, far; it is left empty"
    )


def test_a_query_belongs_to_the_split_whose_qrels_judge_it(tmp_path):
    queries = [
        query("q1", split="dev"),
        query("q2"),
        query("q3", answerable=False, split="dev"),
        query("q4", answerable=False),
        query("q5"),
        query("q6", split="test"),
    ]
    qrels = {
        "dev": [("q1", "a", 1), ("q6", "a", 1)],
        "test": [("q2", "a", 1)],
        "train": [("q5", "a", 1)],
    }
    folder = beir(tmp_path, queries, qrels, "splits: [dev, test]\n")
    labelled = load_set(folder)
    assert {q.id: q.split for q in labelled.queries} == {
        "q1": "dev",
        "q2": "test",
        "q3": "dev",
        "q4": "test",
        "q6": "dev",
    }
    assert (labelled.left_out, labelled.counts) == ({}, {"other_split": 1})
    assert [(fault.line, fault.problem) for fault in labelled.faults] == [
        (6, "1 queries name another split than that of the qrels that judge them, the first is "
            "'q6' with 'test'"),
    ]  # fmt: skip
    assert list(texts(load_set(folder, split="dev"))) == ["q1", "q3", "q6"]
    train = load_set(folder, split="train")
    assert [(q.id, q.split) for q in train.queries] == [("q5", "train")]
    assert train.faults == ()
    with pytest.raises(
        DatasetError, match="no split 'final' in qrels; the splits are dev, test, t"
    ):
        load_set(folder, split="final")


def test_a_split_of_its_own_judges_its_queries_by_its_own_rows(tmp_path):
    queries = [query("q1", split="test"), query("q2", split="test")]
    qrels = {
        "test": [("q1", "en", 1), ("q1", "zh", 1), ("q2", "en", 1)],
        "cross": [("q1", "zh", 1)],
    }
    folder = beir(tmp_path, queries, qrels, "splits: [test]\n")
    cross = load_set(folder, split="cross")
    assert grades(cross) == {"q1": {"zh": 1}}
    assert (cross.faults, cross.left_out) == ((), {})
    assert grades(load_set(folder))["q1"] == {"en": 1, "zh": 1}


def test_a_query_whose_split_has_no_qrels_is_lost_and_counted(tmp_path):
    queries = [query("q1"), query("q2", split="train", answerable=False)]
    labelled = load_set(beir(tmp_path, queries, {"test": [("q1", "a", 1)]}))
    assert labelled.left_out == {"no_split": 1}
    assert labelled.faults[0].problem == (
        "1 queries belong to no split with a qrels file, the first is 'q2' with 'train'"
    )


@pytest.mark.parametrize(
    ("queries", "qrels", "declaration", "message"),
    [
        pytest.param(
            [query("q1", answerable=False)],
            {"test": [("q1", "b", 1), ("q1", "a", 2)]},
            "answers_from: 2\n",
            r"qrels/test\.tsv:3: query 'q1' is declared unanswerable, but document 'a' has score 2"
            "; allowed is a score below answers_from 2",
            id="method 2: a contradiction",
        ),
        pytest.param(
            [query("q1")],
            {"test": [("q1", "a", 1), ("q1", "a", 2)]},
            None,
            r"qrels/test\.tsv:3: query 'q1' and document 'a' have score 2 here and 1 in line 2",
            id="one pair, two grades",
        ),
        pytest.param(
            [query("q1")],
            {"test": [("q1", "a", 1.5)]},
            None,
            r"qrels/test\.tsv:2: score '1\.5' is no whole number",
            id="a score in between",
        ),
        pytest.param(
            [query("q1")], {"test": [("q1", "a", "nan")]}, None, "score 'nan' is no", id="nan"
        ),
        pytest.param(
            [query("q1")],
            {"test": [("q1", "", 1)]},
            None,
            r"test\.tsv:2: the id of the query or of the document is empty",
            id="no document",
        ),
        pytest.param(
            [query("q1")],
            {"test": [("q1", "a")]},
            None,
            r"test\.tsv:2: the row has 2 cells, the header 3",
            id="no score",
        ),
        pytest.param(
            [query("q1"), query("q1", text="why")],
            {"test": [("q1", "a", 1)]},
            None,
            r"queries\.jsonl:2: query id 'q1' stands for 'why' here and for 'how' in line 1",
            id="DS-04",
        ),
        pytest.param(
            [query("q1"), query("q1", lang="en")],
            {"test": [("q1", "a", 1)]},
            None,
            "query id 'q1' is already in line 1, with other metadata",
            id="DS-04: other metadata",
        ),
        pytest.param(
            [query("q1")],
            {"dev": [("q1", "a", 1)], "test": [("q1", "b", 1)]},
            "splits: [dev, test]\n",
            r"test\.tsv:2: query 'q1' is judged in dev too; a query belongs to one split",
            id="in two splits",
        ),
        pytest.param(
            [query("q1")], {"dev": [("q1", "a", 1)]}, None, "no split 'test'.*are dev", id="no test"
        ),
        pytest.param(
            [query("q1")],
            {"test": [("q1", "a", 0)]},
            None,
            "^0 queries in .*: 1 no_judgement$",
            id="nothing usable",
        ),
        pytest.param(
            [{**query("q1"), "relevant": ["a"]}],
            {"test": [("q1", "a", 1)]},
            None,
            "there are labels in 'relevant' and in qrels",
            id="labels in two places",
        ),
    ],
)
def test_a_folder_that_contradicts_itself_is_refused(
    tmp_path, queries, qrels, declaration, message
):
    with pytest.raises(DatasetError, match=message) as caught:
        load_set(beir(tmp_path, queries, qrels, declaration))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("answers_from: 0\n", "answers_from: got 0; input should be greater than or equal to 1"),
        ("answers_from: two\n", "answers_from: got 'two'; input should be a valid integer"),
        ("answer_from: 2\n", "unknown key 'answer_from'; did you mean 'answers_from'"),
        ("judged: half\n", "judged: got 'half'; input should be 'complete' or 'pooled'"),
        ("splits: []\n", "splits: got"),
        ("splits: [a, a]\n", "names one twice"),
        ("languages: [no]\n", "languages.0: got False; input should be a valid string"),
        ("near: [x]\nfar: [x]\n", "the kind 'x' is listed as near and as far"),
        ("- a\n", "a mapping is expected, found list"),
        ("a: [\n", "not valid YAML"),
    ],
)
def test_a_wrong_declaration_is_refused_with_key_and_value(tmp_path, declaration, message):
    folder = beir(tmp_path, [query("q1")], {"test": [("q1", "a", 1)]}, declaration)
    with pytest.raises(DatasetError, match=message) as caught:
        load_set(folder)
    assert "dataset.yml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_doubled_labels_and_unknown_queries_are_warnings_with_counts(tmp_path):
    rows = [("q1", "a", 1), ("q1", "a", 1), ("q8", "a", 1), ("q8", "b", 1), ("q9", "a", 1)]
    labelled = load_set(beir(tmp_path, [query("q1"), query("q1")], {"test": rows}))
    assert labelled.counts == {"doubled_labels": 1, "unknown_queries": 2}
    assert labelled.left_out == {"duplicate": 1}
    assert [(Path(fault.file).name, fault.line, fault.severity) for fault in labelled.faults] == [
        ("test.tsv", 3, "warning"),
        ("test.tsv", 4, "warning"),
        ("queries.jsonl", 2, "warning"),
    ]
    assert labelled.faults[1].problem == (
        "2 judged queries are not in queries.jsonl, the first is 'q8'"
    )
    load_set(labelled.folder, strict=True)  # nothing was lost


def test_a_header_that_is_missing_does_not_swallow_the_first_row(tmp_path):
    folder = beir(tmp_path, [query("q1")], {"test": [("q1", "a", 1)]})
    written(folder, "qrels/test.tsv", "q1\ta\t1\nq1\tb\t1\n")
    with pytest.raises(
        DatasetError, match=r"no column query-id or .*columns found are 'q1', 'a', '1'"
    ):
        load_set(folder)


def test_the_fingerprint_follows_texts_and_labels_and_nothing_else(tmp_path):
    queries = [query("q1", lang="en"), query("q2", answerable=False)]
    rows = [("q1", "a", 2), ("q1", "b", 1)]

    def print_of(name, queries, rows, declaration="answers_from: 2\n"):
        return load_set(beir(tmp_path / name, queries, {"test": rows}, declaration)).fingerprint

    first = print_of("1", queries, rows)
    assert first == print_of("2", queries[::-1], rows[::-1])
    assert first == print_of("3", [query("q1", lang="zh"), queries[1]], rows)
    others = [
        print_of("4", [query("q1", text="why"), queries[1]], rows),
        print_of("5", queries, [("q1", "a", 2), ("q1", "b", 2)]),
        print_of("6", queries, rows[:1]),
        print_of("7", queries[:1], rows),
        print_of("8", queries, rows, "answers_from: 1\n"),
        print_of("9", [query("q1", needs=[["a"]]), queries[1]], rows),
    ]
    assert len({first, *others}) == 7


# --- sessions -------------------------------------------------------------------------------


def test_sessions_are_read_with_their_labels_and_without(tmp_path):
    lines = [
        {
            "session_id": "s1",
            "split": "test",
            "turns": [
                {"query": "how", "query_id": "q1", "relevant": ["a", "b"], "answerable": True},
                {"query": "no", "relevant": [], "answerable": False, "domains": ["x"]},
            ],
        },
        {
            "session_id": "s2",
            "relevant": ["c"],
            "turns": [{"query": "hm", "relevant": None, "answerable": None}],
        },
    ]
    written(tmp_path, "sessions.jsonl", "\n".join(map(json.dumps, lines)))
    sessions, faults = load_sessions(tmp_path)
    assert sessions == (
        Session(
            "s1",
            (
                Turn("how", "q1", ("a", "b"), True),
                Turn("no", None, (), False, {"domains": ["x"]}),
            ),
            metadata={"split": "test"},
        ),
        Session("s2", (Turn("hm"),), relevant=("c",)),
    )
    assert faults == ()


def test_what_cannot_be_replayed_is_named_and_the_rest_is_kept(tmp_path):
    lines = [
        '{"session_id": "s1", "turns": [{"query": " "}, {"query": 7}, {"query": "ok"}, "x"]}',
        '{"session_id": "s1", "turns": [{"query": " "}, {"query": 7}, {"query": "ok"}, "x"]}',
        "",
        '{"turns": []}',
        '{"session_id": "s2", "turns": []}',
        '{"session_id": "s3", "turns": {}}',
        '{"session_id": "s4", "turns": [{"query": "a", "relevant": ["d"], "answerable": false}]}',
        '{"session_id": "s5", "turns": [{"query": "a", "relevant": "d"}]}',
        "{",
    ]
    path = written(tmp_path, "s.jsonl", "\n".join(lines))
    sessions, faults = load_sessions(path)
    assert [(s.session_id, s.turns) for s in sessions] == [
        ("s1", (Turn("ok"),)),
        ("s4", (Turn("a"),)),
    ]
    assert [(fault.line, fault.severity, fault.problem) for fault in faults] == [
        (1, "error", "session 's1', turn 1: the query is empty"),
        (1, "error", "session 's1', turn 2: the query is the number 7"),
        (1, "error", "session 's1', turn 4: 'x' is no turn; a mapping with a query is expected"),
        (2, "warning", "session 's1' repeats line 1"),
        (4, "error", "the session has no session_id"),
        (5, "error", "session 's2' has no usable turn"),
        (6, "error", "session 's3': turns is a mapping; a list is expected"),
        (
            7,
            "warning",
            "session 's4', turn 1: it is declared unanswerable but names documents; its labels "
            "are not used",
        ),
        (
            8,
            "error",
            "session 's5' has no usable turn; turn 1: relevant is 'd'; a list of "
            "documents' ids is expected",
        ),
        (
            9,
            "error",
            "not valid JSON: Expecting property name enclosed in double quotes at column 2",
        ),
    ]
    with pytest.raises(DatasetError, match=r"s\.jsonl:1: session 's1', turn 1: the query is empty"):
        load_sessions(path, strict=True)


def test_one_id_for_two_sessions_is_refused(tmp_path):
    lines = [json.dumps({"session_id": "s", "turns": [{"query": q}]}) for q in ("a", "b")]
    path = written(tmp_path, "sessions.jsonl", "\n".join(lines))
    with pytest.raises(DatasetError, match=r"jsonl:2: session 's' is another one than in line 1"):
        load_sessions(path)
    with pytest.raises(DatasetError, match="0 sessions in"):
        load_sessions(written(tmp_path, "empty.jsonl", "\n"))
    with pytest.raises(DatasetError, match="no such file"):
        load_sessions(tmp_path / "nowhere.jsonl")


# --- the real sets --------------------------------------------------------------------------


@pytest.mark.data
@real_sets
@pytest.mark.parametrize(
    ("name", "split", "loaded", "expects_nothing", "labels"),
    [
        ("clinc150", "dev", 3200, 200, 3000),
        ("clinc150", "test", 5500, 1000, 4500),
        ("cranfield", "test", 225, 0, 1611),
        ("crosswoz_zh", "dev", 3523, 217, 3950),
        ("crosswoz_zh", "test", 3510, 209, 3922),
        ("mtrag", "dev", 507, 175, 851),
        ("mtrag", "test", 159, 9, 395),
        ("stard_law_zh", "dev", 615, 100, 924),
        ("stard_law_zh", "test", 1228, 200, 1793),
        ("tau_banking_kb", "test", 97, 0, 949),
        ("xquad_en_zh", "test", 2380, 0, 4760),
        ("xquad_en_zh", "mono", 2380, 0, 2380),
        ("xquad_en_zh", "cross", 2380, 0, 2380),
    ],
)
def test_the_real_sets_load_whole(name, split, loaded, expects_nothing, labels):
    labelled = load_set(SETS / name, split=split, strict=True)
    assert (labelled.name, len(labelled)) == (name, loaded)
    assert summary(labelled)["expects_nothing"] == expects_nothing
    assert sum(len(q.grades) for q in labelled.queries) == labels
    assert {q.split for q in labelled.queries} == {split}
    assert (labelled.faults, labelled.left_out) == ((), {})
    assert labelled.answers_from_declared


@pytest.mark.data
@real_sets
def test_all_splits_together_are_all_queries_of_the_real_sets():
    expected = {
        "clinc150": (8700, 1200),
        "cranfield": (225, 0),
        "crosswoz_zh": (7033, 426),
        "mtrag": (666, 184),
        "stard_law_zh": (1843, 300),
        "tau_banking_kb": (97, 0),
        "xquad_en_zh": (2380, 0),
    }
    found = {name: load_set(SETS / name) for name in expected}
    counts = {name: (len(s), summary(s)["expects_nothing"]) for name, s in found.items()}
    assert counts == expected
    kinds = {(q.kind, q.nearness) for s in found.values() for q in s.queries if not q.answerable}
    assert kinds == {
        ("out_of_scope", "far"),
        ("no_offer", "near"),
        ("unanswerable", "near"),
        ("underspecified", ""),
        ("conversational", "far"),
        ("cross_collection", "far"),
    }


@pytest.mark.data
@real_sets
@pytest.mark.parametrize(
    ("name", "sessions", "turns", "labelled_turns"),
    [("crosswoz_zh", 995, 7028, 7028), ("mtrag", 20, 159, 159), ("tau_banking_kb", 80, 974, 0)],
)
def test_the_real_sessions_load_whole(name, sessions, turns, labelled_turns):
    found, faults = load_sessions(SETS / name, strict=True)
    assert faults == ()
    assert (len(found), sum(len(s.turns) for s in found)) == (sessions, turns)
    assert sum(t.relevant is not None for s in found for t in s.turns) == labelled_turns
    assert all(s.relevant for s in found) == (labelled_turns == 0)
