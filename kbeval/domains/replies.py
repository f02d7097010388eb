"""A provider's response -> a checked object, or `LlmError` with the reason (LJ-01 to LJ-03)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from kbeval.domains.mending import mend, reply_keys
from kbeval.domains.unwrapping import NoObject, unwrap
from kbeval.errors import LlmError

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """What a model answered: the checked object, and what it took to read it.

    `degraded` names the fields that could not be had, each with its reason; in `value` they
    hold the schema's defaults.
    """

    value: T
    finish_reason: str = "stop"
    unwrapped: bool = False  # the reply was more, or less, than valid JSON
    from_reasoning: bool = False  # the object stood in the reasoning field
    mended: tuple[str, ...] = ()  # fields whose type was wrong
    degraded: Mapping[str, str] = field(default_factory=dict)


class Ask(Protocol):
    """Whatever answers a prompt with an object of the schema; raises `LlmError`."""

    def __call__(self, prompt: str, schema: type[T], /) -> Reply[T]:
        """Ask once."""
        ...


def read_reply(
    response: Mapping[str, Any], schema: type[T], *, allow_reasoning_field: bool = False
) -> Reply[T]:
    """The object in an OpenAI-shaped response.

    Raises `LlmError`, naming the finish reason, for a response without a choice, an empty
    content, a refusal, a reply without an object, and an object none of whose fields can be
    used or that lacks a field the schema requires.
    """
    choice = _first_choice(response)
    finish_reason = str(choice.get("finish_reason") or "none")
    text, from_reasoning = _said(choice, allow_reasoning_field=allow_reasoning_field)
    try:
        found, unwrapped = unwrap(text, reply_keys(schema), cut_off=finish_reason == "length")
    except NoObject as reason:
        raise LlmError(f"{reason}, finish_reason={finish_reason}") from None
    mended = mend(found, schema)
    _check_enough(mended.degraded, schema, finish_reason)
    by_key = {(schema.model_fields[n].alias or n): value for n, value in mended.values.items()}
    return Reply(
        value=schema.model_validate(by_key),
        finish_reason=finish_reason,
        unwrapped=unwrapped or from_reasoning,
        from_reasoning=from_reasoning,
        mended=mended.mended,
        degraded=mended.degraded,
    )


def _first_choice(response: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise LlmError("no choice in the response, finish_reason=none")
    return choices[0]


def _said(choice: Mapping[str, Any], *, allow_reasoning_field: bool) -> tuple[str, bool]:
    """The text of a choice, and whether it comes from the reasoning field."""
    message, finish_reason = choice.get("message") or {}, choice.get("finish_reason") or "none"
    text = _joined(message.get("content"))
    if text.strip("\ufeff \t\r\n"):
        return text, False
    if message.get("refusal"):
        raise LlmError(f"refused: {str(message['refusal'])[:80]!r}, finish_reason={finish_reason}")
    reasoning = _joined(message.get("reasoning_content") or message.get("reasoning"))
    if reasoning.strip() and allow_reasoning_field:
        return reasoning, True
    hint = "; the reasoning field holds text, allow-reasoning-field is off" if reasoning else ""
    raise LlmError(f"empty content, finish_reason={finish_reason}{hint}")


def _joined(content: Any) -> str:  # noqa: ANN401
    """The text of a content: one text, or the text parts of a list of parts."""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        return "".join(text for text in texts if isinstance(text, str))
    if isinstance(content, Mapping):  # an object handed over as it is
        return json.dumps(content, ensure_ascii=False)
    return content if isinstance(content, str) else ""


def _check_enough(degraded: Mapping[str, str], schema: type[T], finish_reason: str) -> None:
    required = [name for name, field in schema.model_fields.items() if field.is_required()]
    lost = [name for name in required if name in degraded]
    if not lost and len(degraded) == len(schema.model_fields):
        lost = list(degraded)
    if lost:
        reasons = ", ".join(f"{name}: {degraded[name]}" for name in lost)
        raise LlmError(f"no usable field in the reply ({reasons}), finish_reason={finish_reason}")
