"""`lookup_knowledge` as a model sees it before it calls: the function schema."""

from __future__ import annotations

from typing import Any

from kbeval.errors import ConfigError
from kbeval.records import Locale
from kbeval.retrieval.tool import TOOL_NAME

_DESCRIPTION: dict[Locale, str] = {
    "zh": """检索知识库，返回文档和对结果的判定。
何时使用：当前步骤缺少某条具体信息，而本会话已有的结果中没有它。已交出的文档除非内容有变，不会再次交出，\
换关键词也不会；请回到上文使用它。
返回的字段：
- found：是否交出了文档；message：没有交出时的原因（没有足够相似的文档，\
或匹配的文档都已在本会话中检索过），或哪篇更相关的文档因此被略去
- primary：最应先读的文档；supplements：补充文档；各有 filePath、title、domain、content
- relevanceLevel：PRECISE（没有更精准的文档，停止检索）、HIGHLY_RELEVANT（已高度相关，停止检索）、\
REFERENCE（相关参考，能说出缺少的具体维度时才再检索）、null（没有交出文档）
- completenessHint：继续检索是否还有意义
- retrievedDomainsThisSession：本会话已检索过的域""",
    "en": """Search the knowledge base for documents; a verdict comes with them.
Use it when the current step lacks a specific piece of information that no result of this \
session holds. A document handed out before is not handed out again unless it changed, whatever \
the keywords; go back to it above.
The answer:
- found: whether documents are handed out; message: if not, why (nothing similar enough, or \
all that matches was already retrieved), or which better document was left out
- primary: the document to read first; supplements: further ones; each has filePath, title, \
domain, content
- relevanceLevel: PRECISE (nothing more precise exists, stop), HIGHLY_RELEVANT (stop), REFERENCE \
(related; search on only for a specific aspect you can name), null (no document)
- completenessHint: whether searching on makes sense
- retrievedDomainsThisSession: domains already searched in this session""",
}

_QUERY: dict[Locale, str] = {
    "zh": "缺少的那一条信息，写成完整、具体的问题或短语；错误码、产品名、版本号照原样写；"
    "一次只问一件事",
    "en": "The one piece of information that is missing, as a complete, specific question or "
    "phrase; keep error codes, product names and versions as written; ask one thing at a time",
}


def lookup_tool_schema(*, locale: Locale = "zh") -> dict[str, Any]:
    """The OpenAI function schema of `lookup_knowledge`: one argument, `query`.

    The session is never an argument: the caller knows it, the model must not choose it. Each
    call returns a new dict. Raises `ConfigError` for an unknown locale.
    """
    if locale not in _DESCRIPTION:
        raise ConfigError(f"locale: got {locale!r}; allowed are {', '.join(_DESCRIPTION)}")
    return {
        "type": "function",
        "function": {
            "name": TOOL_NAME,
            "description": _DESCRIPTION[locale],
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": _QUERY[locale]}},
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    }
