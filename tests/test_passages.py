"""Passages: the title in front, whole paragraphs, and no character lost (design.md 15, ST-01)."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbeval.corpus.documents import load_corpus
from kbeval.corpus.passages import cut_passages, passage_prefix, shortened_titles
from kbeval.corpus.pieces import blocks, finer
from kbeval.errors import ConfigError
from kbeval.records import Document, Passage

CASES = Path(__file__).parent / "cases"


def words(texts):
    return [len(text.split()) for text in texts]


def characters(texts):
    return [len("".join(text.split())) for text in texts]


def tokens(texts):
    """Like a real tokenizer: words, CJK characters and marks, and two special tokens a text."""
    return [2 + len(re.findall(r"[a-zA-Z0-9]+|[^\sa-zA-Z0-9]", text)) for text in texts]


def solid(text):
    return "".join(text.split())


def cut(body, *, title="T", summary="", count=words, passage_tokens=16):
    document = Document("a.md", title, body, summary=summary)
    return [p.text for p in cut_passages([document], count, passage_tokens=passage_tokens)]


def n_words(name, count):
    return " ".join([name] * count)


def test_st01_the_sentence_at_the_end_of_a_long_document_is_in_a_passage():
    corpus = load_corpus(CASES / "ST-01")
    passages = cut_passages(corpus.documents, words, passage_tokens=64)
    assert "To rotate the gateway certificate, run the renew playbook." in passages[-1].text
    assert max(p.token_count for p in passages) <= 64
    (body,) = words([corpus.documents[0].body])
    assert sum(p.token_count - 2 for p in passages) == body  # the title has two
    assert all(p.text.startswith("Gateway notes\n") for p in passages)


def test_st02_a_document_without_a_body_is_one_passage_of_title_and_summary():
    documents = load_corpus(CASES / "ST-02").documents
    assert cut_passages(documents, characters, passage_tokens=64) == [
        Passage(0, "恢复演练清单\n每季度一次的恢复演练", 16)
    ]


@pytest.mark.parametrize(
    ("title", "summary", "body", "expected"),
    [
        ("T", "", "", ["T"]),
        ("T", "", " \n\n", ["T"]),
        ("T", "S", "", ["T\nS"]),
        ("T", "S", "B", ["T\nS\n\nB"]),
        ("", "", "B", ["B"]),
        ("", "", "", []),
    ],
)
def test_a_document_that_fits_is_one_passage(title, summary, body, expected):
    assert cut(body, title=title, summary=summary) == expected


def test_the_title_stands_in_every_passage_and_the_summary_in_the_first():
    first, second = cut(f"{n_words('a', 9)}\n\n{n_words('b', 12)}", summary="S s")
    assert (first, second) == (f"T\nS s\n\n{n_words('a', 9)}", f"T\n{n_words('b', 12)}")


def test_whole_paragraphs_are_packed_up_to_the_room():
    five = [n_words(name, 5) for name in "abcd"]
    assert cut("\n\n".join(five)) == ["T\n" + "\n\n".join(five[:3]), "T\n" + five[3]]


def test_a_document_that_fits_is_not_cut_at_its_headings():
    body = f"{n_words('a', 9)}\n# h\n{n_words('b', 3)}"
    assert cut(body) == [f"T\n{body}"]


@pytest.mark.parametrize(
    ("before", "passages"),
    [
        pytest.param(4, ["{a}\n# h\n{b}", "{c}"], id="half full or less: packed on"),
        pytest.param(8, ["{a}", "# h\n{b}\n\n{c}"], id="more than half full: a new passage"),
    ],
)
def test_a_heading_begins_a_new_passage_if_the_packed_one_is_more_than_half_full(before, passages):
    parts = {"a": n_words("a", before), "b": n_words("b", 4), "c": n_words("c", 6)}
    body = "{a}\n# h\n{b}\n\n{c}".format(**parts)
    assert cut(body) == ["T\n" + passage.format(**parts) for passage in passages]


def test_a_heading_stays_with_what_follows_it():
    body = f"{n_words('a', 7)}\n\n# h\n\n## i\n\n{n_words('b', 6)}"
    assert cut(body) == [f"T\n{n_words('a', 7)}", f"T\n# h\n\n## i\n\n{n_words('b', 6)}"]


def test_a_heading_stays_even_with_a_paragraph_that_only_just_fits_alone():
    body = f"# h\n\n{n_words('a', 8)}. {n_words('b', 7)}"
    assert cut(body) == [f"T\n# h\n\n{n_words('a', 8)}.", f"T\n{n_words('b', 7)}"]


def test_a_long_paragraph_is_cut_at_sentence_ends_of_both_languages():
    first, second, third = n_words("a", 9) + "?", n_words("b", 9) + '."', n_words("c", 9) + "."
    assert cut(f"{first} {second} {third}") == [f"T\n{first}", f"T\n{second}", f"T\n{third}"]
    zh = ["先确认配额是否足够。", "再加入新的节点！”", "最后检查一遍集群"]
    assert cut("".join(zh), count=characters) == [f"T\n{sentence}" for sentence in zh]


def test_numbers_and_names_hold_no_sentence_end():
    body = "v1.10 a.md x!y " + n_words("a", 20)
    parts = [body[p.start : p.end] for p in finer(body, blocks(body)[0], tokens=23, room=30)]
    assert "".join(parts) == body
    assert parts[0].startswith("v1.10 a.md x!y")


def test_lines_come_before_blanks_and_keep_their_indentation():
    lines = [f"- {n_words('a', 9)}", f"  - {n_words('b', 9)}"]
    assert cut("\n".join(lines)) == [f"T\n{line}" for line in lines]


def test_fenced_code_is_one_paragraph_and_is_cut_at_lines_only_if_it_is_too_long():
    code = "```sh\na b. c d\n\n# e f\n```"
    assert cut(f"{n_words('a', 9)}\n{code}") == [f"T\n{n_words('a', 9)}", f"T\n{code}"]
    long = f"~~~\n{n_words('x.', 9)}\n{n_words('y.', 9)}\n~~~"
    assert cut(long) == [f"T\n~~~\n{n_words('x.', 9)}", f"T\n{n_words('y.', 9)}\n~~~"]


def test_what_has_no_boundary_is_cut_at_chinese_marks_and_at_characters():
    passages = cut("某个词语，" * 20, count=characters)
    assert all(passage.endswith("，") for passage in passages)
    assert "".join(passage[2:] for passage in passages) == "某个词语，" * 20
    passages = cut("x" * 100, count=characters)
    assert "".join(passage[2:] for passage in passages) == "x" * 100
    assert max(characters(passages)) <= 16


def test_a_title_longer_than_half_the_room_is_shortened_in_the_prefix_and_counted():
    long = Document("a.md", n_words("t", 20), n_words("a", 20))
    short = Document("b.md", n_words("t", 8), "b")
    passages = cut_passages([short, long], words, passage_tokens=16)
    assert shortened_titles([short, long], passages) == [1]
    assert [p.text.split("\n")[0].split() for p in passages if p.document == 1] == [["t"] * 8] * 3
    assert passage_prefix(long) == n_words("t", 20) + "\n"


def test_special_tokens_are_counted_once_a_passage():
    body = "\n\n".join(n_words(name, 4) for name in "abcdef")
    passages = cut_passages([Document("a.md", "T", body)], tokens, passage_tokens=16)
    assert [p.token_count for p in passages] == tokens([p.text for p in passages]) == [15, 15]


def test_texts_are_counted_in_batches_and_none_twice():
    batches = []

    def counted(texts):
        batches.append(list(texts))
        return words(texts)

    bodies = [f"{i}\n\n" + " ".join(f"x{i}-{j}" for j in range(30)) for i in range(50)]
    documents = [Document(f"{i}.md", f"t{i}", body) for i, body in enumerate(bodies)]
    cut_passages(documents, counted, passage_tokens=16)
    texts = [text for batch in batches for text in batch]
    assert len(set(texts)) == len(texts)
    assert len(batches) < 7


def test_a_passage_has_to_have_room():
    with pytest.raises(ConfigError, match="passage-tokens must be at least 16, got 15"):
        cut("a", passage_tokens=15)


BODIES = st.lists(
    st.sampled_from(
        [
            "a b ",
            "word",
            "e.g. x",
            "。",
            "好的，",
            "! ",
            "\n",
            "\n\n",
            "# h\n",
            "```\n",
            "~~~~",
            "- ",
            "\u3000",
            "\r\n",
        ]
    )
    | st.text(max_size=12),
    max_size=60,
).map("".join)


@settings(max_examples=200, deadline=None)
@given(BODIES, st.sampled_from([words, characters, tokens]), st.integers(16, 40))
def test_passages_hold_every_solid_character_in_order_and_fit(body, count, passage_tokens):
    document = Document("a.md", "Title", body, summary="Sum. Mary")
    passages = cut_passages([document], count, passage_tokens=passage_tokens)
    prefix = passage_prefix(document)
    assert all(p.text.startswith(prefix) for p in passages)
    assert solid("".join(p.text[len(prefix) :] for p in passages)) == solid("Sum. Mary" + body)
    assert max(p.token_count for p in passages) <= passage_tokens
    assert max(count([p.text for p in passages])) <= passage_tokens


@settings(deadline=None)
@given(st.lists(BODIES, min_size=2, max_size=5))
def test_cutting_many_documents_is_cutting_each(bodies):
    documents = [Document(f"{i}.md", f"T{i}", body) for i, body in enumerate(bodies)]
    together = cut_passages(documents, tokens, passage_tokens=20)
    for index, document in enumerate(documents):
        alone = cut_passages([document], tokens, passage_tokens=20)
        assert [(p.text, p.token_count) for p in together if p.document == index] == [
            (p.text, p.token_count) for p in alone
        ]


@given(BODIES)
def test_blocks_hold_every_solid_character_once(text):
    assert solid("".join(text[p.start : p.end] for p in blocks(text))) == solid(text)
