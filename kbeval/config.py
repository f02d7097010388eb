"""Settings of the tool, read from yml with the specs' own keys, checked when they are made."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from kbeval.errors import ConfigError
from kbeval.records import Convention, Locale

L0Field = Literal["title", "aliases", "keywords", "tags", "covers", "stem"]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class _Section(BaseModel):
    """Frozen, strict (a number is not written as text), keys in kebab-case as in the yml."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", alias_generator=_kebab, populate_by_name=True
    )


class Normalization(_Section):
    """How distances become levels; the defaults are those of FS-1 and FS-2."""

    distance: Convention = "l2"  # what a distance is: Euclidean, or its square
    max_l2_distance: float = Field(2.0, gt=0, allow_inf_nan=False)  # unit of `distance`
    highly_relevant_threshold: float = Field(0.75, ge=0, le=1)  # similarity, inclusive
    reference_threshold: float = Field(0.5, ge=0, le=1)  # similarity, inclusive

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.reference_threshold > self.highly_relevant_threshold:
            raise ValueError(
                f"reference-threshold {self.reference_threshold} is above "
                f"highly-relevant-threshold {self.highly_relevant_threshold}; "
                "allowed is 0 <= reference <= highly-relevant <= 1"
            )
        return self


class L0Settings(_Section):
    """Which exact keys count, and when one match is PRECISE (design.md 3, 8)."""

    precise_requires: Literal["unique", "unique-and-nearest"] = "unique"
    fields: tuple[L0Field, ...] = Field(
        ("title", "aliases", "keywords", "tags", "covers", "stem"), strict=False
    )
    min_cjk_length: int = Field(2, ge=1)  # characters of a purely CJK key
    min_length: int = Field(3, ge=1)  # characters of any other key


class Retrieval(_Section):
    """One look-up: how many documents it hands out and how they are found and graded."""

    limit: int = Field(3, ge=1)  # documents in one answer
    supplement_content: Literal["full", "passage"] = "full"
    normalization: Normalization = Normalization()
    l0: L0Settings = L0Settings()


class Session(_Section):
    """What the session memory keeps, and for how long (REQ-01)."""

    max_sessions: int = Field(10_000, ge=1)  # oldest idle sessions leave first
    memory: Literal["documents", "none"] = "documents"
    mark: Literal["all", "primary"] = "all"  # of the documents handed out
    known_by: Literal["version", "path", "content"] = "version"  # path and content, or one of them
    horizon_turns: int | None = Field(None, ge=1)  # look-ups until a document may come again
    horizon_tokens: int | None = Field(None, ge=1)  # tokens handed out since, the same

    @property
    def forgets(self) -> bool:
        """A document may come again after a while."""
        return self.horizon_turns is not None or self.horizon_tokens is not None


class Settings(_Section):
    """Everything the tool can be told."""

    retrieval: Retrieval = Retrieval()
    session: Session = Session()
    locale: Locale = "zh"

    def to_yml(self) -> dict[str, Any]:
        """The settings as a mapping with the yml's own keys."""
        return self.model_dump(by_alias=True, mode="json")


def load_settings(source: str | Path | Mapping[str, Any] | None = None) -> Settings:
    """Read settings from a yml file or a mapping; None gives the specs' defaults.

    Raises `ConfigError` naming the full key, the value found and what is allowed.

    >>> load_settings({"retrieval": {"normalization": {"max-l2-distance": 1.5}}}
    ...     ).retrieval.normalization.max_l2_distance
    1.5
    """
    if source is None:
        return Settings()
    where = ""
    if not isinstance(source, Mapping):
        where, source = f"{source}: ", read_yml(Path(source))
    try:
        return Settings.model_validate(source)
    except ValidationError as error:
        raise ConfigError(where + _explain(error.errors()[0])) from None


def read_yml(path: Path) -> dict[str, Any]:
    """A yml file as a mapping; an empty file is an empty mapping. Raises `ConfigError`."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a mapping is expected, found {type(content).__name__}")
    return content


def _explain(error: ErrorDetails, model: type[BaseModel] = Settings) -> str:
    """One line for the first thing wrong: full key, value found, what is allowed."""
    keys = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        return _unknown_key(keys, model)
    allowed = error["msg"].removeprefix("Value error, ")
    name = ".".join(_kebab(key) for key in keys)
    if error["type"] == "value_error":
        return f"{name}: {allowed}"
    return f"{name}: got {error['input']!r}; {allowed[0].lower()}{allowed[1:]}"


def _unknown_key(keys: list[str], model: type[BaseModel]) -> str:
    for key in keys[:-1]:
        field = next(f for name, f in model.model_fields.items() if key in (name, f.alias))
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
    known = [field.alias or name for name, field in model.model_fields.items()]
    near = difflib.get_close_matches(keys[-1], known, n=1)
    where = ".".join(keys[:-1])
    return (
        f"{where + ': ' if where else ''}unknown key {keys[-1]!r}; "
        + (f"did you mean {near[0]!r}? " if near else "")
        + f"known keys are {', '.join(known)}"
    )
