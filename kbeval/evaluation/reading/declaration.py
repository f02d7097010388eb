"""What `dataset.yml` says about a set, and which of its words make a query near or far."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kbeval.config import read_yml
from kbeval.errors import ConfigError, DatasetError

NEAR_KINDS = frozenset({"near", "near_miss", "unanswerable_near", "no_offer", "unanswerable"})
FAR_KINDS = frozenset({"far", "out_of_scope", "cross_collection", "conversational"})

Nearness = Literal["near", "far", ""]


class Declaration(BaseModel):
    """The keys of `dataset.yml` that bear on measures, with what holds without the file."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    name: str = ""
    languages: list[str] = []
    labelled_by: str = ""
    answers_from: int = Field(default=1, ge=1)
    judged: Literal["complete", "pooled"] = "pooled"
    splits: list[str] = Field(default=["test"], min_length=1)
    near: list[str] = []
    far: list[str] = []
    corpus: str = ""

    @model_validator(mode="before")
    @classmethod
    def _no_slips(cls, values: Any) -> Any:  # noqa: ANN401 - pydantic hands over what it was given
        """A key that is nearly a known one would change the measures without a word."""
        for key in values:
            near = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.8)
            if near and near[0] != key:
                raise ValueError(f"unknown key {key!r}; did you mean {near[0]!r}?")
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Declaration:
        if both := sorted(set(self.near) & set(self.far)):
            raise ValueError(f"the kind {both[0]!r} is listed as near and as far")
        if len(set(self.splits)) < len(self.splits):
            raise ValueError(f"splits {self.splits} names one twice")
        return self

    @property
    def answers_from_declared(self) -> bool:
        """Whether the file itself says from which score on a document answers."""
        return "answers_from" in self.model_fields_set

    def nearness(self, kind: str, stated: object = None) -> Nearness | None:
        """What an unanswerable query of `kind` is near to.

        `stated` is the query's own metadata.nearness and goes before the lists of the file, these
        before the known kinds. None if `stated` is neither near nor far.
        """
        if stated not in (None, ""):
            return "near" if stated == "near" else "far" if stated == "far" else None
        if kind in self.near or kind in self.far:
            return "near" if kind in self.near else "far"
        return "near" if kind in NEAR_KINDS else "far" if kind in FAR_KINDS else ""


def read_declaration(folder: Path) -> Declaration:
    """Read `dataset.yml` of a folder; without the file the defaults hold. Raises `DatasetError`."""
    path = folder / "dataset.yml"
    if not path.exists():
        return Declaration()
    try:
        return Declaration.model_validate(read_yml(path))
    except ConfigError as error:
        raise DatasetError(str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        key = ".".join(str(part) for part in first["loc"])
        found = f"{key}: got {first['input']!r}; " if key else ""
        raise DatasetError(f"{path}: {found}{message[0].lower()}{message[1:]}") from None
