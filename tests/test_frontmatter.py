"""Front matter: text stays text, every fault has its line and its remedy (REQ-05, FM-01..05)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.corpus.frontmatter import MAX_VALUES, parse_front_matter
from kbeval.records import Fault

CASES = Path(__file__).parent / "cases"


def read(name):
    return parse_front_matter((CASES / name).read_bytes().decode("utf-8"), name)


def parsed(block, body="Body.\n"):
    return parse_front_matter(f"---\n{block}\n---\n{body}", "a.md")


def faults(block):
    return [str(fault) for fault in parsed(block).faults]


def test_fm01_a_byte_order_mark_and_crlf_are_nothing():
    bom, clean = read("FM-01/runbook-bom.md"), read("FM-01/runbook-clean.md")
    assert (bom.fields, bom.body, bom.faults) == (clean.fields, clean.body, ())
    assert clean.fields == {
        "title": "集群扩容手册",
        "category": "infrastructure",
        "covers": ("节点扩容", "节点替换"),
        "when_to_retrieve": "需要增加或替换集群节点时",
    }
    assert bom.body[0] == "#"
    assert bom.body_line == 7


def test_fm02_only_a_line_of_three_dashes_closes_the_block():
    limits = read("FM-02/limits.md")
    assert limits.fields == {
        "title": "Rate limits --- per tenant",
        "covers": ("tenant quota", "burst---sustained"),
        "when_to_retrieve": "a caller gets 429\n---\na quota must be raised",
        "category": "api",
    }
    text = (CASES / "FM-02/limits.md").read_text(encoding="utf-8")
    assert limits.body == text[text.index("# Rate limits") :]
    assert limits.body.count("---") == 4
    assert limits.faults == ()


def test_fm03_plain_scalars_keep_their_spelling_and_an_empty_entry_is_a_warning():
    typed = read("FM-03/typed.md")
    assert typed.fields == {
        "title": "012",
        "category": "no",
        "covers": ("on", "1.10", "2024-01-05", "12:30:00"),
        "when_to_retrieve": "yes",
    }
    assert typed.faults == (
        Fault("FM-03/typed.md", "covers has 1 empty entry", "remove or fill it", 4, "warning"),
    )


def test_fm04_a_list_written_twice_is_taken_together_with_a_warning_naming_both_lines():
    twice = read("FM-04/twice.md")
    assert twice.fields["covers"] == ("全量备份", "增量备份", "恢复演练")
    assert twice.faults == (
        Fault(
            "FM-04/twice.md",
            "key 'covers' is written 2 times, on lines 3 and 6; the lists are taken together",
            "merge them into one",
            6,
            "warning",
        ),
    )


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param(
            "title: Incident: what to do",
            "a.md:2: the title holds an unquoted colon; put the title in quotes",
            id="FM-05: colon",
        ),
        pytest.param(
            "covers:\n\t- gamma",
            "a.md:3: a tab is used as indentation; use spaces instead of the tab",
            id="FM-05: tab",
        ),
        pytest.param(
            "covers:\n - a\n - b: c: d",
            "a.md:4: the entry holds an unquoted colon; put the entry in quotes",
            id="colon in an entry",
        ),
        pytest.param(
            "title: @home",
            "a.md:2: the title begins with a mark that YAML reserves; put the title in quotes",
            id="reserved mark",
        ),
        pytest.param(
            'category: a\ntitle: "open',
            "a.md:3: a quotation mark of the title is never closed; "
            "put the title in quotes at both ends",
            id="open quotation mark, where it began",
        ),
        pytest.param(
            "tags: [a,\n  b\ntitle: c",
            "a.md:2: a bracket of the tags is never closed; close it, or put the tags in quotes",
            id="open bracket, where it began",
        ),
        pytest.param(
            "title: [WIP] Limits",
            "a.md:2: not valid YAML (did not find expected key); put the title in quotes",
            id="any other YAML problem in one line",
        ),
        pytest.param(
            "title: a\nfoo\ncategory: b",
            "a.md:3: 'foo' is no field; write 'field: value', or indent it",
            id="a line without a colon",
        ),
        pytest.param(
            "title:Limits\ncategory:api",
            "a.md:2: the colon after title is full-width or has no blank behind it; "
            "write 'title: value'",
            id="no blank after the colon is not prose",
        ),
        pytest.param(
            "category: ops\ntitle：扩容",
            "a.md:3: the colon after title is full-width or has no blank behind it; "
            "write 'title: value'",
            id="full-width colon",
        ),
        pytest.param(
            "note: \u2028\u0085 x\ntitle: a\x07",
            "a.md:3: the title holds the control character U+0007; remove it",
            id="physical lines, whatever YAML counts as a line",
        ),
        pytest.param(
            "- a\n- b",
            "a.md:2: the front matter is a list; a mapping of field: value is expected; "
            "write each line as 'field: value', or put an empty line above the first rule",
            id="a list is never dropped",
        ),
        pytest.param(
            "category: a\ntitle: [a, b]",
            "a.md:3: title is a list; one text is expected; put the title in quotes",
            id="list where text is due",
        ),
        pytest.param(
            "title: {{ page }}",
            "a.md:2: title is a mapping; one text is expected; put the title in quotes",
            id="mapping where text is due",
        ),
        pytest.param(
            "covers: {a: b}",
            "a.md:2: covers is a mapping; a list of texts is expected; "
            "write one entry a line, each after '- '",
            id="mapping where a list is due",
        ),
        pytest.param(
            "aliases: [[Link]]",
            "a.md:2: aliases has the entry ['Link'], a list; a text is expected; "
            "put the entry in quotes",
            id="list inside a list",
        ),
    ],
)
def test_a_faulty_block_is_an_error_with_line_and_remedy_and_gives_no_fields(block, expected):
    matter = parsed(block)
    assert [str(fault) for fault in matter.faults] == [expected]
    assert matter.faults[0].severity == "error"
    assert (matter.fields, matter.body) == ({}, "Body.\n")


@pytest.mark.parametrize(
    ("text", "body", "problem"),
    [
        pytest.param("No block.\n", "No block.\n", "", id="none at all"),
        pytest.param("", "", "", id="empty file"),
        pytest.param("----\nx\n---\n", "----\nx\n---\n", "", id="four dashes open nothing"),
        pytest.param(
            "---\nBetween two rules.\n---\nx\n",
            "---\nBetween two rules.\n---\nx\n",
            "",
            id="bare text between two rules is body",
        ),
        pytest.param(
            "---\n*Two* rules & @all, see: it\n---\n",
            "---\n*Two* rules & @all, see: it\n---\n",
            "",
            id="prose that is no YAML is body",
        ),
        pytest.param("---\n---\nx\n", "x\n", "", id="empty block"),
        pytest.param("---  \n# only a comment\n---\t\nx\n", "x\n", "", id="trailing blanks"),
        pytest.param(
            "---\nOnly a rule.\n",
            "---\nOnly a rule.\n",
            "three dashes on line 1 open no front matter; they are read as body",
            id="a rule that nothing closes is body, with a warning",
        ),
        pytest.param(
            "\n\n---\ntitle: a\n---\n",
            "\n\n---\ntitle: a\n---\n",
            "the front matter does not start on line 1 and is read as body",
            id="a block below blank lines is body, with a warning",
        ),
    ],
)
def test_what_is_no_front_matter_is_body(text, body, problem):
    matter = parse_front_matter(text, "a.md")
    assert (matter.fields, matter.body) == ({}, body)
    assert [(f.problem, f.severity) for f in matter.faults] == [(problem, "warning")] * bool(
        problem
    )


def test_a_block_that_is_never_closed_but_reads_like_fields_is_an_error():
    (fault,) = parse_front_matter("---\ntitle: a\n\nBody.\n", "a.md").faults
    assert str(fault) == (
        "a.md:1: the front matter is opened and never closed; "
        "put a line of three dashes below the last field"
    )
    assert fault.severity == "error"


@pytest.mark.parametrize(
    ("block", "fields"),
    [
        ("keywords: a, b，c、d", {"keywords": ("a", "b", "c", "d")}),
        ("tags: one", {"tags": ("one",)}),
        ("aliases: Smith, John", {"aliases": ("Smith, John",)}),
        ("covers: scaling, both ways", {"covers": ("scaling, both ways",)}),
        ("covers: [a, a, 'b ']", {"covers": ("a", "b")}),
        ("whenToRetrieve: on 429", {"when_to_retrieve": "on 429"}),
        ("title: 'a: b'\nsummary: |\n  x\n  y\n", {"title": "a: b", "summary": "x\ny"}),
        ("title: >\n  a\n\n  b\n", {"title": "a b"}),
        ("title:\ncovers: []\nsummary: ~\ntags: ''", {}),
        ("title: null", {"title": "null"}),
        ("title: true", {"title": "true"}),
        ("title: !!int '3'", {"title": "3"}),
        ("title: &t x\ncategory: *t", {"title": "x", "category": "x"}),
        (
            "date: 2024-01-05\nn: {a: [1, ~], ? [b] : no}",
            {"date": "2024-01-05", "n": {"a": ["1", None], "[b]": "no"}},
        ),
    ],
)
def test_fields_are_texts_and_lists_of_texts_and_the_rest_stays_as_written(block, fields):
    matter = parsed(block)
    assert matter.fields == fields
    assert matter.faults == ()


@pytest.mark.parametrize(
    ("block", "expected", "fields"),
    [
        (
            "title: a\ntitle: b",
            "a.md:3: key 'title' is written 2 times, on lines 2 and 3; the first value is taken; "
            "merge them into one",
            {"title": "a"},
        ),
        (
            "when_to_retrieve: a\nwhenToRetrieve: b",
            "a.md:3: key 'when_to_retrieve' is written 2 times, on lines 2 and 3; "
            "the first value is taken; merge them into one",
            {"when_to_retrieve": "a"},
        ),
        (
            "Title: a",
            "a.md:2: key 'Title' is kept as metadata, not read as a field; write 'title'",
            {"Title": "a"},
        ),
        (
            "title: Ticket #42",
            "a.md:2: what follows 'Ticket' from the # on is read as a comment; "
            "put the whole value in quotes",
            {"title": "Ticket"},
        ),
        ("n: {a: 1, a: 2}", "a.md:2: key 'a' is written twice; the first value is taken", None),
    ],
)
def test_what_would_be_lost_silently_is_a_warning(block, expected, fields):
    matter = parsed(block)
    assert [str(fault) for fault in matter.faults] == [expected]
    assert matter.faults[0].severity == "warning"
    assert matter.fields == (fields or {"n": {"a": "1"}})


def test_a_comment_with_a_blank_after_its_mark_is_a_comment():
    assert parsed("title: Limits # internal").faults == ()


def test_aliases_cannot_explode():
    rows = [
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    block = "\n".join(["a: &a [x, x, x, x, x, x, x, x, x, x]", *rows])
    assert faults(block)[0].startswith(
        f"a.md:2: the front matter expands to more than {MAX_VALUES} values"
    )


def test_a_value_that_holds_itself_is_an_error():
    assert "expands to more than" in faults("title: a\nb: &x [*x]")[0]


def test_a_nesting_beyond_all_bounds_is_an_error():
    assert faults("a: " + "[" * 100_000)[0].startswith("a.md:2: not valid YAML")


@given(st.text(st.characters(codec="utf-8"), max_size=200), st.booleans())
def test_no_text_raises_and_no_solid_character_of_an_undeclared_body_is_lost(text, ruled):
    text = f"---\n{text}" if ruled else text
    matter = parse_front_matter(text, "a.md")
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    assert plain.endswith(matter.body)
    assert plain.count("\n", 0, len(plain) - len(matter.body)) + 1 == matter.body_line
    if not ruled and not text.startswith(("---", "\ufeff")):
        assert matter.body == plain


@given(st.text("ab 12.:-yesno测试", min_size=1, max_size=20).filter(str.strip))
def test_a_quoted_title_comes_back_as_it_was_written(title):
    assert parsed(f"title: '{title}'").fields == {"title": title.strip()}
