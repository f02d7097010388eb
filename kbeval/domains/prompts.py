"""The system prompts of planner and executor, from `prompts/*.md` (REQ-04, FS-5)."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from kbeval.errors import ConfigError
from kbeval.records import Locale

ExecutorVersion = Literal["v1", "v2"]

_FOLDER = Path(__file__).with_name("prompts")
_WITH_MAP = "<!-- only with a knowledge map -->\n"  # what follows this line needs a map
_PLACE = "{knowledge_map}"


def planner_prompt(map_text: str, *, locale: Locale = "zh") -> str:
    """The planner's system prompt, with the map as its own block at the end (REQ-04).

    Without a map (an empty text) neither the block nor the rules about it are there. Raises
    `ConfigError` for an unknown locale.
    """
    always, with_map = _read("chat-planner-prompt", locale).split(_WITH_MAP)
    return always + with_map.replace(_PLACE, map_text) if map_text.strip() else always


def executor_prompt(*, locale: Locale = "zh", version: ExecutorVersion = "v2") -> str:
    """The executor's system prompt: the four constraints on retrieval, and no map (FS-5).

    "v1" is the same prompt with the rule that FS-5 replaces, so that the two can be compared.
    Raises `ConfigError` for an unknown locale or version.
    """
    _check("version", version, get_args(ExecutorVersion))
    return _read("chat-executor-prompt" + ("" if version == "v2" else f"-{version}"), locale)


def _read(name: str, locale: str) -> str:
    _check("locale", locale, get_args(Locale))
    return _text(_FOLDER / f"{name}.{locale}.md")


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _check(name: str, found: str, allowed: Collection[str]) -> None:
    if found not in allowed:
        raise ConfigError(f"{name}: got {found!r}; allowed are {', '.join(allowed)}")
