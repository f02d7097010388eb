"""The words of a policy's text: named policies, and the settings that may stand beside them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kbeval.config import Settings, load_settings
from kbeval.errors import ConfigError

NAMED: Mapping[str, Mapping[str, Any]] = {
    "none": {"memory": "none"},
    "documents": {},
    "path": {"known-by": "path"},
    "content": {"known-by": "content"},
    "primary": {"mark": "primary"},
    "horizon": {},
    "hints": {"obeys": "hints"},
    "domains": {"obeys": "domains"},
}
NORMALIZATION = ("retrieval", "normalization")
PATHS: Mapping[str, tuple[str, ...]] = {  # key -> where the settings have it
    "memory": ("session", "memory"),
    "mark": ("session", "mark"),
    "known-by": ("session", "known-by"),
    "horizon-turns": ("session", "horizon-turns"),
    "horizon-tokens": ("session", "horizon-tokens"),
    "limit": ("retrieval", "limit"),
    "max-l2-distance": (*NORMALIZATION, "max-l2-distance"),
    "highly-relevant": (*NORMALIZATION, "highly-relevant-threshold"),
    "reference": (*NORMALIZATION, "reference-threshold"),
    "precise-requires": ("retrieval", "l0", "precise-requires"),
    "supplement-content": ("retrieval", "supplement-content"),
}
EXECUTOR = ("obeys", "obedience")  # keys that are no settings of the tool
KEYS = (*PATHS, *EXECUTOR)
WHOLE = ("horizon-turns", "horizon-tokens", "limit")
NUMBERS = ("max-l2-distance", "highly-relevant", "reference", "obedience")
ONLY_WITH_MEMORY = ("mark", "known-by", "horizon-turns", "horizon-tokens")


def read_words(text: str) -> tuple[str, dict[str, Any]]:
    """The named policy a text begins with, and all it says about it, by key.

    Raises `ConfigError` naming the word that is wrong, or two that do not go together.
    """
    kind, *words = text.split() or [""]
    if kind not in NAMED:
        raise ConfigError(
            f"policy {text!r}: {f'no policy is named {kind!r}' if kind else 'it is empty'}; "
            f"{_nearest(kind, NAMED)}named are {', '.join(NAMED)}"
        )
    given: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if key not in KEYS or not sign:
            raise ConfigError(
                f"policy {text!r}: {word!r} is no setting of a policy; {_nearest(key, KEYS)}"
                f"allowed are KEY=VALUE with the keys {', '.join(KEYS)}"
            )
        if key in given:
            raise ConfigError(f"policy {text!r}: {key} is given twice; give it once")
        given[key] = _value(text, key, value)
    chosen = {**NAMED[kind], **given}
    _check_together(text, kind, chosen)
    return kind, chosen


def with_values(text: str, base: Settings, chosen: Mapping[str, Any]) -> Settings:
    """The base settings with another memory and these values. Raises `ConfigError`."""
    tree = base.to_yml()
    tree["session"] = {"max-sessions": base.session.max_sessions}
    for key in chosen.keys() & PATHS.keys():
        *above, last = PATHS[key]
        place = tree
        for part in above:
            place = place[part]
        place[last] = chosen[key]
    try:
        return load_settings(tree)
    except ConfigError as error:
        raise ConfigError(f"policy {text!r}: {error}") from None


def values_beside(settings: Settings, base: Settings) -> dict[str, Any]:
    """What a policy's text must say, by key, so that `with_values` makes these settings again."""
    usual = _values(base.model_copy(update={"session": Settings().session}))
    own = _values(settings)
    said = {key: value for key, value in own.items() if value != usual[key]}
    if said.get("memory") == "none":
        said = {key: value for key, value in said.items() if key not in ONLY_WITH_MEMORY}
    return said


def _values(settings: Settings) -> dict[str, Any]:
    tree = settings.to_yml()
    found = {}
    for key, path in PATHS.items():
        value: Any = tree
        for part in path:
            value = value[part]
        found[key] = value
    return found


def _value(text: str, key: str, value: str) -> object:
    convert: Callable[[str], object] = int if key in WHOLE else float if key in NUMBERS else str
    try:
        return convert(value)
    except ValueError:
        allowed = "a whole number" if key in WHOLE else "a number"
        raise ConfigError(f"policy {text!r}: {key} is {value!r}; {allowed} is expected") from None


def _check_together(text: str, kind: str, chosen: Mapping[str, Any]) -> None:
    if kind == "horizon" and not {"horizon-turns", "horizon-tokens"} & set(chosen):
        raise ConfigError(
            f"policy {text!r} says no horizon; horizon-turns=N or horizon-tokens=N is needed"
        )
    idle = [key for key in ONLY_WITH_MEMORY if key in chosen]
    if chosen.get("memory") == "none" and idle:
        raise ConfigError(f"policy {text!r} remembers nothing, so {idle[0]} means nothing there")
    obeys = chosen.get("obeys", "nothing")
    if obeys not in ("nothing", "hints", "domains"):
        raise ConfigError(
            f"policy {text!r}: obeys is {obeys!r}; allowed are nothing, hints, domains"
        )
    if "obedience" not in chosen:
        return
    if obeys == "nothing":
        raise ConfigError(f"policy {text!r} obeys nothing; obedience needs obeys=hints or domains")
    if not 0 <= chosen["obedience"] <= 1:
        raise ConfigError(f"policy {text!r}: obedience is {chosen['obedience']}; 0 to 1 is allowed")


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""
