"""How many tokens an answer costs the model that reads it (method.md 12)."""

from __future__ import annotations

from dataclasses import dataclass

from kbeval.corpus.tokens import Tokenizer
from kbeval.records import LookupResult
from kbeval.retrieval.answer import answer_pieces


@dataclass(frozen=True, slots=True)
class ResultTokens:
    """Tokens of an answer in parts that add up: the frame, and each document's JSON object."""

    frame: int  # of the answer as it would be without its documents
    documents: tuple[int, ...]  # the primary first

    @property
    def total(self) -> int:
        """Tokens of the whole answer."""
        return self.frame + sum(self.documents)


def result_tokens(result: LookupResult, tokenizer: Tokenizer) -> ResultTokens:
    """Count what `handle_tool_call` would hand to the model, piece by piece.

    A document costs the same in every answer, so parts add up exactly and a document is counted
    once. With deepseek's vocabulary the sum is at most one token above the count of the whole.
    """
    frame, documents = answer_pieces(result)
    counts = tokenizer.count_all([frame, *documents])
    return ResultTokens(counts[0], tuple(counts[1:]))
