"""Documents cut into passages: the title in front, then whole paragraphs (design.md 15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kbeval.corpus.pieces import Piece, blocks, finer
from kbeval.errors import ConfigError
from kbeval.records import Document, Passage

MIN_PASSAGE_TOKENS = 16

CountTokens = Callable[[Sequence[str]], Sequence[int]]
_Counted = tuple[Piece, int]  # a piece and its tokens


def passage_prefix(document: Document) -> str:
    r"""What stands in front of each passage of a document: its title and a line break.

    Empty for a document without a title. In a passage it is shortened if the title would take
    more than half of the room.

    >>> passage_prefix(Document("a.md", "Rate limits", "Body."))
    'Rate limits\n'
    """
    return f"{document.title}\n" if document.title else ""


def cut_passages(
    documents: Sequence[Document], count_tokens: CountTokens, *, passage_tokens: int
) -> list[Passage]:
    """Cut every document into passages of at most `passage_tokens` tokens, the title included.

    The summary comes first, then the body. Whole paragraphs are packed; one that is longer than
    the room is cut at sentence ends, then at line ends, blanks, characters, so that no character
    is lost. Fenced code is one paragraph. A heading stays with what follows it, and begins a new
    passage if the one being packed is more than half full. A document that fits is one passage,
    also one without a body; only a document without any text has none.

    `count_tokens` is called with whole batches, each text once; special tokens it may add to
    every text are found out and counted once a passage, and `Passage.token_count` is the sum of
    the parts. Raises `ConfigError` for a `passage_tokens` below 16.
    """
    if passage_tokens < MIN_PASSAGE_TOKENS:
        raise ConfigError(
            f"passage-tokens must be at least {MIN_PASSAGE_TOKENS}, got {passage_tokens}"
        )
    count, special = _plain_count(count_tokens)
    prefixes = _prefixes(documents, count, passage_tokens // 2)
    texts = ["\n\n".join(filter(str.strip, (d.summary, d.body))) for d in documents]
    rooms = [passage_tokens - special - prefixes[d.title][1] for d in documents]
    passages: list[Passage] = []
    for index, pieces in enumerate(_fitting(texts, rooms, count)):
        prefix, title_tokens = prefixes[documents[index].title]
        for start, end, tokens in _packed(pieces, rooms[index]):
            text = prefix + texts[index][start:end].rstrip()
            passages.append(Passage(index, text, special + title_tokens + tokens))
        if not pieces and prefix:
            passages.append(Passage(index, prefix.rstrip("\n"), special + title_tokens))
    return passages


def shortened_titles(documents: Sequence[Document], passages: Sequence[Passage]) -> list[int]:
    """Positions of the documents whose title was too long to stand whole in their passages."""
    return sorted(
        {
            passage.document
            for passage in passages
            if not passage.text.startswith(documents[passage.document].title)
        }
    )


def _plain_count(count_tokens: CountTokens) -> tuple[Callable[[Sequence[str]], list[int]], int]:
    """A count without the special tokens of each text, and their number.

    Twice "a" less "a a" leaves what a text costs by itself.
    """
    one, two = count_tokens(["a", "a a"])
    special = max(2 * one - two, 0)

    def count(texts: Sequence[str]) -> list[int]:
        return [max(tokens - special, 0) for tokens in count_tokens(texts)] if texts else []

    return count, special


def _prefixes(
    documents: Sequence[Document], count: Callable[[Sequence[str]], list[int]], limit: int
) -> dict[str, tuple[str, int]]:
    """For each title the text in front of passages, at most `limit` tokens long, and its tokens."""
    titles = list(dict.fromkeys(document.title for document in documents if document.title))
    prefixes = {"": ("", 0)}
    for title, tokens in zip(titles, count(titles), strict=True):
        short = title
        while tokens > limit and len(short) > 1:
            short = short[: max(min(len(short) * limit // tokens, len(short) - 1), 1)].rstrip()
            tokens = count([short])[0]
        prefixes[title] = (f"{short}\n", tokens)
    return prefixes


def _fitting(
    texts: Sequence[str], rooms: Sequence[int], count: Callable[[Sequence[str]], list[int]]
) -> list[list[_Counted]]:
    """The pieces of each text, cut until each fits; every round counts all new pieces at once."""
    pieces: list[list[Piece]] = [blocks(text) for text in texts]
    tokens: dict[tuple[int, Piece], int] = {}
    open_texts = list(range(len(texts)))
    while open_texts:
        new = [(i, piece) for i in open_texts for piece in pieces[i] if (i, piece) not in tokens]
        counts = count([texts[i][piece.start : piece.end] for i, piece in new])
        tokens.update(zip(new, counts, strict=True))
        still_open = []
        for i in open_texts:
            counted = [(piece, tokens[i, piece]) for piece in pieces[i]]
            pieces[i] = list(_refined(texts[i], counted, rooms[i]))
            if pieces[i] != [piece for piece, _ in counted]:
                still_open.append(i)
        open_texts = still_open
    return [[(piece, tokens[i, piece]) for piece in own] for i, own in enumerate(pieces)]


def _refined(text: str, counted: Sequence[_Counted], room: int) -> Iterator[Piece]:
    """The pieces, those too long in parts; what follows a heading has to fit beside it."""
    if sum(tokens for _, tokens in counted) <= room:
        yield from (piece for piece, _ in counted)
        return
    headings = 0
    for piece, tokens in counted:
        limit = room - headings if headings <= room // 2 else room
        if tokens > limit and piece.end - piece.start > 1:
            yield from finer(text, piece, tokens=tokens, room=limit)
        else:
            yield piece
        headings = headings + tokens if piece.kind == "heading" else 0


def _packed(pieces: Sequence[_Counted], room: int) -> Iterator[tuple[int, int, int]]:
    """Passages as (start, end, tokens): pieces taken in order as long as they fit."""
    if sum(tokens for _, tokens in pieces) <= room:
        if pieces:
            yield pieces[0][0].start, pieces[-1][0].end, sum(tokens for _, tokens in pieces)
        return
    start, end, packed, after_heading = pieces[0][0].start, 0, 0, False
    for index, (piece, tokens) in enumerate(pieces):
        begins = piece.kind == "heading" and not after_heading
        needed = _with_follower(pieces, index) if begins else tokens
        if packed and (packed + needed > room or (begins and packed > room / 2)):
            yield start, end, packed
            start, packed = piece.start, 0
        end, packed, after_heading = piece.end, packed + tokens, piece.kind == "heading"
    yield start, end, packed


def _with_follower(pieces: Sequence[_Counted], index: int) -> int:
    """Tokens of a run of headings and of the first piece behind it."""
    total = 0
    for piece, tokens in pieces[index:]:
        total += tokens
        if piece.kind != "heading":
            break
    return total
