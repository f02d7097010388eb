"""A model's tool call: its arguments in, what is wrong with them as the model can read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kbeval.records import Locale
from kbeval.retrieval.tool import TOOL_NAME

_MESSAGES: dict[Locale, dict[str, str]] = {
    "zh": {
        "not_json": '工具参数不是合法的 JSON；应为 {{"query": "要检索的内容"}}',
        "not_object": '工具参数应为 JSON 对象，实际为 {found}；应为 {{"query": "要检索的内容"}}',
        "no_query": "缺少参数 query；请写明要检索的内容",
        "not_text": "参数 query 应为文本，实际为 {found}",
        "other_tool": "没有名为 {found} 的工具；可用的工具是 {tool}",
        "failed": "检索失败：{found}；没有交出任何文档",
    },
    "en": {
        "not_json": 'the arguments are not valid JSON; expected is {{"query": "what to look up"}}',
        "not_object": "the arguments are {found}; expected is a JSON object, "
        '{{"query": "what to look up"}}',
        "no_query": "the argument query is missing; say what to look up",
        "not_text": "the argument query is {found}; a text is expected",
        "other_tool": "there is no tool {found}; the one there is is {tool}",
        "failed": "the look-up failed: {found}; no document was handed out",
    },
}
_KINDS = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}


class CallRefused(Exception):
    """A tool call that cannot be carried out; the text is for the model."""

    def __init__(self, locale: Locale, reason: str, found: str = "") -> None:
        text = _MESSAGES[locale][reason].format(found=found[:200], tool=TOOL_NAME)
        super().__init__(text)
        self.reason = reason

    def reply(self) -> str:
        """The JSON that is handed to the model in place of an answer."""
        return json.dumps(
            {"error": {"type": self.reason, "message": str(self)}}, ensure_ascii=False
        )


def query_of(call: str | Mapping[str, Any], locale: Locale) -> str:
    """The query of a call: its arguments as JSON or mapping, or the whole tool call of OpenAI.

    Further arguments are passed over. Raises `CallRefused`.
    """
    arguments = _read(call, locale)
    if isinstance(function := arguments.get("function"), Mapping):
        name = function.get("name")
        if name != TOOL_NAME:
            raise CallRefused(locale, "other_tool", str(name))
        arguments = _read(function.get("arguments") or "", locale)
    query = arguments.get("query")
    if query is None:
        raise CallRefused(locale, "no_query")
    if not isinstance(query, str):
        raise CallRefused(locale, "not_text", _kind(query))
    return query


def _read(call: object, locale: Locale) -> Mapping[str, Any]:
    if isinstance(call, str | bytes):
        try:
            call = json.loads(call)
        except (ValueError, RecursionError):
            raise CallRefused(locale, "not_json") from None
    if not isinstance(call, Mapping):
        raise CallRefused(locale, "not_object", _kind(call))
    return call


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), "object")
