"""What the model is told: the specs' sentences in zh and en, and the LookupResult as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kbeval.records import Level, Locale, LookupResult, PrimaryResult, SupplementResult

HINTS: dict[Locale, dict[Level, str]] = {
    "zh": {
        Level.PRECISE: "知识库中不存在比上述结果更精准的文档",
        Level.HIGHLY_RELEVANT: "当前结果已高度相关，继续检索不太可能找到更精准的文档",
        Level.REFERENCE: "当前结果为相关参考，如需更精准信息请明确缺少的具体维度",
    },
    "en": {
        Level.PRECISE: "The knowledge base holds no document more precise than these results",
        Level.HIGHLY_RELEVANT: "These results are highly relevant; searching on is unlikely to "
        "find a more precise document",
        Level.REFERENCE: "These results are related references; if you need something more "
        "precise, name the specific aspect that is missing",
    },
}

MESSAGES: dict[Locale, dict[str, str]] = {
    "zh": {
        "nothing_similar": "知识库中没有与该查询足够相似的文档",
        "empty_index": "知识库中没有任何文档",
        "empty_query": "查询为空",
        "all_retrieved": "以下文档已在本会话中检索过：[{paths}]，无需重复召回",
        "more": "另有 {count} 篇",
        "primary_withheld": "最相关的文档 {path} 已在本会话中检索过，以下为其余结果",
    },
    "en": {
        "nothing_similar": "No document in the knowledge base is similar enough to this query",
        "empty_index": "The knowledge base holds no documents",
        "empty_query": "empty query",
        "all_retrieved": "These documents were already retrieved in this session: [{paths}]; "
        "there is no need to recall them again",
        "more": "and {count} more",
        "primary_withheld": "The most relevant document {path} was already retrieved in this "
        "session; what follows are the other results",
    },
}

LISTED = 20  # documents that a notice names before it counts the rest


def message(locale: Locale, name: str, **values: object) -> str:
    """One of the product's sentences."""
    return MESSAGES[locale][name].format(**values)


def already_retrieved(locale: Locale, paths: Sequence[str]) -> str:
    """The notice of REQ-01.3: the first 20 paths by rank, then how many more.

    >>> already_retrieved("en", ["a.md"])[-37:]
    'there is no need to recall them again'
    """
    listed = ", ".join(paths[:LISTED])
    if len(paths) > LISTED:
        listed += ", " + message(locale, "more", count=len(paths) - LISTED)
    return message(locale, "all_retrieved", paths=listed)


def answer_text(result: LookupResult) -> str:
    """The result as the text that a tool call hands to the model.

    Raises `ValueError` for what JSON cannot hold.
    """
    return _text(result_json(result))


def answer_pieces(result: LookupResult) -> tuple[str, tuple[str, ...]]:
    """The answer's text with its documents taken out, and the text of each, the primary first.

    An empty object is left in the primary's place, so that its braces count as in the whole.

    >>> answer_pieces(LookupResult(False, "none"))[0][:51]
    '{"found": false, "message": "none", "primary": null'
    """
    whole = result_json(result)
    primary, supplements = whole["primary"], whole["supplements"]
    frame = _text({**whole, "primary": None if primary is None else {}, "supplements": []})
    documents = supplements if primary is None else [primary, *supplements]
    return frame, tuple(_text(document) for document in documents)


def result_json(result: LookupResult) -> dict[str, Any]:
    """The result as the model reads it: the specs' field names, nothing else (FS-4)."""
    primary = result.primary
    return {
        "found": result.found,
        "message": result.message,
        "primary": None if primary is None else _document_json(primary),
        "supplements": [_document_json(supplement) for supplement in result.supplements],
        "relevanceLevel": result.relevance_level,
        "completenessHint": result.completeness_hint,
        "retrievedDomainsThisSession": list(result.retrieved_domains_this_session),
    }


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _document_json(document: PrimaryResult | SupplementResult) -> dict[str, str]:
    return {
        "filePath": document.file_path,
        "title": document.title,
        "domain": document.domain,
        "content": document.content,
    }
